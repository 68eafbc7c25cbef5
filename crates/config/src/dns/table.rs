//! The shape of `[dns]`.

use toml::Spanned;
use toml::de::DeValue;

use crate::key::Absent::{Default, Otherwise};
use crate::report::Report;
use crate::section::{Value, mismatch, section};

section! {
    /// `[dns]`, as it stands in the file.
    DnsTable = "[dns]" {
        /// Who is asked for names that are not of a network here. `"uplinks"`: the servers that working uplinks announce (RFC
        /// 8106, DHCPv6); if none does, those in `/etc/resolv.conf`, where a DHCP client for IPv4 writes them. Or a list of
        /// addresses, with a port where it is another than 53, as of [a forwarder](gateway.md#dns-names) on this machine:
        /// `["127.0.0.1:5353"]`. Or `tls://ADDRESS#NAME`, for [DNS over TLS](gateway.md#dns-names): `["tls://9.9.9.9#dns.quad9.net"]`.
        upstream: Servers = Default(r#""uplinks""#);
        /// The domain that the networks' domains are in: a host `nas` of the network `home` is `nas.home.internal`. One that
        /// exists elsewhere is still asked for there, but for its networks.
        domain: String = Default(r#""internal""#);
        /// Domains elsewhere whose names may have private addresses, such as those of a site behind a tunnel. Of all other
        /// names such an answer is refused: a web page could reach hosts here by it (DNS rebinding).
        private_domains: Vec<Spanned<String>> = Otherwise("none");
    }
}

/// `"uplinks"`, or addresses.
#[derive(Debug)]
pub(crate) enum Servers {
    Word(String),
    Addresses(Vec<String>),
}

impl Value for Servers {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "\"uplinks\", or a list of addresses";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
        let read = match value.get_ref() {
            DeValue::Array(list) => list
                .iter()
                .map(|address| text(address.get_ref()))
                .collect::<Option<_>>()
                .map(Servers::Addresses),
            word => text(word).map(Servers::Word),
        };
        read.or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &Self {
        self
    }
}
