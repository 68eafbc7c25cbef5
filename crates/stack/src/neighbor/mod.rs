//! Neighbors: their link-layer addresses, and whether they can be reached (RFC 4861 §7).
//!
//! [`Neighbors::resolve`] tells where a packet goes, or keeps it until that is known. Messages come in through
//! [`Neighbors::learn`] and [`Neighbors::advertised`]; [`Neighbors::next_action`] says what to send.
//!
//! | state | means | left when |
//! |---|---|---|
//! | INCOMPLETE | asked for, packets wait | answered, or after three questions without an answer |
//! | REACHABLE | has answered within the reachable time | that is over |
//! | STALE | known, but nobody asks | something is sent |
//! | DELAY | something was sent: a transport may confirm it within five seconds | they are over |
//! | PROBE | asked directly | answered, or after three questions without an answer |
//!
//! A neighbor that cannot be reached is removed, so that its next hop is chosen anew.
//!
//! What strangers can make us keep is bounded (RFC 6583): entries made by their messages make room for each other and for
//! those of our own traffic, never the other way round, and only so many addresses are asked for at once.

mod cache;
mod entry;

pub use cache::{
    Action, Advertisement, MAX_INCOMPLETE, MAX_NEIGHBORS, Neighbors, REACHABLE_TIME, RETRANS_TIMER,
    Resolution,
};
pub use entry::State;
