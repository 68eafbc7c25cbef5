//! The table that keeps what is behind a tunnel's peers off the external interface: nothing for them leaves by it, nothing
//! from them comes in by it. Routes alone do not see to that. A neighbor's router advertisement makes one for any /64, which
//! goes before that of a shorter prefix, and before that of the same one by its metric; RFC 4861, 6.3.4, leaves it no choice.
//!
//! It is there as long as the routes that refuse what the tunnel carries: also when the tunnel is down.

use ipnet::{IpNet, Ipv6Net};

use crate::nft;

/// Counts packets that came in by the external interface from behind the tunnel.
const ARRIVED: &str = "arrived";

/// What is on either side of the external interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside<'a> {
    /// The tunnel's name.
    pub tunnel: &'a str,
    /// The interface towards the network.
    pub external: &'a str,
    /// Where the node hops: the tunnel's own packets.
    pub prefix: Ipv6Net,
    /// What is behind the peers.
    pub behind: &'a [IpNet],
    /// Networks of the interface itself that are within those.
    pub here: &'a [IpNet],
}

/// The table's name, in the family `inet`.
#[must_use]
pub fn table_name(tunnel: &str) -> String {
    nft::table_name(tunnel) + "-outside"
}

/// Packets that came in by the external interface from behind the tunnel and were dropped, since the table was made; none
/// without the table.
pub fn arrived(tunnel: &str) -> u64 {
    crate::ruleset::counted_packets(crate::ruleset::Family::Inet, &table_name(tunnel), ARRIVED).unwrap_or(0)
}

impl Outside<'_> {
    /// A script of nft that makes the table, or gives it other contents.
    #[must_use]
    pub fn render(&self) -> String {
        let Outside { tunnel, external, behind, here, .. } = self;
        let (table, prefix) = (table_name(tunnel), self.prefix.trunc());
        let named = [("behind", behind.iter().collect()), ("here", here.iter().collect())];
        let (emptied, sets) = nft::network_sets(&table, &named);
        // Most packets are of nobody behind the tunnel, and cross no rule but those that find that out.
        // Adding before flushing makes that succeed whether or not the table is there.
        format!(
            "add table inet {table}\n\
             flush table inet {table}\n\
             {emptied}\
             table inet {table} {{\n\
             {sets}\
             \tcounter {ARRIVED} {{\n\t}}\n\
             \tchain leaving {{\n\
             \t\ttype filter hook postrouting priority -150; policy accept;\n\
             \t\toifname != \"{external}\" accept\n\
             \t\tip6 saddr {prefix} accept\n\
             \t\tip6 daddr != @behind6 accept\n\
             \t\tip daddr != @behind4 accept\n\
             \t\tip6 daddr @here6 accept\n\
             \t\tip daddr @here4 accept\n\
             \t\tdrop\n\
             \t}}\n\
             \tchain arriving {{\n\
             \t\ttype filter hook prerouting priority -145; policy accept;\n\
             \t\tiifname != \"{external}\" accept\n\
             \t\tip6 daddr {prefix} accept\n\
             \t\tip6 saddr != @behind6 accept\n\
             \t\tip saddr != @behind4 accept\n\
             \t\tip6 saddr @here6 accept\n\
             \t\tip saddr @here4 accept\n\
             \t\tcounter name {ARRIVED} drop\n\
             \t}}\n\
             }}\n"
        )
    }
}
