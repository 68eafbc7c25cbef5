//! The table that keeps what is behind a tunnel's peers off the external interface: nothing for them leaves by it, nothing
//! from them comes in by it. Routes alone do not see to that. A neighbor's router advertisement makes one for any /64, which
//! goes before that of a shorter prefix, and before that of the same one by its metric; RFC 4861, 6.3.4, leaves it no choice.
//!
//! What other tunnels exchange past this one is dropped by whatever interface it goes: their peers may be reached by another
//! uplink, or over IPv4, than where this tunnel hops.
//!
//! The table is there as long as the routes that refuse what the tunnel carries: also when the tunnel is down.

use std::net::SocketAddr;

use ipnet::{IpNet, Ipv6Net};

use crate::nft;

/// Counts packets that came in by the external interface from behind the tunnel, and other tunnels' past this one.
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
    /// What other tunnels exchange past this one.
    pub strays: &'a [Stray],
}

/// A flow of UDP that is to go through the tunnel, and would go past it, between addresses that are not behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stray {
    /// Its port at this host.
    pub port: u16,
    /// Its other end.
    pub remote: SocketAddr,
}

/// The table's name, in the family `inet`.
#[must_use]
pub fn table_name(tunnel: &str) -> String {
    nft::table_name(tunnel) + "-outside"
}

/// Packets that came in past the tunnel and were dropped, since the table was made; none without the table.
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
        // A host behind may have a tunnel of its own between the same ports: what is forwarded is not this one's.
        let leaving = self.strays("oifname", "sport", "daddr", "dport", "fib saddr type local drop");
        let arriving = self.strays(
            "iifname",
            "dport",
            "saddr",
            "sport",
            &format!("fib daddr type local counter name {ARRIVED} drop"),
        );
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
             {leaving}\
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
             {arriving}\
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

    /// Rules for strays, with the words for their ends that hold in one direction. By the tunnel's own device they go through
    /// the tunnel.
    fn strays(&self, interface: &str, port: &str, address: &str, remote_port: &str, verdict: &str) -> String {
        let tunnel = self.tunnel;
        let rule = |(version, is_ipv4): (&str, bool)| {
            let strays = self.strays.iter().filter(|stray| stray.remote.is_ipv4() == is_ipv4);
            let element =
                |Stray { port, remote }: &Stray| format!("{port} . {} . {}", remote.ip(), remote.port());
            let elements: Vec<_> = strays.map(element).collect();
            let ends =
                format!("{interface} != \"{tunnel}\" udp {port} . {version} {address} . udp {remote_port}");
            match elements.is_empty() {
                true => String::new(),
                false => format!("\t\t{ends} {{ {} }} {verdict}\n", elements.join(", ")),
            }
        };
        [("ip", true), ("ip6", false)].map(rule).concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_is_dropped_in_both_directions_and_nothing_else_of_its_port() {
        let strays = ["192.0.2.1:7", "[2001:db8::1]:8", "[2001:db8::2]:9"]
            .map(|remote| Stray { port: 51_820, remote: remote.parse().unwrap() });
        let outside = Outside {
            tunnel: "t",
            external: "eth0",
            prefix: "2001:db8:a::/64".parse().unwrap(),
            behind: &[],
            here: &[],
            strays: &strays,
        };
        let text = outside.render();
        for rule in [
            "oifname != \"t\" udp sport . ip daddr . udp dport { 51820 . 192.0.2.1 . 7 } fib saddr type local drop",
            "oifname != \"t\" udp sport . ip6 daddr . udp dport { 51820 . 2001:db8::1 . 8, 51820 . 2001:db8::2 . 9 } fib saddr type local drop",
            "iifname != \"t\" udp dport . ip saddr . udp sport { 51820 . 192.0.2.1 . 7 } fib daddr type local counter name arrived drop",
        ] {
            assert!(text.contains(rule), "{text}");
        }
        assert!(!Outside { strays: &[], ..outside }.render().contains("udp"));
    }
}
