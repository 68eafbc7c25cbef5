//! What a configuration leads to, in plain words, and how many sockets it takes.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use classic::cipher::Cipher;
use classic::hashed::Rotation;
use classic::profile::{Carry, KeyExchange};
use mt6d::config::{Padding, PeerConfig};
use mt6d::rendezvous::Tier;

use crate::config::{ClassicPeer, Config, Configured, Mode};
use crate::script::attachment::Failure;

/// Descriptors that the daemon needs beside its endpoints: TUN queues, netlink, epoll, BPF, the control socket, files.
pub const OTHER_FILES: u64 = 96;
/// Files of each packet thread: a poller, a waker, and an end of a channel to spare.
const FILES_OF_THREAD: u64 = 3;

/// Bytes that each form of an inner packet adds on its way through the tunnel (docs/protocol.md, "Data").
const OVERHEADS: [(u32, &str); 4] = [
    (36, "between the two hosts of a pair that protects one each"),
    (39, "between addresses that were announced"),
    (68, "IPv4"),
    (71, "in full, the first packets between two addresses"),
];

/// What is known of the machine that a configuration is for.
#[derive(Debug, Clone, Default)]
pub struct System {
    /// MTU of the external interface in bytes; None if there is no such interface.
    pub external_mtu: Option<u32>,
    /// How many files a process may have open.
    pub open_files: Option<u64>,
}

impl System {
    /// Looks at the machine that this runs on.
    pub fn of_this_machine(config: &Config) -> System {
        let mtu = Path::new("/sys/class/net").join(&config.node.external).join("mtu");
        System {
            external_mtu: std::fs::read_to_string(mtu).ok().and_then(|text| text.trim().parse().ok()),
            open_files: linux::process::raise_open_files().ok(),
        }
    }
}

/// Endpoints of a session that are open at once, at most: what the daemon needs sockets for.
///
/// An endpoint is open from T before its epoch, 1 s to 10 s, to 3 s behind it, and two epochs of a lane begin at least
/// T/2 apart (docs/protocol.md, "Endpoints"). A round trip above 1 s adds to it.
pub fn session_endpoints(peer: &PeerConfig) -> u64 {
    let interval = peer.rotation.as_millis().max(1);
    let open = interval.clamp(1000, 10_000) + 3000;
    let per_lane = starts_within(open, interval) + 1;
    u64::try_from(per_lane).unwrap_or(u64::MAX).saturating_mul(peer.lanes.into())
}

/// Rendezvous endpoints that are open at once for a peer without a session, at most.
pub fn rendezvous_endpoints(peer: &PeerConfig) -> u64 {
    let tiers = Tier::ALL.into_iter().filter(|&tier| tier != Tier::Days || peer.clockless);
    let of_tier = |tier: Tier| starts_within((2 * tier.tolerance_ms()).into(), tier.interval_ms().into()) + 1;
    tiers.map(|tier| u64::try_from(of_tier(tier)).unwrap_or(u64::MAX)).sum()
}

/// How many epochs begin within `window`, at most: jitter moves each by less than half an interval.
fn starts_within(window: u128, interval: u128) -> u128 {
    (window + interval / 2) / interval + 1
}

/// Rendezvous endpoints of all peers, at most; one more each for a try that outlasts its epoch.
fn all_rendezvous_endpoints(config: &Config) -> u64 {
    config.peers.iter().map(|peer| rendezvous_endpoints(peer) + 1).sum()
}

/// For how many rendezvous endpoints the daemon prepares one socket: twice what the configuration takes, so that it may
/// grow with a reload, and as many as 1,800 peers take in any case.
pub fn shared_endpoints(config: &Config) -> u32 {
    u32::try_from(2 * all_rendezvous_endpoints(config)).unwrap_or(u32::MAX).clamp(1 << 14, 1 << 30)
}

/// Files that the daemon may have open at once: at the least, with a session with one peer, the most expensive one; and
/// at most, with all peers in a session that seems dead, so that they look for a new one. Of the rendezvous endpoints,
/// `shared` have but one socket.
pub fn open_files(config: &Config, shared: u64) -> (u64, u64) {
    let sessions = || config.peers.iter().map(|peer| 2 * session_endpoints(peer));
    let others = OTHER_FILES + FILES_OF_THREAD * config.tunnel.packet_threads() as u64;
    let always = all_rendezvous_endpoints(config).saturating_sub(shared) + others;
    (always + sessions().max().unwrap_or(0), always + sessions().sum::<u64>())
}

/// What `sidestep up` would do with this configuration.
pub fn describe(file: &Path, config: &Config, system: &System) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_node(&mut text, file, config, system);
    for peer in &config.peers {
        let _ = write_peer(&mut text, config, peer);
    }
    for peer in &config.classic {
        let _ = write_classic_peer(&mut text, peer);
    }
    for script in &config.scripts {
        let _ = write_script(&mut text, script);
    }
    if config.is_classic() {
        return text;
    }
    let _ = write_limits(&mut text, config, system);
    text
}

