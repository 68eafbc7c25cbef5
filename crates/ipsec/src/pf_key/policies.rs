//! Policies in PF_KEY: the messages that KAME added for them, in the layout of Linux. A rule is a `sadb_x_policy` with its
//! requests, and two addresses that select: networks by their prefix lengths, ports by those of the addresses, type and
//! code of ICMP in the places of the ports, as setkey(8) puts them. A 0 there is any.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use wire::protocol as ip;

use super::answers::{Answer, Errno};
use super::extension::{Address, Policy, PolicyRequest};
use super::message::{Extensions, Message, MessageType};
use crate::level::{Level, Levels};
use crate::policy::{Action, Direction, PolicyDatabase, Rule};
use crate::selector::{Selector, Upper};

/// Policies that daemons may put in. Each packet is compared with them one by one.
pub const MAX_POLICIES: usize = 1024;

/// Any protocol of the upper layer (`IPSEC_PROTO_ANY`).
const ANY_PROTOCOL: u8 = 255;
const IN: u8 = 1;
const OUT: u8 = 2;
const DISCARD: u16 = 0;
const NONE: u16 = 1;
const IPSEC: u16 = 2;
const TRANSPORT: u8 = 1;
const TUNNEL: u8 = 2;

/// Why a rule cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It is about a range of ports, or types, or codes.
    #[error("PF_KEY knows one port, type or code, or any, and no ranges")]
    Range,
    /// It is about number 0 alone.
    #[error("in PF_KEY, port, type or code 0 is any of them: it cannot be told of 0 alone")]
    Zero,
}

/// The extensions that tell a rule.
///
/// # Errors
/// [`PolicyError`] for what a daemon would read as another rule.
pub fn extensions(rule: &Rule) -> Result<Extensions, PolicyError> {
    Ok(tell(rule, ports(&rule.selector.upper)?))
}

/// In the places of the ports.
fn ports(upper: &Upper) -> Result<(u16, u16), PolicyError> {
    match upper {
        Upper::Any | Upper::Protocol(_) => Ok((0, 0)),
        Upper::Ports { source, destination, .. } => {
            let port = |range: &RangeInclusive<u16>| one_or_any(*range.start(), *range.end(), u16::MAX);
            Ok((port(source)?, port(destination)?))
        }
        Upper::Icmp { types, codes, .. } => {
            let number = |range: &RangeInclusive<u8>| {
                one_or_any((*range.start()).into(), (*range.end()).into(), u8::MAX.into())
            };
            Ok((number(types)?, number(codes)?))
        }
    }
}

fn tell(rule: &Rule, (source_port, destination_port): (u16, u16)) -> Extensions {
    let protocol = match rule.selector.upper {
        Upper::Any => ANY_PROTOCOL,
        Upper::Protocol(protocol) | Upper::Ports { protocol, .. } | Upper::Icmp { protocol, .. } => protocol,
    };
    let end = |network: IpNet, port| Address {
        protocol,
        prefix_length: network.prefix_len(),
        address: network.addr(),
        port,
    };
    let (kind, requests) = match rule.action {
        Action::Discard => (DISCARD, Vec::new()),
        Action::Bypass => (NONE, Vec::new()),
        Action::Protect { levels, tunnel } => (IPSEC, requests(levels, tunnel)),
    };
    let direction = match rule.direction {
        Direction::In => IN,
        Direction::Out => OUT,
    };
    Extensions {
        address_source: Some(end(rule.selector.source, source_port)),
        address_destination: Some(end(rule.selector.destination, destination_port)),
        policy: Some(Policy { kind, direction, requests, ..Policy::default() }),
        ..Extensions::default()
    }
}

/// At least one: a policy without requests is none.
fn requests(levels: Levels, tunnel: Option<(IpAddr, IpAddr)>) -> Vec<PolicyRequest> {
    let request = |protocol: u8, mode, level, ends| PolicyRequest {
        protocol: protocol.into(),
        mode,
        level: level as u8,
        request_id: 0,
        ends,
    };
    let authentication = request(ip::AUTHENTICATION, TRANSPORT, levels.authentication, None);
    let in_tunnel = request(ip::ESP, TUNNEL, levels.tunnel_encryption, tunnel);
    let mut requests = vec![request(ip::ESP, TRANSPORT, levels.transport_encryption, None)];
    requests.extend([authentication, in_tunnel]);
    requests.retain(|request| request.level > 0 || request.ends.is_some());
    if requests.is_empty() {
        requests.push(request(ip::ESP, TRANSPORT, Level::None, None));
    }
    requests
}

fn one_or_any(first: u16, last: u16, highest: u16) -> Result<u16, PolicyError> {
    match (first, last) {
        (0, last) if last == highest => Ok(0),
        (0, 0) => Err(PolicyError::Zero),
        (first, last) if first == last => Ok(first),
        _ => Err(PolicyError::Range),
    }
}

