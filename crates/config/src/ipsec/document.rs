//! The tables of a file with `[ipsec]`, as they stand there.

use toml::Spanned;
use toml::de::DeValue;
use zeroize::Zeroizing;

use crate::document::{self, Document};
use crate::key::Absent::{Default, Otherwise, Required};
use crate::report::{Finding, Report};
use crate::section::{Period, Section, Value, integer, mismatch, read_entries, section};

section! {
    /// The file.
    IpsecDocument = "the file" {
        /// This end.
        ipsec: IpsecTable = Otherwise("");
        /// The other ends.
        remote: Vec<Spanned<RemoteTable>> = Otherwise("none");
        /// What must be protected beside the networks of the children.
        policy: Vec<Spanned<PolicyTable>> = Otherwise("none");
    }
}

section! {
    /// `[ipsec]`, as it stands in the file.
    IpsecTable = "[ipsec]" {
        /// Who this end is, to every remote: a domain name, a mail address, an IP address, or `keyid:` with any text.
        /// With a certificate, it must be one of the names in it.
        identity: String = Otherwise("`address`; required without one");
        /// The address that this end listens at and sends from.
        address: String = Otherwise("all of them");
        /// Name of the TUN device, and of the control socket.
        interface: String = Otherwise("the file's name; `ipsec0` if it cannot be one");
        /// Addresses of the device, with prefix length. Those that a remote gives this end are added.
        addresses: Vec<Spanned<String>> = Otherwise("none");
        /// Largest packet in the tunnel, 1280 to 65535 bytes. Set it only to stay below what the path carries.
        mtu: i64 = Otherwise("follows the path");
        /// UDP port of IKE at this end; `0`: any free one.
        port: i64 = Default("500");
        /// UDP port of this end for IKE and ESP where a NAT is on the way; `0`: any free one.
        nat_port: i64 = Default("4500");
        /// PEM file with this end's certificate, and behind it those between it and an authority.
        certificate_file: String = Otherwise("none: remotes need shared keys");
        /// PEM file with the certificate's private key (PKCS#8): ECDSA P-256 or P-384, Ed25519, or RSA. Refused if
        /// others can read it.
        private_key_file: String = Otherwise("required with `certificate_file`");
        /// PEM file with the certificates of the authorities that remotes' certificates must lead to.
        authority_file: String = Otherwise("required with `certificate_file`, here or in each `[[remote]]`");
        /// Algorithms for IKE, as [strongSwan names them](ipsec.md#algorithms): `["aes256gcm16-sha384-x25519"]`.
        algorithms: Vec<Spanned<String>> = Otherwise("all that are strong");
        /// File with associations and policies in [setkey's language](ipsec.md#keys-by-hand), for `ipsec up` and programs
        /// with a stack of their own. It holds keys: refused if others can read it.
        setkey_file: String = Otherwise("none");
        /// How well all packets must be authenticated (AH), [`0` to `3`](ipsec.md#levels): `"none"`, `"use"`,
        /// `"require"`, `"unique"`.
        authentication: LevelValue = Default(r#""none""#);
        /// The same for encryption between the two hosts (ESP in transport mode).
        transport_encryption: LevelValue = Default(r#""none""#);
        /// The same for encryption in a tunnel (ESP in tunnel mode).
        tunnel_encryption: LevelValue = Default(r#""none""#);
    }
}

section! {
    /// `[[remote]]`, as it stands in the file.
    RemoteTable = "[[remote]]", named "remote" {
        /// Any name; `status` uses it.
        name: String = Required("any name that tells you which remote it is");
        /// Its address or host name. Names are looked up at each attempt.
        address: String = Otherwise("none: it comes to this end");
        /// Its UDP port of IKE.
        port: i64 = Default("500");
        /// Its UDP port for IKE and ESP where a NAT is on the way.
        nat_port: i64 = Default("4500");
        /// When ESP goes in UDP: `"always"`, or `"auto"`, where a NAT is on the way or the remote wants it, and as protocol
        /// 50 of IP else. UDP [is faster here](ipsec.md#esp-with-and-without-udp), and passes more firewalls; without, each
        /// packet is 8 bytes shorter.
        encapsulate: String = Default(r#""always""#);
        /// Who it must be, in the forms of `identity` in `[ipsec]`; `"*"`: anybody with the key, or with a certificate of
        /// the authority.
        identity: String = Otherwise("`address`; anybody without one");
        /// File with the key that both ends share. Refused if others can read it.
        shared_key_file: String = Otherwise("none: both ends have certificates");
        /// The key itself: text, or `0x` and hexadecimal digits, or `0s` and base64. Keep the file private: a warning is
        /// printed if others can read it.
        shared_key: Zeroizing<String> = Otherwise("none");
        /// PEM file with the authorities of this remote alone, in place of those of `[ipsec]`.
        authority_file: String = Otherwise("that of `[ipsec]`");
        /// When this end begins: `"always"`, at once and again after each end; `"traffic"`, when there is something to
        /// carry; `"wait"`, never.
        start: String = Otherwise(r#"`"always"`; `"wait"` without `address`"#);
        /// Whether the end that began may change its address (MOBIKE), if both ends want that.
        mobile: bool = Otherwise("`true`; `false` with transport mode");
        /// `true`: ask the remote for addresses and DNS servers, as road warriors do.
        request_addresses: bool = Default("false");
        /// Addresses that the remote is given when it asks, one of each IP version.
        assign: Vec<Spanned<String>> = Otherwise("none");
        /// Networks out of which each of many clients is given one address of each IP version, the same one again when it
        /// comes back. Addresses that are this end's or in another remote's `assign` are left out.
        pool: Vec<Spanned<String>> = Otherwise("none");
        /// DNS servers that the remote is given with them.
        dns: Vec<Spanned<String>> = Otherwise("none");
        /// The IKE SA gets new keys after this time, `10s` to `7d`.
        rekey_after: Period = Default(r#""4h""#);
        /// After this much silence, `1s` to `1h`, the remote is asked whether it is there.
        liveness_after: Period = Default(r#""30s""#);
        /// What is carried, and how.
        child: Vec<Spanned<ChildTable>> = Otherwise("required");
    }
}

section! {
    /// `[[remote.child]]`, as it stands in the file.
    ChildTable = "[[remote.child]]" {
        /// Networks or addresses at this end.
        local: Vec<Spanned<String>> = Otherwise("this end's address, or those that it is given");
        /// Networks or addresses at the other end.
        remote: Vec<Spanned<String>> = Otherwise("the remote's address, or those that it is given");
        /// Only this protocol: `"tcp"`, `"udp"`, `"icmpv6"` … or its number, `"proto/47"`.
        protocol: String = Otherwise("all");
        /// Only these ports at this end: `443` or `"8000-8010"`.
        local_ports: RangeValue = Otherwise("all");
        /// Only these ports at the other end.
        remote_ports: RangeValue = Otherwise("all");
        /// `"tunnel"`: whole packets, of any hosts. `"transport"`: packets of the two ends themselves, without a second
        /// IP header, for `ipsec up` (with a remote whose `address` is one) and programs with a stack of their own.
        mode: String = Default(r#""tunnel""#);
        /// `"esp"`: packets are encrypted and authenticated. `"ah"`: they are authenticated, their IP header included, and
        /// anybody can read them; in transport mode only.
        header: String = Default(r#""esp""#);
        /// Algorithms, as [strongSwan names them](ipsec.md#algorithms): `["aes256gcm16-x25519"]`; a group in each
        /// of them is insisted on at rekeys; without one, keys are derived from the IKE SA's.
        algorithms: Vec<Spanned<String>> = Otherwise("all that are strong");
        /// It gets new keys after this time, `10s` to `7d`.
        rekey_after: Period = Default(r#""1h""#);
    }
}

section! {
    /// `[[policy]]`, as it stands in the file.
    PolicyTable = "[[policy]]" {
        /// `"in"`: packets to this host or through it. `"out"`: packets that leave.
        direction: String = Required(r#""in" or "out""#);
        /// Where they come from: networks or addresses.
        source: Vec<Spanned<String>> = Otherwise("everywhere");
        /// Where they go.
        destination: Vec<Spanned<String>> = Otherwise("everywhere");
        /// `"tcp"`, `"udp"`, `"icmpv6"`, `"icmpv6/packet-too-big"`, `"proto/47"` …
        protocol: String = Otherwise("all");
        /// Source ports: `22` or `"1-1023"`. They need a `protocol`.
        source_ports: RangeValue = Otherwise("all");
        /// Destination ports.
        destination_ports: RangeValue = Otherwise("all");
        /// `"bypass"`: they pass without protection, whatever the levels of `[ipsec]` are. `"discard"`: they do not pass.
        /// `"protect"`: they pass if they have these levels at least, and those of `[ipsec]`.
        action: String = Required(r#""bypass", "discard" or "protect""#);
        /// With `protect`: [the level](ipsec.md#levels) of authentication (AH; for packets that come in, ESP will do).
        authentication: LevelValue = Default(r#""none""#);
        /// With `protect`: that of ESP in transport mode.
        transport_encryption: LevelValue = Default(r#""none""#);
        /// With `protect`: that of ESP in tunnel mode.
        tunnel_encryption: LevelValue = Default(r#""none""#);
    }
}

/// A level, as `"require"` or `2`.
#[derive(Debug)]
pub(crate) enum LevelValue {
    Name(String),
    Number(i64),
}

impl Value for LevelValue {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "a level, like \"require\" or 2";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let name = value.get_ref().as_str().map(|name| LevelValue::Name(name.to_owned()));
        name.or_else(|| integer(value.get_ref()).map(LevelValue::Number)).or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &Self {
        self
    }
}

/// Numbers from one to another, as `443` or `"8000-8010"`.
#[derive(Debug)]
pub(crate) enum RangeValue {
    Text(String),
    Number(i64),
}

impl Value for RangeValue {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "a number like 443 or a range like \"8000-8010\"";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let text = value.get_ref().as_str().map(|text| RangeValue::Text(text.to_owned()));
        text.or_else(|| integer(value.get_ref()).map(RangeValue::Number)).or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &Self {
        self
    }
}

/// Reads the file with all that is wrong in it reported, or reports why it is no TOML.
pub(crate) fn read(text: &str, report: &mut Report) -> Option<IpsecDocument> {
    let mut entries = document::parse_table(text, report)?;
    let foreign = |name: &str| Document::KEYS.iter().any(|key| key.name == name);
    let mut others: Vec<_> = entries.keys().filter(|name| foreign(name.get_ref())).cloned().collect();
    others.sort_by_key(|name| name.span().start);
    for name in others {
        report.add(Finding::error(
            name.span(),
            format!("[ipsec] and `{}` are in one file", name.get_ref()),
            "of a moving-target tunnel, a gateway or a firewall",
            "IPsec has a file of its own: leave [ipsec], [[remote]] and [[policy]] here, and move the rest to another",
        ));
        if let Some(value) = entries.remove(name.get_ref().as_ref()) {
            report.hide(&value);
        }
    }
    Some(read_entries(&entries, 0..0, report))
}
