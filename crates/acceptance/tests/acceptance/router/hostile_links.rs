//! Links whose routers are dead, lie or are a flood, and hosts that must notice nothing: RFC 4861 section 6.3.6, RFC 6583.

use std::time::{Duration, Instant};

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use lab::scale::emulated;
use serde_json::Value;

use super::HOME;
use super::scene::{INTERNET, RouterScene};

/// Sends router advertisements: `INTERFACE SOURCE PREFERENCE LIFETIME PREFIX`, or as fast as it can, for so many seconds and so
/// many at least, from one of 256 sources, each with 16 prefixes and 16 routes of its own: `INTERFACE flood SECONDS LEAST`.
pub(crate) const ADVERTISE: &str = r#"
import ipaddress, random, socket, struct, sys, time
interface = sys.argv[1]
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((interface, 0))
NODES = ipaddress.ip_address("ff02::1").packed

def total(octets):
    value = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while value >> 16:
        value = (value & 0xffff) + (value >> 16)
    return value ^ 0xffff

def frame(mac, source, preference, lifetime, options):
    body = lambda checksum: struct.pack("!BBHBBHII", 134, 0, checksum, 64, preference << 3, lifetime, 0, 0) + options
    length = len(body(0))
    checksum = total(source + NODES + struct.pack("!II", length, 58) + body(0))
    packet = struct.pack("!IHBB", 6 << 28, length, 58, 255) + source + NODES + body(checksum)
    return bytes.fromhex("333300000001") + mac + struct.pack("!H", 0x86dd) + packet

def prefix(net):
    return struct.pack("!BBBBIII", 3, 4, 64, 0xc0, 86400, 14400, 0) + net

def route(net):
    return struct.pack("!BBBBI", 24, 3, 64, 0x08, 86400) + net

def own(mac):
    return struct.pack("!BB", 1, 1) + mac

def random_net():
    return bytes([0x20, 0x01, 0x0d, 0xb8]) + random.randbytes(4) + bytes(8)

if sys.argv[2] != "flood":
    source, preference, lifetime, net = sys.argv[2:]
    mac = bytes([2, 0xba, 0xd, 0, 0, 1])
    preference = {"low": 3, "medium": 0, "high": 1}[preference]
    options = own(mac) + prefix(ipaddress.ip_network(net).network_address.packed)
    link.send(frame(mac, ipaddress.ip_address(source).packed, preference, int(lifetime), options))
else:
    # All namespaces of a machine share the room of the kernel's neighbor cache.
    routers = [(b"\2" + random.randbytes(5), bytes([0xfe, 0x80]) + bytes(6) + random.randbytes(8)) for _ in range(256)]
    frames = []
    for _ in range(4000):
        mac, source = random.choice(routers)
        options = own(mac) + b"".join(prefix(random_net()) for _ in range(16)) + b"".join(route(random_net()) for _ in range(16))
        frames.append(frame(mac, source, 1, 1800, options))
    end, least, sent = time.monotonic() + float(sys.argv[3]), int(sys.argv[4]), 0
    while time.monotonic() < end or sent < least:
        for each in frames:
            try:
                link.send(each)
                sent += 1
            except OSError:
                pass
    print("sent")
"#;

/// Sends datagrams to random addresses of a /64, for so many seconds, and so many at least: `PREFIX SECONDS LEAST`.
const SCAN: &str = r#"
import ipaddress, random, socket, sys, time
net = ipaddress.ip_network(sys.argv[1]).network_address.packed[:8]
scan = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
end, least, sent = time.monotonic() + float(sys.argv[2]), int(sys.argv[3]), 0
while time.monotonic() < end or sent < least:
    try:
        scan.sendto(b"anybody?", (str(ipaddress.ip_address(net + random.randbytes(8))), 7))
        sent += 1
    except OSError:
        pass
print("sent")
"#;

/// Neighbor unreachability detection in seconds, not minutes.
fn hurry(scene: &RouterScene) {
    let settings = "for s in base_reachable_time_ms=2000 delay_first_probe_time=1 retrans_time_ms=200; do \
                    echo ${s#*=} > /proc/sys/net/ipv6/neigh/wan0/${s%%=*}; done";
    assert_eq!(scene.run("gw", &["sh", "-c", settings]), "");
}

