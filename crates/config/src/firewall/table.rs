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
        /// Its name in rules: letters, digits, `-`, `_`. `gateway` is this machine itself.
        name: String = Required(r#"what rules call it, like "lan""#);
        /// What is permitted unless a rule says otherwise: `"inside"`, `"guest"` or `"outside"`.
        trust: String = Required(r#""inside", "guest" or "outside""#);
        /// Its interfaces. Packets from an interface without a zone are dropped; a tunnel device needs a zone, too.
        interfaces: Vec<Spanned<String>> = Otherwise("none");
        /// Only these addresses behind the interfaces, such as one peer's behind a tunnel. The rest of the interface
        /// may be another zone; if it is not, packets from link-local addresses, including neighbor discovery, belong
        /// to the least trusted of its zones.
        networks: Vec<Spanned<String>> = Otherwise("all");
    }
}

section! {
    /// `[firewall]`, as it stands in the file.
    FirewallTable = "[firewall]" {
        /// `false`: no firewall.
        enabled: bool = Default("true");
        /// `"reject"` or `"drop"`: for refused packets from inside and from guests.
        refuse: String = Default(r#""reject""#);
        /// `true`: log refused packets, up to 10 per second.
        log: bool = Default("false");
        /// `"software"`: packets of known connections take a [short way](#flow-offload) between uplinks and networks.
        /// `"hardware"`: network cards carry them that can.
        flow_offload: String = Otherwise("none");
        /// Special addresses that are accepted outside: a laboratory, a network of unique local addresses.
        accept_special: Vec<Spanned<String>> = Otherwise("none");
        /// Lists of addresses by name, for rules; names may contain names.
        addresses: BTreeMap<String, Spanned<OneOrMany>> = Default("{}");
        /// Lists of services by name, likewise.
        services: BTreeMap<String, Spanned<OneOrMany>> = Default("{}");
        /// Times by name: `days`, `from` and `to`.
        schedules: BTreeMap<String, Spanned<ScheduleTable>> = Default("{}");
        /// The rules; the first that fits decides.
        rule: Vec<Spanned<RuleTable>> = Otherwise("none");
        /// Packets, and what is to become of them.
        test: Vec<Spanned<TestTable>> = Otherwise("none");
    }
}

section! {
    /// `[[firewall.rule]]`, as it stands in the file.
    RuleTable = "[[firewall.rule]]" {
        /// Zones that the packet comes from, by name, and `gateway`.
        from: OneOrMany = Otherwise("everywhere, including the gateway");
        /// Zones that the packet goes to, by name, and `gateway`.
        to: OneOrMany = Otherwise("everywhere, including the gateway");
        /// Source addresses: `2001:db8::1`, `2001:db8::/32`, `2001:db8::1-2001:db8::9`, names in
        /// `[firewall.addresses]` and of hosts with a fixed address ([IPv4](gateway.md#networkdhcp-ipv4-addresses-for-hosts),
        /// [IPv6](gateway.md#networkdhcp6-addresses-for-hosts-prefixes-for-routers)), and `*::10`: the last 64 bits,
        /// whatever the current prefix (`*::10/48`: the last 48). The name of a host with a fixed IPv6 address stands for
        /// its last 64 bits, which somebody elsewhere may choose, too: such a rule needs `from`. A name that hosts of
        /// several networks have is written `NAME.NETWORK`, unless only one of these networks is in zones of `from`.
        source: OneOrMany = Otherwise("any");
        /// Destination addresses, in the same forms; with the name of a host with a fixed IPv6 address `to` is needed.
        destination: OneOrMany = Otherwise("any");
        /// `tcp/443`, `udp/8000-8010`, `icmpv6/echo-request`, `icmpv6/1/4` (type and code), `tcp`, `esp`, `proto/47`,
        /// names in `[firewall.services]`, and predefined ones: `ssh`, `dns`, `https` (with QUIC), `ipsec`, `ping`,
        /// `wireguard` …
        service: OneOrMany = Otherwise("any");
        /// Packets up to this rate: `10/s burst 20`, per `s`, `m`, `h` or `d`. Packets above it continue with the next
        /// rule.
        rate: String = Otherwise("any");
        /// During this schedule, a name in `[firewall.schedules]`.
        schedule: String = Otherwise("always");
        /// `true`: the kernel logs the packet, up to 10 per second, as `sidestep rule 3 accept:`.
        log: bool = Default("false");
        /// Shown by `explain`, `test` and `show`.
        comment: String = Otherwise("none");
        /// `accept`, `drop`, or `reject`: a TCP reset, otherwise ICMP "administratively prohibited".
        action: String = Required(r#""accept", "drop" or "reject""#);
    }
}

section! {
    /// A schedule, as it stands in the file.
    ScheduleTable = "a schedule" {
        /// `mon` to `sun`, and ranges.
        days: OneOrMany = Otherwise("all");
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
        /// The expected verdict: `accept`, `drop` or `reject`.
        expect: String = Required(r#""accept", "drop" or "reject""#);
        /// The comment of the rule that is expected to decide; `default` for none.
        rule: String = Otherwise("any");
    }
}

section! {
    /// `[reach]`, as it stands in the file.
    ReachTable = "[reach]" {
        /// The networks on this side, which the rest is about.
        own: Vec<Spanned<String>> = Otherwise("none");
        /// Networks behind peers that open no connections to `own`: they only answer.
        answers_only: Vec<Spanned<String>> = Otherwise("none");
        /// Networks behind peers that `own` opens no connections to: they only ask.
        asks_only: Vec<Spanned<String>> = Otherwise("none");
        /// Addresses of other sites' agents, which may always ask what `serves` names.
        agents: Vec<Spanned<String>> = Otherwise("none");
        /// Where they ask on this side: `"[fd00:1::1]:4161"`.
        serves: Vec<Spanned<String>> = Otherwise("none");
        /// Networks behind peers, by zones of the fleet. Each is a part of the [zone](#zones) of that name, if there is one that
        /// has no more than `name` and `trust`.
        zones: BTreeMap<String, Spanned<OneOrMany>> = Default("{}");
    }
}

/// One text, or a list of them.
#[derive(Debug)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Value for OneOrMany {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "text in quotes, or a list of such";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
        let read = match value.get_ref() {
            DeValue::Array(list) => {
                list.iter().map(|word| text(word.get_ref())).collect::<Option<_>>().map(OneOrMany::Many)
            }
            word => text(word).map(OneOrMany::One),
        };
        read.or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &Self {
        self
    }
}

impl OneOrMany {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            OneOrMany::One(word) => std::slice::from_ref(word),
            OneOrMany::Many(words) => words,
        }
        .iter()
        .map(String::as_str)
    }
}
