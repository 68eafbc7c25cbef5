//! The program `nft`, and the table that keeps a hopping prefix dark and out of connection tracking.
//!
//! Who sends something to an address of the prefix that no endpoint expects gets no answer of any kind: no echo, no
//! reset, no port unreachable (which the kernel would send from the gateway's real address). What the table lets
//! through is a datagram for which there is a socket bound to that very address (`socket wildcard 0`: connected
//! ones match their peer only), and ICMPv6 errors, which the kernel never answers.
//!
//! Extension headers could be answered before any rule of netfilter's usual hooks sees the packet: an option that the
//! kernel does not know, a routing header, a fragment whose rest never comes. So a second table, of the family `netdev`,
//! lets nothing but UDP and ICMPv6 in at the external interface, before the kernel looks at the packet; at other interfaces
//! a chain does that is first of all. Only hop-by-hop options, which nobody but a neighbor can send, come before that.
//!
//! The rules are handed to the `nft` program as text, all or nothing. Whether they are still there is asked of the kernel itself
//! ([`ruleset`]).

use std::io::Write as _;
use std::net::Ipv6Addr;
use std::process::{Command, Output, Stdio};

use ipnet::{IpNet, Ipv6Net};

use crate::error::{Context, Error, Result};
use crate::ruleset::{self, Family};

/// Counts packets whose source is behind the tunnel, and that came from elsewhere.
const INNER: &str = "inner";

/// How a hopping prefix reaches this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixDelivery {
    /// Routed to it: all of the prefix is ours, and all of it dark.
    Routed,
    /// The prefix of the link that the external interface is on, shared with the router and other hosts: what arrives
    /// through that interface, or is local, is dark, but for the interface's real addresses. Neighbor discovery
    /// between others is none of the table's business, and passes.
    OnLink,
}

/// The table's name. Whatever is in it is ours.
#[must_use]
pub fn table_name(tunnel: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    format!("sidestep-{}", tunnel.chars().map(plain).collect::<String>())
}

/// What is to be dark, and what may come in from where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DarkPrefix<'a> {
    /// The tunnel's name, which is that of its TUN device, too.
    pub tunnel: &'a str,
    /// The interface towards the network.
    pub external: &'a str,
    /// Where the node hops.
    pub prefix: Ipv6Net,
    /// How it reaches the node.
    pub delivery: PrefixDelivery,
    /// The addresses in it that the host really has and answers for.
    pub own: &'a [Ipv6Addr],
    /// What is behind the tunnel: packets from there that come in by another interface are dropped.
    pub behind: &'a [Ipv6Net],
}

/// Makes a prefix dark, and runs another script in the same transaction: all of it or nothing. Tables of that name get other
/// contents in one step. Their chains stay, if they can: with each one that goes the kernel drops all packets of the namespace that
/// wait in a queue for a program's verdict. Returns whether the external interface filters before the kernel looks at packets.
///
/// Where the kernel has no connection tracking there is nothing to be exempt from, and the exemption is left out; where it
/// has no hook at ingress, so is that.
pub fn darken(dark: &DarkPrefix<'_>, beside: &str) -> Result<bool> {
    let mut result = Ok(true);
    // A table that somebody else made may have chains that are not like ours: then it goes first.
    for is_replaced in [false, true] {
        for (at_ingress, exempt) in [(true, true), (true, false), (false, true), (false, false)] {
            let before = if is_replaced { replaced(dark.tunnel, at_ingress) } else { String::new() };
            let script = before + beside + &render(dark, at_ingress, exempt);
            result = run_script(&script).map(|()| at_ingress);
            // An error with a number is that nft cannot be run.
            if result.as_ref().err().is_none_or(|error| error.raw_os_error().is_some()) {
                return result;
            }
        }
    }
    result
}

/// What removes the tables, whether or not they are there.
fn replaced(tunnel: &str, at_ingress: bool) -> String {
    let families = if at_ingress { &["ip6", "netdev"][..] } else { &["ip6"] };
    let table = table_name(tunnel);
    families
        .iter()
        .map(|family| format!("add table {family} {table}\ndelete table {family} {table}\n"))
        .collect()
}

