//! Copies of packets that scripts of a thread send out through other interfaces: `nf.mirror` in Lua.

use linux::packet::{PacketOptions, PacketSocket};
use wire::segment::Segmenter;
use wire::{ethernet, virtio_net};

use crate::attach_point::MARK;
use crate::links::Links;

/// Interfaces that one thread copies packets to, by their names.
const MOST: usize = 64;
/// Where an Ethernet header has its addresses: the source, and the end of both.
const SOURCE: usize = 6;
const ADDRESSES: usize = 12;
/// The address that copies are for: Lua does not know that of the frame, and this is nobody's.
const NOBODY: [u8; SOURCE] = [2, 0, 0, 0, 0, 0];

/// Why there was no copy; each is told once, until one is sent again.
#[derive(Debug, thiserror::Error)]
pub(super) enum MirrorError {
    /// No interface has the name.
    #[error("there is no interface {0}: copies go nowhere until there is one")]
    Missing(String),
    /// A script that takes names from packets.
    #[error("copies go to {MOST} interfaces at most, and not to {0}, too")]
    TooMany(String),
    /// What the kernel says: it is down, for example.
    #[error("copies do not get out through {interface}: {source}")]
    Kernel {
        /// The interface.
        interface: String,
        /// Why.
        source: linux::Error,
    },
}

/// Sockets for each interface that packets are copied to.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    generation: u64,
    targets: Vec<Target>,
    has_too_many: bool,
}

#[derive(Debug)]
struct Target {
    name: String,
    /// None: not looked for yet, or not there.
    out: Option<Out>,
    failed: bool,
}

#[derive(Debug)]
struct Out {
    socket: PacketSocket,
    mac: Option<[u8; SOURCE]>,
    mtu: usize,
}

impl Mirrors {
    /// Sends a frame, whose link header may be made up, out through an interface.
    ///
    /// # Errors
    /// Why not, if that is news.
    pub(super) fn send(&mut self, links: &Links, name: &str, frame: &mut [u8]) -> Result<(), MirrorError> {
        let generation = links.generation();
        if self.generation != generation {
            self.generation = generation;
            self.targets.iter_mut().for_each(|target| target.out = None);
        }
        let known = self.targets.iter().position(|target| target.name == name);
        let at = match known {
            Some(at) => at,
            None if self.targets.len() == MOST => {
                let first = !std::mem::replace(&mut self.has_too_many, true);
                return if first { Err(MirrorError::TooMany(name.to_owned())) } else { Ok(()) };
            }
            None => {
                self.targets.push(Target { name: name.to_owned(), out: None, failed: false });
                self.targets.len() - 1
            }
        };
        let target = &mut self.targets[at];
        let sent = target.send(links, frame);
        let had_failed = std::mem::replace(&mut target.failed, sent.is_err());
        sent.or_else(|error| if had_failed { Ok(()) } else { Err(error) })
    }
}

impl Target {
    fn send(&mut self, links: &Links, frame: &mut [u8]) -> Result<(), MirrorError> {
        let failed = |source| MirrorError::Kernel { interface: self.name.clone(), source };
        let out = match &mut self.out {
            Some(out) => out,
            none => {
                let link = links.find(&self.name).map_err(failed)?;
                let link = link.ok_or_else(|| MirrorError::Missing(self.name.clone()))?;
                let options = PacketOptions { only_sends: true, mark: MARK, ..PacketOptions::default() };
                let socket = PacketSocket::open(link.index, &options).map_err(failed)?;
                none.insert(Out { socket, mac: link.mac.map(|mac| mac.0), mtu: link.mtu as usize })
            }
        };
        out.send(frame).map_err(failed)
    }
}

impl Out {
    fn send(&self, frame: &mut [u8]) -> linux::Result<()> {
        let Some((link, packet)) = frame.split_at_mut_checked(ethernet::HEADER_LEN) else { return Ok(()) };
        if let Some(mac) = self.mac {
            if link[..SOURCE] == [0; SOURCE] {
                link[..SOURCE].copy_from_slice(&NOBODY);
            }
            if link[SOURCE..ADDRESSES] == [0; SOURCE] {
                link[SOURCE..ADDRESSES].copy_from_slice(&mac);
            }
        }
        if packet.len() > self.mtu
            && let Some(segments) = self.segments(link, packet)
        {
            return segments.iter().try_for_each(|segment| self.socket.send(segment).map(drop));
        }
        // Full queues lose packets, as they would on the way.
        self.socket.send(if self.mac.is_some() { frame } else { &frame[ethernet::HEADER_LEN..] }).map(drop)
    }

    /// Those of a GSO packet of TCP, so that they fit.
    fn segments(&self, link: &[u8], packet: &mut [u8]) -> Option<Vec<Vec<u8>>> {
        let gso_type = if packet.first()? >> 4 == 4 { virtio_net::GSO_TCPV4 } else { virtio_net::GSO_TCPV6 };
        let header = |gso_size| virtio_net::Header { gso_type, gso_size, ..virtio_net::Header::NONE };
        let headers = Segmenter::new(&header(1), packet).ok()?.head_len();
        let size = u16::try_from(self.mtu.checked_sub(headers).filter(|size| *size > 0)?).ok()?;
        let mut segments = Segmenter::new(&header(size), packet).ok()?;
        let mut all = Vec::new();
        let link = if self.mac.is_some() { link } else { &[] };
        while let Some(segment) = segments.next() {
            all.push([link, segment.head, segment.payload].concat());
        }
        Some(all)
    }
}
