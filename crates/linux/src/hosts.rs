//! The table that keeps what this machine sends to protected hosts off every way but a tunnel's device, and what they send
//! off every way but that one: beside the rules that lead there (see [`crate::netlink::Rule`]), which somebody may take away.
//!
//! What goes by other interfaces, and what comes in by them, is IKE, AH, ESP and neighbor discovery alone. It is about what
//! this machine itself sends and receives; what it forwards is none of its business. Like the rules, it outlives the
//! tunnel: nothing is in clear when that has died.

use ipnet::IpNet;

use crate::nft;

/// Counts packets that came in by another interface and were none of IPsec.
const IN_CLEAR: &str = "in-clear";

/// Which hosts, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts<'a> {
    /// The tunnel's name, which is that of its TUN device, too.
    pub tunnel: &'a str,
    /// The hosts.
    pub hosts: &'a [IpNet],
    /// The mark of the tunnel's own packets.
    pub mark: u32,
    /// UDP ports of this end that the tunnel's own packets come to.
    pub ports: [u16; 2],
}

/// The table's name, in the family `inet`.
#[must_use]
pub fn table_name(tunnel: &str) -> String {
    nft::table_name(tunnel) + "-hosts"
}

/// Packets that came in by another interface, were none of IPsec, and were dropped; none without the table.
pub fn in_clear(tunnel: &str) -> u64 {
    crate::ruleset::counted_packets(crate::ruleset::Family::Inet, &table_name(tunnel), IN_CLEAR).unwrap_or(0)
}

impl Hosts<'_> {
    /// A script of nft that makes the table, or gives it other contents.
    #[must_use]
    pub fn render(&self) -> String {
        let Hosts { tunnel, hosts, mark, ports: [ike, nat] } = self;
        let table = table_name(tunnel);
        let (emptied, sets) = nft::network_sets(&table, &[("hosts", hosts.iter().collect())]);
        format!(
            "add table inet {table}\n\
             flush table inet {table}\n\
             {emptied}\
             table inet {table} {{\n\
             {sets}\
             \tcounter {IN_CLEAR} {{\n\t}}\n\
             \tchain input {{\n\
             \t\ttype filter hook input priority -149; policy accept;\n\
             \t\tiifname {{ \"{tunnel}\", \"lo\" }} accept\n\
             \t\tmeta l4proto {{ esp, ah }} accept\n\
             \t\tudp dport {{ {ike}, {nat} }} accept\n\
             \t\ticmpv6 type {{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert }} accept\n\
             \t\tip6 saddr @hosts6 counter name \"{IN_CLEAR}\" drop\n\
             \t\tip saddr @hosts4 counter name \"{IN_CLEAR}\" drop\n\
             \t}}\n\
             \tchain output {{\n\
             \t\ttype filter hook output priority -149; policy accept;\n\
             \t\toifname {{ \"{tunnel}\", \"lo\" }} accept\n\
             \t\tmeta mark {mark:#x} accept\n\
             \t\ticmpv6 type {{ nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert }} accept\n\
             \t\tip6 daddr @hosts6 drop\n\
             \t\tip daddr @hosts4 drop\n\
             \t}}\n\
             }}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_in_the_set_of_its_version_and_without_hosts_there_are_none() {
        let hosts = ["192.0.2.2/32", "2001:db8::b/128"].map(|host| host.parse().unwrap());
        let of = |hosts: &[IpNet]| Hosts { tunnel: "t", hosts, mark: 7, ports: [500, 4500] }.render();
        let script = of(&hosts);
        assert!(script.contains(
            "set hosts4 { type ipv4_addr; flags interval; auto-merge; elements = { 192.0.2.2/32 } }"
        ));
        assert!(script.contains("elements = { 2001:db8::b/128 } }"), "{script}");
        assert!(!of(&[]).contains("elements"));
    }
}
