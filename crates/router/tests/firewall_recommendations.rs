//! RFC 6092 and RFC 4890, a row for each recommendation: packets in words and what becomes of them by default, or why
//! it is no matter of the rules. The kernel does what the evaluator says: `crates/acceptance/tests/acceptance/gateway_firewall`.

use std::collections::BTreeSet;

use router::firewall::policy::Settings;
use router::firewall::{Packet, Policy, Rule, Trust, Verdict, Zone, ZoneSet, evaluate};

/// What shows that a recommendation is followed.
enum Shown {
    /// These packets become that.
    Packets(&'static [(&'static str, Verdict)]),
    /// Something else sees to it, or it is not followed; why.
    Elsewhere(&'static str),
}

use Shown::{Elsewhere, Packets};
use Verdict::{Accept, Drop, Reject};

fn zones() -> Vec<Zone> {
    let zone = |name: &str, trust, interface: &str| Zone {
        name: name.to_owned(),
        trust,
        interfaces: vec![interface.to_owned()],
        networks: Vec::new(),
    };
    vec![
        zone("lan", Trust::Inside, "eth1"),
        zone("guest", Trust::Guest, "eth2"),
        zone("wan", Trust::Outside, "eth0"),
    ]
}

fn becomes(policy: &Policy, words: &str) -> Verdict {
    let packet = Packet::parse(words, policy).unwrap_or_else(|error| panic!("{words}: {error}"));
    evaluate(policy, &packet).verdict
}

