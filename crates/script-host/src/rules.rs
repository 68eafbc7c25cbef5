//! The nftables rules that give packets to scripts: a table of ours, in it a chain for each script.

use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;

use linux::nft;
use linux::queue::rule;
use linux::ruleset::{Family, chains_of_rules, has_chain, has_table, names};
use script::compile::PUNT_MASK;
use script::matching::Rule;

use crate::attach_point::{MARK, PUNT_MARK, priority};
use crate::order::Place;
use config::attachment::Attachment;

/// Whatever is in it is ours.
pub(super) const TABLE: &str = "sidestep-scripts";
/// Queues of one script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queues {
    /// Of TCP: GSO packets come whole, and may be changed so.
    pub(super) tcp: RangeInclusive<u16>,
    /// Of all else.
    pub(super) other: RangeInclusive<u16>,
}

/// What drops packets of a script that does not run: a chain of this name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hold {
    /// One that is not loaded, by its place among them.
    NotLoaded(usize),
    /// One whose program is not attached, by its number.
    NotAttached(u32),
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoaded(number) => write!(f, "held{number}"),
            Self::NotAttached(id) => write!(f, "detached{id}"),
        }
    }
}

/// A table without scripts, in the place of what an earlier host has left. Packets of these scripts, each of which is about
/// to come, are dropped until they are [let go](let_go), if they must not pass without it.
pub(super) fn begin<'a>(held: impl IntoIterator<Item = (Hold, &'a Attachment)>) -> linux::Result<()> {
    let chains: String = held.into_iter().map(|(hold, attachment)| hold_chain(hold, attachment)).collect();
    nft::apply(&format!(
        "add table inet {TABLE}\ndelete table inet {TABLE}\nadd table inet {TABLE}\n{chains}"
    ))
}

/// Drops packets of a script no more.
pub(super) fn let_go(hold: Hold) -> linux::Result<()> {
    match has_chain(Family::Inet, TABLE, &hold.to_string())? {
        true => nft::apply(&format!("flush chain inet {TABLE} {hold}\n")),
        false => Ok(()),
    }
}

/// The same, and leaves no chain. The kernel drops what waits in queues then, whosever it is.
pub(super) fn end_hold(hold: Hold) -> linux::Result<()> {
    match has_chain(Family::Inet, TABLE, &hold.to_string())? {
        true => nft::apply(&format!("flush chain inet {TABLE} {hold}\ndelete chain inet {TABLE} {hold}\n")),
        false => Ok(()),
    }
}

/// Drops packets of no script any more that is not loaded.
pub(super) fn let_all_go() -> linux::Result<()> {
    let chains = names(Family::Inet, TABLE)?.chains;
    let held = chains.iter().filter(|chain| chain.starts_with("held"));
    let gone = |chain| format!("flush chain inet {TABLE} {chain}\ndelete chain inet {TABLE} {chain}\n");
    nft::apply(&held.map(gone).collect::<String>())
}

/// Whether there are rules, of a host that runs or of one that has left them.
pub(super) fn are_there() -> linux::Result<bool> {
    has_table(Family::Inet, TABLE)
}

/// Removes all.
pub(super) fn end() -> linux::Result<()> {
    // Adding before deleting makes the deletion succeed whether or not the table is there.
    nft::apply(&format!("add table inet {TABLE}\ndelete table inet {TABLE}\n"))
}

/// Gives packets to the queues of a script: its own, or those that a program hands over by this mark. On an error nothing
/// is left of it.
pub(super) fn add(
    id: u32,
    attachment: &Attachment,
    queues: &Queues,
    place: Place,
    mark: Option<u32>,
) -> linux::Result<()> {
    // They may be there, without some of their rules.
    let empty = |name| format!("add chain inet {TABLE} {name}{id}\nflush chain inet {TABLE} {name}{id}\n");
    let taken = nft::apply(&["tcp", "other"].map(empty).concat())
        .and_then(|()| rule::send_to(TABLE, &format!("tcp{id}"), &queues.tcp, attachment.fail_open))
        .and_then(|()| rule::send_to(TABLE, &format!("other{id}"), &queues.other, attachment.fail_open))
        .and_then(|()| nft::apply(&hook_chain(id, attachment, place, mark)));
    taken.inspect_err(|_| {
        // The first error is the one to tell.
        let _ = nft::apply(&removal(id, ""));
    })
}

