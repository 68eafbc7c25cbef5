//! Scanners and attack tools against the hopping prefix, from the router, which knows the endpoint in use and can send
//! what no router forwards.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::process::{Child, Stdio};

use lab::capture::{Packet, Recording};
use lab::patience::wait_until;
use lab::scale::{emulated, scaled};
use lab::{Builder, Lab, Node, Site, Topology};

use super::{PYTHON, SWEEP};
use crate::promises::scene;

const ICMPV6: u8 = 58;
const ECHO_REPLY: u8 = 129;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;

/// nmap, thc-ipv6 and ipv6toolkit against one address. `LINK`, `MAC` of the gateway there, `SOURCE` of the tools, `PORT`
/// in use at the endpoint in use. Of denial6, fragmentation6 and thcsyn6 the kinds that send as fast as they can are left
/// out: what a full link loses tells nothing.
const TOOLS: [&str; 40] = [
    "nmap -6 -n -Pn -sS -p 1-64,PORT --max-retries 0 TARGET",
    "nmap -6 -n -Pn -sU -p 1-64,PORT --max-retries 0 TARGET",
    "nmap -6 -n -Pn -sA -p 1-64,PORT --max-retries 0 TARGET",
    "nmap -6 -n -Pn -sY -p 1-64,PORT --max-retries 0 TARGET",
    "nmap -6 -n -Pn -sO --max-retries 0 TARGET",
    "nmap -6 -n -sn -PE TARGET",
    "nmap -6 -n -Pn -O -p PORT TARGET",
    "atk6-alive6 -p -e dst,hop -s PORT -a PORT -u PORT LINK TARGET",
    "atk6-firewall6 LINK TARGET PORT",
    "atk6-firewall6 -u LINK TARGET PORT",
    "atk6-implementation6 -p LINK TARGET",
    "atk6-exploit6 LINK TARGET",
    "atk6-fragmentation6 -p LINK TARGET",
    "atk6-randicmp6 LINK TARGET",
    "atk6-fuzz_ip6 -a -I -D LINK TARGET",
    "atk6-fuzz_ip6 -a -H -F LINK TARGET",
    "atk6-fuzz_ip6 -a -s PORT LINK TARGET",
    "atk6-toobig6 LINK TARGET SOURCE 1280",
    "atk6-redir6 LINK TARGET 2001:db8:bad::2 SOURCE SOURCE",
    "atk6-trace6 LINK TARGET",
    "atk6-trace6 -a -E -F LINK TARGET PORT",
    "atk6-trace6 -u LINK TARGET PORT",
    "atk6-thcsyn6 -i 1000 -a -d -f LINK TARGET PORT",
    "atk6-thcsyn6 -i 1000 -A -r LINK TARGET PORT",
    "tcp6 -i LINK -D MAC -s SOURCE -d TARGET -a PORT -X S",
    "tcp6 -i LINK -D MAC -s SOURCE -d TARGET -a PORT -X A -u 8",
    "tcp6 -i LINK -D MAC -s SOURCE -d TARGET -a PORT -X S -H 8 -y 16",
    "udp6 -i LINK -D MAC -s SOURCE -d TARGET -a PORT -P 64",
    "udp6 -i LINK -D MAC -s SOURCE -d TARGET -a PORT -P 64 -y 8",
    "udp6 -i LINK -D MAC -s SOURCE -d TARGET -a PORT -P 64 -H 8 -u 16",
    "icmp6 -i LINK -D MAC -s SOURCE -d TARGET -t 128:0",
    "icmp6 -i LINK -D MAC -s SOURCE -d TARGET -E -m 1280 -p UDP -r TARGET -o PORT -x SOURCE -a 4000",
    "icmp6 -i LINK -D MAC -s SOURCE -d TARGET -R 2 -O 6 -u 64 -p UDP -r TARGET -o PORT -x SOURCE",
    "frag6 -i LINK -D MAC -s SOURCE -d TARGET -p",
    "frag6 -i LINK -D MAC -s SOURCE -d TARGET -F 8",
    "frag6 -i LINK -D MAC -s SOURCE -d TARGET -X",
    "jumbo6 -i LINK -D MAC -s SOURCE -d TARGET -q 0 -Q 70000 -P 100",
    "ni6 -i LINK -D MAC -s SOURCE -d TARGET -6 TARGET",
    "rd6 -i LINK -D MAC -s SOURCE -d TARGET -r 2001:db8:bad::2 -t SOURCE -n",
    "path6 -i LINK -d TARGET -p udp -a PORT",
];

