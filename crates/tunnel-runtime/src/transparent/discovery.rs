//! Neighbor and router discovery of a transparent gateway (RFC 4861, RFC 4862): what it says in the place of others.
//!
//! | comes from | what | becomes of it |
//! |---|---|---|
//! | inside | router solicitation | another goes out: from no address, from a random hardware address, without options |
//! | inside | solicitation of a protected host for the router | answered as the router would |
//! | inside | for a remote host of the same link | answered with this gateway's address, to protected hosts |
//! | inside | duplicate address detection for a hopping or remote address | answered: it is in use |
//! | inside | any other of a protected host, its duplicate address detection too | kept inside |
//! | outside | router advertisement | goes in, with a lower MTU |
//! | outside | solicitation for a protected host, duplicate address detection too | answered with this gateway's address |
//! | outside | for a hopping address of the classic profile | answered so, too; of the moving-target profile: by its responder |
//!
//! Everything else crosses over in the kernel.

use std::net::Ipv6Addr;

use linux::netlink::Netlink;
use linux::transparent::HoppingEndpoint;
use linux::undo::Journal;
use tracing::{debug, info};
use wire::ethernet::{self, Frame, MacAddress};
use wire::ipv6;
use wire::ndp::{self, Message, NeighborAdvertisement, RouterSolicitation};

use super::{Router, Transparent, TransparentGateway};

/// Longer than any such message that is not split.
const FRAME: usize = 9_216;
/// Frames of one turn.
const BATCH: usize = 64;

/// Who asks for whom.
#[derive(Clone, Copy)]
struct Question {
    /// Unspecified where it is duplicate address detection.
    source: Ipv6Addr,
    from: MacAddress,
    target: Ipv6Addr,
}

impl Question {
    fn detects_duplicates(&self) -> bool {
        self.source.is_unspecified()
    }

    /// The answer that `target` has this hardware address.
    fn answer(&self, mac: MacAddress, router: bool) -> [u8; ndp::NEIGHBOR_FRAME_LEN] {
        NeighborAdvertisement::answer(self.source, self.target, mac, router).to_frame(self.from)
    }
}

impl Transparent {
    /// Deals with what has come from the hosts.
    pub(in super::super) fn read_inside(&mut self) {
        let gateway = std::sync::Arc::clone(&self.gateway);
        for_each_frame(&gateway.inside, |frame, message, source| match message {
            Message::RouterSolicitation { .. } => {
                self.solicit_router();
                Ok(())
            }
            Message::NeighborSolicitation { target, .. } => {
                let question = Question { source, from: frame.source(), target };
                self.learn_host(&question)?;
                gateway.asked_inside(&question)
            }
            _ => Ok(()),
        });
    }

    /// Deals with what has come from the network.
    pub(in super::super) fn read_outside(&mut self, netlink: &mut Netlink, journal: &mut Journal) {
        let gateway = std::sync::Arc::clone(&self.gateway);
        for_each_frame(&gateway.outside, |frame, message, source| match message {
            Message::RouterAdvertisement(advertisement) => {
                if advertisement.router_lifetime() > 0 {
                    let mac = advertisement.source_link_layer().unwrap_or(frame.source());
                    self.learn_router(Router { address: source, mac }, netlink, journal);
                }
                self.advertise(&frame)
            }
            Message::NeighborSolicitation { target, .. } => {
                gateway.asked_outside(&Question { source, from: frame.source(), target })
            }
            _ => Ok(()),
        });
    }

    /// Asks the router to advertise itself, as any host might.
    pub(in super::super) fn solicit_router(&self) {
        let mut mac = [0; 6];
        if getrandom::fill(&mut mac).is_err() {
            return;
        }
        // Locally administered, and nobody's group.
        mac[0] = mac[0] & 0xfc | 0x02;
        let frame = RouterSolicitation.to_frame(MacAddress(mac));
        if let Err(error) = self.gateway.outside.send(&frame) {
            debug!("{error}");
        }
    }

    /// A router advertisement goes in, with an MTU that leaves room for the tunnel.
    fn advertise(&self, frame: &Frame<'_>) -> linux::Result<()> {
        let Ok(packet) = ipv6::Packet::parse(frame.payload()) else { return Ok(()) };
        let packet = ndp::with_mtu(&packet, |mtu| {
            let outer = mtu.unwrap_or(self.link_mtu).min(self.link_mtu);
            self.config.inner_mtu(u16::try_from(outer).unwrap_or(u16::MAX)).into()
        });
        let header = ethernet::Header {
            destination: frame.destination(),
            source: frame.source(),
            ethertype: ethernet::ETHERTYPE_IPV6,
        };
        self.gateway.inside.send(&[&header.to_bytes()[..], &packet].concat()).map(drop)
    }

    /// A protected host says what its hardware address is: by a solicitation from its address, or by detecting its
    /// duplicates. One that the configuration has stays.
    fn learn_host(&mut self, question: &Question) -> linux::Result<()> {
        let host = if question.detects_duplicates() { question.target } else { question.source };
        let tables = &self.gateway.tables;
        let Some(known) = tables.protected(host)? else { return Ok(()) };
        if known == Some(question.from) || self.configured.contains(&host) {
            return Ok(());
        }
        tables.protect(host, Some(question.from))?;
        info!("protected host {host} is at {}", question.from);
        self.link_file.remember_host(host, question.from);
        Ok(())
    }
}

impl TransparentGateway {
    fn asked_inside(&self, question: &Question) -> linux::Result<()> {
        let target = question.target;
        let protected = self.tables.is_protected(question.from)?;
        let same_link = self.tables.remote(target)?.is_some_and(|remote| remote.same_link);
        let answer = if question.detects_duplicates() {
            let taken = same_link || self.tables.hopping(target)?.is_some();
            taken.then(|| question.answer(self.settings.inside.1, false))
        } else if same_link && protected {
            Some(question.answer(self.settings.inside.1, false))
        } else {
            let router = self.router().filter(|router| router.address == target);
            // Where others pass, the router itself is asked.
            let router = router.filter(|_| protected && !self.settings.pass_others);
            router.map(|router| question.answer(router.mac, true))
        };
        match answer {
            Some(frame) => self.inside.send(&frame).map(drop),
            None => Ok(()),
        }
    }

    fn asked_outside(&self, question: &Question) -> linux::Result<()> {
        let hashed = matches!(self.tables.hopping(question.target)?, Some(HoppingEndpoint::Device(_)));
        // Where others pass, the host is asked itself.
        let protected = !self.settings.pass_others && self.tables.protected(question.target)?.is_some();
        if hashed || protected {
            self.outside.send(&question.answer(self.settings.outside.1, false))?;
        }
        Ok(())
    }
}

/// Hands on what has come, up to a batch, that is a valid message; what fails there is told.
fn for_each_frame(
    socket: &linux::packet::PacketSocket,
    mut each: impl FnMut(Frame<'_>, Message<'_>, Ipv6Addr) -> linux::Result<()>,
) {
    let mut buffer = [0; FRAME];
    for _ in 0..BATCH {
        let Ok(Some(length)) = socket.recv(&mut buffer) else { return };
        let Ok(frame) = Frame::parse(&buffer[..length]) else { continue };
        let Ok(packet) = ipv6::Packet::parse(frame.payload()) else { continue };
        let Ok(message) = ndp::parse(&packet) else { continue };
        if let Err(error) = each(frame, message, packet.source()) {
            debug!("{error}");
        }
    }
}
