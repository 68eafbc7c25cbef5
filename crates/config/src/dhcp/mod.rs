//! `[network.dhcp]`: IPv4 addresses that a network's hosts are leased.

pub(crate) mod table;

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use router::hosts::{Dhcp, FixedHost, dnsmasq};
use toml::Spanned;
use wire::ethernet::MacAddress;

use crate::converter::Converter;
use crate::report::Finding;
use crate::section::Given;
use crate::value::{self, Problem, duration, problem};
use table::{DhcpTable, HostTable};

/// More addresses would be more leases than dnsmasq handles well.
const MOST: u32 = 65_536;
const MOST_HOSTS: usize = 10_000;

impl Converter<'_> {
    /// What a network leases, whose address this is.
    pub(crate) fn dhcp(&mut self, given: &Given<DhcpTable>, ipv4: Option<Ipv4Net>) -> Option<Option<Dhcp>> {
        if given.is_wrong() {
            return None;
        }
        let Some(table) = given.given() else { return Some(None) };
        let Some(net) = ipv4 else {
            let help = "add the gateway's own to the [[network]], like ipv4 = \"192.168.1.1/24\"";
            self.refuse(given.span(), "dhcp", problem_of("the network has no IPv4 address", help));
            return None;
        };
        if !(8..=30).contains(&net.prefix_len()) {
            let help = "hosts, the gateway and the network itself need addresses: /8 to /30, usually /24";
            self.refuse(
                given.span(),
                "dhcp",
                problem_of(format!("{net} has no room for hosts, or too much"), help),
            );
            return None;
        }
        let table = table.get_ref();
        let range = self.optional(&table.range, |text| range(text, net));
        let lease = self.value(&table.lease, |text| {
            let most = Duration::from_secs(365 * 86_400);
            let lease = duration(text, Duration::from_secs(120)..=most, "write 2m to 365d")?;
            if lease.subsec_nanos() == 0 {
                Ok(lease)
            } else {
                problem("not in whole seconds", "write one like 12h")
            }
        });
        let dns = self.each(&table.dns, |text| {
            text.parse().or_else(|_| problem("not an IPv4 address", "write one like \"192.0.2.53\""))
        });
        let hosts: Vec<_> =
            table.host.list().iter().map(|host| self.fixed_host(host.get_ref(), net)).collect();
        let hosts = hosts.into_iter().collect::<Option<Vec<_>>>();
        let hosts = hosts.filter(|hosts| self.are_different(hosts, table.host.list()));
        let (first, last) = range?.unwrap_or_else(|| half(net));
        Some(Some(Dhcp { first, last, lease: lease?, dns: dns?, hosts: hosts? }))
    }

    fn fixed_host(&mut self, given: &HostTable, net: Ipv4Net) -> Option<FixedHost> {
        let name = self.value(&given.name, host_name);
        let mac = self.value(&given.mac, |text| match MacAddress(value::mac(text)?) {
            mac if mac.is_multicast() || mac == MacAddress::default() => {
                problem("not the address of a host", "write the host's, as its network settings show it")
            }
            mac => Ok(mac),
        });
        let address = self.value(&given.address, |text| host_address(text, net));
        Some(FixedHost { name: name?, mac: mac?, address: address? })
    }

    /// Whether no two hosts of a network have the same name, link-layer address or address.
    fn are_different(&mut self, hosts: &[FixedHost], tables: &[Spanned<HostTable>]) -> bool {
        if let Some(one_more) = tables.get(MOST_HOSTS) {
            let help = "let the others have addresses of the range";
            self.report(Finding::error(one_more.span(), "too many hosts", "one more than 10000", help));
            return false;
        }
        let mut good = true;
        let mut seen = std::collections::HashMap::new();
        for (host, table) in hosts.iter().zip(tables) {
            let given = table.get_ref();
            for (key, value, place) in [
                ("name", host.name.to_ascii_lowercase(), given.name.span()),
                ("mac", host.mac.to_string(), given.mac.span()),
                ("address", host.address.to_string(), given.address.span()),
            ] {
                let title = format!("two hosts have the {key} {value}");
                if let Some(first) = seen.insert((key, value), place.clone()) {
                    let help = format!("each host needs its own {key}");
                    self.report(Finding::error(place, title, "the second", help).related(first, "the first"));
                    good = false;
                }
            }
        }
        good
    }
}

fn problem_of(label: impl Into<String>, help: &str) -> Problem {
    Problem { label: label.into(), help: help.to_owned() }
}

