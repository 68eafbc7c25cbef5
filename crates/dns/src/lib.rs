//! Names in DNS, looked up at the machine's own servers, or at those of a provider: addresses of IPv6, and texts.
//!
//! It asks each server, of `/etc/resolv.conf` as a rule, a few times by UDP, and waits for them: it is for threads that have
//! nothing else to do. What comes back is bounded, and nothing of it is believed here or by those who ask: a name says where to try.

mod lookup;
pub mod message;

pub use lookup::{LookupError, lookup, lookup_at, lookup_by};
pub use message::{Found, Kind, Records};
