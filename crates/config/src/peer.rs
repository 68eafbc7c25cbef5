//! `[[peer]]`: one for each other gateway, of the moving-target profile or of the classic one; what one of the former says.

use std::time::Duration;

use mt6d::config::{Daily, LANES, Padding, PeerConfig, ROTATION, Rate, Shape};
use mt6d::keys::PublicKey;
use toml::Spanned;
use toml::de::DeValue;
use zeroize::Zeroizing;

use crate::converter::{Converter, SecretKind};
use crate::introduce::IntroduceValue;
use crate::key::Absent::{Default, Otherwise, Required};
use crate::key::Only;
use crate::report::{Finding, Report};
use crate::section::{Period, Section, Value, mismatch, section};
use crate::value::{self, Problem, duration, measure, problem};

section! {
    /// `[[peer]]`, as it stands in the file.
    PeerTable = "[[peer]]", named "peer" {
        /// Any name; `show` uses it.
        name: String = Required("any name that tells you which peer it is");
        /// `"classic"`: [MT6D as it was published](classic.md), unauthenticated, with [keys of its
        /// own](classic.md#11-configuration).
        profile: String = Default(r#""moving-target""#);
        /// Mean time between moves, `1s` to `1h`. The longer of the two ends' values applies.
        rotation: Period = Default(r#""10s""#);
        /// `encapsulate`: packets are encrypted inside outer packets. `rewrite`: packets [travel as they
        /// are](operations.md#when-the-traffic-is-encrypted-already), with hopping addresses in place of their own;
        /// both ends must set it. `mask`: the packets of another tunnel, which a [`[[wrap]]`](operations.md#wireguard-that-moves)
        /// names, are not encrypted again; without this line it is so, too.
        carry: String = Default(r#""encapsulate""#);
        /// What `sidestep pubkey` prints for the peer's private key.
        public_key: String = Required("what `sidestep pubkey` prints for the peer's private key"), only MovingTarget;
        /// What `sidestep pubkey` prints for the private key that the peer is going to have, or has already: it is met by
        /// either key for [a time of grace](operations.md#changing-a-key).
        next_public_key: String = Otherwise("none"), only MovingTarget;
        /// File with a shared secret (`sidestep genpsk`), the same at both ends. Protects recorded traffic should this
        /// kind of key exchange be broken, and hides handshakes from an attacker who steals a private key. The cost is
        /// one more secret to keep; if the two ends' secrets differ, they never find each other.
        preshared_key_file: String = Otherwise("none"), only MovingTarget;
        /// The shared secret itself.
        preshared_key: Zeroizing<String> = Otherwise("none"), only MovingTarget;
        /// The `hop_prefix` of the peer's `[node]`.
        hop_prefix: String = Required(value::HOP_PREFIX), only MovingTarget;
        /// Networks behind the peer, IPv6 and IPv4. Packets to them go into the tunnel, and only packets from them come
        /// out. The longest matching prefix decides.
        allowed_ips: Vec<Spanned<String>> = Required(r#"the networks behind it, like ["2001:db8:b::/64"]"#),
            only MovingTarget;
        /// How many lanes are alive at once on average, 1 to 16: pairs of endpoints that are born and die on their own, so
        /// that where one ends no other begins. With 1 or 2 an observer links one to the next more often. The smaller of
        /// the two ends' values applies.
        lanes: i64 = Otherwise("3; 6 with a `shape`"), only MovingTarget;
        /// `none`, `buckets` or `full`. The stronger of the two ends' values applies. Has no effect with a `shape`.
        padding: String = Default(r#""none""#), only MovingTarget;
        /// [What an observer sees](operations.md#choosing-a-shape) of the traffic: `"none"`: the traffic. `{ constant =
        /// "2Mbit/s" }`: datagrams of one size at one rate, whatever there is to carry, in each direction, all the time;
        /// 100 kbit/s to 100 Mbit/s, outer headers included. `{ adaptive = "20GB/day" }`, or `"adaptive"` for that: of one
        /// size, at a rate that is drawn for each lane, one time in three by demand, within a budget for what this end sends;
        /// 1 to 100 GB. If one end has a shape both do: constant before adaptive, the higher rate.
        shape: ShapeValue = Default(r#""none""#), only MovingTarget;
        /// `1s` to `1h`: keeps the session, and firewalls on the path, open without traffic.
        /// Something leaves after half of that to all of it, at random. Without it a session is established when there
        /// is something to send, and ends after 180 s of silence. `25s` suits most firewalls. Up to `30s`, each end also asks,
        /// about once a second while nothing else comes, whether the other is there, so that a peer that is gone shows within
        /// 5 s: some 35 MB a day in each direction. A longer one is for who counts bytes.
        keepalive: Period = Otherwise("none"), only MovingTarget;
        /// Also tries and accepts contact with a clock that was never set. Both ends must set it. The endpoints for it
        /// live for a month.
        clockless: bool = Default("false"), only MovingTarget;
        /// Whether a prefix translator (NPTv6, RFC 6296) stands in the path, before either end. Both ends must set it,
        /// and each gives the prefix of the other that it sees. Without it an end that is seen in another prefix than its
        /// own is refused: somebody else may stand there.
        translated: bool = Default("false"), only MovingTarget;
        /// A [name](operations.md#by-a-name) that is looked up while the peer cannot be reached: it has an AAAA record, any
        /// address in the peer's hopping prefix, whose length is that of `hop_prefix` here.
        dns: String = Otherwise("none"), only MovingTarget;
        /// A name with a TXT record in which the peer has sealed its hopping prefix for this node (`sidestep seal-prefix`).
        dns_record: String = Otherwise("none"), only MovingTarget;
        /// Other peers, by their names, that are asked where this one is while it cannot be reached: it is [met through
        /// them](operations.md#through-a-third-peer) if it wants to be, too, and they introduce both.
        meet_through: Vec<Spanned<String>> = Otherwise("nobody"), only MovingTarget;
        /// `true`: other peers that want to meet this one, and that it wants to meet, are told where it hops, and it is told
        /// where they do. A list of names: those alone.
        introduce: IntroduceValue = Otherwise("`false`"), only MovingTarget;
        /// The firewall [zone](firewall.md#zones) of the networks behind the peer.
        zone: String = Otherwise("none"), only MovingTarget;
        /// True address of the protected host on this side. Thesis Table 3.1: `users`, `profiles`.
        local_address: String = Required("the protected host on this side"), only Classic;
        /// True address of the host on the other side. Thesis: `users`, `profiles`.
        remote_address: String = Required("the protected host on the other side"), only Classic;
        /// MAC address of the host on this side, like `"00:ab:cd:11:22:01"`; both hosts' or neither. Thesis: `ethers`.
        local_mac: String = Otherwise("none"), only Classic;
        /// MAC address of the host on the other side. Thesis: `ethers`.
        remote_mac: String = Otherwise("none"), only Classic;
        /// File with the session key: 64 bytes as 128 hexadecimal digits. Thesis: `profiles`.
        session_key_file: String = Otherwise("one of the two is required"), only Classic;
        /// The session key itself.
        session_key: Zeroizing<String> = Otherwise(""), only Classic;
        /// `"aes-256-cbc"`, `"aes-128-cbc"` or `"none"`. Thesis: `encrypt`, `crypt_type`.
        cipher: String = Default(r#""aes-256-cbc""#), only Classic;
        /// c1, in whole seconds: the interval is randomised, and `rotation` is c2.
        rotation_spread: Period = Otherwise("none: fixed"), only Classic;
        /// Whole seconds, at least three times the longest interval.
        lifetime: Period = Otherwise("three times the longest interval"), only Classic;
        /// Interval of key exchanges; `"off"` for none. Thesis: `regen_interval`.
        key_exchange: Period = Default(r#""24h""#), only Classic;
        /// Window of key exchanges. Thesis: `regen_window`.
        key_exchange_window: Period = Default(r#""30s""#), only Classic;
        /// `"auto"`, `"off"` or `"required"`: whether packets of an unencrypted stream are carried [in the
        /// kernel](classic.md#17-in-the-kernel).
        kernel: String = Default(r#""auto""#), only Classic;
    } without {
        cover = "cover traffic showed when the endpoints moved; write shape = { constant = \"2Mbit/s\" } for traffic whose rate and sizes show nothing, or leave the line out",
    }
}

impl PeerTable {
    /// Whether it says that it is of the classic profile.
    pub(crate) fn is_classic(&self) -> bool {
        self.profile.text() == Some("classic")
    }
}

/// A shape: a name, or a name with what it is given.
#[derive(Debug)]
pub(crate) struct ShapeValue {
    name: String,
    given: Option<String>,
}

impl Value for ShapeValue {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "a shape, like { constant = \"2Mbit/s\" }";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
        let read = match value.get_ref() {
            DeValue::Table(entries) if entries.len() == 1 => {
                let (name, given) = entries.iter().next()?;
                text(given).map(|given| ShapeValue { name: name.get_ref().to_string(), given: Some(given) })
            }
            _ => text(value).map(|name| ShapeValue { name, given: None }),
        };
        read.or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &Self {
        self
    }
}

/// How packets of a peer travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encapsulation {
    /// Inside of others.
    Encapsulate,
    /// As they are, with other addresses.
    Rewrite,
    /// Inside of others, but for those of another tunnel, which are masked.
    Mask,
}

const PUBLIC_KEY: SecretKind = SecretKind {
    name: "public_key",
    command: "sidestep pubkey",
    form: "a key is 44 characters of base64, as `sidestep genkey` and `sidestep pubkey` print them",
};

const NEXT_PUBLIC_KEY: SecretKind = SecretKind { name: "next_public_key", ..PUBLIC_KEY };

const PRESHARED_KEY: SecretKind = SecretKind {
    name: "preshared_key",
    command: "sidestep genpsk",
    form: "a key is 44 characters of base64, as `sidestep genpsk` and `sidestep pubkey` print them",
};

impl Converter<'_> {
    /// A peer of the moving-target profile.
    pub(crate) fn peer(&mut self, peer: &PeerTable) -> Option<PeerConfig> {
        let owner = &peer.name.table.owner;
        let name = self.value(&peer.name, value::peer_name);
        let public_key = self.value(&peer.public_key, |text| PUBLIC_KEY.parse::<PublicKey>(text));
        let next_key = self.optional(&peer.next_public_key, |text| NEXT_PUBLIC_KEY.parse::<PublicKey>(text));
        let preshared_key = self.secret(&PRESHARED_KEY, &peer.preshared_key, &peer.preshared_key_file);
        let wants_preshared = !(peer.preshared_key.is_absent() && peer.preshared_key_file.is_absent());
        let hop_prefix = self.value(&peer.hop_prefix, value::hop_prefix);
        let allowed_ips = self.each(&peer.allowed_ips, value::allowed_prefix);
        let rotation = self.value(&peer.rotation, rotation);
        let lanes = self.optional(&peer.lanes, lanes);
        let padding = self.value(&peer.padding, padding);
        let shape = self.value(&peer.shape, shape);
        let carry = self.value(&peer.carry, carry);
        if carry == Some(Encapsulation::Rewrite) {
            self.report(Finding::warning(
                peer.carry.span(),
                format!("{owner}: the gateways neither encrypt nor authenticate its packets"),
                "only the addresses are replaced",
                "ports, sequence numbers and payloads are visible, and whoever sees them can forge more: use it for \
                 traffic that is encrypted already",
            ));
        }
        let nothing = peer.allowed_ips.given().filter(|prefixes| prefixes.get_ref().is_empty());
        if let Some(nothing) = nothing.filter(|_| carry != Some(Encapsulation::Mask)) {
            self.report(Finding::warning(
                nothing.span(),
                format!("{owner} has no allowed_ips"),
                "nothing will go through the tunnel",
                "list the networks behind the peer",
            ));
        }
        self.shape_fits(peer, shape, carry, padding);
        let keepalive = self.optional(&peer.keepalive, keepalive);
        let meeting = self.meeting(&peer.meet_through, &peer.introduce);
        if wants_preshared && preshared_key.is_none() {
            return None;
        }
        let (meet_through, introduce) = meeting?;
        Some(PeerConfig {
            name: name?,
            public_key: public_key?,
            next_key: next_key?,
            preshared_key,
            hop_prefix: hop_prefix?,
            allowed_ips: allowed_ips?,
            rotation: rotation?,
            lanes: lanes?,
            padding: padding?,
            shape: shape?,
            keepalive: keepalive?,
            clockless: peer.clockless.is_true(),
            translated: peer.translated.is_true(),
            rewrite: carry? == Encapsulation::Rewrite,
            mask: None,
            meet_through,
            introduce,
        })
    }

    /// Says what a shape cannot be with, and what has no effect beside it.
    fn shape_fits(
        &mut self,
        peer: &PeerTable,
        shape: Option<Shape>,
        carry: Option<Encapsulation>,
        padding: Option<Padding>,
    ) {
        if matches!(shape, None | Some(Shape::None)) {
            return;
        }
        if carry == Some(Encapsulation::Rewrite) {
            let title = "packets whose addresses are replaced have no shape";
            let help = "they travel as they are: leave `shape` out, or write carry = \"encapsulate\"";
            let finding = Finding::error(peer.shape.span(), title, "for packets in the tunnel alone", help);
            self.report(finding.related(peer.carry.span(), "these are not in it"));
        }
        if padding.is_some_and(|padding| padding != Padding::None) {
            let title = "`padding` has no effect with a shape";
            let help = "leave `padding` out";
            let finding = Finding::warning(peer.padding.span(), title, "all datagrams have one size", help);
            self.report(finding.related(peer.shape.span(), "the shape"));
        }
    }

    /// Whether the table has keys of its profile alone.
    pub(crate) fn keys_fit_the_profile(&mut self, peer: &PeerTable) -> bool {
        let profile = self.value(&peer.profile, |text| match text {
            "classic" => Ok(Only::Classic),
            // The latter until protocol version 3: the profile has a name now that does not change with the protocol.
            "moving-target" | "version-2" => Ok(Only::MovingTarget),
            _ => problem("not a profile", r#"write "classic", or leave the line out for "moving-target""#),
        });
        let Some(profile) = profile else { return false };
        let help = match profile {
            Only::Classic => "a peer with profile = \"classic\" has no such key: see docs/classic.md",
            _ => "it belongs to peers with profile = \"classic\"",
        };
        let mut fits = true;
        for (key, span) in
            peer.given().into_iter().filter(|(key, _)| key.only.is_some_and(|only| only != profile))
        {
            fits = false;
            let title = format!("`{}` does not fit the profile", key.name);
            self.report(Finding::error(span, title, "", help));
        }
        fits
    }
}

/// The rotation interval.
fn rotation(text: &str) -> Result<Duration, Problem> {
    duration(text, ROTATION, "write 1s to 1h")
}

/// How often something is sent at least.
fn keepalive(text: &str) -> Result<Duration, Problem> {
    duration(text, ROTATION, "a keepalive is 1s to 1h; 25s suits most firewalls")
}

/// How packets of a peer travel.
pub(crate) fn carry(text: &str) -> Result<Encapsulation, Problem> {
    match text {
        "encapsulate" => Ok(Encapsulation::Encapsulate),
        "rewrite" => Ok(Encapsulation::Rewrite),
        "mask" => Ok(Encapsulation::Mask),
        _ => problem("not a way to carry packets", r#"write "encapsulate", "rewrite" or "mask""#),
    }
}

/// How many endpoints are in use at once.
fn lanes(number: i64) -> Result<u8, Problem> {
    match u8::try_from(number) {
        Ok(lanes) if LANES.contains(&lanes) => Ok(lanes),
        _ => problem("out of range", "a peer has 1 to 16 lanes"),
    }
}

/// The padding policy.
fn padding(text: &str) -> Result<Padding, Problem> {
    match text {
        "none" => Ok(Padding::None),
        "buckets" => Ok(Padding::Buckets),
        "full" => Ok(Padding::Full),
        _ => problem("not a padding policy", r#"write "none", "buckets" or "full""#),
    }
}

/// What the traffic looks like from outside.
fn shape(value: &ShapeValue) -> Result<Shape, Problem> {
    match (value.name.as_str(), value.given.as_deref()) {
        ("none", None) => Ok(Shape::None),
        ("adaptive", None) => Ok(Shape::Adaptive(Daily::default())),
        ("adaptive", Some(budget)) => daily(budget).map(Shape::Adaptive),
        ("constant", Some(rate)) => rate_of(rate).map(Shape::Constant),
        ("constant", None) => problem("its rate is missing", r#"write { constant = "2Mbit/s" }"#),
        _ => problem("not a shape", r#"write "none", "adaptive" or { constant = "2Mbit/s" }"#),
    }
}

/// A budget, like `20GB/day`.
fn daily(text: &str) -> Result<Daily, Problem> {
    let Some(bytes) = measure(text, &[("TB/day", 1e12), ("GB/day", 1e9), ("MB/day", 1e6)]) else {
        return problem("not a budget", r#"write a number and a unit, like "20GB/day""#);
    };
    match Daily::from_bytes(bytes as u64) {
        Some(daily) => Ok(daily),
        None => problem("out of range", "a budget is 1GB/day to 100GB/day"),
    }
}

/// A rate, like `2Mbit/s`.
fn rate_of(text: &str) -> Result<Rate, Problem> {
    const BITS: [(&str, f64); 4] = [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)];
    let Some(bits) = measure(text, &BITS) else {
        return problem("not a rate", r#"write a number and a unit, like "500kbit/s" or "2Mbit/s""#);
    };
    match Rate::from_bytes((bits / 8.0) as u32) {
        Some(rate) => Ok(rate),
        None => problem("out of range", "a shape has 100kbit/s to 100Mbit/s"),
    }
}