/// The rule that extensions tell. `None`: they tell none.
pub fn rule(given: &Extensions) -> Option<Rule> {
    let policy = given.policy.as_ref()?;
    let action = match policy.kind {
        DISCARD => Action::Discard,
        NONE => Action::Bypass,
        IPSEC => protect(&policy.requests)?,
        _ => return None,
    };
    let (direction, selector) = which(given)?;
    Some(Rule { direction, selector, action })
}

/// Which rule is meant.
fn which(given: &Extensions) -> Option<(Direction, Selector)> {
    let direction = match given.policy.as_ref()?.direction {
        IN => Direction::In,
        OUT => Direction::Out,
        _ => return None,
    };
    let (source, destination) = (given.address_source?, given.address_destination?);
    if source.address.is_ipv4() != destination.address.is_ipv4() || source.protocol != destination.protocol {
        return None;
    }
    let network = |end: Address| Some(IpNet::new(end.address, end.prefix_length).ok()?.trunc());
    let upper = match source.protocol {
        0 | ANY_PROTOCOL if (source.port, destination.port) != (0, 0) => return None,
        0 | ANY_PROTOCOL => Upper::Any,
        protocol if (source.port, destination.port) == (0, 0) => Upper::Protocol(protocol),
        protocol @ (ip::ICMPV4 | ip::ICMPV6) => {
            let range = |number: u16| match number {
                0 => Some(0..=u8::MAX),
                number => u8::try_from(number).ok().map(|number| number..=number),
            };
            // A code is one of a type.
            if source.port == 0 {
                return None;
            }
            Upper::Icmp { protocol, types: range(source.port)?, codes: range(destination.port)? }
        }
        protocol => {
            let range = |port| if port == 0 { 0..=u16::MAX } else { port..=port };
            Upper::Ports { protocol, source: range(source.port), destination: range(destination.port) }
        }
    };
    Some((direction, Selector { source: network(source)?, destination: network(destination)?, upper }))
}

/// A policy without requests is none: it would let pass what it was to protect.
fn protect(requests: &[PolicyRequest]) -> Option<Action> {
    let mut levels = Levels::NONE;
    let mut tunnel = None;
    for request in requests {
        let level = Level::from_number(request.level)?;
        match (u8::try_from(request.protocol), request.mode, request.ends) {
            (Ok(ip::ESP), TRANSPORT, _) => levels.transport_encryption = level,
            (Ok(ip::AUTHENTICATION), TRANSPORT, _) => levels.authentication = level,
            (Ok(ip::ESP), TUNNEL, ends) => {
                levels.tunnel_encryption = level;
                tunnel = ends;
            }
            _ => return None,
        }
    }
    (!requests.is_empty()).then_some(Action::Protect { levels, tunnel })
}

/// What the policy database does for a message, and what is answered. `None`: the message is not about policies.
pub(super) fn answer(policies: &mut PolicyDatabase, message: &Message) -> Option<Result<Answer, Errno>> {
    let respond = |extensions| Message { errno: 0, extensions, ..message.clone() };
    let given = &message.extensions;
    Some(match message.message_type {
        MessageType::PolicyAdd => add(policies, given).map(|()| Answer::All(respond(given.clone()))),
        MessageType::PolicyDelete => match which(given) {
            None => Err(Errno::Invalid),
            Some((direction, selector)) if policies.delete(direction, &selector) => {
                Ok(Answer::All(respond(given.clone())))
            }
            Some(_) => Err(Errno::NoPolicy),
        },
        MessageType::PolicyFlush => {
            policies.flush();
            Ok(Answer::All(respond(Extensions::default())))
        }
        MessageType::PolicyDump => dump(policies, respond),
        _ => return None,
    })
}

fn add(policies: &mut PolicyDatabase, given: &Extensions) -> Result<(), Errno> {
    let rule = rule(given).ok_or(Errno::Invalid)?;
    let is_there = |there: &Rule| there.direction == rule.direction && there.selector == rule.selector;
    if policies.rules().iter().any(is_there) {
        return Err(Errno::Exists);
    }
    if policies.rules().len() >= MAX_POLICIES {
        return Err(Errno::Full);
    }
    policies.add(rule);
    Ok(())
}

/// Rules of the configuration that PF_KEY has no words for are shown without their ports.
fn dump(policies: &PolicyDatabase, respond: impl Fn(Extensions) -> Message) -> Result<Answer, Errno> {
    let rules = policies.rules();
    if rules.is_empty() {
        return Err(Errno::NoPolicy);
    }
    let countdown = (0..rules.len() as u32).rev();
    let messages = rules.iter().zip(1..).zip(countdown).map(|((rule, id), sequence)| {
        let mut extensions = tell(rule, ports(&rule.selector.upper).unwrap_or_default());
        if let Some(policy) = &mut extensions.policy {
            policy.id = id;
        }
        Message { sequence, ..respond(extensions) }
    });
    Ok(Answer::Asker(messages.collect()))
}
