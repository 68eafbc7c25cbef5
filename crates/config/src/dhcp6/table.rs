//! The shape of `[network.dhcp6]`.

use toml::Spanned;

use crate::key::Absent::{Otherwise, Required};
use crate::section::section;

section! {
    /// `[network.dhcp6]`, as it stands in the file.
    Dhcp6Table = "[network.dhcp6]" {
        /// Length of the prefixes that routers behind this one get, 48 to 64, of what the uplinks were delegated: of a /56, `60` is
        /// fifteen for routers and one for networks. With `64` there are more of them, and such a router has one network.
        delegate: i64 = Otherwise("routers get none");
        /// Hosts that always have the same address.
        host: Vec<Spanned<Host6Table>> = Otherwise("none");
    }
}

section! {
    /// `[[network.dhcp6.host]]`, as it stands in the file.
    Host6Table = "[[network.dhcp6.host]]", named "host" {
        /// Its name: letters, digits and `-`. With [`[dns]`](#dns-names) it is resolved, also while the host is off, and nobody else
        /// gets it; [rules](firewall.md#rules) may name the host by it.
        name: String = Required(r#"what it is called, like "printer""#);
        /// Its DUID, by which DHCPv6 knows hosts; or `mac`.
        duid: String = Otherwise("`mac` is there");
        /// Its link-layer address: it is in most DUIDs, and in some link-local addresses.
        mac: String = Otherwise("`duid` is there");
        /// The lower 64 bits of its address; the upper ones are those of the network's prefixes, whatever they are now.
        address: String = Required(r#"the lower 64 bits of its address, like "::5""#);
    }
}
