//! What is seen of tables without a program, and that tables of ours are known whoever else is at work.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use linux::netns;
use linux::nft::{self, PrefixDelivery};
use linux::ruleset::{self, Contents, Family, Names, Snapshot};

use crate::network::{B, Node, Pair, dark};

const TUNNEL: &str = "mt6d0";
const PREFIX: &str = "2001:db8:b1::/64";

/// Those that keep a prefix dark.
fn snapshot(node: &Node) -> Snapshot {
    let name = nft::table_name(TUNNEL);
    node.run(|| Snapshot::of(&[(Family::Ip6, &name), (Family::Netdev, &name)]).unwrap())
}

fn darken(node: &Node, beside: &str) -> linux::Result<bool> {
    node.run(|| nft::darken(&dark(TUNNEL, PREFIX, PrefixDelivery::OnLink, &[B]), beside))
}

#[test]
fn whatever_somebody_changes_of_a_table_is_seen_and_nothing_else() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let node = &pair.b;
    darken(node, "").unwrap();
    let before = snapshot(node);
    assert!(before.has(0) && before.has(1) && !before.has(2));
    for change in [
        "add rule ip6 TABLE dark accept",
        "insert rule ip6 TABLE prerouting accept",
        "flush chain ip6 TABLE dark",
        "flush chain netdev TABLE ingress",
        "flush table ip6 TABLE",
        "delete table netdev TABLE",
        "flush ruleset",
        "add element ip6 TABLE own { 2001:db8::99 }",
        "delete element netdev TABLE own { 2001:db8:1::b }",
        "add chain ip6 TABLE prerouting { policy drop; }",
        "add chain ip6 TABLE more",
        "add set ip6 TABLE more { type ipv6_addr; }",
        "add table ip6 TABLE { flags dormant; }",
        "replace rule ip6 TABLE dark handle HANDLE accept",
    ] {
        let script = format!(
            "table=sidestep-{TUNNEL}; handle=$(nft -a list chain ip6 $table dark | sed -n 's/.*drop # handle //p'); \
             nft \"$(echo '{change}' | sed \"s/TABLE/$table/; s/HANDLE/$handle/\")\""
        );
        node.must(&script);
        assert!(!snapshot(node).is_same(&before), "{change}");
        darken(node, "").unwrap();
        // A table, or a set, stays in another way until it goes.
        if !snapshot(node).is_same(&before) {
            node.must("nft flush ruleset");
            darken(node, "").unwrap();
        }
        assert!(snapshot(node).is_same(&before), "after {change}");
    }
    // Tables of others, and one of our name in another family; packets; what puts the same there once more.
    node.must(
        "nft 'add table ip6 other; add chain ip6 other dark; add rule ip6 other dark drop; \
         add table inet sidestep-mt6d0; add chain inet sidestep-mt6d0 dark'",
    );
    pair.a.sh("ping -6 -c 2 -i 0.1 -W 0.2 2001:db8:1::77");
    assert!(snapshot(node).is_same(&before));
    node.must("nft list table ip6 sidestep-mt6d0 > /tmp/mt6d0; nft flush table ip6 sidestep-mt6d0; nft -f /tmp/mt6d0; rm /tmp/mt6d0");
    assert!(snapshot(node).is_same(&before));
}

#[test]
fn whatever_is_taken_from_a_table_is_missed_and_neither_what_is_added_nor_what_is_counted() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    let table = "table inet t {
        set times { type ipv4_addr; flags timeout; }
        set heard { type ipv6_addr; flags dynamic, timeout; timeout 1h; }
        set plain { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 }; }
        set ranges { type inet_service; flags interval; elements = { 10-19, 30-40 }; }
        map verdicts { type inet_service : verdict; counter; elements = { 22 counter : drop, 23 counter : accept }; }
        chain empty { }
        chain out { type filter hook output priority 0; policy accept;
            ip6 daddr ::1 counter update @heard { ip6 saddr } comment \"first\"
            tcp dport 1 counter drop
            tcp dport 2 counter drop
            tcp dport vmap @verdicts
            ip daddr @plain drop
            ip daddr { 192.0.2.7, 192.0.2.8 } drop
            tcp dport @ranges drop
            ip daddr @times drop
            limit rate 5/second accept
        }
    }";
    let make = || node.must(&format!("nft 'add table inet t; delete table inet t; {table}'"));
    let contents = || node.run(|| Contents::of(Family::Inet, "t").unwrap());
    assert!(!contents().has_rules());
    make();
    let made = contents();
    assert!(made.has_rules() && made.has_all_of(&made) && made.has_all_of(&Contents::default()));
    node.must(
        "ip link set lo up; ping -c 2 -i 0.1 ::1 > /dev/null; nft 'add element inet t times { 192.0.2.9 timeout 60s }; \
         add element inet t plain { 192.0.2.3 }; add chain inet t more; insert rule inet t out counter; \
         add rule inet t more drop; add element inet t verdicts { 24 : drop }; add table inet u'",
    );
    assert!(node.must("nft list table inet t").contains("packets 4"), "packets are counted");
    assert!(contents().has_all_of(&made));
    // By the text of a rule, its handle.
    let handle = "h() { nft -a list chain inet t out | sed -n \"s/.*$1.*# handle //p\"; }; ";
    for taken in [
        "nft delete rule inet t out handle $(h 'dport 2 ')",
        "nft replace rule inet t out handle $(h 'dport 2 ') tcp dport 3 counter drop",
        // The same in another order.
        "nft \"delete rule inet t out handle $(h 'dport 1 '); add rule inet t out tcp dport 1 counter drop\"",
        "nft delete element inet t plain '{ 192.0.2.2 }'",
        "nft delete element inet t verdicts '{ 22 }'",
        "nft 'delete element inet t verdicts { 22 }; add element inet t verdicts { 22 : accept }'",
        "nft delete element inet t ranges '{ 10-19 }'",
        "nft flush set inet t plain",
        "nft delete chain inet t empty",
        "nft 'add chain inet t out { policy drop; }'",
        "nft flush chain inet t out",
        "nft flush table inet t",
        "nft delete table inet t",
    ] {
        let before = node.run(|| ruleset::last_transaction().unwrap());
        node.must(&format!("{handle}{taken}"));
        assert_ne!(node.run(|| ruleset::last_transaction().unwrap()), before, "{taken}");
        assert!(!contents().has_all_of(&made), "{taken}");
        make();
        assert!(contents().has_all_of(&made), "after {taken}");
    }
}

