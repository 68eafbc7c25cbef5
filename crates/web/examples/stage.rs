//! The page without a tunnel: daemons that are not there say what the page is to be looked at with. For pictures of the
//! documentation, for trying it with hundreds of peers, and for working on it.
//!
//!     cargo run -p web --example stage -- FOLDER [PEERS] [ADDRESS]
//!
//! Prints the address with its token. Lines on standard input change what the daemons say: `silent NAME`, `well NAME`,
//! `exposed yes`, `exposed no`, `unshaped yes`, `unshaped no`, `end TUNNEL`, `begin TUNNEL`; the end of the input ends it. The page is about a fleet, too, whose
//! controller is in this process: `STAGE_ROLE` says what the page may there, `STAGE_SITES` how many sites there are more; the
//! line `sign WHO FILE` signs a draft, as one of the administrators ada, ben and cleo.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use control::tunnel_status::{Endpoint, Fault, Peer, Session, State, Status, example};
use serde_json::{Value, json};
use web::{Options, Page};

#[path = "../tests/daemon/mod.rs"]
mod daemon;
use daemon::Daemon;
#[path = "../tests/controllers/mod.rs"]
mod controllers;
use controllers::Wanted;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TUNNEL: &str = "mt6d0";
const SCRIPT: &str = "/etc/sidestep/nat.lua";
/// What the names of the first peers are.
const NAMES: [&str; 20] = [
    "amsterdam",
    "berlin",
    "bern",
    "bruxelles",
    "dublin",
    "gdansk",
    "goteborg",
    "graz",
    "helsinki",
    "københavn",
    "lisboa",
    "ljubljana",
    "lyon",
    "madrid",
    "milano",
    "oslo",
    "praha",
    "riga",
    "tallinn",
    "wien",
];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("give a folder")?);
    let peers = arguments.next().map_or(Ok(NAMES.len()), |number| number.parse())?;
    let listen = arguments.next().unwrap_or_else(|| "[::1]:8641".into()).parse()?;
    let (sockets, state) = (folder.join("run"), folder.join("state"));
    std::fs::create_dir_all(&sockets)?;
    std::fs::create_dir_all(&state)?;
    let stage = Arc::new(Stage::new(peers));
    if !state.join("history.redb").exists() {
        stage.invent_past(&state)?;
    }
    let mut servers = BTreeMap::new();
    for name in [TUNNEL, "gateway-4026531840", "scripts-4026531840"] {
        servers.insert(name.to_owned(), begin(&stage, &sockets, name)?);
    }
    let environment = |name| std::env::var(name).ok();
    let wanted = Wanted {
        role: environment("STAGE_ROLE")
            .and_then(|role| controllers::role(&role))
            .unwrap_or(controller::Role::Publisher),
        more: environment("STAGE_SITES").and_then(|number| number.parse().ok()).unwrap_or(0),
        provider: None,
        hostile: environment("STAGE_HOSTILE"),
    };
    let fleet = Some(controllers::start(&folder, wanted)?);
    let options = Options {
        listen,
        tls: None,
        names: Vec::new(),
        sockets: sockets.clone(),
        state,
        history: 1 << 30,
        fleet,
    };
    let page = Page::bind(options)?;
    println!("{}", page.url_with_token());
    std::thread::spawn(move || eprintln!("{}", page.serve()));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("silent", name)) => stage.turn(name, true),
            Some(("well", name)) => stage.turn(name, false),
            Some(("exposed", is)) => stage.changed.lock().unwrap().exposed = is == "yes",
            Some(("unshaped", is)) => stage.changed.lock().unwrap().unshaped = is == "yes",
            Some(("sign", words)) => sign(words)?,
            Some(("end", name)) => drop(servers.remove(name)),
            Some(("begin", name)) => drop(servers.insert(name.to_owned(), begin(&stage, &sockets, name)?)),
            _ => eprintln!("what is {line:?}?"),
        }
    }
    Ok(())
}

