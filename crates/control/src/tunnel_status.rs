//! What the daemon says about itself: the document of `sidestep show --json`. Field names are a contract: fields may
//! be added, none is renamed or removed.
//!
//! Times are in the unit that a name ends in. `null` stands for what is not known (yet).

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

/// The daemon and its peers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The configuration file that it reads.
    #[serde(default)]
    pub file: String,
    /// SHA-256 over what was read of it, with what it includes and key files, hexadecimal: another one now is of another
    /// configuration than the one that is in force. It tells nothing else of them.
    #[serde(default)]
    pub file_digest: String,
    /// Name of the TUN device.
    pub tunnel: String,
    /// The number of the network namespace that it is in; 0 if not known.
    #[serde(default)]
    pub network_namespace: u64,
    /// This node's public key, base64.
    pub public_key: String,
    /// The one that it had before, while peers may still know it by that alone; null where there is none.
    #[serde(default)]
    pub previous_public_key: Option<String>,
    /// Interface that faces the public network.
    pub external: String,
    /// The prefix that this node hops in; 100::/64 as long as it has none.
    pub hop_prefix: Ipv6Net,
    /// The uplink whose prefix it waits for; null where it has a hopping prefix.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// Datagrams and packets dropped that belong to no peer, by reason.
    #[serde(default)]
    pub drops: BTreeMap<String, u64>,
    /// How often another program had changed or removed the rules that keep the hopping prefix dark, and they were restored.
    #[serde(default)]
    pub rules_restored: u64,
    /// Whether the rules that keep the hopping prefix dark are in the kernel; null where nothing hops.
    #[serde(default)]
    pub dark: Option<bool>,
    /// Whether secrets are written to a file that open captures of this tunnel (`up --keylog`).
    #[serde(default)]
    pub keylog: bool,
    /// Which of the two gateways of its site it is; null where there is no other.
    #[serde(default)]
    pub standby: Option<crate::standby::Status>,
    /// The peers, in the order of the configuration.
    pub peers: Vec<Peer>,
}

/// One peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name in the configuration.
    pub name: String,
    /// What is spoken with it.
    #[serde(default)]
    pub profile: Profile,
    /// Its public key, base64; empty where the profile has none.
    pub public_key: String,
    /// The prefix that it hops in, as it last said.
    pub hop_prefix: Ipv6Net,
    /// The networks behind it, as configured; none of a peer of the classic profile.
    #[serde(default)]
    pub allowed_ips: Vec<IpNet>,
    /// Whether there is a session with it, and whether it works.
    pub state: State,
    /// For how many seconds that has been so.
    #[serde(default)]
    pub state_s: f64,
    /// Seconds since something came that was the peer's for certain; null if nothing did since the daemon started.
    #[serde(default)]
    pub last_heard_s: Option<f64>,
    /// Seconds since it last answered a question in this session: then both directions worked; null if it has not yet.
    #[serde(default)]
    pub last_answered_s: Option<f64>,
    /// What is wrong: null if nothing is, or nothing is known to be.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// What is being tried to have a session; null where there is no reason to.
    #[serde(default)]
    pub trying: Option<Trying>,
    /// The session; null if there is none.
    pub session: Option<Session>,
    /// Number of the youngest lane that is alive; null without a session.
    pub epoch: Option<u64>,
    /// How many lanes were born since the daemon started, but for those that sessions begin with.
    pub rotations: u64,
    /// Lanes that are left out because this node could not open its endpoint.
    #[serde(default)]
    pub skips: u64,
    /// This node's endpoints on the lanes that are alive.
    pub local: Vec<Endpoint>,
    /// The peer's endpoints on them.
    pub remote: Vec<Endpoint>,
    /// Milliseconds until a lane is born or dies; null without a session.
    pub next_rotation_ms: Option<u64>,
    /// Inner packets sent through the tunnel.
    pub tx_packets: u64,
    /// Bytes of the inner packets sent.
    pub tx_bytes: u64,
    /// Inner packets received through the tunnel.
    pub rx_packets: u64,
    /// Bytes of the inner packets received.
    pub rx_bytes: u64,
    /// How packets travel: in the tunnel, or those of pairs of hosts with replaced addresses and nothing else, or those of
    /// another tunnel with a mask.
    #[serde(default)]
    pub carry: Carry,
    /// The other tunnel, where its packets have a mask; null otherwise.
    #[serde(default)]
    pub masked: Option<Masked>,
    /// The WireGuard device that is to travel with it; null where none is.
    #[serde(default)]
    pub wrapped: Option<Wrapped>,
    /// Of the packets sent, those that left with replaced addresses or a mask.
    #[serde(default)]
    pub tx_rewritten_packets: u64,
    /// Their bytes.
    #[serde(default)]
    pub tx_rewritten_bytes: u64,
    /// Of the packets received, those that came with replaced addresses or a mask.
    #[serde(default)]
    pub rx_rewritten_packets: u64,
    /// Their bytes.
    #[serde(default)]
    pub rx_rewritten_bytes: u64,
    /// What the shape does; null without one.
    #[serde(default)]
    pub shape: Option<Shape>,
    /// Datagrams and packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Round-trip time in milliseconds; null until measured.
    pub rtt_ms: Option<f64>,
    /// The peer's wall clock minus this node's, in milliseconds; null until learned.
    pub clock_offset_ms: Option<i64>,
    /// Path MTU in bytes, the whole outer packet.
    pub path_mtu: u16,
    /// Whether a search for it has come to an end: until then, as without large packets, it is a cautious guess.
    #[serde(default)]
    pub path_mtu_settled: bool,
    /// Handshakes completed since the daemon started, rekeys inside a session not counted.
    pub handshakes: u64,
}

