//! Files with `[ipsec]`: the examples are what they say, what cannot work is refused, and no text panics the reader.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use config::KeyFileError;
use config::ipsec::{IpsecConfig, Place, Ports, Secrecy, Start, parse};
use ike::config::{Authentication, Mode};
use ike::message::body::Identity;
use ike::message::traffic_selector::TrafficSelector;
use ipsec::level::{Level, Levels};
use ipsec::policy::{Action, Direction, PolicyDatabase};
use ipsec::selector::{Detail, Traffic};
use proptest::prelude::*;
use zeroize::Zeroizing;

const SITE: &str = include_str!("../../../examples/ipsec-site-a.toml");
const WARRIOR: &str = include_str!("../../../examples/ipsec-road-warrior.toml");
const GATEWAY: &str = include_str!("../../../examples/ipsec-gateway.toml");
const SENSORS: &str = include_str!("../../../examples/ipsec-sensors.toml");

const KEY: &[u8] = b"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n";

macro_rules! certificate {
    ($name:literal) => {
        *include_bytes!(concat!("../../ike/tests/certificates/", $name))
    };
}

fn read(path: &Path, secrecy: Secrecy) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let is_key = path.extension().is_some_and(|extension| extension == "psk");
    if !is_key {
        return Err(KeyFileError::Missing);
    }
    assert_eq!(secrecy, Secrecy::Private);
    Ok(Zeroizing::new(KEY.to_vec()))
}

fn of(text: &str) -> Result<IpsecConfig, config::Report> {
    parse(text, Path::new("/etc/sidestep/ipsec0.toml"), &read)
}

fn right(text: &str) -> IpsecConfig {
    let config = of(text).unwrap_or_else(|report| panic!("{report}"));
    assert!(config.warnings.is_empty(), "{}", config.warnings);
    config
}

fn wrong(text: &str) -> String {
    of(text).expect_err(text).render(false)
}

/// The text with `to` where it has `from`, which it must have.
fn edited(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "nothing to change, `{from}` is not in:\n{text}");
    text.replacen(from, to, 1)
}

fn prefix(text: &str) -> TrafficSelector {
    let net: ipnet::IpNet = text.parse().unwrap();
    TrafficSelector::prefix(net.addr(), net.prefix_len())
}

#[test]
fn two_sites_with_a_shared_key() {
    let config = right(SITE);
    assert_eq!((config.name.as_str(), config.local, config.mtu), ("ipsec0", None, None));
    assert_eq!(config.ports, Ports { ike: 500, nat: 4500 });
    assert_eq!(config.levels, Levels::NONE);
    let [remote] = &config.remotes[..] else { panic!("one remote") };
    assert_eq!(remote.name, "site-b");
    assert_eq!(remote.address, Some(Place::Address("2001:db8::b".parse().unwrap())));
    assert_eq!(remote.start, Start::Always);
    let [peer] = &config.ike.peers[..] else { panic!("one peer") };
    assert_eq!(peer.local, Identity::Fqdn("a.example".into()));
    assert_eq!(peer.remote, Some(Identity::Fqdn("b.example".into())));
    let Authentication::SharedKey(key) = &peer.authentication else { panic!("a shared key") };
    assert_eq!(key.as_bytes(), KEY.trim_ascii_end(), "without the end of the line");
    assert!(peer.mobile && !peer.request_addresses);
    let [child] = &peer.children[..] else { panic!("one child") };
    assert_eq!(child.mode, Mode::Tunnel);
    assert_eq!(child.local, [prefix("2001:db8:a::/64"), prefix("10.1.0.0/16")]);
    assert_eq!(child.remote, [prefix("2001:db8:b::/64"), prefix("10.2.0.0/16")]);
    assert_eq!(child.algorithms, ike::negotiation::ChildAlgorithms::default());
}

#[test]
fn what_goes_between_the_networks_of_a_child_must_be_protected() {
    let config = right(SITE);
    let required = Levels { tunnel_encryption: Level::Require, ..Levels::NONE };
    assert!(config.rules.is_empty(), "the file has no policy");
    let rules: Vec<_> = config.child_rules.iter().map(|rule| (rule.direction, rule.action)).collect();
    let protect = Action::Protect { levels: required, tunnel: None };
    let both = [(Direction::Out, protect), (Direction::In, protect)];
    assert_eq!(rules, [both, both].concat(), "each IP version by itself");
    let back = &config.child_rules[1].selector;
    assert_eq!(back.source, "2001:db8:b::/64".parse().unwrap());
    assert_eq!(back.destination, "2001:db8:a::/64".parse().unwrap());
}