/// Signs the draft in a file, which is known under another name when that is done.
fn sign(words: &str) -> Result<()> {
    let (who, file) = words.split_once(' ').ok_or("who signs which file?")?;
    let signed = controllers::signed(&std::fs::read_to_string(file)?, who)?;
    std::fs::write(format!("{file}.{who}"), signed)?;
    std::fs::rename(format!("{file}.{who}"), format!("{file}.signed-by-{who}"))?;
    Ok(())
}

fn begin(stage: &Arc<Stage>, sockets: &Path, name: &str) -> Result<Daemon> {
    let (stage, of) = (Arc::clone(stage), name.to_owned());
    let answer = move |request: &Value| match request["command"].as_str() {
        Some("show") if of == TUNNEL => {
            serde_json::to_value(stage.tunnel()).map_err(|error| error.to_string())
        }
        Some("show") => Ok(stage.gateway()),
        Some("list") => Ok(stage.scripts()),
        Some("source") => {
            Ok(json!({ "file": SCRIPT, "text": include_str!("../../../examples/scripts/nat.lua") }))
        }
        Some("explain") if request["packet"].as_str().is_some_and(|words| words.contains("from")) => {
            Ok(json!({
                "verdict": "drop", "from": "wan", "to": "gateway", "rule": { "number": 5, "line": 41, "comment": "no administration from outside" },
                "reason": "rule 5, /etc/sidestep/home.toml:41 (no administration from outside)", "depends_on_rate_or_time": [],
            }))
        }
        Some("explain") => {
            Err("`from` is missing: write a packet as in `tcp from 2a00:1450::1 to gateway port 22 in wan`"
                .to_owned())
        }
        Some("events") if of == TUNNEL => Ok(stage.events(request["after"].as_u64().unwrap_or(0))),
        Some("events") => Ok(json!({ "run": 1, "events": [] })),
        _ => Err("this is a stage".to_owned()),
    };
    Ok(Daemon::start(&sockets.join(format!("{name}.sock")), answer)?)
}

/// What the daemons say follows from the time and from what was turned.
struct Stage {
    begun_s: f64,
    peers: usize,
    changed: Mutex<Changed>,
}