/// RFC 6092 section 4, REC-1 to REC-50. Inside is 2a02::/16, outside 2a00::/16.
const RFC_6092: [(u8, &str, Shown); 50] = [
    (
        1,
        "no multicast sources",
        Packets(&[
            ("udp from ff0e::1 to 2a02::1 port 53 in wan out lan", Drop),
            ("udp from ff0e::1 to 2a00::1 port 53 in lan out wan", Drop),
        ]),
    ),
    (
        2,
        "groups of narrow scope stay on their side",
        Packets(&[
            ("udp from 2a02::1 to ff05::1 port 5353 in lan out wan", Drop),
            ("udp from 2a02::1 to ff18::1 port 5353 in lan out wan", Drop),
            ("udp from 2a00::1 to ff08::1 port 5353 in wan out lan", Drop),
            ("udp from 2a02::1 to ff0e::1 port 5004 in lan out wan", Accept),
        ]),
    ),
    (
        3,
        "addresses that are forbidden outside",
        Packets(&[
            ("tcp from 2001:db8::1 to 2a00::1 port 80 in lan out wan", Drop),
            ("tcp from 2a02::1 to 2001:10::1 port 80 in lan out wan", Drop),
            ("tcp from 2a02::1 to ::ffff:192.0.2.1 port 80 in lan out wan", Drop),
            ("tcp from 2a02::1 to ::192.0.2.1 port 80 in lan out wan", Drop),
            ("tcp from fec0::1 to 2a02::1 port 80 in wan out lan", Drop),
            ("tcp from 2001:db8::1 to 2a02::1 port 80 in lan out lan", Accept),
        ]),
    ),
    (
        4,
        "routing header 0",
        Packets(&[("tcp from 2a02::1 to 2a00::1 port 80 in lan out wan routing-header-0", Drop)]),
    ),
    (
        5,
        "outbound sources are inner ones",
        Packets(&[("udp from 2a00::9 to 2a00::1 port 53 in lan out wan spoofed", Drop)]),
    ),
    (
        6,
        "inbound sources are not inner ones",
        Packets(&[("esp from 2a02::9 to 2a02::1 in wan out lan spoofed", Drop)]),
    ),
    (
        7,
        "unique local addresses",
        Packets(&[
            ("esp from fd00::1 to 2a02::1 in wan out lan", Drop),
            ("tcp from 2a02::1 to fd00::1 port 80 in lan out wan", Drop),
            ("tcp from fd00::1 to fd00:1::1 port 80 in lan out lan", Accept),
        ]),
    ),
    (
        8,
        "no DNS for outside",
        Packets(&[
            ("udp from 2a00::1 to gateway port 53 in wan", Drop),
            ("udp from 2a02::1 to gateway port 53 in guest", Accept),
        ]),
    ),
    (
        9,
        "no DHCPv6 for outside",
        Packets(&[("udp from fe80::1 port 546 to ff02::1:2 port 547 in wan out gateway", Drop)]),
    ),
    (
        10,
        "errors about nothing known",
        Packets(&[
            ("icmpv6/destination-unreachable from 2a00::1 to 2a02::1 in wan out lan invalid", Drop),
            ("icmpv6/packet-too-big from 2a00::1 to 2a02::1 in wan out lan invalid", Drop),
        ]),
    ),
    (
        11,
        "endpoint-independent filtering",
        Elsewhere("conntrack's records name both ends: filtering is by address and port of both"),
    ),
    (12, "generic records last five minutes", Elsewhere("net.netfilter.nf_conntrack_generic_timeout, 600 s")),
    (13, "secure updates of the firmware", Elsewhere("the distribution's")),
    (
        14,
        "UDP records last two minutes",
        Elsewhere(
            "net.netfilter.nf_conntrack_udp_timeout, which `sidestep up` raises to 120 s, and _udp_timeout_stream, to 300 s",
        ),
    ),
    (15, "well-known UDP ports may have shorter ones", Elsewhere("they have the same")),
    (16, "outbound packets refresh UDP records", Elsewhere("conntrack does it, in both directions")),
    (17, "endpoint-independent filtering of UDP", Elsewhere("as REC-11")),
    (
        18,
        "errors about UDP flows",
        Packets(&[("icmpv6/packet-too-big from 2a00::1 to 2a02::1 in wan out lan related", Accept)]),
    ),
    (19, "no message ends a UDP record", Elsewhere("conntrack keeps it")),
    (
        20,
        "UDP-Lite as UDP",
        Packets(&[
            ("udplite from 2a02::1 to 2a00::1 port 9 in lan out wan", Accept),
            ("udplite from 2a00::1 to 2a02::1 port 9 in wan out lan", Drop),
        ]),
    ),
    (
        21,
        "AH passes",
        Packets(&[
            ("ah from 2a00::1 to 2a02::1 in wan out lan", Accept),
            ("ah from 2a02::1 to 2a00::1 in lan out wan", Accept),
        ]),
    ),
    (
        22,
        "ESP passes",
        Packets(&[
            ("esp from 2a00::1 to 2a02::1 in wan out lan", Accept),
            ("esp from 2a02::1 to 2a00::1 in lan out wan", Accept),
        ]),
    ),
    (
        23,
        "errors about ESP",
        Packets(&[("icmpv6/destination-unreachable from 2a00::1 to 2a02::1 in wan out lan related", Accept)]),
    ),
    (24, "IKE passes", Packets(&[("udp from 2a00::1 port 500 to 2a02::1 port 500 in wan out lan", Accept)])),
    (
        25,
        "ESP records of three parts",
        Elsewhere("conntrack's record of a protocol that it does not know is addresses and protocol"),
    ),
    (26, "HIP passes", Packets(&[("hip from 2a00::1 to 2a02::1 in wan out lan", Accept)])),
    (
        27,
        "routing header 2 of known flows",
        Packets(&[("tcp from 2a00::1 port 80 to 2a02::1 port 4000 in wan out lan established", Accept)]),
    ),
    (
        28,
        "outbound mobility headers",
        Packets(&[
            ("mobility from 2a02::1 to 2a00::1 in lan out wan", Accept),
            ("mobility from 2a00::1 to 2a02::1 in wan out lan established", Accept),
        ]),
    ),
    (
        29,
        "tunnels to home agents",
        Packets(&[
            ("6in4 from 2a02::1 to 2a00::1 in lan out wan", Accept),
            ("6in4 from 2a00::1 to 2a02::1 in wan out lan established", Accept),
        ]),
    ),
    (
        30,
        "errors about mobility",
        Packets(&[("icmpv6/packet-too-big from 2a00::1 to 2a02::1 in wan out lan related", Accept)]),
    ),
    (
        31,
        "TCP, outbound",
        Packets(&[
            ("tcp from 2a02::1 to 2a00::1 port 80 in lan out wan", Accept),
            ("tcp from 2a00::1 port 80 to 2a02::1 port 4000 in wan out lan established", Accept),
        ]),
    ),
    (
        32,
        "no windows of flows that were not seen to begin",
        Elsewhere("conntrack does not enforce them for flows that it picks up"),
    ),
    (33, "endpoint-independent filtering of TCP", Elsewhere("as REC-11")),
    (
        34,
        "unsolicited SYN are answered after six seconds",
        Elsewhere(
            "dropped in silence: an answer at once would end simultaneous opens, and nftables cannot wait",
        ),
    ),
    (
        35,
        "TCP records last two hours and four minutes",
        Elsewhere("net.netfilter.nf_conntrack_tcp_timeout_established, 5 days"),
    ),
    (
        36,
        "errors about TCP flows",
        Packets(&[("icmpv6/packet-too-big from 2a00::1 to 2a02::1 in wan out lan related", Accept)]),
    ),
    (37, "no message ends a TCP record", Elsewhere("conntrack keeps it")),
    (
        38,
        "SCTP, outbound",
        Packets(&[
            ("sctp from 2a02::1 to 2a00::1 port 9 in lan out wan", Accept),
            ("sctp from 2a00::1 to 2a02::1 port 9 in wan out lan", Drop),
        ]),
    ),
    (39, "unsolicited INIT are answered after six seconds", Elsewhere("as REC-34")),
    (
        40,
        "idle SCTP",
        Elsewhere(
            "net.netfilter.nf_conntrack_sctp_timeout_established, 210 s since Linux 6.1: `sidestep up` raises it to 7,440 s",
        ),
    ),
    (
        41,
        "errors about SCTP",
        Packets(&[("icmpv6/packet-too-big from 2a00::1 to 2a02::1 in wan out lan related", Accept)]),
    ),
    (42, "no message ends an SCTP record", Elsewhere("conntrack keeps it")),
    (
        43,
        "DCCP, outbound",
        Packets(&[
            ("dccp from 2a02::1 to 2a00::1 port 9 in lan out wan", Accept),
            ("dccp from 2a00::1 to 2a02::1 port 9 in wan out lan", Drop),
        ]),
    ),
    (
        44,
        "idle DCCP",
        Elsewhere("conntrack's timers, where the kernel has DCCP; as a generic protocol otherwise"),
    ),
    (
        45,
        "errors about DCCP",
        Packets(&[("icmpv6/packet-too-big from 2a00::1 to 2a02::1 in wan out lan related", Accept)]),
    ),
    (46, "no message ends a DCCP record", Elsewhere("conntrack keeps it")),
    (
        47,
        "Shim6 of known flows",
        Packets(&[
            ("shim6 from 2a02::1 to 2a00::1 in lan out wan", Accept),
            ("shim6 from 2a00::1 to 2a02::1 in wan out lan established", Accept),
        ]),
    ),
    (
        48,
        "a protocol that asks for inbound traffic",
        Elsewhere("none (PCP, RFC 6887, is not spoken): rules say what is let in"),
    ),
    (49, "a mode that lets everything in", Elsewhere("one rule, see the test below")),
    (
        50,
        "no management for outside",
        Packets(&[
            ("tcp from 2a00::1 to gateway port 22 in wan", Drop),
            ("tcp from 2a02::1 to gateway port 22 in lan", Accept),
        ]),
    ),
];