#[test]
fn a_road_warrior_asks_for_all_and_takes_what_it_is_given() {
    let config = right(WARRIOR);
    assert_eq!(config.remotes[0].address, Some(Place::Name("vpn.example.org".into())));
    let peer = &config.ike.peers[0];
    assert_eq!(peer.local, Identity::Email("ann@example.org".into()));
    assert_eq!(peer.remote, Some(Identity::Fqdn("vpn.example.org".into())), "nobody else");
    assert!(peer.request_addresses && peer.mobile);
    let all = [TrafficSelector::ANY_IPV6, TrafficSelector::ANY_IPV4];
    assert_eq!(peer.children[0].local, all);
    assert_eq!(peer.children[0].remote, all);
    assert_eq!(config.child_rules.len(), 4);
}

#[test]
fn a_gateway_gives_road_warriors_their_addresses() {
    let config = right(GATEWAY);
    let peer = &config.ike.peers[0];
    assert_eq!(peer.assigned.addresses.len(), 2);
    assert_eq!(peer.assigned.dns.len(), 2);
    assert!(peer.children[0].remote.is_empty(), "the addresses that she is given");
    assert_eq!((config.remotes[0].start, &config.remotes[0].address), (Start::Wait, &None));
    let out = &config.child_rules[0].selector;
    assert_eq!(out.destination, "2001:db8:9::a".parse::<std::net::IpAddr>().unwrap().into());
    let bob = &config.ike.peers[1].children[0];
    assert_eq!((bob.local[0].protocol, bob.local[0].ports), (6, (443, 443)));
}

#[test]
fn many_clients_are_one_remote_with_a_pool() {
    let pool = edited(GATEWAY, "[\"2001:db8:9::b\", \"10.9.0.11\"]", "[\"2001:db8:9::b\"]");
    let text = edited(
        &edited(&pool, "bob@example.org", "*"),
        "assign          = [\"2001:db8:9::b\"]",
        "pool = [\"10.9.0.0/24\"]",
    );
    let config = of(&text).unwrap();
    let range =
        |first: &str, last: &str| ike::config::Pool::range(first.parse().unwrap()..=last.parse().unwrap());
    let pools = &config.ike.peers[1].assigned.pools;
    // Without 10.9.0.1, the gateway's, and 10.9.0.10, Ann's.
    let expected = [range("10.9.0.2", "10.9.0.9"), range("10.9.0.11", "10.9.0.254")];
    assert_eq!(pools.iter().copied().map(Some).collect::<Vec<_>>(), expected);
    assert!(wrong(&edited(&text, "10.9.0.0/24", "10.9.0.10/32")).contains("is left for clients"));
}

#[test]
fn policies_say_what_must_hold() {
    let config = right(SENSORS);
    let mut policies = PolicyDatabase::new();
    config.rules.iter().for_each(|rule| policies.add(rule.clone()));
    let tcp = |source, destination| Traffic {
        source: "2001:db8:9::11".parse().unwrap(),
        destination: "2001:db8:9::1".parse().unwrap(),
        protocol: 6,
        detail: Detail::Ports { source, destination },
    };
    let plain = ipsec::marks::Marks::default();
    let authentic = ipsec::marks::Marks { authentic: true, ..plain };
    assert!(policies.input_policy(&tcp(40000, 8080), plain, None).is_ok());
    assert!(policies.input_policy(&tcp(1000, 22), authentic, None).is_ok());
    assert!(policies.input_policy(&tcp(1000, 22), plain, None).is_err(), "not authentic");
    assert!(policies.input_policy(&tcp(40000, 22), authentic, None).is_err(), "from no privileged port");
}

