//! The table that keeps what is for a tunnel of IPsec inside it: nothing for the networks behind its remotes leaves by
//! another interface, and nothing from them comes in by one. Routes alone do not see to that: a neighbor's router
//! advertisement, or a DHCP server, makes one that goes before ours, and anybody may flush them.
//!
//! What is for everybody (default routes) is less strict: neighbors of this machine are reached past the tunnel, and so is
//! what other tunnels carry. The tunnel's own datagrams pass, by the ports that they come from; what this machine forwards
//! for others has no such ports.
//!
//! It is there as long as the routes that refuse what the tunnel carries: also when the tunnel is down.

use ipnet::IpNet;

use crate::nft;
pub use crate::outside::table_name;

/// Counts packets that came in by another interface from behind the tunnel.
const ARRIVED: &str = "arrived";
/// Counts packets that were to leave by another interface for behind the tunnel.
const LEAVING: &str = "leaving";
/// Longest prefix that is a default route, or part of one (`::/1`, `2000::/3`).
const PART_OF_DEFAULT: u8 = 3;
/// ARPHRD_NONE: a device without a link below it, as tunnels have.
const NO_LINK: u16 = 65_534;
/// Neighbor discovery, which never leaves its link.
const NEIGHBORS: &str = "nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert";
/// Never behind a tunnel: neighbors, and groups of them.
const ALWAYS_NEAR: [&str; 6] =
    ["fe80::/10", "ff00::/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "127.0.0.0/8"];

/// What is to stay inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The tunnel's name, which is that of its TUN device, too.
    pub tunnel: String,
    /// What is behind the remotes.
    pub behind: Vec<IpNet>,
    /// Networks within it that are at this end all the same.
    pub here: Vec<IpNet>,
    /// Further ones that count where all is behind the tunnel: those of neighbors.
    pub near: Vec<IpNet>,
    /// UDP ports of the tunnel's own datagrams.
    pub ports: Vec<u16>,
}

/// Packets that a tunnel's table has dropped since it was made: those that came in, and those that were to leave.
pub fn dropped(tunnel: &str) -> (u64, u64) {
    let count = |name| {
        crate::ruleset::counted_packets(crate::ruleset::Family::Inet, &table_name(tunnel), name).unwrap_or(0)
    };
    (count(ARRIVED), count(LEAVING))
}

impl Inside {
    /// A script of nft that makes the table, or gives it other contents.
    #[must_use]
    pub fn render(&self) -> String {
        let (Self { tunnel, here, ports, .. }, table) = (self, table_name(&self.tunnel));
        let is_default = |net: &&IpNet| net.prefix_len() <= PART_OF_DEFAULT;
        let (all, behind): (Vec<&IpNet>, Vec<&IpNet>) = self.behind.iter().partition(is_default);
        let always: Vec<IpNet> = ALWAYS_NEAR.iter().filter_map(|net| net.parse().ok()).collect();
        let near: Vec<&IpNet> = here.iter().chain(&self.near).chain(&always).collect();
        let here: Vec<&IpNet> = here.iter().collect();
        let named = [("behind", behind), ("here", here), ("all", all), ("near", near)];
        let (emptied, sets) = nft::network_sets(&table, &named);
        let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        // Adding before flushing makes that succeed whether or not the table is there.
        format!(
            "add table inet {table}\n\
             flush table inet {table}\n\
             {emptied}\
             table inet {table} {{\n\
             {sets}\
             \tcounter {ARRIVED} {{\n\t}}\n\
             \tcounter {LEAVING} {{\n\t}}\n\
             \tchain judge {{\n\
             \t\tip6 daddr @here6 accept\n\
             \t\tip daddr @here4 accept\n\
             \t\tip6 daddr @behind6 counter name {LEAVING} drop\n\
             \t\tip daddr @behind4 counter name {LEAVING} drop\n\
             \t\tmeta oiftype {NO_LINK} accept\n\
             \t\tip6 daddr @near6 accept\n\
             \t\tip daddr @near4 accept\n\
             \t\tip6 daddr @all6 counter name {LEAVING} drop\n\
             \t\tip daddr @all4 counter name {LEAVING} drop\n\
             \t}}\n\
             \tchain forwarded {{\n\
             \t\ttype filter hook forward priority -150; policy accept;\n\
             \t\toifname != \"{tunnel}\" jump judge\n\
             \t}}\n\
             \tchain leaving {{\n\
             \t\ttype filter hook postrouting priority -150; policy accept;\n\
             \t\toifname {{ \"{tunnel}\", \"lo\" }} accept\n\
             \t\tudp sport {{ {ports} }} accept\n\
             \t\tmeta l4proto {{ esp, ah }} accept\n\
             \t\ticmpv6 type {{ {NEIGHBORS} }} accept\n\
             \t\tjump judge\n\
             \t}}\n\
             \tchain arriving {{\n\
             \t\ttype filter hook prerouting priority -145; policy accept;\n\
             \t\tiifname {{ \"{tunnel}\", \"lo\" }} accept\n\
             \t\tfib daddr type local udp dport {{ {ports} }} accept\n\
             \t\tfib daddr type local meta l4proto {{ esp, ah }} accept\n\
             \t\ticmpv6 type {{ {NEIGHBORS} }} accept\n\
             \t\tip6 saddr @here6 accept\n\
             \t\tip saddr @here4 accept\n\
             \t\tip6 saddr @behind6 counter name {ARRIVED} drop\n\
             \t\tip saddr @behind4 counter name {ARRIVED} drop\n\
             \t}}\n\
             }}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_is_in_a_set_of_its_own_and_what_is_near_counts_there_alone() {
        let nets = |nets: &[&str]| nets.iter().map(|net| net.parse().unwrap()).collect::<Vec<IpNet>>();
        let script = Inside {
            tunnel: "t".to_owned(),
            behind: nets(&["::/1", "8000::/1", "10.2.0.0/16"]),
            here: nets(&["10.2.3.0/24"]),
            near: nets(&["192.168.0.0/24"]),
            ports: vec![500, 4500],
        }
        .render();
        for part in [
            "set behind4 { type ipv4_addr; flags interval; auto-merge; elements = { 10.2.0.0/16 } }",
            "set behind6 { type ipv6_addr; flags interval; auto-merge; }",
            "set all6 { type ipv6_addr; flags interval; auto-merge; elements = { ::/1, 8000::/1 } }",
            "elements = { 10.2.3.0/24, 192.168.0.0/24, 169.254.0.0/16",
            "udp sport { 500, 4500 } accept",
        ] {
            assert!(script.contains(part), "{part} is missing in:\n{script}");
        }
    }
}
