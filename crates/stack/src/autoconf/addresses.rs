//! The addresses of an interface: how they are made, given up and replaced (RFC 4862 §5.3 to §5.5, RFC 8981 §3.4).

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ndp::{DuplicateSolicitation, Nonce, PrefixInformation, solicited_node};

use super::address::{Address, Finding, Origin, Phase, Search};
use super::advertiser::Advertiser;
use super::identifier;
use crate::random::{Key, Random};
use crate::route::Lifetime;
use crate::source_address::Candidate;

/// Addresses of an interface, made by itself: a forged router does not fill memory. Each prefix has a stable one and, over
/// two days, up to three temporary ones.
pub const MAX_ADDRESSES: usize = 32;
/// Addresses of a prefix that may be somebody else's before we have none (RFC 7217 §6, RFC 8981 §3.8).
const IDGEN_RETRIES: u8 = 3;
/// RFC 8981 §3.8.
const TEMP_PREFERRED_LIFETIME: Duration = Duration::from_secs(86_400);
/// RFC 8981 §3.8.
const TEMP_VALID_LIFETIME: Duration = Duration::from_secs(2 * 86_400);
/// RFC 8981 §3.8: 0.4 times the preferred lifetime.
const MAX_DESYNC_FACTOR: Duration = Duration::from_secs(86_400 * 2 / 5);
/// How long before a temporary address is deprecated the next one is made (RFC 8981 §3.8), at retransmission timers of up
/// to a second.
const REGEN_ADVANCE: Duration = Duration::from_secs(2 + IDGEN_RETRIES as u64);
const LINK_LOCAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 64);

/// How addresses are made.
#[derive(Clone)]
pub struct Config {
    /// The secret of stable addresses (RFC 7217): the same after a restart, so that they are.
    pub stable_key: Key,
    /// The interface's name, so that another one has other addresses.
    pub interface: Vec<u8>,
    /// Whether temporary addresses are made, too (RFC 8981).
    pub temporary: bool,
    /// Questions for duplicates (DupAddrDetectTransmits, RFC 4862 §5.1: 1); 0: none are sent, for links on which nobody
    /// else is.
    pub duplicate_transmits: u8,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send it: whether somebody else has the address.
    Search(DuplicateSolicitation),
    /// Join the group, which is to be reported from then on, with the search: hosts that start together do not all report at
    /// once (RFC 4862 §5.4.2).
    Join(Ipv6Addr, Instant),
    /// Leave the group.
    Leave(Ipv6Addr),
    /// Tell the caller.
    Event(Event),
}

/// What has become of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It is ours.
    Assigned(Ipv6Addr),
    /// Somebody else has it.
    Duplicate(Ipv6Addr),
    /// Its time is over, or it was taken away.
    Removed(Ipv6Addr),
}

/// The addresses.
pub struct Addresses {
    config: Config,
    addresses: Vec<Address>,
    actions: VecDeque<Action>,
    given_up: VecDeque<GivenUp>,
}

/// A prefix of which all addresses that were tried are somebody else's: no more are tried, for as long as this interface
/// lasts (RFC 7217 §6, RFC 8981 §3.4 step 7). As many are remembered as there are addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GivenUp {
    prefix: Ipv6Net,
    temporary: bool,
}

impl Addresses {
    /// None yet; see [`Addresses::start`].
    pub fn new(config: Config) -> Self {
        Addresses { config, addresses: Vec::new(), actions: VecDeque::new(), given_up: VecDeque::new() }
    }

    /// Makes the link-local address (RFC 4862 §5.3). The search for duplicates begins after a random part of a second
    /// (RFC 4862 §5.4.2).
    pub fn start(&mut self, now: Instant, random: &mut Random) {
        let delay = random.between(Duration::ZERO, Duration::from_secs(1));
        let address = identifier::stable(LINK_LOCAL, &self.config.stable_key, &self.config.interface, 0);
        let origin = Origin::Stable { duplicates: 0 };
        self.add(now + delay, Address { address, ..self.new_address(LINK_LOCAL, origin) });
    }