#[test]
fn two_hosts_talk_without_a_tunnel() {
    let text = "[ipsec]\naddress = \"2001:db8:c::1\"\n[[remote]]\nname = \"b\"\naddress = \"2001:db8:c::2\"\n\
                shared_key = \"quite a long secret\"\n[[remote.child]]\nmode = \"transport\"\nprotocol = \"udp\"\n\
                local_ports = 5683\n[[remote.child]]\nmode = \"transport\"\nheader = \"ah\"\nprotocol = \"tcp\"\n";
    let config = right(text);
    let peer = &config.ike.peers[0];
    assert_eq!(peer.local, Identity::Address("2001:db8:c::1".parse().unwrap()));
    assert_eq!(peer.remote, Some(Identity::Address("2001:db8:c::2".parse().unwrap())));
    assert!(!peer.mobile, "transport mode does not move");
    assert!(peer.children.iter().all(|child| child.mode == Mode::Transport && child.local.is_empty()));
    let wanted = |index: usize| match config.child_rules[index].action {
        Action::Protect { levels, .. } => levels,
        _ => panic!("a child protects"),
    };
    assert_eq!(wanted(0), Levels { transport_encryption: Level::Require, ..Levels::NONE });
    assert_eq!(wanted(2), Levels { authentication: Level::Require, ..Levels::NONE });
    let back = &config.child_rules[1];
    assert_eq!((back.direction, back.selector.source), (Direction::In, "2001:db8:c::2/128".parse().unwrap()));
}

#[test]
fn what_cannot_work_is_refused_with_the_remedy() {
    let child = "local  = [\"2001:db8:a::/64\", \"10.1.0.0/16\"]";
    let second = "\n[[remote]]\nname = \"site-c\"\naddress = \"192.0.2.3\"\nshared_key_file = \"c.psk\"\n\
                  [[remote.child]]\nlocal = [\"10.1.0.0/16\"]\nremote = [\"10.2.3.0/24\"]\n";
    for (text, told) in [
        (edited(SITE, "address         = \"2001:db8::b\"", "start = \"always\""), "no address to begin with"),
        (
            edited(SITE, "identity        = \"b.example\"", "identity = \"a.example\""),
            "both ends are a.example",
        ),
        (
            edited(SITE, "[ipsec]", "[ipsec]\naddress = \"2001:db8::b\""),
            "both ends have the address 2001:db8::b",
        ),
        (edited(SITE, "remote = [\"2001:db8:b::/64\"", "remote = [\"2001:db8:a::/64\""), "is at both ends"),
        (edited(SITE, child, &format!("{child}\nmode = \"transport\"")), "transport mode connects hosts"),
        (
            edited(SITE, child, &format!("{child}\nheader = \"ah\"")),
            "AH protects packets between two hosts only",
        ),
        (edited(SITE, child, "local = [\"2001:db8:a::/64\"]"), "10.2.0.0/16 has nobody to talk with"),
        (edited(SITE, child, &format!("{child}\nprotocol = \"icmpv6\"")), "has no such packets"),
        (edited(SITE, child, &format!("{child}\nlocal_ports = 80")), "ports of no protocol"),
        (format!("{SITE}{second}"), "10.2.3.0/24 is in both"),
        (edited(SITE, "shared_key_file = \"site-a-b.psk\"", ""), "cannot prove who it is"),
        (edited(SITE, "= \"site-a-b.psk\"", "= \"nothing.key\""), "no such file"),
        (edited(SITE, "[ipsec]", "[node]\nexternal = \"eth0\"\n[ipsec]"), "in one file"),
        (edited(SITE, "[ipsec]", "[ipsec]\nidentiy = \"a\""), "did you mean `identity`?"),
        (edited(SITE, "identity = \"a.example\"", ""), "has no `identity`"),
        (edited(SITE, "[ipsec]\nidentity = \"a.example\"", ""), "the table [ipsec] is missing"),
        ("[ipsec]\nidentity = \"a.example\"\n".to_owned(), "there is nobody to talk to"),
        (edited(SITE, "[[remote.child]]", "[[remote.childs]]"), "did you mean `child`?"),
        (edited(WARRIOR, "[[remote.child]]\nremote = [\"::/0\", \"0.0.0.0/0\"]", ""), "has no children"),
        (edited(SITE, "[ipsec]", "[ipsec]\nport = 4500"), "the same as `port`"),
        (edited(SITE, "[ipsec]", "[ipsec]\nauthority_file = \"ca.pem\""), "has no `certificate_file`"),
        (edited(SENSORS, "authentication    = \"require\"\n", ""), "protection without a level"),
        (edited(SENSORS, "\"discard\"", "\"discard\"\nauthentication = 2"), "a level without protection"),
        (edited(GATEWAY, "\"10.9.0.11\"", "\"10.9.0.10\""), "carry the same packets"),
        (edited(GATEWAY, "identity        = \"ann@example.org\"\n", ""), "is never recognized"),
        (edited(GATEWAY, "bob@", "ann@"), "two remotes are ann@example.org"),
        (edited(GATEWAY, "\"bob\"", "\"ann\""), "two remotes are named \"ann\""),
        (
            edited(GATEWAY, "assign          = [\"2001:db8:9::a\", \"10.9.0.10\"]", ""),
            "DNS servers for nobody",
        ),
    ] {
        let report = wrong(&text);
        assert!(report.contains(told), "{told}: {report}");
        assert!(report.contains("help"), "no remedy: {report}");
    }
}

