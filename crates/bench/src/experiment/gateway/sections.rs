//! What was measured, as tables and plots: a section for the aims, and one for each part of the plan.

use maud::Markup;

use super::paper;
use super::results::{Cell, Results, families, rules_cell, translation_cell, tunnel_cell};
use super::rules::{COUNTS, MIXED_COUNTS, Mix, RuleSet};
use super::subject::{List, Part, Router, Subject, Tunnel, Way};
use super::test::{FRAMES, Family, Test, WINDOWS};
use crate::chart::Scale;
use crate::chart::steps::{Line, figure};
use crate::comparison::statistics::Summary;
use crate::comparison::tables::{Table, multiple};
use crate::experiment::store::Store;

/// A part of the plan.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) title: &'static str,
    /// What was done, how to read it.
    pub(super) about: &'static str,
    /// What the paper says, and what is here.
    pub(super) statements: Vec<[String; 2]>,
    /// As HTML.
    pub(super) plots: Vec<Markup>,
    pub(super) tables: Vec<Table>,
}

/// All that there is something to say about.
pub(super) fn sections(store: &Store) -> Vec<Section> {
    let results = Results(store);
    let mut sections =
        vec![aims(results), router(results), firewall(results), tunnel(results), translation(results)];
    sections.retain(|section| !section.tables.is_empty());
    sections
}

/// One of the aims that this program set itself, and how near it came.
pub(super) struct Aim {
    pub(super) what: String,
    /// What counts is the median.
    pub(super) ratio: Summary,
    /// From where to where it is met.
    met: std::ops::RangeInclusive<f64>,
}

impl Aim {
    pub(super) fn is_met(&self) -> bool {
        self.met.contains(&self.ratio.median)
    }
}

const NOTHING: f64 = 0.0;
const ANYTHING: f64 = f64::INFINITY;

/// The aims, as far as there are values.
pub(super) fn all_aims(results: Results) -> Vec<Aim> {
    let mut aims = Vec::new();
    let mut add = |what: String, ratio: Option<Summary>, met: std::ops::RangeInclusive<f64>| {
        aims.extend(ratio.map(|ratio| Aim { what, ratio, met }));
    };
    let tests = [
        (Router::OFFLOADS, Test::Tcp, "TCP with offloads"),
        (Router::SINGLE, Test::Segments(1_518), "TCP, frames of 1518"),
        (Router::SINGLE, Test::Packets(86), "UDP, frames of 86"),
        (Router::SINGLE, Test::Packets(1_518), "UDP, frames of 1518"),
    ];
    for (router, test, what) in tests {
        for (router, without) in [(router, ""), (router.by_hand(), ", without Sidestep")] {
            let [v6, v4] = families(Part::T1, Subject::Router(router), test);
            let what = format!("T1: IPv6 within 3 % of IPv4: {what}{without}");
            add(what, results.ratio(&v6, &v4), 0.97..=ANYTHING);
        }
    }
    for family in [Family::Ipv6, Family::Ipv4] {
        for (test, what) in RULES_TESTS {
            let with = |count| rules_cell(List::Sidestep, count, family, test);
            let slower_is_less = matches!(test.value().1, "µs");
            let met = if slower_is_less { NOTHING..=1.05 } else { 0.95..=ANYTHING };
            let aim = format!("T2: with 10,000 rules within 5 % of none: {what}, {}", shown(family));
            add(aim, results.ratio(&with(10_000), &with(0)), met.clone());
            for (mix, which) in
                [(Mix::Mixed, "mixed rules"), (Mix::Beside, "mixed rules, beside listed networks")]
            {
                let mixed = rules_cell(List::Sidestep, RuleSet { mix, count: 10_000 }, family, test);
                let aim = format!("T2: with 10,000 {which} within 5 % of none: {what}, {}", shown(family));
                add(aim, results.ratio(&mixed, &with(0)), met.clone());
            }
        }
    }
    for (test, what) in [(Test::Segments(1_024), "TCP"), (Test::Packets(1_024), "UDP")] {
        let beside = |other| results.ratio(&tunnel_cell(Tunnel::Sidestep, test), &tunnel_cell(other, test));
        let aim = format!("T3: the tunnel at least 90 % of native forwarding: {what}, frames of 1024");
        add(aim, beside(Tunnel::Native), 0.9..=ANYTHING);
        let aim = format!("T3: the tunnel better than one in user space: {what}, frames of 1024");
        add(aim, beside(Tunnel::UserSpace), 1.0..=ANYTHING);
    }
    for (test, what) in TRANSLATION_TESTS.into_iter().filter(|(test, _)| test.value().1 != "µs") {
        for (name, way, with_flowtable) in
            [("NAT64", Way::Nat64, Way::Nat64Flowtable), ("CLAT", Way::Clat, Way::ClatFlowtable)]
        {
            for base in [Way::Stateless, Way::Forwarded, Way::Masqueraded] {
                let aim = format!("{name}: at least 90 % of {}: {what}", base.name());
                let ratio = results.ratio(&translation_cell(way, test), &translation_cell(base, test));
                add(aim, ratio, 0.9..=ANYTHING);
            }
            let aim = format!("{name} with flow_offload: at least 90 % of forwarded: {what}");
            let with = translation_cell(with_flowtable, test);
            add(aim, results.ratio(&with, &translation_cell(Way::Forwarded, test)), 0.9..=ANYTHING);
        }
    }
    aims
}