/// A table without its counters, as text; empty if there is none.
///
/// # Errors
/// Where nft cannot be run.
pub fn listed(family: &str, table: &str) -> Result<String> {
    let output = nft(&["--stateless", "list", "table", family, table], "")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Packets that were dropped because their source is behind the tunnel, since the table was made; none where no IPv6 is
/// behind it, or there is no table.
pub fn inner_drops(tunnel: &str) -> u64 {
    ruleset::counted_packets(Family::Ip6, &table_name(tunnel), INNER).unwrap_or(0)
}

/// Removes the tables. Returns whether there were some.
pub fn remove(tunnel: &str) -> Result<bool> {
    let at_ingress = remove_table("netdev", &table_name(tunnel));
    Ok(remove_table("ip6", &table_name(tunnel))? | at_ingress.unwrap_or(false))
}

/// Removes a table. Returns whether it was there.
pub(crate) fn remove_table(family: &str, table: &str) -> Result<bool> {
    let output = nft(&["delete", "table", family, table], "")?;
    if output.status.success() {
        return Ok(true);
    }
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("No such file or directory") {
        return Ok(false);
    }
    Err(Error::other(format!("nft delete table {family} {table}"), first_line(&message)))
}

/// Runs a script of nft, all of it or nothing.
///
/// # Errors
/// What nft says, in its first line.
pub fn apply(script: &str) -> Result<()> {
    run(script, "nft -f -")
}

/// A table of the family `inet` as nft lists it, in JSON or as text that nft reads again. None where there is none.
///
/// # Errors
/// What nft says, in its first line.
pub fn list_inet(table: &str, json: bool) -> Result<Option<String>> {
    list("inet", table, json)
}

/// A table of another family in JSON, likewise.
///
/// # Errors
/// What nft says, in its first line.
pub fn list_json(family: &str, table: &str) -> Result<Option<String>> {
    list(family, table, true)
}

fn list(family: &str, table: &str, json: bool) -> Result<Option<String>> {
    let arguments = ["-j", "list", "table", family, table];
    let output = nft(if json { &arguments } else { &arguments[1..] }, "")?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    if message.contains("No such file or directory") {
        return Ok(None);
    }
    Err(Error::other(format!("nft list table {family} {table}"), first_line(&message)))
}

/// All tables of this network namespace, in JSON.
///
/// # Errors
/// Where nft cannot be run, or the kernel tells it nothing: without privileges.
pub fn ruleset() -> Result<String> {
    let output = nft(&["--json", "list", "ruleset"], "")?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::other("nft list ruleset", first_line(&String::from_utf8_lossy(&output.stderr))))
}

/// The script that [`darken`] runs.
#[must_use]
pub fn render(dark: &DarkPrefix<'_>, at_ingress: bool, exempt_from_tracking: bool) -> String {
    let DarkPrefix { tunnel, external, delivery, own, .. } = dark;
    let table = table_name(tunnel);
    let prefix = dark.prefix.trunc();
    let elements =
        if own.is_empty() { String::new() } else { format!("\n\t\telements = {{ {} }}", addresses(own)) };
    let own = format!("\tset own {{\n\t\ttype ipv6_addr{elements}\n\t}}\n");
    let into = format!("ip6 daddr {prefix} ip6 daddr != @own");
    let conditions = match delivery {
        PrefixDelivery::Routed => vec![into.clone()],
        PrefixDelivery::OnLink => {
            vec![format!("iifname \"{external}\" {into}"), format!("{into} fib daddr type local")]
        }
    };
    let each = |verdict: &str| -> String {
        conditions.iter().map(|condition| format!("\t\t{condition} {verdict}\n")).collect()
    };
    let untracked = if exempt_from_tracking {
        format!(
            "\tchain untracked_in {{\n\
             \t\ttype filter hook prerouting priority -300; policy accept;\n\
             \t\t{into} notrack\n\
             \t}}\n\
             \tchain untracked_out {{\n\
             \t\ttype filter hook output priority -300; policy accept;\n\
             \t\tip6 saddr {prefix} ip6 saddr != @own notrack\n\
             \t}}\n"
        )
    } else {
        String::new()
    };
    // The route back decides, so that networks that are reached otherwise stay so; there is none while the tunnel is down,
    // but one that refuses. Looking for a route takes some microseconds, so nobody does who is behind no peer. What is for
    // the hopping prefix comes from the peer, whose address may be behind the tunnel, too.
    let inner = if dark.behind.is_empty() {
        String::new()
    } else {
        let behind: Vec<String> = dark.behind.iter().map(|prefix| prefix.trunc().to_string()).collect();
        format!(
            "\tset behind {{\n\t\ttype ipv6_addr\n\t\tflags interval\n\t\tauto-merge\n\
             \t\telements = {{ {} }}\n\t}}\n\
             \tcounter {INNER} {{\n\t}}\n\
             \tchain inner {{\n\
             \t\ttype filter hook prerouting priority -140; policy accept;\n\
             \t\tiifname \"{tunnel}\" accept\n\
             \t\tip6 saddr != @behind accept\n\
             \t\tip6 saddr != fe80::/10 fib saddr oifname \"{tunnel}\" jump outside\n\
             \t\tfib saddr oif missing jump outside\n\
             \t}}\n\
             \tchain outside {{\n\
             \t\t{into} return\n\
             \t\tcounter name \"{INNER}\" drop\n\
             \t}}\n",
            behind.join(", ")
        )
    };
    let early = if at_ingress {
        // A unicast solicitation of a neighbor that is known, or its answer, is for an address that is in use.
        format!(
            "add table netdev {table}\n\
             flush table netdev {table}\n\
             add set netdev {table} own {{ type ipv6_addr; }}\n\
             flush set netdev {table} own\n\
             table netdev {table} {{\n\
             {own}\
             \tchain dark {{\n\
             \t\tip6 nexthdr udp accept\n\
             \t\tip6 nexthdr icmpv6 icmpv6 type {{ destination-unreachable, packet-too-big, time-exceeded, \
             parameter-problem, nd-neighbor-solicit, nd-neighbor-advert }} accept\n\
             \t\tdrop\n\
             \t}}\n\
             \tchain ingress {{\n\
             \t\ttype filter hook ingress device \"{external}\" priority -500; policy accept;\n\
             \t\t{into} goto dark\n\
             \t}}\n\
             }}\n"
        )
    } else {
        String::new()
    };
    // Protocols by words of nft's own: other names it looks up in /etc/protocols, which small systems are without.
    let (first, darkness) = (each("ip6 nexthdr != { udp, icmpv6 } drop"), each("goto dark"));
    // Adding before flushing makes that succeed whether or not the table is there.
    // An ICMPv6 error for an address that is no longer local must not be forwarded back to the link.
    format!(
        "add table ip6 {table}\n\
         flush table ip6 {table}\n\
         add set ip6 {table} own {{ type ipv6_addr; }}\n\
         flush set ip6 {table} own\n\
         add set ip6 {table} behind {{ type ipv6_addr; flags interval; auto-merge; }}\n\
         flush set ip6 {table} behind\n\
         table ip6 {table} {{\n\
         {own}\
         \tchain dark {{\n\
         \t\tmeta l4proto udp socket wildcard 0 accept\n\
         \t\ticmpv6 type {{ destination-unreachable, packet-too-big, time-exceeded, parameter-problem }} \
         fib daddr type local accept\n\
         \t\tdrop\n\
         \t}}\n\
         \tchain headers {{\n\
         \t\ttype filter hook prerouting priority -450; policy accept;\n\
         {first}\
         \t}}\n\
         \tchain prerouting {{\n\
         \t\ttype filter hook prerouting priority -150; policy accept;\n\
         {darkness}\
         \t}}\n\
         {inner}\
         {untracked}\
         }}\n\
         {early}"
    )
}

