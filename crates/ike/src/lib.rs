//! IKEv2 (RFC 7296), sans-IO: the first key daemon of the host stack.
//!
//! Two hosts prove to each other who they are, and agree on *children*: pairs of ESP or AH associations with fresh keys.
//! This crate opens no socket and reads no clock; its randomness comes from a source that is handed in ([`random`]). A host
//! gives an [`Endpoint`] time and datagrams, sends what comes out, and hands each [`event::ChildAssociation`] to what
//! carries its packets: the crate knows nothing about that.
//!
//! ```
//! use std::time::Instant;
//!
//! use ike::config::{ChildConfig, Config, Mode, PeerConfig, PeerIndex};
//! use ike::crypto::secret::Secret;
//! use ike::event::{Event, Path};
//! use ike::message::body::Identity;
//! use ike::message::traffic_selector::TrafficSelector;
//! use ike::random::Random;
//! use ike::Endpoint;
//!
//! struct Entropy(u8); // Not like this: the best randomness there is.
//! impl Random for Entropy {
//!     fn fill(&mut self, bytes: &mut [u8]) {
//!         for byte in bytes {
//!             self.0 = self.0.wrapping_mul(5).wrapping_add(1);
//!             *byte = self.0;
//!         }
//!     }
//! }
//!
//! let config = |local: &str, remote: &str| {
//!     let name = |name: &str| Identity::Fqdn(name.to_owned());
//!     let mut peer = PeerConfig::new(name(local), Some(name(remote)), Secret::new(b"a long shared key".to_vec()));
//!     peer.children.push(ChildConfig::new(
//!         Mode::Tunnel,
//!         vec![TrafficSelector::ANY_IPV6],
//!         vec![TrafficSelector::ANY_IPV6],
//!     ));
//!     Config::new(vec![peer])
//! };
//! let mut a = Endpoint::new(config("a.example", "b.example"), Entropy(1));
//! let mut b = Endpoint::new(config("b.example", "a.example"), Entropy(2));
//!
//! let now = Instant::now();
//! let path = Path { local: "[2001:db8::a]:500".parse()?, remote: "[2001:db8::b]:500".parse()? };
//! a.initiate(now, PeerIndex(0), path)?;
//! // IKE_SA_INIT and IKE_AUTH: here a host has a network.
//! for _ in 0..2 {
//!     let request = a.poll_transmit().expect("a request");
//!     b.receive(now, Path { local: path.remote, remote: path.local }, &request.payload);
//!     let response = b.poll_transmit().expect("a response");
//!     a.receive(now, path, &response.payload);
//! }
//! assert!(matches!(a.poll_event(), Some(Event::IkeUp { .. })));
//! let Some(Event::ChildUp(child)) = a.poll_event() else { panic!("a child") };
//! assert_eq!(child.suite.encryption.unwrap().key_length(), child.outbound.encryption.as_bytes().len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a host drives an [`Endpoint`]
//!
//! 1. [`Endpoint::receive`] for each datagram on ports 500 and 4500 (there, what begins with four zero bytes; the rest is
//!    ESP), [`Endpoint::handle_timeout`] when its time has come, and what it wants itself: [`Endpoint::initiate`],
//!    [`Endpoint::rekey_child`], [`Endpoint::delete_ike`] and so on.
//! 2. [`Endpoint::poll_event`] until nothing more comes, and only then [`Endpoint::poll_transmit`]: an answer lets the
//!    other end use a child at once.
//! 3. Sleep until something arrives or [`Endpoint::deadline`].
//!
//! # What it does
//!
//! RFC 7296 with shared keys, or certificates and digital signatures (RFC 7427): cookies, NAT detection, narrowing of traffic selectors, transport mode, configuration
//! payloads and address pools, retransmission with a window of one, rekeys of children and IKE SAs (also of both ends at once), liveness,
//! reauthentication; fragments (RFC 7383), and initiators
//! that move (MOBIKE, RFC 4555). Each child is of one proposal of AES-GCM, ChaCha20-Poly1305 or AES-CBC with
//! HMAC-SHA-2, or AH; groups are Curve25519, P-256 and P-384.
//!
//! What it does not: EAP, revocation of certificates, IKEv1, windows above one, IPComp.
//!
//! # Invariants
//!
//! - Nothing here panics whatever arrives, and nothing that does not come from an authenticated peer changes an IKE SA.
//! - A request is carried out once: when it comes again, its stored answer is repeated.
//! - What strangers make this end keep is bounded ([`endpoint::MAX_HALF_OPEN`]), and nothing is kept of one that has not
//!   shown that it receives at its address, once [`config::Config::cookies_from`] of them are there. One source has
//!   [`endpoint::MAX_HALF_OPEN_OF_SOURCE`] places at most, and a newcomer from elsewhere always finds one.
//! - What an authenticated peer makes this end keep is bounded, too: children, and IKE SAs of its identity
//!   ([`endpoint::MAX_OF_IDENTITY`]). No key outlives its time by more than a tenth, or ten minutes.
//! - No unprotected answer ends an attempt while a genuine one may still come.
//! - Secrets are wiped, compared in constant time, never printed.
//!
//! # Where things are
//!
//! | module | subject |
//! |---|---|
//! | [`endpoint`], [`config`], [`event`], `output` | the host's side |
//! | `initiator`, `responder`, `auth`, [`certificate`], `cookie`, `nat` | until both ends are authenticated |
//! | `sa` | an IKE SA from then on: requests, answers, rekeys |
//! | `child` | how two ends agree on a child |
//! | `table`, `places`, `census` | what there is, by SPI; how much of it is whose |
//! | [`lease`] | addresses for clients |
//! | `channel` | sealing, opening, fragments |
//! | [`negotiation`], [`keys`], [`crypto`] | algorithms, and what is derived with them |
//! | [`message`], [`numbers`] | the wire |
//! | `drops` | why datagrams go no further |

#![forbid(unsafe_code)]

mod auth;
mod census;
pub mod certificate;
mod channel;
mod child;
pub mod config;
mod cookie;
pub mod crypto;
mod drops;
pub mod endpoint;
pub mod event;
mod hint;
mod initiator;
pub mod keys;
pub mod lease;
pub mod message;
mod nat;
pub mod negotiation;
pub mod numbers;
mod output;
mod places;
pub mod random;
mod responder;
mod sa;
mod table;

pub use config::NAT_PORT;
pub use drops::{DropReason, Drops};
pub use endpoint::Endpoint;
pub use output::Transmit;
