//! What an endpoint tells its host: IKE SAs and children that come and go.

use std::net::{IpAddr, SocketAddr};

use crate::config::{ChildIndex, Mode, PeerIndex};
use crate::crypto::secret::Secret;
use crate::message::body::Identity;
use crate::message::traffic_selector::TrafficSelector;
use crate::negotiation::ChildSuite;
use crate::numbers::{IkeSpi, NotifyType, Spi};

/// Where two ends are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    /// This end's address and port.
    pub local: SocketAddr,
    /// The other end's, as this end sees it.
    pub remote: SocketAddr,
}

/// Which ends are behind a NAT (RFC 7296 §2.23).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Nat {
    /// This end.
    pub local: bool,
    /// The other end.
    pub remote: bool,
    /// This end says that it is, be it so or not, since it wants UDP
    /// ([`PeerConfig::encapsulate`](crate::config::PeerConfig::encapsulate)).
    pub claimed: bool,
}

impl Nat {
    /// Whether there is one in between as far as the two ends know, so that ESP travels inside of UDP (RFC 3948).
    pub fn is_between(self) -> bool {
        self.local || self.remote || self.claimed
    }
}

/// The keys of one direction.
#[derive(Debug, Clone)]
pub struct ChildKeys {
    /// Of the encryption, the salt of an AEAD behind it; empty for AH.
    pub encryption: Secret,
    /// Of the integrity algorithm; empty where the encryption authenticates.
    pub integrity: Secret,
}

/// A child, as what carries its packets needs it: an association in each direction.
#[derive(Debug, Clone)]
pub struct ChildAssociation {
    /// The IKE SA that it belongs to, by this end's SPI.
    pub ike: IkeSpi,
    /// Whose it is.
    pub peer: PeerIndex,
    /// Which one of the peer's children.
    pub child: ChildIndex,
    /// In transport mode through a NAT, source and destination of what comes in as the other end has them (RFC 3948 §3.1.2):
    /// the checksums inside are of these.
    pub original_addresses: Option<(IpAddr, IpAddr)>,
    /// This end has asked for it. If it has not, the other end does not have it before the answer has arrived: in place of
    /// another child, it is better sent by once something has come in by it, or the other child is gone (RFC 7296 §2.8).
    pub requested: bool,
    /// What packets come in with; also the child's name.
    pub inbound_spi: Spi,
    /// What packets go out with.
    pub outbound_spi: Spi,
    /// Algorithms.
    pub suite: ChildSuite,
    /// Tunnel or transport.
    pub mode: Mode,
    /// What is carried at this end.
    pub local: Vec<TrafficSelector>,
    /// What is carried at the other end.
    pub remote: Vec<TrafficSelector>,
    /// Keys of what comes in.
    pub inbound: ChildKeys,
    /// Keys of what goes out.
    pub outbound: ChildKeys,
    /// Where the two ends are.
    pub path: Path,
    /// Which ends are behind a NAT: if one is, ESP travels in UDP between the ports of the path.
    pub nat: Nat,
}

/// Why an IKE SA has ended, or has not come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// This end has deleted it.
    #[error("this end has ended it")]
    Deleted,
    /// The other end has deleted it.
    #[error("the other end has ended it")]
    DeletedByPeer,
    /// Another one has taken its place.
    #[error("another one has taken its place")]
    Replaced,
    /// No answer came.
    #[error("the other end does not answer")]
    NoAnswer,
    /// The other end has begun anew (INITIAL_CONTACT).
    #[error("the other end has begun anew")]
    InitialContact,
    /// The other end has refused, with this notify.
    #[error("the other end has refused: {0}{remedy}", remedy = .0.remedy())]
    Refused(NotifyType),
    /// The other end is not who it should be, or it finds that this end is not.
    #[error("an end has not proved to be who it should be: compare identities and keys at both ends")]
    AuthenticationFailed,
    /// The other end has answered with something that makes no sense.
    #[error("the other end has answered with something that makes no sense")]
    Malformed,
    /// No more message IDs.
    #[error("no more message IDs")]
    Exhausted,
    /// It could not be replaced in time.
    #[error("it could not be replaced in time")]
    Expired,
    /// The identity has more of them than one needs ([`MAX_OF_IDENTITY`](crate::endpoint::MAX_OF_IDENTITY)).
    #[error("its identity has too many")]
    TooMany,
}

/// Something has happened. Take events before datagrams are sent: the other end may use a child at once.
#[derive(Debug, Clone)]
pub enum Event {
    /// An IKE SA is there, both ends authenticated.
    IkeUp {
        /// Its name.
        ike: IkeSpi,
        /// With whom.
        peer: PeerIndex,
        /// Who the other end has proved to be.
        identity: Identity,
        /// Whether this end has initiated it.
        initiated: bool,
        /// Addresses that the other end has given to this one.
        addresses: Vec<IpAddr>,
        /// DNS servers that the other end has named.
        dns: Vec<IpAddr>,
    },
    /// Another IKE SA is in the place of this one, with its children. [`Event::IkeDown`] of the old one follows.
    IkeRekeyed {
        /// The one before.
        old: IkeSpi,
        /// The one from now on.
        new: IkeSpi,
    },
    /// An IKE SA has ended. Its children were reported before.
    IkeDown {
        /// Which one.
        ike: IkeSpi,
        /// Why.
        reason: EndReason,
    },
    /// An IKE SA that this end wanted has not come about.
    InitiationFailed {
        /// What [`crate::endpoint::Endpoint::initiate`] has returned.
        ike: IkeSpi,
        /// With whom.
        peer: PeerIndex,
        /// Why.
        reason: EndReason,
    },
    /// Somebody has failed to prove an identity to this end.
    AuthenticationFailed {
        /// Where it is.
        remote: SocketAddr,
        /// Who it claimed to be, if that could be read.
        claimed: Option<Identity>,
    },
    /// A child is there.
    ChildUp(Box<ChildAssociation>),
    /// A child takes the place of another one, which is still there until [`Event::ChildDown`].
    ChildRekeyed {
        /// The inbound SPI of the one before.
        old: Spi,
        /// The one from now on.
        new: Box<ChildAssociation>,
    },
    /// A child is gone.
    ChildDown {
        /// Of this IKE SA.
        ike: IkeSpi,
        /// Its name.
        inbound_spi: Spi,
    },
    /// The other end has refused a child, or has chosen what was not offered.
    ChildRefused {
        /// Of this IKE SA.
        ike: IkeSpi,
        /// Which one.
        child: ChildIndex,
        /// What it said.
        notify: NotifyType,
    },
    /// The other end of an IKE SA has not answered for some seconds: it may have lost its memory. The IKE SA stays as it is,
    /// until the last retransmission; who cannot wait may begin another one, and
    /// [`abandon`](crate::Endpoint::abandon) this one once that is there. Told once in each silence.
    Silent {
        /// Which one.
        ike: IkeSpi,
    },
    /// The two ends of an IKE SA and its children are elsewhere from now on.
    PathChanged {
        /// The IKE SA.
        ike: IkeSpi,
        /// Where they are.
        path: Path,
        /// Which ends are behind a NAT there.
        nat: Nat,
    },
}
