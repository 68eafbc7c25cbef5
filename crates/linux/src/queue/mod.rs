//! Packets of netfilter, given to this process and handed back with a verdict (NFQUEUE; nfnetlink_queue in the kernel).
//!
//! A [`Socket`] listens on queues; what is received from it goes into a [`Batch`], many packets for one system call, and
//! so do the verdicts. [`rule::send_to`] makes the rule that gives packets to queues. Nothing here allocates for a packet.
//!
//! GSO packets come whole where a queue takes them. Their transport checksum is partial then: the sum of
//! the pseudo-header. What is handed back changed goes on as a packet whose checksum nobody computes any more, so a
//! partial one must be completed first. The kernel cannot segment UDP GSO packets that were handed back so: let only
//! TCP come whole.

pub mod raw;
pub mod rule;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use wire::checksum::TransportChecksum;

use crate::error::{Error, Result};
use crate::nfnetlink::{HEADERS, Message, NETLINK_NETFILTER, NLMSG_ERROR, attributes};
use crate::sockopt;

const SUBSYSTEM: u16 = 3;
// linux/netfilter/nfnetlink_queue.h
const MSG_PACKET: u16 = SUBSYSTEM << 8;
const MSG_VERDICT: u16 = (SUBSYSTEM << 8) | 1;
const MSG_CONFIG: u16 = (SUBSYSTEM << 8) | 2;
const CFG_CMD: u16 = 1;
const CFG_PARAMS: u16 = 2;
const CFG_QUEUE_MAXLEN: u16 = 3;
const CFG_MASK: u16 = 4;
const CFG_FLAGS: u16 = 5;
const CFG_CMD_BIND: u8 = 1;
const COPY_PACKET: u8 = 2;
const FLAG_FAIL_OPEN: u32 = 1;
const FLAG_GSO: u32 = 4;
const ATTR_PACKET_HDR: u16 = 1;
const ATTR_VERDICT_HDR: u16 = 2;
const ATTR_IFINDEX_INDEV: u16 = 5;
const ATTR_IFINDEX_OUTDEV: u16 = 6;
const ATTR_HWADDR: u16 = 9;
const ATTR_PAYLOAD: u16 = 10;
const ATTR_CAP_LEN: u16 = 13;
const ATTR_SKB_INFO: u16 = 14;
const SKB_CSUM_NOT_READY: u32 = 1;

/// The longest packet that is given whole: an attribute has 65,535 octets with its header.
pub const MAX_PACKET: usize = 0xffff - 4;
/// A packet and what is told about it.
const SLOT: usize = 0x1_0000 + 1024;
/// Packets of one receive.
const BATCH: usize = 16;
/// Verdicts are sent when there are so many octets of them: not far from what a packet takes.
const SEND_AT: usize = 64 * 1024;
/// Room for what the kernel has queued. GSO packets of 64 KB fill 32 MB with 500.
const BUFFER: i32 = 32 << 20;

/// What may be said of a packet, with the kernel's values (linux/netfilter.h).
pub mod verdict {
    /// It is discarded.
    pub const DROP: u32 = 0;
    /// It goes on behind the rule's chain.
    pub const ACCEPT: u32 = 1;
    /// It goes to queue 0, and on if nobody listens there.
    pub const QUEUE: u32 = 3 | 0x8000;
    /// It goes through the rule's chain again.
    pub const REPEAT: u32 = 4;
}

/// A queue to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Its number.
    pub number: u16,
    /// Packets that may wait in it.
    pub length: u32,
    /// Packets go on when it is full; they are discarded otherwise.
    pub fail_open: bool,
    /// GSO packets come whole; otherwise the kernel segments them.
    pub segmented: bool,
}