/// The rules that the table has, by their chains: somebody else may have removed some, or all.
pub(super) struct There(Vec<String>);

impl There {
    pub(super) fn look() -> linux::Result<Self> {
        chains_of_rules(Family::Inet, TABLE).map(Self)
    }

    fn has(&self, chain: &str, rules: usize) -> bool {
        self.0.iter().filter(|name| *name == chain).count() == rules
    }

    /// Whether all rules of a script are there.
    pub(super) fn has_all(&self, id: u32, mark: Option<u32>) -> bool {
        let first = if mark.is_some() { 3 } else { 1 };
        self.has(&format!("script{id}"), first + 2)
            && ["tcp", "other"].iter().all(|name| self.has(&format!("{name}{id}"), 1))
    }

    /// Whether packets of a script that does not run are dropped, if they are to be.
    pub(super) fn holds(&self, hold: Hold, attachment: &Attachment) -> bool {
        attachment.fail_open || self.has(&hold.to_string(), 2)
    }
}

/// Puts the rules of a script back.
pub(super) fn restore(
    id: u32,
    attachment: &Attachment,
    queues: &Queues,
    place: Place,
    mark: Option<u32>,
) -> linux::Result<()> {
    nft::apply(&format!("add table inet {TABLE}\n"))?;
    add(id, attachment, queues, place, mark)
}

/// Drops packets of a script that does not run, if they must not pass without it.
pub(super) fn hold(hold: Hold, attachment: &Attachment) -> linux::Result<()> {
    match attachment.fail_open {
        true => Ok(()),
        false => nft::apply(&format!("add table inet {TABLE}\n{}", hold_chain(hold, attachment))),
    }
}

/// Gives a script no more packets. Those that wait for it go on: its chain is there until it is [removed](remove).
pub(super) fn stop(id: u32) -> linux::Result<()> {
    match has_chain(Family::Inet, TABLE, &format!("script{id}"))? {
        true => nft::apply(&format!("flush chain inet {TABLE} script{id}\n")),
        false => Ok(()),
    }
}

/// Removes the rules of a script. The kernel drops what waits in queues then, whosever it is.
pub(super) fn remove(id: u32) -> linux::Result<()> {
    if !has_chain(Family::Inet, TABLE, &format!("script{id}"))? {
        return Ok(());
    }
    nft::apply(&removal(id, &format!("delete chain inet {TABLE} script{id}\n")))
}

/// The chain at the hook goes first: those that it leads to are in use until then.
fn removal(id: u32, hook: &str) -> String {
    let flush =
        if hook.is_empty() { String::new() } else { format!("flush chain inet {TABLE} script{id}\n") };
    format!("{flush}{hook}delete chain inet {TABLE} tcp{id}\ndelete chain inet {TABLE} other{id}\n")
}

/// An empty chain at the hook of a script.
fn base_chain(chain: &str, attachment: &Attachment, priority: i32) -> String {
    let hook = attachment.hook.netfilter();
    format!(
        "add chain {chain} {{ type filter hook {hook} priority {priority}; policy accept; }}\nflush chain {chain}\n"
    )
}

/// What lets packets pass that scripts have made, and what holds of a script's own packets, with a space behind it.
fn own_packets(chain: &str, attachment: &Attachment) -> (String, String) {
    let device = attachment.device().map_or_else(String::new, |name| {
        let key = if attachment.hook.is_outward() { "oifname" } else { "iifname" };
        format!("{key} \"{name}\" ")
    });
    let rule = format!("{device}{}", words(&attachment.matching()));
    (format!("add rule {chain} meta mark {MARK:#x} accept\n"), rule)
}

/// What drops packets of a script that does not run; nothing, where they may pass.
fn hold_chain(hold: Hold, attachment: &Attachment) -> String {
    if attachment.fail_open {
        return String::new();
    }
    let chain = format!("inet {TABLE} {hold}");
    let begin = base_chain(&chain, attachment, priority(attachment));
    let (first, rule) = own_packets(&chain, attachment);
    format!("{begin}{first}add rule {chain} {rule}drop\n")
}