#[derive(Default)]
struct Changed {
    /// Since when, in seconds.
    silent: BTreeMap<String, f64>,
    events: Vec<Value>,
    /// Whether keys are logged and the prefix is not dark.
    exposed: bool,
    /// Whether an uplink is not shaped that is to be.
    unshaped: bool,
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A number from 0 to 1 that is always the same for the same two.
fn drawn(one: u64, other: u64) -> f64 {
    let mut bits = one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other.wrapping_mul(0xd1b5_4a32_d192_ed03);
    for _ in 0..2 {
        bits = (bits ^ (bits >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

impl Stage {
    fn new(peers: usize) -> Stage {
        let stage = Stage { begun_s: now_s() - 93_784.0, peers, changed: Mutex::default() };
        let mut changed = Changed::default();
        for number in 0..60 {
            let peer = name((number * 7 + 3) as usize % peers.max(1));
            let ago = 86_000.0 * drawn(number, 5).powi(2) + 30.0;
            let (event, reason, priority, message) = match number % 5 {
                0 => (
                    "session_up",
                    json!("first"),
                    "info",
                    format!("{peer}: a session is up, after 1 try in 0.04 s"),
                ),
                1 => ("path_mtu", json!("wider"), "info", format!("{peer}: packets of 1500 bytes pass")),
                2 => (
                    "peer_silent",
                    json!("nothing_comes"),
                    "warning",
                    format!("{peer}: nothing comes, though it was asked for"),
                ),
                3 => ("peer_heard", Value::Null, "info", format!("{peer}: is heard again")),
                _ => ("peer_moved", Value::Null, "info", format!("{peer}: hops in another prefix")),
            };
            changed.events.push(event_of(now_s() - ago, priority, event, &peer, reason, &message));
        }
        changed.events.sort_by_key(|event| event["unix_ms"].as_u64());
        (1..).zip(&mut changed.events).for_each(|(number, event)| event["number"] = json!(number));
        *stage.changed.lock().unwrap() = changed;
        for peer in [2, 11] {
            stage.turn(&name(peer), true);
        }
        stage
    }

    /// Silences a peer, or lets it be heard.
    fn turn(&self, name: &str, silent: bool) {
        let mut changed = self.changed.lock().unwrap();
        let (event, priority, says) = if silent {
            changed.silent.insert(name.to_owned(), now_s());
            ("peer_silent", "warning", "nothing comes, though it was asked for")
        } else {
            changed.silent.remove(name);
            ("peer_heard", "info", "is heard again")
        };
        let mut event =
            event_of(now_s(), priority, event, name, json!("nothing_comes"), &format!("{name}: {says}"));
        event["number"] = json!(changed.events.len() + 1);
        changed.events.push(event);
    }

    fn events(&self, after: u64) -> Value {
        let changed = self.changed.lock().unwrap();
        let new: Vec<_> =
            changed.events.iter().filter(|event| event["number"].as_u64() > Some(after)).collect();
        json!({ "run": 7, "events": new })
    }

    fn tunnel(&self) -> Status {
        let now = now_s();
        let (silent, exposed) = {
            let changed = self.changed.lock().unwrap();
            (changed.silent.clone(), changed.exposed)
        };
        let mut status = example();
        (status.keylog, status.dark) = (exposed, Some(!exposed));
        let pattern = status.peers.remove(0);
        status.uptime_s = (now - self.begun_s) as u64;
        status.drops = BTreeMap::from([("no route".into(), 41), ("not for us".into(), 1_204)]);
        status.peers = (0..self.peers).map(|number| self.peer(&pattern, number, now, &silent)).collect();
        status
    }

    fn peer(&self, pattern: &Peer, number: usize, now: f64, silent: &BTreeMap<String, f64>) -> Peer {
        let (of, age) = (number as u64, now - self.begun_s);
        let name = name(number);
        let silent = silent.get(&name).copied();
        let is_idle = number % 9 == 7;
        // It carries more and less, and the sum only grows.
        let until = silent.unwrap_or(now) - self.begun_s;
        let mean = if is_idle { 0.0 } else { 2_000.0 * 900.0_f64.powf(drawn(of, 1)) };
        let (period, phase) = (20.0 + 60.0 * drawn(of, 2), 6.0 * drawn(of, 3));
        let wave = until * std::f64::consts::TAU / period + phase;
        let carried = mean * (until - 0.85 * period / std::f64::consts::TAU * wave.sin());
        let lanes = if is_idle { Lanes::default() } else { Lanes::at(of, age) };
        let endpoint = |lane: u64, site: u16| {
            let part = |which| (drawn(lane * 1000 + of, which + u64::from(site)) * 65_535.0) as u16;
            let address =
                Ipv6Addr::new(0x2001, 0xdb8, site, number as u16, part(1), part(2), part(3), part(4));
            Endpoint { lane, address, port: 1024 + part(5) / 2 }
        };
        let rtt = 3.0 + 40.0 * drawn(of, 4) + 1.5 * drawn(of, now as u64);
        Peer {
            name,
            hop_prefix: format!("2001:db8:b1:{number:x}::/64").parse().unwrap_or(pattern.hop_prefix),
            state: match silent {
                Some(_) => State::Silent,
                None if is_idle => State::Idle,
                None => State::Established,
            },
            state_s: silent.map_or(age * drawn(of, 6), |since| now - since),
            last_heard_s: (!is_idle).then(|| silent.map_or(drawn(of, now as u64), |since| now - since)),
            fault: silent.map(|_| Fault {
                code: "nothing_comes".into(),
                says: "nothing comes from it, though it was asked; what is sent leaves this machine: its gateway, the path, or a \
                       firewall on the way"
                    .into(),
            }),
            session: pattern.session.clone().filter(|_| !is_idle).map(|session| Session {
                age_s: age as u64,
                rekeys: age as u64 / 120,
                ..session
            }),
            epoch: lanes.alive.last().copied(),
            rotations: if is_idle { 0 } else { lanes.born },
            skips: 0,
            local: lanes.alive.iter().map(|lane| endpoint(*lane, 0xa1)).collect(),
            remote: lanes.alive.iter().map(|lane| endpoint(*lane, 0xb1)).collect(),
            next_rotation_ms: (!is_idle).then_some((lanes.next_s * 1000.0) as u64),
            rx_bytes: carried as u64,
            tx_bytes: (carried * (0.1 + 0.5 * drawn(of, 8))) as u64,
            rx_packets: (carried / 900.0) as u64,
            tx_packets: (carried / 1400.0) as u64,
            shape: None,
            drops: BTreeMap::from([("replay".into(), (30.0 * drawn(of, 9)) as u64), ("unknown lane".into(), (9.0 * drawn(of, 10)) as u64)]),
            rtt_ms: (!is_idle).then_some(rtt),
            clock_offset_ms: Some((40.0 * drawn(of, 11)) as i64 - 20),
            ..pattern.clone()
        }
    }

    fn gateway(&self) -> Value {
        let age = now_s() - self.begun_s;
        let (fast, slow) = (age * 3.1, age * 0.21);
        let hosts = [
            ("192.168.1.5", "printer", true),
            ("192.168.1.130", "laptop", false),
            ("192.168.1.187", "phone", false),
        ];
        let leased: Value = (0u64..)
            .zip(hosts)
            .map(|(place, (address, name, fixed))| {
                json!({ "address": address, "mac": format!("02:00:5e:00:53:{place:02x}"), "name": format!("{name}.home.internal"), "fixed": fixed, "seconds": 43_000 - 9_000 * place })
            })
            .collect();
        let shaped = |rate: u64, least: Value, now: Value, why: Value| {
            json!({ "rate_bits": rate, "least_bits": least, "rate_in_force_bits": now, "why": why, "sent_packets": slow as u64, "sent_bytes": fast as u64,
                    "dropped_packets": slow as u64 / 9, "marked_packets": slow as u64 / 40, "backlog_bytes": 0, "peak_delay_ms": 4.2 })
        };
        let follows = (12.0 + 40.0 * (0.5 + 0.5 * (age / 30.0).sin())) * 1e6;
        let no_cake = "the kernel has no CAKE: it needs the module sch_cake (OpenWrt: kmod-sched-cake)";
        let is_shaped = !self.changed.lock().unwrap().unshaped;
        let sent = match is_shaped {
            true => shaped(40_000_000, Value::Null, json!(40_000_000), Value::Null),
            false => shaped(40_000_000, Value::Null, Value::Null, json!(no_cake)),
        };
        let opened = |protocol: &str,
                      address: &str,
                      port: u16,
                      external: &str,
                      external_port: u16,
                      by: &str,
                      from: &[&str]| {
            json!({ "network": "home", "protocol": protocol, "address": address, "port": port, "external_address": external, "external_port": external_port, "from": from,
                    "asked_by": by, "seconds": 7200 - port % 3600 })
        };
        json!({
            "version": "0.1.0", "uptime_seconds": age as u64,
            "uplinks": [
                { "name": "fibre", "interface": "eth0", "link_up": true, "works": true, "probes_answered": true, "router": "fe80::1", "router_seconds": 1740,
                  "prefixes": [{ "prefix": "2001:db8:40::/56", "preferred_seconds": 3400, "valid_seconds": 7000 }], "waits_for_prefix": null, "dns_servers": ["2001:db8:53::1"], "tunnel": null,
                  "bandwidth": { "down": shaped(250_000_000, Value::Null, json!(250_000_000), Value::Null), "up": sent, "delay": null } },
                { "name": "lte", "interface": "wwan0", "link_up": true, "works": true, "probes_answered": null, "router": "fe80::8:1", "router_seconds": 600,
                  "prefixes": [{ "prefix": "2001:db8:77:10::/64", "preferred_seconds": 900, "valid_seconds": 1800 }], "waits_for_prefix": null, "dns_servers": ["2001:db8:77::53"], "tunnel": null,
                  "bandwidth": { "down": shaped(150_000_000, json!(10_000_000), json!(follows as u64), Value::Null), "up": null, "delay": { "reflector": "2001:db8:77::53", "usual_ms": 31.4, "newest_ms": 38.0 } } },
            ],
            "networks": [
                { "name": "home", "interface": "eth1", "link_up": true, "advertises": true, "default_router": true,
                  "prefixes": [{ "prefix": "2001:db8:40:1::/64", "preferred_seconds": 3400, "valid_seconds": 7000 }], "dns_servers": [], "advertisements_sent": 812, "solicitations_received": 31, "rogue_routers": [],
                  "dnsmasq": { "runs": true, "why": null, "restarts": 0, "range": "192.168.1.128-192.168.1.254", "addresses": 127, "domain": "home.internal",
                    "leases": leased },
                  "dhcp6": { "delegates": 60, "hosts": [{ "name": "nas", "addresses": ["2001:db8:40:1::5", "fd12:3456:789a:1::5"] }] }, "port_mappings": 3 },
            ],
            "delegated_prefixes": [{ "network": "home", "router": "fe80::5eff:fe00:5309", "duid": "00:03:00:01:02:00:5e:00:53:09", "prefixes": [{ "prefix": "2001:db8:40:10::/60", "preferred_seconds": 2700, "valid_seconds": 5400 }], "seconds": 5400 }],
            "port_mappings": [
                opened("udp", "192.168.1.130", 3074, "203.0.113.7", 3074, "NAT-PMP", &[]),
                opened("tcp", "192.168.1.187", 51413, "203.0.113.7", 40112, "PCP", &["198.51.100.0/24 port 443"]),
                opened("tcp", "2001:db8:40:1::22", 22000, "2001:db8:40:1::22", 22000, "PCP", &[]),
            ],
            "addresses": [],
            "routes": [
                { "to": "::/0", "from": "2001:db8:40::/56", "interface": "eth0", "via": "fe80::1", "metric": 1024 },
                { "to": "::/0", "from": null, "interface": "wwan0", "via": "fe80::8:1", "metric": 2048 },
                { "to": "2001:db8:40:1::/64", "from": null, "interface": "eth1", "via": null, "metric": 256 },
                { "to": "2001:db8:40::/56", "from": null, "interface": null, "via": null, "metric": 4096 },
            ],
            "neighbors": (1..9).map(|number| json!({ "interface": "eth1", "address": format!("2001:db8:40:1::{number:x}{number:x}"), "mac": format!("02:00:5e:00:53:{number:02x}") })).collect::<Value>(),
            "firewall": {
                "dropped_packets": fast as u64, "rejected_packets": slow as u64, "refused_by_default_packets": (fast * 0.8) as u64,
                "rules": [{ "number": 2, "line": 33, "comment": "web server", "verdict": "accept", "packets": (slow * 9.0) as u64, "bytes": (slow * 7_000.0) as u64 }, { "number": 5, "line": 41, "comment": "no administration from outside", "verdict": "drop", "packets": (fast * 0.2) as u64, "bytes": (fast * 20.0) as u64 }],
                "defaults": [{ "reason": "unsolicited", "verdict": "drop", "packets": (fast * 0.8) as u64, "bytes": (fast * 60.0) as u64 }, { "reason": "icmpv6 errors", "verdict": "accept", "packets": slow as u64, "bytes": (slow * 90.0) as u64 }],
            },
            "connections": 214 + (age as u64 % 17),
            "talkers": (1..8).map(|number| json!({ "address": format!("2001:db8:40:1::{number:x}{number:x}"), "connections": 3 * number, "sent_bytes": (age * 900.0) as u64 / number, "sent_packets": 1, "received_bytes": (age * 21_000.0) as u64 / number, "received_packets": 1 })).collect::<Value>(),
            "peers": [], "problems": if is_shaped { vec![] } else { vec![format!("uplink fibre: what is sent is not shaped: {no_cake}")] },
        })
    }

    fn scripts(&self) -> Value {
        let packets = ((now_s() - self.begun_s) * 180.0) as u64;
        json!({ "scripts": [
            { "id": 1, "file": SCRIPT, "hook": "postrouting", "dev": "eth0", "match": "ip6 saddr fd00::/64", "function": "snat", "state": null, "tier": "kernel", "xdp": false, "priority": null,
              "failure": "drop", "fail_open": false, "threads": 0, "packets": packets, "verdicts": { "NF_DROP": packets / 900, "NF_ACCEPT": packets - packets / 900, "NF_STOLEN": 0, "NF_QUEUE": 0, "NF_REPEAT": 0, "XT_CONTINUE": 0 },
              "errors": 3, "error_lines": { "17": 3 }, "ns_per_packet": 96,
              "last_error": { "message": format!("{SCRIPT}:17: attempt to index a nil value (local 'segment')"), "traceback": [format!("{SCRIPT}:17: in function 'snat'")], "unix_ms": (self.begun_s * 1000.0) as u64 }, "sent": 0, "handed_over": 0, "xdp_mode": null },
        ]})
    }

    /// A month of hours, and a day of minutes.
    fn invent_past(&self, state: &Path) -> Result<()> {
        let now = now_s() as u64 / 60 * 60;
        let hours = (24..30 * 24).rev().map(|hour| now - hour * 3600);
        let minutes = (1..24 * 60).rev().map(|minute| now - minute * 60);
        let shown = self.peers.min(NAMES.len());
        let at = |unix_s: u64| {
            let hour = (unix_s % 86_400) as f64 / 3600.0;
            let day = 0.25 + 0.75 * (1.0 - ((hour - 14.0) / 12.0).abs()).max(0.0);
            let mut samples = Vec::new();
            let mut all = [0.0_f32; 6];
            for number in 0..shown {
                let of = number as u64;
                let noise = drawn(of, unix_s);
                let mean = 2_000.0
                    * 900.0_f64.powf(drawn(of, 1))
                    * day
                    * (0.4 + noise + if noise > 0.97 { 3.0 } else { 0.0 });
                let is_cut = drawn(of + 99, unix_s / 5400) > 0.985;
                let rtt = 3.0 + 40.0 * drawn(of, 4) + 4.0 * day + 3.0 * noise * noise;
                let (up, mean) = if is_cut { (0.0, 0.0) } else { (1.0, mean) };
                let sample = [
                    if is_cut { f64::NAN } else { rtt },
                    mean * (0.1 + 0.5 * drawn(of, 8)),
                    mean,
                    if drawn(of + 7, unix_s) > 0.9 { (9.0 * noise).floor() } else { 0.0 },
                    18.0 + (6.0 * noise).floor(),
                    up,
                ]
                .map(|number| number as f32);
                all.iter_mut().zip(sample).for_each(|(sum, number)| *sum += number);
                samples.push((TUNNEL.to_owned(), Some(name(number)), sample));
            }
            all[5] /= shown.max(1) as f32;
            samples.push((TUNNEL.to_owned(), None, all));
            (unix_s, samples)
        };
        web::invent_past(state, hours.chain(minutes).map(at))
    }
}

fn name(number: usize) -> String {
    // Names as somebody may choose them who wants them to do something.
    if let Ok(hostile) = std::env::var("STAGE_HOSTILE") {
        return [hostile, "__proto__".into(), "constructor".into()]
            .get(number)
            .cloned()
            .unwrap_or_else(|| "toString".into());
    }
    match NAMES.get(number) {
        Some(name) => (*name).to_owned(),
        None => format!("site-{number:03}"),
    }
}

fn event_of(at_s: f64, priority: &str, event: &str, peer: &str, reason: Value, message: &str) -> Value {
    json!({ "number": 0, "time": format!("{at_s:.0} s after 1970"), "unix_ms": (at_s * 1000.0) as u64, "priority": priority, "event": event, "peer": peer, "reason": reason, "message": message, "fields": {} })
}

/// Lanes: born every three seconds or so, in use for six to eleven.
#[derive(Default)]
struct Lanes {
    alive: Vec<u64>,
    born: u64,
    next_s: f64,
}

impl Lanes {
    fn at(of: u64, age: f64) -> Lanes {
        let birth = |lane: u64| 3.0 * lane as f64 + 2.5 * drawn(of, lane);
        let death = |lane: u64| birth(lane) + 6.0 + 5.0 * drawn(lane, of + 1);
        let around = (age / 3.0) as u64;
        let near = around.saturating_sub(8)..around + 4;
        let alive = near.clone().filter(|lane| birth(*lane) <= age && age < death(*lane)).collect();
        let moments = near.flat_map(|lane| [birth(lane), death(lane)]).filter(|moment| *moment > age);
        Lanes { alive, born: around, next_s: moments.fold(f64::MAX, f64::min) - age }
    }
}
