//! `[dns]`: the gateway's resolver.

pub(crate) mod table;

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use router::firewall::{Policy, Trust};
use router::hosts::{Resolver, TlsServer, Upstream, trust};
use router::site::{Network, Site};

use crate::converter::Converter;
use crate::dhcp::is_host_label;
use crate::document::Document;
use crate::network::{NetworkTable, domain};
use crate::report::Finding;
use crate::value::{Problem, problem};
use table::Servers;

const PORT: u16 = 53;
/// RFC 7858 section 3.1.
const TLS_PORT: u16 = 853;
const TLS: &str = "tls://";

impl Converter<'_> {
    /// The resolver that the file describes, if it does; None where it cannot be.
    pub(crate) fn resolver(&mut self, document: &Document) -> Option<Option<Resolver>> {
        if document.dns.is_wrong() {
            return None;
        }
        let Some(table) = document.dns.given() else { return Some(None) };
        if document.network.is_absent() {
            let help = "add a [[network]] with the hosts that are to ask it";
            self.report(Finding::error(table.span(), "[dns] serves nobody", "there is no network", help));
            return None;
        }
        let table = table.get_ref();
        let upstream = self.value(&table.upstream, upstream);
        let domain_of_all = self.value(&table.domain, |text| Ok(domain(text)?.to_ascii_lowercase()));
        let private = self.each(&table.private_domains, domain);
        Some(Some(Resolver { upstream: upstream?, domain: domain_of_all?, private: private? }))
    }

    /// Names and interfaces of a network are such that its hosts can be served.
    pub(crate) fn can_be_served(&mut self, given: &NetworkTable, name: &str, interface: &str) -> bool {
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
        let mut good = true;
        if !is_host_label(name) {
            let help = "give the network a `name` of letters, digits and -, like \"home\": names of its hosts end with it";
            let title = format!("hosts of network {name:?} cannot be served");
            let label = "not a name that a domain can have";
            self.report(Finding::error(given.name.span_or_table(), title, label, help));
            good = false;
        }
        if !interface.bytes().all(plain) {
            let help = "rename it (`ip link set NAME name lan0`): letters, digits, -, _ and dots";
            let label = "dnsmasq would take this name for something else".to_owned();
            self.refuse(given.interface.span(), "interface", Problem { label, help: help.to_owned() });
            good = false;
        }
        good
    }

    /// What concerns the resolver and the networks: it is asked from some, and asks not itself.
    pub(crate) fn resolver_fits(&mut self, document: &Document, site: &Site) {
        let Some(resolver) = &site.resolver else { return };
        if !site.networks.iter().any(|network| network.resolves) {
            let help = "leave `dns` out of a [[network]], or write dns = \"gateway\" there";
            let label = "each network has other DNS servers";
            self.report(Finding::error(document.dns.span(), "[dns] serves nobody", label, help));
        }
        for (place, (table, network)) in document.network.list().iter().zip(&site.networks).enumerate() {
            let same = |other: &&Network| other.resolves && other.name.eq_ignore_ascii_case(&network.name);
            let before = site.networks[..place].iter().find(same);
            if let Some(other) = before.filter(|other| network.resolves && other.name != network.name) {
                let title =
                    format!("the networks {:?} and {:?} have the same domain", other.name, network.name);
                let help = "names in DNS are the same in upper and lower case: give one of them another name";
                self.report(Finding::error(table.get_ref().name.span_or_table(), title, "the second", help));
            }
        }
        let Upstream::Servers(servers) = &resolver.upstream else { return };
        let own = |server: &&SocketAddr| {
            let is_own =
                |network: &Network| network.ipv4.is_some_and(|net| IpAddr::V4(net.addr()) == server.ip());
            server.port() == PORT && site.networks.iter().any(is_own)
        };
        if let (Some(server), Some(table)) = (servers.iter().find(own), document.dns.get()) {
            let help = "write another server, or another port, where a forwarder listens";
            let label = format!("{server} is this resolver itself");
            self.refuse(table.upstream.span(), "upstream", Problem { label, help: help.to_owned() });
        }
    }

    /// Nobody outside is given addresses or names; who is given an address is told who to ask for names.
    pub(crate) fn served_are_safe(&mut self, document: &Document, site: &Site, policy: Option<&Policy>) {
        for (table, network) in document.network.list().iter().zip(&site.networks) {
            let is_outside = policy.is_some_and(|policy| trust(network, policy) == Some(Trust::Outside));
            if (network.has_server() || network.dhcp6.is_some()) && is_outside {
                let given = table.get_ref();
                let (what, place): (_, Range<usize>) = match (given.dhcp.given(), given.dhcp6.given()) {
                    (Some(dhcp), _) => ("`dhcp`", dhcp.span()),
                    (_, Some(dhcp6)) => ("`dhcp6`", dhcp6.span()),
                    _ => ("[dns]", given.zone.span_or_table()),
                };
                let title = format!("network {:?} cannot have {what}", network.name);
                let help = "put the network into a zone with the trust \"inside\" or \"guest\", or remove it";
                self.report(Finding::error(place, title, "its zone is outside", help));
            }
        }
        for (table, network) in document.network.list().iter().zip(&site.networks) {
            let dhcp = network.dhcp.as_ref().filter(|dhcp| dhcp.dns.is_empty() && !network.resolves);
            if let (Some(_), Some(given)) = (dhcp, table.get_ref().dhcp.given()) {
                self.report(Finding::warning(
                    given.span(),
                    format!("hosts of network {:?} are told of no DNS server by IPv4", network.name),
                    "",
                    "add [dns], and the gateway resolves names; or `dns` here, with the addresses of servers",
                ));
            }
        }
    }
}