impl Peer {
    /// Whether it is of the classic profile, which has no sessions.
    pub fn is_classic(&self) -> bool {
        self.profile == Profile::Classic
    }
}

/// A protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// The moving-target protocol.
    #[default]
    #[serde(rename = "moving-target", alias = "version-2")]
    MovingTarget,
    /// As MT6D was published.
    #[serde(rename = "classic")]
    Classic,
}

/// How packets of a peer travel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carry {
    /// Inside others.
    #[default]
    Encapsulate,
    /// As they are, but for their addresses.
    Rewrite,
    /// Those of another tunnel as they are, but for a mask.
    Mask,
}

/// Another tunnel, as it is inside of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Masked {
    /// Its end here.
    pub local: SocketAddrV6,
    /// Its end at the peer: the endpoint that it is to have.
    pub remote: SocketAddrV6,
}

/// A device of WireGuard that travels with a peer, as it was when it was last looked at: every second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrapped {
    /// The device.
    pub interface: String,
    /// Where it has its peer: outside of the tunnel for a moment, if that has sent from there; null if it is not known.
    pub endpoint: Option<SocketAddr>,
    /// Why it could not be looked at or led into the tunnel; null if it could.
    pub problem: Option<String>,
}

/// A shape that was agreed on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// What kind: `constant` or `adaptive`.
    pub kind: String,
    /// The rate of a constant one in bits per second, outer headers included; null for another.
    pub rate_bits: Option<u64>,
    /// What an adaptive one may spend now, in bytes; null for another.
    pub budget_left: Option<u64>,
    /// Datagrams that this node has sent in this session.
    pub tx_datagrams: u64,
    /// Those of them that carried nothing.
    pub tx_padding: u64,
    /// Datagrams that wait for their time.
    pub waiting: u64,
    /// Within the last minute half of the packets have waited no longer than so many milliseconds; null if none have.
    pub delay_median_ms: Option<f64>,
    /// All but one in a hundred.
    pub delay_p99_ms: Option<f64>,
    /// Within the last minute half of the datagrams were due no longer than so many milliseconds ago when this node came to
    /// send them; null if there were none.
    pub late_median_ms: Option<f64>,
    /// All but one in a hundred.
    pub late_p99_ms: Option<f64>,
    /// Datagrams that were due so long ago that they were put off, by a time that was drawn for each.
    pub put_off: u64,
}

/// Whether there is a session with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There is none, and nothing to send that would need one.
    Idle,
    /// One is being made.
    Handshake,
    /// There is one, and packets get through, as far as is known.
    Established,
    /// There is one, but nothing gets through: see the fault.
    Silent,
}

