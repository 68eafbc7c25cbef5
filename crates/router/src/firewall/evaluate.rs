//! Which rule or default decides a packet. What this says, the kernel does.

use super::address::Family;
use super::defaults::stages;
use super::packet_words::{Packet, State};
use super::policy::{Policy, Rule, Verdict};

/// What becomes of a packet, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of it.
    pub verdict: Verdict,
    /// What decided.
    pub reason: Reason,
    /// Indices of rules with a rate or a schedule that would take the packet at another time.
    pub other_times: Vec<usize>,
}

/// What decides a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The rule of this index.
    Rule(usize),
    /// The state of its connection.
    Connection,
    /// A default, with its source.
    Default(&'static str),
    /// Nothing lets it pass.
    Refused,
}

/// Why packets are dropped before everything else, see [`super::compile`].
pub(super) const ROUTING_HEADER_0: &str = "routing header type 0 (RFC 5095, RFC 6092 REC-4)";
pub(super) const INCOMPLETE: &str = "a first fragment without its upper-layer header (RFC 7112)";

/// Decides a packet.
#[must_use]
pub fn evaluate(policy: &Policy, packet: &Packet) -> Decision {
    let mut other_times = Vec::new();
    let (verdict, reason) = decide(policy, packet, &mut other_times);
    Decision { verdict, reason, other_times }
}

fn decide(policy: &Policy, packet: &Packet, other_times: &mut Vec<usize>) -> (Verdict, Reason) {
    if packet.family() == Family::V6 && policy.trust(packet.from).is_some() {
        if packet.routing_header_0 {
            return (Verdict::Drop, Reason::Default(ROUTING_HEADER_0));
        }
        if packet.incomplete {
            return (Verdict::Drop, Reason::Default(INCOMPLETE));
        }
    }
    if matches!(packet.state, State::Established | State::Related) {
        return (Verdict::Accept, Reason::Connection);
    }
    let stages = stages(policy, packet.from, packet.to);
    if let Some(step) = stages.before.iter().find(|step| step.matches(packet)) {
        return (step.verdict, Reason::Default(step.reason));
    }
    for (index, rule) in policy.rules().iter().enumerate() {
        if !fits(rule, packet) {
            continue;
        }
        if (rule.rate.is_some() && packet.above_rate) || !is_in_force(rule, packet) {
            other_times.push(index);
            continue;
        }
        if rule.varies() {
            other_times.push(index);
        }
        return (rule.action, Reason::Rule(index));
    }
    if let Some(step) = stages.after.iter().find(|step| step.matches(packet)) {
        return (step.verdict, Reason::Default(step.reason));
    }
    match stages.rest {
        Some(Verdict::Accept) => (Verdict::Accept, Reason::Default("this machine may send")),
        rest => (rest.unwrap_or(Verdict::Drop), Reason::Refused),
    }
}

/// Whether the rule is about the packet, its rate and schedule aside.
fn fits(rule: &Rule, packet: &Packet) -> bool {
    (packet.forward.is_some() || !rule.forwarded)
        && rule.from.contains(packet.from)
        && rule.to.contains(packet.to)
        && rule.service.as_ref().is_none_or(|services| services.iter().any(|service| packet.is(service)))
        && rule.source.as_ref().is_none_or(|sources| sources.iter().any(|set| set.contains(packet.source)))
        && rule
            .destination
            .as_ref()
            .is_none_or(|destinations| destinations.iter().any(|set| set.contains(packet.destination)))
}

fn is_in_force(rule: &Rule, packet: &Packet) -> bool {
    match (&rule.schedule, packet.moment) {
        (Some(schedule), Some(moment)) => schedule.applies(moment),
        _ => true,
    }
}
