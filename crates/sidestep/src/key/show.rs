//! Associations as `setkey -D` shows them, without keys; policies as `setkey -DP` does; both as JSON.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use ipsec::pf_key::extension::{Algorithm, Lifetime};
use ipsec::pf_key::message::{Message, MessageType, satype, state};
use ipsec::pf_key::{authentication_name, encryption_name, policies as told};
use ipsec::policy::{Action, Direction, Rule};
use ipsec::selector::Upper;
use serde::Serialize;

use crate::failure::Failure;

/// An association; field names are a contract.
#[derive(Debug, Serialize)]
struct Association {
    source: String,
    destination: String,
    protocol: &'static str,
    mode: &'static str,
    spi: u32,
    request_id: u32,
    /// `null`: not encrypted.
    encryption: Option<Named>,
    /// `null`: the encryption authenticates.
    authentication: Option<Named>,
    /// Size of the replay window, 255 for all that are larger; 0: none.
    replay_window: u8,
    state: &'static str,
    udp_ports: Option<[u16; 2]>,
    sensitivity: u8,
    added_unix_s: u64,
    /// `null`: not used yet.
    first_used_unix_s: Option<u64>,
    bytes: u64,
    packets: u32,
    soft_lifetime: Limits,
    hard_lifetime: Limits,
}

#[derive(Debug, Serialize)]
struct Named {
    algorithm: &'static str,
    key_bits: u16,
}

/// 0: no limit.
#[derive(Debug, Default, Serialize)]
struct Limits {
    added_s: u64,
    used_s: u64,
    bytes: u64,
    packets: u32,
}

impl From<Lifetime> for Limits {
    fn from(lifetime: Lifetime) -> Self {
        let Lifetime { allocations, bytes, added, used } = lifetime;
        Self { added_s: added, used_s: used, bytes, packets: allocations }
    }
}

impl Association {
    /// `None`: the message shows none.
    fn of(message: &Message) -> Option<Self> {
        let given = &message.extensions;
        let (sa, current) = (given.sa?, given.lifetime_current?);
        let bits = |algorithms: &Option<Vec<Algorithm>>| {
            algorithms.as_ref().and_then(|algorithms| algorithms.first()).map_or(0, |only| only.max_bits)
        };
        let named = |algorithm: Option<&'static str>, algorithms| {
            algorithm.map(|algorithm| Named { algorithm, key_bits: bits(algorithms) })
        };
        let sa2 = given.sa2.unwrap_or_default();
        Some(Self {
            source: given.address_source?.address.to_string(),
            destination: given.address_destination?.address.to_string(),
            protocol: if message.satype == satype::AH { "ah" } else { "esp" },
            mode: if sa2.mode == 2 { "tunnel" } else { "transport" },
            spi: sa.spi,
            request_id: sa2.request_id,
            encryption: named(encryption_name(sa.encryption), &given.supported_encryption),
            authentication: named(authentication_name(sa.authentication), &given.supported_authentication),
            replay_window: sa.replay,
            state: if sa.state == state::DYING { "dying" } else { "mature" },
            udp_ports: given.nat_t_source_port.zip(given.nat_t_destination_port).map(<[u16; 2]>::from),
            sensitivity: given.sensitivity.map_or(0, |levels| levels.sensitivity),
            added_unix_s: current.added,
            first_used_unix_s: (current.used > 0).then_some(current.used),
            bytes: current.bytes,
            packets: current.allocations,
            soft_lifetime: given.lifetime_soft.unwrap_or_default().into(),
            hard_lifetime: given.lifetime_hard.unwrap_or_default().into(),
        })
    }
}

pub(super) fn associations_json(shown: &[Message]) -> Result<String, Failure> {
    json(&shown.iter().filter_map(Association::of).collect::<Vec<_>>())
}

/// Associations and policies, as they come.
pub(super) fn all(shown: &[Message]) -> String {
    let of = |message: &Message| {
        let one = std::slice::from_ref(message);
        if message.message_type == MessageType::PolicyDump { policies(one) } else { associations(one) }
    };
    shown.iter().map(of).collect()
}

pub(super) fn associations(shown: &[Message]) -> String {
    let mut text = String::new();
    for association in shown.iter().filter_map(Association::of) {
        // Writing to a string does not fail.
        let _ = write_association(&mut text, &association);
    }
    text
}