    /// An address that the caller wants.
    pub fn add_static(&mut self, now: Instant, address: Ipv6Addr, prefix_length: u8) {
        let Ok(prefix) = Ipv6Net::new(address, prefix_length.min(128)) else { return };
        let is_ipv4 = address.to_ipv4_mapped().is_some();
        if self.get(address).is_none() && !is_ipv4 && !address.is_multicast() && !address.is_unspecified() {
            self.add(now, Address { address, ..self.new_address(prefix.trunc(), Origin::Static) });
        }
    }

    /// The caller wants an address no longer.
    pub fn remove(&mut self, address: Ipv6Addr) {
        if let Some(at) = self.addresses.iter().position(|known| known.address == address) {
            self.drop_at(at);
            self.actions.push_back(Action::Event(Event::Removed(address)));
        }
    }

    /// A router advertises a prefix (RFC 4862 §5.5.3). Where there is no place left for its addresses, those of the oldest
    /// prefix give way that a router advertised which has not been found reachable.
    pub fn advertised(
        &mut self,
        now: Instant,
        said: &PrefixInformation,
        by: Advertiser<'_>,
        random: &mut Random,
    ) {
        let preferred = Lifetime::from_seconds(said.preferred_lifetime);
        let valid = Lifetime::from_seconds(said.valid_lifetime);
        let is_usable = said.autonomous
            && said.prefix_length == 64
            && said.preferred_lifetime <= said.valid_lifetime
            && !said.prefix.is_unicast_link_local()
            && !said.prefix.is_multicast();
        let Ok(prefix) = Ipv6Net::new(said.prefix, said.prefix_length) else { return };
        if !is_usable {
            return;
        }
        let prefix = prefix.trunc();
        let mut is_known = false;
        for address in self.addresses.iter_mut().filter(|known| known.prefix == prefix) {
            address.router = address.router.map(|router| by.keeper_of(router));
            match address.origin {
                Origin::Static => {}
                Origin::Stable { .. } => {
                    is_known = true;
                    address.refresh(now, preferred, valid);
                }
                Origin::Temporary { created, desync, .. } => {
                    address.refresh(now, preferred, valid);
                    bound_temporary(address, created, desync);
                }
            }
        }
        if is_known {
            // The last temporary address found no successor while the prefix was about to be deprecated.
            let lasts = |known: &Address| {
                known.prefix == prefix && matches!(known.origin, Origin::Temporary { replaced: false, .. })
            };
            if self.config.temporary && !self.addresses.iter().any(lasts) {
                self.add_temporary(now, now, prefix, 0, random);
            }
            return;
        }
        if valid.is_zero() || self.given_up.contains(&GivenUp { prefix, temporary: false }) {
            return;
        }
        let address = identifier::stable(prefix, &self.config.stable_key, &self.config.interface, 0);
        let new = Address {
            address,
            preferred_until: preferred.end(now),
            valid_until: valid.end(now),
            router: Some(by.router),
            ..self.new_address(prefix, Origin::Stable { duplicates: 0 })
        };
        self.make_room(by);
        // An advertisement reaches all hosts at once: they do not all ask at once (RFC 4862 §5.4.2).
        let start = now + random.between(Duration::ZERO, Duration::from_secs(1));
        if self.add(start, new) && self.config.temporary {
            self.add_temporary(now, start, prefix, 0, random);
        }
    }

    /// Somebody asks for an address that we search duplicates of, from the unspecified address (RFC 4862 §5.4.3). Returns
    /// whether it is tentative here.
    pub fn asked_for(
        &mut self,
        now: Instant,
        target: Ipv6Addr,
        nonce: Option<Nonce>,
        random: &mut Random,
    ) -> bool {
        let Some(at) = self.tentative(target) else { return false };
        if self.addresses[at].asked_for(nonce) == Finding::Duplicate {
            self.is_duplicate(now, at, random);
        }
        true
    }

    /// Somebody says that an address is theirs (RFC 4862 §5.4.4). Returns whether it is tentative here.
    pub fn claimed(&mut self, now: Instant, target: Ipv6Addr, random: &mut Random) -> bool {
        let Some(at) = self.tentative(target) else { return false };
        self.is_duplicate(now, at, random);
        true
    }