const fn shown(family: Family) -> &'static str {
    match family {
        Family::Ipv6 => "IPv6",
        Family::Ipv4 => "IPv4",
    }
}

fn aims(results: Results) -> Section {
    let rows = all_aims(results).into_iter().map(|aim| {
        let Summary { median, min, max } = aim.ratio;
        let met = if aim.is_met() { "met" } else { "not met" };
        vec![aim.what, format!("{median:.3} ({min:.3}–{max:.3})"), met.to_owned()]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let header = ["aim", "ratio", ""].map(str::to_owned).to_vec();
    let tables = if rows.is_empty() {
        Vec::new()
    } else {
        vec![Table { title: "Aims".to_owned(), how: RATIOS.to_owned(), header, rows }]
    };
    Section { title: "What was aimed at", about: RATIOS, statements: Vec::new(), plots: Vec::new(), tables }
}

const RATIOS: &str = "Medians of the ratios within each repetition (lowest–highest).";

/// Steps along the horizontal axis, with the test at each.
fn frames(test: fn(u32) -> Test, largest: u32) -> Vec<(String, Test)> {
    let frame = |frame: u32| (frame.min(largest).to_string(), test(frame.min(largest)));
    FRAMES.map(frame).to_vec()
}

fn router(results: Results) -> Section {
    let windows = WINDOWS.map(|bytes| (format!("{} kB", bytes >> 10), Test::Window(bytes)));
    let mut unlimited = windows.to_vec();
    unlimited.push(("automatic".to_owned(), Test::Tcp));
    let (offloads, single) = (Router::OFFLOADS, Router::SINGLE);
    let of = |test| frames(test, 1_518);
    let mut segments = of(Test::Segments);
    segments.retain(|(_, test)| matches!(test, Test::Segments(256..)));
    let groups = [
        (
            "TCP against the window, Mbit/s",
            "One flow (iperf3), bytes of socket buffer at both ends; offloads as they are. The kernel uses twice what is \
             asked for, and keeps about half of it for itself.",
            "socket buffer",
            offloads,
            unlimited,
        ),
        (
            "TCP against the frame, thousand segments/s",
            "One flow of segments that fill the frame; no offload on any interface, so that each frame is carried by \
             itself. Smaller frames than 256 cannot be had: Linux takes no MSS below 88.",
            "frame, bytes",
            single,
            segments,
        ),
        (
            "UDP against the frame, thousand frames/s",
            "As fast as the sender goes, and what arrives in a second.",
            "frame, bytes",
            single,
            of(Test::Packets),
        ),
        (
            "UDP without loss, thousand frames/s",
            "The highest rate at which no datagram of a trial was lost, found by halving (RFC 2544, section 26.1) and \
             held for 1.5 s; to within 6 %. ≥ where the sender, which forwards on its own processor, got no faster.",
            "frame, bytes",
            single,
            of(Test::WithoutLoss),
        ),
        ("Round trip, µs", "Flooded echo requests, medians.", "frame, bytes", single, of(Test::Echo)),
    ];
    let (mut plots, mut tables) = (Vec::new(), Vec::new());
    let mut parity = Vec::new();
    let colours = ["a", "b", "neutral", "faint"];
    for (title, how, axis, router, steps) in groups {
        let subject = Subject::Router(router);
        let cells = |family| {
            let cell = |(_, test): &(String, Test)| Cell { part: Part::T1, subject, family, test: *test };
            steps.iter().map(cell).collect::<Vec<Cell>>()
        };
        let [v6, v4] = [Family::Ipv6, Family::Ipv4].map(cells);
        let names: Vec<String> = steps.iter().map(|(name, _)| name.clone()).collect();
        let line = |name: &str, class, cells: &[Cell]| Line {
            name: name.to_owned(),
            class,
            points: cells.iter().map(|cell| results.median(cell)).collect(),
        };
        plots.extend(figure(
            title,
            axis,
            &names,
            &[line("IPv6", "a", &v6), line("IPv4", "b dashed", &v4)],
            Scale::Linear,
        ));
        let ratios: Vec<Option<f64>> =
            v6.iter().zip(&v4).map(|(v6, v4)| results.ratio(v6, v4).map(|ratio| ratio.median)).collect();
        if router == single {
            // Those of TCP begin at larger frames.
            let points = [vec![None; FRAMES.len() - ratios.len()], ratios].concat();
            let name = title.split(',').next().unwrap_or_default().to_owned();
            parity.push(Line { name, class: colours[parity.len() % colours.len()], points });
        }
        let rows = v6.iter().zip(&v4).map(|(v6, v4)| {
            let by_hand = |cell: &Cell| Cell { subject: Subject::Router(router.by_hand()), ..*cell };
            let (v6_by_hand, v4_by_hand) = (by_hand(v6), by_hand(v4));
            vec![
                results.text(v6),
                results.text(v4),
                results.ratio_text(v6, v4),
                results.ratio_text(&v6_by_hand, &v4_by_hand),
                results.ratio_text(v6, &v6_by_hand),
                results.ratio_text(v4, &v4_by_hand),
            ]
        });
        let mut rows: Vec<Vec<Option<String>>> = rows.collect();
        let mut header = vec![axis, "IPv6", "IPv4", "IPv6 / IPv4"];
        if rows.iter().any(|row| row[3].is_some()) {
            header.extend(["the same by hand", "IPv6 / by hand", "IPv4 / by hand"]);
        }
        rows.iter_mut().for_each(|row| row.truncate(header.len() - 1));
        tables.extend(table(title, how, &header, names.iter().cloned().zip(rows)));
    }
    let names: Vec<String> = FRAMES.map(|frame| frame.to_string()).to_vec();
    let caption = "IPv6 as a multiple of IPv4, frames of the same size";
    plots.splice(0..0, figure(caption, "frame, bytes", &names, &parity, Scale::Ratio));
    Section {
        title: "T1: native router",
        about: "host – router – host; the router is `sidestep up` with an uplink and a network, IPv4 routed beside \
                IPv6. Frames are Ethernet's with the check sequence, of the same size in both IP versions, so that IPv6 \
                carries 20 bytes less; 86 bytes are the least that numbered datagrams over IPv6 take, 64 hold none.",
        statements: paper::router(results),
        plots,
        tables,
    }
}

/// What the paper's rule set is tried with.
pub(super) const RULES_TESTS: [(Test, &str); 5] = [
    (Test::Packets(86), "UDP, frames of 86"),
    (Test::Packets(1_024), "UDP, frames of 1024"),
    (Test::Tcp, "TCP"),
    (Test::Echo(128), "round trip of echoes"),
    (Test::Connect, "round trip of a connection's first packet"),
];

fn firewall(results: Results) -> Section {
    let names: Vec<String> = COUNTS.map(|count| crate::comparison::tables::thousands(count.into())).to_vec();
    let (mut plots, mut tables) = (Vec::new(), Vec::new());
    for family in [Family::Ipv6, Family::Ipv4] {
        for (test, what) in RULES_TESTS {
            let title = format!("{what}, {}, {}", shown(family), test.value().1);
            let line = |list: List| Line {
                name: list.name().to_owned(),
                class: match list {
                    List::Iptables => "b",
                    List::Nftables => "neutral",
                    List::Sidestep => "a",
                },
                points: COUNTS
                    .iter()
                    .map(|count| results.median(&rules_cell(list, *count, family, test)))
                    .collect(),
            };
            if family == Family::Ipv6 {
                plots.extend(figure(&title, "rules", &names, &List::ALL.map(line), Scale::Decades));
            }
            let rows = names.iter().zip(COUNTS).map(|(name, count)| {
                let cell = |list| {
                    let [cell, none] = [count, 0].map(|count| rules_cell(list, count, family, test));
                    let text = results.text(&cell)?;
                    let ratio = results.ratio(&cell, &none).filter(|_| count > 0);
                    Some(ratio.map_or(text.clone(), |ratio| format!("{text} ({}×)", multiple(ratio.median))))
                };
                (name.clone(), List::ALL.map(cell).to_vec())
            });
            let how = "In brackets: as a multiple of the same without rules.";
            let header: Vec<&str> = std::iter::once("rules").chain(List::ALL.map(List::name)).collect();
            tables.extend(table(&title, how, &header, rows));
        }
    }
    tables.extend([Family::Ipv6, Family::Ipv4].into_iter().flat_map(|family| mixed(results, family)));
    let ratio = |(test, what): (Test, &str), class| Line {
        name: what.to_owned(),
        class,
        points: COUNTS
            .iter()
            .map(|count| {
                let [v6, v4] = families(Part::T2, Subject::Rules(List::Sidestep, (*count).into()), test);
                results.ratio(&v6, &v4).map(|ratio| ratio.median)
            })
            .collect(),
    };
    let classes = ["a", "neutral", "b", "faint", "a dashed"];
    let lines: Vec<Line> =
        RULES_TESTS.into_iter().zip(classes).map(|(one, class)| ratio(one, class)).collect();
    let caption = "Sidestep's: IPv6 as a multiple of IPv4";
    plots.extend(figure(caption, "rules", &names, &lines, Scale::Ratio));
    Section {
        title: "T2: native firewall",
        about: "The paper's artificial rule set in FORWARD: so many rules that drop TCP from a network to a port and \
                never match, and one behind them that accepts ICMPv6; the same for IPv4. ip6tables and nftables walk \
                it for every packet, without connection tracking, as the paper's gateway did. Sidestep's is the same \
                rules in a file, put there by `sidestep firewall apply`, with all that it does by default: zones, \
                connection tracking, checks of origin. UDP is never answered, so each datagram is the first of its \
                connection to it, and is looked up; the last figure is connections that a closed port refuses. No \
                offload on any interface.",
        statements: paper::firewall(results),
        plots,
        tables,
    }
}

/// The rules that lists hold.
fn mixed(results: Results, family: Family) -> impl Iterator<Item = Table> {
    RULES_TESTS.into_iter().filter_map(move |(test, what)| {
        let title = format!("Mixed rules: {what}, {}, {}", shown(family), test.value().1);
        let rows = std::iter::once(0).chain(MIXED_COUNTS).map(|count| {
            let shown = |list, mix| {
                let none = rules_cell(list, 0, family, test);
                if count == 0 {
                    return results.text(&none);
                }
                let cell = rules_cell(list, RuleSet { mix, count }, family, test);
                let text = results.text(&cell)?;
                let ratio = results.ratio(&cell, &none);
                Some(ratio.map_or(text.clone(), |ratio| format!("{text} ({}×)", multiple(ratio.median))))
            };
            let mut cells: Vec<Option<String>> = List::ALL.map(|list| shown(list, Mix::Mixed)).to_vec();
            cells.push(shown(List::Sidestep, Mix::Beside).filter(|_| count > 0));
            (crate::comparison::tables::thousands(count.into()), cells)
        });
        let how = "In brackets: as a multiple of the same without rules. Prefixes of 20 lengths over IPv6, 16 over IPv4, for \
                   everything, a port, a range of ports or echo requests. Beside: each hundredth is next to the client.";
        let header: Vec<&str> =
            std::iter::once("rules").chain(List::ALL.map(List::name)).chain(["sidestep, beside"]).collect();
        table(&title, how, &header, rows)
    })
}

fn tunnel(results: Results) -> Section {
    let there = |tunnel: &Tunnel| {
        let entries = &results.0.settings.contenders;
        entries.iter().any(|entry| entry.name == tunnel.name())
    };
    let tunnels: Vec<Tunnel> = Tunnel::ALL.into_iter().filter(there).collect();
    let others: Vec<Tunnel> = tunnels.iter().copied().filter(|tunnel| *tunnel != Tunnel::Sidestep).collect();
    let beside: Vec<String> = others.iter().map(|other| format!("sidestep / {}", other.name())).collect();
    let of = |test| frames(test, 1_498);
    let groups = [
        (
            "UDP against the frame, thousand frames/s",
            "As fast as the sender goes, and what arrives in a second.",
            of(Test::Packets),
        ),
        (
            "UDP without loss, thousand frames/s",
            "RFC 2544, section 26.1, as in T1. ≥ where the sender, which forwards on its own processor unless a process \
             takes the packets, got no faster.",
            of(Test::WithoutLoss),
        ),
        ("Round trip, µs", "Flooded echo requests, medians.", of(Test::Echo)),
        (
            "TCP, Mbit/s",
            "One flow, unlimited, with segmentation offload; what a process reads has none.",
            vec![("with offloads".to_owned(), Test::Tcp)],
        ),
        (
            "TCP against the frame, thousand segments/s",
            "One flow of segments that fill the frame, with segmentation offload as above: the gateways carry many as one.",
            vec![("1024".to_owned(), Test::Segments(1_024))],
        ),
    ];
    let (mut plots, mut tables) = (Vec::new(), Vec::new());
    for (title, how, steps) in groups {
        let names: Vec<String> = steps.iter().map(|(name, _)| name.clone()).collect();
        let line = |tunnel: &Tunnel| Line {
            name: tunnel.name().to_owned(),
            class: match tunnel {
                Tunnel::Native => "faint",
                Tunnel::Sidestep => "a",
                Tunnel::UserSpace => "b",
                Tunnel::Sit => "neutral",
                Tunnel::Flowtable => "a dashed",
            },
            points: steps.iter().map(|(_, test)| results.median(&tunnel_cell(*tunnel, *test))).collect(),
        };
        if steps.len() > 1 {
            let lines: Vec<Line> = tunnels.iter().map(line).collect();
            plots.extend(figure(title, "inner frame, bytes", &names, &lines, Scale::Linear));
        }
        let rows = steps.iter().map(|(name, test)| {
            let mut cells: Vec<Option<String>> =
                tunnels.iter().map(|tunnel| results.text(&tunnel_cell(*tunnel, *test))).collect();
            let ours = tunnel_cell(Tunnel::Sidestep, *test);
            cells.extend(others.iter().map(|other| results.ratio_text(&ours, &tunnel_cell(*other, *test))));
            (name.clone(), cells)
        });
        let header: Vec<&str> = std::iter::once("inner frame")
            .chain(tunnels.iter().map(|tunnel| tunnel.name()))
            .chain(beside.iter().map(String::as_str))
            .collect();
        tables.extend(table(title, how, &header, rows));
    }
    Section {
        title: "T3: IPv6-in-IPv4 tunnel",
        about: "host – gateway – gateway – host: both gateways are `sidestep up`, and differ in the uplink only. The \
                sizes are those of the frames of the hosts; the tunnel adds 20 bytes, so 1498 is the largest.",
        statements: paper::tunnel(results),
        plots,
        tables,
    }
}

/// What NAT64 is tried with.
const TRANSLATION_TESTS: [(Test, &str); 6] = [
    (Test::Tcp, "TCP with offloads"),
    (Test::Segments(1_024), "TCP, frames of 1024"),
    (Test::Packets(86), "UDP, frames of 86"),
    (Test::Packets(1_024), "UDP, frames of 1024"),
    (Test::Echo(1_024), "round trip of echoes, frames of 1024"),
    (Test::Connect, "round trip of a connection's first packet"),
];

fn translation(results: Results) -> Section {
    let ratios = [
        (Way::Nat64, Way::Stateless),
        (Way::Nat64, Way::Forwarded),
        (Way::Nat64, Way::Masqueraded),
        (Way::ForwardedFlowtable, Way::Forwarded),
        (Way::Nat64Flowtable, Way::Nat64),
        (Way::Nat64Flowtable, Way::Forwarded),
        (Way::Clat, Way::Stateless),
        (Way::Clat, Way::Forwarded),
        (Way::Clat, Way::Masqueraded),
        (Way::ClatFlowtable, Way::Clat),
        (Way::ClatFlowtable, Way::Forwarded),
    ];
    let is_there = |way: Way| results.0.settings.contenders.iter().any(|entry| entry.name == way.name());
    let ways: Vec<Way> = Way::ALL.into_iter().filter(|way| is_there(*way)).collect();
    let ratios: Vec<_> =
        ratios.into_iter().filter(|(one, other)| is_there(*one) && is_there(*other)).collect();
    let rows = TRANSLATION_TESTS.into_iter().map(|(test, what)| {
        let cell = |way| translation_cell(way, test);
        let values = ways.iter().map(|way| results.text(&cell(*way)));
        let ratios = ratios.iter().map(|(one, other)| results.ratio_text(&cell(*one), &cell(*other)));
        (format!("{what}, {}", test.value().1), values.chain(ratios).collect())
    });
    let beside: Vec<String> =
        ratios.iter().map(|(one, other)| format!("{} / {}", one.name(), other.name())).collect();
    let names = ways.iter().map(|way| way.name());
    let header: Vec<&str> =
        std::iter::once("").chain(names).chain(beside.iter().map(String::as_str)).collect();
    let how = "TCP in frames of 1024, UDP and round trips without any offload, so that each packet is by itself. Some \
               datagrams of UDP are answered: the rest are packets of a known connection.";
    Section {
        title: "NAT64 and 464XLAT",
        about: "host – gateway – server: the gateway is `sidestep up` with its default firewall, and with none where it \
                is `stateless`. Frames are as large at the host in both IP versions. Behind `clat` the translator's own half \
                is left out: the server has an address of its prefix, so that what is seen is what the customer's side costs.",
        statements: Vec::new(),
        plots: Vec::new(),
        tables: table("NAT64 and CLAT beside forwarding and masquerading", how, &header, rows)
            .into_iter()
            .collect(),
    }
}

/// A table; nothing without a value. Rows without any are left out.
fn table(
    title: &str,
    how: &str,
    header: &[&str],
    rows: impl Iterator<Item = (String, Vec<Option<String>>)>,
) -> Option<Table> {
    let there = rows.filter(|(_, cells)| cells.iter().any(Option::is_some));
    let rows: Vec<Vec<String>> =
        there.map(|(name, cells)| crate::experiment::tables::line(name, cells)).collect();
    (!rows.is_empty()).then(|| crate::experiment::tables::table(title, how, header, rows))
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Instant;

    use super::*;
    use crate::experiment::scene::Outcome;
    use crate::experiment::store::Measurement;
    use crate::experiment::store::tests::settings;

    /// Two runs of each cell, the second with twice the value.
    pub(in crate::experiment::gateway) fn example(
        directory: &std::path::Path,
        cells: &[(Cell, f64)],
    ) -> Store {
        let mut settings = settings();
        for tunnel in Tunnel::ALL {
            let entry =
                crate::comparison::results::Entry { name: tunnel.name().into(), about: "<about>".into() };
            settings.contenders.push(entry);
        }
        let mut store = Store::open(directory, settings).expect("a store");
        for (cell, value) in cells {
            for run in [1, 2] {
                let outcome = Outcome::new([(cell.test.value().0, value * f64::from(run))], "");
                let at = super::super::results::place(cell);
                let measurement = Measurement::of(&at, run, Instant::now(), Ok(outcome));
                store.keep(super::super::key(cell, run), measurement).expect("kept");
            }
        }
        store
    }

    #[test]
    fn ipv6_stands_beside_ipv4_with_the_ratio_within_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let [v6, v4] = families(Part::T1, Subject::Router(Router::SINGLE), Test::Packets(1_518));
        let store = example(directory.path(), &[(v6, 99.0), (v4, 100.0)]);
        let sections = sections(&store);
        let text: String = sections.iter().flat_map(|section| &section.tables).map(Table::text).collect();
        // 99 and 198 beside 100 and 200: the ratio is the same in both runs.
        assert!(text.contains("0.99×") && text.contains("IPv6 / IPv4"), "{text}");
        let aims = all_aims(Results(&store));
        assert!(aims.len() == 1 && aims[0].is_met() && aims[0].ratio.max < 1.0);
        assert!(sections[1].plots[0].0.contains("IPv6 as a multiple of IPv4"));
    }

    #[test]
    fn rules_that_cost_nothing_meet_the_aim_and_a_list_has_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let cell = |list, count| rules_cell(list, count, Family::Ipv6, Test::Connect);
        let cells = [
            (cell(List::Sidestep, 0), 50.0),
            (cell(List::Sidestep, 10_000), 53.0),
            (cell(List::Nftables, 0), 40.0),
            (cell(List::Nftables, 10_000), 400.0),
        ];
        let store = example(directory.path(), &cells);
        let aims = all_aims(Results(&store));
        assert!(aims.len() == 1 && !aims[0].is_met(), "6 % more is more than 5 %");
        let text: String = sections(&store).iter().flat_map(|one| &one.tables).map(Table::text).collect();
        assert!(text.contains("(10×)") && text.contains("(1.06×)") && text.contains("not met"), "{text}");
    }

    #[test]
    fn a_tunnel_stands_beside_native_forwarding_and_user_space() {
        let directory = tempfile::tempdir().expect("a directory");
        let cell = |tunnel| tunnel_cell(tunnel, Test::Packets(1_024));
        let cells = [
            (cell(Tunnel::Native), 100.0),
            (cell(Tunnel::Sidestep), 92.0),
            (cell(Tunnel::UserSpace), 23.0),
            (cell(Tunnel::Sit), 80.0),
            (cell(Tunnel::Flowtable), 115.0),
        ];
        let store = example(directory.path(), &cells);
        assert!(all_aims(Results(&store)).iter().all(Aim::is_met));
        let text: String = sections(&store).iter().flat_map(|one| &one.tables).map(Table::text).collect();
        for shown in ["0.92×", "4.00×", "1.15×", "sidestep / sit"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}
