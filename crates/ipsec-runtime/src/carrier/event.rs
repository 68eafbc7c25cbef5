//! What a carrier tells whoever has the sockets and the device, and is told.

use std::net::IpAddr;

use ipnet::IpNet;

/// Index of a remote in [`config::ipsec::IpsecConfig::remotes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteIndex(pub usize);

/// What there is to do for whoever has the sockets and the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Find out where the remote is, and from which address it is reached; then call [`Carrier::reach`](super::Carrier::reach).
    Reach(RemoteIndex),
    /// The two ends have an IKE SA.
    Up {
        /// With whom.
        remote: RemoteIndex,
        /// Addresses that it has given to this end.
        addresses: Vec<IpAddr>,
        /// DNS servers that it has named.
        dns: Vec<IpAddr>,
    },
    /// A child is there, for traffic to these networks. Also told for one that takes another's place.
    Child {
        /// With whom.
        remote: RemoteIndex,
        /// Where it is.
        address: IpAddr,
        /// What is behind the remote.
        networks: Vec<IpNet>,
    },
    /// A child or an IKE SA could not be had, for this reason.
    Failed {
        /// With whom.
        remote: RemoteIndex,
        /// Why.
        why: String,
    },
    /// What was begun has not been answered for a while. It goes on.
    Unanswered {
        /// With whom.
        remote: RemoteIndex,
        /// What is to be told.
        what: String,
    },
    /// The last IKE SA with it has ended.
    Down {
        /// With whom.
        remote: RemoteIndex,
        /// Why.
        why: String,
    },
    /// Somebody has failed to prove an identity. Told once in ten seconds; the drops count all of them.
    Stranger {
        /// What is to be told.
        what: String,
    },
    /// Two programs seem to be one identity: each ends the other's conversation.
    Contested {
        /// With whom.
        remote: RemoteIndex,
        /// What is to be told.
        what: String,
    },
    /// What the key engine has to say, for daemons beside IKE: told to a carrier that was asked to
    /// ([`Carrier::tell_keys`](super::Carrier::tell_keys)).
    Keys(ipsec::key_engine::Event),
    /// What fits inside has changed: [`Carrier::inner_mtu`](super::Carrier::inner_mtu).
    Mtu,
}

/// Where the two ends are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// This end's address.
    pub local: IpAddr,
    /// The other's.
    pub remote: IpAddr,
}

/// Why a remote could not be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReached(pub String);
