//! An IPv6 host stack, sans-IO: IPv6, neighbor discovery, autoconfiguration, ICMPv6, UDP, TCP.
//!
//! The design is NRL's IPv6 in 4.4 BSD (Atkinson, McDonald, Phan, Metz, Chin: "Implementation of IPv6 in 4.4 BSD", USENIX
//! 1996) in user space: the header chain is parsed once, with a fast path for packets without extension headers; path MTUs
//! are kept in host routes, for all transports; security is applied right before fragmentation and right after
//! reassembly, by an engine that the rest of the stack knows nothing of. A first fragment is kept while its packet is in
//! pieces, so that the error about missing ones can be sent, which theirs could not.
//!
//! It opens no device and reads no clock; its randomness comes from a seed. The caller gives a [`Host`](host::Host), or an
//! [`Interface`](interface::Interface) if it needs no TCP, time and what a device has received, and sends what it has to
//! send:
//!
//! ```
//! use std::net::{Ipv6Addr, SocketAddrV6};
//! use std::time::Instant;
//!
//! use stack::interface::{Config, Interface, Medium, NoUpper};
//! use stack::{autoconf, random::Key};
//!
//! // Two hosts, one at each end of a tunnel.
//! let now = Instant::now();
//! let host = |number: u8| {
//!     let config = Config {
//!         medium: Medium::Ip,
//!         mtu: 1500,
//!         autoconf: autoconf::Config {
//!             stable_key: Key::new([number; 16]),
//!             interface: b"tun0".to_vec(),
//!             temporary: false,
//!             duplicate_transmits: 1,
//!         },
//!         routers: false,
//!     };
//!     // Not like this: 32 bytes of the best randomness there is, others each time.
//!     Interface::new(now, config, [number; 32])
//! };
//! let (mut a, mut b) = (host(1), host(2));
//! let address = "2001:db8::b".parse()?;
//! a.add_address(now, "2001:db8::a".parse()?, 64);
//! b.add_address(now, address, 64);
//!
//! let server = b.udp_bind(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 53, 0, 0))?;
//! let client = a.udp_bind(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0))?;
//! a.udp_send(now, client, Some(SocketAddrV6::new(address, 53, 0, 0)), b"question")?;
//!
//! let mut packet = Vec::new();
//! while a.poll_transmit(&mut packet) {
//!     b.receive(now, &packet, &mut NoUpper);
//! }
//! let mut data = Vec::new();
//! let metadata = b.udp_receive(server, &mut data).expect("it has arrived");
//! assert_eq!((&data[..], *metadata.from.ip()), (&b"question"[..], "2001:db8::a".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a packet travels
//!
//! One that is received: frame → addresses that may be, and are ours → header chain → *reassembly*, *security*, after each
//! of which what they leave starts again at the addresses → policy → ICMPv6, a UDP socket, or a transport above the
//! interface ([`Upper`](interface::Upper)), which is TCP with a host: checksum → connection, by a keyed hash of both
//! ends, or else a listener, or else RST. What refuses a packet says whether its sender is told.
//!
//! One that is sent: with a host, the connection whose turn it is → one segment that fits the path → checksum; then, as
//! for all, source address (RFC 6724) → headers → *security* → path MTU, fragments → first hop, by redirect or by the
//! longest prefix → neighbor, which may have to be asked for while the packet waits → frame.
//!
//! # Invariants
//!
//! - Nothing here panics, whatever arrives and whenever.
//! - What others can make us keep is bounded, with a named constant for each bound: fragments, neighbors, packets that wait
//!   for them, addresses, routers, routes, destinations, DNS servers, groups, datagrams in sockets, connections that
//!   nobody has accepted or that have been released, frames to send. What strangers have made gives way to what our own
//!   traffic needs, never the other way round.
//! - A packet that goes no further is counted under a [`DropReason`].
//! - No error is sent about an error, to a group or to nobody in particular, nor more than ten at once and ten a second
//!   (RFC 4443 §2.4).
//! - Messages of neighbor discovery are believed only from the link, unfragmented and with hop limit 255; redirects only
//!   from the first hop in use; ICMP errors only about what we may have sent.
//! - An address is used only after nobody else has claimed it, and answered for as long as it is ours.
//! - A whole packet without extension headers is neither copied nor hashed between frame and upper layer.
//! - Of all connections, only those that have something to do are visited.
//!
//! # Where things are
//!
//! | module | subject |
//! |---|---|
//! | [`host`] | TCP sockets on an interface |
//! | [`interface`] | puts all but TCP together: the host on one link |
//! | [`ipv6`] | header chain, fragments, fragmentation |
//! | [`fragments`] | packets in pieces |
//! | [`ipv4`] | IPv4 beside it, with one address and one gateway |
//! | [`icmpv6`] | errors received and sent, echo |
//! | [`neighbor`] | link-layer addresses, reachability (RFC 4861 §7) |
//! | [`route`] | on-link prefixes, routers, routes, redirects, path MTUs |
//! | [`autoconf`] | addresses, duplicates, lifetimes (RFC 4862) |
//! | [`source_address`] | which address to send from (RFC 6724) |
//! | [`mld`] | groups (RFC 3810) |
//! | [`udp`] | sockets |
//! | [`tcp`] | TCP |
//! | [`security`] | where security goes |
//! | [`ipsec`] | security by IPsec |
//! | [`faults`] | links that lose, delay and change packets, for tests |
//! | [`random`] | randomness and keyed hashes |
//! | [`DropReason`] | why packets go no further |
//!
//! The crate's types use those of [`ipnet`] and of `sidestep-wire`.

#![forbid(unsafe_code)]

pub mod autoconf;
mod drops;
pub mod faults;
pub mod fragments;
pub mod host;
pub mod icmpv6;
pub mod interface;
pub mod ipsec;
pub mod ipv4;
pub mod ipv6;
mod limit;
pub mod mld;
pub mod neighbor;
pub mod random;
pub mod route;
pub mod security;
pub mod source_address;
pub mod tcp;
pub mod udp;

pub use drops::{DropReason, Drops};
