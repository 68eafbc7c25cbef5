//! The artificial rule set of the gateway paper (its figure 5): rules that drop TCP and match nothing that is sent, and
//! behind them one that lets ICMP in; and one like those that firewalls have. Three times the same: two lists that are walked
//! from their beginning for each packet, and ours. Each has it for IPv6 and for IPv4.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Rules before the last one: from none to as many as the paper had, and ten times that.
pub(super) const COUNTS: [u32; 5] = [0, 10, 100, 1_000, 10_000];

/// Rules of mixed sets.
pub(super) const MIXED_COUNTS: [u32; 3] = [100, 1_000, 10_000];

/// Which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// The paper's: TCP from one network to one port.
    Artificial,
    /// What lists hold that are loaded into firewalls: prefixes of all lengths, most of them for everything, some for a port,
    /// a range of ports or echo requests.
    Mixed,
    /// The same, and each hundredth is a network next to the client's, so that its packets are looked up further than the
    /// first bits.
    Beside,
}

/// So many rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuleSet {
    pub(super) mix: Mix,
    pub(super) count: u32,
}

impl From<u32> for RuleSet {
    fn from(count: u32) -> Self {
        Self { mix: Mix::Artificial, count }
    }
}

impl RuleSet {
    /// Its name, part of a file's.
    pub(super) fn name(self) -> String {
        match self.mix {
            Mix::Artificial => self.count.to_string(),
            Mix::Mixed => format!("mixed-{}", self.count),
            Mix::Beside => format!("beside-{}", self.count),
        }
    }

    /// What its rules drop.
    fn dropped(self) -> Vec<Dropped> {
        if self.mix == Mix::Artificial {
            return (1..=self.count).map(artificial).collect();
        }
        let mut random = fastrand::Rng::with_seed(6);
        let (mut v6, mut v4) = (BTreeSet::new(), BTreeSet::new());
        let rule = |number: u32| {
            let is_beside = self.mix == Mix::Beside && number.is_multiple_of(100);
            let v6 =
                fresh(&mut v6, || if is_beside { beside_v6(&mut random) } else { prefix_v6(&mut random) });
            let v4 =
                fresh(&mut v4, || if is_beside { beside_v4(&mut random) } else { prefix_v4(&mut random) });
            let first = random.u16(1..60_000);
            let what = match number % 10 {
                0..=5 => What::Everything,
                6 | 7 => What::Ports("tcp", first, first),
                8 => What::Ports(
                    random.choice(["tcp", "udp"]).unwrap_or("tcp"),
                    first,
                    first + random.u16(1..2_000),
                ),
                _ => What::EchoRequests,
            };
            Dropped { v6, v4, what }
        };
        (1..=self.count).map(rule).collect()
    }
}

/// What a rule drops.
struct Dropped {
    v6: String,
    v4: String,
    what: What,
}

