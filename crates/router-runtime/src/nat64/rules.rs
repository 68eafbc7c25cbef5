//! The table of nftables that guards the translator, whether there is a firewall or not: only who is inside begins
//! something, and nothing goes by its device but what it is for.

use std::collections::BTreeSet;

use linux::netlink::Link;
use programs::nat64::LENGTH_RULE;
use router::nat64::DEVICE;
use router::site::Site;

use crate::nat::quoted;

/// The table's name; its family is `inet`.
pub(crate) const TABLE: &str = "sidestep-nat64";

/// By how much a packet of IPv4 grows at most: headers of IPv6 and of a fragment in the place of that of IPv4.
const GROWTH: u32 = 28;
/// Headers of IPv4 and TCP.
const IPV4_TCP: u32 = 40;
/// Of Ethernet, where no link says otherwise; and the least of IPv6.
const USUAL_MTU: u32 = 1500;
const LEAST_MTU: u32 = 1280;

/// The MTU of IPv4 on its way to the translator: what fits into all networks as IPv6, even as a fragment. The kernel cuts
/// there what may be cut.
pub(crate) fn ipv4_mtu(site: &Site, links: &[Link]) -> u32 {
    let is_inner = |link: &&Link| site.networks.iter().any(|network| network.interface == link.name);
    let inner = links.iter().filter(is_inner).map(|link| link.mtu);
    inner.min().unwrap_or(USUAL_MTU).max(LEAST_MTU) - GROWTH
}

/// The table as a script of nft; none where nothing is translated.
///
/// A packet crosses twice, as IPv6 and as IPv4, so that each rule costs twice: those of known connections meet the fewest,
/// and those that do not cross none but the first. Whose connection it is of is known on both sides: what comes back is of one
/// that began inside, and of the host that has the address now, whoever had it before. What comes out of the device and
/// goes in again is what this process has put back: of IPv4 its ports are the kernel's work already, which is not to look at it
/// once more, nor to tell its sender of a better way. Nobody makes up addresses of a network that is elsewhere: they would take
/// the places of its hosts. The table stays when the process is killed, until there is another: neither prefix nor pool leave
/// by an uplink, wherever routes lead.
pub(crate) fn script(site: &Site, links: &[Link]) -> Option<String> {
    let nat64 = site.nat64.as_ref()?;
    let is_inner = |name: &&str| site.networks.iter().any(|network| network.interface == *name);
    let carriers = site.uplinks.iter().filter_map(|uplink| Some(uplink.tunnel.as_ref()?.over.as_str()));
    let uplinks = site.uplinks.iter().map(|uplink| uplink.interface.as_str());
    let outer = quoted(uplinks.chain(carriers.filter(|name| !is_inner(name))).collect());
    let wanting = site.uplinks.iter().filter(|uplink| uplink.masquerade);
    let translating = quoted(wanting.map(|uplink| uplink.interface.as_str()).collect::<BTreeSet<_>>());
    // Segments that would be longer would all be refused at first.
    let segment = ipv4_mtu(site, links) - IPV4_TCP;
    let (prefix, pool) = (nat64.prefix, nat64.pool);
    Some(format!(
        "table inet {TABLE} {{\n\
         \tchain forward {{\n\t\ttype filter hook forward priority filter - 5\n\t}}\n\
         \tchain input {{\n\t\ttype filter hook input priority filter - 5\n\t}}\n\
         \tchain output {{\n\t\ttype filter hook output priority filter - 5\n\t}}\n\
         \tchain prerouting {{\n\t\ttype filter hook prerouting priority raw\n\t}}\n\
         \tchain into {{\n\t}}\n\
         \tchain out {{\n\t}}\n\
         \tchain stays {{\n\t}}\n}}\n\
         flush table inet {TABLE}\n\
         add rule inet {TABLE} prerouting iifname \"{DEVICE}\" ip daddr {pool} notrack\n\
         add rule inet {TABLE} forward iifname \"{DEVICE}\" goto out\n\
         add rule inet {TABLE} forward oifname \"{DEVICE}\" goto into\n\
         add rule inet {TABLE} forward oifname {{ {outer} }} goto stays\n\
         add rule inet {TABLE} output oifname \"{DEVICE}\" {LENGTH_RULE}\n\
         add rule inet {TABLE} output oifname {{ {outer} }} icmp type redirect counter drop\n\
         add rule inet {TABLE} output oifname {{ {outer} }} goto stays\n\
         add rule inet {TABLE} input iifname \"{DEVICE}\" ct state != {{ established, related }} counter drop\n\
         add rule inet {TABLE} stays ip6 daddr {prefix} counter drop\n\
         add rule inet {TABLE} stays ip daddr {pool} counter drop\n\
         add rule inet {TABLE} into {LENGTH_RULE}\n\
         add rule inet {TABLE} into meta nfproto ipv4 ct state established,related accept\n\
         add rule inet {TABLE} into meta nfproto ipv4 counter drop\n\
         add rule inet {TABLE} into iifname {{ {outer} }} counter drop\n\
         add rule inet {TABLE} into ct state established,related accept\n\
         add rule inet {TABLE} into fib saddr . iif oif missing counter drop\n\
         add rule inet {TABLE} out oifname \"{DEVICE}\" accept\n\
         add rule inet {TABLE} out meta nfproto ipv6 ct state established,related accept\n\
         add rule inet {TABLE} out meta nfproto ipv6 counter drop\n\
         add rule inet {TABLE} out oifname != {{ {translating} }} counter drop\n\
         add rule inet {TABLE} out ct state invalid counter drop\n\
         add rule inet {TABLE} out tcp flags & (syn | rst) == syn tcp option maxseg size set {segment}\n\
         add rule inet {TABLE} out goto stays\n"
    ))
}