fn advertise(scene: &RouterScene, words: &[&str]) -> String {
    scene.run("net", &[&["python3", "-c", ADVERTISE][..], words].concat())
}

fn uplink(scene: &RouterScene) -> Value {
    wait_for("a status", || scene.status())["uplinks"][0].clone()
}

fn lines(scene: &RouterScene, node: &str, words: &[&str]) -> usize {
    scene.run(node, words).lines().count()
}

#[test]
fn a_router_that_does_not_answer_is_left_for_one_that_does() {
    let Some(mut scene) = RouterScene::new() else { return };
    hurry(&scene);
    scene.start(&HOME);
    wait_until("the Internet", || scene.answers("host", INTERNET));

    // Nobody is at this address, however much it wants to be preferred; its prefix is none to send from.
    assert_eq!(advertise(&scene, &["isp0", "fe80::bad", "high", "1800", "2001:db8:0:bad::/64"]), "");
    wait_until("the other's prefix", || {
        scene.run("gw", &["ip", "address", "show", "dev", "wan0"]).contains("2001:db8:0:bad:")
    });
    let own = scene.run("gw", &["ip", "-6", "route", "get", INTERNET, "oif", "wan0"]);
    assert!(own.contains("via fe80::1 ") && !own.contains(":bad:"), "{own}");
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        assert_eq!(uplink(&scene)["router"], "fe80::1");
        // Not each of them: with reachability in tenths of a second a busy machine can lose one.
        wait_until("the Internet", || scene.answers("host", INTERNET));
    }

    // Another one that does answer takes over when the first one goes, without a word and without probes.
    scene.node("net").ip("addr add fe80::3/64 dev isp0 nodad\n").expect("a second router");
    advertise(&scene, &["isp0", "fe80::3", "low", "1800", "2001:db8:0:1::/64"]);
    scene.stop_provider();
    scene.node("net").ip("addr del fe80::1/64 dev isp0\n").expect("no first router");
    // Who used it finds out by the frames that nobody answers.
    scene.run("gw", &["ip", "-6", "neighbor", "flush", "dev", "wan0"]);
    wait_until("the other router", || uplink(&scene)["router"] == "fe80::3");
    wait_until("the Internet", || scene.answers("host", INTERNET));

    // When none is left, that is said, and hosts are led nowhere.
    scene.node("net").ip("addr del fe80::3/64 dev isp0\n").expect("no router");
    scene.run("gw", &["ip", "-6", "neighbor", "flush", "dev", "wan0"]);
    wait_until("no router", || uplink(&scene)["works"] == false);
    let problems = wait_for("a status", || scene.status())["problems"].to_string();
    assert!(problems.contains("does not answer neighbor solicitations"), "{problems}");
    wait_until("no way out", || !scene.run("host", &["ip", "-6", "route"]).contains("default via"));
}

#[test]
fn probes_find_the_router_that_forwards() {
    let Some(mut scene) = RouterScene::new() else { return };
    hurry(&scene);
    // It answers neighbor solicitations, wants to be preferred, and takes everything.
    let rogue = scene.node("rogue");
    scene
        .node("net")
        .ip(&format!("link add liar link isp0 netns {} type macvlan mode bridge\n", rogue.name()))
        .expect("a liar");
    rogue.ip("link set liar up\naddr add fe80::66/64 dev liar nodad\n").expect("a liar");
    rogue.sysctl(&[("ipv6/conf/all/forwarding", 1)]).expect("a router");
    scene.write(
        "liar.conf",
        "interface liar { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultPreference high;\n\
         AdvRASrcAddress { fe80::66; }; prefix 2001:db8:0:66::/64 { }; };\n",
    );
    let folder = scene.folder.path().display().to_string();
    let (configuration, pid) = (format!("{folder}/liar.conf"), format!("{folder}/liar.pid"));
    scene.keep("rogue", &["radvd", "-n", "-m", "stderr", "-C", &configuration, "-p", &pid]);

    let probed = format!("probes = [\"{INTERNET}\"]\nprobe_interval = \"1s\"\ndelegation = 56 ");
    scene.start(&HOME.edited("delegation = 56 ", &probed));
    wait_until("it is taken first", || uplink(&scene)["router"] == "fe80::66");
    wait_until("the one that forwards", || uplink(&scene)["router"] == "fe80::1");
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        let uplink = uplink(&scene);
        assert_eq!((&uplink["router"], &uplink["works"]), (&"fe80::1".into(), &true.into()));
        wait_until("the Internet", || scene.answers("host", INTERNET));
    }
}

