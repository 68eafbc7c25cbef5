//! The shape of the file: which tables and keys there are, and the TOML type of each. Values are text here, with
//! their place in the file.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use zeroize::Zeroizing;

use super::report::{Finding, Report, blank_keys};

pub(super) type Text = Option<Spanned<String>>;
type Secret = Option<Spanned<Zeroizing<String>>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub node: Option<Spanned<Node>>,
    #[serde(default)]
    pub tunnel: Tunnel,
    #[serde(default)]
    pub peer: Vec<Spanned<Peer>>,
    #[serde(default)]
    pub script: Vec<Spanned<super::script::Table>>,
    #[serde(default)]
    pub uplink: Vec<Spanned<super::gateway::UplinkTable>>,
    #[serde(default)]
    pub network: Vec<Spanned<super::gateway::NetworkTable>>,
    #[serde(default)]
    pub route: Vec<Spanned<super::gateway::RouteTable>>,
    #[serde(default)]
    pub zone: Vec<Spanned<super::firewall::ZoneTable>>,
    pub firewall: Option<Spanned<super::firewall::FirewallTable>>,
}

impl Document {
    /// Whether it describes a gateway or a firewall and says nothing of a tunnel.
    pub(super) fn is_without_tunnel(&self) -> bool {
        self.has_gateway() && self.node.is_none() && self.peer.is_empty()
    }