#[test]
fn rfc_6092() {
    let policy = Policy::new(zones(), Vec::new(), Settings::default()).unwrap();
    for (index, (number, subject, shown)) in RFC_6092.iter().enumerate() {
        assert_eq!(usize::from(*number), index + 1);
        match shown {
            Packets(packets) => {
                for (words, verdict) in *packets {
                    assert_eq!(becomes(&policy, words), *verdict, "REC-{number}, {subject}: {words}");
                }
            }
            Elsewhere(why) => assert!(!why.is_empty()),
        }
    }
}

#[test]
fn rfc_6092_rec_49_one_rule_lets_everything_in() {
    let policy = Policy::new(zones(), vec![open(2, 0)], Settings::default()).unwrap();
    assert_eq!(becomes(&policy, "tcp from 2a00::1 to 2a02::1 port 80 in wan out lan"), Accept);
    assert_eq!(becomes(&policy, "tcp from 2a00::1 to gateway port 22 in wan"), Drop);
}

/// A rule that lets all of one zone into another.
fn open(from: usize, to: usize) -> Rule {
    let only = |zone| ZoneSet::Of(vec![router::firewall::ZoneRef::Zone(zone)]);
    Rule {
        from: only(from),
        to: only(to),
        source: None,
        destination: None,
        service: None,
        rate: None,
        schedule: None,
        forwarded: false,
        log: false,
        comment: String::new(),
        action: Accept,
    }
}

