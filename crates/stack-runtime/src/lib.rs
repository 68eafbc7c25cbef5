//! `stack` over a device: sockets that block, in one program, without the network of the kernel.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::time::{Duration, Instant};
//!
//! use stack_runtime::device::pair;
//! use stack_runtime::{Options, Stack, TcpListener, TcpStream};
//!
//! // Two hosts on one link. With `device::kernel::open("tap0", …)` the kernel is the other one.
//! let (a, b) = pair(1500)?;
//! let a = Stack::start(a, Options::new("a"))?;
//! let b = Stack::start(b, Options::new("b"))?;
//! let address = b.wait_for_address(Duration::from_secs(10))?;
//! a.wait_for_address(Duration::from_secs(10))?;
//!
//! let listener = TcpListener::bind(&b, "[::]:80".parse()?)?;
//! let mut client = TcpStream::connect(&a, (address, 80).into())?;
//! client.write_all(b"question")?;
//! let (mut server, _) = listener.accept()?;
//! let mut data = [0; 8];
//! server.read_exact(&mut data)?;
//! assert_eq!(&data, b"question");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A thread drives each [`Stack`]: it owns the [`Device`](device::Device), and sleeps until something arrives, a timer is
//! due or a caller has something to send. The host itself is behind a lock, so that a caller copies straight from and to
//! the buffers of its connection. The thread takes the lock once for a batch of packets, and does the device's system
//! calls without it. It ends with the last handle: what connections still have to say is then not said, which
//! [`TcpStream::finish`] waits for.
//!
//! Each call exists twice: `poll_…` says whom to wake, as futures do, so that an executor's traits are a few lines on top;
//! the other one blocks. Options are figure 7's of NRL's paper: levels of security for each socket, and
//! [`is_security`] tells their `EIPSEC` from other errors.
//!
//! Destinations are addresses: nothing here looks names up. Scopes of link-local addresses are ignored, as a stack has
//! one link.
//!
//! # Invariants
//!
//! - No call waits for ever on a stack that has ended: all who wait are told, whatever ended it.
//! - No waker is called or dropped while the lock is held.
//! - A socket that is dropped is closed, in order, as far as the stack lives on.

#![forbid(unsafe_code)]

mod blocking;
pub mod device;
mod error;
mod listener;
mod runner;
mod stack_handle;
mod state;
mod tcp;
mod udp;

pub use error::{NoSecurityAssociation, is_security};
pub use listener::TcpListener;
pub use stack_handle::{Options, Stack};
pub use tcp::{TcpOptions, TcpStream};
pub use udp::UdpSocket;
