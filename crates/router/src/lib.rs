//! An IPv6 customer edge router (RFC 7084): what to ask of the kernel, which forwards and filters.
//!
//! Here is decided, from the configuration and from what happens on the links, which rules the firewall has, which
//! prefixes the inner links get, and what routers advertise there. Nothing here asks the kernel itself: time and
//! packets come in as arguments, and scripts of nft, addresses, routes, packets and deadlines go out. The program
//! applies them, as one transaction.
//!
//! # Modules
//!
//! | module | subject |
//! |---|---|
//! | [`advertise`] | what a router advertises on a link, and when |
//! | [`autorate`] | rates that follow how long answers take on a line that carries now more, now less |
//! | [`delegated_prefix`] | which delegated prefixes are believed |
//! | [`delegation`] | a client that asks for prefixes by DHCPv6 |
//! | [`dhcp6`] | addresses for hosts and prefixes for routers behind, by DHCPv6 |
//! | [`firewall`] | zones and rules: what becomes of a packet, and the nftables table that does it |
//! | [`forward`] | ports of an uplink that lead to a host inside |
//! | [`hosts`] | addresses and names that hosts ask the gateway for |
//! | `hop_prefix` | the part of an uplink's prefix that a tunnel hops in |
//! | [`lifetime`] | how long something is valid |
//! | [`link_prefix`], `advertised` | prefixes, DNS servers and translators of an uplink's own link |
//! | [`nat64`] | what a translator between IPv6 and IPv4 is, and what it refuses |
//! | [`pcp`] | port mappings that hosts ask for |
//! | [`plan`] | the addresses and routes that there should be, and what is on offer |
//! | [`rogue`] | routers on the inside that should not be there |
//! | [`site`] | uplinks and networks, as they are configured |
//! | [`transition`] | transition tunnels: what they make of a packet, and what they refuse |
//! | [`uplink`] | what is known of an uplink: link, routers and whether they answer, prefixes, whether it works |

#![forbid(unsafe_code)]

pub mod advertise;
mod advertised;
pub mod autorate;
pub mod delegated_prefix;
pub mod delegation;
pub mod dhcp6;
pub mod firewall;
pub mod forward;
mod hop_prefix;
pub mod hosts;
pub mod lifetime;
pub mod link_prefix;
pub mod nat64;
pub mod pcp;
pub mod plan;
pub mod rogue;
pub mod site;
pub mod transition;
pub mod uplink;
