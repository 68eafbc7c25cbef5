//! TCP (RFC 9293).
mod config;
mod connection;
mod cubic;
mod hystart;
mod isn;
mod listen;
mod packet;
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
pub use isn::{Flow, Secrets};
pub use listen::{Listener, MAX_HALF_OPEN, Reaction};
pub use packet::{Transmit, reset_for};
pub use sender::Statistics;
pub use sequence::SequenceNumber;
pub use state::{Error, State};
