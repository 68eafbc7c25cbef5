//! How it stands with peers, and what happens to them: what an operator wants to know.

use std::time::Duration;

use ipnet::Ipv6Net;

use crate::drops::DropReason;

/// Whether there is a session. These are all: one more is a breaking change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// No session, and no reason to have one.
    Idle,
    /// On the way to one.
    Handshake,
    /// There is one.
    Established,
    /// There is one, but in this direction nothing gets through.
    Silent(Silence),
}

/// Which way datagrams get lost, all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// Nothing comes from the peer, whatever we send.
    NothingComes,
    /// The peer's come, and say that none of ours do.
    NothingArrives,
}

/// Why the kernel did not take a datagram. More may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendFailure {
    /// There is no route, or no such source address, or the link is down.
    NoRoute,
    /// A firewall of this host, or an error of the path.
    Refused,
    /// Anything else: a queue that is full, a datagram that is too long.
    Other,
}

/// A peer that is to be reached and is not heard.
#[derive(Debug, Clone, Copy)]
pub struct Unheard<'n> {
    /// Its configured name.
    pub name: &'n str,
    /// How it stands.
    pub state: PeerState,
    /// For how long it has been tried, or silent.
    pub since: Duration,
    /// Where it is thought to be.
    pub hop_prefix: Ipv6Net,
    /// How long ago it was heard last, in this run.
    pub heard: Option<Duration>,
    /// How long ago a message of a handshake with it came, whatever was done with it.
    pub contact: Option<Duration>,
    /// How long ago a first message of it, or for it, was refused last, and why.
    pub refused: Option<(DropReason, Duration)>,
    /// When something was sent to it last.
    pub sent: Option<Duration>,
    /// Why the last datagram for it did not leave, if it did not.
    pub send_failure: Option<SendFailure>,
    /// What was dropped of it because its source was rewritten on the path.
    pub source_rewritten: u64,
    /// How many datagrams came to its endpoints that do not open, or came before: they have passed every firewall of this host.
    pub unopened: u64,
}

/// Why a session is over. These are all: one more is a breaking change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Nothing was sent for a long time, and nobody keeps it.
    Idle,
    /// The peer has ended it.
    Closed,
    /// The peer was silent, and could not be reached anew.
    Lost,
    /// Its keys are too old, and could not be renewed.
    Expired,
    /// This node gave it up: its endpoints could not be opened, it moved, or it was told to begin anew.
    Dropped,
}

/// What happened to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// There is a reason to have a session, and there is none.
    Trying,
    /// A session was made: the first, or one that takes the place of another.
    Established {
        /// Whether there was one before, until now.
        anew: bool,
    },
    /// Nothing gets through any more.
    Silent {
        /// In this direction.
        silence: Silence,
        /// The peer was heard so long ago.
        unheard: Duration,
    },
    /// It does again.
    Heard {
        /// After this time.
        after: Duration,
    },
    /// There is no session any more.
    Ended {
        /// Why.
        ending: Ending,
        /// It was there, or in the place of another, for so long.
        after: Duration,
    },
    /// The peer hops in another prefix.
    Moved {
        /// Before.
        from: Ipv6Net,
        /// Now.
        to: Ipv6Net,
    },
    /// The largest outer packet that arrives is another, in bytes.
    PathMtu {
        /// Before.
        from: u16,
        /// Now.
        to: u16,
    },
}

/// A change, and the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerEvent {
    /// The peer's configured name.
    pub peer: String,
    /// What has changed.
    pub change: Change,
}
