//! What a configuration of IPsec leads to, in plain words.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use config::ipsec::{
    IpsecConfig, Place, Remote, Shown, Start, encryption_name, group_name, integrity_name, level_name,
    prf_name,
};
use ike::config::{Authentication, ChildConfig, Mode, PeerConfig};
use ike::message::traffic_selector::TrafficSelector;
use ike::negotiation::ChildProtocol;
use ipsec::level::{Level, Levels};
use ipsec::policy::{Action, Direction, Rule};
use ipsec::selector::Upper;
use router::firewall::service::protocol_name;

/// So many rules are shown: a policy of many networks has one for each pair.
const MAX_RULES: usize = 20;

/// What `sidestep ipsec up` would do with this configuration, or that it refuses it.
pub(crate) fn describe(file: &Path, config: &IpsecConfig, refused: Option<&str>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match refused {
        None => writeln!(text, "{} is valid. `sidestep ipsec up` would do this:\n", file.display()),
        Some(_) => writeln!(
            text,
            "{} can be read, but `sidestep ipsec up` refuses it. It says this:\n",
            file.display()
        ),
    };
    let _ = write_this_end(&mut text, config);
    for (remote, peer) in config.remotes.iter().zip(&config.ike.peers) {
        let _ = write_remote(&mut text, remote, peer);
    }
    let _ = write_policy(&mut text, config);
    if let Some(why) = only_up(config).filter(|_| refused.is_none()) {
        let _ = writeln!(text, "\n          NOTE: `ipsec run` and `ipsec proxy` refuse this: {why}");
    }
    text
}

/// What takes privileges.
fn only_up(config: &IpsecConfig) -> Option<&'static str> {
    if config.setkey.is_some() {
        return Some("they carry associations of IKE, and none by hand");
    }
    let mut children = config.ike.peers.iter().flat_map(|peer| &peer.children);
    let is_tunnel =
        |child: &ChildConfig| child.mode == Mode::Tunnel && child.algorithms.protocol == ChildProtocol::Esp;
    (!children.all(is_tunnel)).then_some("they carry tunnels of ESP, no transport mode and no AH")
}

fn write_this_end(text: &mut String, config: &IpsecConfig) -> std::fmt::Result {
    let mtu = config.mtu.map_or("an MTU that follows the path".to_owned(), |mtu| format!("MTU {mtu}"));
    let addresses = match config.addresses.is_empty() {
        true => "no address of its own".to_owned(),
        false => list(&config.addresses),
    };
    writeln!(text, "Device    make the TUN device {} with {mtu} and {addresses}", config.name)?;
    if let Some(peer) = config.ike.peers.first() {
        writeln!(text, "Identity  be {} to all remotes", Shown(&peer.local))?;
    }
    let at = config.local.map_or("all addresses".to_owned(), |address| address.to_string());
    let port = |port: u16| if port == 0 { "any free one".to_owned() } else { port.to_string() };
    writeln!(
        text,
        "IKE       listen at {at}, UDP {} and {}",
        port(config.ports.ike),
        port(config.ports.nat)
    )?;
    let algorithms = &config.ike.algorithms;
    let mut names: Vec<_> = algorithms.encryption.iter().map(|name| encryption_name(*name)).collect();
    names.extend(algorithms.integrity.iter().map(|name| integrity_name(*name)));
    names.extend(algorithms.prf.iter().map(|name| prf_name(*name)));
    names.extend(algorithms.groups.iter().map(|name| group_name(*name)));
    writeln!(text, "          agree on some of {}", names.join(", "))?;
    match &config.setkey {
        Some(path) => writeln!(text, "Keys      load the associations and policies of {}", path.display()),
        None => Ok(()),
    }
}

