//! `[uplink.tunnel]`: an uplink that is a transition tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use router::transition::{Domain, Kind, Tunnel};

use crate::converter::Converter;
use crate::key::Absent::{Default, Otherwise, Required};
use crate::report::Finding;
use crate::section::{Given, Value, section};
use crate::value::{self, Problem, nat64_prefix, problem, routed_prefix};

section! {
    /// `[uplink.tunnel]`, as it stands in the file.
    TransitionTable = "[uplink.tunnel]" {
        /// `"6in4"`: IPv6 in IPv4 to one remote end (RFC 4213). `"6rd"`: IPv6 in the provider's IPv4 (RFC 5969).
        /// `"6to4"`: IPv6 in IPv4 between public addresses (RFC 3056). `"4in6"`: IPv4 in IPv6 to one remote end (RFC
        /// 2473), as in DS-Lite. `"464xlat"`: IPv4 translated to IPv6, and back by the provider (CLAT, RFC 6877).
        kind: String = Required(r#""6in4", "6to4", "6rd", "4in6" or "464xlat""#);
        /// The interface that carries the tunnel. It may come and go, as a dial-up interface does.
        over: String = Required(r#"the interface that carries it, like "eth0""#);
        /// The remote end. 4in6: without it, the AFTR that the provider names by DHCPv6 (RFC 6334) along with a prefix: the
        /// uplink `over` has `delegation` then.
        remote: String = Otherwise("required for 6in4; named by DHCPv6 for 4in6");
        /// The router to the rest of the Internet. 6to4 has none unless you name one: the public relays of RFC 3068 are
        /// deprecated (RFC 7526), and anyone may answer at their address. Without a relay, 6to4 reaches only other 6to4
        /// sites, and hosts are told so by a route (RFC 4191).
        relay: String = Otherwise("required for 6rd; none for 6to4");
        /// 6rd: the provider's prefix (DHCP option 212, `6rdPrefix`). 464xlat: where the provider's translator finds IPv4;
        /// without it, what the routers at `over` advertise (PREF64, RFC 8781), or else what the DNS servers of that uplink
        /// say (RFC 7050).
        prefix: String = Otherwise("required for 6rd; found for 464xlat");
        /// 6rd: how many leading bits of the IPv4 address are left out of the prefix (DHCP option 212, `IPv4MaskLen`).
        ipv4_mask: i64 = Default("0");
        /// This end's outer address. `"auto"`: the first address of `over` that the kind can use, then the next one
        /// when that is gone; you must tell the broker about the change. 464xlat has one that nothing else uses: `"auto"`
        /// makes it in the last /64 that is delegated to the uplink `over`, else in a prefix of its link.
        local: String = Default(r#""auto""#);
        /// The largest inner packet: 20 bytes less than the MTU of `over`, 40 less for 4in6, 28 less for 464xlat.
        mtu: i64 = Otherwise("what fits into `over`");
        /// Hop limit of outer packets; 464xlat has that of the inner ones.
        hop_limit: i64 = Default("64");
    }
}

impl TransitionTable {
    /// Whether packets of its kind come in with IPv4 inside of IPv6.
    pub(crate) fn is_ipv4_in_ipv6(&self) -> bool {
        self.kind.text() == Some("4in6")
    }

    /// Whether it translates, and has nothing inside of anything.
    pub(crate) fn is_clat(&self) -> bool {
        self.kind.text() == Some("464xlat")
    }
}

/// What `kind` says, before the rest is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    SixInFour,
    SixToFour,
    SixRd,
    FourInSix,
    Clat,
}

impl Converter<'_> {
    pub(crate) fn transition(&mut self, given: &TransitionTable) -> Option<Tunnel> {
        let over = self.value(&given.over, value::interface);
        let named = self.value(&given.kind, named);
        let mtu = self.optional(&given.mtu, value::mtu);
        let hop_limit = self.value(&given.hop_limit, hop_limit);
        let named = named?;
        let local = self.value(&given.local, |text| match text {
            "auto" => Ok(None),
            text if matches!(named, Named::FourInSix | Named::Clat) => {
                ipv6(text).map(|address| Some(IpAddr::V6(address)))
            }
            text => ipv4(text).map(|address| Some(IpAddr::V4(address))),
        });
        let kind = self.transition_kind(named, given);
        Some(Tunnel {
            kind: kind?,
            over: over?,
            local: local?,
            mtu: mtu?.map(u32::from),
            hop_limit: hop_limit?,
        })
    }

    fn transition_kind(&mut self, named: Named, given: &TransitionTable) -> Option<Kind> {
        let to_one = matches!(named, Named::SixInFour | Named::FourInSix);
        let mut fits = true;
        if named == Named::Clat {
            let help = "the other end is the provider's translator, which `prefix` leads to";
            fits &= self.not_for(&given.remote, help) & self.not_for(&given.relay, help);
            fits &= self.not_for(&given.hop_limit, "translated packets have that of the inner ones");
        } else if to_one {
            fits &= self.not_for(&given.relay, "the other end is `remote`");
        } else {
            let help = "the inner address determines the outer one; packets out of the domain go to `relay`";
            fits &= self.not_for(&given.remote, help);
        }
        if !matches!(named, Named::SixRd | Named::Clat) {
            fits &= self.not_for(&given.prefix, "it is for \"6rd\" and \"464xlat\"");
        }
        if named != Named::SixRd {
            fits &= self.not_for(&given.ipv4_mask, "it is for \"6rd\"");
        }
        if named == Named::SixInFour {
            self.require(&given.remote, "the address of the other end");
        }
        let kind = match named {
            Named::SixInFour => Kind::SixInFour { remote: self.value(&given.remote, ipv4)? },
            Named::FourInSix => Kind::FourInSix { remote: self.optional(&given.remote, ipv6)? },
            Named::Clat => Kind::Clat { plat: self.optional(&given.prefix, nat64_prefix)? },
            Named::SixToFour => {
                let relay = self.optional(&given.relay, ipv4);
                Kind::Automatic(Domain::six_to_four(relay?))
            }
            Named::SixRd => Kind::Automatic(self.six_rd(given)?),
        };
        fits.then_some(kind)
    }

    fn six_rd(&mut self, given: &TransitionTable) -> Option<Domain> {
        self.require(&given.relay, "the address of the border relay");
        let relay = self.value(&given.relay, ipv4);
        self.require(&given.prefix, "the domain's prefix, like \"2001:db8::/32\"");
        let prefix = self.value(&given.prefix, routed_prefix);
        let mask = self.value(&given.ipv4_mask, ipv4_mask);
        let (relay, prefix, mask) = (relay?, prefix?, mask?);
        let domain = Domain::six_rd(prefix, mask, relay);
        if domain.is_none() {
            let length = u32::from(prefix.prefix_len()) + 32 - u32::from(mask);
            let label = format!("customers would have a /{length}, and a network needs a /64");
            let help = "ask the provider for the length of the prefix, and for `ipv4_mask`".to_owned();
            self.refuse(given.prefix.span(), "prefix", Problem { label, help });
        }
        domain
    }

    /// Whether a key is absent that the kind of tunnel does not have.
    fn not_for<V: Value>(&mut self, given: &Given<V>, help: &str) -> bool {
        let Some((key, span)) = given.place() else { return true };
        let title = format!("`{}` does not apply to this kind of tunnel", key.name);
        self.report(Finding::error(span, title, "remove it", help));
        false
    }
}

fn named(text: &str) -> Result<Named, Problem> {
    match text {
        "6in4" => Ok(Named::SixInFour),
        "6to4" => Ok(Named::SixToFour),
        "6rd" => Ok(Named::SixRd),
        "4in6" => Ok(Named::FourInSix),
        "464xlat" => Ok(Named::Clat),
        _ => problem("not a kind of tunnel", r#"write "6in4", "6to4", "6rd", "4in6" or "464xlat""#),
    }
}

fn hop_limit(number: i64) -> Result<u8, Problem> {
    match u8::try_from(number) {
        Ok(limit @ 1..) => Ok(limit),
        _ => problem("out of range", "write a number of routers from 1 to 255"),
    }
}

fn ipv4_mask(number: i64) -> Result<u8, Problem> {
    match u8::try_from(number) {
        Ok(mask @ 0..32) => Ok(mask),
        _ => {
            problem("out of range", "write how many leading bits of the addresses are left out, from 0 to 31")
        }
    }
}

fn ipv4(text: &str) -> Result<Ipv4Addr, Problem> {
    match text.parse::<Ipv4Addr>() {
        Ok(found) if !found.is_unspecified() && !found.is_multicast() => Ok(found),
        _ => problem("not an IPv4 address of a host", "write one like \"192.0.2.1\""),
    }
}

fn ipv6(text: &str) -> Result<Ipv6Addr, Problem> {
    match text.parse::<Ipv6Addr>() {
        Ok(found) if !found.is_unspecified() && !found.is_multicast() => Ok(found),
        _ => problem("not an IPv6 address of a host", "write one like \"2001:db8::1\""),
    }
}