/// A label of DNS that a host may have (RFC 1123 section 2.1).
pub(crate) fn is_host_label(text: &str) -> bool {
    let plain = text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    (1..=63).contains(&text.len()) && plain && !text.starts_with('-') && !text.ends_with('-')
}

/// What a host may be called, which nothing else is.
pub(crate) fn host_name(text: &str) -> Result<String, Problem> {
    if [dnsmasq::GATEWAY, "localhost"].iter().any(|taken| text.eq_ignore_ascii_case(taken)) {
        return problem("means something else already", "choose another name");
    }
    if is_host_label(text) {
        return Ok(text.to_owned());
    }
    problem("not a name for a host", "1 to 63 letters, digits and -, without the domain, like \"printer\"")
}

fn range(text: &str, net: Ipv4Net) -> Result<(Ipv4Addr, Ipv4Addr), Problem> {
    let (lower, upper) = (net.network().to_bits() + 1, net.broadcast().to_bits() - 1);
    let help = format!(
        "write the first and the last address, of {} to {}, like \"{}-{}\"",
        Ipv4Addr::from(lower),
        Ipv4Addr::from(upper),
        half(net).0,
        half(net).1
    );
    let address = |text: &str| text.trim().parse::<Ipv4Addr>().ok();
    let Some((Some(first), Some(last))) =
        text.split_once('-').map(|(first, last)| (address(first), address(last)))
    else {
        return problem("not a range of IPv4 addresses", help);
    };
    let fits = |address: Ipv4Addr| (lower..=upper).contains(&address.to_bits());
    if !fits(first) || !fits(last) {
        return problem(format!("not in the network {}", net.trunc()), help);
    }
    if first > last {
        return problem("the first address is behind the last", format!("write \"{last}-{first}\""));
    }
    if (first..=last).contains(&net.addr()) {
        return problem(format!("the gateway's own address {} is in it", net.addr()), help);
    }
    if last.to_bits() - first.to_bits() >= MOST {
        return problem("too many addresses", "write a range of at most 65536");
    }
    Ok((first, last))
}

/// The half of the network that the gateway's address is not in, as far as it is addresses of hosts, and no more than can be.
fn half(net: Ipv4Net) -> (Ipv4Addr, Ipv4Addr) {
    let (first, last) = (net.network().to_bits(), net.broadcast().to_bits());
    let middle = first + (last - first) / 2 + 1;
    let own = net.addr().to_bits();
    let (lower, upper) = if own < middle { (middle, last - 1) } else { (first + 1, middle - 1) };
    (lower.into(), upper.min(lower + (MOST - 1)).into())
}

fn host_address(text: &str, net: Ipv4Net) -> Result<Ipv4Addr, Problem> {
    let Ok(address) = text.parse::<Ipv4Addr>() else {
        return problem("not an IPv4 address", "write the host's, like \"192.168.1.5\"");
    };
    if address == net.addr() {
        return problem("the gateway's own address", "write another one of the network");
    }
    if !net.contains(&address) || [net.network(), net.broadcast()].contains(&address) {
        let help = "write one that is for hosts there";
        return problem(format!("not in the network {}", net.trunc()), help);
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_range_it_is_the_half_without_the_gateway() {
        let half_of = |text: &str| {
            let (first, last) = half(text.parse().unwrap());
            format!("{first}-{last}")
        };
        assert_eq!(half_of("192.168.1.1/24"), "192.168.1.128-192.168.1.254");
        assert_eq!(half_of("192.168.1.254/24"), "192.168.1.1-192.168.1.127");
        assert_eq!(half_of("192.168.1.1/30"), "192.168.1.2-192.168.1.2");
        assert_eq!(half_of("192.168.1.2/30"), "192.168.1.1-192.168.1.1");
        assert_eq!(half_of("10.0.0.1/8"), "10.128.0.0-10.128.255.255");
    }

    proptest::proptest! {
        #[test]
        fn what_is_leased_is_in_the_network_and_not_the_gateways(bits: u32, length in 8u8..=30, text: String) {
            let net = Ipv4Net::new(bits.into(), length).unwrap();
            let is_host = net.addr() != net.network() && net.addr() != net.broadcast();
            let (first, last) = half(net);
            proptest::prop_assert!(first <= last && net.contains(&first) && net.contains(&last));
            proptest::prop_assert!(!is_host || !(first..=last).contains(&net.addr()));
            let _ = (range(&text, net), host_address(&text, net), host_name(&text));
        }
    }
}