/// Listens on queues, in the network namespace of the thread that opened it. When it is closed, what waits in them is
/// discarded.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Listens. `EBUSY`: somebody else does on one of them.
    pub fn open(queues: &[Queue]) -> Result<Self> {
        let what = "socket for nfnetlink (needs a kernel with CONFIG_NETFILTER_NETLINK_QUEUE)";
        let owned = sockopt::socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_NETFILTER, what)?;
        let fd = owned.as_fd();
        for (option, what) in [
            (libc::SO_RCVBUFFORCE, "setsockopt SO_RCVBUFFORCE (needs CAP_NET_ADMIN)"),
            (libc::SO_SNDBUFFORCE, "setsockopt SO_SNDBUFFORCE (needs CAP_NET_ADMIN)"),
        ] {
            sockopt::set(fd, libc::SOL_SOCKET, option, &BUFFER, what)?;
        }
        // What does not fit is discarded or goes on, as the queue has it: nothing that we could do about.
        sockopt::enable(fd, libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, "setsockopt NETLINK_NO_ENOBUFS")?;
        let socket = Self { fd: owned };
        for queue in queues {
            socket.configure(queue, |message| message.attribute(CFG_CMD, &[CFG_CMD_BIND, 0, 0, 0]))?;
            socket.configure(queue, |message| {
                let [a, b, c, d] = (MAX_PACKET as u32).to_be_bytes();
                message.attribute(CFG_PARAMS, &[a, b, c, d, COPY_PACKET]);
                message.attribute(CFG_QUEUE_MAXLEN, &queue.length.to_be_bytes());
                let flag = |on: bool, flag: u32| if on { flag } else { 0 };
                let flags = flag(queue.fail_open, FLAG_FAIL_OPEN) | flag(queue.segmented, FLAG_GSO);
                message.attribute(CFG_FLAGS, &flags.to_be_bytes());
                message.attribute(CFG_MASK, &(FLAG_FAIL_OPEN | FLAG_GSO).to_be_bytes());
            })?;
        }
        Ok(socket)
    }

    /// Sends a configuration and waits for its acknowledgement. No packets come yet: no rule knows of the queue.
    fn configure(&self, queue: &Queue, fill: impl FnOnce(&mut Message<'_>)) -> Result<()> {
        let what =
            || format!("bind to netfilter queue {} (is another program listening there?)", queue.number);
        let mut bytes = Vec::new();
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut message =
            Message::begin(&mut bytes, MSG_CONFIG, flags, 0, libc::AF_UNSPEC as u8, queue.number);
        fill(&mut message);
        message.end();
        self.send(&bytes).map_err(|error| Error::new(what(), error.source))?;
        let mut answer = [0; 4096];
        loop {
            let mut ready = [nix::poll::PollFd::new(self.fd.as_fd(), nix::poll::PollFlags::POLLIN)];
            nix::poll::poll(&mut ready, 1000u16).map_err(|error| Error::new(what(), error))?;
            let flags = nix::sys::socket::MsgFlags::empty();
            let length = nix::sys::socket::recv(self.fd.as_raw_fd(), &mut answer, flags)
                .map_err(|error| Error::new(what(), error))?;
            match acknowledgement(&answer[..length]) {
                Some(0) => return Ok(()),
                Some(code) => return Err(Error::new(what(), std::io::Error::from_raw_os_error(-code))),
                None => {}
            }
        }
    }

    /// Receives what is there, up to a batch; how many packets that is.
    pub fn recv(&self, batch: &mut Batch) -> Result<usize> {
        let mut parts: [libc::iovec; BATCH] = std::array::from_fn(|slot| libc::iovec {
            iov_base: batch.slots[slot * SLOT..].as_mut_ptr().cast(),
            iov_len: SLOT,
        });
        // SAFETY: all zeros is a valid mmsghdr: no address, no parts, no control data.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (header, part) in headers.iter_mut().zip(&mut parts) {
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each header names one part, which names a slot of its own; all of them live across the call.
        let count = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        batch.count = 0;
        if count < 0 {
            let error = std::io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => Ok(0),
                _ => Err(Error::new("recvmmsg of netfilter queues", error)),
            };
        }
        batch.count = count as usize;
        for (length, header) in batch.lengths.iter_mut().zip(&headers) {
            *length = header.msg_len as usize;
        }
        Ok(batch.count)
    }

    /// Sends the verdicts that wait in the batch.
    pub fn flush(&self, batch: &mut Batch) -> Result<()> {
        if batch.verdicts.is_empty() {
            return Ok(());
        }
        let result = self.send(&batch.verdicts);
        batch.verdicts.clear();
        result
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        nix::sys::socket::send(self.fd.as_raw_fd(), bytes, nix::sys::socket::MsgFlags::empty())
            .map(drop)
            .map_err(|error| Error::new("send to nfnetlink_queue", error))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The numbers of the packets that came last into the queues of this thread's network namespace, by queue.
pub fn last_ids() -> Result<BTreeMap<u16, u32>> {
    let path = "/proc/thread-self/net/netfilter/nfnetlink_queue";
    let text = std::fs::read_to_string(path).map_err(|error| Error::new(format!("read {path}"), error))?;
    Ok(parse_last_ids(&text))
}

/// The queue is the first field of a line, its packet's number the eighth.
fn parse_last_ids(text: &str) -> BTreeMap<u16, u32> {
    let of_queue = |line: &str| {
        let mut fields = line.split_whitespace();
        Some((fields.next()?.parse().ok()?, fields.nth(6)?.parse().ok()?))
    };
    text.lines().filter_map(of_queue).collect()
}

/// Room for packets and verdicts, for any sockets of one thread.
#[derive(Debug)]
pub struct Batch {
    slots: Vec<u8>,
    lengths: [usize; BATCH],
    count: usize,
    verdicts: Vec<u8>,
}

impl Default for Batch {
    fn default() -> Self {
        let verdicts = Vec::with_capacity(SEND_AT + SLOT);
        Self { slots: vec![0; BATCH * SLOT], lengths: [0; BATCH], count: 0, verdicts }
    }
}

/// A packet that waits for its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued<'a> {
    /// The queue that it came from.
    pub queue: u16,
    /// Its number in the queue, as the kernel wrote it.
    pub id: [u8; 4],
    /// From the IP header on.
    pub packet: &'a [u8],
    /// Octets that it really has, where they are more than could be given.
    pub whole_length: usize,
    /// Whether its transport checksum is still to be completed.
    pub checksum: TransportChecksum,
    /// The source address of the Ethernet frame that it came in; before it leaves, that is no longer its own.
    pub source: Option<[u8; 6]>,
    /// Index of the interface that it came from, 0 if from none.
    pub from: u32,
    /// Index of the interface that it goes to, 0 if that is not known.
    pub to: u32,
}

