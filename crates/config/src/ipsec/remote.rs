//! `[[remote]]` and its children: what they mean.

use std::net::IpAddr;

use ike::config::{Assigned, Authentication, ChildConfig, Mode, PeerConfig};
use ike::message::body::Identity;
use ike::message::traffic_selector::{MAX_SELECTORS, TrafficSelector};
use ike::negotiation::ChildProtocol;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ipsec::selector::Upper;
use toml::Spanned;

use super::algorithms::{child_algorithms, child_proposal};
use super::config::{Place, Ports, Remote, Start};
use super::document::{ChildTable, IpsecTable, RemoteTable};
use super::files::{Files, Own};
use super::{pool, value};
use crate::converter::Converter;
use crate::report::Finding;
use crate::section::Given;
use crate::value::{peer_name, problem};

/// What remotes have in common.
pub(super) struct ThisEnd<'a> {
    pub(super) table: &'a IpsecTable,
    pub(super) identity: Identity,
    pub(super) own: Option<Own>,
}

/// A child, with what policy needs of it and IKE does not keep.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) config: ChildConfig,
    /// As the file has them, before IKE's defaults.
    pub(super) local: Vec<IpNet>,
    pub(super) remote: Vec<IpNet>,
    /// From here to there.
    pub(super) upper: Upper,
}

/// A remote, as it is converted.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) peer: PeerConfig,
    pub(super) remote: Remote,
    pub(super) children: Vec<Child>,
}

