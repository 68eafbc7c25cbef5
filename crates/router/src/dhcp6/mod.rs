//! Addresses for hosts and prefixes for routers behind this one: a DHCPv6 server (RFC 8415).
//!
//! [`Server`] is given messages, and returns answers; what it has given away is its [`Delegated`] leases. It listens to
//! nobody by itself and sends nothing on its own.
//!
//! - **A router** (IA_PD) gets a number, as networks of this site have one: the same part of each prefix of each uplink. When
//!   an uplink has another prefix it is that part of the other one, from the next Renew on, and the old one is withdrawn in
//!   the same answer. What lasts no longer than the uplink's lease is told so, and nothing lasts longer than RFC 9096 has it.
//!   While no uplink has a prefix, the router keeps its number by asking.
//! - **A host** (IA_NA) gets an address only where the configuration has one for it, in each prefix of its network. Nothing is
//!   remembered of it. Others make their own (RFC 4862).
//!
//! What strangers can make it remember is bounded: so many leases for each router and in all, and a lease begins with a
//! Request (or a Solicit with Rapid Commit), never with a Solicit alone. Of each address so many messages are heard.

mod pool;
pub mod settings;
mod shares;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::dhcpv6::{
    AssignedAddress, Assignment, Builder, DelegatedPrefix, Delegation, Message, MessageType, StatusCode,
};

use crate::advertise::{PREFERRED_LIMIT, VALID_LIMIT};
use crate::delegation::LeasedPrefix;
use crate::lifetime::Lifetime;
pub use pool::Pool;
pub use settings::{FixedHost, Identity, Settings};
use shares::Shares;

/// Clients ask again so soon: so long an inner router may have a prefix that the uplink has lost.
const RENEW: Duration = Duration::from_secs(300);
/// A router has so many prefixes at once, by its link-local address.
const MOST_OF_A_ROUTER: usize = 2;
/// So many there are in all.
const MOST: usize = 256;
/// So many associations of a message are answered.
const MOST_ASKED: usize = 4;
/// Lengths of a DUID (RFC 8415 section 11.1).
const DUID: std::ops::RangeInclusive<usize> = 3..=130;

/// Where a message has come in, as that is now.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    /// The network's name.
    pub network: &'a str,
    /// What may be had there.
    pub settings: &'a Settings,
    /// The prefixes that its hosts have addresses in.
    pub prefixes: &'a [LeasedPrefix],
    /// DNS servers that its hosts are told.
    pub dns_servers: &'a [Ipv6Addr],
    /// The gateway's own addresses there: whoever sends from one of them is not reached by it.
    pub own: &'a [Ipv6Addr],
}

/// A part of the site's prefixes that a router behind this one has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegated {
    /// The network that the router is in.
    pub network: String,
    /// Its DUID.
    pub duid: Vec<u8>,
    /// Its name for the association.
    pub iaid: u32,
    /// Its link-local address, by which it is reached.
    pub router: Ipv6Addr,
    /// The first of the /64s that it has of each prefix.
    pub number: u64,
    /// The length of its part.
    pub length: u8,
    /// When it is over, if the router does not ask again: not before hosts behind it have forgotten what it was told last, and
    /// not sooner where the uplink's lease ends sooner, so that the router keeps its part over that.
    pub expires: Instant,
}

/// The server, for all networks.
#[derive(Debug)]
pub struct Server {
    duid: Vec<u8>,
    pool: Pool,
    leases: Vec<Delegated>,
    /// How many messages are heard, by the network.
    shares: BTreeMap<String, Shares>,
}

impl Server {
    /// A server with this DUID, which goes on with what it has given away.
    #[must_use]
    pub fn new(duid: Vec<u8>, leases: Vec<Delegated>) -> Self {
        Server { duid, pool: Pool::default(), leases, shares: BTreeMap::new() }
    }

    /// There is so much to give away from now on.
    pub fn set_pool(&mut self, pool: Pool) {
        self.pool = pool;
    }

