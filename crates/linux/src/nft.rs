//! The program `nft`, and the table that keeps a hopping prefix dark and out of connection tracking.
//!
//! Who sends something to an address of the prefix that no endpoint expects gets no answer of any kind: no echo, no
//! reset, no port unreachable (which the kernel would send from the gateway's real address). What the table lets
//! through is a datagram for which there is a socket bound to that very address (`socket wildcard 0`: connected
//! ones match their peer only), and ICMPv6 errors, which the kernel never answers.
//!
//! The rules are handed to the `nft` program as text, all or nothing.

use std::io::Write as _;
use std::net::Ipv6Addr;
use std::process::{Command, Output, Stdio};

use ipnet::Ipv6Net;

use crate::error::{Context, Error, Result};

/// How a hopping prefix reaches this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixDelivery<'a> {
    /// Routed to it: all of the prefix is ours, and all of it dark.
    Routed,
    /// The prefix of the link that this interface is on, shared with the router and other hosts: what arrives
    /// through the interface, or is local, is dark, but for the interface's real addresses. Neighbor discovery
    /// between others is none of the table's business, and passes.
    OnLink(&'a str),
}

/// The table's name. Whatever is in it is ours.
#[must_use]
pub fn table_name(tunnel: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    format!("sidestep-{}", tunnel.chars().map(plain).collect::<String>())
}

/// Makes the prefix dark, but for `own`: the addresses in it that the host really has and answers for.
/// A table of that name gets other contents in one step. Its chains stay, if they can: with each one that goes the kernel
/// drops all packets of the namespace that wait in a queue for a program's verdict.
///
/// Where the kernel has no connection tracking there is nothing to be exempt from, and the exemption is left out.
pub fn darken(tunnel: &str, prefix: Ipv6Net, delivery: PrefixDelivery<'_>, own: &[Ipv6Addr]) -> Result<()> {
    let rendered = |exempt| render(tunnel, prefix, delivery, own, exempt);
    let result = run_script(&rendered(true));
    if !result.as_ref().is_err_and(|error| error.raw_os_error() != Some(libc::ENOENT)) {
        return result;
    }
    if run_script(&rendered(false)).is_ok() {
        return Ok(());
    }
    // A table that somebody else made, with chains that are not like ours.
    remove(tunnel)?;
    run_script(&rendered(true)).or_else(|_| run_script(&rendered(false)))
}

/// Changes which addresses of the prefix are not dark, in one step.
pub fn set_own_addresses(tunnel: &str, own: &[Ipv6Addr]) -> Result<()> {
    let table = table_name(tunnel);
    let mut script = format!("flush set ip6 {table} own\n");
    if !own.is_empty() {
        script += &format!("add element ip6 {table} own {{ {} }}\n", addresses(own));
    }
    run_script(&script)
}

/// Removes the table. Returns whether it was there.
pub fn remove(tunnel: &str) -> Result<bool> {
    remove_table("ip6", &table_name(tunnel))
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
    let arguments = ["-j", "list", "table", "inet", table];
    let output = nft(if json { &arguments } else { &arguments[1..] }, "")?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    if message.contains("No such file or directory") {
        return Ok(None);
    }
    Err(Error::other(format!("nft list table inet {table}"), first_line(&message)))
}

/// Whether there is a table of this family and name. Nothing of what is in it is read.
///
/// # Errors
/// Where nft cannot be run.
pub fn has_table(family: &str, table: &str) -> Result<bool> {
    let output = nft(&["list", "tables", family], "")?;
    let wanted = format!("table {family} {table}");
    Ok(String::from_utf8_lossy(&output.stdout).lines().any(|line| line == wanted))
}

/// Whether a table of the family `inet` has this chain.
///
/// # Errors
/// Where nft cannot be run.
pub fn has_chain(table: &str, chain: &str) -> Result<bool> {
    Ok(nft(&["list", "chain", "inet", table, chain], "")?.status.success())
}

/// Whether the table is there.
pub fn is_dark(tunnel: &str) -> Result<bool> {
    Ok(nft(&["list", "table", "ip6", &table_name(tunnel)], "")?.status.success())
}

/// The script that [`darken`] runs.
#[must_use]
pub fn render(
    tunnel: &str,
    prefix: Ipv6Net,
    delivery: PrefixDelivery<'_>,
    own: &[Ipv6Addr],
    exempt_from_tracking: bool,
) -> String {
    let table = table_name(tunnel);
    let prefix = prefix.trunc();
    let elements =
        if own.is_empty() { String::new() } else { format!("\n\t\telements = {{ {} }}", addresses(own)) };
    let dark = match delivery {
        PrefixDelivery::Routed => format!("\t\tip6 daddr {prefix} ip6 daddr != @own goto dark\n"),
        PrefixDelivery::OnLink(interface) => format!(
            "\t\tiifname \"{interface}\" ip6 daddr {prefix} ip6 daddr != @own goto dark\n\
             \t\tip6 daddr {prefix} ip6 daddr != @own fib daddr type local goto dark\n"
        ),
    };
    let untracked = if exempt_from_tracking {
        format!(
            "\tchain untracked_in {{\n\
             \t\ttype filter hook prerouting priority -300; policy accept;\n\
             \t\tip6 daddr {prefix} ip6 daddr != @own notrack\n\
             \t}}\n\
             \tchain untracked_out {{\n\
             \t\ttype filter hook output priority -300; policy accept;\n\
             \t\tip6 saddr {prefix} ip6 saddr != @own notrack\n\
             \t}}\n"
        )
    } else {
        String::new()
    };
    // Adding before flushing makes that succeed whether or not the table is there.
    // An ICMPv6 error for an address that is no longer local must not be forwarded back to the link.
    format!(
        "add table ip6 {table}\n\
         flush table ip6 {table}\n\
         add set ip6 {table} own {{ type ipv6_addr; }}\n\
         flush set ip6 {table} own\n\
         table ip6 {table} {{\n\
         \tset own {{\n\t\ttype ipv6_addr{elements}\n\t}}\n\
         \tchain dark {{\n\
         \t\tmeta l4proto udp socket wildcard 0 accept\n\
         \t\ticmpv6 type {{ destination-unreachable, packet-too-big, time-exceeded, parameter-problem }} \
         fib daddr type local accept\n\
         \t\tdrop\n\
         \t}}\n\
         \tchain prerouting {{\n\
         \t\ttype filter hook prerouting priority -150; policy accept;\n\
         {dark}\
         \t}}\n\
         {untracked}\
         }}\n"
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
        let script = render("t", "2001:db8::1/64".parse().unwrap(), PrefixDelivery::Routed, &[], false);
        assert!(script.contains("ip6 daddr 2001:db8::/64 "), "{script}");
        assert!(!script.contains("notrack"));
    }
}
