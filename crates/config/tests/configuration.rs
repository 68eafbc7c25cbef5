//! Whatever stands in a configuration file: no panic, and every report can be shown.

use std::path::Path;

use config::KeyFileError;
use proptest::prelude::*;
use zeroize::Zeroizing;

const EXAMPLE: &str = include_str!("../../../examples/site-a.toml");
const KEY: &[u8] = b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

/// The text with `to` wherever it has `from`, which it must have: otherwise nothing would be tried.
fn edited(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "nothing to change, `{from}` is not in:\n{text}");
    text.replace(from, to)
}

fn parse(text: &str) -> Result<config::Config, config::Report> {
    let key = |path: &Path| {
        if path.ends_with("site-a.key") {
            Ok(Zeroizing::new(KEY.to_vec()))
        } else {
            Err(KeyFileError::Missing)
        }
    };
    config::parse(text, Path::new("/etc/sidestep/a.toml"), &key)
}

/// Parses, and shows what there is to show.
fn survives(text: &str) {
    let report = match parse(text) {
        Ok(config) => config.warnings,
        Err(report) => {
            assert!(report.errors() > 0);
            report
        }
    };
    for styled in [false, true] {
        let _ = report.render(styled);
    }
}

#[test]
fn the_example_is_what_it_says() {
    let config = parse(EXAMPLE).unwrap();
    assert!(config.warnings.is_empty(), "{}", config.warnings);
    let config = config.tunnel.unwrap();
    assert_eq!(config.tunnel.name, "mt6d0");
    assert_eq!(config.tunnel.mtu, None);
    assert_eq!(config.node.external, "eth0");
    let peer = config.peer("site-b").unwrap();
    assert_eq!((peer.rotation.as_secs(), peer.lanes, peer.shape), (10, Some(3), mt6d::config::Shape::None));
    let node = config.to_node_config(1500, true, true, true);
    assert_eq!(node.check(), Ok(()));
    assert_eq!(node.addresses, ["2001:db8:a::1".parse::<std::net::IpAddr>().unwrap()]);
}

#[test]
fn a_peer_that_another_tunnel_travels_with_may_have_no_networks() {
    let allowed = EXAMPLE.lines().find(|line| line.starts_with("allowed_ips")).unwrap();
    let none = edited(EXAMPLE, allowed, "allowed_ips = []");
    let said = parse(&none).unwrap().warnings.render(false);
    assert!(said.contains("nothing will go through the tunnel"), "{said}");
    let masks = edited(&none, "allowed_ips = []", "allowed_ips = []\ncarry = \"mask\"");
    let wrapped = format!("{masks}\n[[wrap]]\npeer = \"site-b\"\ninterface = \"wg0\"\n");
    let config = parse(&wrapped).unwrap();
    assert!(config.warnings.is_empty(), "{}", config.warnings);
}

#[test]
fn another_tunnel_has_an_end_for_each_key_that_sessions_may_be_of() {
    use mt6d::keys::PrivateKey;
    let [previous, next] = [8, 9].map(|byte| PrivateKey::from_bytes([byte; 32]));
    let text = edited(EXAMPLE, "[[peer]]\n", &format!("[[peer]]\nnext_public_key = \"{}\"\n", next.public()));
    let file = "private_key_file";
    let text = edited(
        &text,
        file,
        &format!("previous_private_key = \"CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg=\"\n{file}"),
    );
    let without = parse(&text).unwrap().tunnel.unwrap();
    let config =
        parse(&format!("{text}\n[[wrap]]\npeer = \"site-b\"\nport = 51820\n")).unwrap().tunnel.unwrap();
    let host = |key: mt6d::keys::PublicKey| -> ipnet::IpNet {
        std::net::IpAddr::V6(mt6d::mask::address(&key)).into()
    };
    let own = [config.node.private_key.public(), previous.public()].map(host);
    assert_eq!(config.tunnel.addresses, [&without.tunnel.addresses[..], &own].concat());
    let (peer, before) = (config.peer("site-b").unwrap(), without.peer("site-b").unwrap());
    let ends = [peer.public_key, next.public()].map(host);
    assert_eq!(peer.allowed_ips, [&before.allowed_ips[..], &ends].concat());
    assert_eq!(config.to_node_config(1500, true, false, true).peers[0].mask, Some(51_820));
}

