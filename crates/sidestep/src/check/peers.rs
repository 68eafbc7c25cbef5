//! What the configuration of a tunnel leads to with each of its peers; where there are many, once for all that are alike.

use std::fmt::Write as _;
use std::time::Duration;

use classic::cipher::Cipher;
use classic::hashed::Rotation;
use classic::profile::{Carry, KeyExchange};
use mt6d::config::{Introduce, Padding, PeerConfig, Shape};

use config::{ClassicPeer, TunnelConfig};

use tunnel_runtime::limits::{rendezvous_endpoints, session_endpoints};
use tunnel_runtime::names::kind_of;

use crate::failure::Failure;
use crate::show::no_peer;

/// More peers than that are summed up.
const MANY: usize = 8;
/// Kinds of peers that are told then.
const MOST_KINDS: usize = 4;
/// Names that are told of a kind.
const MOST_NAMES: usize = 4;
/// What stands before a warning in what is said of a peer.
const WARNING: &str = "WARNING";

/// Of which peers something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peers<'n> {
    /// Of each, or of what they have in common, where they are many.
    SummedUp,
    /// Of these.
    Named(&'n [String]),
    /// Of each.
    All,
}

/// What is said of a peer: what is its own, and what others may have, too.
struct Said<'c> {
    name: &'c str,
    prefixes: usize,
    own: String,
    settings: String,
}

/// What `sidestep up` would do for these peers.
///
/// # Errors
/// Where one is named that there is not.
pub(crate) fn describe(config: &TunnelConfig, which: Peers<'_>) -> Result<String, Failure> {
    let mut said: Vec<Said<'_>> = config.peers.iter().map(|peer| of_peer(config, peer)).collect();
    said.extend(config.classic.iter().map(of_classic_peer));
    match which {
        Peers::SummedUp if said.len() > MANY => return Ok(sum_up(&said, &config.tunnel.name)),
        Peers::SummedUp | Peers::All => {}
        Peers::Named(names) => {
            let known: Vec<&str> = said.iter().map(|peer| peer.name).collect();
            if let Some(name) = names.iter().find(|name| !known.contains(&name.as_str())) {
                return Err(Failure::Message(no_peer(name, &known)));
            }
            said.retain(|peer| names.iter().any(|name| name == peer.name));
        }
    }
    Ok(said.iter().map(|peer| peer.own.clone() + &peer.settings).collect())
}

/// Many peers by what they have in common: those of which a warning is to be told first, then the most.
fn sum_up(said: &[Said<'_>], tunnel: &str) -> String {
    let mut kinds: Vec<Vec<&Said<'_>>> = Vec::new();
    for peer in said {
        match kinds.iter_mut().find(|kind| kind[0].settings == peer.settings) {
            Some(kind) => kind.push(peer),
            None => kinds.push(vec![peer]),
        }
    }
    kinds.sort_by_key(|kind| (!kind[0].settings.contains(WARNING), std::cmp::Reverse(kind.len())));
    let prefixes: usize = said.iter().map(|peer| peer.prefixes).sum();
    let mut text = format!(
        "\nPeers     {} (--peer NAME tells of one, --all of each)\n          route {prefixes} prefixes to {tunnel}, and \
         accept from each peer only packets from its own\n",
        said.len()
    );
    for kind in kinds.iter().take(MOST_KINDS) {
        let names: Vec<&str> = kind.iter().take(MOST_NAMES).map(|peer| peer.name).collect();
        let more = kind.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(text, "\n          {}{more}\n{}", names.join(", "), kind[0].settings.trim_end());
    }
    if let Some(others) = kinds.get(MOST_KINDS..).filter(|others| !others.is_empty()) {
        let peers: usize = others.iter().map(Vec::len).sum();
        let of = others.len();
        let _ = writeln!(text, "\n          and {peers} more peers, of {of} other kinds");
    }
    text
}

fn of_peer<'c>(config: &TunnelConfig, peer: &'c PeerConfig) -> Said<'c> {
    let (mut own, mut settings) = (String::new(), String::new());
    // Writing to a String cannot fail.
    let _ = write_own(&mut own, config, peer).and_then(|()| write_settings(&mut settings, peer));
    Said { name: &peer.name, prefixes: peer.allowed_ips.len(), own, settings }
}

fn of_classic_peer(peer: &ClassicPeer) -> Said<'_> {
    let (local, remote) = (peer.stream.local.address, peer.stream.remote.address);
    let own = format!(
        "\nPeer      {}, of the classic profile\n          tunnel traffic between {local} and {remote}\n",
        peer.name
    );
    let mut settings = String::new();
    let _ = write_classic_settings(&mut settings, peer);
    Said { name: &peer.name, prefixes: 1, own, settings }
}

fn write_own(text: &mut String, config: &TunnelConfig, peer: &PeerConfig) -> std::fmt::Result {
    writeln!(text, "\nPeer      {}, which hops in {}", peer.name, peer.hop_prefix)?;
    if !peer.allowed_ips.is_empty() {
        let (prefixes, name) = (list(&peer.allowed_ips), &config.tunnel.name);
        writeln!(text, "          route {prefixes} to {name}, and accept only packets from them")?;
    }
    if let Some(next) = peer.next_key {
        writeln!(text, "          also meet it by its next key, {next}")?;
    }
    write_finding(text, config, peer)
}

