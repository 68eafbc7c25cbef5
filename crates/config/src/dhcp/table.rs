//! The shape of `[network.dhcp]`.

use toml::Spanned;

use crate::key::Absent::{Default, Otherwise, Required};
use crate::section::{Period, section};

section! {
    /// `[network.dhcp]`, as it stands in the file.
    DhcpTable = "[network.dhcp]" {
        /// The addresses that hosts are leased, `"192.168.1.100-192.168.1.199"`, in the network of `ipv4`.
        range: String = Otherwise("the upper half of the network, or the lower half if the gateway's address is in the upper one");
        /// How long a lease lasts: 2 minutes to 365 days. Hosts renew it after half of that. With a short one, addresses of
        /// hosts that have left are free sooner, as guests need it.
        lease: Period = Default(r#""12h""#);
        /// DNS servers for hosts, IPv4 addresses.
        dns: Vec<Spanned<String>> = Otherwise("the gateway, if its resolver serves the network, otherwise none");
        /// Hosts that always have the same address.
        host: Vec<Spanned<HostTable>> = Otherwise("none");
    }
}

section! {
    /// `[[network.dhcp.host]]`, as it stands in the file.
    HostTable = "[[network.dhcp.host]]", named "host" {
        /// Its name: letters, digits and `-`. With [`[dns]`](gateway.md#dns-names) it is resolved also while the host is
        /// off, and nobody else gets it; [rules](firewall.md#rules) may name the host by it.
        name: String = Required(r#"what it is called, like "printer""#);
        /// Its link-layer address. Hosts that choose a random one for each network (phones, laptops) keep it there.
        mac: String = Required(r#"its link-layer address, like "00:ab:cd:11:22:01""#);
        /// Its address, in the network of `ipv4`, inside the range or not.
        address: String = Required(r#"its IPv4 address, like "192.168.1.5""#);
    }
}
