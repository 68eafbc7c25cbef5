//! Keys by hand at our end, and somebody else's AH and ESP at the other: scapy's, and the kernel's (XFRM) where it has some.

use lab::patience::wait_until;
use lab::process::Process;

use super::by_hand::write;
use super::scene::{INNER, OUTER, OUTER_V4, Scene};

const CIPHER: &str = "000102030405060708090a0b0c0d0e0f";
const HASH: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// What there is between the two ends, as setkey's language has it.
fn keys(ends: [&str; 2], headers: &[&str]) -> String {
    let [a, b] = ends;
    let mut text = String::new();
    for (number, header) in headers.iter().enumerate() {
        let (out, back) = (0x1000 + 2 * number, 0x1001 + 2 * number);
        let algorithms = match *header {
            "ah" => format!("-A hmac-sha256 0x{HASH}"),
            _ => format!("-E rijndael-cbc 0x{CIPHER} -A hmac-sha256 0x{HASH}"),
        };
        text += &format!(
            "add {a} {b} {header} {out:#x} {algorithms};\nadd {b} {a} {header} {back:#x} {algorithms};\n"
        );
    }
    let wanted: Vec<_> = headers.iter().map(|header| format!("{header}/transport//require")).collect();
    let wanted = wanted.join(" ");
    text + &format!("spdadd {a} {b} any -P out ipsec {wanted};\nspdadd {b} {a} any -P in ipsec {wanted};\n")
}

/// Answers pings that come protected, protected.
const SCAPY: &str = r#"
import sys
from scapy.all import *
from scapy.layers.ipsec import AH, ESP, SecurityAssociation
me, headers, cipher, mac = sys.argv[1], sys.argv[2].split(), bytes.fromhex(sys.argv[3]), bytes.fromhex(sys.argv[4])
def of(header, spi):
    if header == "ah":
        return SecurityAssociation(AH, spi=spi, auth_algo="SHA2-256-128", auth_key=mac)
    return SecurityAssociation(ESP, spi=spi, crypt_algo="AES-CBC", crypt_key=cipher, auth_algo="SHA2-256-128", auth_key=mac)
ways = [(of(h, 0x1000 + 2 * n), of(h, 0x1001 + 2 * n)) for n, h in enumerate(headers)]
def answer(packet):
    ip = packet[IPv6]
    if ip.dst != me or ip.nh not in (50, 51):
        return
    for come, _ in reversed(ways):
        ip = IPv6(raw(come.decrypt(ip)))
    if ICMPv6EchoRequest not in ip:
        return
    ask = ip[ICMPv6EchoRequest]
    back = IPv6(src=ip.dst, dst=ip.src) / ICMPv6EchoReply(id=ask.id, seq=ask.seq, data=ask.data)
    back = IPv6(raw(back))
    for _, go in ways:
        back = IPv6(raw(go.encrypt(back)))
    sendp(Ether(src=packet[Ether].dst, dst=packet[Ether].src) / back, iface="ex", verbose=False)
sniff(iface="ex", prn=answer, store=False, started_callback=lambda: print("ready", flush=True))
"#;

#[test]
fn scapy_opens_and_answers_what_is_protected_by_esp_and_by_ah() {
    let Some(scene) = Scene::new(&["ping", "nft"]) else { return };
    let python = "/usr/bin/python3";
    if !scene.on(1, &[python, "-c", "import scapy.layers.ipsec"]).status.success() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs python3-scapy");
        return eprintln!("skipped: needs python3-scapy");
    }
    // Of AH around ESP it signs the ESP.
    for headers in [&["esp"][..], &["ah"]] {
        write(&scene, 0, &keys(OUTER, headers));
        let up = scene.up(0);
        let log = scene.path(&format!("scapy-{}", headers.join("-")));
        let mut command = scene.namespaces[1].command(python).expect("the namespace");
        let script = ["-c", SCAPY, OUTER[1], &headers.join(" "), CIPHER, HASH];
        let scapy = Process::start(command.args(script), &log).expect("python3");
        let told = || std::fs::read_to_string(&log).unwrap_or_default();
        wait_until("scapy", || told().contains("ready"));
        assert!(scene.pings(0, OUTER[1]), "{headers:?}: {}", told());
        scapy.kill();
        up.kill();
    }
}