/// What the attacker knows of the gateway: the link to it, its hardware address there, and its own address.
struct Attacker {
    link: &'static str,
    source: &'static str,
    mac: String,
}

impl Attacker {
    fn at(lab: &Lab) -> Self {
        let (link, source) = match lab.topology() {
            Topology::Switched => ("br", "2001:db8:f0::1"),
            Topology::Routed | Topology::Tunneled => ("a", "2001:db8:fa::1"),
        };
        // `ex@if4 UP fe:… <…>`
        let shown = scene::run(lab, Node::GatewayA, &["ip", "-br", "link", "show", "dev", "ex"]);
        let mac = shown.split_whitespace().nth(2).expect("an address").to_owned();
        Self { link, source, mac }
    }

    fn start(&self, lab: &Lab, words: &[&str], seconds: u64) -> Child {
        let mut command = lab.command(Node::Router, "timeout").expect("the router");
        command.args(["-k", "1", &seconds.to_string()]).args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a tool")
    }

    fn tool(&self, lab: &Lab, tool: &str, target: Ipv6Addr, port: &str, seconds: u64) -> Child {
        let command = tool
            .replace("LINK", self.link)
            .replace("SOURCE", self.source)
            .replace("MAC", &self.mac)
            .replace("PORT", port)
            .replace("TARGET", &target.to_string());
        self.start(lab, &command.split(' ').collect::<Vec<_>>(), seconds)
    }

    fn sweep(&self, lab: &Lab, port: &str, targets: [Ipv6Addr; 2]) -> Child {
        let [first, second] = targets.map(|target| target.to_string());
        let words = [PYTHON, SWEEP, self.link, &self.mac, self.source, port, &first, &second];
        self.start(lab, &words, sweep_seconds())
    }
}

/// How long the sweep may take.
fn sweep_seconds() -> u64 {
    if emulated() { 300 } else { 60 }
}

/// An address beside the one in use, another for each tool.
fn unused(number: usize) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xa1, 0, 0, 0, 7, number as u16)
}

/// Whether somebody sent it who is none of these `strangers`, neither on behalf of the tunnel, nor to find neighbors.
fn is_answer(packet: &Packet, strangers: &str) -> bool {
    let [from_a, to_a, to_b] = [
        Site::A.in_hop_prefix(packet.source),
        Site::A.in_hop_prefix(packet.destination),
        Site::B.in_hop_prefix(packet.destination),
    ];
    let message = packet.payload.first().filter(|_| packet.next_header == ICMPV6);
    let discovery = message.is_some_and(|kind| (133..=137).contains(kind));
    // Some tools look for who else is on the link.
    let neighbors = packet.source.is_unicast_link_local() && packet.destination.is_unicast_link_local();
    let of_the_link = discovery || neighbors && message == Some(&ECHO_REPLY);
    let own = strangers.contains(&format!(" {}/", packet.source));
    let tunnel = from_a && to_b && packet.is_udp();
    !(tunnel || to_a || own || of_the_link || packet.destination.is_multicast())
}

/// Whether it is a packet of the hosts, in clear.
fn in_clear(packet: &Packet) -> bool {
    let inner = |address: Ipv6Addr| matches!(address.segments()[..4], [0x2001, 0xdb8, 0xa | 0xb, 0]);
    inner(packet.source) || inner(packet.destination)
}

