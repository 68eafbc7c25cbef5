//! What is known of single destinations: where a redirect has led them (RFC 4861 §8.3), and what their path carries
//! (RFC 8201). These are the seed's host routes; a destination of which nothing special is known needs none.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use wire::ipv6::MIN_MTU;

/// Destinations with something of their own: more than a host talks to at once, at a hundred octets each. The one that
/// has not been used for longest makes room.
pub const MAX_DESTINATIONS: usize = 1024;
/// After so long a larger path MTU is tried (RFC 8201 §4: ten minutes).
pub const PATH_MTU_LIFETIME: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy)]
struct Destination {
    redirected_to: Option<Ipv6Addr>,
    path_mtu: Option<(usize, Instant)>,
    used: Instant,
}

/// The destinations of which something is known.
#[derive(Debug, Default)]
pub struct Destinations(BTreeMap<Ipv6Addr, Destination>);

impl Destinations {
    /// The first hop that a redirect has named, which is the destination itself if it is on the link.
    pub fn first_hop(&mut self, now: Instant, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        let known = self.0.get_mut(&destination)?;
        known.used = now;
        known.redirected_to
    }

    /// The path MTU, at most that of the link.
    pub fn path_mtu(&self, now: Instant, destination: Ipv6Addr, link: usize) -> usize {
        let known = self.0.get(&destination).and_then(|known| known.path_mtu);
        known.filter(|(_, until)| *until > now).map_or(link, |(mtu, _)| mtu.min(link))
    }

    /// Those of which something is known: where a redirect has led them, and the path MTU with its end.
    pub fn iter(&self) -> impl Iterator<Item = (Ipv6Addr, Option<Ipv6Addr>, Option<(usize, Instant)>)> + '_ {
        self.0.iter().map(|(address, known)| (*address, known.redirected_to, known.path_mtu))
    }

    /// A Packet Too Big about something that we have sent (RFC 8201 §4): only ever lowers what is known, and what no
    /// link may be is ignored. Returns whether the path MTU is another now.
    pub fn packet_too_big(&mut self, now: Instant, destination: Ipv6Addr, mtu: u32, link: usize) -> bool {
        let Ok(mtu) = usize::try_from(mtu) else { return false };
        if mtu < MIN_MTU || mtu >= self.path_mtu(now, destination, link) {
            return false;
        }
        self.at(now, destination).path_mtu = Some((mtu, now + PATH_MTU_LIFETIME));
        true
    }

    /// A redirect that has been checked.
    pub fn redirect(&mut self, now: Instant, destination: Ipv6Addr, to: Ipv6Addr) {
        self.at(now, destination).redirected_to = Some(to);
    }

    /// A first hop is none any longer: what was redirected to it goes as if it had not been.
    pub fn forget_first_hop(&mut self, hop: Ipv6Addr) {
        self.0.retain(|_, known| {
            known.redirected_to = known.redirected_to.filter(|to| *to != hop);
            known.redirected_to.is_some() || known.path_mtu.is_some()
        });
    }

    /// When a path MTU ends.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.values().filter_map(|known| known.path_mtu).map(|(_, until)| until).min()
    }

    /// Removes path MTUs whose time is over.
    pub fn expire(&mut self, now: Instant) {
        self.0.retain(|_, known| {
            known.path_mtu = known.path_mtu.filter(|(_, until)| *until > now);
            known.redirected_to.is_some() || known.path_mtu.is_some()
        });
    }

    fn at(&mut self, now: Instant, destination: Ipv6Addr) -> &mut Destination {
        if self.0.len() >= MAX_DESTINATIONS
            && !self.0.contains_key(&destination)
            && let Some(oldest) =
                self.0.iter().min_by_key(|(_, known)| known.used).map(|(address, _)| *address)
        {
            self.0.remove(&oldest);
        }
        let new = Destination { redirected_to: None, path_mtu: None, used: now };
        let known = self.0.entry(destination).or_insert(new);
        known.used = now;
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

    #[test]
    fn rfc_8201_4_a_path_mtu_is_lowered_never_raised_and_never_below_1280() {
        let now = Instant::now();
        let mut all = Destinations::default();
        for (said, changes, then) in [
            (1600, false, 1500),
            (1400, true, 1400),
            (1450, false, 1400),
            (1279, false, 1400),
            (1280, true, 1280),
        ] {
            assert_eq!(all.packet_too_big(now, TO, said, 1500), changes, "{said}");
            assert_eq!(all.path_mtu(now, TO, 1500), then, "{said}");
        }
        assert_eq!(all.path_mtu(now, TO, 1200), 1200, "never above the link");
    }

    #[test]
    fn rfc_8201_4_after_ten_minutes_a_larger_path_mtu_is_tried() {
        let now = Instant::now();
        let mut all = Destinations::default();
        all.packet_too_big(now, TO, 1400, 1500);
        let then = all.deadline().unwrap();
        assert_eq!(then, now + Duration::from_secs(600));
        all.expire(then);
        assert_eq!((all.path_mtu(then, TO, 1500), all.0.len()), (1500, 0));
    }

    #[test]
    fn rfc_4861_8_3_a_redirect_holds_until_its_first_hop_is_gone() {
        let now = Instant::now();
        let mut all = Destinations::default();
        let router = "fe80::7".parse().unwrap();
        all.redirect(now, TO, router);
        assert_eq!(all.first_hop(now, TO), Some(router));
        all.forget_first_hop(router);
        assert_eq!((all.first_hop(now, TO), all.0.len()), (None, 0));
    }

    #[test]
    fn the_destination_unused_for_longest_makes_room() {
        let now = Instant::now();
        let mut all = Destinations::default();
        let at = |number: usize| Ipv6Addr::from_bits(TO.to_bits() + number as u128);
        for number in 0..2 * MAX_DESTINATIONS {
            all.redirect(now + Duration::from_secs(number as u64), at(number), TO);
            all.first_hop(now + Duration::from_secs(number as u64), at(0));
        }
        assert_eq!(all.0.len(), MAX_DESTINATIONS);
        assert_eq!((all.first_hop(now, at(0)), all.first_hop(now, at(1))), (Some(TO), None));
    }
}