/// What `ip xfrm` adds at the other end for the same keys.
fn xfrm(ends: [&str; 2], headers: &[&str], tunnel: Option<[&str; 2]>) -> String {
    let [a, b] = ends;
    let mode = if tunnel.is_some() { "tunnel" } else { "transport" };
    let hash = format!("auth-trunc \"hmac(sha256)\" 0x{HASH} 128");
    let (mut text, mut wanted) = (String::new(), String::new());
    for (number, header) in headers.iter().enumerate() {
        let algorithms = match *header {
            // In IPv4 AH is a multiple of 4 bytes (RFC 4302 §3.3.3.2.1), for the kernel only where it is told.
            "ah" if !a.contains(':') => format!("{hash} flag align4"),
            "ah" => hash.clone(),
            _ => format!("enc \"cbc(aes)\" 0x{CIPHER} {hash}"),
        };
        for (from, to, spi) in [(a, b, 0x1000 + 2 * number), (b, a, 0x1001 + 2 * number)] {
            text += &format!(
                "xfrm state add src {from} dst {to} proto {header} spi {spi:#x} mode {mode} {algorithms}\n"
            );
        }
        wanted += &match tunnel {
            Some(_) => format!("tmpl src FROM dst TO proto {header} mode tunnel "),
            None => format!("tmpl proto {header} mode transport "),
        };
    }
    if tunnel.is_none() && a.contains(':') {
        // Its policies are for neighbor discovery, too, unless others go before them.
        for (from, to, direction) in [(b, a, "out"), (a, b, "in")] {
            for kind in [135, 136] {
                text += &format!(
                    "xfrm policy add src {from} dst {to} proto ipv6-icmp type {kind} dir {direction} priority 1\n"
                );
            }
        }
    }
    let [here, there] = tunnel.unwrap_or([b, a]);
    let of = |from: &str, to: &str| wanted.replace("FROM", from).replace("TO", to);
    text + &format!("xfrm policy add src {here} dst {there} dir out priority 9 {}\n", of(b, a))
        + &format!("xfrm policy add src {there} dst {here} dir in priority 9 {}\n", of(a, b))
}

#[test]
fn the_kernel_opens_and_answers_what_is_protected_by_esp_ah_and_both() {
    if !crate::xfrm::is_there() {
        return;
    }
    let all = [&["esp", "ah"][..], &["esp"], &["ah"]];
    for ends in [OUTER, OUTER_V4] {
        for headers in &all[..lab::scale::scaled(1, 3)] {
            let Some(scene) = Scene::new(&["ping", "python3", "nft"]) else { return };
            write(&scene, 0, &keys(ends, headers));
            let text = std::fs::read_to_string(scene.path("a.toml")).expect("the file");
            scene.write("a.toml", &text.replace(OUTER[0], ends[0]), 0o600);
            scene.namespaces[1].ip(&xfrm(ends, headers, None)).expect("associations of the kernel's");
            let _up = scene.up(0);
            assert!(scene.pings(0, ends[1]) && scene.pings(1, ends[0]), "{ends:?} {headers:?}");
            assert!(
                scene.sends(0, ends[1], 1 << 18) && scene.sends(1, ends[0], 1 << 18),
                "{ends:?} {headers:?}"
            );
        }
    }
}

#[test]
fn the_kernel_is_the_other_end_of_a_tunnel_with_keys_by_hand() {
    if !crate::xfrm::is_there() {
        return;
    }
    let Some(scene) = Scene::new(&["ping", "python3"]) else { return };
    let [a, b] = OUTER;
    let associations = keys(OUTER, &["esp"]).replace(" -E", " -m tunnel -E");
    let associations: String = associations.lines().filter(|line| line.starts_with("add")).collect();
    let policies = format!(
        "spdadd fd00:a::/64 fd00:b::/64 any -P out ipsec esp/tunnel/{a}-{b}/require;\n         spdadd fd00:b::/64 fd00:a::/64 any -P in ipsec esp/tunnel/{b}-{a}/require;\n"
    );
    write(&scene, 0, &(associations + &policies));
    let networks = Some(["fd00:b::/64", "fd00:a::/64"]);
    let route =
        format!("addr add {}/128 dev lo\nroute add fd00:a::/64 via {a} dev ex src {}\n", INNER[1], INNER[1]);
    scene.namespaces[1].ip(&(route + &xfrm(OUTER, &["esp"], networks))).expect("the kernel's end");
    let _up = scene.up(0);
    assert!(scene.pings(0, INNER[1]) && scene.pings(1, INNER[0]));
    assert!(scene.sends(0, INNER[1], 1 << 18) && scene.sends(1, INNER[0], 1 << 18));
}