fn nobody_answers_a_scan(builder: Builder) {
    let lab = scene::up(builder.rotation("20s").whole_packets(true));
    let attacker = Attacker::at(&lab);
    // On a machine that is emulated some of all at once would not come to send anything: they take turns, after the sweep.
    let (seconds, at_once) = if emulated() { (60, 8) } else { (scaled(10, 45), TOOLS.len()) };
    let rounds = TOOLS.len().div_ceil(at_once) as u64;
    let _stream = scene::start_stream(&lab, Site::A, sweep_seconds() + seconds * rounds + 20);
    let handshakes = scene::number(&lab, Site::A, "handshakes");
    // The endpoint is in use while the tools begin. For 8 s of quiet one wait in 250 would be longer than patience is.
    wait_until("a quiet moment", || scene::number(&lab, Site::A, "next_rotation_ms") > 5_000);
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    let endpoint = scene::peer(&lab, Site::A)["local"][0].take();
    let active: Ipv6Addr = endpoint["address"].as_str().expect("an address").parse().expect("an address");
    let port = endpoint["port"].to_string();

    let mut sweep = attacker.sweep(&lab, &port, [active, unused(0)]);
    if emulated() {
        let _ = sweep.wait();
    }
    for some in TOOLS.iter().enumerate().collect::<Vec<_>>().chunks(at_once) {
        let tools = some.iter().flat_map(|(number, tool)| {
            [active, unused(number + 1)].map(|target| attacker.tool(&lab, tool, target, &port, seconds))
        });
        for mut process in tools.collect::<Vec<_>>() {
            let _ = process.wait();
        }
    }
    let _ = sweep.wait();
    lab.wait_connected(std::time::Duration::from_secs(5)).expect("the tunnel goes on");
    assert_eq!(scene::number(&lab, Site::A, "handshakes"), handshakes, "the session goes on");

    let packets = recording.finish().expect("packets");
    let mut probes: BTreeMap<Ipv6Addr, usize> = BTreeMap::new();
    let to_a = |packet: &&Packet| Site::A.in_hop_prefix(packet.destination);
    let of_the_tunnel = |packet: &Packet| Site::B.in_hop_prefix(packet.source);
    for packet in packets.iter().filter(to_a).filter(|packet| !of_the_tunnel(packet)) {
        *probes.entry(packet.destination).or_default() += 1;
    }
    let sent = |address: Ipv6Addr| probes.get(&address).copied().unwrap_or(0);
    let strangers = scene::run(&lab, Node::Router, &["ip", "-br", "-6", "address"]);
    let answers: Vec<&Packet> = packets.iter().filter(|packet| is_answer(packet, &strangers)).collect();
    let clear = packets.iter().filter(|packet| in_clear(packet)).count();
    eprintln!(
        "{:?}: {} probes by {} tools and a sweep, {} of them to the endpoint in use: {} answers, {clear} packets in clear",
        lab.topology(),
        probes.values().sum::<usize>(),
        TOOLS.len(),
        sent(active),
        answers.len()
    );
    assert_eq!(answers.into_iter().take(5).collect::<Vec<_>>(), Vec::<&Packet>::new());
    assert_eq!(clear, 0);
    assert!(sent(active) > 2_500 && sent(unused(0)) > 2_500, "the sweep was not sent");
    if lab.topology() == Topology::Routed {
        let silent: Vec<_> = (0..TOOLS.len()).filter(|number| sent(unused(number + 1)) == 0).collect();
        assert!(
            silent.is_empty(),
            "sent nothing: {:?}",
            silent.iter().map(|n| TOOLS[*n]).collect::<Vec<_>>()
        );
    }
    let advertised = packets
        .iter()
        .filter(|p| p.next_header == ICMPV6 && p.payload.first() == Some(&NEIGHBOR_ADVERTISEMENT))
        .filter(|p| p.payload.get(8..22) == Some(&unused(0).octets()[..14]));
    assert_eq!(advertised.count(), 0, "an address that is not in use is nobody's");
}

#[test]
fn nobody_answers_a_scan_of_a_routed_prefix() {
    let Some(builder) = scene::lab() else { return };
    nobody_answers_a_scan(builder);
}

#[test]
fn nobody_answers_a_scan_of_an_on_link_prefix() {
    let Some(builder) = scene::lab() else { return };
    nobody_answers_a_scan(builder.topology(Topology::Switched));
}