/// How the peer is found again.
fn write_finding(text: &mut String, config: &TunnelConfig, peer: &PeerConfig) -> std::fmt::Result {
    let names = config.names.iter().filter(|name| name.peer == peer.name);
    let names = names.map(|name| format!("look up {} ({})", name.name, kind_of(name).name()));
    let thirds = peer.meet_through.iter().map(|third| format!("ask {third} where it is"));
    for way in names.chain(thirds) {
        writeln!(text, "          while it cannot be reached, {way}")?;
    }
    match &peer.introduce {
        Introduce::Nobody => Ok(()),
        Introduce::Everybody => {
            writeln!(
                text,
                "          tell it where other peers hop that want to meet it, and them where it does"
            )
        }
        Introduce::Only(names) => {
            let names = names.join(", ");
            writeln!(
                text,
                "          tell it where {names} hop, if they want to meet it, and them where it does"
            )
        }
    }
}

fn write_settings(text: &mut String, peer: &PeerConfig) -> std::fmt::Result {
    let lanes = match peer.lanes.unwrap_or_else(|| peer.shape.lanes()) {
        1 => "1 lane".to_owned(),
        lanes => format!("{lanes} lanes"),
    };
    let (rotation, open) = (duration(peer.rotation), session_endpoints(peer));
    writeln!(
        text,
        "          move every {rotation} on average, {lanes}: up to {open} endpoints open at once"
    )?;
    let rendezvous = rendezvous_endpoints(peer);
    writeln!(text, "          without a session, listen on up to {rendezvous} rendezvous endpoints")?;
    if peer.rewrite {
        writeln!(
            text,
            "          replace addresses once both ends know a pair of hosts, in IPv6 packets of up to the link's MTU"
        )?;
        writeln!(text, "          WARNING: the gateways neither encrypt nor authenticate these packets")?;
    }
    match peer.shape {
        Shape::None => {}
        Shape::Adaptive(daily) => {
            let gb = daily.bytes() as f64 / 1e9;
            let idle = daily.idle() as f64 / 1e9;
            writeln!(
                text,
                "          send datagrams of 1280 bytes all the time, up to {gb} GB a day, {idle:.1} GB of it idle",
            )?;
        }
        Shape::Constant(rate) => {
            let mbit = rate.bits() as f64 / 1e6;
            let gb = f64::from(rate.bytes()) * 86_400.0 / 1e9;
            writeln!(
                text,
                "          send {mbit} Mbit/s in datagrams of 1280 bytes all the time, {gb:.1} GB a day in each direction"
            )?;
        }
    }
    let mut extras = Vec::new();
    match peer.padding {
        _ if peer.shape != Shape::None => {}
        Padding::None => {}
        Padding::Buckets => extras.push("pad packets to a few sizes".to_owned()),
        Padding::Full => extras.push("pad every packet to the path MTU".to_owned()),
    }
    if let Some(keepalive) = peer.keepalive {
        extras.push(format!("send something at least every {}", duration(keepalive)));
    }
    if peer.preshared_key.is_some() {
        extras.push("mix in the pre-shared key".to_owned());
    }
    if peer.clockless {
        extras.push("tolerate a clock that was never set".to_owned());
    }
    if !extras.is_empty() {
        writeln!(text, "          {}", extras.join("; "))?;
    }
    Ok(())
}

fn write_classic_settings(text: &mut String, peer: &ClassicPeer) -> std::fmt::Result {
    let stream = &peer.stream;
    writeln!(text, "          WARNING: not authenticated: for research, not for protection")?;
    let rotation = match stream.rotation {
        Rotation::Fixed(seconds) => format!("{seconds} s"),
        Rotation::Randomised { least, .. } => {
            format!("{least} s to {} s, derived from the session key", stream.rotation.longest())
        }
    };
    let cipher = match stream.cipher {
        Some(Cipher::Aes256Cbc) => "encrypted with AES-256-CBC",
        Some(Cipher::Aes128Cbc) => "encrypted with AES-128-CBC",
        None if stream.carry == Carry::Rewrite => "not encrypted, only the addresses are replaced",
        None => "not encrypted",
    };
    let mtu = stream.inner_mtu();
    writeln!(text, "          move every {rotation}, {cipher}: inner packets of up to {mtu} bytes")?;
    match stream.key_exchange {
        Some(KeyExchange { interval, window }) => {
            writeln!(text, "          offer a new session key every {interval} s, {window} s more or less")
        }
        None => writeln!(text, "          offer no new session keys"),
    }
}

/// Things with commas between them.
pub(crate) fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn duration(duration: Duration) -> String {
    match duration.as_millis() {
        ms if ms % 1000 != 0 => format!("{ms} ms"),
        ms => format!("{} s", ms / 1000),
    }
}