    /// Whether packets to this address are for us: not while it is tentative.
    pub fn is_assigned(&self, address: Ipv6Addr) -> bool {
        self.get(address).is_some_and(|known| known.search.is_none())
    }

    /// What is known of an address.
    pub fn get(&self, address: Ipv6Addr) -> Option<&Address> {
        self.addresses.iter().find(|known| known.address == address)
    }

    /// All addresses.
    pub fn iter(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter()
    }

    /// The link-local address, once it is ours.
    pub fn link_local(&self) -> Option<Ipv6Addr> {
        let assigned = self.addresses.iter().filter(|known| known.search.is_none());
        assigned.map(|known| known.address).find(Ipv6Addr::is_unicast_link_local)
    }

    /// The addresses that packets may be sent from.
    pub fn candidates(&self, now: Instant) -> impl Iterator<Item = Candidate> + '_ {
        let assigned = self.addresses.iter().filter(|known| known.search.is_none());
        assigned.map(move |known| Candidate {
            address: known.address,
            prefix_length: known.prefix.prefix_len(),
            deprecated: known.phase(now) == Phase::Deprecated,
            temporary: known.is_temporary(),
            home: true,
            outgoing_interface: true,
            of_next_hop: false,
        })
    }

    /// What to do next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Addresses::handle_timeout`] has something to do. Deprecation needs no doing.
    pub fn deadline(&self) -> Option<Instant> {
        let of = |known: &Address| {
            [known.search_deadline(), known.valid_until, regeneration(known)].into_iter().flatten().min()
        };
        self.addresses.iter().filter_map(of).min()
    }

    /// What time changes.
    pub fn handle_timeout(&mut self, now: Instant, retrans_timer: Duration, random: &mut Random) {
        let is_over = |known: &Address| known.valid_until.is_some_and(|until| until <= now);
        while let Some(at) = self.addresses.iter().position(is_over) {
            let address = self.addresses[at].address;
            self.drop_at(at);
            self.actions.push_back(Action::Event(Event::Removed(address)));
        }
        for known in &mut self.addresses {
            if known.search_deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            let action = match known.search_on(now, retrans_timer, random) {
                Some(question) => Action::Search(question),
                None => Action::Event(Event::Assigned(known.address)),
            };
            self.actions.push_back(action);
        }
        let is_due = |known: &Address| regeneration(known).is_some_and(|due| due <= now);
        while let Some(at) = self.addresses.iter().position(is_due) {
            let prefix = self.addresses[at].prefix;
            if let Origin::Temporary { replaced, .. } = &mut self.addresses[at].origin {
                *replaced = true;
            }
            self.add_temporary(now, now, prefix, 0, random);
        }
    }

    fn new_address(&self, prefix: Ipv6Net, origin: Origin) -> Address {
        Address {
            address: prefix.addr(),
            prefix,
            origin,
            router: None,
            preferred_until: None,
            valid_until: None,
            search: None,
        }
    }

    /// Begins to use an address: with a search for duplicates from `start` on, in its group (RFC 4862 §5.4.2).
    fn add(&mut self, start: Instant, mut address: Address) -> bool {
        let is_own = address.origin != Origin::Static;
        if is_own && self.addresses.len() >= MAX_ADDRESSES {
            return false;
        }
        let group = solicited_node(address.address);
        if !self.addresses.iter().any(|known| solicited_node(known.address) == group) {
            self.actions.push_back(Action::Join(group, start));
        }
        if self.config.duplicate_transmits > 0 {
            address.search = Some(Search::new(self.config.duplicate_transmits, start));
        } else {
            self.actions.push_back(Action::Event(Event::Assigned(address.address)));
        }
        self.addresses.push(address);
        true
    }

    /// Makes room for the addresses of one more prefix. A prefix goes with all its addresses.
    fn make_room(&mut self, by: Advertiser<'_>) {
        let wanted = if self.config.temporary { 2 } else { 1 };
        while self.addresses.len() + wanted > MAX_ADDRESSES {
            let gives_way = |known: &&Address| known.router.is_some_and(|router| by.may_displace(router));
            let Some(prefix) = self.addresses.iter().find(gives_way).map(|known| known.prefix) else {
                return;
            };
            let is_of_it = |known: &Address| known.prefix == prefix && known.router.is_some();
            while let Some(at) = self.addresses.iter().position(is_of_it) {
                let old = self.drop_at(at);
                self.actions.push_back(Action::Event(Event::Removed(old.address)));
            }
        }
    }

    /// Makes a temporary address beside the stable one of its prefix (RFC 8981 §3.4), with that one's lifetimes within the
    /// bounds of its own.
    fn add_temporary(
        &mut self,
        now: Instant,
        start: Instant,
        prefix: Ipv6Net,
        duplicates: u8,
        random: &mut Random,
    ) {
        let is_stable =
            |known: &&Address| known.prefix == prefix && matches!(known.origin, Origin::Stable { .. });
        let Some(stable) = self.addresses.iter().find(is_stable) else { return };
        if self.given_up.contains(&GivenUp { prefix, temporary: true }) {
            return;
        }
        let desync = random.between(Duration::ZERO, MAX_DESYNC_FACTOR);
        let origin = Origin::Temporary { duplicates, created: now, desync, replaced: false };
        let mut new = Address {
            address: identifier::temporary(prefix, random),
            preferred_until: stable.preferred_until,
            valid_until: stable.valid_until,
            router: stable.router,
            ..self.new_address(prefix, origin)
        };
        bound_temporary(&mut new, now, desync);
        // One that would be replaced at once is not made (RFC 8981 §3.4).
        if new.preferred_until.is_some_and(|until| until <= now + REGEN_ADVANCE) {
            return;
        }
        self.add(start, new);
    }

    fn tentative(&self, target: Ipv6Addr) -> Option<usize> {
        self.addresses.iter().position(|known| known.address == target && known.search.is_some())
    }

    /// Gives an address up, and makes another one in its place, a few times (RFC 7217 §6, RFC 8981 §3.4).
    fn is_duplicate(&mut self, now: Instant, at: usize, random: &mut Random) {
        let old = self.drop_at(at);
        self.actions.push_back(Action::Event(Event::Duplicate(old.address)));
        match old.origin {
            Origin::Stable { duplicates } if duplicates < IDGEN_RETRIES => {
                let duplicates = duplicates + 1;
                let Config { stable_key, interface, .. } = &self.config;
                let address = identifier::stable(old.prefix, stable_key, interface, duplicates);
                // After a random part of a second (RFC 7217 §6).
                let start = now + random.between(Duration::ZERO, Duration::from_secs(1));
                self.add(start, Address { address, origin: Origin::Stable { duplicates }, ..old });
            }
            Origin::Temporary { duplicates, .. } if duplicates < IDGEN_RETRIES => {
                self.add_temporary(now, now, old.prefix, duplicates + 1, random);
            }
            Origin::Stable { .. } => self.give_up(GivenUp { prefix: old.prefix, temporary: false }),
            Origin::Temporary { .. } => self.give_up(GivenUp { prefix: old.prefix, temporary: true }),
            Origin::Static => {}
        }
    }

    fn give_up(&mut self, given_up: GivenUp) {
        if self.given_up.len() >= MAX_ADDRESSES {
            self.given_up.pop_front();
        }
        self.given_up.push_back(given_up);
    }

    fn drop_at(&mut self, at: usize) -> Address {
        let old = self.addresses.remove(at);
        let group = solicited_node(old.address);
        if !self.addresses.iter().any(|known| solicited_node(known.address) == group) {
            self.actions.push_back(Action::Leave(group));
        }
        old
    }
}

/// A temporary address lives no longer than its own lifetimes (RFC 8981 §3.4).
fn bound_temporary(address: &mut Address, created: Instant, desync: Duration) {
    let earlier =
        |until: Option<Instant>, bound: Instant| Some(until.map_or(bound, |until| until.min(bound)));
    address.preferred_until = earlier(address.preferred_until, created + TEMP_PREFERRED_LIFETIME - desync);
    address.valid_until = earlier(address.valid_until, created + TEMP_VALID_LIFETIME);
}

/// When the next temporary address is due, if one is.
fn regeneration(address: &Address) -> Option<Instant> {
    match address.origin {
        Origin::Temporary { replaced: false, .. } => address.preferred_until?.checked_sub(REGEN_ADVANCE),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
