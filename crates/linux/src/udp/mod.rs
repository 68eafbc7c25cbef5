//! Endpoint sockets: UDP over IPv6, bound to an address that need not be on any interface.
//!
//! One call sends up to 64 datagrams of one size (UDP_SEGMENT), one call receives as many (UDP_GRO). Where a device
//! on the way out refuses segmentation, the datagrams go one by one, and the attempt is made again after a while.
//!
//! Nothing that an ICMPv6 message says is fatal here: the kernel reports such messages on whatever call comes next,
//! which is tried again, and keeps the message itself for [`EndpointSocket::recv_error`].

mod error_queue;
mod host;
pub(crate) mod message;
mod outcome;
mod shared;

use std::net::SocketAddrV6;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wire::ecn::Ecn;

use crate::clock;
use crate::error::{Error, Result};
use crate::sockopt::{self, sockaddr_in6};

pub use error_queue::{ErrorOrigin, QueuedError};
pub use host::{HostReceived, HostSocket, TooBig};
pub(crate) use host::{QUOTED, too_big};
pub use outcome::SendOutcome;
pub use shared::{SharedSocket, SkLookupTable};

use message::{Message, leading_int, parse_extended_error, send_message};
use outcome::from_the_network;

/// The most bytes that one segmented send may hold: what fits an IPv6 packet, less its header and UDP's.
pub const MAX_SEGMENTED_BYTES: usize = 65_487;

/// The most datagrams that one segmented send may hold. Newer kernels take 128.
pub const MAX_SEGMENTS: usize = 64;

/// The longest receive with offload: a buffer of this size never cuts anything off.
pub const MAX_RECEIVE: usize = 65_535;

// Not in libc for this target.
const IPV6_FREEBIND: i32 = 78;
const IPV6_AUTOFLOWLABEL: i32 = 70;
const IPV6_PMTUDISC_PROBE: i32 = 3;

/// Whether segmented sends are worth trying; shared by all sockets that leave through the same interface.
#[derive(Debug)]
pub struct Segmentation {
    /// Boot time in milliseconds before which no attempt is made; `u64::MAX` for never.
    pause_until: AtomicU64,
}

impl Segmentation {
    /// How long a refusal is remembered: offloads of a device can be switched on while we run.
    const PAUSE_MS: u64 = 60_000;

    /// Segmentation is tried, and given up for a minute whenever it is refused.
    #[must_use]
    pub fn new() -> Self {
        Self { pause_until: AtomicU64::new(0) }
    }

    /// Segmentation is never tried.
    #[must_use]
    pub fn off() -> Self {
        Self { pause_until: AtomicU64::new(u64::MAX) }
    }

    /// Whether the next send will try.
    #[must_use]
    pub fn is_on(&self) -> bool {
        match self.pause_until.load(Relaxed) {
            0 => true,
            u64::MAX => false,
            until => clock::boottime_ms() >= until,
        }
    }

    fn refused(&self) {
        self.pause_until.store(clock::boottime_ms() + Self::PAUSE_MS, Relaxed);
    }
}

impl Default for Segmentation {
    fn default() -> Self {
        Self::new()
    }
}

/// How an endpoint socket is set up.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// Bytes of the receive and of the send buffer. The kernel doubles it, and caps it without CAP_NET_ADMIN.
    pub buffer: usize,
    /// Ask for UDP_GRO.
    pub receive_offload: bool,
    /// Datagrams have a flow label (RFC 6437), as the kernel gives them to all flows; zero otherwise.
    pub flow_label: bool,
    /// The interface that datagrams leave by, whatever routes lead elsewhere, and come in by.
    pub interface: Option<u32>,
    /// Shared state of segmentation offload.
    pub segmentation: Arc<Segmentation>,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            buffer: 4 << 20,
            receive_offload: true,
            flow_label: true,
            interface: None,
            segmentation: Arc::default(),
        }
    }
}