impl Batch {
    /// What was received at this place of the last batch; none where it is no packet.
    pub fn packet(&self, place: usize) -> Option<Queued<'_>> {
        let slot = self.slots.get(place * SLOT..(place + 1) * SLOT)?;
        parse(slot.get(..*self.lengths.get(place)?)?)
    }

    /// Puts down what becomes of a packet, and its octets if they were changed. Whether it is time to
    /// [flush](Socket::flush).
    pub fn put_verdict(&mut self, queue: u16, id: [u8; 4], verdict: u32, changed: Option<&[u8]>) -> bool {
        let flags = libc::NLM_F_REQUEST as u16;
        let family = libc::AF_UNSPEC as u8;
        let mut message = Message::begin(&mut self.verdicts, MSG_VERDICT, flags, 0, family, queue);
        let [a, b, c, d] = verdict.to_be_bytes();
        let [e, f, g, h] = id;
        message.attribute(ATTR_VERDICT_HDR, &[a, b, c, d, e, f, g, h]);
        if let Some(octets) = changed {
            message.attribute(ATTR_PAYLOAD, octets);
        }
        message.end();
        self.verdicts.len() >= SEND_AT
    }
}

fn parse(message: &[u8]) -> Option<Queued<'_>> {
    let length = u32::from_ne_bytes(*message.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes([*message.get(4)?, *message.get(5)?]);
    if kind != MSG_PACKET {
        return None;
    }
    let message = message.get(..length)?;
    let queue = u16::from_be_bytes([*message.get(18)?, *message.get(19)?]);
    let (mut id, mut source) = (None, None);
    let (mut packet, mut whole_length, mut from, mut to) = (&[][..], 0, 0, 0);
    let mut checksum = TransportChecksum::Complete;
    for (kind, value) in attributes(message.get(HEADERS..)?) {
        let number = || value.first_chunk().copied().map_or(0, u32::from_be_bytes);
        match kind {
            ATTR_PACKET_HDR => id = value.first_chunk().copied(),
            ATTR_IFINDEX_INDEV => from = number(),
            ATTR_IFINDEX_OUTDEV => to = number(),
            // Its length, two octets of nothing, and room for eight.
            ATTR_HWADDR => {
                source = value.strip_prefix(&[0, 6]).and_then(|rest| rest.get(2..)?.first_chunk().copied());
            }
            ATTR_PAYLOAD => packet = value,
            ATTR_CAP_LEN => whole_length = number() as usize,
            ATTR_SKB_INFO if number() & SKB_CSUM_NOT_READY != 0 => checksum = TransportChecksum::Partial,
            _ => {}
        }
    }
    let whole_length = whole_length.max(packet.len());
    Some(Queued { queue, id: id?, packet, whole_length, checksum, source, from, to })
}

