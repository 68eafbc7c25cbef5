//! ICMP messages as they come in by an interface, before any firewall, and without a socket that is asked about every
//! packet that a router forwards.
//!
//! A program at tcx ingress copies them, whole, to a ring. Where the kernel has no tcx (before Linux 6.6), or takes no
//! programs, a packet socket with a filter receives them.

use std::os::fd::{AsFd, BorrowedFd};

use programs::icmp_tap::{self, FRAME};

use crate::bpf::attach::{Attachment, Direction};
use crate::bpf::{Program, ProgramKind, Ring};
use crate::error::Result;
use crate::packet::{self, Filter, PacketOptions, PacketSocket};

pub use programs::icmp_tap::Messages;

/// Bytes of the ring.
const RING: u32 = 1 << 16;

fn filter(messages: Messages) -> &'static Filter {
    match messages {
        Messages::RouterAdvertisements => packet::ROUTER_ADVERTISEMENTS,
        Messages::RouterDiscovery => packet::ROUTER_DISCOVERY,
        Messages::Icmpv4Errors => packet::ICMPV4_ERRORS,
        Messages::Icmpv6Errors => packet::ICMPV6_ERRORS,
    }
}

/// Hears messages that come in by one interface, and sends frames out by it. Non-blocking.
#[derive(Debug)]
pub struct IcmpTap {
    socket: PacketSocket,
    heard: Option<(Ring, Attachment)>,
}

impl IcmpTap {
    /// Listens at the interface of that index, whose link header has so many bytes. Add it to a
    /// [`crate::event::Poller`] as readable.
    pub fn open(index: u32, link_header: u8, messages: Messages) -> Result<Self> {
        match Self::with_program(index, link_header, messages) {
            Ok(tap) => Ok(tap),
            Err(_) => Self::with_socket(index, messages),
        }
    }

    /// The same, as kernels do it that have tcx.
    pub fn with_program(index: u32, link_header: u8, messages: Messages) -> Result<Self> {
        let ring = Ring::create(RING)?;
        let program = Program::load(ProgramKind::SchedCls, &icmp_tap::program(link_header, messages, &ring))?;
        let attachment = Attachment::tcx_before(&program, index, Direction::Ingress)?;
        let socket =
            PacketSocket::open(index, &PacketOptions { only_sends: true, ..PacketOptions::default() })?;
        Ok(Self { socket, heard: Some((ring, attachment)) })
    }

    /// The same, as older kernels do it.
    pub fn with_socket(index: u32, messages: Messages) -> Result<Self> {
        let options = PacketOptions { filter: Some(filter(messages)), ..PacketOptions::default() };
        Ok(Self { socket: PacketSocket::open(index, &options)?, heard: None })
    }

    /// The next message, from its link header on, and its length. `None` when there is none now.
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let Some((ring, _)) = &mut self.heard else { return self.socket.recv(buffer) };
        let mut received = None;
        ring.read(1, |record| {
            let Some((length, frame)) = record.split_first_chunk::<FRAME>() else { return };
            let length = u32::from_ne_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let length = length.min(frame.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&frame[..length]);
            received = Some(length);
        });
        Ok(received)
    }

    /// Sends a frame. `false` when the interface's queue is full, and the frame was not sent.
    pub fn send(&self, frame: &[u8]) -> Result<bool> {
        self.socket.send(frame)
    }
}

impl AsFd for IcmpTap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.heard {
            Some((ring, _)) => ring.as_fd(),
            None => self.socket.as_fd(),
        }
    }
}
