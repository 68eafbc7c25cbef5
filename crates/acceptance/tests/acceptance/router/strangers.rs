//! Strangers outside that take the gateway for their router: nothing of theirs is forwarded, nor given the gateway's address.

use lab::edited::Edited;
use lab::patience::wait_until;

use super::HOME;
use super::scene::{INTERNET, RouterScene, SECOND};

/// Sends datagrams to the gateway's address on a link, to be routed on: `INTERFACE MAC SOURCE DESTINATION`.
const SEND: &str = r#"
import ipaddress, socket, struct, sys
interface, mac, source, destination = sys.argv[1:]
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((interface, 0))
source, destination = ipaddress.ip_address(source), ipaddress.ip_address(destination)

def total(octets):
    value = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while value >> 16:
        value = (value & 0xffff) + (value >> 16)
    return value ^ 0xffff

def datagram(checksum):
    return struct.pack("!HHHH", 4000, 5000, 16, checksum) + b"stranger"

pseudo = source.packed + destination.packed + struct.pack("!II", 16, 17)
payload = datagram(total(pseudo + datagram(0)))
if source.version == 4:
    def header(checksum):
        return struct.pack("!BBHHHBBH", 0x45, 0, 36, 1, 0, 64, 17, checksum) + source.packed + destination.packed
    kind, packet = 0x0800, header(total(header(0))) + payload
else:
    kind = 0x86dd
    packet = struct.pack("!IHBB", 6 << 28, 16, 17, 64) + source.packed + destination.packed + payload
frame = bytes.fromhex(mac.replace(":", "")) + link.getsockname()[4] + struct.pack("!H", kind) + packet
for _ in range(3):
    link.send(frame)
"#;

/// What the gateway sends on to the strangers' destinations, before the providers' filters.
const SENT_ON: &str = "table inet sent_on {
    chain prerouting {
        type filter hook prerouting priority -400
        ip daddr 198.51.100.1 ip saddr 192.0.2.2 counter comment \"masqueraded\"
        ip daddr 198.51.100.1 ip saddr != 192.0.2.2 counter comment \"ipv4\"
        iifname isp0 ip6 daddr 2001:db8:ffff::1 udp dport 5000 counter comment \"ipv6\"
    }
}
";

/// Neighbors of the gateway outside, with what they send: the link, the gateway's interface there, from, to.
const STRANGERS: [[&str; 4]; 5] = [
    ["isp0", "wan0", "100.64.1.77", "198.51.100.1"],
    // As from a host behind the gateway.
    ["isp0", "wan0", "192.168.1.9", "198.51.100.1"],
    ["isp1", "wan1", "192.0.3.77", "198.51.100.1"],
    // In by one uplink, out by the other, with a forged source, too.
    ["isp1", "wan1", "2001:db8:0:2::77", INTERNET],
    ["isp1", "wan1", "2a00:1450::77", INTERNET],
];

#[test]
fn strangers_outside_do_not_go_out_as_the_customer() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.node("net").nft(SENT_ON).expect("counters");
    scene
        .node("host")
        .ip("addr add 192.168.1.9/24 dev eth0\nroute add default via 192.168.1.1\n")
        .expect("IPv4");
    let home = HOME
        .edited("subnet    = 1 ", "ipv4 = \"192.168.1.1/24\"\nsubnet    = 1 ")
        .edited("delegation = 56 ", "delegation = 56\nmasquerade = true\nipv4_router = \"192.0.2.1\"");
    let second = format!(
        "[[uplink]]\nname = \"cable\"\ninterface = \"wan1\"\nprefixes = [\"{SECOND}\"]\nmasquerade = true\n"
    );
    // Without the firewall they are forwarded, or the counters show nothing; their sources they keep even then.
    for (firewall, forwards) in [("enabled = false\n", true), ("", false)] {
        scene.start(&format!("{home}{firewall}{second}"));
        wait_until("the Internet", || scene.answers("host", INTERNET));
        wait_until("the Internet by IPv4", || scene.answers("host", "203.0.113.1"));
        for [link, interface, source, destination] in STRANGERS {
            // `wan0@if4 UP fe:… <…>`
            let shown = scene.run("gw", &["ip", "-br", "link", "show", "dev", interface]);
            let mac = shown.split_whitespace().nth(2).expect("an address");
            let sent = scene.run("net", &["python3", "-c", SEND, link, mac, source, destination]);
            assert_eq!(sent, "", "{source}");
        }
        // Behind the strangers' datagrams on the same links: when it is answered they have been judged.
        wait_until("the Internet", || scene.answers("host", INTERNET));
        if forwards {
            wait_until("strangers are forwarded", || {
                counted(&scene, "ipv4") > 0 && counted(&scene, "ipv6") > 0
            });
        } else {
            assert_eq!((counted(&scene, "ipv4"), counted(&scene, "ipv6")), (0, 0), "{}", scene.log());
        }
        assert_eq!(counted(&scene, "masqueraded"), 0, "with {firewall:?}");
        scene.stop();
        scene.node("net").nft(&format!("delete table inet sent_on\n{SENT_ON}")).expect("counters");
    }
}

fn counted(scene: &RouterScene, comment: &str) -> u64 {
    let rules = scene.run("net", &["nft", "list", "table", "inet", "sent_on"]);
    let of = format!("comment \"{comment}\"");
    let packets = |line: &str| line.split("packets ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    rules.lines().filter(|line| line.contains(&of)).find_map(packets).expect("a counter")
}