/// The code of an acknowledgement, 0 if all was well; none if the message is something else.
fn acknowledgement(message: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes([*message.get(4)?, *message.get(5)?]);
    (kind == NLMSG_ERROR).then(|| message.get(16..20)?.first_chunk().copied().map(i32::from_ne_bytes))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut message = Message::begin(&mut bytes, MSG_PACKET, 0, 0, libc::AF_INET6 as u8, 7);
        for (kind, value) in attributes {
            message.attribute(*kind, value);
        }
        message.end();
        bytes
    }

    #[test]
    fn the_last_numbers_are_read_by_queue() {
        let text = "    0  12345     3 2 65531     1     0        7  1\n 9001  12345     0 2 65531     0     0 4294967295  1\n";
        assert_eq!(parse_last_ids(text), BTreeMap::from([(0, 7), (9001, u32::MAX)]));
        assert_eq!(parse_last_ids("\nx 1 2 3 4 5 6 7\n1 2 3\n"), BTreeMap::new());
    }

    #[test]
    fn a_packet_is_read_with_what_is_told_about_it() {
        let bytes = message(&[
            (ATTR_PACKET_HDR, &[0, 0, 0, 9, 0x86, 0xdd, 0]),
            (ATTR_IFINDEX_INDEV, &[0, 0, 0, 3]),
            (ATTR_SKB_INFO, &[0, 0, 0, 3]),
            (ATTR_HWADDR, &[0, 6, 0, 0, 2, 0, 0, 0, 0, 7, 0, 0]),
            (ATTR_PAYLOAD, b"packet"),
        ]);
        let queued = parse(&bytes).expect("a packet");
        assert_eq!((queued.queue, queued.id, queued.packet), (7, [0, 0, 0, 9], &b"packet"[..]));
        assert_eq!((queued.from, queued.to, queued.whole_length), (3, 0, 6));
        assert_eq!((queued.checksum, queued.source), (TransportChecksum::Partial, Some([2, 0, 0, 0, 0, 7])));
        assert_eq!(parse(&message(&[(ATTR_PAYLOAD, b"without a number")])), None);
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(bytes: Vec<u8>, mut like in Just(message(&[(ATTR_PACKET_HDR, &[0; 7])])), at: usize, value: u8) {
            let _ = parse(&bytes);
            acknowledgement(&bytes);
            let at = at % like.len();
            like[at] = value;
            let _ = parse(&like);
        }
    }
}
