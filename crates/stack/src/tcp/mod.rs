//! TCP (RFC 9293), sans-IO, of either IP version, for segments as they come and for GSO packets.
//!
//! A [`Connection`] is one connection: segments, time and data go in, and packets come out, each a TCP header with payload
//! that the stack puts IP before. A [`Listener`] makes connections of SYNs. Neither knows addresses beyond the [`Flow`]
//! that its numbers follow from, nor opens, reads or spawns anything.
//!
//! ```
//! use std::time::Instant;
//! use stack::tcp::{Config, Connection, Flow, Listener, Reaction, Secrets, State};
//! use wire::ecn::Ecn;
//! use wire::tcp::Segment;
//!
//! let now = Instant::now();
//! let secrets = || Secrets::new([7; 16], now); // Not like this: 16 bytes of the best randomness there is.
//! let client = Flow { local: "[2001:db8::1]:50000".parse()?, remote: "[2001:db8::2]:80".parse()? };
//! let server = Flow { local: client.remote, remote: client.local };
//!
//! let mut ours = Connection::connect(now, &client, &secrets(), &Config::new(1440));
//! let mut listener = Listener::new(Config::new(1440), secrets());
//!
//! let (mut syn, mut syn_ack, mut ack) = (Vec::new(), Vec::new(), Vec::new());
//! ours.poll_transmit(now, 0, &mut syn);
//! listener.receive(now, &server, &Segment::parse(&syn)?, Ecn::NotEct, &mut syn_ack);
//! ours.receive(now, &Segment::parse(&syn_ack)?, Ecn::NotEct);
//! ours.write(b"hello");
//! ours.poll_transmit(now, 0, &mut ack);
//! let reaction = listener.receive(now, &server, &Segment::parse(&ack)?, Ecn::NotEct, &mut Vec::new());
//!
//! let Reaction::Established(mut theirs) = reaction else { unreachable!() };
//! assert_eq!((ours.state(), theirs.state()), (State::Established, State::Established));
//! let mut read = [0; 5];
//! assert_eq!((theirs.read(&mut read), &read), (5, b"hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a stack drives it
//!
//! After each call of [`Connection::receive`], `handle_timeout`, `write`, `read`, `close` or `abort`, call
//! [`Connection::poll_transmit`] until it returns `None`, and sleep until [`Connection::deadline`] at most. The checksum
//! of what it writes is the stack's to compute, with the pseudo-header; that of what it receives is verified before. A
//! segment of no connection goes to the listener of its port, or is answered by [`reset_for`]. Why a segment went no
//! further is returned, and counted by the stack ([`Drops`]). All of that is what [`crate::host`] does.
//!
//! # What is in it
//!
//! | RFC | subject | where |
//! |---|---|---|
//! | 9293, 5961 | states, checks of segments, probes, silly windows, Nagle, keepalive | `connection`, `sender`, `receiver`, `listen` |
//! | 7323 | window scale, timestamps, PAWS | `timestamps`, `connection` |
//! | 6298 | retransmission timeout | `rtt`, `sender` |
//! | 2018, 2883, 6675 | SACK and DSACK, both ways | `reassembly`, `receiver`, `scoreboard` |
//! | 8985 | RACK and tail loss probes | `rack`, `sender` |
//! | 6582 | NewReno, where the other end has no SACK | `sender` |
//! | 6937, 9438, 9406, 6928, 3042 | congestion control | `prr`, `cubic`, `hystart` |
//! | 3522, 5682 | needless retransmissions are undone | `sender` |
//! | 3168 | ECN | `connection`, `sender` |
//! | 4821, 8899, 5927 | the path's MTU, down and up, and who is believed about it | `sender`, `connection` |
//! | | pacing | `sender` |
//! | 6528, 6056 | numbers that cannot be guessed | `isn` |
//! | 4987 | floods of SYNs | `listen`, `syn_cookie` |
//!
//! What it does not do: TCP Fast Open, MD5 and AO signatures (IPsec is below).
//!
//! # Invariants
//!
//! - No segment, in any state, makes it panic, and none makes it hold more than its buffers' limits, 1024 ranges received
//!   out of order, and 4096 pieces sent.
//! - An idle connection holds less than 2 KB: buffers that are empty are given back after a second.
//! - A byte is copied once on its way in, from the packet to the buffer, and once from there to the user; the same on its
//!   way out.
//! - A segment that is not exactly what a connection waits for ends none: RST and SYN are challenged (RFC 5961), ICMP
//!   errors are hints (RFC 5927).

mod config;
mod connection;
mod cubic;
mod drops;
mod hystart;
mod isn;
mod listen;
mod packet;
mod path_search;
mod prr;
mod rack;
mod reassembly;
mod receiver;
mod ring;
mod rtt;
mod scoreboard;
mod sender;
mod sequence;
mod state;
mod syn_cookie;
#[cfg(test)]
mod tests;
mod timers;
mod timestamps;

pub use config::{Config, KeepAlive};
pub use connection::{Connection, IcmpError};
pub use drops::{DropReason, Drops};
pub use isn::{Flow, Secrets};
pub use listen::{Listener, MAX_HALF_OPEN, Reaction};
pub use packet::{Transmit, reset_for};
pub use sender::Statistics;
pub use sequence::SequenceNumber;
pub use state::{Error, State};
