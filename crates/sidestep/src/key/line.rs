//! What a message of PF_KEY says, in one line: for the monitor.

use ipsec::pf_key::extension::Address;
use ipsec::pf_key::message::{Message, MessageType, satype};

/// `None`: it is an answer that says nothing of the engine.
pub(super) fn of(message: &Message) -> Option<String> {
    let given = &message.extensions;
    let protocol = match message.satype {
        satype::AH => "ah",
        satype::ESP => "esp",
        _ => "all",
    };
    let by = match message.pid {
        0 => String::new(),
        pid => format!(" by {pid}"),
    };
    let ends = || {
        let end = |address: Option<Address>| address.map_or("?".into(), |end| end.address.to_string());
        format!("{} -> {}", end(given.address_source), end(given.address_destination))
    };
    let spi = given.sa.map_or(String::new(), |sa| format!(" spi {:#010x}", sa.spi));
    let mode = match given.sa2.map(|sa2| sa2.mode) {
        Some(1) => " transport",
        Some(2) => " tunnel",
        _ => "",
    };
    let association = |verb: &str| format!("{verb} {protocol}{mode}{spi} {}{by}", ends());
    let policy = |verb: &str| {
        let direction = match given.policy.as_ref().map(|policy| policy.direction) {
            Some(1) => " in",
            Some(2) => " out",
            _ => "",
        };
        let network = |end: Option<Address>| {
            end.map_or("?".into(), |end| format!("{}/{}", end.address, end.prefix_length))
        };
        let (from, to) = (network(given.address_source), network(given.address_destination));
        format!("policy {verb}{direction} {from} -> {to}{by}")
    };
    Some(match message.message_type {
        MessageType::Acquire => {
            let number = match given.sa2 {
                Some(sa2) if sa2.request_id > 0 => format!(" reqid {}", sa2.request_id),
                _ => String::new(),
            };
            format!("acquire {protocol}{mode} {} seq {}{number}", ends(), message.sequence)
        }
        MessageType::Expire if given.lifetime_hard.is_some() => association("expired (hard)"),
        MessageType::Expire => association("expired (soft)"),
        MessageType::GetSpi => association("reserved"),
        MessageType::Add => association("added"),
        MessageType::Update => association("updated"),
        MessageType::Delete => association("deleted"),
        MessageType::Flush => format!("flushed {protocol}{by}"),
        MessageType::Register => format!("registered {protocol}{by}"),
        MessageType::PolicyAdd => policy("added"),
        MessageType::PolicyDelete => policy("deleted"),
        MessageType::PolicyFlush => format!("policies flushed{by}"),
        MessageType::Get | MessageType::Dump | MessageType::PolicyDump | MessageType::Promiscuous => {
            return None;
        }
    })
}
