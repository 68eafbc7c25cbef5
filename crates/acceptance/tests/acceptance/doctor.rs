//! Broken set-ups, each with the one word that `sidestep doctor` is to find for it, and `sidestep show`, unless it would have to
//! ask somebody.

use std::time::Duration;

use lab::patience::wait_until;
use lab::{Builder, Lab, Node, Site};
use serde_json::Value;

use crate::promises::finding::asks;
use crate::promises::scene::{lab, run, step_clock, up};

/// What breaks a set-up, or mends it.
#[derive(Clone, Copy)]
enum Step {
    /// A command on a machine.
    Run(Node, &'static str),
    /// The gateway's configuration has one text in place of another.
    Edit(Site, &'static str, &'static str),
    Restart(Site),
    Stop(Site),
    Kill(Site),
    Start(Site),
    /// Its wall clock is so far ahead, in milliseconds.
    Clock(Site, i64),
}

use Node::{GatewayA, GatewayB, Router};
use Step::{Clock, Edit, Kill, Restart, Run, Start, Stop};

/// A broken set-up.
struct Case {
    what: &'static str,
    broken: &'static [Step],
    /// Who asks, and what it finds.
    finds: &'static [(Site, &'static str)],
    mended: &'static [Step],
}

const FILES: &[Case] = &[
    Case {
        what: "the file is no TOML any more",
        broken: &[Edit(Site::A, "[tunnel]", "[tunnel")],
        finds: &[(Site::A, "configuration")],
        mended: &[Edit(Site::A, "[tunnel\n", "[tunnel]\n")],
    },
    Case {
        what: "a key is misspelt",
        broken: &[Edit(Site::A, "rotation", "rotatoin")],
        finds: &[(Site::A, "configuration")],
        mended: &[Edit(Site::A, "rotatoin", "rotation")],
    },
    Case {
        what: "the file has another peer than what runs",
        broken: &[Edit(Site::A, "site-b", "site-c")],
        finds: &[(Site::A, "not_reloaded")],
        mended: &[Edit(Site::A, "site-c", "site-b")],
    },
    Case {
        what: "the daemon was stopped",
        broken: &[Stop(Site::A)],
        finds: &[(Site::A, "not_running")],
        mended: &[Start(Site::A)],
    },
    Case {
        what: "the daemon was killed",
        broken: &[Kill(Site::A)],
        finds: &[(Site::A, "not_running")],
        mended: &[Start(Site::A)],
    },
    Case {
        what: "the hopping prefix is that of the link",
        broken: &[Stop(Site::A), Edit(Site::A, "2001:db8:a1::/64", "2001:db8:fa::/64")],
        finds: &[(Site::A, "cuts_off")],
        mended: &[Edit(Site::A, "2001:db8:fa::/64", "2001:db8:a1::/64"), Start(Site::A)],
    },
    Case {
        what: "another program flushes all tables",
        broken: &[Run(GatewayA, "nft flush ruleset; sleep 6")],
        finds: &[(Site::A, "rules_restored")],
        mended: &[],
    },
    Case {
        what: "packets are routed into the tunnel that are for no peer",
        broken: &[Run(
            GatewayA,
            "ip -6 route add 2001:db8:99::/64 dev $TUNNEL; ping -c 1 -W 1 2001:db8:99::1 || true",
        )],
        finds: &[(Site::A, "no_peer")],
        mended: &[Run(GatewayA, "ip -6 route del 2001:db8:99::/64 dev $TUNNEL")],
    },
    Case {
        what: "the peer's packets come from a network that is not in allowed_ips",
        broken: &[Run(
            GatewayA,
            "ip addr add 2001:db8:77::1/128 dev lo; ping -I 2001:db8:77::1 -c 2 -W 1 2001:db8:b::2 || true",
        )],
        finds: &[(Site::B, "source_not_allowed")],
        mended: &[Run(GatewayA, "ip addr del 2001:db8:77::1/128 dev lo")],
    },
];

