//! The network that a host is in (`mode = "host"`), as its routers advertise it (RFC 4861 section 6.3): the prefix to
//! hop in, the router, the MTU.
//!
//! The kernel is kept from all of this, because what it says it says from addresses of its own: Sidestep solicits routers
//! from the unspecified address, reads their advertisements, and sets up routes and the router's neighbor entry itself.
//! [`NetworkDetector`] decides, [`RouterDiscovery`] has the socket.

use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use linux::packet::{PacketOptions, PacketSocket, ROUTER_ADVERTISEMENTS};
use wire::ethernet::{self, MacAddress};
use wire::ndp::{self, Message, RouterSolicitation};

/// Solicitations to a new link, and the time between two (RFC 4861 section 10).
const SOLICITATIONS: u32 = 3;
const BETWEEN_SOLICITATIONS: Duration = Duration::from_secs(4);
/// How long the router that is known may take to show that it is still there, when another network is advertised.
const DOUBT: Duration = Duration::from_secs(2);
/// The smallest MTU that a link may have (RFC 8200 section 5).
const LEAST_MTU: u32 = 1280;
/// Longer than any advertisement on an Ethernet link; a longer frame is cut off and does not parse.
const FRAME: usize = 1_600;
/// Frames of one turn.
const BATCH: usize = 64;

/// A default router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Router {
    /// Its link-local address.
    pub(super) address: Ipv6Addr,
    pub(super) mac: MacAddress,
}

/// A network to be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// The prefix of the link, in which addresses are taken.
    pub(super) prefix: Ipv6Net,
    /// None where who advertises the prefix leads nowhere.
    pub(super) router: Option<Router>,
    /// Largest packet, where the router has said.
    pub(super) mtu: Option<u16>,
}

/// An advertisement, as far as it matters here.
#[derive(Clone, Debug)]
struct Advertisement {
    router: Router,
    /// Whether it is a default router.
    default_router: bool,
    /// On-link prefixes that can be hopped in, and whether they are to be used for something new.
    prefixes: Vec<(Ipv6Net, bool)>,
    mtu: Option<u16>,
}

/// Which network it is, from advertisements and when they come.
#[derive(Debug)]
struct NetworkDetector {
    network: Option<Network>,
    /// Whether the link still leads there: it came up since.
    unsure: bool,
    /// Another one, and when it is believed.
    candidate: Option<(Network, Instant)>,
    /// How many solicitations are due, and when the next one is.
    solicitations: u32,
    next: Instant,
}

impl NetworkDetector {
    fn new(now: Instant) -> Self {
        NetworkDetector {
            network: None,
            unsure: true,
            candidate: None,
            solicitations: SOLICITATIONS,
            next: now,
        }
    }

    /// The link came up, possibly somewhere else: the first advertisement is believed.
    fn handle_link_up(&mut self, now: Instant) {
        (self.unsure, self.candidate) = (true, None);
        (self.solicitations, self.next) = (SOLICITATIONS, now);
    }

    /// Returns the network if it is another one now, or sure again.
    fn handle_advertisement(&mut self, advertisement: &Advertisement, now: Instant) -> Option<Network> {
        let router = advertisement.default_router.then_some(advertisement.router);
        let usable = |prefix| Network { prefix, router, mtu: advertisement.mtu };
        let offered =
            advertisement.prefixes.iter().filter(|(_, preferred)| *preferred).map(|(prefix, _)| *prefix);
        let Some(network) = self.network else {
            let offered = offered.into_iter().next()?;
            return Some(self.settle(usable(offered)));
        };
        if offered.clone().any(|prefix| prefix == network.prefix) {
            // Where two routers advertise it, the first one stays until it resigns.
            let own = network.router.is_none_or(|known| known.address == advertisement.router.address);
            let next = if own || self.unsure { usable(network.prefix) } else { network };
            let changed = next != network || self.unsure;
            self.settle(next);
            return changed.then_some(next);
        }
        let next = usable(offered.into_iter().next()?);
        let deprecated = advertisement.prefixes.contains(&(network.prefix, false));
        if deprecated || self.unsure {
            return Some(self.settle(next));
        }
        if self.candidate.is_none_or(|(other, _)| other.prefix != next.prefix) {
            self.candidate = Some((next, now + DOUBT));
            // For the known router to speak up; not as on a new link, where the first answer is believed.
            self.next = now;
        }
        None
    }

