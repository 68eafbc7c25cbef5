//! IPsec (RFC 4301), sans-IO: AH and ESP, security associations behind a key engine, policy apart from mechanism.
//!
//! The design is that of NRL's IPv6 for 4.4 BSD (1996), the first with security as a part of the stack, in today's
//! algorithms: associations in a table that one module, the Key Engine, guards; daemons that make them, told by messages;
//! policy that says what is to be protected and knows no header; headers that know no algorithm; an algorithm switch. This
//! crate opens no socket and reads no clock. It is given time, packets in buffers, and random numbers for SPIs.
//!
//! Two hosts that share a key:
//!
//! ```
//! use std::time::Instant;
//! use ipsec::key_engine::KeyEngine;
//! use ipsec::packet_buffer::PacketBuffer;
//! use ipsec::policy::{Output, PolicyDatabase};
//! use ipsec::processing::{self, MAX_HEADROOM, MAX_TAILROOM, Progress, Step};
//! use ipsec::selector::Traffic;
//!
//! let file = "
//!     add 2001:db8::1 2001:db8::2 esp 0x1000 -r 1024 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
//!     spdadd 2001:db8::1 2001:db8::2 any -P out ipsec esp/transport//require;
//! ";
//! let now = Instant::now();
//! let (mut a, mut b, mut policies) = (KeyEngine::new(), KeyEngine::new(), PolicyDatabase::new());
//! ipsec::setkey::apply(ipsec::setkey::parse(file)?, &mut a, &mut policies, now)?;
//! ipsec::setkey::apply(ipsec::setkey::parse(file)?, &mut b, &mut PolicyDatabase::new(), now)?;
//!
//! // A packet that leaves one …
//! let mut buffer = [0; MAX_HEADROOM + 48 + MAX_TAILROOM];
//! let packet = &mut buffer[MAX_HEADROOM..MAX_HEADROOM + 48];
//! packet[0] = 0x60;
//! packet[5..8].copy_from_slice(&[8, 17, 64]); // 8 bytes of UDP
//! packet[8..24].copy_from_slice(&"2001:db8::1".parse::<std::net::Ipv6Addr>()?.octets());
//! packet[24..40].copy_from_slice(&"2001:db8::2".parse::<std::net::Ipv6Addr>()?.octets());
//! let traffic = Traffic::of(packet)?;
//! let Output::Send(bundle) = policies.output_policy(&mut a, &traffic, None, now)? else { panic!() };
//! let mut packet = PacketBuffer::new(&mut buffer, MAX_HEADROOM..MAX_HEADROOM + 48).unwrap();
//! processing::seal(&mut a, &bundle, &mut packet, now).unwrap();
//! assert_eq!(packet.packet()[6], 50);
//!
//! // … and arrives at the other.
//! let mut progress = Progress::default();
//! while let Step::Opened(next) = processing::open(&mut b, &mut packet, progress, None, now).unwrap() {
//!     progress = next;
//! }
//! assert!(progress.marks.authentic && progress.marks.decrypted);
//! assert_eq!(packet.len(), 48);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a stack uses it
//!
//! 1. A packet that leaves, before it is cut into fragments: [`output_policy`](policy::PolicyDatabase::output_policy) says
//!    by which associations it is [sealed](processing::seal), or that it waits: then it is
//!    [delayed](key_engine::KeyEngine::delay), and comes back by [`next_released`](key_engine::KeyEngine::next_released).
//!    An error is [`EIPSEC`](key_engine::EIPSEC) for the socket. An answer to a stranger does not wait:
//!    [`output_policy_without_asking`](policy::PolicyDatabase::output_policy_without_asking).
//! 2. A packet that arrives for this host, after its fragments were put together: [`open`](processing::open) until it is
//!    plain, or is for another host. With its [`Marks`](marks::Marks) it comes to the transport, which asks
//!    [`input_policy`](policy::PolicyDatabase::input_policy).
//! 3. What is dropped is counted by its [`DropReason`](drops::DropReason), and nobody is answered.
//! 4. At [`deadline`](key_engine::KeyEngine::deadline), [`handle_timeout`](key_engine::KeyEngine::handle_timeout). What the
//!    engine has to say to daemons comes by [`next_event`](key_engine::KeyEngine::next_event); for those that talk
//!    PF_KEY, [`PfKey::tell`](pf_key::PfKey::tell) makes messages of it.
//!
//! # Invariants
//!
//! - Nothing of an association changes before an ICV was verified; a packet that is not sealed is as before, if its first
//!   association refuses it.
//! - A sequence number is given out once, and no counter begins again: the nonces of the ciphers hang on it. Associations
//!   whose counters could be forgotten, such as those of setkey, need new keys at each start.
//! - No function panics, whatever bytes it is given. Walks over headers are bounded, and so is what strangers can make wait.
//! - Sealing and opening allocate nothing, and leave the payload where it is.
//! - Keys are wiped, compared in constant time where they are compared at all, never printed, and never handed out. What
//!   `ring` makes of them lies in boxes, for an allocator that wipes: `ring` itself does not.
//!
//! # Where things are
//!
//! | module | subject |
//! |---|---|
//! | [`algorithm`], [`key`] | the algorithm switch |
//! | [`association`], [`replay`] | what two ends share, sequence numbers |
//! | [`esp`], [`ah`], [`tunnel`], [`udp_encapsulation`] | the headers |
//! | `esp_packet` | the bytes from SPI to ICV |
//! | [`tunnel_payload`] | ESP without outer headers, as sockets carry it |
//! | [`headers`], [`packet_buffer`] | where they go in a packet, and the room for them |
//! | [`marks`] | what a packet has been through |
//! | [`selector`], [`level`], [`policy`], [`decisions`] | what is to be protected |
//! | [`key_engine`], [`request`], [`acquire`] | the associations, what is asked for, what waits |
//! | `table`, `offers` | where the key engine keeps them, and finds one among many |
//! | [`processing`] | packets through policy's choice of associations |
//! | [`pf_key`], [`setkey`] | how daemons and administrators talk with the engine |
//! | [`outcome`], [`drops`] | why packets go no further |

#![forbid(unsafe_code)]

pub mod acquire;
pub mod ah;
pub mod algorithm;
pub mod association;
pub mod decisions;
pub mod drops;
pub mod esp;
mod esp_packet;
pub mod headers;
pub mod key;
pub mod key_engine;
pub mod level;
pub mod marks;
mod offers;
pub mod outcome;
pub mod packet_buffer;
pub mod pf_key;
pub mod policy;
pub mod processing;
pub mod replay;
pub mod request;
pub mod selector;
pub mod setkey;
mod table;
pub mod tunnel;
pub mod tunnel_payload;
pub mod udp_encapsulation;

#[cfg(test)]
mod tests;