/// What one receive brought: one datagram, or several of one sender and one size, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer.
    pub len: usize,
    /// Bytes of each datagram; the last one may be shorter. At least 1.
    pub segment_size: usize,
    /// Who sent it.
    pub source: SocketAddrV6,
    /// The ECN codepoint (RFC 3168), the same for all datagrams of the batch.
    pub ecn: Ecn,
}

/// A UDP socket on one address and port. Non-blocking; add it to a [`crate::event::Poller`].
#[derive(Debug)]
pub struct EndpointSocket {
    fd: OwnedFd,
    local: SocketAddrV6,
    remote: Option<SocketAddrV6>,
    receive_offload: bool,
    segmentation: Arc<Segmentation>,
}

impl EndpointSocket {
    /// Opens a socket on `local`, which need not be the address of any interface. With `remote` it is connected:
    /// it receives from there only.
    ///
    /// `EADDRINUSE` means that another program holds the port.
    pub fn open(
        local: SocketAddrV6,
        remote: Option<SocketAddrV6>,
        options: &EndpointOptions,
    ) -> Result<Self> {
        let owned = sockopt::socket(libc::AF_INET6, libc::SOCK_DGRAM, 0, "socket for IPv6 UDP")?;
        let fd = owned.as_fd();
        let ipv6 = libc::IPPROTO_IPV6;
        sockopt::enable(fd, ipv6, libc::IPV6_V6ONLY, "setsockopt IPV6_V6ONLY")?;
        sockopt::enable(fd, ipv6, IPV6_FREEBIND, "setsockopt IPV6_FREEBIND (needs Linux 4.15)")?;
        sockopt::enable(fd, ipv6, libc::IPV6_DONTFRAG, "setsockopt IPV6_DONTFRAG")?;
        sockopt::set(
            fd,
            ipv6,
            libc::IPV6_MTU_DISCOVER,
            &IPV6_PMTUDISC_PROBE,
            "setsockopt IPV6_MTU_DISCOVER",
        )?;
        sockopt::set(fd, ipv6, libc::IPV6_UNICAST_HOPS, &64i32, "setsockopt IPV6_UNICAST_HOPS")?;
        sockopt::enable(fd, ipv6, libc::IPV6_RECVTCLASS, "setsockopt IPV6_RECVTCLASS")?;
        sockopt::enable(fd, ipv6, libc::IPV6_RECVERR, "setsockopt IPV6_RECVERR")?;
        if !options.flow_label {
            sockopt::set(fd, ipv6, IPV6_AUTOFLOWLABEL, &0i32, "setsockopt IPV6_AUTOFLOWLABEL")?;
        }
        set_buffers(fd, options.buffer)?;
        keep_to(fd, options.interface)?;
        sockopt::bind(fd, &sockaddr_in6(local), || format!("bind UDP {local}"))?;
        if let Some(remote) = remote {
            sockopt::connect(fd, &sockaddr_in6(remote), || format!("connect UDP {local} to {remote}"))?;
        }
        // Linux 5.0; without it every datagram comes by itself.
        let receive_offload =
            options.receive_offload && sockopt::enable(fd, libc::SOL_UDP, libc::UDP_GRO, "UDP_GRO").is_ok();
        let segmentation = Arc::clone(&options.segmentation);
        Ok(Self { fd: owned, local, remote, receive_offload, segmentation })
    }

    /// The address and port it is bound to.
    #[must_use]
    pub fn local(&self) -> SocketAddrV6 {
        self.local
    }

