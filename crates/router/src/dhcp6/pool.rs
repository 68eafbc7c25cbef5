//! Of which prefixes routers behind this one get parts: those of the uplinks, without what the site uses itself.

use std::net::Ipv6Addr;
use std::time::Instant;

use ipnet::{IpNet, Ipv6Net};

use crate::delegation::LeasedPrefix;
use crate::lifetime::Lifetime;
use crate::plan::Plan;
use crate::site::Site;
use crate::uplink::UplinkState;

/// More numbers than this are not looked through for a free one.
const MOST_LOOKED_AT: u64 = 4_096;

/// What there is to give away now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// Prefixes of uplinks, each with the uplink's place and whether that works.
    prefixes: Vec<(usize, bool, LeasedPrefix)>,
    /// What the site has itself of it.
    taken: Vec<Ipv6Net>,
}

impl Pool {
    /// What the uplinks have, less what is planned for the networks and the tunnel, and what the site leads elsewhere: to other
    /// routers, and to its translator.
    #[must_use]
    pub fn new(site: &Site, uplinks: &[&UplinkState], plan: &Plan) -> Self {
        let of_uplink = |(place, state): (usize, &&UplinkState)| {
            let works = state.leads_ipv6();
            state.prefixes().map(move |leased| (place, works, leased)).collect::<Vec<_>>()
        };
        let prefixes: Vec<_> = uplinks.iter().enumerate().flat_map(of_uplink).collect();
        let ipv6 = |net: IpNet| match net {
            IpNet::V6(net) => Some(net),
            IpNet::V4(_) => None,
        };
        let own = plan.addresses.iter().filter_map(|address| ipv6(address.address.trunc()));
        // A route to more than a whole prefix, such as a default route, leads where nothing else does.
        let is_within = |to: &Ipv6Net| prefixes.iter().any(|(.., leased)| leased.prefix.contains(to));
        let routed = site.routes.iter().filter_map(|route| ipv6(route.to)).filter(is_within);
        let translated = site.nat64.iter().map(|nat64| nat64.prefix.net());
        let taken = own.chain(plan.hop_prefix).chain(routed).chain(translated).collect();
        Pool { prefixes, taken }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// The parts of that number and length of each prefix that has one and does not need it itself. Those of the first uplink
    /// that works are preferred, as for networks.
    pub(super) fn parts(&self, number: u64, length: u8, now: Instant) -> Vec<LeasedPrefix> {
        let free: Vec<_> = self
            .all_parts(number, length, now)
            .filter(|(.., leased)| !self.is_taken(leased.prefix))
            .collect();
        let usable = free.iter().find(|(_, works, leased)| *works && !leased.preferred.is_expired(now));
        let preferred = usable.map(|(place, ..)| *place);
        let told = |(place, _, leased): (usize, bool, LeasedPrefix)| match preferred {
            Some(preferred) if preferred != place => LeasedPrefix { preferred: Lifetime::Expired, ..leased },
            _ => leased,
        };
        free.into_iter().map(told).collect()
    }

    /// Whether there is such a part, and the site needs that of no prefix itself.
    pub(super) fn is_free(&self, number: u64, length: u8, now: Instant) -> bool {
        let mut parts = self.all_parts(number, length, now).peekable();
        parts.peek().is_some() && !parts.any(|(.., leased)| self.is_taken(leased.prefix))
    }

    fn all_parts(
        &self,
        number: u64,
        length: u8,
        now: Instant,
    ) -> impl Iterator<Item = (usize, bool, LeasedPrefix)> {
        let valid = self.prefixes.iter().filter(move |(.., leased)| !leased.valid.is_expired(now));
        valid.filter_map(move |(place, works, leased)| {
            let prefix = part(leased.prefix, number, length)?;
            Some((*place, *works, LeasedPrefix { prefix, ..*leased }))
        })
    }

    fn is_taken(&self, part: Ipv6Net) -> bool {
        self.taken.iter().any(|taken| taken.contains(&part) || part.contains(taken))
    }

    /// The number of a part, if it is one.
    pub(super) fn number_of(&self, part: Ipv6Net) -> Option<u64> {
        let (.., of) = self.prefixes.iter().find(|(.., leased)| leased.prefix.contains(&part))?;
        Some(((part.network().to_bits() & of.prefix.hostmask().to_bits()) >> 64) as u64)
    }

    /// Numbers of parts of that length, the lowest first.
    pub(super) fn numbers(&self, length: u8) -> impl Iterator<Item = u64> + use<> {
        let shortest = self.prefixes.iter().map(|(.., leased)| leased.prefix.prefix_len()).min();
        let spare = u32::from(length.saturating_sub(shortest.unwrap_or(length)));
        let count = 1u64.checked_shl(spare).unwrap_or(u64::MAX);
        (0..count.min(MOST_LOOKED_AT)).map(move |place| place << (64 - length))
    }
}

/// The part of a prefix that begins with the /64 of that number.
fn part(prefix: Ipv6Net, number: u64, length: u8) -> Option<Ipv6Net> {
    let spare = 64u32.checked_sub(prefix.prefix_len().into()).filter(|_| prefix.prefix_len() <= length)?;
    let fits = number.checked_shr(spare).unwrap_or(0) == 0;
    let bits = prefix.network().to_bits() | u128::from(number) << 64;
    fits.then(|| Ipv6Net::new(Ipv6Addr::from_bits(bits), length).ok()).flatten()
}

#[cfg(test)]
impl Pool {
    /// These prefixes of one uplink each, all of which work, and what is taken.
    pub(super) fn of(prefixes: &[LeasedPrefix], taken: &[Ipv6Net]) -> Self {
        let prefixes = prefixes.iter().enumerate().map(|(place, leased)| (place, true, *leased));
        Pool { prefixes: prefixes.collect(), taken: taken.to_vec() }
    }
}