    fn settle(&mut self, network: Network) -> Network {
        (self.unsure, self.candidate, self.solicitations) = (false, None, 0);
        *self.network.insert(network)
    }

    /// When [`NetworkDetector::handle_timeout`] is to be called.
    fn deadline(&self) -> Option<Instant> {
        let believed = self.candidate.map(|(_, at)| at);
        let asking = (self.solicitations > 0 || self.doubts()).then_some(self.next);
        believed.into_iter().chain(asking).min()
    }

    /// Whether the known router has yet to be asked.
    fn doubts(&self) -> bool {
        self.candidate.is_some_and(|(_, at)| self.next < at)
    }

    /// Whether to solicit, and the network if it is another one now.
    fn handle_timeout(&mut self, now: Instant) -> (bool, Option<Network>) {
        let solicit = now >= self.next && (self.solicitations > 0 || self.doubts());
        if solicit {
            self.solicitations = self.solicitations.saturating_sub(1);
            self.next = now + BETWEEN_SOLICITATIONS;
        }
        let changed = match self.candidate {
            Some((network, at)) if now >= at => Some(self.settle(network)),
            _ => None,
        };
        (solicit, changed)
    }
}

/// Listens to the routers of a link.
pub(super) struct RouterDiscovery {
    socket: PacketSocket,
    mac: MacAddress,
    detector: NetworkDetector,
    buffer: Vec<u8>,
}

impl RouterDiscovery {
    pub(super) fn open(index: u32, mac: MacAddress) -> linux::Result<Self> {
        let options = PacketOptions {
            filter: Some(ROUTER_ADVERTISEMENTS),
            all_multicast: true,
            ..PacketOptions::default()
        };
        let socket = PacketSocket::open(index, &options)?;
        Ok(RouterDiscovery {
            socket,
            mac,
            detector: NetworkDetector::new(Instant::now()),
            buffer: vec![0; FRAME],
        })
    }

    /// How long until [`RouterDiscovery::handle`] has something to do by itself.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.detector.deadline().map(|at| at.saturating_duration_since(Instant::now()))
    }

    pub(super) fn handle_link_up(&mut self) {
        self.detector.handle_link_up(Instant::now());
    }

    /// Reads what came and does what is due. Returns the network if it is another one now.
    pub(super) fn handle(&mut self) -> linux::Result<Option<Network>> {
        let mut network = None;
        for _ in 0..BATCH {
            let Some(length) = self.socket.recv(&mut self.buffer)? else { break };
            if let Some(advertisement) = parse(&self.buffer[..length]) {
                network = self.detector.handle_advertisement(&advertisement, Instant::now()).or(network);
            }
        }
        let (solicit, changed) = self.detector.handle_timeout(Instant::now());
        if solicit {
            // A link that is down loses it; another one follows when it is up.
            let _ = self.socket.send(&RouterSolicitation.to_frame(self.mac));
        }
        Ok(changed.or(network))
    }
}