    /// The address and port it is connected to.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddrV6> {
        self.remote
    }

    /// Keeps it to another interface than the one that it was opened for. Needs CAP_NET_RAW.
    pub fn keep_to(&self, interface: u32) -> Result<()> {
        keep_to(self.fd.as_fd(), Some(interface))
    }

    /// Whether the kernel may hand over several datagrams at once.
    #[must_use]
    pub fn receives_batches(&self) -> bool {
        self.receive_offload
    }

    /// Sends `data`: one datagram, or with a `segment_size` as many as it takes, all of that size but the last.
    ///
    /// `to` is for a socket that is not connected. `traffic_class` is the whole field: ECN in its two low bits.
    /// A batch beyond [`MAX_SEGMENTED_BYTES`] or [`MAX_SEGMENTS`] goes out in single datagrams.
    pub fn send(
        &self,
        data: &[u8],
        segment_size: Option<u16>,
        to: Option<SocketAddrV6>,
        traffic_class: u8,
    ) -> Result<SendOutcome> {
        let to = to.map(sockaddr_in6);
        let Some(size) = segment_size.filter(|&size| size > 0 && data.len() > usize::from(size)) else {
            return self.send_outcome(data, None, to.as_ref(), traffic_class);
        };
        let whole = data.len() <= MAX_SEGMENTED_BYTES && data.len() <= MAX_SEGMENTS * usize::from(size);
        if !whole || !self.segmentation.is_on() {
            return self.send_singly(data, size, to.as_ref(), traffic_class);
        }
        match self.send_outcome(data, Some(size), to.as_ref(), traffic_class) {
            // EIO: the device computes no checksums. EINVAL: as that, or the segment is longer than the MTU.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                let outcome = self.send_singly(data, size, to.as_ref(), traffic_class)?;
                if outcome != SendOutcome::TooLong {
                    self.segmentation.refused();
                }
                Ok(outcome)
            }
            result => result,
        }
    }

    /// Receives one datagram, or several of one sender with offload. `None` when there is nothing now.
    ///
    /// What does not fit the buffer is cut off: see [`MAX_RECEIVE`].
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Option<Received>> {
        // An ICMPv6 error is reported once, and in place of a datagram that may well be there.
        for _ in 0..4 {
            let mut message = Message::new(buffer);
            match message.receive(self.fd.as_fd(), 0) {
                Ok(len) => {
                    let mut segment_size = len;
                    let mut ecn = Ecn::NotEct;
                    message.for_each_control(|level, kind, data| match (level, kind) {
                        (libc::SOL_UDP, libc::UDP_GRO) => segment_size = leading_int(data) as usize,
                        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                            ecn = Ecn::from_bits(leading_int(data) as u8);
                        }
                        _ => {}
                    });
                    let Some(source) = message.name else { return Ok(None) };
                    return Ok(Some(Received {
                        len,
                        segment_size: segment_size.clamp(1, len.max(1)),
                        source,
                        ecn,
                    }));
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    Some(libc::EINTR) => {}
                    Some(number) if from_the_network(number) => {}
                    _ => return Err(Error::new(format!("recvmsg on {}", self.local), error)),
                },
            }
        }
        Ok(None)
    }

    /// The next error of the error queue; the beginning of the datagram that it is about is put in `buffer`.
    ///
    /// Read it whenever an event says `error`: until the queue is empty, every wait returns at once.
    pub fn recv_error(&self, buffer: &mut [u8]) -> Result<Option<QueuedError>> {
        let mut message = Message::new(buffer);
        let len = match message.receive(self.fd.as_fd(), libc::MSG_ERRQUEUE) {
            Ok(len) => len,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                // An error without a message may be pending too; fetching it makes the socket quiet.
                let _ = sockopt::get_int(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, "SO_ERROR");
                return Ok(None);
            }
            Err(error) => return Err(Error::new(format!("recvmsg error queue of {}", self.local), error)),
        };
        let mut queued = QueuedError {
            origin: ErrorOrigin::Local,
            icmp_type: 0,
            icmp_code: 0,
            info: 0,
            len,
            destination: message.name.or(self.remote).unwrap_or(self.local),
            offender: None,
        };
        message.for_each_control(|level, kind, data| {
            if (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) {
                parse_extended_error(data, &mut queued);
            }
        });
        Ok(Some(queued))
    }

    fn send_singly(
        &self,
        data: &[u8],
        size: u16,
        to: Option<&libc::sockaddr_in6>,
        traffic_class: u8,
    ) -> Result<SendOutcome> {
        let send = |datagram: &[u8]| self.send_outcome(datagram, None, to, traffic_class);
        SendOutcome::of_each(data, usize::from(size), send)
    }

    fn send_outcome(
        &self,
        data: &[u8],
        segment_size: Option<u16>,
        to: Option<&libc::sockaddr_in6>,
        traffic_class: u8,
    ) -> Result<SendOutcome> {
        SendOutcome::of(|| send_message(self.fd.as_fd(), data, segment_size, to, traffic_class))
            .map_err(|error| Error::new(format!("sendmsg from {}", self.local), error))
    }
}