fn upstream(given: &Servers) -> Result<Upstream, Problem> {
    const HELP: &str = "write addresses like \"9.9.9.9\", \"2001:db8::53\", or with a port, \"127.0.0.1:5353\" and \"[::1]:5353\"";
    let words = match given {
        Servers::Word(word) if word == "uplinks" => return Ok(Upstream::Uplinks),
        Servers::Word(_) => return problem("not known", "write \"uplinks\", or a list of addresses"),
        Servers::Addresses(words) if words.is_empty() => {
            return problem("an empty list", "leave the key out for those of the uplinks");
        }
        Servers::Addresses(words) => words,
    };
    if words.iter().any(|word| word.starts_with(TLS)) {
        return words.iter().map(|word| tls_server(word)).collect::<Result<_, _>>().map(Upstream::Tls);
    }
    let server = |word: &String| {
        if let Some((address, name)) = word.split_once('#') {
            let help = format!("write \"{TLS}{address}#{name}\" for DNS over TLS");
            return problem(format!("{word:?} has a name, which only a certificate is for"), help);
        }
        let place = match (word.parse::<IpAddr>(), word.parse::<SocketAddr>()) {
            (Ok(address), _) => SocketAddr::from((address, PORT)),
            (_, Ok(SocketAddr::V6(place))) if place.scope_id() != 0 => {
                return problem(format!("{word:?} is link-local"), HELP);
            }
            (_, Ok(place)) if place.port() > 0 => place,
            _ => return problem(format!("{word:?} is not an address"), HELP),
        };
        if !is_elsewhere(place.ip()) {
            return problem(format!("{word:?} is not the address of a server elsewhere"), HELP);
        }
        Ok(place)
    };
    words.iter().map(server).collect::<Result<Vec<_>, _>>().map(Upstream::Servers)
}

/// `tls://ADDRESS#NAME` or `tls://ADDRESS:PORT#NAME`.
fn tls_server(word: &str) -> Result<TlsServer, Problem> {
    const HELP: &str = "write addresses with the name in the server's certificate, like \"tls://9.9.9.9#dns.quad9.net\", or with another port \
                        than 853, \"tls://[2001:db8::53]:8853#dns.example\"";
    let Some(rest) = word.strip_prefix(TLS) else {
        let help = "ask all of them by TLS, or none: by one that is asked in the clear everybody on the way hears the names";
        return problem(format!("{word:?} is asked in the clear, and others by TLS"), help);
    };
    let Some((address, name)) = rest.split_once('#') else {
        return problem(format!("{word:?} has no name that its certificate is for"), HELP);
    };
    let Ok(name) = domain(name) else {
        return problem(format!("{name:?} is not a name that a certificate can be for"), HELP);
    };
    let bracketed = address.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
    let place = match (bracketed.unwrap_or(address).parse::<IpAddr>(), address.parse::<SocketAddr>()) {
        (Ok(address), _) => SocketAddr::from((address, TLS_PORT)),
        (_, Ok(place)) if place.port() > 0 => SocketAddr::from((place.ip(), place.port())),
        _ => return problem(format!("{address:?} in {word:?} is not an address"), HELP),
    };
    if !is_elsewhere(place.ip()) {
        return problem(format!("{word:?} is not the address of a server elsewhere"), HELP);
    }
    Ok(TlsServer { place, name })
}

fn is_elsewhere(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_unspecified() || address.is_multicast() || is_link_local)
}
