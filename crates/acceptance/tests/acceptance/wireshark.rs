//! The dissector of contrib/wireshark, in tshark: with a key log it opens what crossed a lab, counts as the gateways count,
//! and fails on nothing, whatever the capture or the log has.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::capture::Recording;
use lab::classic::{ClassicNodes, Settings};
use lab::patience::wait_until;
use lab::scale::{emulated, scaled};
use lab::traffic::{self, PingOptions};
use lab::{Lab, Node, Site};
use serde_json::Value;
use wire::pcap::{Capture, Header, LINKTYPE_ETHERNET, Record};

use crate::promises::scene;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/wireshark");

/// What is wrong with a frame.
const BAD: &str = "sidestep.verified == 0 || sidestep.bad_tag || sidestep.too_short || sidestep.stranger || sidestep.replayed || \
                   sidestep.rewritten || sidestep.cut || sidestep.malformed || sidestep.envelope.malformed || \
                   sidestep.unknown_context || sidestep.unknown_control || _ws.lua.error";

/// What tshark writes, with the dissector and a key log, or none.
fn tshark(capture: &Path, log: Option<&Path>, arguments: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{FOLDER}/sidestep.lua")).arg("-n").arg("-r").arg(capture);
    // Ports are random: one in fifty is registered for another protocol, whose dissector is asked first otherwise.
    command.args(["-o", "udp.try_heuristic_first:TRUE"]);
    if let Some(log) = log {
        command.arg("-o").arg(format!("sidestep.key_log:{}", log.display()));
    }
    let output = command.args(arguments).output().expect("tshark");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// For each frame that a filter lets pass, its fields.
fn fields(capture: &Path, log: Option<&Path>, filter: &str, names: &[&str]) -> Vec<Vec<String>> {
    let mut arguments = vec!["-Y", filter, "-T", "fields"];
    names.iter().for_each(|name| arguments.extend(["-e", name]));
    let text = tshark(capture, log, &arguments);
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// How many frames each of these filters lets pass, found in one pass: opening datagrams is slow in Lua.
pub(crate) fn counts<const N: usize>(capture: &Path, log: Option<&Path>, filters: [&str; N]) -> [u64; N] {
    let text = tshark(capture, log, &["-q", "-z", &format!("io,stat,0,{}", filters.join(","))]);
    // `| 0.000 <> 7.123 | FRAMES | BYTES | FRAMES | BYTES |`
    let line = text.lines().find(|line| line.contains("<>")).unwrap_or_else(|| panic!("no counts in {text}"));
    let numbers: Vec<u64> =
        line.split('|').skip(2).filter_map(|number| number.trim().parse().ok()).step_by(2).collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{N} filters, and {line}"))
}

fn count(capture: &Path, log: Option<&Path>, filter: &str) -> u64 {
    counts(capture, log, [filter])[0]
}

/// What crossed the router.
struct Crossed {
    lab: Lab,
    capture: PathBuf,
    /// The key logs of both gateways.
    logs: [PathBuf; 2],
    /// Packets that each has sent and received by then: later others may follow.
    counted: [[u64; 2]; 2],
}

/// Gateways that log their keys from the start, over rotations and a rekey.
fn recorded(arguments: &[&str]) -> Option<Crossed> {
    crate::program(&["tshark"])?;
    let mut lab = scene::lab()?.lanes(3).build().expect("a lab");
    let logs = [Site::A, Site::B].map(|site| lab.directory().join(format!("keys-{}", site.letter())));
    for (site, log) in [Site::A, Site::B].into_iter().zip(&logs) {
        let log = log.to_string_lossy();
        let own = ["--keylog", &log, "--test-rekey-after", "5s"];
        lab.gateway(site).set_arguments(&[&own, arguments].concat());
    }
    let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
    let file = recording.file().to_owned();
    lab.start().expect("a tunnel");
    let ping = |ipv4| {
        let interval = Some(Duration::from_millis(50));
        traffic::ping(&lab, PingOptions { ipv4, count: 100, interval, ..PingOptions::default() })
    };
    wait_until("keys are renewed", || {
        assert_eq!(ping(false).expect("a summary").received, 100);
        scene::peer(&lab, Site::A)["session"]["rekeys"].as_u64() > Some(0)
    });
    // Lanes of the new keys, which are born ten seconds after it.
    for ipv4 in [true, false, false] {
        assert_eq!(ping(ipv4).expect("a summary").received, 100);
    }
    // What is under way arrives before either end of it is counted.
    std::thread::sleep(Duration::from_millis(500));
    let of = |site| ["tx_packets", "rx_packets"].map(|field| scene::number(&lab, site, field));
    let counted = [Site::A, Site::B].map(of);
    recording.finish().expect("packets");
    Some(Crossed { lab, capture: file, logs, counted })
}

fn story(arguments: &[&str], cipher: &str) {
    let Some(Crossed { lab, capture, logs, counted }) = recorded(arguments) else { return };
    let (a, b) = (Some(logs[0].as_path()), Some(logs[1].as_path()));

    // Nothing is bad, and of what either end has opened, nothing is missing.
    let both = lab.directory().join("keys-both");
    let all = logs.iter().map(|log| std::fs::read_to_string(log).expect("a log")).collect::<String>();
    std::fs::write(&both, all).expect("a log");
    let both = Some(both.as_path());
    let [unopened, opened] = counts(&capture, both, ["udp && !sidestep", "sidestep"]);
    assert!(unopened == 0 && opened > 500, "{unopened} are not opened, {opened} are");
    for log in [a, b, both] {
        // What an error quotes is noted: a gateway that is not up yet answers so.
        let bad = format!("({BAD}) && !(icmpv6.type < 128)");
        let bad = tshark(&capture, log, &["-Y", &bad, "-V", "-O", "sidestep"]);
        assert_eq!(bad, "");
    }

    // Inner packets are those that the gateways have counted.
    for (log, gateway) in [a, b].into_iter().zip(counted) {
        let inner =
            ["sidestep.form > 0 && sidestep.outgoing == 1", "sidestep.form > 0 && sidestep.outgoing == 0"];
        assert_eq!(counts(&capture, log, inner), gateway, "sent, and received");
    }
    // A ping and its answer are inside, IPv6 and IPv4.
    let echoes = ["icmpv6.type == 128", "icmpv6.type == 129", "icmp.type == 8", "icmp.type == 0"];
    let found =
        counts(&capture, a, echoes.map(|echo| format!("sidestep && {echo}")).each_ref().map(String::as_str));
    assert!(found.iter().all(|found| *found >= 90), "{found:?} of {echoes:?}");
    // Lanes, openers, the handshake and the rekey are told apart.
    let names = ["sidestep.lane", "sidestep.peer", "sidestep.cipher", "sidestep.control"];
    let frames = fields(&capture, a, "sidestep", &names);
    let distinct = |place: usize| -> BTreeSet<&str> {
        frames
            .iter()
            .filter_map(|frame| frame.get(place))
            .flat_map(|field| field.split(','))
            .filter(|is| !is.is_empty())
            .collect()
    };
    assert!(distinct(0).len() > 10);
    assert_eq!(distinct(1), BTreeSet::from(["site-b"]));
    assert_eq!(distinct(2), BTreeSet::from([cipher]));
    let messages = distinct(3);
    for message in ["1", "2", "3", "4", "5", "6", "7", "10", "11", "12", "13"] {
        assert!(messages.contains(message), "control message {message}: {messages:?}");
    }
    let envelopes =
        ["sidestep.envelope == 1 && sidestep.claim.heard", "sidestep.envelope == 2 && sidestep.answer_to"];
    assert!(counts(&capture, both, envelopes).iter().all(|found| *found > 0));

    // Without keys it is random bytes.
    assert_eq!(counts(&capture, None, ["sidestep", "sidestep_classic"]), [0, 0]);
    damaged(&lab, &capture, &logs[0]);
}

#[test]
fn tshark_opens_what_crossed_and_counts_as_the_gateways_do() {
    story(&[], if aes() { "AES-256-GCM" } else { "ChaCha20-Poly1305" });
}

#[test]
fn tshark_opens_what_crossed_where_a_processor_has_no_aes() {
    story(&["--test-without", "aes"], "ChaCha20-Poly1305");
}

/// Whether the gateways agree on AES here.
fn aes() -> bool {
    std::fs::read_to_string("/proc/cpuinfo")
        .is_ok_and(|text| text.split_whitespace().any(|word| word == "aes"))
}

/// Captures that are cut and changed, and a log that is: nothing but what is bad is marked so, and nothing fails.
fn damaged(lab: &Lab, capture: &Path, log: &Path) {
    let bytes = std::fs::read(capture).expect("a capture");
    let records: Vec<_> = Capture::parse(&bytes).expect("a capture").records().flatten().collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut file = Header { link_type: LINKTYPE_ETHERNET, longest: 1 << 16 }.to_bytes().to_vec();
    for _ in 0..if emulated() { 200 } else { scaled(500, 10_000) } {
        let record = &records[random.usize(..records.len())];
        let mut octets = record.octets.to_vec();
        // Behind the headers, mostly: what is before is Wireshark's own.
        let from = if random.u8(..10) == 0 { 0 } else { 62.min(octets.len() - 1) };
        for _ in 0..random.usize(1..4) {
            let at = random.usize(from..octets.len());
            octets[at] = random.u8(..);
        }
        let whole = octets.len();
        let header = Record { time: record.time, octets: &octets }.header();
        let mut header = header.to_vec();
        if random.bool() {
            octets.truncate(random.usize(1..=whole));
            header[8..12].copy_from_slice(&(octets.len() as u32).to_le_bytes());
        }
        file.extend(header);
        file.extend(octets);
    }
    let changed = lab.directory().join("changed.pcap");
    std::fs::write(&changed, file).expect("a capture");
    let text = std::fs::read_to_string(log).expect("a log");
    let spoilt: String = text
        .lines()
        .map(|line| {
            let mut line: Vec<char> = line.chars().collect();
            match random.u8(..4) {
                0 => line.truncate(random.usize(..line.len())),
                1 => {
                    let at = random.usize(..line.len());
                    line[at] = ['ü', ' ', '-', '0', 'g'][random.usize(..5)];
                }
                _ => {}
            }
            line.into_iter().collect::<String>() + "\n"
        })
        .collect();
    let spoilt_log = lab.directory().join("spoilt");
    std::fs::write(&spoilt_log, spoilt + "\0\u{fffd}LANE\nLANE LANE").expect("a log");
    for (capture, log) in [(changed.as_path(), log), (capture, &spoilt_log), (&changed, &spoilt_log)] {
        // Without the tags, what is inside is changed, too.
        for verify in ["sidestep.verify:TRUE", "sidestep.verify:FALSE"] {
            let said = tshark(capture, Some(log), &["-V", "-o", verify]);
            let failed = said.lines().find(|line| line.contains("Lua Error"));
            assert_eq!(failed, None, "{}", capture.display());
        }
    }
    let bad = counts(&changed, Some(log), ["sidestep.bad_tag", "sidestep.cut"]);
    assert!(bad.iter().all(|bad| *bad > 50), "{bad:?}");
    assert!(count(capture, Some(&spoilt_log), "sidestep.verified == 1") > 100, "the other lines serve");
    // All of a capture, each datagram a second time.
    let mut file = bytes.clone();
    for record in &records {
        file.extend(record.header());
        file.extend(record.octets);
    }
    std::fs::write(&changed, file).expect("a capture");
    assert_eq!(
        count(&changed, Some(log), "sidestep.replayed"),
        count(capture, Some(log), "sidestep.counter")
    );
}

#[test]
fn tshark_shows_the_classic_profile_without_keys() {
    if crate::program(&["tshark"]).is_none() {
        return;
    }
    for cipher in ["aes-256-cbc", "none"] {
        let Some(builder) = scene::lab() else { return };
        let lab = builder.tunnel(false).build().expect("a lab");
        lab.wait_connected(Duration::from_secs(30)).expect("hosts that reach each other");
        let settings = Settings { cipher: cipher.into(), rotation: 1, kernel: "off", ..Settings::default() };
        let nodes = ClassicNodes::start(&lab, &settings).expect("both ends");
        let recording = Recording::start(&lab, Node::Router, "a").expect("a recording");
        let ping =
            traffic::ping(&lab, PingOptions { count: 50, ..PingOptions::default() }).expect("a summary");
        assert_eq!(ping.received, 50);
        let capture = recording.file().to_owned();
        recording.finish().expect("packets");
        nodes.stop();
        let seen = |filter: &str| count(&capture, None, filter);
        if cipher == "none" {
            assert!(seen("sidestep_classic.inner_next_header == 58 && icmpv6.type == 128") >= 50);
            assert!(seen("sidestep_classic.inner_next_header == 58 && icmpv6.type == 129") >= 50);
        } else {
            assert!(seen("sidestep_classic.cipher == 1 && sidestep_classic.ciphertext") >= 100);
            assert_eq!(seen("sidestep_classic && icmpv6.type"), 0);
        }
        assert_eq!(seen("_ws.lua.error"), 0);
    }
}

/// The lab's gateways say it everywhere; where the disk is full, they say that, once, and the tunnel goes on.
#[test]
fn keys_are_logged_loudly_and_a_full_disk_stops_no_tunnel() {
    let Some(program) = crate::program(&["mount"]) else { return };
    let mut lab = scene::lab().expect("just looked").build().expect("a lab");
    let small = lab.directory().join("small");
    std::fs::create_dir(&small).expect("a folder");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=8k,mode=700", "tmpfs"]).arg(&small).status();
    assert!(mounted.expect("mount").success());
    let log = small.join("keys");
    lab.gateway_a().set_arguments(&["--keylog", &log.to_string_lossy()]);
    lab.start().expect("a tunnel");
    assert_eq!(lab.show(Site::A).expect("a status")["keylog"], true);
    assert_eq!(lab.show(Site::B).expect("a status")["keylog"], false);
    let socket = format!("/run/sidestep/{}.sock", lab.gateway_a().tunnel());
    let program = program.to_string_lossy().into_owned();
    let ask = |lab: &Lab, words: &[&str]| {
        let words = [&[program.as_str()], words].concat();
        String::from_utf8_lossy(&lab.exec(Node::GatewayA, words).expect("sidestep").stdout).into_owned()
    };
    assert!(ask(&lab, &["show", "--socket", &socket]).contains("KEYS ARE LOGGED"));
    assert!(ask(&lab, &["doctor", "--json", "--socket", &socket]).contains("\"keys_logged\""));
    let events = |lab: &Lab| {
        let text = ask(lab, &["events", "--json", "--socket", &socket]);
        text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect::<Vec<Value>>()
    };
    let once = |events: &[Value], name: &str| events.iter().filter(|event| event["event"] == name).count();
    wait_until("the disk is full", || once(&events(&lab), "key_log_failed") > 0);
    let ping =
        PingOptions { count: 100, interval: Some(Duration::from_millis(50)), ..PingOptions::default() };
    assert_eq!(traffic::ping(&lab, ping).expect("a summary").received, 100);
    let events = events(&lab);
    assert_eq!((once(&events, "keys_logged"), once(&events, "key_log_failed")), (1, 1));
    // No secret is in what the daemon says.
    let text = std::fs::read_to_string(&log).expect("a log");
    let said = std::fs::read_to_string(lab.gateway_a().log()).expect("a log") + &format!("{events:?}");
    let lanes = text.lines().filter(|line| line.starts_with("LANE"));
    let secrets: Vec<_> =
        lanes.filter_map(|line| line.split(' ').nth(9)).filter(|key| key.len() == 64).collect();
    assert!(secrets.len() > 4 && secrets.iter().all(|secret| !said.contains(secret)));
    assert!(lab.gateway_a().stop());
    assert!(Command::new("umount").arg(&small).status().expect("umount").success());

    // In a folder of everybody's it is refused, before anything is set up.
    let shared = lab.directory().join("shared");
    std::fs::create_dir(&shared).expect("a folder");
    std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).expect("a mode");
    lab.gateway_a().set_arguments(&["--keylog", &shared.join("keys").to_string_lossy()]);
    let refused = lab.gateway_a().start().expect_err("refused").to_string();
    assert!(refused.contains("others may put files into"), "{refused}");
    assert!(!shared.join("keys").exists());
}

/// Wireshark has Lua 5.2 until 4.2, and 5.4 since: the ciphers are the same in both.
#[test]
fn the_ciphers_agree_with_the_vectors_in_lua_as_later_versions_have_it() {
    if lab::command::find("lua5.4").is_none() {
        return crate::skip("lua5.4");
    }
    let vectors = std::fs::read(format!("{FOLDER}/../../docs/protocol-vectors.json")).expect("the vectors");
    let vectors: Value = serde_json::from_slice(&vectors).expect("JSON");
    let mut cases = String::new();
    for case in vectors["data"].as_array().expect("cases") {
        let (given, then) = (&case["given"], &case["then"]);
        for value in [
            &given["cipher"],
            &given["data_key"],
            &given["header_key"],
            &given["counter"],
            &given["inner"],
            &then["mask"],
            &then["datagram"],
        ] {
            cases += &(value.as_str().map_or_else(|| value.to_string(), str::to_owned) + " ");
        }
        cases += "\n";
    }
    for case in vectors["mask"].as_array().expect("cases") {
        let (given, then) = (&case["given"], &case["then"]);
        let values = [&given["mask_key"], &then["mark"], &given["message"], &then["payload"]];
        cases += "mask ";
        cases.extend(values.map(|value| format!("{} ", value.as_str().expect("bytes"))));
        cases += "\n";
    }
    let mut lua = Command::new("lua5.4")
        .arg(format!("{FOLDER}/check-ciphers.lua"))
        .arg(format!("{FOLDER}/sidestep"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("lua5.4");
    lua.stdin.take().expect("a pipe").write_all(cases.as_bytes()).expect("cases");
    let output = lua.wait_with_output().expect("lua5.4");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.trim(), format!("{} cases", cases.lines().count()));
}
