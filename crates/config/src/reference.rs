//! The tables of keys in `docs/`, as the keys are declared.
//!
//! A table stands between `<!-- keys of NAME -->` and `<!-- end of keys -->`. `UPDATE_REFERENCE=1 cargo test -p config
//! reference` writes all of them anew.

use crate::bandwidth::BandwidthTable;
use crate::dhcp::table::{DhcpTable, HostTable};
use crate::dhcp6::table::{Dhcp6Table, Host6Table};
use crate::dns::table::DnsTable;
use crate::event::EventsTable;
use crate::firewall::table::{FirewallTable, ReachTable, RuleTable, TestTable, ZoneTable};
use crate::flows::table::FlowsTable;
use crate::forward::table::ForwardTable;
use crate::ipsec::document::{ChildTable, IpsecTable, PolicyTable, RemoteTable};
use crate::key::{Absent, Key, Only};
use crate::nat64::table::Nat64Table;
use crate::network::NetworkTable;
use crate::node::NodeTable;
use crate::peer::PeerTable;
use crate::port_mapping::table::PortMappingTable;
use crate::route::RouteTable;
use crate::script::ScriptTable;
use crate::section::Section;
use crate::standby::StandbyTable;
use crate::transition::TransitionTable;
use crate::tunnel::TunnelTable;
use crate::uplink::UplinkTable;
use crate::wrap::WrapTable;

/// A table of the reference: its name, and which keys it has.
type Listed = (&'static str, &'static [Key], fn(Option<Only>) -> bool);

/// Every key is in one of these, but for those of the hosts of `protect` and of schedules, which the text explains.
const TABLES: [Listed; 32] = [
    ("[node]", NodeTable::KEYS, |only| only.is_none()),
    ("[node], transparent", NodeTable::KEYS, |only| only == Some(Only::Transparent)),
    ("[tunnel]", TunnelTable::KEYS, |_| true),
    ("[standby]", StandbyTable::KEYS, |_| true),
    ("[[peer]]", PeerTable::KEYS, |only| only != Some(Only::Classic)),
    ("[[peer]], classic", PeerTable::KEYS, |only| only == Some(Only::Classic)),
    ("[[wrap]]", WrapTable::KEYS, |_| true),
    ("[[script]]", ScriptTable::KEYS, |_| true),
    ("[[uplink]]", UplinkTable::KEYS, |_| true),
    ("[uplink.bandwidth]", BandwidthTable::KEYS, |_| true),
    ("[uplink.tunnel]", TransitionTable::KEYS, |_| true),
    ("[[network]]", NetworkTable::KEYS, |_| true),
    ("[network.dhcp]", DhcpTable::KEYS, |_| true),
    ("[[network.dhcp.host]]", HostTable::KEYS, |_| true),
    ("[network.dhcp6]", Dhcp6Table::KEYS, |_| true),
    ("[[network.dhcp6.host]]", Host6Table::KEYS, |_| true),
    ("[network.port_mapping]", PortMappingTable::KEYS, |_| true),
    ("[dns]", DnsTable::KEYS, |_| true),
    ("[nat64]", Nat64Table::KEYS, |_| true),
    ("[flows]", FlowsTable::KEYS, |_| true),
    ("[[route]]", RouteTable::KEYS, |_| true),
    ("[[forward]]", ForwardTable::KEYS, |_| true),
    ("[[zone]]", ZoneTable::KEYS, |_| true),
    ("[firewall]", FirewallTable::KEYS, |_| true),
    ("[[firewall.rule]]", RuleTable::KEYS, |_| true),
    ("[[firewall.test]]", TestTable::KEYS, |_| true),
    ("[reach]", ReachTable::KEYS, |_| true),
    ("[events]", EventsTable::KEYS, |_| true),
    ("[ipsec]", IpsecTable::KEYS, |_| true),
    ("[[remote]]", RemoteTable::KEYS, |_| true),
    ("[[remote.child]]", ChildTable::KEYS, |_| true),
    ("[[policy]]", PolicyTable::KEYS, |_| true),
];

/// The names of all tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, ..)| *name)
}

/// Whether a table or one of its keys has this name.
pub(crate) fn is_name(name: &str) -> bool {
    TABLES.iter().any(|(table, keys, _)| {
        table.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| !word.is_empty() && word == name)
            || keys.iter().any(|key| key.name == name)
    })
}

/// A table of keys in Markdown, as it stands in this document of `docs/`; None if there is no such table.
pub fn table(name: &str, document: &str) -> Option<String> {
    let (_, keys, is_listed) = TABLES.iter().find(|(known, ..)| *known == name)?;
    let mut text = "| key | default | meaning and trade-off |\n|---|---|---|\n".to_owned();
    for key in keys.iter().filter(|key| is_listed(key.only)) {
        let default = match key.absent {
            Absent::Required(_) => "required".to_owned(),
            Absent::Default(toml) => format!("`{toml}`"),
            Absent::Otherwise(words) => words.to_owned(),
        };
        let about: Vec<&str> = key.about.iter().map(|line| line.trim()).collect();
        // Links within the document need not name it.
        let about = about.join(" ").replace(&format!("({document}#"), "(#");
        text += &format!("| `{}` | {default} | {about} |\n", key.name);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const DOCUMENTS: [&str; 6] =
        ["operations.md", "gateway.md", "firewall.md", "classic.md", "ipsec.md", "fleet.md"];
    const BEGIN: &str = "<!-- keys of ";
    const END: &str = "<!-- end of keys -->";

    /// The document with its tables as they are declared.
    fn current(document: &str, text: &str) -> String {
        let mut now = String::new();
        let mut rest = text;
        while let Some((before, from_name)) = rest.split_once(BEGIN) {
            let (name, old) = from_name.split_once(" -->").expect("a comment ends");
            let (_, after) = old.split_once(END).unwrap_or_else(|| panic!("{document}: {name} has no end"));
            let rows = table(name, document).unwrap_or_else(|| panic!("{document}: no such table: {name}"));
            now += &format!("{before}{BEGIN}{name} -->\n\n{rows}\n{END}");
            rest = after;
        }
        now + rest
    }

    #[test]
    fn the_reference_is_what_the_declarations_say() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut all = String::new();
        for document in DOCUMENTS {
            let file = folder.join(document);
            let written = std::fs::read_to_string(&file).expect(document);
            let now = current(document, &written);
            if std::env::var_os("UPDATE_REFERENCE").is_some() {
                std::fs::write(&file, &now).expect(document);
            } else {
                assert!(
                    written == now,
                    "docs/{document} is not current: UPDATE_REFERENCE=1 cargo test -p config reference"
                );
            }
            all += &now;
        }
        for name in names() {
            assert_eq!(all.matches(&format!("{BEGIN}{name} -->")).count(), 1, "{name}");
        }
    }

    #[test]
    fn every_declared_default_can_be_read() {
        let text = "[node]\n[tunnel]\n[standby]\n[firewall]\n[[firewall.rule]]\n[[firewall.test]]\n[firewall.schedules.a]\n\
                    [[zone]]\n[reach]\n[[peer]]\n[[wrap]]\n[[script]]\n[[uplink]]\ntunnel = {}\n[[network]]\n[[route]]\n[[forward]]\n";
        let mut report = crate::report::Report::default();
        assert!(crate::document::read(text, &mut report).is_some());
        assert!(!report.has_errors(), "{report}");
        let text = "[ipsec]\n[[remote]]\n[[remote.child]]\n[[policy]]\n";
        assert!(crate::ipsec::document::read(text, &mut report).is_some());
        assert!(!report.has_errors(), "{report}");
    }
}
