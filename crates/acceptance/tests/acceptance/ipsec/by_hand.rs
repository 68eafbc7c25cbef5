//! Associations and policies by hand: of a file (`setkey_file`), and of the key socket of a tunnel that is up.

use std::process::Output;

use lab::command::text;
use lab::patience::wait_until;
use lab::process::Process;
use wire::protocol;

use super::hosts::{count_of, in_clear};
use super::scene::{INNER, INNER_V4, OUTER, OUTER_V4, Scene};

const CBC: &str = "-E rijndael-cbc 0x000102030405060708090a0b0c0d0e0f \
    -A hmac-sha256 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const HMAC: &str = "-A hmac-sha256 0xf00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Associations for both directions, and the policies of one side.
fn sites(side: usize) -> String {
    let [a, b] = OUTER;
    let (here, there) = if side == 0 {
        (["fd00:a::/64", "10.0.1.0/24"], ["fd00:b::/64", "10.0.2.0/24"])
    } else {
        (["fd00:b::/64", "10.0.2.0/24"], ["fd00:a::/64", "10.0.1.0/24"])
    };
    let (from, to) = (OUTER[side], OUTER[1 - side]);
    let policies = here.iter().zip(there).map(|(here, there)| {
        format!(
            "spdadd {here} {there} any -P out ipsec esp/tunnel/{from}-{to}/require;\n\
             spdadd {there} {here} any -P in ipsec esp/tunnel/{to}-{from}/require;\n"
        )
    });
    let associations =
        format!("add {a} {b} esp 0x1000 -m tunnel {CBC};\nadd {b} {a} esp 0x1001 -m tunnel {CBC};\n");
    associations + &policies.collect::<String>()
}

/// Associations of AH around ESP in transport mode, and the policies of one side.
fn both_headers(side: usize) -> String {
    let [a, b] = OUTER;
    let (from, to) = (OUTER[side], OUTER[1 - side]);
    format!(
        "add {a} {b} esp 0x1000 {CBC};\nadd {b} {a} esp 0x1001 {CBC};\nadd {a} {b} ah 0x1002 {HMAC};\n\
         add {b} {a} ah 0x1003 {HMAC};\n\
         spdadd {from} {to} any -P out ipsec esp/transport//require ah/transport//require;\n\
         spdadd {to} {from} any -P in ipsec esp/transport//require ah/transport//require;\n"
    )
}

pub(super) fn write(scene: &Scene, side: usize, keys: &str) {
    let name = ["a", "b"][side];
    let text = format!(
        "[ipsec]\nidentity = \"{name}.example\"\ninterface = \"tunnel-{name}\"\naddress = \"{}\"\n\
         addresses = [\"{}/64\", \"{}/24\"]\nsetkey_file = \"{name}.keys\"\n",
        OUTER[side], INNER[side], INNER_V4[side]
    );
    scene.write(&format!("{name}.toml"), &text, 0o600);
    scene.write(&format!("{name}.keys"), keys, 0o600);
}

fn key(scene: &Scene, side: usize, words: &[&str]) -> Output {
    let program = std::env::var("SIDESTEP_BIN").expect("the program");
    let socket = scene.path(["a.key", "b.key"][side]).display().to_string();
    scene.on(side, &[&[&program, "key", "--socket", &socket], words].concat())
}

#[test]
fn two_sites_with_keys_by_hand_need_no_ike() {
    let Some(scene) = Scene::new(&["python3", "ping"]) else { return };
    let recorder = scene.record();
    let ends: Vec<Process> = [1, 0]
        .map(|side| {
            write(&scene, side, &sites(side));
            scene.up(side)
        })
        .into();
    for inner in [INNER, INNER_V4] {
        assert!(scene.pings(0, inner[1]) && scene.sends(1, inner[0], 1 << 20));
    }
    // What is taken away by hand is gone, and what is put back is there again, with new keys.
    let dumped = text(&key(&scene, 0, &["dump"]));
    assert!(dumped.contains("0x00001000") || dumped.contains("4096"), "{dumped}");
    assert!(!dumped.contains("000102030405"), "keys are not shown: {dumped}");
    assert!(key(&scene, 0, &["delete", OUTER[0], OUTER[1], "esp", "0x1000"]).status.success());
    assert!(!scene.pings(0, INNER[1]));
    let again = CBC.replace("0x00", "0x10");
    for side in [0, 1] {
        let words = format!("{} {} esp 0x2000 -m tunnel {again}", OUTER[0], OUTER[1]);
        let added = key(
            &scene,
            side,
            &[&["add"][..], &words.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>()].concat(),
        );
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    }
    assert!(scene.pings(0, INNER[1]) && scene.pings(0, INNER_V4[1]));
    let packets = recorder.packets();
    assert!(count_of(&packets, protocol::ESP) > 500);
    assert_eq!((in_clear(&packets), count_of(&packets, protocol::TCP)), (vec![], 0));
    drop(ends);
}

