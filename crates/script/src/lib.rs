//! Packet scripts: what a script in Lua may know of a packet and do to it, and the state that it runs in.
//!
//! A script has a function that is called with each packet and returns a verdict. It sees the packet through views:
//! objects that stand for a header of a protocol and have a method for each field. The crate has the protocols, the
//! views with the checksums that follow every change, tables for what outlives a packet, and the Lua states with their
//! limits. `docs/scripting.md` is the manual.
//!
//! What it does not do: no sockets, no clock, no files. Time, randomness, sending, the log and modules come from a
//! [`host::Host`].
//!
//! # Two tiers, one meaning
//!
//! Scripts are compiled to eBPF where they can be, and run in Lua where not; a program may hand packets over to Lua, which
//! runs the function again from its beginning. So what is defined here is what a
//! compiler can do too: fields at offsets that a header's own integers move, policies that are tables, values of few
//! kinds, keys and values of fixed sizes, 64-bit integers.
//!
//! # Invariants
//!
//! - A script cannot make the program panic, and reaches nothing but the packet, its own memory and its host.
//! - A view is of one packet: used later it is refused, it never touches another packet.
//! - Every write has the checksums follow by difference: a right one stays right, a wrong one wrong.
//! - An error, or a budget that is used up, costs one packet: the state goes on.
//!
//! # Modules
//!
//! | module | subject |
//! |---|---|
//! | [`kind`] | kinds of field values, from octets and back |
//! | [`protocol`] | what a protocol is: fields, policy, changes; the built-in ones, reading declarations, the reference |
//! | [`annotations`] | what scripts find, for the Lua language server |
//! | [`link`] | what a script wants of the link header, which Lua does not have |
//! | [`logged`] | what `nf.log` says, as words and fields |
//! | [`matching`] | which packets a script gets |
//! | [`metric`] | counters and histograms that metrics export |
//! | [`mirror`] | names of interfaces that packets are copied to |
//! | [`packet`] | a packet as a script gets it |
//! | [`checksum`] | which checksums cover what, and how they follow a change |
//! | [`store`] | views of a packet or byte array: places that handles stand for |
//! | [`entry`] | what is in tables, as octets and as it is told outside |
//! | [`contents`] | reading and writing it from outside |
//! | [`difference`] | what has become of a packet |
//! | [`tables`] | hash tables with limit and expiry, sets of prefixes |
//! | [`streams`] | streams of TCP, put together from segments |
//! | [`host`] | the world outside, as a trait |
//! | [`vlan`] | the VLAN tag of a packet |
//! | [`vm`] | Lua states, rules, deferred work |
//! | `syntax` | a script as a tree, its names resolved |
//! | [`compile`] | the kernel tier: from the tree to eBPF |
//! | [`testing`] | tests that scripts carry |
//! | [`trace`] | which lines a packet goes through, and what they do |
//! | [`pcap`] | captures, for these tests |

#![forbid(unsafe_code)]

pub mod annotations;
pub mod checksum;
pub mod compile;
pub mod contents;
pub mod difference;
pub mod entry;
pub mod host;
pub mod kind;
pub mod link;
pub mod logged;
pub mod matching;
pub mod metric;
pub mod mirror;
pub mod packet;
pub mod pcap;
pub mod protocol;
pub mod store;
pub mod streams;
mod syntax;
pub mod tables;
pub mod testing;
pub mod trace;
pub mod vlan;
pub mod vm;
