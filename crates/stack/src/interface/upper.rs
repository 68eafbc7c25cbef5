//! What the caller's transports give to the interface: upper layers other than ICMPv6 and UDP.

use std::net::IpAddr;
use std::time::Instant;

use ipsec::policy::Socket;

use crate::DropReason;
use crate::icmpv6::ErrorReport;

/// A whole packet for an upper layer.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// Its source.
    pub source: IpAddr,
    /// Its destination: an address of ours, or a group.
    pub destination: IpAddr,
    /// The hop limit that was left.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// It was sent to many, by the packet's destination or by the frame's.
    pub to_many: bool,
    /// The upper layer's protocol.
    pub protocol: u8,
    /// Its header and data.
    pub payload: &'a [u8],
}

/// What an upper layer says of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It has it.
    Taken,
    /// Nobody here knows the protocol: the sender is told.
    Unknown,
    /// It is dropped.
    Dropped(DropReason),
}

/// The upper layers of the caller.
pub trait Upper {
    /// A packet has come.
    fn receive(&mut self, now: Instant, received: &Received<'_>) -> Verdict;

    /// What the socket asks of security that this packet is for, if there is one: a packet that does not do is dropped in
    /// silence, before [`Upper::receive`].
    fn socket(&self, _: &Received<'_>) -> Option<Socket> {
        None
    }

    /// What the socket asks of security that has sent what an error is about: an error that does not do is dropped in
    /// silence, before [`Upper::error`].
    fn socket_of_error(&self, _: &ErrorReport<'_>) -> Option<Socket> {
        None
    }

    /// The path to somebody carries less than before, as an error about a packet has said of which nobody can see whose it
    /// was.
    fn path_changed(&mut self) {}

    /// An error has come. Returns whether it is about something that was sent: only then is a path MTU believed.
    fn error(&mut self, now: Instant, report: &ErrorReport<'_>) -> bool;
}

/// No other upper layers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoUpper;

impl Upper for NoUpper {
    fn receive(&mut self, _: Instant, _: &Received<'_>) -> Verdict {
        Verdict::Unknown
    }

    fn error(&mut self, _: Instant, _: &ErrorReport<'_>) -> bool {
        false
    }
}