fn write_remote(text: &mut String, remote: &Remote, peer: &PeerConfig) -> std::fmt::Result {
    let who = match &peer.remote {
        Some(identity) => Shown(identity).to_string(),
        None => "anybody".to_owned(),
    };
    let how = match &peer.authentication {
        Authentication::SharedKey(_) => "with the shared key",
        Authentication::Certificates(_) => "with a certificate",
    };
    writeln!(text, "\nRemote    {}: {who}, {how}", remote.name)?;
    let address = match &remote.address {
        Some(Place::Address(address)) => format!("at {address}"),
        Some(Place::Name(name)) => format!("at {name}, which is looked up each time"),
        None => "wherever it comes from".to_owned(),
    };
    let start = match remote.start {
        Start::Always => "begin at once, and again after each end",
        Start::Traffic => "begin when there is something to carry",
        Start::Wait => "wait for it to begin",
    };
    writeln!(text, "          {address}; {start}")?;
    let mut extras = Vec::new();
    if peer.request_addresses {
        extras.push("ask for addresses and DNS servers".to_owned());
    }
    if !peer.assigned.addresses.is_empty() {
        extras.push(format!("give it {}", list(&peer.assigned.addresses)));
    }
    if !remote.pool.is_empty() {
        extras.push(format!("give each client an address out of {}", list(&remote.pool)));
    }
    if !peer.assigned.dns.is_empty() {
        extras.push(format!("and the DNS servers {}", list(&peer.assigned.dns)));
    }
    if !extras.is_empty() {
        writeln!(text, "          {}", extras.join("; "))?;
    }
    let (rekey, liveness) = (duration(peer.rekey_after), duration(peer.liveness_after));
    writeln!(text, "          new keys after {rekey}, a question after {liveness} of silence")?;
    for child in &peer.children {
        write_child(text, child, peer)?;
    }
    Ok(())
}

fn write_child(text: &mut String, child: &ChildConfig, peer: &PeerConfig) -> std::fmt::Result {
    let here = match (child.local.is_empty(), peer.request_addresses) {
        (true, _) => "this end's address".to_owned(),
        (false, true) => format!("{}, as far as addresses are given", selectors(&child.local)),
        (false, false) => selectors(&child.local),
    };
    let gives = !(peer.assigned.addresses.is_empty() && peer.assigned.pools.is_empty());
    let there = match (child.remote.is_empty(), gives) {
        (true, false) => "the remote's address".to_owned(),
        (true, true) => "what it is given".to_owned(),
        (false, _) => selectors(&child.remote),
    };
    let header = match child.algorithms.protocol {
        ChildProtocol::Esp => "ESP",
        ChildProtocol::Ah => "AH, readable for anybody",
    };
    let mode = match child.mode {
        Mode::Tunnel => "in a tunnel",
        Mode::Transport => "in transport mode",
    };
    writeln!(text, "          {header}, {mode}: {here} <-> {there}")?;
    let algorithms = &child.algorithms;
    let mut names: Vec<_> = algorithms.encryption.iter().map(|name| encryption_name(*name)).collect();
    names.extend(algorithms.integrity.iter().map(|name| integrity_name(*name)));
    names.extend(algorithms.groups.iter().map(|name| group_name(*name)));
    let rekey = duration(child.rekey_after);
    writeln!(text, "            some of {}; new keys after {rekey}", names.join(", "))?;
    if algorithms.groups.is_empty() {
        writeln!(text, "            without forward secrecy: its keys are as safe as those of IKE")?;
    }
    Ok(())
}

fn write_policy(text: &mut String, config: &IpsecConfig) -> std::fmt::Result {
    let mut lines: Vec<_> = config.rules.iter().take(MAX_RULES).map(rule_in_words).collect();
    if config.rules.len() > MAX_RULES {
        lines.push(format!("… and {} more", config.rules.len() - MAX_RULES));
    }
    if !config.remotes.is_empty() {
        lines.push("between the ends of a child: as that protects it, or not at all".to_owned());
    }
    lines.push(match levels(config.levels) {
        words if words.is_empty() => "other packets: none leaves the device in clear".to_owned(),
        words => format!("other packets need {words}, and none leaves the device in clear"),
    });
    writeln!(text)?;
    for (number, line) in lines.iter().enumerate() {
        let title = if number == 0 { "Policy " } else { "       " };
        writeln!(text, "{title}   {line}")?;
    }
    Ok(())
}

fn rule_in_words(rule: &Rule) -> String {
    let direction = match rule.direction {
        Direction::In => "in: ",
        Direction::Out => "out:",
    };
    let selector = &rule.selector;
    let upper = match &selector.upper {
        Upper::Any => "all".to_owned(),
        Upper::Protocol(protocol) => protocol_name(*protocol),
        Upper::Ports { protocol, source, destination } => {
            format!("{} {} -> {}", protocol_name(*protocol), range(source), range(destination))
        }
        Upper::Icmp { protocol, types, .. } => {
            format!("{} {}-{}", protocol_name(*protocol), types.start(), types.end())
        }
    };
    let action = match rule.action {
        Action::Bypass => "pass as they are".to_owned(),
        Action::Discard => "do not pass".to_owned(),
        Action::Protect { levels: wanted, .. } => format!("need {}", levels(wanted)),
    };
    format!("{direction} {upper}, {} -> {} {action}", selector.source, selector.destination)
}