    /// Whether it describes a gateway or a firewall.
    pub(super) fn has_gateway(&self) -> bool {
        let router = !(self.uplink.is_empty() && self.network.is_empty() && self.route.is_empty());
        router || !self.zone.is_empty() || self.firewall.is_some()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    pub private_key: Secret,
    pub private_key_file: Text,
    pub external: Text,
    pub hop_prefix: Text,
    #[serde(default)]
    pub on_link: bool,
    pub mode: Text,
    // Of the transparent mode
    pub internal: Text,
    pub protect: Option<Spanned<Vec<Spanned<ProtectedHost>>>>,
    pub others: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProtectedHost {
    pub address: Text,
    pub mac: Text,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tunnel {
    pub name: Text,
    pub mtu: Option<Spanned<i64>>,
    #[serde(default)]
    pub addresses: Vec<Spanned<String>>,
    pub realtime: Option<bool>,
    pub spin: Text,
    pub threads: Option<Spanned<i64>>,
    #[serde(default)]
    pub cpus: Vec<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Peer {
    pub name: Text,
    pub profile: Text,
    pub rotation: Text,
    pub carry: Text,
    // Version 2
    pub public_key: Text,
    pub preshared_key: Secret,
    pub preshared_key_file: Text,
    pub hop_prefix: Text,
    pub allowed_ips: Option<Spanned<Vec<Spanned<String>>>>,
    pub lanes: Option<Spanned<i64>>,
    pub padding: Text,
    pub cover: Option<Spanned<Cover>>,
    pub keepalive: Text,
    pub clockless: Option<Spanned<bool>>,
    pub zone: Text,
    // The classic profile
    pub local_address: Text,
    pub remote_address: Text,
    pub local_mac: Text,
    pub remote_mac: Text,
    pub session_key: Secret,
    pub session_key_file: Text,
    pub cipher: Text,
    pub rotation_spread: Text,
    pub lifetime: Text,
    pub key_exchange: Text,
    pub key_exchange_window: Text,
    pub kernel: Text,
}

/// A key that is given, and where.
pub(super) type Given = Option<(&'static str, Range<usize>)>;

impl Node {
    /// The keys that the transparent mode alone has.
    pub(super) fn transparent_keys(&self) -> [Given; 3] {
        [
            given("internal", self.internal.as_ref()),
            given("protect", self.protect.as_ref()),
            given("others", self.others.as_ref()),
        ]
    }
}

impl Peer {
    /// Whether it says that it is of the classic profile.
    pub(super) fn is_classic(&self) -> bool {
        self.profile.as_ref().is_some_and(|profile| profile.get_ref() == "classic")
    }

    /// The keys that version 2 alone has.
    pub(super) fn version_2_keys(&self) -> [Given; 11] {
        [
            given("public_key", self.public_key.as_ref()),
            given("preshared_key", self.preshared_key.as_ref()),
            given("preshared_key_file", self.preshared_key_file.as_ref()),
            given("hop_prefix", self.hop_prefix.as_ref()),
            given("allowed_ips", self.allowed_ips.as_ref()),
            given("lanes", self.lanes.as_ref()),
            given("padding", self.padding.as_ref()),
            given("cover", self.cover.as_ref()),
            given("keepalive", self.keepalive.as_ref()),
            given("clockless", self.clockless.as_ref()),
            given("zone", self.zone.as_ref()),
        ]
    }

    /// The keys that the classic profile alone has.
    pub(super) fn classic_keys(&self) -> [Given; 12] {
        [
            given("local_address", self.local_address.as_ref()),
            given("remote_address", self.remote_address.as_ref()),
            given("local_mac", self.local_mac.as_ref()),
            given("remote_mac", self.remote_mac.as_ref()),
            given("session_key", self.session_key.as_ref()),
            given("session_key_file", self.session_key_file.as_ref()),
            given("cipher", self.cipher.as_ref()),
            given("rotation_spread", self.rotation_spread.as_ref()),
            given("lifetime", self.lifetime.as_ref()),
            given("key_exchange", self.key_exchange.as_ref()),
            given("key_exchange_window", self.key_exchange_window.as_ref()),
            given("kernel", self.kernel.as_ref()),
        ]
    }
}

fn given<T>(name: &'static str, value: Option<&Spanned<T>>) -> Given {
    value.map(|value| (name, value.span()))
}

/// Datagrams per second, as `"50"` or `50`.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number of datagrams per second, like \"50\"")]
pub(super) enum Cover {
    Text(String),
    Number(i64),
}

/// Reads the document, or reports why it is none.
pub(super) fn read(text: &str, report: &mut Report) -> Option<Document> {
    match toml::from_str(text) {
        Ok(document) => Some(document),
        Err(error) => {
            report.add(finding(&error, text));
            None
        }
    }
}

fn finding(error: &toml::de::Error, text: &str) -> Finding {
    let span = error.span().unwrap_or(0..0);
    // A message may quote a value.
    let message = blank_keys(error.message());
    let message = message
        .replace("expected a sequence", "expected a list")
        .replace("expected a map", "expected a table");
    if let Some((name, known)) = unknown_key(&message) {
        let help = format!("known here: {}", known.replace('`', "").replace(" or ", ", "));
        return Finding::error(span, format!("unknown key `{name}`"), "not known here", help);
    }
    let before = text.get(..span.start).unwrap_or_default();
    let help = if let Some(seconds) = seconds(&message, before) {
        format!("a duration has a unit, and stands in quotes: write \"{seconds}s\"")
    } else if message.starts_with("invalid type") {
        "text stands in quotes, numbers and true or false do not, lists stand in brackets".to_owned()
    } else if message.starts_with("duplicate") {
        match header_of_many(before) {
            Some(header) => format!("remove one of them; each {header} has a header of its own"),
            None => "remove one of them".to_owned(),
        }
    } else {
        "`sidestep man` shows complete configurations".to_owned()
    };
    Finding::error(span, message, "", help)
}

/// Keys whose values are durations.
const DURATIONS: [&str; 8] = [
    "advertise_interval",
    "probe_interval",
    "rotation",
    "rotation_spread",
    "keepalive",
    "lifetime",
    "key_exchange",
    "key_exchange_window",
];

/// The number that stands for a duration, by serde's message and the text before it.
fn seconds<'m>(message: &'m str, before: &str) -> Option<&'m str> {
    let (number, _) = message.strip_prefix("invalid type: integer `")?.split_once("`, expected a string")?;
    let key = before.trim_end().strip_suffix('=')?;
    DURATIONS.iter().any(|name| key.trim_end().ends_with(name)).then_some(number)
}

/// The header of the table that the text ends in, if it is one of a list of tables.
fn header_of_many(text: &str) -> Option<&'static str> {
    const HEADERS: [&str; 8] = [
        "[[peer]]",
        "[[script]]",
        "[[uplink]]",
        "[[network]]",
        "[[route]]",
        "[[zone]]",
        "[[firewall.rule]]",
        "[[firewall.test]]",
    ];
    let last = text.lines().rev().map(str::trim_start).find(|line| line.starts_with('['))?;
    HEADERS.into_iter().find(|header| last.starts_with(header))
}

/// Name and known names of serde's "unknown field `a`, expected one of `b`, `c`".
fn unknown_key(message: &str) -> Option<(&str, &str)> {
    let (name, known) = message.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    Some((name, known.strip_prefix("one of ").unwrap_or(known)))
}
