//! The two programs for the flow of another tunnel, which has encrypted its packets already (`carry = "mask"`,
//! docs/protocol.md section 9.6): each packet gets the addresses and ports of a lane, and its head, or all of it where it
//! is small, is masked.
//!
//! One runs at the TUN device, where the other tunnel's packets are routed; the other at the external interface, before the
//! stack. What they do not take goes on as if they were not there: to the daemon, which carries it in its own datagrams, or
//! to its sockets. Nothing of either is lost, and nothing leaves that is not masked.
//!
//! `layout` is what programs and daemon agree on, `chacha` makes the keystream, `turn` lays it over a part of the packet,
//! `packet` is what both programs do with one, `outgoing` and `incoming` are the programs.
//!
//! They need Linux 5.17 (`bpf_loop`), and a machine whose integers are little-endian, as ChaCha's are.

mod chacha;
mod incoming;
mod layout;
mod outgoing;
mod packet;
mod turn;

pub use incoming::incoming;
pub use layout::{
    CHANCE, COUNTERS, DRAWN, DRAWS, FLOW, HEAD, INCOMING, LANE, LARGE, MARK, MOMENT, NO_LANE, ROUNDS, SAMPLE,
    TRAILER, Tables, at,
};
pub use outgoing::outgoing;
