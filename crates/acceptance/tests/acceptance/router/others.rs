//! A second gateway, one that cannot start, and somebody who changes rules: what is in force stays in force.

use lab::edited::Edited;
use lab::patience::wait_until;

use super::HOME;
use super::scene::{INTERNET, RouterScene};

#[test]
fn a_second_gateway_changes_nothing_whatever_its_socket_is() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let running = scene.kernel();
    scene.write("second.toml", &HOME.edited("subnet    = 1", "subnet    = 9"));
    let second = ["up", "second.toml", "--state-dir", "second"];
    for socket in [&[][..], &["--socket", "second.sock"]] {
        let output = scene.sidestep(&[&second, socket].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("has only one gateway"), "{said}");
        assert_eq!(scene.kernel(), running, "{socket:?}");
    }
    // One that was killed is no other.
    scene.kill();
    scene.start_again();
    wait_until("the same again", || scene.kernel() == running);
}

#[test]
fn rules_that_somebody_takes_away_are_back() {
    let Some(mut scene) = RouterScene::new() else { return };
    let ipv4 = HOME
        .edited("subnet    = 1 ", "ipv4 = \"192.168.1.1/24\"\nsubnet    = 1 ")
        .edited("delegation = 56 ", "delegation = 56\nmasquerade = true\nipv4_router = \"192.0.2.1\"");
    scene.start(&ipv4);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    // In any order of chains, and without what sets have: hosts come and go.
    let rules = |scene: &RouterScene| scene.run("gw", &["sh", "-c", "nft -s -t list ruleset | sort"]);
    let before = rules(&scene);
    let flushes_some = "flush chain inet sidestep-firewall forward\nflush table ip sidestep-nat\nflush table ip6 sidestep-neighbors\n";
    for takes_away in [flushes_some, "flush table inet sidestep-firewall\n"] {
        scene.node("gw").nft(takes_away).expect("nft");
        assert_ne!(rules(&scene), before, "{takes_away}");
        wait_until(takes_away, || rules(&scene) == before);
    }
    // Connections are remembered for as long as before.
    let remembered =
        |scene: &RouterScene| scene.run("gw", &["sysctl", "-n", "net.netfilter.nf_conntrack_udp_timeout"]);
    let seconds = remembered(&scene);
    assert_eq!(scene.run("gw", &["sysctl", "-q", "-w", "net.netfilter.nf_conntrack_udp_timeout=5"]), "");
    wait_until("the timeout", || remembered(&scene) == seconds);
    // A rule that an operator adds is no loss.
    scene.node("gw").nft("insert rule inet sidestep-firewall forward counter\n").expect("nft");
    let (more, times) = (rules(&scene), scene.log().matches("was restored").count());
    scene.node("gw").nft("flush table ip sidestep-nat\n").expect("nft");
    wait_until("it is looked", || scene.log().matches("was restored").count() > times);
    assert_eq!(rules(&scene), more);
}

#[test]
fn what_somebody_takes_from_the_firewall_is_back_also_where_the_gateway_was_dead_meanwhile() {
    let Some(mut scene) = RouterScene::new() else { return };
    // Enough for a map of verdicts.
    let rule = |port| {
        format!(
            "[[firewall.rule]]\nfrom = \"wan\"\nto = \"lan\"\nservice = \"tcp/{port}\"\n\
             destination = \"2001:db8:77::{port}\"\naction = \"accept\"\n"
        )
    };
    scene.start(&(HOME.clone() + &(1..10).map(rule).collect::<String>()));
    wait_until("the Internet", || scene.answers("host", INTERNET));
    let whole = firewall(&scene);
    let take = |scene: &RouterScene, what: &str| {
        let handle = "h() { nft -a list chain inet sidestep-firewall suspicious | sed -n \"s/.*$1.*# handle //p\" | head -n 1; }; ";
        let said = scene.run("gw", &["sh", "-ec", &format!("{handle}{what}")]);
        assert_eq!(said, "");
        assert_ne!(firewall(scene), whole, "{what}");
    };
    let rule = "nft delete rule inet sidestep-firewall suspicious handle $(h 'exthdr frag')";
    let element = "nft delete element inet sidestep-firewall map-1-1 '{ 3 . 2001:db8:77::3 }'";
    // As many rules as before.
    let another =
        "nft replace rule inet sidestep-firewall suspicious handle $(h 'exthdr frag') ip6 nexthdr 250 accept";
    let all = [rule, element, another, "nft add table inet sidestep-firewall '{ flags dormant; }'"];
    for what in all {
        take(&scene, what);
        wait_until(what, || firewall(&scene) == whole);
    }
    for what in all {
        scene.kill();
        take(&scene, what);
        scene.start_again();
        assert_eq!(firewall(&scene), whole, "{what}");
    }
    take(&scene, rule);
    wait_until("the rule, after a crash, too", || firewall(&scene) == whole);
    // What was counted stays where nothing is missing.
    let times = scene.log().matches("was restored").count();
    scene.node("gw").nft("add table inet foreign\n").expect("nft");
    std::thread::sleep(std::time::Duration::from_secs(11));
    assert_eq!(scene.log().matches("was restored").count(), times);
}

#[test]
fn a_start_that_fails_leaves_the_firewall_that_it_found() {
    let Some(mut scene) = RouterScene::new() else { return };
    scene.start(&HOME);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    scene.kill();
    let crashed = scene.kernel();
    let fails = |scene: &RouterScene, says: &str| {
        let output = scene.sidestep(&["up", "gw.toml", "--state-dir", "state"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(says), "{said}");
    };
    // What can be seen before is: nothing is touched.
    scene.write("gw.toml", &HOME.edited("\"wan0\"", "\"wan9\""));
    fails(&scene, "there is no interface wan9");
    assert_eq!(scene.kernel(), crashed);

    // Somebody else's route is in the way. What was begun is taken back, but nobody gets in.
    scene.run("gw", &["ip", "-6", "route", "add", "2001:db8:5::/48", "dev", "lan", "metric", "512"]);
    scene.write("gw.toml", &format!("{}\n[[route]]\nto = \"2001:db8:5::/48\"\ninterface = \"lan\"\n", *HOME));
    let forwards = |scene: &RouterScene| scene.run("gw", &["sysctl", "-n", "net.ipv6.conf.all.forwarding"]);
    let guarded = firewall(&scene);
    for _ in 0..2 {
        fails(&scene, "2001:db8:5::/48");
        assert_eq!((forwards(&scene).trim(), firewall(&scene)), ("0", guarded.clone()));
    }

    // The next one finds it, and takes it back at its end.
    scene.start(&HOME);
    wait_until("the Internet", || scene.answers("host", INTERNET));
    scene.stop();
    assert!(!scene.kernel().contains("sidestep"), "{}", scene.kernel());
}

/// The firewall's table, without counts, in any order of chains and elements.
fn firewall(scene: &RouterScene) -> String {
    let list =
        "nft -s list table inet sidestep-firewall | tr ',{}' '\\n' | sed 's/^[ \t]*//; s/[ \t]*$//' | sort";
    scene.run("gw", &["sh", "-c", list])
}