fn write_node(text: &mut String, file: &Path, config: &Config, system: &System) -> std::fmt::Result {
    let (node, tunnel) = (&config.node, &config.tunnel);
    writeln!(text, "{} is right. What `sidestep up` would do with it:\n", file.display())?;
    let mtu = match tunnel.mtu {
        Some(mtu) => format!("MTU {mtu}"),
        None => "an MTU that follows the path".to_owned(),
    };
    write!(text, "Tunnel    make the TUN device {} with {mtu}", tunnel.name)?;
    if tunnel.addresses.is_empty() {
        writeln!(text, " and no address")?;
    } else {
        writeln!(text, " and {}", list(&tunnel.addresses))?;
    }
    if let Some(transparent) = &node.transparent {
        let internal = &transparent.internal;
        writeln!(text, "Mode      let frames cross over between {internal} and {}, unseen", node.external)?;
        for host in transparent.hosts(&config.classic) {
            let mac = host.mac.map_or("a MAC that is learned".to_owned(), |mac| mac.to_string());
            writeln!(text, "          protect {}, at {mac}", host.address)?;
        }
        let others = if transparent.pass_others { "let pass" } else { "drop" };
        writeln!(text, "          {others} what these say to others than peers, and others to them")?;
        writeln!(text, "          (while it does not run, nothing crosses over)")?;
    }
    if config.is_classic() {
        return Ok(());
    }
    let prefix = match node.mode {
        Mode::Routed | Mode::Transparent => node.hop_prefix.to_string(),
        Mode::Host => "the prefix of the link".to_owned(),
    };
    writeln!(text, "Identity  be {}, the public key to give to peers", node.private_key.public())?;
    writeln!(text, "Hopping   take outer addresses from {prefix} on {}", node.external)?;
    if node.mode == Mode::Host {
        writeln!(
            text,
            "          take all IPv6 of {0} over: the kernel has no address there",
            node.external
        )?;
        writeln!(
            text,
            "          solicit routers without saying who asks, and move when the network changes"
        )?;
    }
    if node.on_link {
        writeln!(text, "          answer neighbor solicitations for the open ones, nothing else")?;
    } else {
        writeln!(text, "          (route `local {prefix} dev lo`; the router must send the prefix here)")?;
    }
    let table = linux::nft::table_name(&tunnel.name);
    writeln!(text, "          keep the rest of it dark with the nftables table `ip6 {table}`")?;
    if system.external_mtu.is_none() {
        writeln!(text, "          WARNING: this machine has no interface {} now", node.external)?;
    }
    Ok(())
}

fn write_script(text: &mut String, script: &Configured) -> std::fmt::Result {
    let at = &script.attachment;
    writeln!(text, "\nScript    {} gets packets at {}", at.file.display(), at.hook.name())?;
    let device = at.device().map(|name| format!("of {name}"));
    let rule = at.rule.as_ref().map(|rule| format!("that match {rule}"));
    let which: Vec<String> = device.into_iter().chain(rule).collect();
    if !which.is_empty() {
        writeln!(text, "          only those {}", which.join(", "))?;
    }
    let failure = match at.failure {
        Failure::Drop => "drop",
        Failure::Accept => "let pass",
    };
    let lost = if at.fail_open { "let pass" } else { "drop" };
    writeln!(
        text,
        "          run {}, {failure} what it fails at, {lost} what it cannot be given",
        at.function
    )
}

fn write_peer(text: &mut String, config: &Config, peer: &PeerConfig) -> std::fmt::Result {
    writeln!(text, "\nPeer      {}, which hops in {}", peer.name, peer.hop_prefix)?;
    if !peer.allowed_ips.is_empty() {
        let (prefixes, name) = (list(&peer.allowed_ips), &config.tunnel.name);
        writeln!(text, "          route {prefixes} to {name}, and take only packets from there")?;
    }
    let lanes = if peer.lanes == 1 { "1 lane".to_owned() } else { format!("{} lanes", peer.lanes) };
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
            "          replace addresses, once both know a pair of hosts: IPv6 of up to the link's MTU"
        )?;
        writeln!(text, "          WARNING: nothing of that is encrypted or authenticated by the gateways")?;
    }
    let mut extras = Vec::new();
    match peer.padding {
        Padding::None => {}
        Padding::Buckets => extras.push("pad packets to a few sizes".to_owned()),
        Padding::Full => extras.push("pad every packet to the path MTU".to_owned()),
    }
    if peer.cover > 0 {
        extras.push(format!("send {} datagrams of cover traffic per second", peer.cover));
    }
    if let Some(keepalive) = peer.keepalive {
        extras.push(format!("send something every {} at least", duration(keepalive)));
    }
    if peer.preshared_key.is_some() {
        extras.push("mix in the pre-shared key".to_owned());
    }
    if peer.clockless {
        extras.push("allow for a clock that is not set".to_owned());
    }
    if !extras.is_empty() {
        writeln!(text, "          {}", extras.join("; "))?;
    }
    Ok(())
}

