//! Hosts with fixed addresses, whose names rules may have.

use std::collections::{BTreeMap, BTreeSet};

use router::firewall::address::Address;
use toml::Spanned;

use crate::document::Document;

/// Hosts that rules may name: by `NAME.NETWORK`, and by the name alone where hosts of one network only have it.
#[derive(Default)]
pub(super) struct Hosts {
    /// Their addresses; of IPv6 the last 64 bits, as prefixes change.
    pub(super) addresses: BTreeMap<String, Vec<Address>>,
    /// Which of them are known by such bits.
    pub(super) by_suffix: BTreeSet<String>,
    /// Names that hosts of several networks have, with these networks' names and interfaces.
    pub(super) of_several: BTreeMap<String, BTreeMap<String, String>>,
}

impl Hosts {
    pub(super) fn of(document: &Document) -> Self {
        let mut networks = BTreeMap::<String, BTreeMap<String, String>>::new();
        let mut found = Vec::new();
        for network in document.network.list().iter().map(Spanned::get_ref) {
            let Some(interface) = network.interface.text() else { continue };
            let of = network.name.text().unwrap_or(interface);
            let hosts =
                network.dhcp.get().into_iter().flat_map(|table| table.host.list()).map(Spanned::get_ref);
            let hosts =
                hosts.filter_map(|host| Some((host.name.text()?, host.address.text()?.to_owned(), false)));
            let hosts6 =
                network.dhcp6.get().into_iter().flat_map(|table| table.host.list()).map(Spanned::get_ref);
            let hosts6 = hosts6
                .filter_map(|host| Some((host.name.text()?, format!("*{}", host.address.text()?), true)));
            for (name, address, by_suffix) in hosts.chain(hosts6) {
                networks.entry(name.to_owned()).or_default().insert(of.to_owned(), interface.to_owned());
                if let Ok(address) = address.parse::<Address>() {
                    found.push((name, of, address, by_suffix));
                }
            }
        }
        networks.retain(|_, networks| networks.len() > 1);
        let mut hosts = Hosts { of_several: networks, ..Hosts::default() };
        for (name, network, address, by_suffix) in found {
            let alone = Some(name.to_owned()).filter(|name| !hosts.of_several.contains_key(name));
            for name in [format!("{name}.{network}")].into_iter().chain(alone) {
                if by_suffix {
                    hosts.by_suffix.insert(name.clone());
                }
                hosts.addresses.entry(name).or_default().push(address);
            }
        }
        hosts
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::KeyFileError;

    const FILE: &str = r#"
uplink = [{ name = "fibre", interface = "eth0", zone = "wan" }]
network = [
    { name = "office", interface = "eth1", zone = "lan", ipv4 = "192.168.1.1/24", dhcp = { dns = ["192.0.2.53"], host = [
        { name = "admin-pc", mac = "02:00:5e:00:53:01", address = "192.168.1.5" },
        { name = "printer", mac = "02:00:5e:00:53:02", address = "192.168.1.6" },
    ] } },
    { interface = "eth2", zone = "guests", ipv4 = "192.168.2.1/24", dhcp = { dns = ["192.0.2.53"], host = [
        { name = "admin-pc", mac = "02:00:5e:00:53:03", address = "192.168.2.5" },
    ] } },
]
zone = [
    { name = "lan", trust = "inside" }, { name = "guests", trust = "guest" }, { name = "wan", trust = "outside" },
]
[firewall]
rule = [{ RULE, action = "accept" }]
"#;

    /// The source addresses of a rule with this, or why it is refused.
    fn sources(rule: &str) -> Result<Vec<String>, String> {
        let text = FILE.replace("RULE", rule);
        match crate::parse(&text, Path::new("gw.toml"), &|_| Err(KeyFileError::Missing)) {
            Ok(config) => {
                let policy = config.gateway.unwrap().firewall.unwrap().policy;
                Ok(policy.rules()[0].source.iter().flatten().map(ToString::to_string).collect())
            }
            Err(report) => Err(report.render(false)),
        }
    }

    #[test]
    fn a_name_of_hosts_in_several_networks_never_means_them_all() {
        for (rule, expected) in [
            (r#"source = "printer""#, &["192.168.1.6"][..]),
            (r#"source = "printer.office""#, &["192.168.1.6"]),
            (r#"source = "admin-pc.office""#, &["192.168.1.5"]),
            (r#"source = "admin-pc.eth2""#, &["192.168.2.5"]),
            (r#"source = ["admin-pc.office", "admin-pc.eth2"]"#, &["192.168.1.5", "192.168.2.5"]),
            (r#"from = "lan", source = "admin-pc""#, &["192.168.1.5"]),
            (
                r#"from = ["guests", "wan"], source = ["printer", "admin-pc"]"#,
                &["192.168.1.6", "192.168.2.5"],
            ),
        ] {
            assert_eq!(sources(rule).unwrap(), expected, "{rule}");
        }
        for rule in [
            r#"source = "admin-pc""#,
            r#"from = ["lan", "guests"], source = "admin-pc""#,
            r#"from = "wan", source = "admin-pc""#,
        ] {
            let refused = sources(rule).unwrap_err();
            assert!(refused.contains("hosts of several networks are called `admin-pc`"), "{refused}");
            assert!(refused.contains(r#"write "admin-pc.eth2" or "admin-pc.office""#), "{refused}");
        }
    }
}
