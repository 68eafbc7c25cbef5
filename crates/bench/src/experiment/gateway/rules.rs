//! The artificial rule set of the gateway paper (its figure 5): rules that drop TCP and match nothing that is sent, and
//! behind them one that lets ICMP in. Three times the same: two lists that are walked from their beginning for each packet,
//! and ours. Each has it for IPv6 and for IPv4.

use std::fmt::Write as _;

/// Rules before the last one: from none to as many as the paper had, and ten times that.
pub(super) const COUNTS: [u32; 5] = [0, 10, 100, 1_000, 10_000];

/// What a rule drops: TCP from one network to one port.
struct Dropped {
    v6: String,
    v4: String,
    port: u32,
}

fn dropped(count: u32) -> impl Iterator<Item = Dropped> {
    (1..=count).map(|number| Dropped {
        v6: format!("2001:db8:5:{number:x}::/64"),
        v4: format!("10.{}.{}.0/24", number / 256, number % 256),
        port: 1_024 + number,
    })
}

/// For `ip6tables-restore`, or `iptables-restore`.
pub(super) fn iptables(count: u32, ipv4: bool) -> String {
    let mut text = String::from("*filter\n:FORWARD ACCEPT\n");
    for Dropped { v6, v4, port } in dropped(count) {
        let source = if ipv4 { v4 } else { v6 };
        let _ = writeln!(text, "-A FORWARD -s {source} -p tcp --dport {port} -j DROP");
    }
    let _ = writeln!(text, "-A FORWARD -p {} -j ACCEPT\nCOMMIT", if ipv4 { "icmp" } else { "ipv6-icmp" });
    text
}

/// For `nft -f`: two tables, so that a packet walks the rules of its own IP version only, as with iptables.
pub(super) fn nftables(count: u32) -> String {
    let mut text = String::new();
    for (family, icmp, ipv4) in [("ip6", "ipv6-icmp", false), ("ip", "icmp", true)] {
        let _ = writeln!(
            text,
            "table {family} walked {{\nchain forward {{\ntype filter hook forward priority 0; policy accept;"
        );
        for Dropped { v6, v4, port } in dropped(count) {
            let source = if ipv4 { v4 } else { v6 };
            let _ = writeln!(text, "{family} saddr {source} tcp dport {port} drop");
        }
        let _ = writeln!(text, "meta l4proto {icmp} accept\n}}\n}}");
    }
    text
}

/// For `sidestep firewall apply`.
pub(super) fn firewall(count: u32) -> String {
    let mut text = String::from(
        "[[zone]]\nname = \"lan\"\ntrust = \"inside\"\ninterfaces = [\"lan\"]\n\n\
         [[zone]]\nname = \"wan\"\ntrust = \"outside\"\ninterfaces = [\"wan\"]\n\n\
         # The laboratory's addresses, which are never outside elsewhere.\n\
         [firewall]\naccept_special = [\"2001:db8::/32\"]\n",
    );
    for ipv4 in [false, true] {
        for Dropped { v6, v4, port } in dropped(count) {
            let source = if ipv4 { v4 } else { v6 };
            let _ = write!(
                text,
                "\n[[firewall.rule]]\nsource = \"{source}\"\nservice = \"tcp/{port}\"\naction = \"drop\"\n"
            );
        }
    }
    text.push_str("\n[[firewall.rule]]\nservice = [\"icmpv6\", \"icmp\"]\naction = \"accept\"\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_has_as_many_rules_and_the_one_for_icmp_last() {
        for count in [0, 1, 300, 10_000] {
            let times = |text: &str, part: &str| text.matches(part).count();
            let expected = count as usize;
            for ipv4 in [false, true] {
                let list = iptables(count, ipv4);
                assert_eq!(times(&list, "-j DROP\n"), expected);
                assert!(list.ends_with("icmp -j ACCEPT\nCOMMIT\n"), "{count}");
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
        let all: Vec<Dropped> = dropped(10_000).collect();
        let distinct = |name: fn(&Dropped) -> &String| {
            all.iter().map(name).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((distinct(|one| &one.v6), distinct(|one| &one.v4)), (10_000, 10_000));
        // The hosts are in 2001:db8:1::/48 and 192.168.1.0/24.
        let elsewhere = |one: &Dropped| one.v6.starts_with("2001:db8:5:") && one.v4.starts_with("10.");
        assert!(all.iter().all(|one| elsewhere(one) && one.port <= 65_535));
    }
}
