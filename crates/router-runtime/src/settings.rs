//! Settings of the kernel (`/proc/sys/net`) that a router needs: who listens to router advertisements, who forwards, that
//! nobody is led elsewhere by redirects, and what is counted.

use std::collections::BTreeSet;

use linux::forwarding::IpVersion;
use router::nat64;
use router::site::{RouterFrom, Site};

use crate::nat;

/// Seconds that connections without packets are remembered for, at least: RFC 6092, REC-14, REC-35, REC-40.
const TIMEOUTS: [(&str, u32); 4] = [
    ("udp_timeout", 120),
    ("udp_timeout_stream", 300),
    ("tcp_timeout_established", 7_440),
    ("sctp_timeout_established", 7_440),
];

/// Settings by their path below `/proc/sys/net`, with the least that they are to be.
pub(crate) fn timeouts() -> impl Iterator<Item = (String, u32)> {
    TIMEOUTS.into_iter().map(|(name, seconds)| (format!("netfilter/nf_conntrack_{name}"), seconds))
}

/// Which packets are forwarded.
pub(crate) fn forwarded(site: &Site) -> impl Iterator<Item = IpVersion> {
    let ipv4 = site.networks.iter().any(|network| network.ipv4.is_some())
        || !site.forwards.is_empty()
        || site.nat64.is_some();
    let ipv4 = ipv4.then_some(IpVersion::Ipv4);
    [IpVersion::Ipv6].into_iter().chain(ipv4).filter(|_| *site != Site::default())
}

/// Settings by their path below `/proc/sys/net`, with what they are to be before the machine [forwards](forwarded). Of one
/// that is not there, as where its interface is gone, nothing is wanted.
pub(crate) fn wanted(site: &Site) -> Vec<(String, &'static str)> {
    if *site == Site::default() {
        return Vec::new();
    }
    let mut settings = vec![("ipv4/conf/all/accept_redirects".to_owned(), "0")];
    let mut set = |path: String, value| settings.push((path, value));
    for uplink in &site.uplinks {
        let of_uplink = |name: &str| format!("ipv6/conf/{}/{name}", uplink.interface);
        let listens = uplink.router == RouterFrom::Advertisements;
        // A router listens only where it is told to. The default route is ours to choose; so are prefixes, of which the
        // kernel would take as many as anybody advertises, and routes (RFC 4191).
        set(of_uplink("accept_ra"), if listens { "2" } else { "0" });
        for ours in ["accept_ra_defrtr", "accept_ra_pinfo", "accept_ra_rt_info_max_plen"] {
            set(of_uplink(ours), "0");
        }
    }
    for network in &site.networks {
        set(format!("ipv6/conf/{}/accept_ra", network.interface), "0");
    }
    if site.flows.is_some() {
        // What connections carry, and when they began.
        for told in ["acct", "timestamp"] {
            set(format!("netfilter/nf_conntrack_{told}"), "1");
        }
    }
    for interface in interfaces(site) {
        set(format!("ipv6/conf/{interface}/accept_redirects"), "0");
        set(format!("ipv4/conf/{interface}/accept_redirects"), "0");
    }
    settings
}

/// Settings of interfaces that forward, by their path. The switch for all of them sets each once; somebody may switch one off.
/// Hosts leave a router that is none (RFC 4861 section 7.2.5).
pub(crate) fn forwarding(site: &Site) -> Vec<String> {
    let interfaces = interfaces(site).into_iter().chain(site.nat64.as_ref().map(|_| nat64::DEVICE));
    let versions = |interface| forwarded(site).map(move |version| version.of_interface(interface));
    interfaces.flat_map(versions).collect()
}

fn interfaces(site: &Site) -> BTreeSet<&str> {
    let uplinks = site.uplinks.iter().map(|uplink| uplink.interface.as_str());
    uplinks.chain(site.networks.iter().map(|network| network.interface.as_str())).collect()
}

/// All settings that this site changes, by their path. `filters`: there is a firewall.
pub(crate) fn changed(site: &Site, filters: bool) -> BTreeSet<String> {
    let wanted = wanted(site).into_iter().map(|(path, _)| path);
    let switches = forwarded(site).map(|version| version.switch().to_owned());
    let loose = nat::answering(site);
    let loose = loose.iter().map(|(_, uplink)| format!("ipv4/conf/{}/rp_filter", uplink.interface));
    let timeouts = timeouts().map(|(path, _)| path).filter(|_| filters);
    wanted.chain(switches).chain(forwarding(site)).chain(loose).chain(timeouts).collect()
}
