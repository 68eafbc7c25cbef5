//! SOCKS5, HTTP CONNECT and forwarded ports, whose other side is a host of its own inside a tunnel.
//!
//! Clients are programs of this machine: they come to sockets of the kernel. Where they want to go is reached by a
//! [`stack::host::Host`], whose packets whoever owns the [`Proxy`](proxy::Proxy) carries: through a tunnel, and nowhere else.
//! So there are no devices, routes or privileges, and no packet of a client's connection ever meets the kernel's IP.
//!
//! | module | subject |
//! |---|---|
//! | [`proxy`] | the sockets, the clients and the host, in a main loop that another owns |
//! | [`tunnel`] | that main loop, over a `carrier`: `ipsec`, or `moving` |
//! | `client`, `asking` | one client: what it asks, and both directions of its connection |
//! | [`association`] | datagrams of one client |
//! | [`place`], `stream` | where clients come to: ports, or sockets in the file system |
//! | [`passwords`] | what clients may have to say |
//! | [`socks5`], [`http_connect`], [`forward`] | how clients ask: parsers without I/O |
//! | [`target`] | where they want to go |
//! | [`resolver`], [`dns`] | names, asked of servers inside the tunnel |
//!
//! # Invariants
//!
//! - Nothing leaves but by the host: no name is given to this machine's resolver, no connection is made by its kernel.
//! - One thread, and no thread for a client. Clients are bounded by [`MAX_CLIENTS`](proxy::MAX_CLIENTS), and what each can
//!   make the proxy keep is, too: `client` says how much.
//! - A side that does not read stops the other; a side that ends is told to the other, and may still be answered.
//! - It listens at loopback addresses, unless it is told otherwise, and takes connections of its own user there, unless it
//!   is told otherwise: whoever reaches it is inside the tunnel.

#![forbid(unsafe_code)]

mod asking;
pub mod association;
mod carrier;
mod client;
pub mod dns;
mod error;
pub mod forward;
pub mod http_connect;
mod ipsec;
mod moving;
pub mod passwords;
pub mod place;
pub mod proxy;
pub mod resolver;
pub mod socks5;
mod stream;
pub mod target;
pub mod tunnel;

pub use error::Error;