#[test]
fn floods_leave_little_behind() {
    let Some(mut scene) = RouterScene::new() else { return };
    // Without the firewall, which would drop what comes from outside unasked.
    scene.start(&format!("{}enabled = false\n", *HOME));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let logged = scene.log().lines().count();

    let [flood, scan] = if emulated() { ["500", "250"] } else { ["10000", "5000"] };
    assert_eq!(advertise(&scene, &["isp0", "flood", "4", flood]).trim(), "sent");
    let routes = lines(&scene, "gw", &["ip", "-6", "route", "show", "table", "all"]);
    let addresses = lines(&scene, "gw", &["ip", "-o", "-6", "address", "show", "dev", "wan0"]);
    assert!(routes < 64 && addresses < 16, "{routes} routes, {addresses} addresses");
    wait_until("the Internet", || scene.answers("host", INTERNET));
    assert_eq!(uplink(&scene)["router"], "fe80::1");

    // The same from inside: hosts may believe it, the gateway tells once.
    scene.node("rogue").ip("link set eth0 up\n").expect("a link");
    let words = ["python3", "-c", ADVERTISE, "eth0", "flood", "4", flood];
    assert_eq!(scene.run("rogue", &words).trim(), "sent");
    wait_until("a problem", || {
        let status = wait_for("a status", || scene.status());
        status["problems"].to_string().contains("advertise themselves as routers")
    });
    let log = scene.log();
    assert!(log.lines().count() < logged + 24, "{log}");

    // Looking for hosts fills no neighbor cache: who is there goes on, also if it has never sent anything to the outside.
    scene.run(
        "host",
        &["sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_ra; ip -6 route flush dev eth0"],
    );
    let prefixes = scene.status().expect("a status")["networks"][0]["prefixes"].clone();
    let mut prefixes =
        prefixes.as_array().expect("prefixes").iter().filter_map(|known| known["prefix"].as_str());
    let prefix = prefixes.find(|known| known.starts_with("2001:")).expect("a delegated one").to_owned();
    let silent = prefix.replace("::/64", "::abcd");
    scene
        .node("host")
        .ip(&format!(
            "addr add {silent}/64 dev eth0 nodad\nroute add default via {}\n",
            prefix.replace("::/64", "::1")
        ))
        .expect("a host");
    assert_eq!(scene.run("net", &["python3", "-c", SCAN, &prefix, "3", scan]).trim(), "sent");
    let neighbors = ["ip", "-6", "neighbor", "show", "to", &prefix, "dev", "lan", "nud", "all"];
    let neighbors = lines(&scene, "gw", &neighbors);
    assert!(neighbors < 300, "{neighbors} neighbors");
    wait_until("an answer", || scene.answers("net", &silent));
}

