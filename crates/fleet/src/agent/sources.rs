//! Whom an agent asks, one after the other.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::exchange::Cursor;
use crate::fleet::Fleet;
use crate::key::Digest;
use crate::name::Name;
use crate::settings::Controller;
use crate::signpost::Signpost;

/// The first pause after it was in vain to ask, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Who can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A controller, inside of the tunnels.
    Inside {
        /// Its name.
        name: Name,
        /// Where it is.
        address: SocketAddr,
        /// The digest of its certificate.
        certificate: Digest,
    },
    /// A controller, outside.
    Outside {
        /// Its name.
        name: Name,
        /// Where it is: a host, or an address, and a port.
        place: String,
        /// The digest of its certificate.
        certificate: Digest,
    },
    /// The agent of a peer.
    Peer {
        /// The peer.
        name: Name,
        /// Where its agent is, inside of the tunnel.
        address: IpAddr,
    },
}

impl Source {
    fn peer(&self) -> Option<&Name> {
        match self {
            Source::Peer { name, .. } => Some(name),
            Source::Inside { .. } | Source::Outside { .. } => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Inside { name, address, .. } => write!(f, "controller {name} ({address})"),
            Source::Outside { name, place, .. } => write!(f, "controller {name} ({place})"),
            Source::Peer { name, .. } => write!(f, "peer {name}"),
        }
    }
}

/// The controllers of a fleet: all inside of the tunnels, then all outside.
pub(super) fn controllers(fleet: &Fleet) -> [Vec<Source>; 2] {
    let controllers = fleet.settings().map_or(&[][..], |settings| &settings.controllers);
    let inside = |one: &Controller| {
        let (name, certificate) = (one.name.clone(), one.certificate);
        one.inside.map(|address| Source::Inside { name, address, certificate })
    };
    let outside = |one: &Controller| {
        let (name, certificate) = (one.name.clone(), one.certificate);
        one.outside.clone().map(|place| Source::Outside { name, place, certificate })
    };
    [controllers.iter().filter_map(inside).collect(), controllers.iter().filter_map(outside).collect()]
}

/// Where signposts lead.
pub(super) fn found(signpost: Signpost) -> Source {
    let name = "signpost".parse().expect("a name");
    Source::Outside { name, place: signpost.place, certificate: signpost.certificate }
}

/// The agents of those that a site has a tunnel with.
pub(super) fn peers(fleet: &Fleet, own: &Name) -> [Vec<Source>; 2] {
    let (Some(settings), Some(me)) = (fleet.settings(), fleet.site(own)) else {
        return [Vec::new(), Vec::new()];
    };
    let is_peer = |site: &crate::fleet::Current<'_>| settings.policy.links(&me.member, &site.member);
    let peer = |(name, site): (&Name, crate::fleet::Current<'_>)| {
        let address = site.member.address.filter(|_| is_peer(&site))?;
        Some(Source::Peer { name: name.clone(), address })
    };
    [fleet.sites().into_iter().filter_map(peer).collect(), Vec::new()]
}

/// Those who can be asked, in an order that each agent draws anew: so that they do not all ask the same.
#[derive(Debug, Default)]
pub(super) struct Sources {
    list: Vec<Source>,
    at: usize,
    heard: BTreeMap<Option<Name>, Cursor>,
}

impl Sources {
    /// These, the first before the second. The one that is asked stays, if it is among them.
    pub(super) fn set(&mut self, lists: [Vec<Source>; 2], random: &mut Random) {
        let current = self.current().cloned();
        let [mut list, mut second] = lists;
        let is_same = list.len() + second.len() == self.list.len()
            && list.iter().chain(&second).all(|source| self.list.contains(source));
        if is_same {
            return;
        }
        random.0.shuffle(&mut list);
        random.0.shuffle(&mut second);
        list.append(&mut second);
        self.at = list.iter().position(|source| Some(source) == current.as_ref()).unwrap_or(0);
        self.list = list;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Source> {
        self.list.iter()
    }

    pub(super) fn current(&self) -> Option<&Source> {
        self.list.get(self.at)
    }

    /// Turns to the next one; whether all were asked since the first.
    pub(super) fn next(&mut self) -> bool {
        self.at += 1;
        let went_round = self.at >= self.list.len();
        if went_round {
            self.at = 0;
        }
        went_round
    }

    /// Turns to the first one again.
    pub(super) fn begin_again(&mut self) {
        self.at = 0;
    }

    /// How far was heard where the current one is: all controllers are one place.
    pub(super) fn heard(&self) -> Option<Cursor> {
        self.heard.get(&self.current()?.peer().cloned()).copied()
    }

    pub(super) fn heard_until(&mut self, cursor: Cursor) {
        if let Some(source) = self.current() {
            self.heard.insert(source.peer().cloned(), cursor);
        }
    }
}

/// How often in a row it was in vain to ask: all of them, or somebody.
#[derive(Debug, Default)]
pub(super) struct Failing(u32);

impl Failing {
    /// Whether it was, and has not been otherwise since.
    pub(super) fn is_in_vain(&self) -> bool {
        self.0 > 0
    }

    /// The pause after once more: longer each time.
    pub(super) fn pause(&mut self, random: &mut Random) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.0.min(10)).min(LONGEST_PAUSE);
        self.0 += 1;
        random.around(pause)
    }
}

/// What an agent draws.
#[derive(Debug)]
pub(super) struct Random(fastrand::Rng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A time between half of this and one and a half of it, so that many agents do not come at once.
    pub(super) fn around(&mut self, mean: Duration) -> Duration {
        mean / 2 + mean.mul_f64(self.0.f64())
    }
}
