//! What concerns several values: names and identities that must differ, packets that two children would carry.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;

use ike::message::body::Identity;
use ipnet::IpNet;
use toml::Spanned;

use super::document::{IpsecDocument, RemoteTable};
use super::remote::Converted;
use super::rules::{ends, overlap};
use super::value::Shown;
use crate::report::{Finding, Report};

/// Looks at all remotes together. `remotes` are those that mean something, each with its table; `own` and `addresses` this
/// end's, outside and in the tunnel.
pub(super) fn check(
    document: &IpsecDocument,
    remotes: &[(&RemoteTable, Converted)],
    identity: Option<&Identity>,
    (own, addresses): (Option<IpAddr>, &[IpNet]),
    report: &mut Report,
) {
    check_names(document, report);
    check_ends(document, remotes, identity, own, report);
    check_identities(remotes, report);
    check_children(remotes, own, report);
    check_versions(document, remotes, own, report);
    check_assigned(document, remotes, addresses, report);
}

fn check_names(document: &IpsecDocument, report: &mut Report) {
    let mut earlier: HashMap<&str, Range<usize>> = HashMap::new();
    for name in document.remote.list().iter().filter_map(|remote| remote.get_ref().name.given()) {
        if let Some(first) = earlier.insert(name.get_ref(), name.span()) {
            let title = format!("two remotes are named {:?}", name.get_ref());
            report.add(
                Finding::error(name.span(), title, "the second", "give each remote a name of its own")
                    .related(first, "the first"),
            );
        }
    }
}

/// No end talks with itself.
fn check_ends(
    document: &IpsecDocument,
    remotes: &[(&RemoteTable, Converted)],
    identity: Option<&Identity>,
    own: Option<IpAddr>,
    report: &mut Report,
) {
    let Some(this) = document.ipsec.get() else { return };
    for (table, remote) in remotes {
        let address = super::remote::literal(remote.remote.address.as_ref());
        if let Some(address) = address.filter(|address| own == Some(*address)) {
            report.add(
                Finding::error(
                    table.address.span(),
                    format!("both ends have the address {address}"),
                    "the other end",
                    "write where the remote is; `address` in [ipsec] is this end's",
                )
                .related(this.address.span(), "this end"),
            );
        } else if let (Some(there), true) = (&remote.peer.remote, remote.peer.remote.as_ref() == identity) {
            report.add(
                Finding::error(
                    table.identity.span_or_table(),
                    format!("both ends are {}", Shown(there)),
                    "the other end",
                    "each end has an identity of its own: write the remote's",
                )
                .related(this.identity.span_or_table(), "this end"),
            );
        }
    }
}

/// From an address of one IP version nobody reaches one of the other.
fn check_versions(
    document: &IpsecDocument,
    remotes: &[(&RemoteTable, Converted)],
    own: Option<IpAddr>,
    report: &mut Report,
) {
    let (Some(this), Some(own)) = (document.ipsec.get(), own) else { return };
    for (table, remote) in remotes {
        let there = super::remote::literal(remote.remote.address.as_ref());
        let Some(there) = there.filter(|there| there.is_ipv4() != own.is_ipv4()) else { continue };
        let title = format!("{} cannot be reached from {own}", table.name.table.owner);
        let help =
            "write addresses of one IP version, or leave `address` in [ipsec] out: then there is one of each";
        let version = if there.is_ipv4() { "IPv4" } else { "IPv6" };
        report.add(
            Finding::error(table.address.span(), title, format!("of {version}"), help)
                .related(this.address.span(), "this end sends from this address only"),
        );
    }
}

/// What a remote is given is nobody's yet.
fn check_assigned(
    document: &IpsecDocument,
    remotes: &[(&RemoteTable, Converted)],
    addresses: &[IpNet],
    report: &mut Report,
) {
    let Some(this) = document.ipsec.get() else { return };
    for (table, remote) in remotes {
        for (given, text) in remote.peer.assigned.addresses.iter().zip(table.assign.list()) {
            let own = addresses.iter().zip(this.addresses.list()).find(|(own, _)| own.addr() == *given);
            let Some((_, own)) = own else { continue };
            report.add(
                Finding::error(
                    text.span(),
                    format!("{given} is this end's own address"),
                    "given to the remote",
                    "give the remote another address of the same network",
                )
                .related(own.span(), "this end's"),
            );
        }
    }
}

