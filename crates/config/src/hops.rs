//! A hopping prefix that is not written down: that of an uplink of the same file.

use ipnet::Ipv6Net;

use crate::value::{self, Problem, problem};

/// What begins the text that names an uplink.
pub(crate) const UPLINK: &str = "uplink:";

/// What `hop_prefix` of `[node]` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HopPrefix {
    /// This one.
    Fixed(Ipv6Net),
    /// That of this uplink, or the /64 with this number in it.
    OfUplink(String, Option<u64>),
}

/// A prefix, or `uplink:NAME`, or `uplink:NAME/NUMBER`.
pub(crate) fn hop_prefix(text: &str) -> Result<HopPrefix, Problem> {
    let Some(uplink) = text.strip_prefix(UPLINK) else {
        return value::hop_prefix(text).map(HopPrefix::Fixed);
    };
    let (name, number) = match uplink.rsplit_once('/') {
        Some((name, number)) => match number.parse() {
            Ok(number) => (name, Some(number)),
            Err(_) => {
                return problem(
                    "not the number of a /64",
                    format!("write \"{UPLINK}{name}\", or a number after it: \"{UPLINK}{name}/7\""),
                );
            }
        },
        None => (uplink, None),
    };
    match value::peer_name(name) {
        Ok(name) => Ok(HopPrefix::OfUplink(name, number)),
        Err(_) => problem("the uplink's name is missing", format!("write it, like \"{UPLINK}fibre\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_prefixes() {
        let of = |name: &str, number| HopPrefix::OfUplink(name.to_owned(), number);
        assert_eq!(hop_prefix("uplink:fibre"), Ok(of("fibre", None)));
        assert_eq!(hop_prefix("uplink:fibre/7"), Ok(of("fibre", Some(7))));
        assert_eq!(hop_prefix("uplink:a/b/0"), Ok(of("a/b", Some(0))));
        assert_eq!(
            hop_prefix("2001:db8:a1::/64"),
            Ok(HopPrefix::Fixed("2001:db8:a1::/64".parse().expect("a prefix")))
        );
        for wrong in
            ["uplink:", "uplink:fibre/", "uplink:fibre/x", "uplink:/3", "uplink", "uplink:a b", "fibre"]
        {
            assert!(hop_prefix(wrong).is_err(), "{wrong}");
        }
    }
}