/// Of what comes from there.
#[derive(Clone, Copy)]
enum What {
    Everything,
    /// Of a protocol, to these ports.
    Ports(&'static str, u16, u16),
    EchoRequests,
}

fn artificial(number: u32) -> Dropped {
    let port = 1_024 + number as u16;
    Dropped {
        v6: format!("2001:db8:5:{number:x}::/64"),
        v4: format!("10.{}.{}.0/24", number / 256, number % 256),
        what: What::Ports("tcp", port, port),
    }
}

/// Lengths of prefixes, each with its part in a hundred: about those of the Internet's routes (bgp.potaroo.net), with some
/// single addresses, which such lists hold too.
const LENGTHS_V6: [(u32, u32); 20] = [
    (48, 40),
    (32, 12),
    (44, 9),
    (40, 8),
    (64, 5),
    (36, 4),
    (29, 4),
    (46, 3),
    (128, 3),
    (47, 2),
    (33, 2),
    (45, 1),
    (42, 1),
    (34, 1),
    (38, 1),
    (35, 1),
    (37, 1),
    (43, 1),
    (41, 1),
    (30, 1),
];
const LENGTHS_V4: [(u32, u32); 16] = [
    (24, 50),
    (22, 10),
    (23, 10),
    (32, 8),
    (21, 5),
    (20, 4),
    (19, 3),
    (18, 2),
    (16, 2),
    (17, 1),
    (28, 1),
    (27, 1),
    (26, 1),
    (25, 1),
    (15, 1),
    (14, 1),
];

/// A length, as often as in the list.
fn length(random: &mut fastrand::Rng, lengths: &[(u32, u32)]) -> u32 {
    let total: u32 = lengths.iter().map(|(_, part)| part).sum();
    let mut at = random.u32(..total);
    for (length, part) in lengths {
        if at < *part {
            return *length;
        }
        at -= part;
    }
    lengths[0].0
}

fn prefix_v6(random: &mut fastrand::Rng) -> String {
    // Of the blocks that most networks have their addresses from; none of the laboratory's is there.
    let blocks: [u128; 4] = [0x2400, 0x2600, 0x2800, 0x2a00];
    let block = blocks[random.usize(..blocks.len())] + u128::from(random.u8(..16));
    let length = length(random, &LENGTHS_V6);
    let address = block << 112 | random.u128(0..1 << 112);
    format!("{}/{length}", Ipv6Addr::from(address >> (128 - length) << (128 - length)))
}

fn prefix_v4(random: &mut fastrand::Rng) -> String {
    let length = length(random, &LENGTHS_V4);
    let address = random.u32(11 << 24..100 << 24);
    format!("{}/{length}", Ipv4Addr::from(address >> (32 - length) << (32 - length)))
}

/// Beside the client, 2001:db8:1::2 and 192.168.1.2.
fn beside_v6(random: &mut fastrand::Rng) -> String {
    format!("2001:db8:2:{:x}::/64", random.u16(..))
}

fn beside_v4(random: &mut fastrand::Rng) -> String {
    format!("192.168.1.{}/32", random.u8(10..250))
}

/// One that is not among those before, and is then.
fn fresh(known: &mut BTreeSet<String>, mut make: impl FnMut() -> String) -> String {
    loop {
        let made = make();
        if known.insert(made.clone()) {
            return made;
        }
    }
}

/// For `ip6tables-restore`, or `iptables-restore`.
pub(super) fn iptables(rules: RuleSet, ipv4: bool) -> String {
    let mut text = String::from("*filter\n:FORWARD ACCEPT\n");
    let (icmp, option) = if ipv4 { ("icmp", "icmp") } else { ("ipv6-icmp", "icmpv6") };
    for Dropped { v6, v4, what } in rules.dropped() {
        let source = if ipv4 { v4 } else { v6 };
        let what = match what {
            What::Everything => String::new(),
            What::Ports(protocol, first, last) => {
                format!("-p {protocol} --dport {} ", range(first, last, ':'))
            }
            What::EchoRequests => format!("-p {icmp} --{option}-type echo-request "),
        };
        let _ = writeln!(text, "-A FORWARD -s {source} {what}-j DROP");
    }
    let _ = writeln!(text, "-A FORWARD -p {icmp} -j ACCEPT\nCOMMIT");
    text
}

/// For `nft -f`: two tables, so that a packet walks the rules of its own IP version only, as with iptables.
pub(super) fn nftables(rules: RuleSet) -> String {
    let mut text = String::new();
    for (family, icmp, types, ipv4) in [("ip6", "ipv6-icmp", "icmpv6", false), ("ip", "icmp", "icmp", true)] {
        let _ = writeln!(
            text,
            "table {family} walked {{\nchain forward {{\ntype filter hook forward priority 0; policy accept;"
        );
        for Dropped { v6, v4, what } in rules.dropped() {
            let source = if ipv4 { v4 } else { v6 };
            let what = match what {
                What::Everything => String::new(),
                What::Ports(protocol, first, last) => {
                    format!("{protocol} dport {} ", range(first, last, '-'))
                }
                What::EchoRequests => format!("{types} type echo-request "),
            };
            let _ = writeln!(text, "{family} saddr {source} {what}drop");
        }
        let _ = writeln!(text, "meta l4proto {icmp} accept\n}}\n}}");
    }
    text
}

/// For `sidestep firewall apply`.
pub(super) fn firewall(rules: RuleSet) -> String {
    let mut text = String::from(
        "[[zone]]\nname = \"lan\"\ntrust = \"inside\"\ninterfaces = [\"lan\"]\n\n\
         [[zone]]\nname = \"wan\"\ntrust = \"outside\"\ninterfaces = [\"wan\"]\n\n\
         # The laboratory's addresses, which are never outside elsewhere.\n\
         [firewall]\naccept_special = [\"2001:db8::/32\"]\n",
    );
    for ipv4 in [false, true] {
        for Dropped { v6, v4, what } in rules.dropped() {
            let source = if ipv4 { v4 } else { v6 };
            let service = match what {
                What::Everything => String::new(),
                What::Ports(protocol, first, last) => {
                    format!("service = \"{protocol}/{}\"\n", range(first, last, '-'))
                }
                What::EchoRequests if ipv4 => "service = \"icmp/echo-request\"\n".to_owned(),
                What::EchoRequests => "service = \"icmpv6/echo-request\"\n".to_owned(),
            };
            let _ = write!(text, "\n[[firewall.rule]]\nsource = \"{source}\"\n{service}action = \"drop\"\n");
        }
    }
    text.push_str("\n[[firewall.rule]]\nservice = [\"icmpv6\", \"icmp\"]\naction = \"accept\"\n");
    text
}

fn range(first: u16, last: u16, between: char) -> String {
    if first == last { first.to_string() } else { format!("{first}{between}{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_has_as_many_rules_and_the_one_for_icmp_last() {
        let artificial = [0, 1, 300, 10_000].map(RuleSet::from);
        let mixed = [Mix::Mixed, Mix::Beside].map(|mix| RuleSet { mix, count: 300 });
        for count in artificial.into_iter().chain(mixed) {
            let times = |text: &str, part: &str| text.matches(part).count();
            let expected = count.count as usize;
            for ipv4 in [false, true] {
                let list = iptables(count, ipv4);
                assert_eq!(times(&list, "-j DROP\n"), expected);
                assert!(list.ends_with("icmp -j ACCEPT\nCOMMIT\n"), "{count:?}");
            }
            assert_eq!(times(&nftables(count), " drop\n"), 2 * expected);
            assert_eq!(times(&nftables(count), "icmp accept\n}\n"), 2);
            let ours = firewall(count);
            assert_eq!(times(&ours, "action = \"drop\""), 2 * expected);
            assert!(ours.ends_with("action = \"accept\"\n"));
        }
    }

    #[test]
    fn no_two_rules_are_alike_and_none_drops_what_is_sent() {
        let all = RuleSet::from(10_000).dropped();
        let distinct = |name: fn(&Dropped) -> &String| all.iter().map(name).collect::<BTreeSet<_>>().len();
        assert_eq!((distinct(|one| &one.v6), distinct(|one| &one.v4)), (10_000, 10_000));
        // The hosts are in 2001:db8:1::/48 and 192.168.1.0/24.
        let elsewhere = |one: &Dropped| one.v6.starts_with("2001:db8:5:") && one.v4.starts_with("10.");
        assert!(all.iter().all(elsewhere));
    }

    #[test]
    fn a_mixed_set_has_lengths_port_ranges_and_types() {
        let set = RuleSet { mix: Mix::Beside, count: 1_000 };
        let all = set.dropped();
        let lengths = |name: fn(&Dropped) -> &String| {
            let length = |one| name(one).split_once('/').map(|(_, length)| length.to_owned());
            all.iter().map(length).collect::<BTreeSet<_>>().len()
        };
        assert!(lengths(|one| &one.v6) >= 15 && lengths(|one| &one.v4) >= 12);
        assert_eq!(all.iter().filter(|one| matches!(one.what, What::EchoRequests)).count(), 100);
        assert_eq!(
            all.iter().filter(|one| matches!(one.what, What::Ports(_, first, last) if first < last)).count(),
            100
        );
        assert_eq!(all.iter().filter(|one| one.v6.starts_with("2001:db8:2:")).count(), 10);
        let drops_the_client = |one: &Dropped| {
            let holds = |prefix: &str, host: &str| {
                let (net, host): (ipnet::IpNet, std::net::IpAddr) =
                    (prefix.parse().unwrap(), host.parse().unwrap());
                net.contains(&host)
            };
            holds(&one.v6, "2001:db8:1::2") || holds(&one.v4, "192.168.1.2")
        };
        assert!(!all.iter().any(drops_the_client));
    }
}
