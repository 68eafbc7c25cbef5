//! A security association (RFC 4301 §4.1): everything that two ends agree on to protect the packets that one of them
//! sends to the other. A session has two.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::{ipv4, ipv6, udp};

use crate::algorithm::{AhTransform, EspTransform};
use crate::marks::Marks;
use crate::replay::{ReplayError, ReplayWindow, SequenceCounter, SequenceNumber};
use crate::selector::{Selector, Traffic};

/// Security parameters index: the receiver's name for an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(pub u32);

impl Spi {
    /// The first that is not reserved (RFC 4303 §2.1).
    pub const FIRST: Self = Self(256);

    /// Whether no association has it: 0, and what IANA keeps.
    pub const fn is_reserved(self) -> bool {
        self.0 < Self::FIRST.0
    }
}

/// Which of the two security headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Authentication Header (RFC 4302).
    Ah,
    /// Encapsulating Security Payload (RFC 4303).
    Esp,
}

/// What names an association for what arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Where its packets go.
    pub destination: IpAddr,
    /// AH or ESP.
    pub protocol: Protocol,
    /// Its SPI.
    pub spi: Spi,
}

impl Name {
    /// That of an association.
    pub fn of(association: &Association) -> Self {
        Self {
            destination: association.parameters.destination,
            protocol: association.protocol(),
            spi: association.parameters.spi,
        }
    }
}

/// An association in the key engine's table. A larger one is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId {
    pub(crate) number: u64,
    pub(crate) slot: u32,
}

/// What an association protects of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// What is behind the IP headers.
    Transport,
    /// All of it, in a packet of the association's own.
    Tunnel,
}

/// Algorithms and keys of one of the two protocols.
#[derive(Debug)]
pub enum Transform {
    /// For AH.
    Ah(AhTransform),
    /// For ESP.
    Esp(EspTransform),
}

impl Transform {
    /// For which it is.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Ah(_) => Protocol::Ah,
            Self::Esp(_) => Protocol::Esp,
        }
    }
}

/// Ports of ESP in UDP (RFC 3948), as in the packets of this association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpEncapsulation {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

/// How secret what an association carries may be: a number with an order that the administrator gives it, 0 for
/// unclassified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sensitivity(pub u8);

/// The "don't fragment" bit of the outer IPv4 header (RFC 4301 §8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DontFragment {
    /// As inside; set around IPv6, which no router fragments.
    #[default]
    Copy,
    /// Set.
    Set,
    /// Not set: routers may fragment.
    Clear,
}

/// A bound on the use of an association. Of several, the first that is met counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetime {
    /// Since it was made.
    pub since_added: Option<Duration>,
    /// Since its first packet.
    pub since_used: Option<Duration>,
    /// Bytes of protected packets, without the headers that protect.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
}

impl Lifetime {
    /// Without end.
    pub const UNLIMITED: Self = Self { since_added: None, since_used: None, bytes: None, packets: None };
}

/// The bound at which a daemon is to replace an association, and the one at which it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lifetimes {
    /// Daemons are told.
    pub soft: Lifetime,
    /// It is used no longer.
    pub hard: Lifetime,
}

/// How far an association's life has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Age {
    /// Before its soft lifetime.
    Fresh,
    /// Past its soft lifetime: to be replaced.
    Soft,
    /// Past its hard lifetime: not to be used.
    Hard,
}

/// What an association is made of.
#[derive(Debug)]
pub struct Parameters {
    /// The receiver's name for it.
    pub spi: Spi,
    /// Who sends: the source of the outer header in tunnel mode.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// What is protected.
    pub mode: Mode,
    /// Protocol, algorithms and keys.
    pub transform: Transform,
    /// ESP in UDP, if a NAT is on the way.
    pub encapsulation: Option<UdpEncapsulation>,
    /// Extended sequence numbers (RFC 4303 §2.2.1).
    pub extended_sequence: bool,
    /// Size of the receiver's window; `None`: replayed packets are taken, for keys that outlive a receiver's memory.
    pub replay_window: Option<u32>,
    /// How long it lives.
    pub lifetimes: Lifetimes,
    /// How secret its content may be.
    pub sensitivity: Sensitivity,
    /// Which packets it is for, as they are without it: those that one of these selects. None: those from its source, and
    /// so in a tunnel only those of its own end.
    pub selectors: Vec<Selector>,
    /// The outer IPv4 header's bit.
    pub dont_fragment: DontFragment,
    /// Source and destination as the sender has them, where a NAT has changed them (RFC 3948 §3.1.2): in transport mode the
    /// checksums inside are theirs. `None`: as they arrive.
    pub original_addresses: Option<(IpAddr, IpAddr)>,
}

