//! The file in which dnsmasq keeps its leases: a line for each, `EXPIRES MAC ADDRESS NAME CLIENT-ID`, with `*` for what is
//! not known.

use std::net::Ipv4Addr;

/// An address that a host has for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The host's address.
    pub address: Ipv4Addr,
    /// Its link-layer address, as dnsmasq writes it.
    pub mac: String,
    /// The name that it goes by in its network's domain, if it has told one that nobody else has.
    pub name: Option<String>,
    /// When it ends, in seconds since 1970; None where it does not.
    pub expires: Option<u64>,
}

/// The leases of a file that last at `now`, in seconds since 1970, by address. Lines that are none, as where the file is
/// being written, are passed over.
#[must_use]
pub fn leases(text: &str, now: u64) -> Vec<Lease> {
    let mut leases: Vec<Lease> = text.lines().filter_map(lease).collect();
    leases.retain(|lease| lease.expires.is_none_or(|expires| expires > now));
    leases.sort_by_key(|lease| lease.address);
    leases
}

/// The same file without the names of leases that are others'.
#[must_use]
pub fn without_names(text: &str, is_anothers: impl Fn(&Lease) -> bool) -> String {
    let kept = |line: &str| match lease(line) {
        Some(lease) if is_anothers(&lease) => {
            let words = line.split_whitespace().enumerate();
            words.map(|(place, word)| if place == 3 { "*" } else { word }).collect::<Vec<_>>().join(" ")
        }
        _ => line.to_owned(),
    };
    text.lines().map(|line| kept(line) + "\n").collect()
}

fn lease(line: &str) -> Option<Lease> {
    let mut words = line.split_whitespace();
    let expires: u64 = words.next()?.parse().ok()?;
    let mac = words.next()?;
    let address = words.next()?.parse().ok()?;
    let name = words.next()?;
    // Hosts name themselves; what is no name is nobody's.
    let is_label = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = Some(name).filter(|name| name.len() <= 253 && name.chars().all(is_label)).map(str::to_owned);
    let is_mac = mac.len() <= 64 && mac.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '-'));
    is_mac.then(|| Lease { address, mac: mac.to_owned(), name, expires: Some(expires).filter(|at| *at != 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_that_last_are_read_by_address_and_other_lines_passed_over() {
        let text = "200 02:00:00:00:00:02 192.168.1.130 printer 01:02:00:00:00:00:02\n\
                    100 02:00:00:00:00:01 192.168.1.129 gone *\n\
                    0 02:00:00:00:00:03 192.168.1.5 * *\n\
                    duid 00:01:00:01:2d\n\
                    200 02:00:00:00:00:04 192.168.1.131 <b>me</b> *\n\
                    200 02:00:00:00:0";
        let found = leases(text, 150);
        let shown: Vec<_> = found
            .iter()
            .map(|lease| (lease.address.octets()[3], lease.name.as_deref(), lease.expires))
            .collect();
        assert_eq!(shown, [(5, None, None), (130, Some("printer"), Some(200)), (131, None, Some(200))]);
        assert_eq!(found[1].mac, "02:00:00:00:00:02");
    }

    #[test]
    fn a_name_is_taken_from_its_lease_and_all_else_stays() {
        let text = "200 02:00:00:00:00:02 192.168.1.130 nas 01:02:00:00:00:00:02\n\
                    200 02:00:00:00:00:03 192.168.1.131 laptop *\nduid 00:01:00:01:2d\n";
        let is_anothers = |lease: &Lease| lease.name.as_deref() == Some("nas");
        assert_eq!(without_names(text, is_anothers), text.replace("nas", "*"));
        assert_eq!(without_names(text, |_| false), text);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String, now: u64) {
            for lease in leases(&text, now) {
                let is_plain = lease.name.is_none_or(|name| !name.contains(['<', '\u{1b}', ' ']));
                proptest::prop_assert!(is_plain);
            }
            let without = without_names(&text, |_| true);
            proptest::prop_assert_eq!(leases(&without, now).len(), leases(&text, now).len());
            proptest::prop_assert!(leases(&without, now).iter().all(|lease| lease.name.is_none()));
        }
    }
}
