//! The firewall: zones and rules, what becomes of a packet, and the nftables table that does it.
//!
//! | module | what it is |
//! |---|---|
//! | [`policy`] | a [`Policy`]: zones, rules, and what they are made of |
//! | [`schedule`] | when a rule holds |
//! | [`service`], [`address`] | what a rule says of ports and addresses, from text |
//! | [`packet_words`] | a packet in words: `tcp from 2a02:8100:1::5 to 2a00:1450::1 port 22 in lan` |
//! | [`defaults`] | what holds where no rule decides: RFC 6092, RFC 4890, the trust of the zones |
//! | [`evaluate`] | which rule or default decides a packet |
//! | [`mod@compile`] | the policy as one transaction of nft |
//! | [`analyze`] | rules that can never decide, and those that contradict each other |
//! | [`region`], [`lookup`] | rules as boxes of packets, and the fewest sets that hold them in the right order |
//!
//! A packet goes through these stages; the first that decides ends it.
//!
//! 1. Headers that nobody may send: routing header type 0, a first fragment without its upper-layer header.
//! 2. The state of its connection: established and related ones pass, what conntrack calls invalid is dropped.
//! 3. What IPv6 does not work without: neighbor discovery, group membership, address configuration.
//! 4. Its origin: addresses that cannot come from there, or must not be seen there.
//! 5. The rules, in the order of the file.
//! 6. The trust of the zones.
//!
//! Invariants:
//! - [`evaluate`] and the kernel with the table of [`mod@compile`] agree on every packet; the lab tests that with random
//!   policies. Both take stages 3, 4 and 6 from the same list, [`defaults`].
//! - Rules of equal shape that may change places share one set: the number of lookups does not grow with the rules.
//! - Only the table [`TABLE`] is touched. Its base chains stay when its content is replaced: with each one that goes,
//!   the kernel drops what waits in queues.

pub mod address;
pub mod analyze;
pub mod compile;
pub mod defaults;
pub mod evaluate;
pub mod lookup;
pub mod packet_words;
pub mod policy;
pub mod region;
pub mod schedule;
pub mod service;

pub use analyze::{Finding, analyze};
pub use compile::{Compiled, PAIR, TABLE, compile};
pub use evaluate::{Decision, Reason, evaluate};
pub use packet_words::{Packet, State, WordsError, with_addresses};
pub use policy::{Policy, PolicyError, Rate, Rule, Settings, Trust, Verdict, Zone, ZoneRef, ZoneSet};
pub use schedule::{Moment, Schedule, TimeZone};