#[test]
fn ah_around_esp_protects_two_hosts_and_a_policy_that_goes_gives_the_way_back() {
    let Some(scene) = Scene::new(&["python3", "ping", "nft"]) else { return };
    let recorder = scene.record();
    let ends: Vec<Process> = [1, 0]
        .map(|side| {
            write(&scene, side, &both_headers(side));
            scene.up(side)
        })
        .into();
    assert!(
        scene.pings(0, OUTER[1]) && scene.sends(0, OUTER[1], 1 << 20) && scene.sends(1, OUTER[0], 1 << 20)
    );
    let packets = recorder.packets();
    // Each begins with AH, and the next header in it is ESP.
    let next: Vec<_> = packets
        .iter()
        .filter(|packet| packet.get(6) == Some(&protocol::AUTHENTICATION))
        .map(|packet| packet[40])
        .collect();
    assert!(next.len() > 500 && next.iter().all(|next| *next == protocol::ESP), "{}", next.len());
    assert_eq!(in_clear(&packets), []);
    // Without an association nothing goes; without a policy it is none of the tunnel's business.
    for side in [0, 1] {
        assert!(key(&scene, side, &["flush"]).status.success());
    }
    assert!(!scene.pings(0, OUTER[1]));
    scene.write("none", "spdflush;", 0o600);
    let none = scene.path("none").display().to_string();
    for side in [0, 1] {
        assert!(key(&scene, side, &["-f", &none]).status.success());
    }
    wait_until("the way that there was before", || scene.pings(0, OUTER[1]));
    drop(ends);
}

#[test]
fn what_a_new_policy_is_for_does_not_leave_by_another_route() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    write(&scene, 0, "");
    let _end = scene.up(0);
    let route = ["ip", "route", "add", "10.0.2.0/24", "via", OUTER_V4[1], "dev", "ex"];
    assert!(scene.on(0, &route).status.success());
    let policy = format!(
        "spdadd 10.0.1.0/24 10.0.2.0/24 any -P out ipsec esp/tunnel/{}-{}/require;",
        OUTER[0], OUTER[1]
    );
    scene.write("policy", &policy, 0o600);
    assert!(key(&scene, 0, &["-f", &scene.path("policy").display().to_string()]).status.success());
    let log = || std::fs::read_to_string(scene.path("a.log")).unwrap_or_default();
    wait_until("a warning", || log().contains("10.0.2.0/24: there is another route to it"));
    let recorder = scene.record();
    // Routes that change have the table made again.
    assert!(scene.on(0, &["ip", "route", "add", "10.0.9.0/24", "dev", "ex"]).status.success());
    let ping = ["ping", "-n", "-c", "20", "-i", "0.1", "-W", "1", INNER_V4[1]];
    assert!(!scene.on(0, &ping).status.success());
    assert_eq!(recorder.in_clear(), []);
}

#[test]
fn a_file_that_others_can_read_or_that_cannot_be_carried_is_refused_before_anything_is_set_up() {
    let Some(scene) = Scene::new(&[]) else { return };
    let program = std::env::var("SIDESTEP_BIN").expect("the program");
    write(&scene, 0, &sites(0));
    scene.write("a.keys", &sites(0), 0o644);
    let file = scene.path("a.toml").display().to_string();
    let refused = |wanted: &[&str]| {
        let socket = scene.path("a.sock").display().to_string();
        for words in [&["ipsec", "up", &file, "--socket", &socket][..], &["check", &file]] {
            let output = scene.on(0, &[&[program.as_str()][..], words].concat());
            let said = format!("{}{}", text(&output), String::from_utf8_lossy(&output.stderr));
            assert!(wanted.iter().all(|part| said.contains(part)), "{said}");
            assert!(words[0] == "check" || !output.status.success());
        }
        let links = text(&scene.on(0, &["ip", "link"]));
        assert!(!links.contains("tunnel-a"), "{links}");
    };
    refused(&["a.keys", "chmod 600"]);
    let counter = "add ::1 ::2 esp 0x1000 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;\n";
    scene.write("a.keys", &(sites(0) + counter), 0o600);
    refused(&["a.keys", "line 7", "hmac-sha256"]);
}

#[test]
fn who_listens_at_the_key_socket_is_asked_for_what_nobody_has() {
    let Some(scene) = Scene::new(&["python3", "ping"]) else { return };
    let policies = |side| {
        let all = sites(side);
        all.lines()
            .filter(|line| line.starts_with("spdadd"))
            .fold(String::new(), |all, line| all + line + "\n")
    };
    let ends: Vec<Process> = [1, 0]
        .map(|side| {
            write(&scene, side, &policies(side));
            scene.up(side)
        })
        .into();
    // A daemon in a few lines: it registers for ESP, and says what it is asked for.
    const DAEMON: &str = "import socket,struct,sys\n\
        s=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.connect(sys.argv[1])\n\
        s.send(struct.pack('BBBBHHII',2,7,0,3,2,0,1,1))\nprint('ready',flush=True)\n\
        while m:=s.recv(65536): print('type',m[1],flush=True)";
    let socket = scene.path("a.key").display().to_string();
    let mut command = scene.namespaces[0].command("python3").expect("the namespace");
    let log = scene.path("daemon.log");
    let _daemon = Process::start(command.args(["-c", DAEMON, &socket]), &log).expect("python3");
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("a registered daemon", || told().contains("type 7"));
    assert!(!scene.pings(0, INNER[1]));
    wait_until("an acquire", || told().contains("type 6"));
    drop(ends);
}