/// BSD and macOS answer from their link-local address where they are asked by one; of Linux, who answers for others.
#[test]
fn who_answers_from_a_link_local_address_is_heard() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    let (address, _) = wait_for("an address", || scene.host_address("2001:db8:10"));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let network = address.split(':').take(4).collect::<Vec<_>>().join(":");
    let (behind, written_down) = (format!("{network}::abcd"), format!("{network}::beef"));
    scene
        .node("host")
        .sysctl(&[("ipv6/conf/eth0/forwarding", 1), ("ipv6/conf/eth0/proxy_ndp", 1)])
        .expect("a proxy");
    scene
        .node("host")
        .ip(&format!(
            "addr add {behind}/128 dev lo\nneigh add proxy {behind} dev eth0\nroute add default via {network}::1\n"
        ))
        .expect("a proxy");
    wait_until("an answer", || scene.answers("net", &behind));
    let many = scene.run("net", &["ping", "-q", "-c", "300", "-i", "0.002", "-W", "2", &behind]);
    let table = || scene.run("gw", &["nft", "list", "table", "ip6", "sidestep-neighbors"]);
    assert!(many.contains(" 0% packet loss"), "{many}{}", table());
    assert!(table().contains(&behind), "{}", table());

    // Whom somebody has written down the kernel does not ask, and hears nothing of.
    let entry = |verb: &str| {
        let words =
            ["ip", "-6", "neighbor", verb, &written_down, "lladdr", "02:00:5e:00:53:09", "dev", "lan"];
        assert_eq!(scene.run("gw", &words), "");
    };
    entry("add");
    wait_until("an entry", || table().contains(&written_down));
    entry("delete");
    wait_until("no entry", || !table().contains(&written_down));
}

#[test]
fn hosts_keep_their_default_route_over_a_restart() {
    let Some(mut scene) = RouterScene::new() else { return };
    hurry(&scene);
    scene.start(&HOME);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let remembered = scene.folder.path().join("state/gw-gateway.json");
    wait_until("a router that answers", || {
        std::fs::read_to_string(&remembered).is_ok_and(|state| state.contains("fe80::1"))
    });
    let seen = scene.folder.path().join("routes.log");
    scene.keep("host", &["sh", "-c", &format!("exec ip -6 monitor route > {}", seen.display())]);
    std::thread::sleep(Duration::from_millis(200));
    let before = scene.host_addresses();
    // The provider's advertisements come every three or four seconds.
    for _ in 0..3 {
        scene.stop();
        scene.start_again();
        wait_until("the Internet", || scene.answers("host", INTERNET));
    }
    let seen = std::fs::read_to_string(&seen).expect("a log");
    assert!(!seen.lines().any(|line| line.contains("Deleted default")), "{seen}");
    assert_eq!(scene.host_addresses(), before);
}

#[test]
fn a_hangup_while_the_file_is_read_is_heard_later() {
    let Some(mut scene) = RouterScene::new() else { return };
    let file = scene.folder.path().join("gw.toml");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).expect("a file to wait for");
    scene.begin();
    // Opens once the program has opened it, too.
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&file).expect("a reader");
    scene.signal(nix::sys::signal::Signal::SIGHUP);
    std::fs::remove_file(&file).expect("a file");
    scene.write("gw.toml", &HOME);
    std::io::Write::write_all(&mut pipe, HOME.as_bytes()).expect("a configuration");
    drop(pipe);
    wait_until("a gateway", || scene.status().is_some());
    wait_until("the hangup", || scene.log().contains("configuration read again"));
}

#[test]
fn a_firewall_that_closes_the_ssh_connection_is_refused() {
    let Some(scene) = RouterScene::new() else { return };
    scene.write("gw.toml", &HOME);
    let up = |arguments: &str, connection: &str| {
        let state = scene.folder.path().join("state").display().to_string();
        let file = scene.folder.path().join("gw.toml").display().to_string();
        let words = format!(
            "SSH_CONNECTION='{connection}' sh -c '{0} check {file}; timeout 3 {0} up {file} --state-dir {state} {arguments}; true'",
            scene.program()
        );
        scene.run("gw", &["sh", "-c", &words])
    };
    scene.node("gw").ip("addr add 2001:db8:0:1::2/64 dev wan0 nodad\n").expect("the address of its sshd");
    let from_outside = "2001:db8:0:1::1 50000 2001:db8:0:1::2 22";
    let refused = up("", from_outside);
    assert_eq!(refused.matches("closes the SSH connection").count(), 2, "check and up say it: {refused}");
    assert!(refused.contains("or add --confirm 60s"), "{refused}");
    assert!(!refused.contains("the gateway is up"), "{refused}");
    let told = up("--confirm 60s", from_outside);
    assert!(told.contains("closes the SSH connection") && told.contains("the gateway is up"), "{told}");
    let told = up("", "fe80::5%lan 50000 fe80::1 22");
    assert!(!told.contains("SSH") && told.contains("the gateway is up"), "{told}");
}
