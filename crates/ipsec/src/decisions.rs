//! What policy has decided of recent kinds of packets: the cache that RFC 4301 §4.4.1 speaks of. A rule, an association or a
//! level that has changed makes all decisions void, and so does an association that can seal no more.

use std::net::IpAddr;
use std::time::Instant;

use crate::association::{Age, Association};
use crate::key_engine::{KeyEngine, SecurityError};
use crate::level::Socket;
use crate::policy::{Bundle, Output, PolicyDatabase};
use crate::selector::{Detail, Traffic};

/// Kinds of packets that are remembered: flows in use at once. Of more, some are looked up again.
const REMEMBERED: usize = 256;

/// What was decided of packets that leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What seals them.
    pub bundle: Bundle,
    /// The most bytes that sealing adds.
    pub overhead: usize,
    /// Those of them that go before the packet: always so many.
    pub front: usize,
    /// The far end of the tunnel that they go through, if there is one.
    pub far_end: Option<IpAddr>,
    /// When the first of these associations is at its end.
    until: Option<Instant>,
    /// Of policies and engine, when it was made.
    generations: (u64, u64),
}

/// Decisions of one policy database and one key engine.
#[derive(Debug)]
pub struct Decisions(Box<[Option<Remembered>]>);

#[derive(Debug, Clone)]
struct Remembered {
    traffic: Traffic,
    socket: Option<Socket>,
    decision: Decision,
}

impl Default for Decisions {
    fn default() -> Self {
        Self(vec![None; REMEMBERED].into())
    }
}

impl Decisions {
    /// What was decided, if it still holds.
    pub fn get(
        &self,
        policies: &PolicyDatabase,
        engine: &KeyEngine,
        traffic: &Traffic,
        socket: Option<&Socket>,
        now: Instant,
    ) -> Option<&Decision> {
        let Remembered { traffic: known, socket: of, decision } = self.0[slot(traffic, socket)].as_ref()?;
        let holds = decision.generations == (policies.generation(), engine.generation())
            && known == traffic
            && of.as_ref() == socket
            && decision.until.is_none_or(|until| now < until);
        holds.then_some(decision)
    }

    /// As [`PolicyDatabase::output_policy`], which is asked only if it has to be.
    ///
    /// # Errors
    /// As there.
    pub fn output_policy(
        &mut self,
        policies: &PolicyDatabase,
        engine: &mut KeyEngine,
        traffic: &Traffic,
        socket: Option<&Socket>,
        now: Instant,
    ) -> Result<Output, SecurityError> {
        if let Some(decision) = self.get(policies, engine, traffic, socket, now) {
            return Ok(Output::Send(decision.bundle));
        }
        let output = policies.output_policy(engine, traffic, socket, now)?;
        if let Output::Send(bundle) = output {
            let associations = || bundle.iter().filter_map(|id| engine.get(id));
            let front = associations().map(Association::front).sum();
            let until = associations().filter_map(|association| association.deadline(Age::Soft)).min();
            let (overhead, far_end) = policies.overhead(engine, traffic, socket, now);
            let generations = (policies.generation(), engine.generation());
            let decision = Decision { bundle, overhead, front, far_end, until, generations };
            self.0[slot(traffic, socket)] =
                Some(Remembered { traffic: *traffic, socket: socket.copied(), decision });
        }
        Ok(output)
    }

    /// Forgets all: for who puts another database or engine into the place of the one.
    pub fn clear(&mut self) {
        self.0.fill(None);
    }
}

/// Where a kind is remembered. Strangers who choose their ports may make kinds push out each other, and gain nothing.
fn slot(traffic: &Traffic, socket: Option<&Socket>) -> usize {
    let fold = |address| match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 ^ address.to_bits() as u64,
    };
    let detail = match traffic.detail {
        Detail::Opaque => 0,
        Detail::Ports { source, destination } => u64::from(source) << 16 | u64::from(destination),
        Detail::Icmp { message_type, code } => u64::from(message_type) << 8 | u64::from(code),
    };
    let socket = socket.map_or(0, |socket| socket.id.0);
    let mixed = fold(traffic.source).rotate_left(8)
        ^ fold(traffic.destination)
        ^ detail.rotate_left(24)
        ^ socket.rotate_left(40)
        ^ u64::from(traffic.protocol);
    // Fibonacci hashing: the high bits depend on all.
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % REMEMBERED
}