const MACHINE: &[Case] = &[
    Case {
        what: "the external interface has another name",
        broken: &[Run(GatewayA, "ip link set ex down; ip link set ex name ey")],
        finds: &[(Site::A, "interface_missing")],
        mended: &[Run(GatewayA, "ip link set ey name ex; ip link set ex up"), Run(GatewayA, ADDRESSES)],
    },
    Case {
        what: "the external interface is down",
        broken: &[Run(GatewayA, "ip link set ex down")],
        finds: &[(Site::A, "interface_down")],
        mended: &[Run(GatewayA, "ip link set ex up"), Run(GatewayA, ADDRESSES)],
    },
    Case {
        what: "the other end of the cable is down",
        broken: &[Run(Router, "ip link set dev a down")],
        finds: &[(Site::A, "no_carrier")],
        mended: &[Run(
            Router,
            "ip link set dev a up; sleep 1; ip -6 addr add 2001:db8:fa::1/64 dev a nodad || true; ip -6 route replace 2001:db8:a1::/64 via 2001:db8:fa::2 dev a",
        )],
    },
    Case {
        what: "IPv6 is off at the external interface",
        broken: &[Run(GatewayA, "sysctl -qw net.ipv6.conf.ex.disable_ipv6=1")],
        finds: &[(Site::A, "ipv6_off")],
        mended: &[Run(GatewayA, "sysctl -qw net.ipv6.conf.ex.disable_ipv6=0"), Run(GatewayA, ADDRESSES)],
    },
    Case {
        what: "there is no default route",
        broken: &[Run(GatewayA, "ip -6 route del default")],
        finds: &[(Site::A, "no_route")],
        mended: &[Run(GatewayA, ADDRESSES)],
    },
    Case {
        what: "what is for the peer's prefix leaves by another interface",
        broken: &[Run(GatewayA, "ip -6 route add 2001:db8:b1::/64 dev in")],
        finds: &[(Site::A, "other_interface")],
        mended: &[Run(GatewayA, "ip -6 route del 2001:db8:b1::/64 dev in")],
    },
    Case {
        what: "IPv6 is not forwarded",
        broken: &[Run(GatewayA, "sysctl -qw net.ipv6.conf.all.forwarding=0")],
        finds: &[(Site::A, "not_forwarding_ipv6")],
        mended: &[Run(GatewayA, "sysctl -qw net.ipv6.conf.all.forwarding=1")],
    },
    Case {
        what: "IPv4 is not forwarded",
        broken: &[Run(GatewayA, "sysctl -qw net.ipv4.ip_forward=0")],
        finds: &[(Site::A, "not_forwarding_ipv4")],
        mended: &[Run(GatewayA, "sysctl -qw net.ipv4.ip_forward=1")],
    },
    Case {
        what: "a firewall drops by default what comes in",
        broken: &[Run(
            GatewayA,
            "nft 'add table inet mine; add chain inet mine i { type filter hook input priority 0; policy drop; }; add rule inet mine i icmpv6 type != echo-request accept'",
        )],
        finds: &[(Site::A, "closed_input"), (Site::A, "filtered_here")],
        mended: &[Run(GatewayA, "nft delete table inet mine")],
    },
    Case {
        what: "a firewall drops by default what is forwarded",
        broken: &[Run(
            GatewayA,
            "nft 'add table inet mine; add chain inet mine f { type filter hook forward priority 0; policy drop; }'",
        )],
        finds: &[(Site::A, "closed_forward")],
        mended: &[Run(GatewayA, "nft delete table inet mine")],
    },
    Case {
        what: "a more specific route leads past the tunnel",
        broken: &[Run(GatewayA, "ip -6 route add 2001:db8:b::/112 dev in")],
        finds: &[(Site::A, "inner_route")],
        mended: &[Run(GatewayA, "ip -6 route del 2001:db8:b::/112 dev in")],
    },
    Case {
        what: "the tunnel's device is down",
        broken: &[Run(GatewayA, "ip link set $TUNNEL down")],
        finds: &[(Site::A, "tunnel_down")],
        mended: &[Run(GatewayA, "ip link set $TUNNEL up"), Restart(Site::A)],
    },
];

/// What gateway A loses with its link.
const ADDRESSES: &str = "sleep 0.5; ip -6 addr add 2001:db8:fa::2/64 dev ex nodad || true; ip -6 route replace default via 2001:db8:fa::1 dev ex";