fn hook_chain(id: u32, attachment: &Attachment, place: Place, mark: Option<u32>) -> String {
    let chain = format!("inet {TABLE} script{id}");
    let begin = base_chain(&chain, attachment, place.priority());
    let (first, rule) = match mark {
        None => own_packets(&chain, attachment),
        // The program has looked at the rest, and the interface may be another by now: that of a VLAN, or a bridge. Nobody
        // behind this sees that packets were marked.
        Some(mark) => {
            let bit = mark & !PUNT_MASK;
            let (seen, others) = (PUNT_MASK | bit, !bit);
            let first = format!(
                "add rule {chain} meta mark & {seen:#x} != {mark:#x} accept\n\
                 add rule {chain} meta mark set meta mark & {others:#x}\n\
                 add rule {chain} meta mark {PUNT_MARK:#x} meta mark set 0\n"
            );
            (first, String::new())
        }
    };
    format!(
        "{begin}{first}\
         add rule {chain} {rule}meta l4proto tcp goto tcp{id}\n\
         add rule {chain} {rule}goto other{id}\n"
    )
}

/// A rule in the words of nft, with a space behind each.
fn words(rule: &Rule) -> String {
    let mut text = String::new();
    let mut put = |words: std::fmt::Arguments<'_>| {
        let _ = write!(text, "{words} ");
    };
    if let Some(family) = rule.family {
        put(format_args!("meta nfproto ipv{family}"));
        let ip = if family == 4 { "ip" } else { "ip6" };
        for (name, prefix) in [("saddr", rule.saddr), ("daddr", rule.daddr)] {
            if let Some(prefix) = prefix {
                put(format_args!("{ip} {name} {prefix}"));
            }
        }
    }
    let has_ports = !rule.source_ports.is_empty() || !rule.destination_ports.is_empty();
    match rule.protocol {
        Some(protocol) => put(format_args!("meta l4proto {protocol}")),
        None if has_ports => put(format_args!("meta l4proto {{ 6, 17 }}")),
        None => {}
    }
    for (name, ports) in [("sport", &rule.source_ports), ("dport", &rule.destination_ports)] {
        if !ports.is_empty() {
            put(format_args!("th {name} {{ {} }}", elements(ports)));
        }
    }
    if let Some(kind) = rule.icmp_type {
        // The first octet of the header, of either version.
        put(format_args!("@th,0,8 {kind}"));
    }
    for (name, interface) in [("iifname", &rule.iif), ("oifname", &rule.oif)] {
        if let Some(interface) = interface {
            put(format_args!("{name} \"{interface}\""));
        }
    }
    text
}

/// Ranges that overlap are refused by nft.
fn elements(ports: &[RangeInclusive<u16>]) -> String {
    let mut ranges: Vec<_> = ports.iter().map(|range| (*range.start(), *range.end())).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    let text = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    merged.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_held_that_must_not_pass_without_their_script() {
        let text = r#"{"file":"/a.lua","hook":"ingress","dev":"lan","match":"tcp dport 80","function":"f","state":null,
            "tier":"kernel","priority":-10,"failure":"accept","fail_open":false}"#;
        let attachment: Attachment = serde_json::from_str(text).expect("an attachment");
        let chain = hold_chain(Hold::NotLoaded(3), &attachment);
        assert!(
            chain.contains("held3 { type filter hook prerouting priority -10; policy accept; }"),
            "{chain}"
        );
        assert!(chain.ends_with("held3 iifname \"lan\" meta l4proto 6 th dport { 80 } drop\n"), "{chain}");
        assert_eq!(hold_chain(Hold::NotLoaded(3), &Attachment { fail_open: true, ..attachment }), "");
    }

    #[test]
    fn rules_are_told_in_words_of_nft() {
        for (rule, wanted) in [
            ("", ""),
            ("ip6 saddr 2001:db8::/32", "meta nfproto ipv6 ip6 saddr 2001:db8::/32 "),
            ("tcp dport 80", "meta l4proto 6 th dport { 80 } "),
            ("th sport { 5-9, 1, 7-12, 13 }", "meta l4proto { 6, 17 } th sport { 1, 5-13 } "),
            ("icmpv6 type 128 iif eth0", "meta l4proto 58 @th,0,8 128 iifname \"eth0\" "),
        ] {
            assert_eq!(words(&Rule::parse(rule).expect(rule)), wanted, "{rule}");
        }
    }
}