fn addresses(own: &[Ipv6Addr]) -> String {
    own.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn run_script(script: &str) -> Result<()> {
    run(script, "nft -f - (needs nftables 0.9.7 or later, and Linux 5.10 with nft_socket and nft_fib_ipv6)")
}

fn run(script: &str, what: &'static str) -> Result<()> {
    let output = nft(&["-f", "-"], script)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::other(what, first_line(&String::from_utf8_lossy(&output.stderr))))
}

fn nft(arguments: &[&str], input: &str) -> Result<Output> {
    let spawn = |program: &str| {
        Command::new(program)
            .args(arguments)
            // Times of the day are written in UTC, and would be taken for those of the time zone.
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    };
    // /usr/sbin is not on the path of every user and service.
    let mut child = spawn("nft")
        .or_else(|_| spawn("/usr/sbin/nft"))
        .context(|| "run nft (is it installed? `apt install nftables`)")?;
    if let Some(mut stdin) = child.stdin.take() {
        // If nft ends before it has read everything, its own message says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().context(|| "wait for nft")
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or("no message").to_owned()
}

/// Sets of networks for a table of the family `inet`, one for each version of IP, `NAME4` and `NAME6`: what empties them, and
/// what they are, within the table.
pub(crate) fn network_sets(table: &str, named: &[(&str, Vec<&IpNet>)]) -> (String, String) {
    let (mut emptied, mut sets) = (String::new(), String::new());
    for (name, networks) in named {
        for (version, kind) in [(4, "ipv4_addr"), (6, "ipv6_addr")] {
            let of_kind = |net: &&&IpNet| net.addr().is_ipv4() == (version == 4);
            let networks: Vec<_> =
                networks.iter().filter(of_kind).map(|net| net.trunc().to_string()).collect();
            let set = format!("type {kind}; flags interval; auto-merge;");
            emptied += &format!("add set inet {table} {name}{version} {{ {set} }}\n");
            emptied += &format!("flush set inet {table} {name}{version}\n");
            let elements = match networks.is_empty() {
                true => String::new(),
                false => format!(" elements = {{ {} }}", networks.join(", ")),
            };
            sets += &format!("\tset {name}{version} {{ {set}{elements} }}\n");
        }
    }
    (emptied, sets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_name_becomes_a_table_name_that_nft_takes_unquoted() {
        assert_eq!(table_name("mt6d0"), "sidestep-mt6d0");
        assert_eq!(table_name("a; flush ruleset"), "sidestep-a__flush_ruleset");
    }

    #[test]
    fn host_bits_of_the_prefix_do_not_reach_the_rules() {
        let dark = DarkPrefix {
            tunnel: "t",
            external: "eth0",
            prefix: "2001:db8::1/64".parse().unwrap(),
            delivery: PrefixDelivery::Routed,
            own: &[],
            behind: &[],
        };
        let script = render(&dark, true, false);
        assert!(script.contains("ip6 daddr 2001:db8::/64 "), "{script}");
        assert!(!script.contains("notrack"));
        // What nft would look up in a file.
        assert!(!script.contains("ipv6-icmp"), "{script}");
    }
}