#[test]
fn tables_are_known_while_others_change_theirs_all_the_time() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let name = nft::table_name(TUNNEL);
    let tables = [(Family::Ip6, name.as_str()), (Family::Netdev, name.as_str())];
    let is_over = AtomicBool::new(false);
    let (namespace, is_over) = (&pair.b.namespace, &is_over);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let busy =
                "while :; do echo 'add table ip other; delete table ip other'; done | nft -i > /dev/null";
            let mut command = namespace.command("sh").unwrap();
            let mut other = std::os::unix::process::CommandExt::process_group(command.args(["-c", busy]), 0)
                .spawn()
                .unwrap();
            while !is_over.load(Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let group = nix::unistd::Pid::from_raw(other.id() as i32);
            nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).unwrap();
            other.wait().unwrap();
        });
        for _ in 0..10 {
            let before = pair.b.run(|| Snapshot::of(&tables).unwrap());
            let dark = dark(TUNNEL, PREFIX, PrefixDelivery::Routed, &[]);
            let make = || nft::darken(&dark, "");
            let (at_ingress, found) = pair
                .b
                .run(|| ruleset::make_and_look(&before, &tables, make, |_, found| found.has(0)))
                .unwrap();
            assert!(at_ingress);
            assert!(found.expect("tables that are known").is_same(&snapshot(&pair.b)));
        }
        is_over.store(true, Relaxed);
    });
}

#[test]
fn tables_are_made_all_or_none_and_one_unlike_ours_is_replaced() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let node = &pair.b;
    node.must(&format!(
        "nft 'add table ip6 sidestep-{TUNNEL}; \
         add chain ip6 sidestep-{TUNNEL} prerouting {{ type nat hook output priority 0; }}'"
    ));
    darken(node, "add table inet beside\n").unwrap();
    assert!(node.must("nft list ruleset").contains("table inet beside"));
    let before = snapshot(node);
    node.must("nft delete table ip6 sidestep-mt6d0; nft add table ip6 sidestep-mt6d0");
    let others = snapshot(node);
    let refused = darken(node, "add rule inet beside nowhere drop\n").unwrap_err().to_string();
    assert!(refused.contains("nft -f -"), "{refused}");
    assert!(snapshot(node).is_same(&others));
    darken(node, "").unwrap();
    assert!(snapshot(node).is_same(&before));
}

#[test]
fn tables_chains_maps_and_sets_are_found_by_name() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    node.must(
        "nft 'add table inet t; add chain inet t one; add chain inet t two { type filter hook input priority 0; }; \
         add map inet t verdicts { type ipv4_addr : verdict; }; add set inet t plain { type ipv4_addr; }; \
         add rule inet t one ip saddr vmap { 192.0.2.1 : drop }; add table ip t; add chain ip t other'",
    );
    node.run(|| {
        let found = ruleset::names(Family::Inet, "t").unwrap();
        let expected = Names {
            chains: vec!["one".into(), "two".into()],
            maps: vec!["verdicts".into()],
            sets: vec!["plain".into()],
        };
        assert_eq!(found, expected);
        assert_eq!(ruleset::names(Family::Inet, "none").unwrap(), Names::default());
        for (family, table, is_there) in [
            (Family::Inet, "t", true),
            (Family::Ip, "t", true),
            (Family::Ip6, "t", false),
            (Family::Inet, "u", false),
        ] {
            assert_eq!(ruleset::has_table(family, table).unwrap(), is_there);
        }
        assert!(ruleset::has_chain(Family::Inet, "t", "one").unwrap());
        assert!(!ruleset::has_chain(Family::Inet, "t", "other").unwrap());
        assert!(!ruleset::has_chain(Family::Ip6, "t", "one").unwrap());
    });
}