impl AsFd for RouterDiscovery {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn parse(frame: &[u8]) -> Option<Advertisement> {
    let frame = ethernet::Frame::parse(frame).ok()?;
    let packet = wire::ipv6::Packet::parse(frame.payload()).ok()?;
    let Ok(Message::RouterAdvertisement(advertisement)) = ndp::parse(&packet) else { return None };
    let prefixes = advertisement.prefixes().filter_map(|option| {
        let prefix = Ipv6Net::new(option.prefix, option.prefix_length).ok()?.trunc();
        let usable = option.on_link
            && (32..=64).contains(&option.prefix_length)
            && !prefix.addr().is_multicast()
            && !prefix.addr().is_unicast_link_local();
        usable.then_some((prefix, option.preferred_lifetime > 0 && option.valid_lifetime > 0))
    });
    Some(Advertisement {
        router: Router {
            address: packet.source(),
            mac: advertisement.source_link_layer().unwrap_or(frame.source()),
        },
        default_router: advertisement.router_lifetime() > 0,
        prefixes: prefixes.collect(),
        mtu: advertisement.mtu().filter(|mtu| *mtu >= LEAST_MTU).and_then(|mtu| u16::try_from(mtu).ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn advertised(router: u16, prefixes: &[(&str, bool)]) -> Advertisement {
        Advertisement {
            router: Router {
                address: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, router),
                mac: MacAddress([2, 0, 0, 0, 0, router as u8]),
            },
            default_router: true,
            prefixes: prefixes
                .iter()
                .map(|(prefix, preferred)| (prefix.parse().unwrap(), *preferred))
                .collect(),
            mtu: None,
        }
    }

    fn prefix(network: Option<Network>) -> Option<String> {
        network.map(|network| network.prefix.to_string())
    }

    /// In the network of the first router, with nothing left to ask.
    fn settled() -> (NetworkDetector, Instant) {
        let now = Instant::now();
        let mut detector = NetworkDetector::new(now);
        assert_eq!(detector.handle_timeout(now), (true, None));
        let first = detector.handle_advertisement(&advertised(1, &[("2001:db8:1::/64", true)]), now);
        assert_eq!(prefix(first).as_deref(), Some("2001:db8:1::/64"));
        assert_eq!(detector.deadline(), None);
        (detector, now)
    }

    #[test]
    fn a_silent_link_is_asked_three_times() {
        let mut now = Instant::now();
        let mut detector = NetworkDetector::new(now);
        let mut asked = 0;
        while let Some(at) = detector.deadline() {
            now = at;
            asked += u32::from(detector.handle_timeout(now).0);
        }
        assert_eq!(asked, SOLICITATIONS);
    }

    #[test]
    fn another_network_is_believed_when_the_known_one_stays_silent() {
        let (mut detector, now) = settled();
        let other = advertised(2, &[("2001:db8:2::/64", true)]);
        assert_eq!(detector.handle_advertisement(&other, now), None);
        assert_eq!(detector.handle_timeout(now), (true, None), "the known router is asked");
        assert_eq!(detector.handle_advertisement(&other, now + DOUBT / 2), None);
        let (_, network) = detector.handle_timeout(now + DOUBT);
        assert_eq!(prefix(network).as_deref(), Some("2001:db8:2::/64"));
    }

    #[test]
    fn a_second_router_changes_nothing_while_the_first_one_answers() {
        let (mut detector, now) = settled();
        assert_eq!(detector.handle_advertisement(&advertised(2, &[("2001:db8:2::/64", true)]), now), None);
        assert_eq!(
            detector.handle_advertisement(&advertised(1, &[("2001:db8:1::/64", true)]), now + DOUBT / 2),
            None
        );
        assert_eq!(detector.handle_timeout(now + DOUBT * 2).1, None);
    }

    #[test]
    fn behind_a_link_that_came_up_the_first_answer_counts() {
        let (mut detector, now) = settled();
        detector.handle_link_up(now);
        let network = detector.handle_advertisement(&advertised(2, &[("2001:db8:2::/64", true)]), now);
        assert_eq!(prefix(network).as_deref(), Some("2001:db8:2::/64"));
    }

    #[test]
    fn the_same_network_behind_a_link_that_came_up_is_entered_again() {
        let (mut detector, now) = settled();
        detector.handle_link_up(now);
        let again = advertised(1, &[("2001:db8:1::/64", true)]);
        assert_eq!(prefix(detector.handle_advertisement(&again, now)).as_deref(), Some("2001:db8:1::/64"));
        assert_eq!(detector.handle_advertisement(&again, now), None);
    }

    #[test]
    fn a_deprecated_prefix_is_left_at_once() {
        let (mut detector, now) = settled();
        let renumbered = advertised(1, &[("2001:db8:1::/64", false), ("2001:db8:3::/64", true)]);
        assert_eq!(
            prefix(detector.handle_advertisement(&renumbered, now)).as_deref(),
            Some("2001:db8:3::/64")
        );
    }

    #[test]
    fn a_router_that_resigns_is_no_way_out_any_more() {
        let (mut detector, now) = settled();
        let resigned = Advertisement { default_router: false, ..advertised(1, &[("2001:db8:1::/64", true)]) };
        assert_eq!(detector.handle_advertisement(&resigned, now).map(|network| network.router), Some(None));
    }

    proptest! {
        #[test]
        fn any_frame_is_read_without_panic(frame: Vec<u8>) {
            parse(&frame);
        }
    }
}
