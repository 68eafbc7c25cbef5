//! The whole file: which tables there are.

use toml::Spanned;
use toml::de::DeTable;

use crate::dns::table::DnsTable;
use crate::event::EventsTable;
use crate::firewall::table::{FirewallTable, ReachTable, ZoneTable};
use crate::flows::table::FlowsTable;
use crate::forward::table::ForwardTable;
use crate::key::Absent::{Default, Otherwise};
use crate::nat64::table::Nat64Table;
use crate::network::NetworkTable;
use crate::node::NodeTable;
use crate::peer::PeerTable;
use crate::report::{Finding, Report};
use crate::route::RouteTable;
use crate::script::ScriptTable;
use crate::section::{Given, read_entries, section};
use crate::standby::StandbyTable;
use crate::tunnel::TunnelTable;
use crate::uplink::UplinkTable;
use crate::wrap::WrapTable;

section! {
    /// The file.
    Document = "the file" {
        /// Files whose [[peer]], [[wrap]], [[script]], [[uplink]], [[network]] and [[route]] are as if they stood here: `"conf.d/*.toml"`.
        include: Vec<Spanned<String>> = Otherwise("none");
        /// A file of the [[peer]] tables, and [reach], that `sidestep agent` writes, the [fleet's](fleet.md) agent. It may be
        /// absent, and has neither files nor secrets, whoever writes it.
        fleet: String = Otherwise("none");
        /// This gateway.
        node: NodeTable = Otherwise("");
        /// The TUN device.
        tunnel: TunnelTable = Default("{}");
        /// The other gateway of this site, if it has two.
        standby: StandbyTable = Otherwise("none");
        /// One for each other gateway.
        peer: Vec<Spanned<PeerTable>> = Otherwise("none");
        /// Other tunnels whose packets travel with a peer's.
        wrap: Vec<Spanned<WrapTable>> = Otherwise("none");
        /// Packet scripts.
        script: Vec<Spanned<ScriptTable>> = Otherwise("none");
        /// Ways to the Internet.
        uplink: Vec<Spanned<UplinkTable>> = Otherwise("none");
        /// Links with hosts.
        network: Vec<Spanned<NetworkTable>> = Otherwise("none");
        /// Routes of your own.
        route: Vec<Spanned<RouteTable>> = Otherwise("none");
        /// Ports of uplinks that lead to hosts inside.
        forward: Vec<Spanned<ForwardTable>> = Otherwise("none");
        /// The gateway's resolver.
        dns: DnsTable = Otherwise("none");
        /// The translator by which hosts of IPv6 reach servers of IPv4.
        nat64: Nat64Table = Otherwise("none");
        /// Who is told of flows.
        flows: FlowsTable = Otherwise("none");
        /// Zones of the firewall.
        zone: Vec<Spanned<ZoneTable>> = Otherwise("none");
        /// Its settings and rules.
        firewall: FirewallTable = Default("{}");
        /// What a fleet says of who may open connections to whom.
        reach: ReachTable = Default("{}");
        /// What is done when something happens.
        events: EventsTable = Default("{}");
    }
}

impl Document {
    /// Whether it describes a router or a firewall and says nothing of a tunnel.
    pub(crate) fn is_without_tunnel(&self) -> bool {
        self.has_router() && self.node.is_absent() && self.peer.list().is_empty()
    }

    /// Whether it describes a router or a firewall.
    pub(crate) fn has_router(&self) -> bool {
        let router = there(&self.uplink) || there(&self.network) || there(&self.route);
        router
            || !self.nat64.is_absent()
            || !self.flows.is_absent()
            || there(&self.forward)
            || there(&self.zone)
            || !self.firewall.is_absent()
    }
}

fn there<V>(tables: &Given<Vec<Spanned<V>>>) -> bool {
    tables.is_wrong() || !tables.list().is_empty()
}

/// Reads the file with all that is wrong in it reported, or reports why it is no TOML.
pub(crate) fn read(text: &str, report: &mut Report) -> Option<Document> {
    let mut entries = parse_table(text, report)?;
    if is_ipsec(&entries) {
        refuse_ipsec(&mut entries, report);
    }
    Some(read_entries(&entries, 0..0, report))
}

/// The tables of the file, or a report of why it is no TOML.
pub(crate) fn parse_table<'t>(text: &'t str, report: &mut Report) -> Option<DeTable<'t>> {
    let table = DeTable::parse(text).map_err(|error| report.add(no_toml(&error, text))).ok()?;
    Some(table.into_inner())
}

/// Whether these are the entries of a file of the other kind: [`crate::ipsec`].
pub(crate) fn is_ipsec(entries: &DeTable<'_>) -> bool {
    ["ipsec", "remote"].into_iter().any(|name| entries.contains_key(name))
}

/// Reports tables of a file of the other kind, once, and takes them out.
fn refuse_ipsec(entries: &mut DeTable<'_>, report: &mut Report) {
    let is_of_ipsec = |name: &str| matches!(name, "ipsec" | "remote" | "policy");
    let mut names: Vec<_> = entries.keys().filter(|name| is_of_ipsec(name.get_ref())).cloned().collect();
    names.sort_by_key(|name| name.span().start);
    for name in &names {
        if let Some(value) = entries.remove(name.get_ref().as_ref()) {
            report.hide(&value);
        }
    }
    let help = if entries.is_empty() {
        "`sidestep ipsec up` runs it"
    } else {
        "give [ipsec], [[remote]] and [[policy]] a file of their own, which `sidestep ipsec up` runs"
    };
    let span = names.first().map_or(0..0, Spanned::span);
    report.add(Finding::error(span, "[ipsec] belongs to another kind of file", "", help));
}

fn no_toml(error: &toml::de::Error, text: &str) -> Finding {
    let span = error.span().unwrap_or(0..0);
    // A key that stands twice is no fault of syntax to who wrote it; `toml` tells it by its message alone.
    let help = if error.message() != "duplicate key" {
        "`sidestep man` shows complete configurations".to_owned()
    } else {
        match header_of_many(text.get(..span.start).unwrap_or_default()) {
            Some(header) => format!("remove one of them; each {header} needs a header of its own"),
            None => "remove one of them".to_owned(),
        }
    };
    // A message may quote a value.
    Finding::error(span, crate::report::blank_keys(error.message()), "", help)
}

/// The header of the table that the text ends in, if it is one of a list of tables.
fn header_of_many(text: &str) -> Option<&str> {
    let last = text.lines().rev().map(str::trim_start).find(|line| line.starts_with('['))?;
    let end = last.starts_with("[[").then(|| last.find("]]"))??;
    last.get(..end + 2)
}