impl Parameters {
    /// One without limits, NAT or selector, with a window of the default size.
    pub fn new(spi: Spi, source: IpAddr, destination: IpAddr, mode: Mode, transform: Transform) -> Self {
        Self {
            spi,
            source,
            destination,
            mode,
            transform,
            encapsulation: None,
            extended_sequence: false,
            replay_window: Some(ReplayWindow::DEFAULT_SIZE),
            lifetimes: Lifetimes::default(),
            sensitivity: Sensitivity::default(),
            selectors: Vec::new(),
            dont_fragment: DontFragment::default(),
            original_addresses: None,
        }
    }
}

/// Why parameters make no association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssociationError {
    /// Its SPI is one of those that nobody has.
    #[error("the SPI is reserved: they begin with 256")]
    ReservedSpi,
    /// Source and destination are of different IP versions.
    #[error("source and destination are of different IP versions")]
    Addresses,
    /// AH does not go through a NAT (RFC 3948 §1).
    #[error("AH is not carried in UDP")]
    Encapsulation,
    /// Extended numbers need a window to be told, and a sequence number to be the lower half.
    #[error("extended sequence numbers need a replay window, and an algorithm with sequence numbers")]
    Sequence,
}

/// What an association has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Packets.
    pub packets: u64,
    /// Their bytes, without the headers that protect.
    pub bytes: u64,
}

/// An association in use. Its sender calls `seal`, its receiver `open`, of [`esp`](crate::esp) or [`ah`](crate::ah).
#[derive(Debug)]
pub struct Association {
    pub(crate) parameters: Parameters,
    pub(crate) counter: SequenceCounter,
    window: Option<ReplayWindow>,
    usage: Usage,
    added: Instant,
    first_used: Option<Instant>,
}

impl Association {
    /// Before its first packet.
    ///
    /// # Errors
    /// [`AssociationError`] when the parameters do not go together.
    pub fn new(parameters: Parameters, now: Instant) -> Result<Self, AssociationError> {
        if parameters.spi.is_reserved() {
            return Err(AssociationError::ReservedSpi);
        }
        if parameters.source.is_ipv4() != parameters.destination.is_ipv4() {
            return Err(AssociationError::Addresses);
        }
        let has_sequence = match &parameters.transform {
            Transform::Ah(_) if parameters.encapsulation.is_some() => {
                return Err(AssociationError::Encapsulation);
            }
            Transform::Ah(transform) => transform.has_sequence(),
            Transform::Esp(transform) => transform.has_sequence(),
        };
        let extended = parameters.extended_sequence;
        if extended && !(has_sequence && parameters.replay_window.is_some()) {
            return Err(AssociationError::Sequence);
        }
        let window = parameters.replay_window.filter(|_| has_sequence);
        Ok(Self {
            counter: SequenceCounter::new(extended || !has_sequence),
            window: window.map(|size| ReplayWindow::new(size, extended)),
            usage: Usage::default(),
            added: now,
            first_used: None,
            parameters,
        })
    }

    /// What it was made of.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// AH or ESP.
    pub fn protocol(&self) -> Protocol {
        self.parameters.transform.protocol()
    }

    /// What it has carried.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// When it was made.
    pub fn added(&self) -> Instant {
        self.added
    }

    /// When its first packet came.
    pub fn first_used(&self) -> Option<Instant> {
        self.first_used
    }

    /// The last number that its sender has used.
    pub fn last_sent(&self) -> SequenceNumber {
        self.counter.last()
    }

    /// Whether it is for packets of a kind.
    pub fn is_for(&self, traffic: &Traffic) -> bool {
        match &self.parameters.selectors[..] {
            [] => traffic.source == self.parameters.source,
            selectors => selectors.iter().any(|selector| selector.matches(traffic)),
        }
    }

    /// Whether another packet can be sealed.
    pub fn can_send(&self, now: Instant) -> bool {
        self.age(now) != Age::Hard && !self.counter.is_used_up()
    }

    /// The most bytes that sealing adds to a packet: what a path's MTU is less for what is inside.
    pub fn overhead(&self) -> usize {
        self.front()
            + match &self.parameters.transform {
                Transform::Ah(_) => 0,
                Transform::Esp(transform) => transform.most_behind(),
            }
    }

