//! Stateless address autoconfiguration (RFC 4862): addresses, whether somebody else has them, how long they live.
//!
//! | file | subject |
//! |---|---|
//! | `addresses` | the addresses of an interface, and what router advertisements do to them |
//! | `address` | one address: its phases and lifetimes |
//! | `advertiser` | who advertises, and whose places are his to take |
//! | `identifier` | interface identifiers: stable (RFC 7217) and temporary (RFC 8981) |
//! | `solicitation` | when routers are asked for (RFC 7559) |
//! | `dns` | servers for names, collected (RFC 8106) |

mod address;
mod addresses;
mod advertiser;
mod dns;
mod identifier;
mod solicitation;

pub use address::{Address, Origin, Phase};
pub use addresses::{Action, Addresses, Config, Event, MAX_ADDRESSES};
pub use advertiser::Advertiser;
pub use dns::{DnsServers, MAX_DNS_SERVERS};
pub use solicitation::Solicitation;