    /// Ends what is over, and what the network does not give any more. Whether that was anything.
    pub fn retain(&mut self, wanted: impl Fn(&Delegated) -> bool, now: Instant) -> bool {
        let before = self.leases.len();
        self.leases.retain(|lease| lease.expires > now && wanted(lease));
        self.leases.len() != before
    }

    /// What was given away.
    #[must_use]
    pub fn leases(&self) -> &[Delegated] {
        &self.leases
    }

    /// The prefixes of a lease as they are now, the preferred ones of the uplink that works.
    #[must_use]
    pub fn prefixes(&self, lease: &Delegated, now: Instant) -> Vec<LeasedPrefix> {
        self.pool.parts(lease.number, lease.length, now)
    }

    /// When the next lease ends.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.leases.iter().map(|lease| lease.expires).min()
    }

    /// The answer to a datagram, if it has one. What it takes or gives back is in [`Server::leases`] then.
    pub fn handle(
        &mut self,
        bytes: &[u8],
        source: Ipv6Addr,
        link: &Link<'_>,
        now: Instant,
    ) -> Option<Vec<u8>> {
        if !source.is_unicast_link_local() || link.own.contains(&source) {
            return None;
        }
        let message = Message::parse(bytes).ok()?;
        let kind = message.message_type();
        let is_for_us = message.server_id() == Some(&self.duid[..]);
        // Which messages name a server, and which do not (RFC 8415 section 16).
        let names_rightly = match kind {
            MessageType::Solicit | MessageType::Confirm | MessageType::Rebind => {
                message.server_id().is_none()
            }
            MessageType::Request | MessageType::Renew | MessageType::Release | MessageType::Decline => {
                is_for_us
            }
            MessageType::InformationRequest => message.server_id().is_none() || is_for_us,
            _ => false,
        };
        let duid = message.client_id().filter(|duid| DUID.contains(&duid.len()));
        if !names_rightly || (duid.is_none() && kind != MessageType::InformationRequest) {
            return None;
        }
        let client = Client { duid: duid.unwrap_or_default(), source };
        if !self.hears(&client, link, now) {
            return None;
        }
        let is_quick = kind == MessageType::Solicit && message.rapid_commit();
        let answer = if kind == MessageType::Solicit && !is_quick {
            MessageType::Advertise
        } else {
            MessageType::Reply
        };
        let mut answer = Builder::new(answer, message.transaction()).server_id(&self.duid);
        if let Some(duid) = duid {
            answer = answer.client_id(duid);
        }
        if is_quick {
            answer = answer.rapid_commit();
        }
        answer = match kind {
            MessageType::Confirm => {
                let asked: Vec<_> = message.assignments().flat_map(|asked| asked.addresses).collect();
                let is_here = |asked: &AssignedAddress| {
                    link.prefixes.iter().any(|leased| leased.prefix.contains(&asked.address))
                };
                match asked.is_empty() {
                    true => return None,
                    false if asked.iter().all(is_here) => answer.status(StatusCode::Success, ""),
                    false => answer.status(StatusCode::NotOnLink, ""),
                }
            }
            MessageType::Release => self.release(&message, &client, link, answer),
            // Who has an address of the configuration twice on his link is to look for that.
            MessageType::Decline => answer.status(StatusCode::Success, ""),
            MessageType::InformationRequest => answer,
            _ => {
                let commits = kind != MessageType::Solicit || is_quick;
                for asked in message.assignments().take(MOST_ASKED) {
                    answer = answer.assignment(&assigned(&asked, &client, link, now));
                }
                for asked in message.delegations().take(MOST_ASKED) {
                    answer = answer.delegation(&self.delegate(&asked, &client, link, commits, now));
                }
                answer
            }
        };
        if message.requests_dns_servers() && !link.dns_servers.is_empty() {
            answer = answer.dns_servers(link.dns_servers);
        }
        Some(answer.finish())
    }

    /// Whether one more message is heard. Who has a lease, or an address by the configuration, has a share whoever else asks.
    fn hears(&mut self, client: &Client<'_>, link: &Link<'_>, now: Instant) -> bool {
        let has_lease = |lease: &Delegated| lease.router == client.source && lease.network == link.network;
        let host = link.settings.hosts.iter().find(|host| host.identity.is(client.duid, client.source));
        let is_known = host.is_some() || self.leases.iter().any(has_lease);
        // No link-local address: others cannot use up a host's share unless they have its name.
        let share = host.map_or(client.source, |host| Ipv6Addr::from_bits(host.host.into()));
        self.shares.entry(link.network.to_owned()).or_default().allows(share, is_known, now)
    }

    /// What a router gets for an association that it asks about.
    fn delegate(
        &mut self,
        asked: &Delegation,
        client: &Client<'_>,
        link: &Link<'_>,
        commits: bool,
        now: Instant,
    ) -> Delegation {
        let own = self.leases.iter().position(|lease| lease.is_of(client, asked.iaid, link));
        let length = link.settings.delegate.unwrap_or(64);
        // While no uplink has anything, its number is kept for it.
        let is_good = |lease: &Delegated| {
            lease.length == length
                && (self.pool.is_empty() || !self.pool.parts(lease.number, length, now).is_empty())
        };
        let number = match own.map(|own| &self.leases[own]).filter(|lease| is_good(lease)) {
            _ if link.settings.delegate.is_none() => None,
            Some(lease) => Some(lease.number),
            None if self.has_room_for(client, own, now) => self.free_number(asked, length, now),
            None => None,
        };
        let parts = number.map(|number| self.pool.parts(number, length, now)).unwrap_or_default();
        let given = parts.iter().map(|part| DelegatedPrefix {
            prefix: part.prefix.network(),
            prefix_length: length,
            preferred_lifetime: seconds(part.preferred, PREFERRED_LIMIT, now),
            valid_lifetime: seconds(part.valid, VALID_LIMIT, now),
        });
        let mut prefixes: Vec<DelegatedPrefix> = given.filter(|given| given.valid_lifetime > 0).collect();
        let is_nothing = prefixes.is_empty();
        let expires = now + VALID_LIMIT;
        match (number, own) {
            // That of a router that has nothing to renew now, and so asks by Solicits alone.
            (Some(_), Some(own)) if is_nothing => self.leases[own].expires = expires,
            (Some(number), own) if commits && !is_nothing => {
                let lease = Delegated {
                    network: link.network.to_owned(),
                    duid: client.duid.to_owned(),
                    iaid: asked.iaid,
                    router: client.source,
                    number,
                    length,
                    expires,
                };
                match own {
                    Some(own) => self.leases[own] = lease,
                    None => self.leases.push(lease),
                }
            }
            _ => {}
        }
        // What it has from before is over (section 18.3.4).
        let is_gone = |had: &&DelegatedPrefix| {
            !had.prefix.is_unspecified()
                && !prefixes
                    .iter()
                    .any(|now| (now.prefix, now.prefix_length) == (had.prefix, had.prefix_length))
        };
        if commits {
            let gone: Vec<_> = asked.prefixes.iter().filter(is_gone).take(MOST_ASKED).copied().collect();
            prefixes.extend(gone.into_iter().map(|had| DelegatedPrefix {
                preferred_lifetime: 0,
                valid_lifetime: 0,
                ..had
            }));
        }
        let (t1, t2) = times(prefixes.iter().map(|given| given.preferred_lifetime));
        let status = match is_nothing && prefixes.is_empty() {
            true => StatusCode::NoPrefixAvail,
            false => StatusCode::Success,
        };
        Delegation { iaid: asked.iaid, t1, t2, prefixes, status }
    }

    /// A part that nobody has: the one that is asked for, if it can be had, so that a router that this server has forgotten
    /// keeps its own; otherwise the first.
    fn free_number(&self, asked: &Delegation, length: u8, now: Instant) -> Option<u64> {
        let wished = asked.prefixes.iter().filter(|wish| wish.prefix_length == length);
        let wished = wished.filter_map(|wish| {
            let wish = Ipv6Net::new(wish.prefix, length).ok().filter(|_| !wish.prefix.is_unspecified())?;
            self.pool.number_of(wish)
        });
        let is_free = |number: &u64| {
            let (first, size) = (*number, 1u64 << (64 - length));
            let overlaps = |lease: &Delegated| {
                let theirs = 1u64 << (64 - lease.length);
                lease.expires > now && first < lease.number + theirs && lease.number < first + size
            };
            !self.leases.iter().any(overlaps) && self.pool.is_free(first, length, now)
        };
        wished.chain(self.pool.numbers(length)).find(is_free)
    }

    /// Whether there may be another lease.
    fn has_room_for(&self, client: &Client<'_>, own: Option<usize>, now: Instant) -> bool {
        let others = || {
            self.leases.iter().enumerate().filter(|(place, lease)| Some(*place) != own && lease.expires > now)
        };
        let of_router =
            others().filter(|(_, lease)| lease.router == client.source || lease.duid == client.duid);
        others().count() < MOST && of_router.count() < MOST_OF_A_ROUTER
    }

    fn release(
        &mut self,
        message: &Message<'_>,
        client: &Client<'_>,
        link: &Link<'_>,
        answer: Builder,
    ) -> Builder {
        let mut answer = answer.status(StatusCode::Success, "");
        for asked in message.delegations().take(MOST_ASKED) {
            let before = self.leases.len();
            self.leases.retain(|lease| !lease.is_of(client, asked.iaid, link));
            if self.leases.len() == before {
                let status = StatusCode::NoBinding;
                answer =
                    answer.delegation(&Delegation { t1: 0, t2: 0, prefixes: Vec::new(), status, ..asked });
            }
        }
        answer
    }
}