const PATH: &[Case] = &[
    Case {
        what: "the peer's firewall drops what comes in",
        broken: &[Run(
            GatewayB,
            "nft 'add table ip6 x; add chain ip6 x i { type filter hook input priority 0; }; add rule ip6 x i meta l4proto udp drop'",
        )],
        finds: &[(Site::A, "nothing_arrives"), (Site::B, "filtered_here")],
        mended: &[Run(GatewayB, "nft delete table ip6 x")],
    },
    Case {
        what: "this machine's firewall drops what leaves",
        broken: &[Run(
            GatewayA,
            "nft 'add table ip6 x; add chain ip6 x o { type filter hook output priority 0; }; add rule ip6 x o meta l4proto udp drop'",
        )],
        finds: &[(Site::A, "refused_here"), (Site::B, "nothing_comes")],
        mended: &[Run(GatewayA, "nft delete table ip6 x")],
    },
    Case {
        what: "the peer's prefix is not routed to it any more",
        broken: &[Run(Router, "ip -6 route del 2001:db8:b1::/64")],
        finds: &[(Site::A, "no_route_there")],
        mended: &[Run(Router, "ip -6 route add 2001:db8:b1::/64 via 2001:db8:fb::2")],
    },
    Case {
        what: "the peer's prefix ends on its link",
        broken: &[Run(Router, "ip -6 route del 2001:db8:b1::/64; ip -6 route add 2001:db8:b1::/64 dev b")],
        finds: &[(Site::A, "unreachable_there")],
        mended: &[Run(
            Router,
            "ip -6 route del 2001:db8:b1::/64; ip -6 route add 2001:db8:b1::/64 via 2001:db8:fb::2 dev b",
        )],
    },
    Case {
        what: "the peer was stopped",
        broken: &[Stop(Site::B)],
        finds: &[(Site::A, "no_answer"), (Site::B, "not_running")],
        mended: &[Start(Site::B)],
    },
    Case {
        what: "the peer's machine was booted, runs nothing, and sends back what is for the prefix",
        broken: &[Stop(Site::B), Run(GatewayB, "ip -6 route del blackhole 2001:db8:b1::/64")],
        finds: &[(Site::A, "loop_there")],
        mended: &[Start(Site::B)],
    },
];

/// What has been so since both ends began.
const EVER: &[Case] = &[
    Case {
        what: "the peer's prefix was never routed to it",
        broken: &[
            Run(Router, "ip -6 route del 2001:db8:b1::/64"),
            Stop(Site::A),
            Stop(Site::B),
            Start(Site::A),
            Start(Site::B),
        ],
        finds: &[(Site::A, "no_route_there")],
        mended: &[Run(Router, "ip -6 route add 2001:db8:b1::/64 via 2001:db8:fb::2")],
    },
    Case {
        what: "a firewall on the path has always dropped what goes to the peer",
        broken: &[
            Run(
                Router,
                "nft 'add table ip6 x; add chain ip6 x f { type filter hook forward priority 0; }; add rule ip6 x f iifname a drop'",
            ),
            Stop(Site::A),
            Stop(Site::B),
            Start(Site::A),
            Start(Site::B),
        ],
        finds: &[(Site::A, "nothing_arrives"), (Site::B, "no_answer")],
        mended: &[Run(Router, "nft delete table ip6 x")],
    },
];

