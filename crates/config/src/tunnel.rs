//! Table `[uplink.tunnel]`: an uplink that is a transition tunnel.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use router::transition::{Domain, Kind, Tunnel};
use serde::Deserialize;
use toml::Spanned;

use super::convert::Converter;
use super::document::Text;
use super::gateway::{problem, routed_prefix};
use super::report::Finding;
use super::value::{self, Problem};

const OWNER: &str = "[uplink.tunnel]";

/// `[uplink.tunnel]`, as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TunnelTable {
    kind: Text,
    pub(super) over: Text,
    remote: Text,
    local: Text,
    mtu: Option<Spanned<i64>>,
    hop_limit: Option<Spanned<i64>>,
    pub(super) prefix: Text,
    ipv4_mask: Option<Spanned<i64>>,
    relay: Text,
}

impl TunnelTable {
    /// Whether it carries IPv4 inside of IPv6, and not the other way round.
    pub(super) fn is_over_ipv6(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| kind.get_ref() == "4in6")
    }
}

/// What `kind` says, before the rest is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    SixInFour,
    SixToFour,
    SixRd,
    FourInSix,
}

impl Converter<'_> {
    pub(super) fn uplink_tunnel(&mut self, table: &Spanned<TunnelTable>) -> Option<Tunnel> {
        let (given, header) = (table.get_ref(), table.span());
        let over = self.required(
            &given.over,
            &header,
            OWNER,
            "over",
            "the interface that carries it, like \"eth0\"",
        );
        let over = self.value("over", over, |text| value::interface(text));
        let kind = self.required(&given.kind, &header, OWNER, "kind", r#""6in4", "6to4", "6rd" or "4in6""#);
        let kind = self.value("kind", kind, |text| match text.as_str() {
            "6in4" => Ok(Given::SixInFour),
            "6to4" => Ok(Given::SixToFour),
            "6rd" => Ok(Given::SixRd),
            "4in6" => Ok(Given::FourInSix),
            _ => problem("not a kind of tunnel", r#"write "6in4", "6to4", "6rd" or "4in6""#),
        });
        let mtu = self.optional("mtu", given.mtu.as_ref(), |number| value::mtu(*number));
        let hop_limit =
            self.optional("hop_limit", given.hop_limit.as_ref(), |number| match u8::try_from(*number) {
                Ok(limit @ 1..) => Ok(limit),
                _ => problem("out of range", "write a number of routers from 1 to 255"),
            });
        let kind = kind?;
        let local = self.optional("local", given.local.as_ref(), |text| match text.as_str() {
            "auto" => Ok(None),
            text => address(text, kind == Given::FourInSix).map(Some),
        });
        let kind = self.tunnel_kind(kind, given, &header);
        Some(Tunnel {
            kind: kind?,
            over: over?,
            local: local?.flatten(),
            mtu: mtu?.map(u32::from),
            hop_limit: hop_limit?.unwrap_or(64),
        })
    }

    fn tunnel_kind(&mut self, kind: Given, given: &TunnelTable, header: &Range<usize>) -> Option<Kind> {
        let to_one = matches!(kind, Given::SixInFour | Given::FourInSix);
        let mut fits = true;
        if !to_one {
            fits &= self.not_for(
                &given.remote,
                "remote",
                "the inner address says who gets a packet; the way out of the \
                                 domain is its `relay`",
            );
        }
        if to_one {
            fits &= self.not_for(&given.relay, "relay", "the other end is `remote`");
        }
        if kind != Given::SixRd {
            fits &= self.not_for(&given.prefix, "prefix", "it is for \"6rd\"");
            fits &= self.not_for(&given.ipv4_mask, "ipv4_mask", "it is for \"6rd\"");
        }
        let other_end = |converter: &mut Self, over_ipv6: bool| {
            let help = "the address of the other end";
            let remote = converter.required(&given.remote, header, OWNER, "remote", help);
            converter.value("remote", remote, |text| address(text, over_ipv6))
        };
        let found = match kind {
            Given::SixInFour => match other_end(self, false)? {
                IpAddr::V4(remote) => Kind::SixInFour { remote },
                IpAddr::V6(_) => return None,
            },
            Given::FourInSix => match other_end(self, true)? {
                IpAddr::V6(remote) => Kind::FourInSix { remote },
                IpAddr::V4(_) => return None,
            },
            Given::SixToFour => {
                let relay = self.optional("relay", given.relay.as_ref(), |text| ipv4(text));
                Kind::Automatic(Domain::six_to_four(relay?))
            }
            Given::SixRd => Kind::Automatic(self.six_rd(given, header)?),
        };
        fits.then_some(found)
    }

    fn six_rd(&mut self, given: &TunnelTable, header: &Range<usize>) -> Option<Domain> {
        let relay = self.required(&given.relay, header, OWNER, "relay", "the address of the border relay");
        let relay = self.value("relay", relay, |text| ipv4(text));
        let text = self.required(
            &given.prefix,
            header,
            OWNER,
            "prefix",
            "the domain's prefix, like \"2001:db8::/32\"",
        );
        let prefix = self.value("prefix", text, |text| routed_prefix(text));
        let mask =
            self.optional("ipv4_mask", given.ipv4_mask.as_ref(), |number| match u8::try_from(*number) {
                Ok(mask @ 0..32) => Ok(mask),
                _ => problem(
                    "out of range",
                    "write how many leading bits of the addresses are left out, from 0 to 31",
                ),
            });
        let (relay, prefix, mask) = (relay?, prefix?, mask?.unwrap_or(0));
        let domain = Domain::six_rd(prefix, mask, relay);
        if domain.is_none() {
            let length = u32::from(prefix.prefix_len()) + 32 - u32::from(mask);
            let span = text.map_or_else(|| header.clone(), Spanned::span);
            let label = format!("customers would have a /{length}, and a network needs a /64");
            let help = "ask the provider for the length of the prefix, and for `ipv4_mask`";
            self.report(Finding::error(span, "`prefix` cannot be used", label, help));
        }
        domain
    }

    /// Whether a key is absent that the kind of tunnel does not have.
    fn not_for<T>(&mut self, given: &Option<Spanned<T>>, key: &str, help: &str) -> bool {
        let Some(given) = given else { return true };
        let title = format!("`{key}` is not for this kind of tunnel");
        self.report(Finding::error(given.span(), title, "remove it", help));
        false
    }
}

fn address(text: &str, ipv6: bool) -> Result<IpAddr, Problem> {
    match text.parse::<IpAddr>() {
        Ok(found) if found.is_ipv6() == ipv6 && !found.is_unspecified() && !found.is_multicast() => Ok(found),
        _ if ipv6 => problem("not an IPv6 address of a host", "write one like \"2001:db8::1\""),
        _ => problem("not an IPv4 address of a host", "write one like \"192.0.2.1\""),
    }
}

fn ipv4(text: &str) -> Result<Ipv4Addr, Problem> {
    match address(text, false)? {
        IpAddr::V4(found) => Ok(found),
        IpAddr::V6(_) => problem("not an IPv4 address of a host", "write one like \"192.0.2.1\""),
    }
}