fn write_association(text: &mut String, association: &Association) -> std::fmt::Result {
    let Association { source, destination, protocol, mode, spi, request_id, .. } = association;
    let [from, to] = association
        .udp_ports
        .map_or([String::new(), String::new()], |ports| ports.map(|port| format!("[{port}]")));
    let in_udp = if association.udp_ports.is_some() { "-udp" } else { "" };
    writeln!(text, "{source}{from} {destination}{to}")?;
    writeln!(text, "\t{protocol}{in_udp} mode={mode} spi={spi}({spi:#010x}) reqid={request_id}")?;
    for (letter, algorithm) in [("E", &association.encryption), ("A", &association.authentication)] {
        if let Some(Named { algorithm, key_bits }) = algorithm {
            writeln!(text, "\t{letter}: {algorithm}  {key_bits} bits")?;
        }
    }
    writeln!(text, "\treplay={} state={}", association.replay_window, association.state)?;
    let (soft, hard) = (&association.soft_lifetime, &association.hard_lifetime);
    let added = time(association.added_unix_s);
    writeln!(text, "\tcreated: {added}\thard: {}(s)\tsoft: {}(s)", hard.added_s, soft.added_s)?;
    let used = association.first_used_unix_s.map_or_else(String::new, time);
    writeln!(text, "\tused: {used}\thard: {}(s)\tsoft: {}(s)", hard.used_s, soft.used_s)?;
    let Association { bytes, packets, .. } = association;
    writeln!(text, "\tcurrent: {bytes}(bytes)\thard: {}(bytes)\tsoft: {}(bytes)", hard.bytes, soft.bytes)?;
    writeln!(text, "\tallocated: {packets}\thard: {}\tsoft: {}", hard.packets, soft.packets)
}

fn time(unix_seconds: u64) -> String {
    let at = UNIX_EPOCH.checked_add(Duration::from_secs(unix_seconds)).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// A policy; field names are a contract.
#[derive(Debug, Serialize)]
struct Policy {
    source: String,
    destination: String,
    upper: String,
    direction: &'static str,
    /// In setkey's language: `discard`, `none`, or `ipsec` and what it asks for.
    action: String,
}

impl Policy {
    fn of(message: &Message) -> Option<Self> {
        let Rule { direction, selector, action } = told::rule(&message.extensions)?;
        let given = &message.extensions;
        let port = |port: u16| if port == 0 { "any".to_owned() } else { port.to_string() };
        let (from, to) = (port(given.address_source?.port), port(given.address_destination?.port));
        let (ports, upper) = match selector.upper {
            Upper::Any => (["any".to_owned(), "any".to_owned()], "any".to_owned()),
            Upper::Icmp { protocol, .. } => {
                (["any".to_owned(), "any".to_owned()], format!("{protocol},{from},{to}"))
            }
            Upper::Protocol(protocol) | Upper::Ports { protocol, .. } => ([from, to], protocol.to_string()),
        };
        let action = match action {
            Action::Discard => "discard".to_owned(),
            Action::Bypass => "none".to_owned(),
            Action::Protect { .. } => given.policy.iter().flat_map(|policy| &policy.requests).fold(
                "ipsec".into(),
                |text, request| {
                    let protocol = if request.protocol == 51 { "ah" } else { "esp" };
                    let mode = if request.mode == 2 { "tunnel" } else { "transport" };
                    let ends = request.ends.map_or(String::new(), |(from, to)| format!("{from}-{to}"));
                    let level = ["default", "use", "require", "unique"].get(usize::from(request.level));
                    format!("{text} {protocol}/{mode}/{ends}/{}", level.unwrap_or(&"unique"))
                },
            ),
        };
        Some(Self {
            source: format!("{}[{}]", selector.source, ports[0]),
            destination: format!("{}[{}]", selector.destination, ports[1]),
            upper,
            direction: if direction == Direction::In { "in" } else { "out" },
            action,
        })
    }
}

pub(super) fn policies_json(shown: &[Message]) -> Result<String, Failure> {
    json(&shown.iter().filter_map(Policy::of).collect::<Vec<_>>())
}

pub(super) fn policies(shown: &[Message]) -> String {
    let policies = shown.iter().filter_map(Policy::of);
    policies.fold(String::new(), |mut text, Policy { source, destination, upper, direction, action }| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{source} {destination} {upper}\n\t{direction} {action}");
        text
    })
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
