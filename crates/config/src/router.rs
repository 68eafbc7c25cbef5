//! The router that a file describes, and what concerns several of its tables.

use std::net::IpAddr;
use std::ops::Range;

use ipnet::{IpNet, Ipv6Net};
use router::firewall::defaults::never_outside;
use router::firewall::{Policy, Trust};
use router::plan::subnet;
use router::site::{Probing, RouterFrom, Site, Uplink};
use router::transition::Kind;
use toml::Spanned;

use crate::converter::Converter;
use crate::document::Document;
use crate::firewall::Firewall;
use crate::report::Finding;
use crate::script::Configured;
use crate::section::Given;
use crate::uplink::UplinkTable;
use crate::value::Problem;

/// A gateway as its configuration file describes it: a router, a firewall, or both.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// What it stands between.
    pub site: Site,
    /// How each uplink is probed.
    pub probing: Vec<Probing>,
    /// Its firewall: tables `[[zone]]`, `[firewall]`.
    pub firewall: Option<Firewall>,
    /// Tables `[[script]]` of a file without a tunnel.
    pub scripts: Vec<Configured>,
}

impl Converter<'_> {
    /// What a file's gateway stands between, and how its uplinks are probed; None where it describes none, or something is
    /// wrong with it.
    pub(crate) fn site(&mut self, document: &Document) -> Option<(Site, Vec<Probing>)> {
        let resolver = self.resolver(document);
        let nat64 = self.nat64(document);
        let flows = self.flows(document);
        let flow_offload = self.flow_offload(document);
        if !document.has_router() {
            return None;
        }
        let uplinks: Vec<_> =
            document.uplink.list().iter().map(|table| self.uplink(table.get_ref())).collect();
        let known = resolver.as_ref().and_then(Option::as_ref);
        let networks = document.network.list().iter().enumerate();
        let networks: Vec<_> =
            networks.map(|(place, table)| self.network(place, table.get_ref(), known)).collect();
        let routes: Vec<_> = document.route.list().iter().map(|table| self.route(table.get_ref())).collect();
        let uplinks = uplinks.into_iter().collect::<Option<Vec<_>>>()?;
        let (uplinks, probing): (Vec<Uplink>, Vec<Probing>) = uplinks.into_iter().unzip();
        let networks = networks.into_iter().collect::<Option<Vec<_>>>()?;
        let routes = routes.into_iter().collect::<Option<Vec<_>>>()?;
        let mut site = Site {
            uplinks,
            networks,
            routes,
            resolver: resolver?,
            nat64: nat64?,
            flows: flows?,
            flow_offload: flow_offload?,
            ..Site::default()
        };
        ask_for_aftrs(&mut site);
        self.site_fits(document, &site);
        self.resolver_fits(document, &site);
        self.nat64_fits(document, &site);
        site.forwards = self.forwards(document, &site)?;
        Some((site, probing))
    }

    /// The gateway that a file describes, with this site and firewall.
    pub(crate) fn router(
        &mut self,
        document: &Document,
        site: Option<(Site, Vec<Probing>)>,
        firewall: Option<Firewall>,
    ) -> Option<RouterConfig> {
        let (site, probing) = site?;
        self.served_are_safe(document, &site, firewall.as_ref().map(|firewall| &firewall.policy));
        self.mapped_are_inside(document, &site, firewall.as_ref().map(|firewall| &firewall.policy));
        self.uplinks_fit(document, &site, firewall.as_ref().map(|firewall| &firewall.policy));
        let has_nat = site.uplinks.iter().any(|uplink| uplink.masquerade);
        self.flows_are_followed(document, has_nat, firewall.as_ref());
        Some(RouterConfig { site, probing, firewall, scripts: Vec::new() })
    }

    /// What concerns several tables: names, interfaces, subnets and prefixes are each taken once.
    fn site_fits(&mut self, document: &Document, site: &Site) {
        let uplinks = document.uplink.list().iter().zip(&site.uplinks);
        let uplinks = uplinks.map(|(table, uplink)| {
            let given = table.get_ref();
            (
                ("name", &uplink.name, given.name.span_or_table()),
                ("interface", &uplink.interface, given.interface.span_or_table()),
            )
        });
        let networks = document.network.list().iter().zip(&site.networks);
        let networks = networks.map(|(table, network)| {
            let given = table.get_ref();
            (
                ("name", &network.name, given.name.span_or_table()),
                ("interface", &network.interface, given.interface.span_or_table()),
            )
        });
        let mut seen: Vec<(&str, &String, Range<usize>)> = Vec::new();
        for (name, interface) in uplinks.chain(networks) {
            for (key, value, place) in [interface, name] {
                let taken = seen.iter().find(|(other, taken, _)| *other == key && *taken == value);
                let Some((_, _, first)) = taken else {
                    seen.push((key, value, place));
                    continue;
                };
                let title = format!("two uplinks or networks have the {key} {value:?}");
                let help = format!("each needs its own {key}");
                self.report(
                    Finding::error(place, title, "the second", help).related(first.clone(), "the first"),
                );
                // Without a name it is called by the interface.
                break;
            }
        }
        for (place, (table, network)) in document.network.list().iter().zip(&site.networks).enumerate() {
            let earlier = site.networks[..place]
                .iter()
                .position(|other| other.subnet.is_some() && other.subnet == network.subnet);
            if let Some(first) = earlier {
                let number = network.subnet.unwrap_or(0);
                let title = format!("two networks have subnet {number}");
                let help = "each network has a /64 of its own in every prefix: number them with `subnet`";
                let first = document.network.list()[first].span();
                self.report(
                    Finding::error(table.span(), title, "the second", help).related(first, "the first"),
                );
            }
        }
        self.subnets_fit(document, site);
        self.prefixes_fit(document, site);
    }

    /// Each subnet is in a prefix of some uplink, as far as their lengths are known.
    fn subnets_fit(&mut self, document: &Document, site: &Site) {
        // Those that the provider decides about can have any.
        let lengths = site.uplinks.iter().flat_map(|uplink| {
            let wanted = uplink.delegation.map(|delegation| delegation.length);
            let of_tunnel = uplink.tunnel.as_ref().map(|_| None);
            uplink.prefixes.iter().map(|prefix| Some(prefix.prefix_len())).chain(wanted).chain(of_tunnel)
        });
        let Some(shortest) = lengths.min_by_key(|length| length.unwrap_or(0)).flatten() else { return };
        for (table, network) in document.network.list().iter().zip(&site.networks) {
            let Some(number) = network.subnet else { continue };
            let count = 1u64.checked_shl(64u32.saturating_sub(shortest.into())).unwrap_or(u64::MAX);
            if number >= count {
                let given = table.get_ref().subnet.given().map_or_else(|| table.span(), Spanned::span);
                let help = format!("a /{shortest} has subnets 0 to {}", count - 1);
                let label = "no uplink has such a prefix";
                self.report(Finding::error(given, "`subnet` cannot be used", label, help));
            }
        }
    }

    /// Each prefix is at one place.
    fn prefixes_fit(&mut self, document: &Document, site: &Site) {
        let uplinks = document.uplink.list().iter().zip(&site.uplinks);
        let routed: Vec<(Ipv6Net, Range<usize>)> =
            uplinks.flat_map(|(table, uplink)| places(&table.get_ref().prefixes, &uplink.prefixes)).collect();
        for (place, (prefix, second)) in routed.iter().enumerate() {
            let overlaps = |other: &Ipv6Net| other.contains(prefix) || prefix.contains(other);
            if let Some((other, first)) = routed[..place].iter().find(|(other, _)| overlaps(other)) {
                let title = format!("the uplinks' prefixes {other} and {prefix} overlap");
                let help = "a prefix belongs to one uplink: write what the provider routes through this one";
                self.report(
                    Finding::error(second.clone(), title, "the second", help)
                        .related(first.clone(), "the first"),
                );
            }
        }
        let networks = document.network.list().iter().zip(&site.networks).enumerate();
        let own: Vec<(usize, Ipv6Net, Range<usize>)> = networks
            .flat_map(|(index, (table, network))| {
                let places = places(&table.get_ref().prefixes, &network.prefixes);
                places.map(move |(prefix, span)| (index, prefix, span))
            })
            .collect();
        for (place, (index, prefix, second)) in own.iter().enumerate() {
            if let Some((.., first)) = own[..place].iter().find(|(_, other, _)| other == prefix) {
                let title = format!("the prefix {prefix} is given twice");
                let help = "each network has /64s of its own";
                self.report(
                    Finding::error(second.clone(), title, "the second", help)
                        .related(first.clone(), "the first"),
                );
            }
            let others = site.networks.iter().enumerate().filter(|(other, _)| other != index);
            for (network, number) in others.filter_map(|(_, other)| Some((other, other.subnet?))) {
                let taken = routed.iter().find(|(routed, _)| subnet(*routed, number) == Some(*prefix));
                if let Some((routed, first)) = taken {
                    let title = format!(
                        "{prefix} is subnet {number} of {routed}, which network {:?} uses",
                        network.name
                    );
                    let help = "each network has /64s of its own: number them with `subnet`";
                    self.report(
                        Finding::error(second.clone(), title, "the second", help)
                            .related(first.clone(), "the prefix that contains it"),
                    );
                }
            }
        }
    }

    /// Routers are on the uplink's link, and its addresses may be seen there.
    fn uplinks_fit(&mut self, document: &Document, site: &Site, policy: Option<&Policy>) {
        for (table, uplink) in document.uplink.list().iter().zip(&site.uplinks) {
            let given = table.get_ref();
            let on_link = |router: IpAddr| uplink.addresses.iter().any(|net| net.contains(&router));
            if let (RouterFrom::Address(router), Some(text)) = (uplink.router, given.router.given())
                && !router.is_unicast_link_local()
                && !on_link(router.into())
            {
                let help = "write its link-local address, like \"fe80::1\", or add the gateway's own address in the \
                            router's network to `addresses`";
                self.report(Finding::error(
                    text.span(),
                    "`router` cannot be used",
                    "on none of this uplink's links",
                    help,
                ));
            }
            if let (Some(router), Some(text)) = (uplink.ipv4_router, given.ipv4_router.given())
                && uplink.addresses.iter().any(|net| net.addr().is_ipv4())
                && !on_link(router.into())
            {
                let help = "write the length of the router's network after the address in `addresses`, like \
                            \"192.0.2.2/24\"";
                let label = "in none of the networks of the uplink's addresses";
                self.report(Finding::error(text.span(), "`ipv4_router` cannot be used", label, help));
            }
            self.carrier_fits(given, uplink, site);
            if let Some(policy) = policy {
                self.may_be_outside(given, uplink, policy);
            }
        }
    }

    /// What a tunnel asks of the provider below it is heard at an uplink.
    fn carrier_fits(&mut self, given: &UplinkTable, uplink: &Uplink, site: &Site) {
        let (Some(tunnel), Some(table)) = (&uplink.tunnel, given.tunnel.get()) else { return };
        let is_uplink = |below: &Uplink| below.interface == tunnel.over && below.tunnel.is_none();
        let is_told = matches!(tunnel.kind, Kind::Clat { plat } if plat.is_none() || tunnel.local.is_none());
        if is_told && !site.uplinks.iter().any(is_uplink) {
            let help = format!(
                "add an [[uplink]] with interface = {:?}: its prefixes and router advertisements are needed",
                tunnel.over
            );
            let label = "no [[uplink]] has this interface".to_owned();
            self.refuse(table.over.span_or_table(), "over", Problem { label, help });
        }
        let asks = |below: &Uplink| is_uplink(below) && below.delegation.is_some();
        if matches!(tunnel.kind, Kind::FourInSix { remote: None }) && !site.uplinks.iter().any(asks) {
            let help = format!(
                "write the address of the provider's AFTR as `remote`, or have an [[uplink]] with interface = {:?} and \
                 delegation = true, whose DHCPv6 names it",
                tunnel.over
            );
            let label = "nobody tells the other end of this tunnel".to_owned();
            self.refuse(table.remote.span_or_table(), "remote", Problem { label, help });
        }
    }

    /// Warns of the first address or prefix of an uplink that the firewall drops there.
    fn may_be_outside(&mut self, given: &UplinkTable, uplink: &Uplink, policy: &Policy) {
        let routed = places(&given.prefixes, &uplink.prefixes);
        let domain = given.tunnel.get().and_then(|tunnel| tunnel.prefix.given());
        let domain = domain.filter(|_| !uplink.carries_ipv4());
        let domain = domain.and_then(|text| Some((text.get_ref().parse().ok()?, text.span())));
        let addresses = places(&given.addresses, &uplink.addresses);
        let mut all = addresses.chain(routed.chain(domain).map(|(net, span)| (IpNet::V6(net), span)));
        let dropped = |net: IpNet| {
            let zone = policy.zone_of(&uplink.interface, net.addr())?;
            let of_link = matches!(net.addr(), IpAddr::V6(address) if address.is_unicast_link_local());
            let crosses = policy.trust(zone) == Some(Trust::Outside) && !of_link;
            never_outside(net, policy.settings()).filter(|_| crosses)
        };
        if let Some((never, span)) = all.find_map(|(net, span)| Some((dropped(net)?, span))) {
            self.report(Finding::warning(
                span,
                format!("the firewall drops packets between addresses of {never} outside and the networks"),
                "never outside (RFC 6092 REC-3)",
                format!("if they are, as in a laboratory, add accept_special = [\"{never}\"] to [firewall]"),
            ));
        }
    }
}

/// Uplinks below tunnels that have no other end yet ask for an AFTR's name along with their prefixes.
fn ask_for_aftrs(site: &mut Site) {
    let tunnels = site.uplinks.iter().filter_map(|uplink| uplink.tunnel.as_ref());
    let nameless = tunnels.filter(|tunnel| matches!(tunnel.kind, Kind::FourInSix { remote: None }));
    let over: Vec<String> = nameless.map(|tunnel| tunnel.over.clone()).collect();
    for uplink in site.uplinks.iter_mut().filter(|uplink| over.contains(&uplink.interface)) {
        if let Some(delegation) = &mut uplink.delegation {
            delegation.aftr = true;
        }
    }
}

/// Values, each with its place.
fn places<T: Copy>(
    texts: &Given<Vec<Spanned<String>>>,
    values: &[T],
) -> impl Iterator<Item = (T, Range<usize>)> {
    values.iter().copied().zip(texts.list().iter().map(Spanned::span))
}
