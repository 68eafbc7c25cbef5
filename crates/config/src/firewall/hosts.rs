//! Hosts with fixed addresses, whose names rules may have.

use std::collections::BTreeMap;

use router::firewall::address::Address;
use toml::Spanned;

use crate::dhcp6::table::Host6Table;
use crate::document::Document;

/// The addresses of each name that a host has in some network, for rules; of IPv6 their last 64 bits, as prefixes change.
pub(super) fn addresses_by_name(document: &Document) -> BTreeMap<String, Vec<Address>> {
    let mut named = BTreeMap::<String, Vec<Address>>::new();
    let tables = document.network.list().iter().filter_map(|network| network.get_ref().dhcp.get());
    let hosts = tables.flat_map(|table| table.host.list()).map(Spanned::get_ref);
    let hosts = hosts.filter_map(|host| Some((host.name.text()?, host.address.text()?.parse())));
    let hosts6 = hosts_of_dhcp6(document);
    let hosts6 =
        hosts6.filter_map(|host| Some((host.name.text()?, format!("*{}", host.address.text()?).parse())));
    for (name, address) in hosts.chain(hosts6) {
        if let Ok(address) = address {
            named.entry(name.to_owned()).or_default().push(address);
        }
    }
    named
}

/// The hosts that DHCPv6 gives addresses, as they stand in the file.
pub(super) fn hosts_of_dhcp6(document: &Document) -> impl Iterator<Item = &Host6Table> {
    let tables = document.network.list().iter().filter_map(|network| network.get_ref().dhcp6.get());
    tables.flat_map(|table| table.host.list()).map(Spanned::get_ref)
}