#[test]
fn the_profile_may_be_named_and_have_its_old_name() {
    for name in ["moving-target", "version-2"] {
        let named = edited(EXAMPLE, "[[peer]]\n", &format!("[[peer]]\nprofile = \"{name}\"\n"));
        let config = parse(&named).unwrap();
        assert!(config.warnings.is_empty(), "{}", config.warnings);
        assert!(config.tunnel.unwrap().peer("site-b").is_some(), "{name}");
    }
}

/// Gateways on one link hop in all of its /64, and a hub takes several of them.
#[test]
fn the_examples_of_being_one_of_many_are_what_they_say() {
    let key = |_: &Path| Ok(Zeroizing::new(KEY.to_vec()));
    let example = |text: &str| {
        let config = config::parse(text, Path::new("/etc/sidestep/a.toml"), &key).unwrap();
        assert!(config.warnings.is_empty(), "{}", config.warnings);
        config.tunnel.unwrap()
    };
    let branch = example(include_str!("../../../examples/one-of-many.toml"));
    let hub = example(include_str!("../../../examples/hub.toml"));
    assert!(branch.node.on_link && !hub.node.on_link);
    assert_eq!(branch.node.hop_prefix.prefix_len(), 64);
    assert_eq!(hub.peers.len(), 2);
    let at_branch = &branch.peers[0];
    assert_eq!(at_branch.hop_prefix, hub.node.hop_prefix);
    for peer in &hub.peers {
        assert_eq!(peer.hop_prefix, branch.node.hop_prefix);
        // What differs would tell them apart.
        assert_eq!((peer.rotation, peer.lanes), (at_branch.rotation, at_branch.lanes));
        assert_eq!((peer.padding, peer.keepalive), (at_branch.padding, at_branch.keepalive));
    }
    for config in [&branch, &hub] {
        assert_eq!(config.to_node_config(1500, true, true, true).check(), Ok(()));
    }
}

#[test]
fn a_hopping_prefix_inside_of_the_tunnel_is_warned_of() {
    let plain = |allowed: &str| edited(EXAMPLE, "\"2001:db8:b::/64\"", allowed);
    let with = |allowed: &str| edited(&plain(allowed), "[[peer]]\n", "[[peer]]\ncarry = \"rewrite\"\n");
    for allowed in ["\"2001:db8::/32\"", "\"::/1\", \"8000::/1\"", "\"2001:db8:b1::/48\""] {
        let config = parse(&with(allowed)).unwrap();
        let said = config.warnings.render(false);
        assert!(said.contains("contains the hopping prefix 2001:db8:b1::/64"), "{allowed}: {said}");
        // Its sockets are bound to the external interface.
        assert!(parse(&plain(allowed)).unwrap().warnings.is_empty());
    }
    let is_said =
        |text: &str| parse(text).unwrap().warnings.render(false).contains("contains the hopping prefix");
    assert!(!is_said(&with("\"2001:db8:b::/48\"")));
    let own = "hop_prefix = \"2001:db8:a1::/64\"";
    let at_a_host = edited(&with("\"::/0\""), own, "mode = \"host\"");
    assert!(!is_said(&at_a_host));
}

/// The example with a transparent gateway.
fn transparent(more: &str) -> String {
    let node = format!("[node]\nmode = \"transparent\"\ninternal = \"eth1\"\n{more}\n");
    let part = "hop_prefix = \"2001:db8:c:0:f000::/68\"";
    edited(&edited(EXAMPLE, "[node]\n", &node), "hop_prefix = \"2001:db8:a1::/64\"", part)
}

#[test]
fn a_transparent_gateway_has_hosts_and_hops_beside_them() {
    let hosts =
        "protect = [{ address = \"2001:db8:c::10\", mac = \"02:00:00:00:00:10\" }]\nothers = \"pass\"";
    let v6_only = edited(&transparent(hosts), ", \"10.0.2.0/24\"", "");
    let config = parse(&v6_only).unwrap().tunnel.unwrap();
    let mode = config.node.transparent.as_ref().unwrap();
    assert_eq!((mode.internal.as_str(), mode.pass_others, mode.protect.len()), ("eth1", true, 1));
    assert!(config.node.on_link);
    assert_eq!(config.link_networks(), ["2001:db8:c::/64".parse::<ipnet::Ipv6Net>().unwrap()]);
    assert_eq!(config.remote_networks(), ["2001:db8:b1::/64".parse::<ipnet::Ipv6Net>().unwrap()]);
    assert_eq!(config.inner_mtu(1500), 1461);

    for (text, error) in [
        (edited(&v6_only, "2001:db8:c:0:f000::/68", "2001:db8:c::/64"), "covers the link"),
        (edited(&v6_only, "2001:db8:c::10", "2001:db8:c:0:f000::10"), "lies in the hopping prefix"),
        (edited(&v6_only, "internal = \"eth1\"", "internal = \"eth0\""), "are the same"),
        (edited(&v6_only, "mode = \"transparent\"\n", ""), "does not fit the mode"),
        (edited(&v6_only, "\"transparent\"", "\"bridge\""), "not a mode"),
        (edited(&v6_only, "\"pass\"", "\"some\""), "neither of the two"),
        (
            edited(&transparent(hosts), "allowed_ips = [", "allowed_ips = [\"10.9.0.0/24\", "),
            "IPv4 does not go",
        ),
    ] {
        let report = parse(&text).unwrap_err().to_string();
        assert!(report.contains(error), "{error}: {report}");
    }
}

