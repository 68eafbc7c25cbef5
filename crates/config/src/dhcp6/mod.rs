//! `[network.dhcp6]`: addresses of hosts that need fixed ones, and prefixes for routers behind this one.

pub(crate) mod table;

use router::dhcp6::{FixedHost, Identity, Settings};
use toml::Spanned;
use wire::ethernet::MacAddress;

use crate::converter::Converter;
use crate::dhcp::host_name;
use crate::network::host;
use crate::report::Finding;
use crate::section::Given;
use crate::value::{self, Problem, problem};
use table::{Dhcp6Table, Host6Table};

const MOST_HOSTS: usize = 10_000;

impl Converter<'_> {
    /// What a network gives, in whose prefixes the gateway has this address.
    pub(crate) fn dhcp6(&mut self, given: &Given<Dhcp6Table>, own: u64) -> Option<Option<Settings>> {
        if given.is_wrong() {
            return None;
        }
        let Some(table) = given.given() else { return Some(None) };
        let span = table.span();
        let table = table.get_ref();
        let delegate = self.optional(&table.delegate, |length| match u8::try_from(length) {
            Ok(length) if (48..=64).contains(&length) => Ok(length),
            _ => problem(
                "not a length that routers get",
                "write 48 to 64: 60 for most, 64 for those with one network",
            ),
        });
        let hosts: Vec<_> =
            table.host.list().iter().map(|host| self.fixed_host6(host.get_ref(), own)).collect();
        let hosts = hosts.into_iter().collect::<Option<Vec<_>>>();
        let hosts = hosts.filter(|hosts| self.are_different6(hosts, table.host.list()));
        let (delegate, hosts) = (delegate?, hosts?);
        if delegate.is_none() && hosts.is_empty() {
            let help =
                "add `delegate`, as delegate = 60, for routers behind this one, or [[network.dhcp6.host]]";
            self.report(Finding::error(
                span,
                "[network.dhcp6] gives nobody anything",
                "neither prefixes nor addresses",
                help,
            ));
            return None;
        }
        Some(Some(Settings { delegate, hosts }))
    }

    fn fixed_host6(&mut self, given: &Host6Table, own: u64) -> Option<FixedHost> {
        let name = self.value(&given.name, host_name);
        let host = self.value(&given.address, |text| match host(text)? {
            host if host == own => problem("the gateway's own address", "write another one"),
            host => Ok(host),
        });
        let duid = self.optional(&given.duid, duid);
        let mac = self.optional(&given.mac, |text| match MacAddress(value::mac(text)?) {
            mac if mac.is_multicast() || mac == MacAddress::default() => {
                problem("not the address of a host", "write the host's, as its network settings show it")
            }
            mac => Ok(mac),
        });
        let identity = match (duid?, mac?) {
            (Some(duid), None) => Identity::Duid(duid),
            (None, Some(mac)) => Identity::Mac(mac),
            _ => {
                let help = "write `mac`, or `duid` where the host's has another link-layer address in it";
                let title = "a host is known by its `mac` or by its `duid`";
                self.report(Finding::error(
                    given.name.span_or_table(),
                    title,
                    "this one by both, or by neither",
                    help,
                ));
                return None;
            }
        };
        Some(FixedHost { name: name?, identity, host: host? })
    }

    /// Whether no two hosts of a network have the same name, identity or address.
    fn are_different6(&mut self, hosts: &[FixedHost], tables: &[Spanned<Host6Table>]) -> bool {
        if let Some(one_more) = tables.get(MOST_HOSTS) {
            let help = "let the others make their own addresses";
            self.report(Finding::error(one_more.span(), "too many hosts", "one more than 10000", help));
            return false;
        }
        let mut good = true;
        let mut seen = std::collections::HashMap::new();
        for (host, table) in hosts.iter().zip(tables) {
            for (key, value) in [
                ("name", host.name.to_ascii_lowercase()),
                ("identity", format!("{:?}", host.identity)),
                ("address", host.host.to_string()),
            ] {
                if let Some(first) = seen.insert((key, value), table.span()) {
                    let title = format!("two hosts have the same {key}");
                    let help = format!("each host needs its own {key}");
                    self.report(
                        Finding::error(table.span(), title, "the second", help).related(first, "the first"),
                    );
                    good = false;
                }
            }
        }
        good
    }
}

/// A DUID, as DHCPv6 clients show it: bytes in hexadecimal, with or without colons.
fn duid(text: &str) -> Result<Vec<u8>, Problem> {
    const HELP: &str = "write its bytes in hexadecimal, like \"00:03:00:01:02:00:5e:00:53:01\"";
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
    let byte = |pair: &[u8]| {
        let digit = |digit: &u8| char::from(*digit).to_digit(16);
        let (high, low) = (digit(pair.first()?)?, digit(pair.get(1)?)?);
        u8::try_from(high << 4 | low).ok()
    };
    match digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>() {
        Some(duid) if (3..=130).contains(&duid.len()) => Ok(duid),
        _ => problem("not a DUID", HELP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duid_is_read_as_clients_show_it() {
        let bytes = vec![0, 3, 0, 1, 2, 0, 0x5e, 0, 0x53, 1];
        assert_eq!(duid("00:03:00:01:02:00:5e:00:53:01").ok(), Some(bytes.clone()));
        assert_eq!(duid("0003000102005E005301").ok(), Some(bytes));
        for wrong in ["", "0", "00:0", "00:01:0g", "büro", "00".repeat(131).as_str()] {
            assert!(duid(wrong).is_err(), "{wrong}");
        }
    }
}