/// Who asks.
struct Client<'a> {
    duid: &'a [u8],
    source: Ipv6Addr,
}

impl Delegated {
    fn is_of(&self, client: &Client<'_>, iaid: u32, link: &Link<'_>) -> bool {
        self.duid == client.duid && self.iaid == iaid && self.network == link.network
    }
}

/// The addresses of a host that the configuration knows, and what is over.
fn assigned(asked: &Assignment, client: &Client<'_>, link: &Link<'_>, now: Instant) -> Assignment {
    let known = link.settings.hosts.iter().find(|host| host.identity.is(client.duid, client.source));
    let in_prefix = |host: &FixedHost, leased: &LeasedPrefix| {
        Some(AssignedAddress {
            address: host.address_in(leased.prefix)?,
            preferred_lifetime: seconds(leased.preferred, PREFERRED_LIMIT, now),
            valid_lifetime: seconds(leased.valid, VALID_LIMIT, now),
        })
    };
    let addresses = known
        .into_iter()
        .flat_map(|host| link.prefixes.iter().filter_map(move |leased| in_prefix(host, leased)));
    let mut addresses: Vec<_> = addresses.filter(|assigned| assigned.valid_lifetime > 0).collect();
    let is_gone =
        |had: &&AssignedAddress| !addresses.iter().any(|now: &AssignedAddress| now.address == had.address);
    let gone: Vec<_> = asked.addresses.iter().filter(is_gone).take(MOST_ASKED).copied().collect();
    let status = if addresses.is_empty() { StatusCode::NoAddrsAvail } else { StatusCode::Success };
    if status == StatusCode::Success {
        let over = |had| AssignedAddress { preferred_lifetime: 0, valid_lifetime: 0, ..had };
        addresses.extend(gone.into_iter().map(over));
    }
    let (t1, t2) = times(addresses.iter().map(|assigned| assigned.preferred_lifetime));
    Assignment { iaid: asked.iaid, t1, t2, addresses, status }
}

/// What is told of a lifetime.
fn seconds(lifetime: Lifetime, limit: Duration, now: Instant) -> u32 {
    lifetime.remaining(now).map_or(limit, |left| left.min(limit)).as_secs() as u32
}

/// T1 and T2: half and four fifths of the shortest preferred lifetime that is none (section 14.2), and soon in any case.
fn times(preferred: impl Iterator<Item = u32>) -> (u32, u32) {
    let shortest = preferred.filter(|seconds| *seconds > 0).min().unwrap_or(2 * RENEW.as_secs() as u32);
    let t1 = (shortest / 2).min(RENEW.as_secs() as u32);
    (t1, (shortest / 5 * 4).max(t1))
}

#[cfg(test)]
mod tests;
