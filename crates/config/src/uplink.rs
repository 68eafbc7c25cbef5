//! `[[uplink]]`: a way to the Internet.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::Duration;

use router::site::{Delegation, Probing, RouterFrom, Uplink};
use router::transition::{CLAT_IPV4, Kind, Tunnel};
use toml::Spanned;
use toml::de::DeValue;

use crate::bandwidth::BandwidthTable;
use crate::converter::Converter;
use crate::key::Absent::{Default, Otherwise, Required};
use crate::report::Report;
use crate::section::{Period, Value, integer, mismatch, section};
use crate::transition::TransitionTable;
use crate::value::{self, Problem, duration, ipv6_address, problem, routed_prefix};

/// Prefixes of an uplink that is a tunnel: all packets are compared with them.
const MOST_PREFIXES: usize = 7;

section! {
    /// `[[uplink]]`, as it stands in the file.
    UplinkTable = "[[uplink]]" {
        /// The interface.
        interface: String = Required(r#"the interface, like "eth0""#);
        /// Its name in `status` and the log.
        name: String = Otherwise("the interface's");
        /// Its firewall [zone](firewall.md#zones).
        zone: String = Otherwise("`\"wan\"` if the file has no `[[zone]]`");
        /// `"advertised"`: the router that advertises itself; of several that answer, the most preferred one (RFC 4191).
        /// `"fe80::1"`: always this router; an address that is not link-local must be in the network of one of
        /// `addresses`. `"point-to-point"`: the other end of the link, whatever its address.
        router: String = Otherwise("`\"advertised\"`");
        /// Addresses of the gateway on this link, in addition to those from router advertisements.
        addresses: Vec<Spanned<String>> = Otherwise("none");
        /// Prefixes that the provider routes here permanently. Those of different uplinks must not overlap.
        prefixes: Vec<Spanned<String>> = Otherwise("none");
        /// `true`: request a prefix by DHCPv6 (RFC 8415). A number: request a prefix of that length; the provider may
        /// delegate another.
        delegation: PrefixRequest = Default("false");
        /// Hosts beyond the provider's router, pinged to tell whether the uplink works; one reply suffices. Without
        /// probes, a router that answers neighbor solicitations suffices.
        probes: Vec<Spanned<String>> = Otherwise("none");
        /// Time between probes. After three rounds without a reply the next router of the link is tried; when none is
        /// left the uplink counts as failed. After three rounds with one it counts as working again.
        probe_interval: Period = Default(r#""5s""#);
        /// The IPv4 router. The interface's own IPv4 address is either left to [a DHCP
        /// client](gateway.md#ipv4-beside-it), which also sets the router, or one of `addresses`, whose network must
        /// contain the router.
        ipv4_router: String = Otherwise("none");
        /// `true`: IPv4 packets from the networks leave with the interface's address. With a tunnel of 464xlat they always do.
        masquerade: bool = Default("false");
        /// What the line carries, like `{ down = "100Mbit/s", up = "20Mbit/s" }`: queues are kept short, so that a call does
        /// not stutter during a download ([below](gateway.md#uplinkbandwidth-short-queues)).
        bandwidth: BandwidthTable = Otherwise("not shaped");
        /// The uplink is a tunnel:
        /// [below](gateway.md#uplinktunnel-an-uplink-through-a-network-that-lacks-the-other-ip).
        tunnel: TransitionTable = Otherwise("none");
    }
}

/// Whether prefixes are asked for, or the length that is wished for.
#[derive(Debug)]
pub(crate) enum PrefixRequest {
    Any(bool),
    Length(i64),
}

impl Value for PrefixRequest {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "true, false, or the length of a prefix, like 56";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let any = value.get_ref().as_bool().map(PrefixRequest::Any);
        any.or_else(|| integer(value.get_ref()).map(PrefixRequest::Length))
            .or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &Self {
        self
    }
}

impl UplinkTable {
    /// Whether IPv4 of the networks leaves with the interface's address.
    pub(crate) fn masquerades(&self) -> bool {
        self.masquerade.is_true() || self.tunnel.get().is_some_and(TransitionTable::is_clat)
    }
}

impl Converter<'_> {
    pub(crate) fn uplink(&mut self, given: &UplinkTable) -> Option<(Uplink, Probing)> {
        let interface = self.value(&given.interface, value::interface);
        let name = self.optional(&given.name, value::peer_name);
        let router = self.optional(&given.router, router);
        let addresses = self.each(&given.addresses, value::interface_address);
        let prefixes = self.each(&given.prefixes, routed_prefix);
        let delegation = self.value(&given.delegation, delegation);
        let probes = self.each(&given.probes, ipv6_address);
        let interval = self.value(&given.probe_interval, |text| {
            duration(text, Duration::from_secs(1)..=Duration::from_secs(3_600), "write 1s to 1h")
        });
        let ipv4_router = self.optional(&given.ipv4_router, ipv4_router);
        let tunnel = match given.tunnel.given() {
            Some(table) => {
                let tunnel = self.transition(table.get_ref());
                self.tunnel_fits(given, tunnel.as_ref());
                Some(tunnel?)
            }
            None => None,
        };
        let bandwidth = match given.bandwidth.given() {
            Some(table) => Some(self.bandwidth(table.get_ref())?),
            None => None,
        };
        let interface = interface?;
        let standard = if tunnel.is_some() { RouterFrom::PointToPoint } else { RouterFrom::Advertisements };
        let is_clat = tunnel.as_ref().is_some_and(|tunnel| matches!(tunnel.kind, Kind::Clat { .. }));
        let uplink = Uplink {
            name: name?.unwrap_or_else(|| interface.clone()),
            interface,
            router: router?.unwrap_or(standard),
            addresses: if is_clat { vec![IpAddr::V4(CLAT_IPV4).into()] } else { addresses? },
            prefixes: prefixes?,
            delegation: delegation?,
            probes: probes?,
            ipv4_router: ipv4_router?,
            masquerade: given.masquerades(),
            tunnel,
            bandwidth,
        };
        Some((uplink, Probing { interval: interval?, ..Probing::default() }))
    }

    /// What an uplink cannot have that is a tunnel.
    fn tunnel_fits(&mut self, given: &UplinkTable, tunnel: Option<&Tunnel>) {
        let mut refuse = |span: Range<usize>, key: &str, label: &str, help: &str| {
            self.refuse(span, key, Problem { label: label.to_owned(), help: help.to_owned() });
        };
        if let Some(router) = given.router.given().filter(|router| router.get_ref() == "advertised") {
            let help = r#"leave it out: the other end is the router ("point-to-point")"#;
            refuse(router.span(), "router", "no router advertises itself in a tunnel", help);
        }
        if let Some(delegation) = given.delegation.given() {
            let help = "write the broker's prefix as `prefixes`";
            refuse(delegation.span(), "delegation", "not through a tunnel", help);
        }
        if let Some(bandwidth) = given.bandwidth.given() {
            let help = "write it at the uplink that carries the tunnel: both share the line";
            refuse(bandwidth.span(), "bandwidth", "not at a tunnel", help);
        }
        let Some(tunnel) = tunnel else { return };
        if given.interface.text() == Some(&tunnel.over) {
            let help =
                "`interface` is the tunnel's own, which `sidestep up` creates; `over` is an existing one";
            refuse(given.tunnel.span(), "over", "the tunnel's own interface", help);
        }
        if let Some(prefix) = given.prefixes.list().get(MOST_PREFIXES) {
            refuse(prefix.span(), "prefixes", "too many for a tunnel", "write shorter prefixes, at most 7");
        }
        if !tunnel.kind.is_over_ipv6() {
            return;
        }
        if let (Kind::Clat { .. }, Some(first)) = (&tunnel.kind, given.addresses.list().first()) {
            let help = "leave it out: all IPv4 is 192.0.0.1 before it is translated (RFC 7335)";
            refuse(first.span(), "addresses", "not with 464xlat", help);
        }
        let never = given.masquerade.given().filter(|masquerade| !masquerade.get_ref());
        if let (Kind::Clat { .. }, Some(never)) = (&tunnel.kind, never) {
            let help = "leave it out: all IPv4 leaves with one address";
            refuse(never.span(), "masquerade", "464xlat needs it", help);
        }
        for list in [&given.prefixes, &given.probes] {
            if let Some(first) = list.list().first() {
                refuse(first.span(), list.key.name, "IPv6, and the tunnel carries IPv4", "remove it");
            }
        }
    }
}

fn router(text: &str) -> Result<RouterFrom, Problem> {
    match text {
        "advertised" => Ok(RouterFrom::Advertisements),
        "point-to-point" => Ok(RouterFrom::PointToPoint),
        address => address.parse().map(RouterFrom::Address).or_else(|_| {
            problem(
                "not a router",
                r#"write "advertised", "point-to-point", or the router's address, like "fe80::1""#,
            )
        }),
    }
}

fn delegation(wish: &PrefixRequest) -> Result<Option<Delegation>, Problem> {
    match wish {
        PrefixRequest::Any(any) => Ok(any.then(Delegation::default)),
        PrefixRequest::Length(length @ 32..=64) => {
            Ok(Some(Delegation { length: Some(*length as u8), aftr: false }))
        }
        PrefixRequest::Length(_) => {
            problem("out of range", "write a length from 32 to 64, or true for whatever the provider gives")
        }
    }
}

fn ipv4_router(text: &str) -> Result<Ipv4Addr, Problem> {
    text.parse().or_else(|_| problem("not an IPv4 address", "write the router's, like \"192.0.2.1\""))
}