#[test]
fn keys_that_can_be_guessed_are_warned_of() {
    let short = edited(SITE, "shared_key_file = \"site-a-b.psk\"", "shared_key = \"fifteen letters\"");
    let config = of(&short).unwrap();
    assert!(config.warnings.render(false).contains("the shared key of remote \"site-b\" is short"));
    assert!(!config.warnings.render(false).contains("fifteen letters"));
    let anybody = edited(
        WARRIOR,
        "address           = \"vpn.example.org\"",
        "address = \"192.0.2.1\"\nidentity = \"*\"",
    );
    let config = of(&anybody).unwrap();
    assert_eq!(config.ike.peers[0].remote, None);
    assert!(config.warnings.render(false).contains("anybody who knows the shared key"));
}

#[test]
fn a_file_of_the_other_kind_is_told_apart() {
    let key = |_: &Path| Err(KeyFileError::Missing);
    let report = config::parse(SITE, Path::new("a.toml"), &key).unwrap_err().render(false);
    assert!(report.contains("belongs to another kind of file"), "{report}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (file, is) in [("ipsec-site-a.toml", true), ("site-a.toml", false), ("nothing.toml", false)] {
        assert_eq!(config::ipsec::is_ipsec(&folder.join(file)), is, "{file}");
    }
}

/// A file in PEM.
fn pem(kind: &str, der: &[u8]) -> Vec<u8> {
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", BASE64_STANDARD.encode(der)).into_bytes()
}

/// What the file with these lines in `[ipsec]` and `[[remote]]` comes to; certificates are those of a.example.
fn with_certificates(this_end: &str, remote: &str) -> Result<IpsecConfig, config::Report> {
    let text = format!(
        "[ipsec]\n{this_end}\n[[remote]]\nname = \"b\"\naddress = \"b.example\"\n{remote}\n\
         [[remote.child]]\nlocal = [\"10.1.0.0/16\"]\nremote = [\"10.2.0.0/16\"]\n"
    );
    parse(&text, Path::new("/etc/sidestep/ipsec0.toml"), &read_certificate)
}

fn read_certificate(path: &Path, secrecy: Secrecy) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (bytes, expected) = match name {
        "a.crt" | "vpn.crt" => (pem("CERTIFICATE", &certificate!("a-p256.crt")), Secrecy::Public),
        "a.key" | "vpn.key" => (pem("PRIVATE KEY", &certificate!("a-p256.key")), Secrecy::Private),
        "old.key" => (pem("EC PRIVATE KEY", &certificate!("a-p256.key")), Secrecy::Private),
        "locked.key" => (pem("ENCRYPTED PRIVATE KEY", &[0; 9]), Secrecy::Private),
        "b.key" => (pem("PRIVATE KEY", &certificate!("b-p256.key")), Secrecy::Private),
        "ca.crt" => (pem("CERTIFICATE", &certificate!("authority.crt")), Secrecy::Public),
        "ca.der" => (certificate!("authority.crt").to_vec(), Secrecy::Public),
        "no.crt" => (pem("CERTIFICATE", b"no certificate"), Secrecy::Public),
        _ => return Err(KeyFileError::Missing),
    };
    assert_eq!(secrecy, expected, "{name}");
    Ok(Zeroizing::new(bytes))
}

const CERTIFICATES: &str = "identity = \"a.example\"\ncertificate_file = \"a.crt\"\nprivate_key_file = \"a.key\"\n\
                            authority_file = \"ca.crt\"";

#[test]
fn certificates_are_read_from_pem() {
    let config = with_certificates(CERTIFICATES, "").unwrap_or_else(|report| panic!("{report}"));
    assert!(config.warnings.is_empty(), "{}", config.warnings);
    assert!(matches!(config.ike.peers[0].authentication, Authentication::Certificates(_)));
    assert_eq!(config.ike.peers[0].remote, Some(Identity::Fqdn("b.example".into())));
    let own_authority = edited(CERTIFICATES, "authority_file = \"ca.crt\"", "");
    assert!(with_certificates(&own_authority, "authority_file = \"ca.crt\"").is_ok());
    let other_name = edited(CERTIFICATES, "a.example", "z.example");
    let config = with_certificates(&other_name, "").unwrap();
    assert!(config.warnings.render(false).contains("certificate is not of z.example"), "{}", config.warnings);
}