const BETWEEN: &[Case] = &[
    Case {
        what: "a firewall on the path refuses",
        broken: &[Run(
            Router,
            "nft 'add table ip6 x; add chain ip6 x f { type filter hook forward priority 0; }; add rule ip6 x f meta l4proto udp reject with icmpv6 type admin-prohibited'",
        )],
        finds: &[(Site::A, "prohibited_there"), (Site::B, "prohibited_there")],
        mended: &[Run(Router, "nft delete table ip6 x")],
    },
    Case {
        what: "a firewall on the path drops one direction",
        broken: &[Run(
            Router,
            "nft 'add table ip6 x; add chain ip6 x f { type filter hook forward priority 0; }; add rule ip6 x f iifname a drop'",
        )],
        finds: &[(Site::A, "nothing_arrives"), (Site::B, "nothing_comes")],
        mended: &[Run(Router, "nft delete table ip6 x")],
    },
    Case {
        what: "the path alters what comes from the peer",
        broken: &[Run(
            Router,
            "nft 'add table ip6 x; add chain ip6 x f { type filter hook forward priority 0; }; add rule ip6 x f iifname b meta l4proto udp @th,96,32 set 0x55555555'",
        )],
        finds: &[(Site::A, "altered"), (Site::B, "nothing_arrives")],
        mended: &[Run(Router, "nft delete table ip6 x")],
    },
    Case {
        what: "a firewall on the path drops both",
        broken: &[Run(
            Router,
            "nft 'add table ip6 x; add chain ip6 x f { type filter hook forward priority 0; policy drop; }'",
        )],
        finds: &[(Site::A, "nothing_comes"), (Site::B, "nothing_comes")],
        mended: &[Run(Router, "nft delete table ip6 x")],
    },
    Case {
        what: "the peer was killed",
        broken: &[Kill(Site::B)],
        finds: &[(Site::A, "nothing_comes"), (Site::B, "not_running")],
        mended: &[Start(Site::B)],
    },
];

const STRANGERS: &[Case] = &[
    Case {
        what: "the path translates addresses and ports",
        broken: &[
            Run(
                Router,
                "nft 'add table ip6 n; add chain ip6 n p { type nat hook postrouting priority srcnat; }; add rule ip6 n p meta l4proto udp masquerade random'",
            ),
            Restart(Site::A),
        ],
        finds: &[(Site::B, "source_rewritten")],
        mended: &[Run(Router, "nft delete table ip6 n"), Restart(Site::A)],
    },
    Case {
        what: "one end has a preshared key and the other has not",
        broken: &[
            Edit(
                Site::A,
                "public_key =",
                "preshared_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\npublic_key =",
            ),
            Restart(Site::A),
        ],
        finds: &[(Site::B, "another_key"), (Site::A, "another_key")],
        mended: &[
            Edit(Site::A, "preshared_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\n", ""),
            Restart(Site::A),
        ],
    },
    Case {
        what: "a clock is three hours ahead",
        broken: &[Clock(Site::A, 3 * 3_600_000), Restart(Site::B)],
        finds: &[(Site::B, "clock"), (Site::A, "clock")],
        mended: &[],
    },
];

fn builder() -> Option<Builder> {
    lab()
}