impl AsFd for EndpointSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn keep_to(fd: BorrowedFd<'_>, interface: Option<u32>) -> Result<()> {
    let Some(index) = interface else { return Ok(()) };
    let index = index as libc::c_int;
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &index, "setsockopt SO_BINDTOIFINDEX")
}

pub(crate) fn set_buffers(fd: BorrowedFd<'_>, bytes: usize) -> Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    for (forced, plain, what) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, "setsockopt SO_RCVBUF"),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, "setsockopt SO_SNDBUF"),
    ] {
        if sockopt::set(fd, libc::SOL_SOCKET, forced, &bytes, what).is_err() {
            sockopt::set(fd, libc::SOL_SOCKET, plain, &bytes, what)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn pair(options: &EndpointOptions) -> (EndpointSocket, EndpointSocket) {
        let any = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0);
        let probe = std::net::UdpSocket::bind(any).unwrap();
        let std::net::SocketAddr::V6(a) = probe.local_addr().unwrap() else { unreachable!() };
        drop(probe);
        let b = SocketAddrV6::new(Ipv6Addr::LOCALHOST, a.port() ^ 1, 0, 0);
        (
            EndpointSocket::open(a, Some(b), options).unwrap(),
            EndpointSocket::open(b, Some(a), options).unwrap(),
        )
    }

    #[test]
    fn a_datagram_arrives_with_its_source_and_its_ecn_bits() {
        let (a, b) = pair(&EndpointOptions::default());
        let mut buffer = [0; 100];
        assert_eq!(b.recv(&mut buffer).unwrap(), None);
        assert_eq!(a.send(b"hello", None, None, 0b10).unwrap(), SendOutcome::Sent);
        let received = b.recv(&mut buffer).unwrap().unwrap();
        assert_eq!(received, Received { len: 5, segment_size: 5, source: a.local(), ecn: Ecn::Ect0 });
        assert_eq!(&buffer[..5], b"hello");
    }

    #[test]
    fn an_empty_datagram_is_a_datagram() {
        let (a, b) = pair(&EndpointOptions::default());
        assert_eq!(a.send(b"", None, None, 0).unwrap(), SendOutcome::Sent);
        assert_eq!(b.recv(&mut [0; 10]).unwrap().unwrap().len, 0);
        assert_eq!(b.recv(&mut [0; 10]).unwrap(), None);
    }

    #[test]
    fn a_batch_arrives_whole_with_and_without_offload() {
        let data: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        for segmentation in [Segmentation::new(), Segmentation::off()] {
            let options =
                EndpointOptions { segmentation: Arc::new(segmentation), ..EndpointOptions::default() };
            let (a, b) = pair(&options);
            assert_eq!(a.send(&data, Some(1200), None, 0).unwrap(), SendOutcome::Sent);
            let mut arrived = Vec::new();
            let mut buffer = vec![0; MAX_RECEIVE];
            while let Some(received) = b.recv(&mut buffer).unwrap() {
                for datagram in buffer[..received.len].chunks(received.segment_size) {
                    assert!(datagram.len() == 1200 || datagram.len() == 10_000 % 1200);
                    arrived.extend_from_slice(datagram);
                }
            }
            assert_eq!(arrived, data);
        }
    }

    #[test]
    fn a_batch_beyond_the_limits_goes_singly() {
        let (a, b) = pair(&EndpointOptions { receive_offload: false, ..EndpointOptions::default() });
        assert_eq!(a.send(&[7; 100], Some(1), None, 0).unwrap(), SendOutcome::Sent);
        let mut count = 0;
        while let Some(received) = b.recv(&mut [0; 10]).unwrap() {
            assert_eq!(received.len, 1);
            count += 1;
        }
        assert_eq!(count, 100);
    }

    #[test]
    fn a_peer_that_is_gone_is_no_reason_to_fail_and_the_error_quotes_the_datagram() {
        let (a, b) = pair(&EndpointOptions::default());
        let b_address = b.local();
        drop(b);
        assert_eq!(a.send(b"anybody there", None, None, 0).unwrap(), SendOutcome::Sent);
        assert_eq!(a.send(b"hello", None, None, 0).unwrap(), SendOutcome::Sent);
        assert_eq!(a.recv(&mut [0; 10]).unwrap(), None);
        let mut buffer = [0; 100];
        let error = a.recv_error(&mut buffer).unwrap().unwrap();
        assert_eq!((error.origin, error.icmp_type, error.icmp_code), (ErrorOrigin::Icmpv6, 1, 4));
        assert_eq!(&buffer[..error.len], b"anybody there");
        assert_eq!(error.destination, b_address);
        assert_eq!(error.offender, Some(Ipv6Addr::LOCALHOST));
        while a.recv_error(&mut buffer).unwrap().is_some() {}
    }

    #[test]
    fn an_unconnected_socket_answers_whoever_wrote() {
        let (a, b) = pair(&EndpointOptions::default());
        let address = b.local();
        drop(b);
        let b = EndpointSocket::open(address, None, &EndpointOptions::default()).unwrap();
        a.send(b"ping", None, None, 0).unwrap();
        let source = b.recv(&mut [0; 10]).unwrap().unwrap().source;
        assert_eq!(b.send(b"pong", None, Some(source), 0).unwrap(), SendOutcome::Sent);
        assert_eq!(a.recv(&mut [0; 10]).unwrap().unwrap().source, address);
    }

    #[test]
    fn a_datagram_longer_than_the_mtu_is_too_long_and_says_so_each_time() {
        // Loopback's MTU is 65,536, so the limit here is UDP's own.
        let (a, _b) = pair(&EndpointOptions::default());
        let data = vec![0; 65_530];
        assert_eq!(a.send(&data, None, None, 0).unwrap(), SendOutcome::TooLong);
        assert_eq!(a.send(&data, None, None, 0).unwrap(), SendOutcome::TooLong);
        assert_eq!(a.send(b"short", None, None, 0).unwrap(), SendOutcome::Sent);
    }

    #[test]
    fn a_port_in_use_is_named() {
        let (a, _b) = pair(&EndpointOptions::default());
        let error = EndpointSocket::open(a.local(), None, &EndpointOptions::default()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        assert!(error.to_string().contains(&a.local().to_string()), "{error}");
    }

    #[test]
    fn where_segmentation_is_refused_single_datagrams_go_and_it_is_not_tried_again() {
        // The kernel refuses (EINVAL) to segment for a socket that wants no checksums.
        const NO_CHECKSUM_OUT: i32 = 101;
        const NO_CHECKSUM_IN: i32 = 102;
        let options = EndpointOptions::default();
        let (a, b) = pair(&options);
        sockopt::enable(a.as_fd(), libc::SOL_UDP, NO_CHECKSUM_OUT, "UDP_NO_CHECK6_TX").unwrap();
        sockopt::enable(b.as_fd(), libc::SOL_UDP, NO_CHECKSUM_IN, "UDP_NO_CHECK6_RX").unwrap();
        assert!(options.segmentation.is_on());
        for _ in 0..2 {
            assert_eq!(a.send(&[7; 2500], Some(1000), None, 0).unwrap(), SendOutcome::Sent);
            assert!(!options.segmentation.is_on());
            for len in [1000, 1000, 500] {
                assert_eq!(b.recv(&mut [0; 2000]).unwrap().unwrap().len, len);
            }
        }
    }

    #[test]
    fn a_refusal_of_segmentation_is_forgotten_after_a_while() {
        let segmentation = Segmentation::new();
        assert!(segmentation.is_on());
        segmentation.refused();
        assert!(!segmentation.is_on());
        segmentation.pause_until.store(clock::boottime_ms(), Relaxed);
        assert!(segmentation.is_on());
        assert!(!Segmentation::off().is_on());
    }
}