    /// The bytes that sealing puts before a packet or into its front: always so many.
    pub fn front(&self) -> usize {
        let parameters = &self.parameters;
        let outer = match parameters.mode {
            Mode::Tunnel if parameters.destination.is_ipv6() => ipv6::HEADER_LEN,
            Mode::Tunnel => ipv4::HEADER_LEN,
            Mode::Transport => 0,
        };
        let udp = if parameters.encapsulation.is_some() { udp::HEADER_LEN } else { 0 };
        outer
            + udp
            + match &parameters.transform {
                Transform::Ah(transform) => transform.header_length(parameters.destination.is_ipv6()),
                Transform::Esp(transform) => transform.front(),
            }
    }

    /// How far its life has gone. The end of a sender's numbers is told as that of a soft lifetime, in time.
    pub fn age(&self, now: Instant) -> Age {
        let is_past = |lifetime: &Lifetime| {
            lifetime.bytes.is_some_and(|bytes| self.usage.bytes >= bytes)
                || lifetime.packets.is_some_and(|packets| self.usage.packets >= packets)
                || self.end(lifetime).is_some_and(|end| end <= now)
        };
        if is_past(&self.parameters.lifetimes.hard) {
            Age::Hard
        } else if is_past(&self.parameters.lifetimes.soft) || self.counter.is_running_out() {
            Age::Soft
        } else {
            Age::Fresh
        }
    }

    /// When time alone makes it older than `age`; `None`: never.
    pub fn deadline(&self, age: Age) -> Option<Instant> {
        match age {
            Age::Fresh => {
                [self.end(&self.parameters.lifetimes.soft), self.end(&self.parameters.lifetimes.hard)]
                    .into_iter()
                    .flatten()
                    .min()
            }
            Age::Soft => self.end(&self.parameters.lifetimes.hard),
            Age::Hard => None,
        }
    }

    fn end(&self, lifetime: &Lifetime) -> Option<Instant> {
        let added = lifetime.since_added.and_then(|time| self.added.checked_add(time));
        let used = lifetime.since_used.and_then(|time| self.first_used?.checked_add(time));
        [added, used].into_iter().flatten().min()
    }

    /// The number of a packet that arrived with this lower half.
    pub(crate) fn check_sequence(&self, low: u32) -> Result<SequenceNumber, ReplayError> {
        self.window.as_ref().map_or(Ok(SequenceNumber(u64::from(low))), |window| window.check(low))
    }

    /// The upper half, if it is a part of what is authenticated.
    pub(crate) fn high(&self, sequence: SequenceNumber) -> Option<u32> {
        self.parameters.extended_sequence.then(|| sequence.high())
    }

    /// Takes the number of a packet that is genuine.
    pub(crate) fn accept_sequence(&mut self, sequence: SequenceNumber) {
        if let Some(window) = &mut self.window {
            window.accept(sequence);
        }
    }

    /// Counts a packet of `bytes` that was sealed, or opened and found genuine.
    pub(crate) fn count(&mut self, bytes: usize, now: Instant) {
        self.usage.packets = self.usage.packets.saturating_add(1);
        self.usage.bytes = self.usage.bytes.saturating_add(bytes as u64);
        self.first_used.get_or_insert(now);
    }

    /// As after so many packets more, at both ends.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, packets: u64) {
        self.counter.skip(packets);
        self.accept_sequence(self.counter.last());
    }

    /// The highest number that was taken.
    #[cfg(test)]
    pub(crate) fn top(&self) -> u64 {
        self.window.as_ref().map_or(0, |window| window.top().0)
    }

    /// What `opened` packet has been through, after what it had been through before, when it came from `source`. In a tunnel
    /// the marks of what was around it count only if they are its peer's, too: else another peer could wrap up what it has
    /// caught of this one's packets, and lend it marks.
    pub(crate) fn marks(&self, before: Marks, source: IpAddr, opened: &[u8]) -> Marks {
        // One that the association is not for (RFC 4301 §5.2 step 4) was wrapped up by a genuine peer in another's name,
        // unless it is a router's error about what the association is for (§6.2).
        let is_for = |traffic: Traffic| self.is_for(&traffic);
        if !Traffic::of(opened).is_ok_and(is_for) && !Traffic::of_return(opened).is_some_and(is_for) {
            return Marks::NONE;
        }
        let (authentic, hidden) = match &self.parameters.transform {
            Transform::Ah(_) => (true, false),
            Transform::Esp(transform) => (transform.authenticates(), transform.hides()),
        };
        let is_tunnel = self.parameters.mode == Mode::Tunnel;
        let before = if is_tunnel && source != self.parameters.source { Marks::NONE } else { before };
        before
            | Marks { authentic, decrypted: hidden && !is_tunnel, decrypted_from_tunnel: hidden && is_tunnel }
    }
}
