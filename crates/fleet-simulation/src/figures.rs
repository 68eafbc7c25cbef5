//! What a simulation has found, as a table.

use std::fmt::Write as _;
use std::time::Duration;

/// What a fleet and its controllers needed.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Sites, with their hubs.
    pub sites: usize,
    /// Of which hubs.
    pub hubs: usize,
    /// Controllers.
    pub controllers: usize,
    /// Octets of the document as a whole, as a spoke is told it.
    pub document: u64,
    /// Within which time all sites begin to enrol.
    pub storm: Duration,
    /// From there to when all are members.
    pub all_in: Duration,
    /// Documents that were signed until then.
    pub documents: u64,
    /// What the storm took at the busiest controller: requests, octets, processor time.
    pub enrolling: Work,
    /// A day on which nothing changes.
    pub idle: Work,
    /// Octets of a site on such a day, to and from controllers.
    pub idle_controllers: u64,
    /// The same between sites: a site's own questions.
    pub idle_peers: u64,
    /// Connections that are held at the busiest controller.
    pub connections: usize,
    /// What a document with one change took at the busiest controller.
    pub change: Work,
    /// Octets of a site for it.
    pub change_site: u64,
    /// From the signature of a revocation until the site is out at half of all, at 99 of 100, at the last.
    pub out: [Duration; 3],
    /// The longest that an agent has computed at once: a document, and the gateway's peers that follow from it.
    pub agent: Duration,
    /// Times in which nobody has answered.
    pub outages: Vec<Outage>,
    /// Octets of a backup in the end.
    pub backup: u64,
}

/// Work of a controller.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    /// Requests.
    pub requests: u64,
    /// Octets, both ways.
    pub octets: u64,
    /// Processor time.
    pub processor: Duration,
}

/// A time in which neither controllers nor store were there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outage {
    /// How long.
    pub length: Duration,
    /// Octets of a site for each hour of it: to peers.
    pub peers_per_hour: u64,
    /// From when controllers were there again, with a document that was signed meanwhile, until the last site had it.
    pub back: Duration,
    /// The most questions in one second, at all controllers together.
    pub peak: u64,
    /// What that took at the busiest controller.
    pub work: Work,
}

/// The figures, a column for each simulation.
#[must_use]
pub fn table(all: &[Figures]) -> String {
    let mut text = String::new();
    let mut row = |what: &str, of: &dyn Fn(&Figures) -> String| {
        let cells: Vec<String> = all.iter().map(of).collect();
        let _ = writeln!(text, "| {what} | {} |", cells.join(" | "));
    };
    row("sites, of which hubs", &|one| format!("{}, {}", one.sites, one.hubs));
    let rule: Vec<&str> = std::iter::repeat_n("---:", all.len()).collect();
    row("controllers", &|one| one.controllers.to_string());
    row("the document as a whole", &|one| octets(one.document));
    row("**all enrol within**", &|one| seconds(one.storm));
    row("all are members after", &|one| seconds(one.all_in));
    row("documents signed until then", &|one| one.documents.to_string());
    work(&mut row, |one| one.enrolling);
    row("**a day without changes**: a site and controllers", &|one| octets(one.idle_controllers));
    row("a site's questions to peers", &|one| octets(one.idle_peers));
    row("connections held at a controller", &|one| one.connections.to_string());
    work(&mut row, |one| one.idle);
    row("**a site is revoked**: out at half of all after", &|one| seconds(one.out[0]));
    row("at 99 of 100", &|one| seconds(one.out[1]));
    row("at the last", &|one| seconds(one.out[2]));
    row("octets of a site for it", &|one| octets(one.change_site));
    row("an agent computes, at the most", &|one| seconds(one.agent));
    work(&mut row, |one| one.change);
    for at in 0..all.iter().map(|one| one.outages.len()).max().unwrap_or_default() {
        let of = move |one: &Figures| one.outages.get(at).copied().unwrap_or_default();
        row("**nobody answers for**", &move |one| seconds(of(one).length));
        row("a site's questions to peers, each hour", &move |one| octets(of(one).peers_per_hour));
        row("all have what was signed meanwhile after", &move |one| seconds(of(one).back));
        row("questions in the busiest second, to all controllers", &move |one| of(one).peak.to_string());
        work(&mut row, move |one| of(one).work);
    }
    row("**a backup**", &|one| octets(one.backup));
    let (head, rest) = text.split_once('\n').unwrap_or_default();
    format!("{head}\n|---|{}|\n{rest}", rule.join("|"))
}

/// Adds a row of cells, of which each is told of one simulation.
type AddRow<'r> = dyn FnMut(&str, &dyn Fn(&Figures) -> String) + 'r;

fn work(row: &mut AddRow<'_>, work: impl Fn(&Figures) -> Work) {
    row("a controller: requests", &|one| work(one).requests.to_string());
    row("its octets, both ways", &|one| octets(work(one).octets));
    row("its processor time", &|one| seconds(work(one).processor));
}

fn octets(count: u64) -> String {
    let count = count as f64;
    match count {
        _ if count >= 1e9 => format!("{:.1} GB", count / 1e9),
        _ if count >= 1e6 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.1} kB", count / 1e3),
    }
}

fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        _ if seconds >= 3600.0 => format!("{:.0} h", seconds / 3600.0),
        _ if seconds >= 600.0 => format!("{:.0} min", seconds / 60.0),
        _ if seconds >= 10.0 => format!("{seconds:.0} s"),
        _ => format!("{seconds:.2} s"),
    }
}