fn levels(levels: Levels) -> String {
    let named = [
        ("authentication", levels.authentication),
        ("transport encryption", levels.transport_encryption),
        ("tunnel encryption", levels.tunnel_encryption),
    ];
    let wanted = named.into_iter().filter(|(_, level)| *level != Level::None);
    wanted.map(|(name, level)| format!("{name} ({})", level_name(level))).collect::<Vec<_>>().join(", ")
}

fn range(ports: &std::ops::RangeInclusive<u16>) -> String {
    match (*ports.start(), *ports.end()) {
        (0, u16::MAX) => "any".to_owned(),
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

fn selectors(selectors: &[TrafficSelector]) -> String {
    selectors.iter().map(selector).collect::<Vec<_>>().join(", ")
}

fn selector(selector: &TrafficSelector) -> String {
    let (first, last) = selector.addresses();
    let addresses = if first == last { first.to_string() } else { network(first, last) };
    let ports = match selector.ports {
        (0, u16::MAX) => String::new(),
        // Type and code.
        (first, _) if matches!(selector.protocol, 1 | 58) => format!("/{}", first >> 8),
        (first, last) => format!("/{}", range(&(first..=last))),
    };
    match selector.protocol {
        0 => addresses,
        protocol => format!("{addresses} {}{ports}", protocol_name(protocol)),
    }
}

/// The network from one address to another.
fn network(first: IpAddr, last: IpAddr) -> String {
    let length = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (first.to_bits() ^ last.to_bits()).leading_zeros(),
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits() ^ last.to_bits()).leading_zeros(),
        _ => 0,
    };
    format!("{first}/{length}")
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use config::ipsec::Secrecy;
    use zeroize::Zeroizing;

    use super::*;

    fn described(text: &str) -> String {
        let key = |_: &Path, _: Secrecy| Ok(Zeroizing::new(b"a key that nobody is to see".to_vec()));
        let config = config::ipsec::parse(text, Path::new("ipsec0.toml"), &key).unwrap();
        let refused = ipsec_runtime::check(&config).err().map(|why| why.to_string());
        describe(Path::new("ipsec0.toml"), &config, refused.as_deref())
    }

    #[test]
    fn the_examples_are_told_in_words() {
        let site = described(include_str!("../../../../examples/ipsec-site-a.toml"));
        for part in [
            "make the TUN device ipsec0",
            "be a.example",
            "site-b: b.example, with the shared key",
            "at 2001:db8::b; begin at once",
            "ESP, in a tunnel: 2001:db8:a::/64, 10.1.0.0/16 <-> 2001:db8:b::/64, 10.2.0.0/16",
            "new keys after 4 h, a question after 30 s",
            "between the ends of a child: as that protects it, or not at all",
            "other packets: none leaves the device in clear",
        ] {
            assert!(site.contains(part), "{part} is missing in:\n{site}");
        }
        let warrior = described(include_str!("../../../../examples/ipsec-road-warrior.toml"));
        assert!(warrior.contains("::/0, 0.0.0.0/0, as far as addresses are given <-> ::/0"), "{warrior}");
        let gateway = described(include_str!("../../../../examples/ipsec-gateway.toml"));
        assert!(gateway.contains("give it 2001:db8:9::a, 10.9.0.10"), "{gateway}");
        assert!(gateway.contains("10.9.0.1 tcp/443 <-> what it is given"), "{gateway}");
        let sensors = described(include_str!("../../../../examples/ipsec-sensors.toml"));
        assert!(sensors.contains("in:  tcp 1-1023 -> 1-1023, ::/0 -> ::/0 need authentication (require)"));
        assert!(sensors.starts_with("ipsec0.toml is valid"), "{sensors}");
        let hosts = described(
            "[ipsec]\naddress = \"192.0.2.1\"\n[[remote]]\nname = \"b\"\naddress = \"192.0.2.2\"\n\
             shared_key_file = \"b.psk\"\n[[remote.child]]\nmode = \"transport\"\n",
        );
        assert!(hosts.contains("in transport mode: this end's address <-> the remote's address"), "{hosts}");
        assert!(hosts.contains("NOTE: `ipsec run` and `ipsec proxy` refuse this"), "{hosts}");
        for text in [hosts, site, warrior, gateway, sensors] {
            assert!(!text.contains("nobody is to see"), "{text}");
        }
    }
}
