//! The tables of keys in `docs/`, as the keys are declared.

use crate::firewall::table::{FirewallTable, RuleTable, ScheduleTable, TestTable, ZoneTable};
use crate::key::{Absent, Key, Only};
use crate::network::NetworkTable;
use crate::node::NodeTable;
use crate::peer::PeerTable;
use crate::route::RouteTable;
use crate::script::ScriptTable;
use crate::section::Section;
use crate::transition::TransitionTable;
use crate::transparent::HostTable;
use crate::tunnel::TunnelTable;
use crate::uplink::UplinkTable;

/// A table of the reference: its name, and which keys it has.
type Listed = (&'static str, &'static [Key], fn(Option<Only>) -> bool);

/// Every key is in one of these.
const TABLES: [Listed; 16] = [
    ("[node]", NodeTable::KEYS, |only| only.is_none()),
    ("[node], transparent", NodeTable::KEYS, |only| only == Some(Only::Transparent)),
    ("a host of protect", HostTable::KEYS, |_| true),
    ("[tunnel]", TunnelTable::KEYS, |_| true),
    ("[[peer]]", PeerTable::KEYS, |only| only != Some(Only::Classic)),
    ("[[peer]], classic", PeerTable::KEYS, |only| only == Some(Only::Classic)),
    ("[[script]]", ScriptTable::KEYS, |_| true),
    ("[[uplink]]", UplinkTable::KEYS, |_| true),
    ("[uplink.tunnel]", TransitionTable::KEYS, |_| true),
    ("[[network]]", NetworkTable::KEYS, |_| true),
    ("[[route]]", RouteTable::KEYS, |_| true),
    ("[[zone]]", ZoneTable::KEYS, |_| true),
    ("[firewall]", FirewallTable::KEYS, |_| true),
    ("[[firewall.rule]]", RuleTable::KEYS, |_| true),
    ("[firewall.schedules]", ScheduleTable::KEYS, |_| true),
    ("[[firewall.test]]", TestTable::KEYS, |_| true),
];

/// The names of all tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, ..)| *name)
}

/// A table of keys in Markdown, as it stands in this document of `docs/`; None if there is no such table.
pub fn table(name: &str, document: &str) -> Option<String> {
    let (_, keys, is_listed) = TABLES.iter().find(|(known, ..)| *known == name)?;
    let mut text = "| key | default | meaning |\n|---|---|---|\n".to_owned();
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
    #[test]
    fn every_declared_default_can_be_read() {
        let text = "[node]\n[tunnel]\n[firewall]\n[[firewall.rule]]\n[[firewall.test]]\n[firewall.schedules.a]\n\
                    [[zone]]\n[[peer]]\n[[script]]\n[[uplink]]\ntunnel = {}\n[[network]]\n[[route]]\n";
        let mut report = crate::report::Report::default();
        assert!(crate::document::read(text, &mut report).is_some());
        assert!(!report.has_errors(), "{report}");
    }
}