#[test]
fn a_certificate_of_this_end_that_is_not_valid_now_is_warned_of() {
    for (years, is_warned_of) in [(20, true), (60, false)] {
        let mut config = with_certificates(CERTIFICATES, "").unwrap_or_else(|report| panic!("{report}"));
        let now = Duration::from_secs(years * 365 * 24 * 3600);
        config::ipsec::warn_of_outdated(&format!("[ipsec]\n{CERTIFICATES}\n"), &mut config, now);
        let told = config.warnings.render(false);
        let is_there = told.contains("ipsec0.toml:3:20") && told.contains("is not valid now");
        assert_eq!(is_there, is_warned_of, "{told}");
    }
}

#[test]
fn the_gateway_with_certificates_in_the_manual_is_right() {
    let manual = include_str!("../../../docs/ipsec.md");
    let file =
        manual.split("\n\n    [ipsec]").find(|block| block.contains("\"vpn.crt\"")).expect("it is there");
    let tables = file.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let text = format!("[ipsec]{}", tables.collect::<Vec<_>>().join("\n"));
    let config =
        parse(&text, Path::new("vpn.toml"), &read_certificate).unwrap_or_else(|report| panic!("{report}"));
    let peer = &config.ike.peers[0];
    assert_eq!((&peer.remote, peer.assigned.pools.len()), (&None, 1));
    // The certificate that stands in for it is of another.
    assert!(config.warnings.render(false).contains("not of vpn.example.org"));
}

#[test]
fn certificates_that_cannot_be_used_are_told_with_the_remedy() {
    let this = |from: &str, to: &str| with_certificates(&edited(CERTIFICATES, from, to), "");
    for (result, told, remedy) in [
        (this("\"a.key\"", "\"old.key\""), "an old form", "openssl pkcs8"),
        (this("\"a.key\"", "\"locked.key\""), "has a password", "openssl pkcs8"),
        (this("\"a.key\"", "\"ca.crt.missing\""), "no such file", "the PEM file with the private key"),
        (this("\"a.key\"", "\"b.key\""), "not that of the certificate", "was made for"),
        (this("\"ca.crt\"", "\"ca.der\""), "no certificate in it", "openssl x509 -inform der"),
        (this("\"a.crt\"", "\"no.crt\""), "not a certificate", "no X.509"),
        (this("private_key_file = \"a.key\"", ""), "has no `private_key_file`", "add `private_key_file = …`"),
        (this("authority_file = \"ca.crt\"", ""), "has no `authority_file`", "add `authority_file = …`"),
        (
            with_certificates(CERTIFICATES, "identity = \"b@b.example\""),
            "no certificate can show",
            "write a domain name",
        ),
    ] {
        let report = result.expect_err(told).render(false);
        assert!(report.contains(told) && report.contains(remedy), "{told}, {remedy}: {report}");
    }
}

/// Parses, and shows what there is to show.
fn survives(text: &str) {
    let report = match of(text) {
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

fn example() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(SITE), Just(WARRIOR), Just(GATEWAY), Just(SENSORS)]
}

proptest! {
    #[test]
    fn arbitrary_text(text in "\\PC{0,200}") {
        survives(&text);
        survives(&format!("[ipsec]\n{text}"));
    }

    /// Bytes of the examples changed, removed, inserted.
    #[test]
    fn mutated_examples(
        text in example(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3, any::<u8>()), 1..12)
    ) {
        let mut bytes = text.as_bytes().to_vec();
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

    /// Lines of the examples in another order, some of them more than once.
    #[test]
    fn shuffled_examples(text in example(), lines in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let all: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let lines: Vec<&str> = lines.iter().map(|index| all[index.index(all.len())]).collect();
        survives(&lines.join("\n"));
    }

    /// Any value for any key.
    #[test]
    fn any_value(
        text in example(),
        line in any::<prop::sample::Index>(),
        value in "(-?[0-9]{1,20}|\"\\PC{0,30}\"|\\[\"[0-9a-f:./]{0,20}\"\\]|\"[0-9]{1,3}-[0-9]{1,6}\"|true)"
    ) {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = line.index(lines.len());
        if let Some((key, _)) = lines[line].clone().split_once('=') {
            lines[line] = format!("{key}= {value}");
        }
        survives(&lines.join("\n"));
    }
}