/// Why a peer cannot be reached, in one word for programs and one sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// One word; more may come.
    pub code: String,
    /// What is known, and what to do.
    pub says: String,
}

/// Tries to reach a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trying {
    /// For how many seconds there has been reason to.
    pub since_s: f64,
    /// How many there were.
    pub tries: u32,
    /// Where the last one went; null before the first.
    pub to: Option<Ipv6Addr>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The public key of this node that it was made with: the previous one, maybe, while that is good.
    #[serde(default)]
    pub own_key: String,
    /// The peer's: the next one, maybe.
    #[serde(default)]
    pub peer_key: String,
    /// Seconds since it was made.
    pub age_s: u64,
    /// How often its keys were changed.
    pub rekeys: u64,
    /// What seals its packets: `AES-256-GCM` or `ChaCha20-Poly1305`.
    pub cipher: String,
}

/// Where an end of a lane is at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The lane.
    pub lane: u64,
    /// Address, in the end's hopping prefix.
    pub address: Ipv6Addr,
    /// UDP port.
    pub port: u16,
}

/// A status with one established and one idle peer, for tests of what is made of it.
///
/// # Panics
/// Never: its addresses are right.
#[doc(hidden)]
pub fn example() -> Status {
    let endpoint = |text: &str, port| Endpoint { lane: 0, address: text.parse().unwrap(), port };
    let established = Peer {
        name: "site-b".into(),
        profile: Profile::MovingTarget,
        public_key: "7zJkXoPE0tJj2hoGLLeV9QT8CVQk6ZRVVaWBAsoRKDo=".into(),
        hop_prefix: "2001:db8:b1::/64".parse().unwrap(),
        allowed_ips: vec!["2001:db8:b::/64".parse().unwrap()],
        state: State::Established,
        state_s: 3725.0,
        last_heard_s: Some(0.25),
        last_answered_s: Some(4.5),
        fault: None,
        trying: None,
        session: Some(Session {
            own_key: "mGn4LbuqcRyPHFAwrQYdKkNZqPS+XKUJG9Zn8BS2Yl4=".into(),
            peer_key: "7zJkXoPE0tJj2hoGLLeV9QT8CVQk6ZRVVaWBAsoRKDo=".into(),
            age_s: 3725,
            rekeys: 31,
            cipher: "AES-256-GCM".into(),
        }),
        epoch: Some(372),
        rotations: 372,
        skips: 1,
        local: vec![endpoint("2001:db8:a1::1234", 4321)],
        remote: vec![endpoint("2001:db8:b1::abcd", 1234)],
        next_rotation_ms: Some(4200),
        tx_packets: 1_000_000,
        tx_bytes: 1_500_000_000,
        rx_packets: 500_000,
        rx_bytes: 40_000_000,
        carry: Carry::Encapsulate,
        masked: None,
        wrapped: None,
        tx_rewritten_packets: 0,
        tx_rewritten_bytes: 0,
        rx_rewritten_packets: 0,
        rx_rewritten_bytes: 0,
        shape: Some(Shape {
            kind: "constant".to_owned(),
            rate_bits: Some(2_000_000),
            budget_left: None,
            tx_datagrams: 100_000,
            tx_padding: 90_000,
            waiting: 1,
            delay_median_ms: Some(2.5),
            delay_p99_ms: Some(12.0),
            late_median_ms: Some(0.064),
            late_p99_ms: Some(0.25),
            put_off: 7,
        }),
        drops: BTreeMap::from([("replay".to_owned(), 3)]),
        rtt_ms: Some(1.25),
        clock_offset_ms: Some(-40),
        path_mtu: 1500,
        path_mtu_settled: true,
        handshakes: 1,
    };
    let idle = Peer {
        name: "site-c".into(),
        hop_prefix: "2001:db8:c1::/64".parse().unwrap(),
        allowed_ips: vec!["2001:db8:c::/64".parse().unwrap()],
        state: State::Idle,
        state_s: 90_061.0,
        last_heard_s: None,
        last_answered_s: None,
        session: None,
        epoch: None,
        rotations: 0,
        skips: 0,
        local: Vec::new(),
        remote: Vec::new(),
        next_rotation_ms: None,
        tx_packets: 0,
        tx_bytes: 0,
        rx_packets: 0,
        rx_bytes: 0,
        shape: None,
        drops: BTreeMap::new(),
        rtt_ms: None,
        clock_offset_ms: None,
        handshakes: 0,
        ..established.clone()
    };
    Status {
        version: "0.1.0".into(),
        file: "/etc/sidestep/mt6d0.toml".into(),
        file_digest: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into(),
        tunnel: "mt6d0".into(),
        network_namespace: 4_026_531_840,
        public_key: "mGn4LbuqcRyPHFAwrQYdKkNZqPS+XKUJG9Zn8BS2Yl4=".into(),
        previous_public_key: None,
        external: "eth0".into(),
        hop_prefix: "2001:db8:a1::/64".parse().unwrap(),
        waits_for: None,
        uptime_s: 90_061,
        drops: BTreeMap::from([("no route".to_owned(), 2)]),
        rules_restored: 0,
        dark: Some(true),
        keylog: false,
        standby: None,
        peers: vec![established, idle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_in_the_manual() {
        let manual = std::fs::read_to_string("../../docs/operations.md").unwrap();
        let (_, table) = manual.split_once("| `version`, `file`").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let first_cells: String =
            table.lines().map(|line| line.trim_start_matches("| ").split(" |").next().unwrap()).collect();
        let said = |name: &str| {
            ["`", "`.", "`peers[]."].iter().any(|before| first_cells.contains(&format!("{before}{name}`")))
        };
        let value = serde_json::to_value(example()).unwrap();
        for object in [&value, &value["peers"][0]] {
            // What there is not in most states is null there, but has its name.
            for name in object
                .as_object()
                .unwrap()
                .keys()
                .filter(|name| !["version", "file", "peers"].contains(&name.as_str()))
            {
                assert!(said(name), "{name} is not in docs/operations.md");
            }
        }
    }

    #[test]
    fn field_names_are_a_contract() {
        let value = serde_json::to_value(example()).unwrap();
        for field in [
            "version",
            "file",
            "file_digest",
            "tunnel",
            "public_key",
            "external",
            "hop_prefix",
            "waits_for",
            "uptime_s",
            "peers",
            "drops",
        ] {
            assert!(value.get(field).is_some(), "{field}");
        }
        let fields = "name profile public_key hop_prefix allowed_ips state state_s last_heard_s last_answered_s fault trying session epoch rotations skips local remote next_rotation_ms \
                      tx_packets tx_bytes rx_packets rx_bytes drops rtt_ms clock_offset_ms path_mtu handshakes \
                      carry shape tx_rewritten_packets tx_rewritten_bytes rx_rewritten_packets rx_rewritten_bytes";
        for peer in value["peers"].as_array().unwrap() {
            for field in fields.split_whitespace() {
                assert!(peer.get(field).is_some(), "{field}");
            }
        }
        let established = &value["peers"][0];
        assert_eq!(established["state"], "established");
        assert_eq!(established["session"]["cipher"], "AES-256-GCM");
        assert_eq!(established["local"][0]["address"], "2001:db8:a1::1234");
        assert_eq!(established["drops"]["replay"], 3);
        for field in "kind rate_bits budget_left tx_datagrams tx_padding waiting delay_median_ms delay_p99_ms late_median_ms late_p99_ms put_off"
            .split_whitespace()
        {
            assert!(established["shape"].get(field).is_some(), "{field}");
        }
        assert!(value["peers"][1]["session"].is_null());
    }

    #[test]
    fn a_profile_is_known_by_its_old_name_too() {
        assert_eq!(serde_json::to_string(&Profile::MovingTarget).unwrap(), "\"moving-target\"");
        assert_eq!(serde_json::from_str::<Profile>("\"version-2\"").unwrap(), Profile::MovingTarget);
    }

    #[test]
    fn it_survives_the_way_through_json() {
        let text = serde_json::to_string(&example()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), example());
    }
}