impl Converter<'_> {
    /// A remote with its children.
    pub(super) fn remote(
        &mut self,
        table: &RemoteTable,
        this: &ThisEnd<'_>,
        files: &Files<'_>,
    ) -> Option<Converted> {
        let owner = &table.name.table.owner;
        let name = self.value(&table.name, peer_name);
        let place = self.optional(&table.address, value::place);
        let ports = self.ports(&table.port, &table.nat_port, false);
        let identity = self.optional(&table.identity, |text| match text {
            "*" => Ok(None),
            text => value::identity(text).map(Some),
        });
        let start = self.optional(&table.start, value::start);
        let encapsulate = self.value(&table.encapsulate, |text| match text {
            "always" => Ok(true),
            "auto" => Ok(false),
            _ => problem("not a way for ESP", r#"write "always" or "auto""#),
        });
        let assigned = self.assigned(table);
        let rekey_after = self.value(&table.rekey_after, value::rekey_after);
        let liveness_after = self.value(&table.liveness_after, value::liveness_after);
        let tables = table.child.list().iter().map(Spanned::get_ref);
        let children: Vec<_> = tables.map(|child| self.child(child, table)).collect();
        if children.is_empty() && !table.child.is_wrong() {
            self.report(Finding::error(
                table.child.span_or_table(),
                format!("{owner} has no children"),
                "nothing would be carried",
                "add [[remote.child]] below its table, with the networks that are connected",
            ));
        }
        let identity = match (identity?, &place) {
            (Some(identity), _) => identity,
            (None, Some(Some(Place::Address(address)))) => Some(Identity::Address(*address)),
            (None, Some(Some(Place::Name(name)))) => {
                Some(Identity::Fqdn(name.trim_end_matches('.').to_owned()))
            }
            (None, _) => None,
        };
        let authentication = self.authentication(table, identity.as_ref(), this, files);
        let place = place?;
        let start = start?.unwrap_or(if place.is_some() { Start::Always } else { Start::Wait });
        if place.is_none() && start != Start::Wait {
            self.report(Finding::error(
                table.start.span(),
                format!("{owner} has no address to begin with"),
                "nobody knows where it is",
                "add `address = …`, or write start = \"wait\"",
            ));
            return None;
        }
        if table.request_addresses.is_true() && start == Start::Wait {
            let (label, help) = match &place {
                None => {
                    ("this end, which has nobody to ask, never does", "add `address = …`, or leave this out")
                }
                Some(_) => ("with start = \"wait\", it never does", "leave this or `start` out"),
            };
            self.report(Finding::error(
                table.request_addresses.span(),
                format!("only the end that begins asks for addresses: {owner} never gives any"),
                label,
                help,
            ));
            return None;
        }
        let children = children.into_iter().collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())?;
        let is_transport = children.iter().any(|child| child.config.mode == Mode::Transport);
        let ((assigned, pool), ports, name) = (assigned?, ports?, name?);
        let peer = PeerConfig {
            children: children.iter().map(|child| child.config.clone()).collect(),
            mobile: table.mobile.get().copied().unwrap_or(!is_transport),
            nat_port: ports.nat,
            request_addresses: table.request_addresses.is_true(),
            assigned,
            rekey_after: rekey_after?,
            liveness_after: liveness_after?,
            ..PeerConfig::with(this.identity.clone(), identity, authentication?)
        };
        let remote = Remote { name, address: place, ports, start, encapsulate: encapsulate?, pool };
        Some(Converted { peer, remote, children })
    }

    /// The ports of an end.
    pub(super) fn ports(&mut self, ike: &Given<i64>, nat: &Given<i64>, is_ours: bool) -> Option<Ports> {
        let numbers = (
            self.value(ike, |number| value::port(number, is_ours)),
            self.value(nat, |number| value::port(number, is_ours)),
        );
        let ports = Ports { ike: numbers.0?, nat: numbers.1? };
        if ports.ike == ports.nat && ports.ike != 0 && is_ours {
            let help =
                "what comes to `nat_port` has another form (RFC 7296 §2.23): give it a port of its own";
            self.refuse(
                nat.span_or_table(),
                nat.key.name,
                crate::value::Problem { label: "the same as `port`".to_owned(), help: help.to_owned() },
            );
            return None;
        }
        Some(ports)
    }

    fn authentication(
        &mut self,
        table: &RemoteTable,
        identity: Option<&Identity>,
        this: &ThisEnd<'_>,
        files: &Files<'_>,
    ) -> Option<Authentication> {
        let owner = &table.name.table.owner;
        if !table.shared_key.is_absent() || !table.shared_key_file.is_absent() {
            if let Some(file) = table.authority_file.given() {
                self.report(Finding::error(
                    file.span(),
                    format!("{owner} has a shared key and an authority"),
                    "of no use here",
                    "leave one of them out: with a shared key, certificates are not looked at",
                ));
            }
            let key = files.shared_key(table, self)?;
            if identity.is_none() {
                self.report(Finding::warning(
                    table.name.span_or_table(),
                    format!("anybody who knows the shared key of {owner} can pose as anybody else who does"),
                    "",
                    "give each remote an identity and a key of its own, or use certificates",
                ));
            }
            return Some(Authentication::SharedKey(key));
        }
        let Some(own) = &this.own else {
            if this.table.certificate_file.is_absent() && this.table.private_key_file.is_absent() {
                self.report(Finding::error(
                    table.name.span_or_table(),
                    format!("{owner} cannot prove who it is"),
                    "neither a shared key nor certificates",
                    "add shared_key_file = \"NAME.psk\" here (made by: umask 077; sidestep genpsk > NAME.psk), or \
                     certificate_file, private_key_file and authority_file to [ipsec]",
                ));
            }
            return None;
        };
        if matches!(identity, Some(Identity::Email(_) | Identity::KeyId(_))) {
            self.report(Finding::error(
                table.identity.span_or_table(),
                format!("no certificate can show that {owner} is this"),
                "looked for in a certificate",
                "write a domain name or an address among the names of its certificate",
            ));
            return None;
        }
        let certificates = files.certificates_for(table, this.table, own, self)?;
        Some(Authentication::Certificates(Box::new(certificates)))
    }

    /// What the remote is given, and the networks that the rest is out of: [`pools`](Self::pools) puts that in.
    fn assigned(&mut self, table: &RemoteTable) -> Option<(Assigned, Vec<IpNet>)> {
        let addresses = self.each(&table.assign, value::address);
        let pool = self.each(&table.pool, value::network);
        let dns = self.each(&table.dns, value::address);
        let (addresses, pool, dns) = (addresses?, pool?, dns?);
        let versions = |is_ipv4: bool| addresses.iter().filter(|a| a.is_ipv4() == is_ipv4).count();
        if versions(true) > 1 || versions(false) > 1 {
            self.report(Finding::error(
                table.assign.span(),
                "`assign` has several addresses of one IP version",
                "",
                "these are for one client: `pool` is for many",
            ));
            return None;
        }
        if let (Some(first), Some(second)) = (table.assign.given(), table.pool.given()) {
            self.report(
                Finding::error(
                    second.span(),
                    "addresses for one client, and for many",
                    "here for many",
                    "leave `assign` or `pool` out",
                )
                .related(first.span(), "here for one"),
            );
            return None;
        }
        let gives = table.pool.given().map(Spanned::span).or(table.assign.given().map(Spanned::span));
        if gives.is_none() && !dns.is_empty() {
            self.report(Finding::error(
                table.dns.span(),
                "DNS servers for nobody",
                "they are given along with addresses",
                "add `assign = […]` or `pool = […]`, or leave `dns` out",
            ));
            return None;
        }
        if let Some(gives) = gives.filter(|_| table.request_addresses.is_true()) {
            self.report(Finding::error(
                gives,
                "both ends would give addresses to each other",
                "",
                "leave this or `request_addresses` out",
            ));
            return None;
        }
        Some((Assigned { addresses, dns, pools: Vec::new() }, pool))
    }

    /// Makes the pools, without addresses that are this end's or a certain client's.
    pub(super) fn pools(&mut self, remotes: &mut [(&RemoteTable, Converted)], addresses: &[IpNet]) {
        let mut taken: Vec<IpAddr> = addresses.iter().map(IpNet::addr).collect();
        taken.extend(remotes.iter().flat_map(|(_, remote)| &remote.peer.assigned.addresses));
        for (table, remote) in remotes {
            for (net, text) in remote.remote.pool.iter().zip(table.pool.list()) {
                let free = pool::pools(&[*net], &taken);
                if free.is_empty() {
                    self.report(Finding::error(
                        text.span(),
                        format!("no address of {net} is left for clients"),
                        "all are this end's or given to others",
                        "write a larger network",
                    ));
                }
                remote.peer.assigned.pools.extend(free);
            }
        }
    }

    fn child(&mut self, table: &ChildTable, remote: &RemoteTable) -> Option<Child> {
        let carries_something = self.not_empty(&table.local) & self.not_empty(&table.remote);
        let local = self.each(&table.local, value::network);
        let there = self.each(&table.remote, value::network);
        let mode = self.value(&table.mode, |text| match text {
            "tunnel" => Ok(Mode::Tunnel),
            "transport" => Ok(Mode::Transport),
            _ => problem("not a mode", r#"write "tunnel" or "transport""#),
        });
        let protocol = self.value(&table.header, |text| match text {
            "esp" => Ok(ChildProtocol::Esp),
            "ah" => Ok(ChildProtocol::Ah),
            _ => problem("not a header of IPsec", r#"write "esp" or "ah""#),
        });
        let upper = self.upper(&table.protocol, &table.local_ports, &table.remote_ports);
        let algorithms = match protocol {
            Some(protocol) => self.each(&table.algorithms, |text| child_proposal(text, protocol)),
            None => None,
        };
        let rekey_after = self.value(&table.rekey_after, value::rekey_after);
        let (local, there, mode, protocol, upper) = (local?, there?, mode?, protocol?, upper?);
        if mode == Mode::Tunnel && protocol == ChildProtocol::Ah {
            self.report(Finding::error(
                table.header.span(),
                "AH protects packets between two hosts only",
                "in a tunnel",
                "write mode = \"transport\", or header = \"esp\"",
            ));
            return None;
        }
        let networks = local.iter().zip(table.local.list()).chain(there.iter().zip(table.remote.list()));
        let wide =
            networks.filter(|(net, _)| mode == Mode::Transport && net.prefix_len() < net.max_prefix_len());
        let mut fits = carries_something;
        for (net, text) in wide {
            self.report(Finding::error(
                text.span(),
                format!("transport mode connects hosts, and {net} is a network"),
                "",
                "write the address of one host, or mode = \"tunnel\"",
            ));
            fits = false;
        }
        fits &= self.ends_fit(table, &local, &there, &upper);
        if !fits {
            return None;
        }
        let local_or_any = if local.is_empty() && remote.request_addresses.is_true() {
            // What this end is given comes later: it asks for all, and is told how much it has.
            let fits = |net: &IpNet| value::fits_version(&upper, net.addr().is_ipv6());
            any_of(&there).into_iter().filter(fits).collect()
        } else {
            local.clone()
        };
        let config = ChildConfig {
            algorithms: child_algorithms(algorithms?, protocol),
            mode,
            local: selectors(&local_or_any, &upper, true),
            remote: selectors(&there, &upper, false),
            rekey_after: rekey_after?,
        };
        Some(Child { config, local, remote: there, upper })
    }

    /// Whether packets can go between both ends of a child.
    fn ends_fit(&mut self, table: &ChildTable, local: &[IpNet], there: &[IpNet], upper: &Upper) -> bool {
        let mut fits = true;
        let place = |list: &Given<Vec<Spanned<String>>>| list.span_or_table();
        if local.len() + there.len() > MAX_SELECTORS {
            self.report(Finding::error(
                place(&table.remote),
                format!("a child of {} networks", local.len() + there.len()),
                "",
                format!("both ends together have {MAX_SELECTORS} at most: make several children of it"),
            ));
            return false;
        }
        for (net, text) in there.iter().zip(table.remote.list()) {
            if let Some(index) = local.iter().position(|other| other == net) {
                let first = table.local.list().get(index).map_or(0..0, Spanned::span);
                self.report(
                    Finding::error(
                        text.span(),
                        format!("{net} is at both ends"),
                        "at the other end",
                        "each end has networks of its own; a part of the other's may lie in it",
                    )
                    .related(first, "at this end"),
                );
                fits = false;
            }
        }
        let is_ipv6 = |net: &IpNet| net.addr().is_ipv6();
        for (nets, others, list) in [(local, there, &table.local), (there, local, &table.remote)] {
            for (net, text) in nets.iter().zip(list.list()) {
                let alone = !others.is_empty() && !others.iter().any(|other| is_ipv6(other) == is_ipv6(net));
                if alone {
                    let version = if is_ipv6(net) { "IPv6" } else { "IPv4" };
                    self.report(Finding::error(
                        text.span(),
                        format!("{net} has nobody to talk with"),
                        format!("nothing at the other end is {version}"),
                        format!("add a network of {version} at the other end, or leave this one out"),
                    ));
                    fits = false;
                } else if !value::fits_version(upper, is_ipv6(net)) {
                    self.report(Finding::error(
                        text.span(),
                        format!("{net} has no such packets"),
                        "",
                        "ICMP is of IPv4, ICMPv6 of IPv6",
                    ));
                    fits = false;
                }
            }
        }
        fits
    }

    /// A protocol with its ports.
    pub(super) fn upper(
        &mut self,
        protocol: &Given<String>,
        source: &Given<super::document::RangeValue>,
        destination: &Given<super::document::RangeValue>,
    ) -> Option<Upper> {
        let kind = self.optional(protocol, value::protocol);
        let (from, to) = (self.optional(source, value::ports), self.optional(destination, value::ports));
        let ports = if source.given().is_some() { source } else { destination };
        value::upper(kind?, from?, to?)
            .map_err(|problem| self.refuse(ports.span_or_table(), ports.key.name, problem))
            .ok()
    }
}

/// Everything of the IP versions that these networks have; of both, if there are none.
pub(super) fn any_of(networks: &[IpNet]) -> Vec<IpNet> {
    let all = [IpNet::V6(Ipv6Net::default()), IpNet::V4(Ipv4Net::default())];
    let is_wanted = |any: &IpNet| {
        networks.is_empty() || networks.iter().any(|net| net.addr().is_ipv6() == any.addr().is_ipv6())
    };
    all.into_iter().filter(is_wanted).collect()
}

/// One end's networks as IKE has them. `here`: this end's, whose ports packets come from.
fn selectors(networks: &[IpNet], upper: &Upper, here: bool) -> Vec<TrafficSelector> {
    let of = |net: &IpNet| {
        let all = TrafficSelector::prefix(net.addr(), net.prefix_len());
        match upper {
            Upper::Any => all,
            Upper::Protocol(protocol) => all.of_protocol(*protocol, 0..=u16::MAX),
            Upper::Ports { protocol, source, destination } => {
                all.of_protocol(*protocol, if here { source.clone() } else { destination.clone() })
            }
            // Type and code stand where ports do (RFC 7296 §3.13.1).
            Upper::Icmp { protocol, types, codes } => {
                let first = u16::from_be_bytes([*types.start(), *codes.start()]);
                let last = u16::from_be_bytes([*types.end(), *codes.end()]);
                all.of_protocol(*protocol, first..=last)
            }
        }
    };
    networks.iter().map(of).collect()
}

/// The address of a remote, if it is known.
pub(super) fn literal(place: Option<&Place>) -> Option<IpAddr> {
    match place {
        Some(Place::Address(address)) => Some(*address),
        _ => None,
    }
}