/// Who comes is found by identity: the first remote that fits is it.
fn check_identities(remotes: &[(&RemoteTable, Converted)], report: &mut Report) {
    let mut earlier: HashMap<Option<&Identity>, Range<usize>> = HashMap::new();
    for (table, remote) in remotes {
        let place = table.identity.given().map_or_else(|| table.name.span_or_table(), Spanned::span);
        if let Some(first) = earlier.get(&None) {
            report.add(
                Finding::error(
                    place.clone(),
                    format!("{} is never recognized", table.name.table.owner),
                    "who it is, is not looked at",
                    "the first remote that fits counts: put the one for anybody at the end",
                )
                .related(first.clone(), "this one takes anybody"),
            );
        } else if let (Some(identity), Some(first)) =
            (&remote.peer.remote, earlier.get(&remote.peer.remote.as_ref()))
        {
            report.add(
                Finding::error(
                    place.clone(),
                    format!("two remotes are {}", Shown(identity)),
                    "the second",
                    "give each an identity of its own; one remote may have several children",
                )
                .related(first.clone(), "the first"),
            );
        }
        earlier.entry(remote.peer.remote.as_ref()).or_insert(place);
    }
}

/// What a child carries between known ends.
struct Carried<'a> {
    remote: usize,
    place: Range<usize>,
    /// Whether the addresses at the other end are given by this one, and out of a pool.
    is_given: bool,
    is_of_pool: bool,
    local: Vec<IpNet>,
    there: Vec<IpNet>,
    upper: &'a ipsec::selector::Upper,
}

/// A packet belongs to one child.
fn check_children(remotes: &[(&RemoteTable, Converted)], own: Option<IpAddr>, report: &mut Report) {
    let mut all: Vec<Carried<'_>> = Vec::new();
    for (index, (table, remote)) in remotes.iter().enumerate() {
        for (child, text) in remote.children.iter().zip(table.child.list()) {
            let (local, there) = ends(child, remote, own);
            let place = text.get_ref().remote.span_or_table();
            let is_of_pool = child.remote.is_empty() && !remote.remote.pool.is_empty();
            let is_given =
                is_of_pool || child.remote.is_empty() && !remote.peer.assigned.addresses.is_empty();
            let upper = &child.upper;
            all.push(Carried { remote: index, place, is_given, is_of_pool, local, there, upper });
        }
    }
    for (number, one) in all.iter().enumerate() {
        // Of several, one is enough to say.
        let shared = all.iter().take(number).find_map(|other| Some((other, meeting(one, other)?)));
        let Some((other, net)) = shared else { continue };
        let owner = |carried: &Carried<'_>| {
            remotes.get(carried.remote).map_or("", |(table, _)| table.name.table.owner.as_str())
        };
        let title = match one.remote == other.remote {
            true => format!("two children of {} carry the same packets", owner(one)),
            false => format!("{} and {} carry the same packets", owner(other), owner(one)),
        };
        report.add(
            Finding::error(
                one.place.clone(),
                title,
                format!("{net} is in both"),
                "a packet belongs to one child: split the networks, or give the children other protocols or ports",
            )
            .related(other.place.clone(), "the first"),
        );
    }
}

/// A network that packets of both children go to. Ends that nobody knows yet are none.
fn meeting(one: &Carried<'_>, other: &Carried<'_>) -> Option<IpNet> {
    // No address of a pool is given to two clients.
    let apart = one.remote != other.remote && one.is_given && other.is_given;
    if apart && (one.is_of_pool || other.is_of_pool) {
        return None;
    }
    if !overlap(one.upper, other.upper)
        || !(one.local.is_empty() || other.local.is_empty() || common(&one.local, &other.local).is_some())
    {
        return None;
    }
    common(&one.there, &other.there)
}

/// The smaller of two networks of which one lies in the other.
fn common(some: &[IpNet], others: &[IpNet]) -> Option<IpNet> {
    some.iter().find_map(|one| {
        others.iter().find_map(|other| {
            if other.contains(one) {
                Some(*one)
            } else if one.contains(other) {
                Some(*other)
            } else {
                None
            }
        })
    })
}