fn apply(lab: &mut Lab, step: Step) {
    match step {
        Run(node, command) => {
            let site = if node == GatewayB { Site::B } else { Site::A };
            let command = command.replace("$TUNNEL", lab.gateway(site).tunnel());
            let command = command.replace("$FOLDER", &lab.directory().to_string_lossy());
            let output = lab.exec(node, ["bash", "-c", &command]).expect("a command that starts");
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Edit(site, from, to) => {
            let path = lab.gateway(site).configuration().to_owned();
            let text = std::fs::read_to_string(&path).expect("a configuration");
            assert!(text.contains(from), "{from} in {text}");
            std::fs::write(&path, text.replacen(from, to, 1)).expect("a configuration that can be written");
        }
        Restart(site) => lab.gateway(site).restart().expect("a gateway that starts"),
        Stop(site) => assert!(lab.gateway(site).stop(), "it ends well"),
        Kill(site) => lab.gateway(site).kill(),
        Start(site) => lab.gateway(site).start().expect("a gateway that starts"),
        Clock(site, ms) => step_clock(lab, site, ms),
    }
}

/// What is wrong with names: the router serves them, and B's is in the file of A.
const NAMES: &[Case] = &[
    Case {
        what: "no name server answers",
        broken: &[Edit(Site::A, "rotation", "dns = \"site-b.example.net\"\nrotation")],
        finds: &[(Site::A, "name_server")],
        mended: &[Run(
            Router,
            "printf 'local=/example.net/\\nhost-record=site-b.example.net,2001:db8:b1::77\\n' > $FOLDER/n; dnsmasq -x $FOLDER/p -C $FOLDER/n --no-resolv --no-hosts -u root",
        )],
    },
    Case {
        what: "there is no such name",
        broken: &[Edit(Site::A, "site-b.example.net", "site-c.example.net")],
        finds: &[(Site::A, "name_missing")],
        mended: &[Edit(Site::A, "site-c.example.net", "site-b.example.net")],
    },
    Case {
        what: "the name says where the peer was",
        broken: &[Run(
            Router,
            "kill $(cat $FOLDER/p); sleep 0.5; printf 'local=/example.net/\\nhost-record=site-b.example.net,2001:db8:b7::77\\n' > $FOLDER/n; dnsmasq -x $FOLDER/p -C $FOLDER/n --no-resolv --no-hosts -u root",
        )],
        finds: &[(Site::A, "name_outdated")],
        mended: &[],
    },
    Case {
        what: "the record is somebody else's",
        broken: &[
            Edit(Site::A, "dns =", "dns_record ="),
            Run(
                Router,
                "kill $(cat $FOLDER/p); sleep 0.5; printf 'local=/example.net/\\ntxt-record=site-b.example.net,v=spf1\\n' > $FOLDER/n; dnsmasq -x $FOLDER/p -C $FOLDER/n --no-resolv --no-hosts -u root",
            ),
        ],
        finds: &[(Site::A, "name_unusable")],
        mended: &[],
    },
    Case {
        what: "the name has another kind of record",
        broken: &[Edit(Site::A, "dns_record =", "dns =")],
        finds: &[(Site::A, "name_missing")],
        mended: &[Run(Router, "kill $(cat $FOLDER/p)")],
    },
];

/// What nobody knows without asking: a name server, or the kernel for what would cut off a machine whose tunnel does not run.
const ASKED: [&str; 5] = ["name_server", "name_missing", "name_unusable", "name_outdated", "cuts_off"];

/// The codes of all that a gateway's doctor calls more than fine.
fn doctor(lab: &mut Lab, site: Site) -> Vec<String> {
    let gateway = lab.gateway(site);
    let socket = format!("/run/sidestep/{}.sock", gateway.tunnel());
    let file = gateway.configuration().to_string_lossy().into_owned();
    let program = lab.program().to_string_lossy().into_owned();
    let node = if site == Site::A { GatewayA } else { GatewayB };
    let words = [&program, "doctor", "--json", "--socket", &socket, "--config", &file];
    let output = lab.exec(node, words).expect("a doctor");
    let text = String::from_utf8_lossy(&output.stdout);
    let document: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    let findings = document["findings"].as_array().expect("findings");
    let wrong = findings.iter().filter(|finding| finding["level"] != "ok");
    wrong.map(|finding| finding["code"].as_str().expect("a code").to_owned()).collect()
}

/// The codes of all that `show` says of it: what is wrong with the peer, and what stands in the way on the machine.
fn shown(lab: &mut Lab, site: Site) -> Vec<String> {
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(site).tunnel());
    let program = lab.program().to_string_lossy().into_owned();
    let node = if site == Site::A { GatewayA } else { GatewayB };
    let output = lab.exec(node, [&program, "show", "--json", "--socket", &socket]).expect("a status");
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("is not running") {
        return vec!["not_running".to_owned()];
    }
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    let warnings = status["warnings"].as_array().expect("warnings");
    let faults = status["peers"].as_array().expect("peers").iter().map(|peer| &peer["fault"]);
    faults.chain(warnings).filter_map(|said| said["code"].as_str()).map(str::to_owned).collect()
}

fn walk(cases: &[Case], arguments: &[&str]) {
    if let Some(builder) = builder() {
        walk_in(builder, cases, arguments);
    }
}

