//! The shape of `[[zone]]` and `[firewall]`.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use crate::key::Absent::{Default, Otherwise, Required};
use crate::report::Report;
use crate::section::{Value, mismatch, section};

section! {
    /// `[[zone]]`, as it stands in the file.
    ZoneTable = "[[zone]]" {
        /// What rules call it: letters, digits, `-`, `_`. `gateway` is this machine itself.
        name: String = Required(r#"what rules call it, like "lan""#);
        /// What it may do where no rule says otherwise: `"inside"`, `"guest"` or `"outside"`.
        trust: String = Required(r#""inside", "guest" or "outside""#);
        /// Its interfaces. What comes through an interface of no zone is dropped; a tunnel's device needs one, too.
        interfaces: Vec<Spanned<String>> = Otherwise("none");
        /// Only these addresses behind the interfaces, such as one peer's behind a tunnel. The rest of the interface may
        /// be another zone. Where it is none, neighbor discovery and all else from link-local addresses is of the least
        /// trusted of its zones.
        networks: Vec<Spanned<String>> = Otherwise("all");
    }
}

section! {
    /// `[firewall]`, as it stands in the file.
    FirewallTable = "[firewall]" {
        /// `false`: all of this is left out.
        enabled: bool = Default("true");
        /// What becomes of the rest from inside and from guests: `"reject"` or `"drop"`.
        refuse: String = Default(r#""reject""#);
        /// `true`: what nothing lets pass is logged, up to 10 packets a second.
        log: bool = Default("false");
        /// Addresses that are never outside, but are here: a laboratory, a network of unique local addresses.
        accept_special: Vec<Spanned<String>> = Otherwise("none");
        /// Lists of addresses by name; they may contain names.
        addresses: BTreeMap<String, Spanned<Words>> = Default("{}");
        /// Lists of services by name, likewise.
        services: BTreeMap<String, Spanned<Words>> = Default("{}");
        /// Times by name.
        schedules: BTreeMap<String, Spanned<ScheduleTable>> = Default("{}");
        /// [Rules](#rules), the first of which that fits decides.
        rule: Vec<Spanned<RuleTable>> = Otherwise("none");
        /// Packets, and what is to become of them.
        test: Vec<Spanned<TestTable>> = Otherwise("none");
    }
}

section! {
    /// `[[firewall.rule]]`, as it stands in the file.
    RuleTable = "[[firewall.rule]]" {
        /// Zones by name, and `gateway`, that it comes from.
        from: Words = Otherwise("everywhere, the gateway included");
        /// Zones by name, and `gateway`, that it goes to.
        to: Words = Otherwise("everywhere, the gateway included");
        /// Addresses that it comes from: `2001:db8::1`, `2001:db8::/32`, `2001:db8::1-2001:db8::9`, names of
        /// `[firewall.addresses]`, and `*::10`: the last 64 bits, whatever the provider's prefix is now (`*::10/48`: the
        /// last 48).
        source: Words = Otherwise("any");
        /// Addresses that it goes to, likewise.
        destination: Words = Otherwise("any");
        /// `tcp/443`, `udp/8000-8010`, `icmpv6/echo-request`, `icmpv6/1/4` (type and code), `tcp`, `esp`, `proto/47`,
        /// names of `[firewall.services]`, and known ones: `ssh`, `dns`, `https` (with QUIC), `ipsec`, `ping`,
        /// `wireguard` …
        service: Words = Otherwise("any");
        /// So many packets: `10/s burst 20`, per `s`, `m`, `h` or `d`. Those beyond go on to the next rule.
        rate: String = Otherwise("any");
        /// While this holds, a name of `[firewall.schedules]`.
        schedule: String = Otherwise("always");
        /// `true`: the kernel logs the packet, up to 10 a second, as `sidestep rule 3 accept:`.
        log: bool = Default("false");
        /// For you; `explain`, `test` and `show` have it.
        comment: String = Otherwise("none");
        /// `accept`, `drop`, or `reject`: a TCP reset, otherwise ICMP "administratively prohibited".
        action: String = Required(r#""accept", "drop" or "reject""#);
    }
}

section! {
    /// A schedule, as it stands in the file.
    ScheduleTable = "a schedule" {
        /// `mon` to `sun`, and ranges.
        days: Words = Otherwise("all");
        /// When it begins.
        from: String = Default(r#""00:00""#);
        /// When it ends; a time before the beginning is of the next day.
        to: String = Default(r#""24:00""#);
    }
}

section! {
    /// `[[firewall.test]]`, as it stands in the file.
    TestTable = "[[firewall.test]]" {
        /// A packet [in words](firewall.md#packets-in-words).
        packet: String = Required(r#""tcp from 2a02:8100:1::5 to 2a00:1450::1 port 22 in lan""#);
        /// What is to become of it: `accept`, `drop` or `reject`.
        expect: String = Required(r#""accept", "drop" or "reject""#);
        /// The comment of the rule that is to decide; `default` where none is.
        rule: String = Otherwise("any");
    }
}

/// One text, or a list of them.
#[derive(Debug)]
pub(crate) enum Words {
    One(String),
    Many(Vec<String>),
}

impl Value for Words {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "text in quotes, or a list of such";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
        let read = match value.get_ref() {
            DeValue::Array(list) => {
                list.iter().map(|word| text(word.get_ref())).collect::<Option<_>>().map(Words::Many)
            }
            word => text(word).map(Words::One),
        };
        read.or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &Self {
        self
    }
}

impl Words {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
        .iter()
        .map(String::as_str)
    }
}
