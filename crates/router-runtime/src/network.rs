//! A network at its interface: what is advertised there, solicitations, and who else advertises itself.

use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use linux::event::{Interest, Poller};
use linux::icmp_tap::{IcmpTap, Messages};
use linux::netlink::{Link, Netlink};
use router::advertise::{Advertiser, Offer};
use router::rogue::RogueDetector;
use router::site::Network;
use tracing::warn;
use wire::ethernet::{self, MacAddress};
use wire::ndp::{self, ALL_NODES, Message, RouterAdvertisement};

use super::link::{BATCH, FRAME, advertisement, link_local};
use super::random::random;

/// How soon it is tried again, while the interface has no address to advertise from.
const AGAIN: Duration = Duration::from_millis(500);

/// A network and what is open for it.
pub(super) struct Interface {
    pub(super) network: Network,
    pub(super) rogues: RogueDetector,
    pub(super) link_up: bool,
    /// Advertisements that were sent, and solicitations that came.
    pub(super) sent: u64,
    pub(super) solicited: u64,
    token: u64,
    /// Prefixes that hosts may have from here.
    formerly: Vec<Ipv6Net>,
    offer: Option<Offer>,
    open: Option<Open>,
}

struct Open {
    index: u32,
    mac: MacAddress,
    listener: IcmpTap,
    advertiser: Advertiser,
    not_before: Instant,
}

impl Interface {
    pub(super) fn new(network: Network, formerly: Vec<Ipv6Net>, token: u64) -> Self {
        let expected = network.advertise.as_ref().map(|advertise| advertise.other_routers.clone());
        let rogues = RogueDetector::new(expected.unwrap_or_default());
        Interface {
            network,
            rogues,
            link_up: false,
            sent: 0,
            solicited: 0,
            token,
            formerly,
            offer: None,
            open: None,
        }
    }

    /// The interface is so now.
    pub(super) fn set_link(&mut self, link: Option<&Link>, poller: &Poller, now: Instant) {
        self.link_up = link.is_some_and(|link| link.running);
        let same = match (&self.open, link) {
            (Some(open), Some(link)) => {
                link.running && open.index == link.index && Some(open.mac) == link.mac
            }
            (Some(_), None) => false,
            (None, link) => !link.is_some_and(|link| link.running),
        };
        if same {
            return;
        }
        self.close(poller);
        let Some(link) = link.filter(|link| link.running) else { return };
        if let (Some(advertise), Some(mac)) = (&self.network.advertise, link.mac) {
            let header = ethernet::HEADER_LEN as u8;
            let listener = IcmpTap::open(link.index, header, Messages::RouterDiscovery)
                .and_then(|socket| poller.add(&socket, self.token, Interest::Readable).map(|()| socket));
            match listener {
                Ok(listener) => {
                    let settings = advertise.settings.clone();
                    let mut advertiser = Advertiser::new(settings, mac, &self.formerly, now);
                    if let Some(offer) = &self.offer {
                        advertiser.set_offer(offer.clone(), now);
                    }
                    self.open = Some(Open { index: link.index, mac, listener, advertiser, not_before: now });
                }
                Err(error) => warn!("network {}: nothing is advertised: {error}", self.network.name),
            }
        }
    }

    /// This is on offer from now on.
    pub(super) fn set_offer(&mut self, offer: Option<Offer>, now: Instant) {
        if let (Some(open), Some(offer)) = (&mut self.open, &offer) {
            open.advertiser.set_offer(offer.clone(), now);
        }
        self.offer = offer;
    }

    pub(super) fn offer(&self) -> Option<&Offer> {
        self.offer.as_ref()
    }

    /// When [`Interface::handle_timeout`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.advertiser.deadline().max(open.not_before))
    }

    /// Advertises, if it is time.
    pub(super) fn handle_timeout(&mut self, netlink: &mut Netlink, now: Instant) {
        let Some(open) = &mut self.open else { return };
        if now < open.advertiser.deadline() || now < open.not_before {
            return;
        }
        let Some(source) = link_local(netlink, open.index) else {
            open.not_before = now + AGAIN;
            return;
        };
        if let Some(content) = open.advertiser.poll(now, random() as u32) {
            open.send(source, &content);
            self.sent += 1;
        }
    }

    /// Whether the descriptor of this number is the interface's.
    pub(super) fn owns(&self, token: u64) -> bool {
        self.token == token
    }

    /// There is something to read. Whether [`Interface::problems`] are others now.
    pub(super) fn handle_readable(&mut self, now: Instant) -> bool {
        let Some(open) = &mut self.open else { return false };
        let mut changed = false;
        let mut buffer = [0; FRAME];
        for _ in 0..BATCH {
            let Ok(Some(length)) = open.listener.recv(&mut buffer) else { break };
            let frame = &buffer[..length];
            if is_solicitation(frame) {
                self.solicited += 1;
                open.advertiser.handle_solicitation(now, random() as u32);
            } else if let Some((source, content)) = advertisement(frame)
                && let Some(mac) = frame.get(6..12).and_then(|mac| mac.first_chunk())
            {
                changed |= self.rogues.handle_advertisement(source, MacAddress(*mac), &content, now);
            }
        }
        changed
    }

    /// What is not as it should be, in words that stay the same as long as that does.
    pub(super) fn problems(&self, now: Instant) -> impl Iterator<Item = String> {
        let name = &self.network.name;
        self.rogues.problems(now).into_iter().map(move |rogue| format!("network {name}: {rogue}"))
    }

    /// Prefixes that hosts may have from here, for the next run.
    pub(super) fn known_prefixes(&self) -> Vec<Ipv6Net> {
        self.open.as_ref().map_or_else(|| self.formerly.clone(), |open| open.advertiser.known_prefixes())
    }

    /// The interface ceases to advertise: hosts look for another router soon.
    pub(super) fn cease(&mut self, netlink: &mut Netlink, now: Instant) {
        if let Some(open) = &self.open
            && let Some(source) = link_local(netlink, open.index)
        {
            open.send(source, &open.advertiser.cease(now));
        }
    }

    pub(super) fn close(&mut self, poller: &Poller) {
        if let Some(open) = self.open.take() {
            self.formerly = open.advertiser.known_prefixes();
            let _ = poller.remove(&open.listener);
        }
    }
}

impl Open {
    fn send(&self, source: std::net::Ipv6Addr, content: &RouterAdvertisement) {
        let link = ethernet::Header {
            destination: ndp::multicast_mac(ALL_NODES),
            source: self.mac,
            ethertype: ethernet::ETHERTYPE_IPV6,
        };
        let frame = [&link.to_bytes()[..], &content.to_packet(source, ALL_NODES)].concat();
        if let Err(error) = self.listener.send(&frame) {
            warn!("an advertisement was not sent: {error}");
        }
    }
}

fn is_solicitation(frame: &[u8]) -> bool {
    let packet = frame.get(ethernet::HEADER_LEN..).and_then(|packet| wire::ipv6::Packet::parse(packet).ok());
    packet.is_some_and(|packet| matches!(ndp::parse(&packet), Ok(Message::RouterSolicitation { .. })))
}