#[test]
fn nobody_outside_reaches_anybody_else_outside_unless_a_rule_says_so() {
    let mut zones = zones();
    zones.push(Zone { name: "wan2".to_owned(), interfaces: vec!["eth3".to_owned()], ..zones[2].clone() });
    let closed = Policy::new(zones.clone(), Vec::new(), Settings::default()).unwrap();
    let within = Policy::new(zones, vec![open(2, 2)], Settings::default()).unwrap();
    for packet in [
        "tcp from 2a00::1 to 2606:4700::1 port 443",
        "udp from 2a00::1 to 2606:4700::1 port 500",
        "esp from 2a00::1 to 2606:4700::1",
        "icmpv6/echo-request from 2a00::1 to 2606:4700::1",
        "udp from 100.64.1.77 to 198.51.100.1 port 53",
        "icmp/echo-request from 100.64.1.77 to 198.51.100.1",
    ] {
        for out in ["wan", "wan2"] {
            let words = format!("{packet} in wan out {out}");
            assert_eq!(becomes(&closed, &words), Drop, "{words}");
            let said = if out == "wan" { Accept } else { Drop };
            assert_eq!(becomes(&within, &words), said, "{words}");
        }
    }
}

/// A section, types with codes, the rest of the words, and what becomes of them.
type Row = (&'static str, &'static [(u8, u8)], &'static str, Verdict);

/// RFC 4890 section 4.3: what is forwarded from outside in, by type and code. Errors are of a known connection.
const FORWARDED: [Row; 6] = [
    ("4.3.1", &[(1, 0), (1, 3), (1, 6), (2, 0), (3, 0), (4, 1), (4, 2)], "related", Accept),
    ("4.3.1", &[(128, 0)], "new", Accept),
    ("4.3.1", &[(129, 0)], "established", Accept),
    ("4.3.2", &[(3, 1), (4, 0)], "related", Accept),
    ("4.3.2", &[(144, 0), (145, 0), (146, 0), (147, 0)], "invalid", Accept),
    (
        "4.3.3",
        &[
            (130, 0),
            (131, 0),
            (132, 0),
            (133, 0),
            (134, 0),
            (135, 0),
            (136, 0),
            (137, 0),
            (141, 0),
            (142, 0),
            (143, 0),
            (148, 0),
            (149, 0),
            (151, 0),
            (152, 0),
            (153, 0),
        ],
        "new",
        Drop,
    ),
];

/// Section 4.3.4 asks for a policy: from inside they may go out, nothing unallocated comes in. Section 4.3.5: dropped.
const POLICY: [u8; 6] = [5, 99, 102, 150, 154, 254];
const UNWANTED: [u8; 9] = [100, 101, 127, 138, 139, 140, 200, 201, 255];

#[test]
fn rfc_4890_section_4_3_forwarded() {
    let policy = Policy::new(zones(), Vec::new(), Settings::default()).unwrap();
    let mut seen = BTreeSet::new();
    for (section, kinds, state, verdict) in FORWARDED {
        for (kind, code) in kinds {
            let words = format!("icmpv6/{kind}/{code} from 2a00::1 to 2a02::1 in wan out lan {state}");
            assert_eq!(becomes(&policy, &words), verdict, "section {section}: {words}");
            seen.insert(*kind);
        }
    }
    for kind in POLICY {
        assert_eq!(becomes(&policy, &format!("icmpv6/{kind} from 2a00::1 to 2a02::1 in wan out lan")), Drop);
        assert_eq!(
            becomes(&policy, &format!("icmpv6/{kind} from 2a02::1 to 2a00::1 in lan out wan")),
            Accept
        );
    }
    for kind in UNWANTED {
        for (from, to, zones) in
            [("2a00::1", "2a02::1", "in wan out lan"), ("2a02::1", "2a00::1", "in lan out wan")]
        {
            assert_eq!(becomes(&policy, &format!("icmpv6/{kind} from {from} to {to} {zones}")), Drop);
        }
    }
    // Every type that has a meaning is in a row.
    seen.extend(UNWANTED);
    seen.extend(POLICY);
    assert!((1..=4).chain(128..=153).all(|kind| seen.contains(&kind)), "{seen:?}");
}

/// RFC 4890 section 4.4: what the gateway itself takes from outside.
const LOCAL: [Row; 10] = [
    ("4.4.1", &[(1, 0), (2, 0), (3, 0), (4, 1), (4, 2)], "from 2a00::1 to gateway in wan related", Accept),
    ("4.4.1", &[(128, 0)], "from 2a00::1 to gateway in wan", Accept),
    ("4.4.1", &[(129, 0)], "from 2a00::1 to gateway in wan established", Accept),
    (
        "4.4.1",
        &[(133, 0), (134, 0), (135, 0), (136, 0), (141, 0), (142, 0), (148, 0), (149, 0)],
        "from fe80::1 to ff02::1 in wan out gateway",
        Accept,
    ),
    (
        "RFC 4861 section 7.1",
        &[(133, 0), (134, 0), (135, 0), (136, 0), (137, 0)],
        "from fe80::1 to ff02::1 in wan out gateway hop-limit 254",
        Drop,
    ),
    (
        "4.4.1",
        &[(130, 0), (131, 0), (132, 0), (143, 0), (151, 0), (152, 0), (153, 0)],
        "from fe80::1 to ff02::1 in wan out gateway",
        Accept,
    ),
    ("4.4.2", &[(3, 1), (4, 0)], "from 2a00::1 to gateway in wan related", Accept),
    (
        "4.4.3",
        &[(138, 0), (144, 0), (145, 0), (146, 0), (147, 0), (150, 0)],
        "from 2a00::1 to gateway in wan",
        Drop,
    ),
    // The kernel looks at redirects only where it does not forward.
    ("4.4.4", &[(137, 0)], "from fe80::1 to 2a02::2 in wan out gateway", Accept),
    (
        "4.4.4 and 4.4.5",
        &[(139, 0), (140, 0), (5, 0), (99, 0), (100, 0), (127, 0), (154, 0), (200, 0), (201, 0), (255, 0)],
        "from 2a00::1 to gateway in wan",
        Drop,
    ),
];

#[test]
fn rfc_4890_section_4_4_of_the_gateway() {
    let policy = Policy::new(zones(), Vec::new(), Settings::default()).unwrap();
    for (section, kinds, rest, verdict) in LOCAL {
        for (kind, code) in kinds {
            let words = format!("icmpv6/{kind}/{code} {rest}");
            assert_eq!(becomes(&policy, &words), verdict, "section {section}: {words}");
        }
    }
}

#[test]
fn first_fragments_without_their_upper_layer_header_and_guests() {
    let policy = Policy::new(zones(), Vec::new(), Settings::default()).unwrap();
    for (words, verdict) in [
        // RFC 7112 section 5
        ("tcp from 2a02::1 to 2a00::1 port 80 in lan out wan incomplete", Drop),
        // Guests: outside, and what a host needs of the gateway.
        ("tcp from 2a02::1 to 2a00::1 port 80 in guest out wan", Accept),
        ("tcp from 2a02::1 to 2a02:1::1 port 80 in guest out lan", Reject),
        ("tcp from 2a02::1 to gateway port 22 in guest", Reject),
        ("udp from 2a02::1 to gateway port 53 in guest", Accept),
        ("udp from fe80::1 port 546 to ff02::1:2 port 547 in guest out gateway", Accept),
        ("udp from 0.0.0.0 port 68 to 255.255.255.255 port 67 in guest out gateway", Accept),
        // DHCPv6 servers answer from any address and port.
        ("udp from fe80::1 port 547 to fe80::2 port 546 in wan out gateway", Accept),
        ("udp from 2a00::1 port 40000 to fe80::2 port 546 in wan out gateway", Accept),
        ("udp from fe80::1 port 547 to 2a02::1 port 546 in wan out gateway", Drop),
        ("udp from fe80::1 port 547 to fe80::2 port 547 in wan out gateway", Drop),
        ("icmpv6 from 2a02::1 to gateway in guest", Accept),
    ] {
        assert_eq!(becomes(&policy, words), verdict, "{words}");
    }
}
