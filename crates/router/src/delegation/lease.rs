//! What a server offers, what it has given, and how long that lasts.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::dhcpv6::{DelegatedPrefix, Delegation, Message};

use crate::lifetime::Lifetime;

/// For ever, as a lifetime.
const INFINITE: u32 = u32::MAX;
/// A server is not asked again sooner, whatever it says: one that gives leases of a second is not flooded.
const LEAST_T1: Duration = Duration::from_secs(5);
/// So long is a prefix used at most that another one has taken the place of (RFC 7084 L-13).
const REPLACED_FOR: Duration = Duration::from_secs(2 * 3_600);

/// What a server has to offer.
#[derive(Clone, Debug, Default)]
pub(super) struct Offer {
    pub(super) server: Vec<u8>,
    pub(super) preference: u8,
    pub(super) prefixes: Vec<DelegatedPrefix>,
}

/// Prefixes from one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The identity association that it belongs to, by the client's name for it.
    pub iaid: u32,
    /// The server's DUID.
    pub server: Vec<u8>,
    /// The prefixes, in the order that the server has them.
    pub prefixes: Vec<LeasedPrefix>,
    /// When the server is asked to extend it (T1).
    pub renew: Lifetime,
    /// When any server is asked (T2).
    pub rebind: Lifetime,
    /// DNS servers that came with it.
    pub dns_servers: Vec<Ipv6Addr>,
    /// The name of the provider's AFTR that came with it.
    pub aftr: Option<String>,
}

/// A prefix that is this router's for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedPrefix {
    /// The prefix.
    pub prefix: Ipv6Net,
    /// For new connections, until then.
    pub preferred: Lifetime,
    /// Routed here, until then.
    pub valid: Lifetime,
}

impl Lease {
    /// What a server has given now. Prefixes of `before` that it does not mention stay (RFC 8415 section 18.2.10.1),
    /// those that it gives a lifetime of zero go.
    pub(super) fn new(
        server: &[u8],
        delegation: &Delegation,
        message: &Message<'_>,
        before: Option<&Lease>,
        now: Instant,
    ) -> Self {
        let net =
            |given: &DelegatedPrefix| Ipv6Net::new(given.prefix, given.prefix_length).map(|net| net.trunc());
        let given = delegation.prefixes.iter().filter_map(|given| {
            let prefix = net(given).ok()?;
            let (preferred, valid) = (
                Lifetime::from_seconds(given.preferred_lifetime, now),
                Lifetime::from_seconds(given.valid_lifetime, now),
            );
            Some(LeasedPrefix { prefix, preferred, valid })
        });
        let mut prefixes: Vec<LeasedPrefix> = given.collect();
        if let Some(before) = before {
            let unmentioned = |old: &&LeasedPrefix| !prefixes.iter().any(|new| new.prefix == old.prefix);
            let kept: Vec<_> = before.prefixes.iter().filter(unmentioned).copied().collect();
            prefixes.extend(kept);
        }
        // Of what is mentioned and not given up; times of zero are for the client to choose (section 14.2). Where all that is
        // mentioned is given up, what stays is asked about soon.
        let lifetimes = delegation.prefixes.iter().filter(|given| given.valid_lifetime > 0);
        let shortest = lifetimes.map(|given| given.preferred_lifetime).min().unwrap_or_default().max(1);
        let part = |tenths: u64| match shortest {
            INFINITE => INFINITE,
            seconds => (u64::from(seconds) * tenths / 10) as u32,
        };
        let t1 = if delegation.t1 == 0 { part(5) } else { delegation.t1 };
        let t2 = if delegation.t2 == 0 { part(8).max(t1) } else { delegation.t2 };
        let renew = Lifetime::from_seconds(t1, now).max(Lifetime::Until(now + LEAST_T1));
        Lease {
            iaid: delegation.iaid,
            server: server.to_vec(),
            prefixes,
            renew,
            rebind: Lifetime::from_seconds(t2, now).max(renew),
            dns_servers: message.dns_servers().collect(),
            aftr: message.aftr_name(),
        }
    }

    /// It, where a server that does not know it gives a new one: nothing new begins from its prefixes, as nobody may route
    /// them any more, and they are over soon.
    pub(super) fn replaced(mut self, now: Instant) -> Self {
        for leased in &mut self.prefixes {
            leased.preferred = Lifetime::Expired;
            leased.valid = leased.valid.min(Lifetime::Until(now + REPLACED_FOR));
        }
        self
    }

    /// The moment when all of it is over.
    pub fn expires(&self) -> Lifetime {
        self.prefixes.iter().map(|prefix| prefix.valid).max().unwrap_or(self.renew)
    }

    pub(super) fn renew_at(&self) -> Option<Instant> {
        self.renew.end()
    }

    pub(super) fn rebind_at(&self) -> Option<Instant> {
        self.rebind.end()
    }

    /// When the next prefix ends.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.prefixes.iter().filter_map(|prefix| prefix.valid.end()).min()
    }

    pub(super) fn expire(&mut self, now: Instant) {
        self.prefixes.retain(|prefix| !prefix.valid.is_expired(now));
    }

    /// As it is asked for again: with the lifetimes that are left.
    pub(super) fn as_offer(&self, now: Instant) -> Offer {
        let prefixes = self.prefixes.iter().map(|leased| DelegatedPrefix {
            prefix: leased.prefix.network(),
            prefix_length: leased.prefix.prefix_len(),
            preferred_lifetime: left(leased.preferred, now),
            valid_lifetime: left(leased.valid, now),
        });
        Offer { server: self.server.clone(), preference: 0, prefixes: prefixes.collect() }
    }
}

fn left(lifetime: Lifetime, now: Instant) -> u32 {
    lifetime.remaining(now).map_or(INFINITE, |left| left.as_secs() as u32)
}