fn write_classic_peer(text: &mut String, peer: &ClassicPeer) -> std::fmt::Result {
    let stream = &peer.stream;
    let (local, remote) = (stream.local.address, stream.remote.address);
    writeln!(text, "\nPeer      {}, of the classic profile", peer.name)?;
    writeln!(text, "          WARNING: it is not authenticated: for research, not for protection")?;
    writeln!(text, "          tunnel what {local} and {remote} say to each other")?;
    let rotation = match stream.rotation {
        Rotation::Fixed(seconds) => format!("{seconds} s"),
        Rotation::Randomised { least, .. } => {
            format!("{least} s to {} s, as the session key has it", stream.rotation.longest())
        }
    };
    let cipher = match stream.cipher {
        Some(Cipher::Aes256Cbc) => "encrypted with AES-256-CBC",
        Some(Cipher::Aes128Cbc) => "encrypted with AES-128-CBC",
        None if stream.carry == Carry::Rewrite => "with addresses replaced and nothing else",
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

fn write_limits(text: &mut String, config: &Config, system: &System) -> std::fmt::Result {
    let path = system.external_mtu.unwrap_or(1500);
    writeln!(text, "\nMTU       largest inner packet at a path MTU of {path}, as the external link has it:")?;
    for (overhead, form) in OVERHEADS {
        writeln!(text, "          {:>5}  {form}", path.saturating_sub(overhead))?;
    }
    let ((_, open), (_, without)) = (open_files(config, u64::MAX), open_files(config, 0));
    write!(
        text,
        "Files     up to {open} open at once, all peers together ({without} where the kernel has no BPF)"
    )?;
    match system.open_files {
        Some(limit) if limit < open => {
            writeln!(
                text,
                "\n          WARNING: more than the {limit} that are allowed here: raise the limit of open files"
            )?;
            writeln!(
                text,
                "          (ulimit -n, LimitNOFILE= of the service), rotate more slowly, or use fewer lanes"
            )
        }
        Some(limit) => writeln!(text, "; {limit} are allowed here"),
        None => writeln!(text),
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn duration(duration: Duration) -> String {
    match duration.as_millis() {
        ms if ms % 1000 != 0 => format!("{ms} ms"),
        ms => format!("{} s", ms / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rotation: &str, lanes: u8) -> Config {
        let text = format!(
            "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nexternal = \"eth0\"\n\
             hop_prefix = \"2001:db8:a1::/64\"\n[[peer]]\nname = \"site-b\"\n\
             public_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
             allowed_ips = [\"2001:db8:b::/64\"]\nrotation = \"{rotation}\"\nlanes = {lanes}\n"
        );
        let no_file = |_: &Path| Err(crate::config::KeyFileError::Missing);
        crate::config::parse(&text, Path::new("a.toml"), &no_file).unwrap().tunnel.unwrap()
    }

    /// Counted by brute force over schedules as the protocol draws them, with every jitter at its extremes.
    #[test]
    fn no_schedule_opens_more_endpoints_than_counted() {
        for (rotation, interval) in [("1s", 1000i64), ("1500ms", 1500), ("10s", 10_000), ("1h", 3_600_000)] {
            let bound = session_endpoints(&config(rotation, 1).peers[0]);
            let mut most = 0;
            for pattern in 0u32..1 << 10 {
                let start = |e: i64| e * interval + if pattern >> e & 1 == 1 { interval / 2 - 1 } else { 0 };
                for now in (0..9).map(start) {
                    let open = |e: &i64| {
                        start(*e) - interval.clamp(1000, 10_000) <= now && now < start(e + 1) + 3000
                    };
                    most = most.max((0..9).filter(open).count() as u64);
                }
            }
            assert!(most <= bound && bound <= most + 1, "{rotation}: {most} {bound}");
        }
    }

    #[test]
    fn lanes_multiply_endpoints() {
        let one = session_endpoints(&config("1s", 1).peers[0]);
        assert_eq!(session_endpoints(&config("1s", 16).peers[0]), 16 * one);
        assert!(open_files(&config("1s", 16), 0).1 > 16 * one + OTHER_FILES);
    }

    #[test]
    fn the_plan_says_what_will_be_done() {
        let config = config("10s", 1);
        let system = System { external_mtu: Some(1500), open_files: Some(20_000) };
        let text = describe(Path::new("a.toml"), &config, &system);
        for part in
            ["mt6d0", "2001:db8:a1::/64", "site-b", "2001:db8:b::/64", "1464", "1461", "1432", "20000"]
        {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(!text.contains("WARNING"), "{text}");
        assert!(!text.contains("yAnz5TF"), "{text}");
        let poor = System { external_mtu: None, open_files: Some(32) };
        assert_eq!(describe(Path::new("a.toml"), &config, &poor).matches("WARNING").count(), 2);
    }
}