fn walk_in(builder: Builder, cases: &[Case], arguments: &[&str]) {
    let mut lab = builder.build().expect("a lab");
    for site in [Site::A, Site::B] {
        lab.gateway(site).set_arguments(arguments);
        apply(&mut lab, Edit(site, "rotation", "keepalive = \"10s\"\nrotation"));
    }
    lab.start().expect("a tunnel");
    for case in cases {
        for step in case.broken {
            apply(&mut lab, *step);
        }
        for (site, code) in case.finds {
            // A peer that was just restarted tries at times of its own.
            let mut found = doctor(&mut lab, *site);
            // It looks for seven seconds at the most; and what the case before has left counts for some seconds.
            for _ in 0..15 {
                if !found.iter().any(|found| found == code) {
                    std::thread::sleep(Duration::from_secs(1));
                    found = doctor(&mut lab, *site);
                }
            }
            assert!(found.iter().any(|found| found == code), "{}: not {code} but {found:?}", case.what);
            let said = shown(&mut lab, *site);
            if !ASKED.contains(code) {
                assert!(
                    said.iter().any(|said| said == code),
                    "{}: `show` says {said:?}, not {code}",
                    case.what
                );
            }
        }
        for step in case.mended {
            apply(&mut lab, *step);
        }
        wait_until(&format!("{}: mended", case.what), || lab.wait_connected(Duration::from_secs(5)).is_ok());
    }
}

#[test]
fn nothing_is_wrong_with_what_works() {
    let Some(builder) = builder() else { return };
    let mut lab = up(builder);
    for site in [Site::A, Site::B] {
        assert_eq!(doctor(&mut lab, site), [""; 0]);
    }
    let program = lab.program().to_string_lossy().into_owned();
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(Site::A).tunnel());
    // From another network namespace it does not take that one's interfaces and rules for the tunnel's.
    for command in ["doctor", "show"] {
        let output = std::process::Command::new(&program).args([command, "--socket", &socket]).output();
        let output = output.expect("a program that starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !text.contains("FAULT") && !text.contains("WARNING"), "{text}");
    }
    let said = run(&lab, GatewayA, &[&program, "doctor", "site-x", "--socket", &socket]);
    assert!(said.contains("there is no peer site-x: there are site-b"), "{said}");
}

/// Says of what nobody has sent to B that a firewall refuses it: to an address of A that everybody may know, and to one in the
/// prefix that A hops in.
const FORGED: &str = "
import socket, struct
address = lambda text: socket.inet_pton(socket.AF_INET6, text)
sender = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
for to in '2001:db8:fa::2', '2001:db8:a1::7':
    for source in '2001:dead::1', to:
        quoted = struct.pack('!IHBB', 0x60000000, 8, 17, 64) + address(source) + address('2001:db8:b1::77')
        sender.sendto(bytes([1, 1, 0, 0, 0, 0, 0, 0]) + quoted + struct.pack('!4H', 4000, 4001, 8, 0), (to, 0))
";

/// Who does not see what a node sends does not know where its endpoints are, and cannot write what is shown.
#[test]
fn what_hosts_beside_the_path_say_is_not_believed() {
    let Some(builder) = builder() else { return };
    let mut lab = up(builder);
    apply(&mut lab, Stop(Site::B));
    // Whichever: a message of its first handshake has come lately, or not.
    let missed = |said: &[String]| said == ["nothing_arrives"] || said == ["no_answer"];
    // It tries to reach the peer for a minute.
    wait_until("the peer is missed", || missed(&doctor(&mut lab, Site::A)));
    for _ in 0..5 {
        run(&lab, Router, &["python3", "-c", FORGED]);
        std::thread::sleep(Duration::from_secs(1));
        let said = shown(&mut lab, Site::A);
        assert!(missed(&said), "{said:?}");
    }
}

#[test]
fn files_and_daemons() {
    walk(FILES, &[]);
}

#[test]
fn the_machine() {
    walk(MACHINE, &[]);
}

#[test]
fn the_path() {
    walk(PATH, &[]);
}

#[test]
fn since_the_start() {
    walk(EVER, &[]);
}

#[test]
fn between() {
    walk(BETWEEN, &[]);
}

#[test]
fn keys_clocks_and_translators() {
    walk(STRANGERS, &["--test-clock-offset", "0s"]);
}

#[test]
fn names() {
    if crate::program(&["dnsmasq", "unshare"]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    walk_in(Lab::builder(asks(folder.path(), "2001:db8:fa::1")), NAMES, &[]);
}

#[test]
fn there_are_thirty() {
    let all = [FILES, MACHINE, PATH, EVER, BETWEEN, STRANGERS, NAMES];
    assert!(all.iter().map(|cases| cases.len()).sum::<usize>() >= 30);
}