#[test]
fn errors_that_do_not_depend_on_each_other_come_in_one_report() {
    let text = edited(EXAMPLE, "hop_prefix = \"2001:db8:a1::/64\"", "hop_prefix = \"2001:db8:a1::1/64\"");
    let text = edited(&text, "rotation = \"10s\"", "rotation = \"10\"");
    let text = edited(&text, "lanes = 3", "lanes = 17");
    let report = parse(&text).unwrap_err();
    assert_eq!(report.errors(), 3, "{report}");
}

#[test]
fn what_is_easily_mistyped_is_told_as_what_was_meant() {
    let home = "[[uplink]]\ninterface = \"eth0\"\ndelegation = 56\n[[network]]\ninterface = \"lan\"\nsubnet = 255\n\
                [[firewall.rule]]\nto = \"lan\"\ndestination = \"*::443\"\naction = \"accept\"\n";
    assert!(parse(home).is_ok());
    // With a prefix of whatever length there is, nobody knows.
    assert!(parse(&edited(&edited(home, "subnet = 255", "subnet = 256"), "= 56", "= true")).is_ok());
    for (from, to, told) in [
        ("*::443", "::443", "write *::443"),
        ("subnet = 255", "subnet = 256", "a /56 has subnets 0 to 255"),
        ("[[uplink]]", "[uplink]", "there may be several: write [[uplink]]"),
        ("[[network]]", "[network]", "there may be several: write [[network]]"),
        ("[[uplink]]", "[peer]\n[[uplink]]", "there may be several: write [[peer]]"),
    ] {
        let report = parse(&edited(home, from, to)).expect_err(to).render(false);
        assert!(report.contains(told), "{to}: {report}");
    }
}

#[test]
fn a_secret_is_in_no_report() {
    let secret = std::str::from_utf8(KEY).unwrap();
    let with = |line: &str| edited(EXAMPLE, "private_key_file = \"site-a.key\"", line);
    for line in [
        format!("private_key = \"{secret}x\""),
        format!("private_key = \"{secret}\""),
        format!("private_key = [\"{secret}\"]"),
        format!("private_key = {secret}"),
        format!("privat_key = \"{secret}\""),
        format!("private_key = \"{secret}\"\nlanes = \"{secret}\""),
        format!("private_key = \"{secret}\"\non_link = \"{secret}\""),
    ] {
        if let Err(report) = parse(&with(&line)) {
            let text = report.render(false);
            assert!(!text.contains(&secret[..16]), "{text}");
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn arbitrary_text(text in "\\PC{0,200}") {
        survives(&text);
    }

    /// Bytes of the example changed, removed, inserted.
    #[test]
    fn mutated_examples(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3, any::<u8>()), 1..12)
    ) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        for (index, edit, byte) in edits {
            let at = index.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        survives(&String::from_utf8_lossy(&bytes));
    }

    /// Lines of the example in another order, some of them more than once.
    #[test]
    fn shuffled_examples(lines in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let all: Vec<&str> = EXAMPLE.lines().filter(|line| !line.starts_with('#')).collect();
        let lines: Vec<&str> = lines.iter().map(|index| all[index.index(all.len())]).collect();
        survives(&lines.join("\n"));
    }

    /// Any value for any key.
    #[test]
    fn any_value(key in "[a-z_]{1,12}", value in "(-?[0-9]{1,20}|\"\\PC{0,30}\"|\\[\"[0-9a-f:./]{0,20}\"\\]|true)") {
        let line = format!("{key} = {value}");
        survives(&format!("{EXAMPLE}\n{line}"));
        for known in ["hop_prefix", "rotation", "lanes", "padding", "allowed_ips", "public_key", "keepalive", "mtu", "name"] {
            survives(&edited(EXAMPLE, known, &format!("{known} = {value} #")));
        }
    }
}
