//! Files in setkey's language, right and wrong.

use proptest::prelude::*;

use super::*;
use crate::association::DontFragment;
use crate::key_engine::{EngineError, KeyEngine};
use crate::policy::{Action, Direction, Level, Levels, PolicyDatabase};
use crate::request::SocketId;
use crate::selector::Upper;
use crate::setkey::{ApplyError, Command, apply, parse};

const FILE: &str = r#"
# Two hosts, by hand.
flush; spdflush;
add 2001:db8:a::1 2001:db8:b::2 esp 0x1000 -m transport
    -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
add 2001:db8:a::1 2001:db8:b::2 ah 4096 -r 64 -ls 3000 -lh 3600
    -A hmac-sha256 "0123456789abcdef0123456789abcdef"; # a comment
add 203.0.113.1[4501] 203.0.113.2 esp-udp 0x2000 -m tunnel -u 7
    -E aes-cbc "0123456789abcdef" -A hmac-sha512 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
spdadd 2001:db8:a::/48 2001:db8:b::/48[80] tcp -P out ipsec
    esp/transport//require ah/transport//use;
spdadd 192.0.2.0/24 198.51.100.0/24 any -P in ipsec esp/tunnel/203.0.113.1-203.0.113.2/unique;
spdadd ::/0 ::/0 icmp6,135,0 -P in none;
spdadd 0.0.0.0/0 0.0.0.0/0 47 -P out discard;
dump;
"#;

#[test]
fn a_file_is_read_and_carried_out() {
    let now = Instant::now();
    let commands = parse(FILE).unwrap();
    assert_eq!(commands.len(), 10);
    let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
    let shown = apply(commands, &mut engine, &mut policies, now).unwrap();
    assert_eq!(shown.len(), 3);
    let [esp, ah, tunnel] = [0, 1, 2].map(|at: usize| engine.get(shown[at]).unwrap().parameters());
    assert!(matches!(&esp.transform, Transform::Esp(esp) if esp.encryption() == Encryption::AesGcm128));
    assert_eq!((esp.replay_window, ah.replay_window), (None, Some(64)));
    assert_eq!(ah.lifetimes.hard.since_added.unwrap().as_secs(), 3600);
    assert_eq!(tunnel.encapsulation, Some(UdpEncapsulation { source_port: 4501, destination_port: 4500 }));
    assert_eq!(tunnel.selectors[0].source, "192.0.2.0/24".parse().unwrap());
    assert_eq!(tunnel.dont_fragment, DontFragment::Copy);

    let [web, tunnelled, discovery, gre] = policies.rules() else { panic!("four rules") };
    let levels = Levels {
        authentication: Level::Use,
        transport_encryption: Level::Require,
        tunnel_encryption: Level::None,
    };
    assert_eq!(web.action, Action::Protect { levels, tunnel: None });
    assert_eq!(web.selector.upper, Upper::Ports { protocol: 6, source: 0..=u16::MAX, destination: 80..=80 });
    assert!(
        matches!(tunnelled.action, Action::Protect { tunnel: Some(_), levels } if levels.tunnel_encryption == Level::Unique)
    );
    assert_eq!((discovery.direction, discovery.action), (Direction::In, Action::Bypass));
    assert_eq!((gre.selector.upper.clone(), gre.action), (Upper::Protocol(47), Action::Discard));
}

#[test]
fn associations_are_shown_and_deleted_by_name_and_by_ends() {
    let now = Instant::now();
    let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
    let mut run = |text: &str| apply(parse(text).unwrap(), &mut engine, &mut policies, now);
    run(FILE).unwrap();
    assert_eq!(run("get 2001:db8:a::1 2001:db8:b::2 esp 0x1000;").unwrap().len(), 1);
    assert_eq!(run("get 2001:db8:a::1 2001:db8:b::2 esp 0x1001;"), Err(EngineError::NotFound.into()));
    assert_eq!(run("delete 2001:db8:a::1 2001:db8:b::2 esp 0x1000; dump esp;").unwrap().len(), 1);
    assert_eq!(run("deleteall 2001:db8:a::1 2001:db8:b::2 ah; dump;").unwrap().len(), 1);
    assert_eq!(run("flush esp; dump;").unwrap().len(), 0);
}

#[test]
fn a_policy_is_taken_away_by_its_packets_and_direction() {
    let now = Instant::now();
    let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
    let mut run = |text: &str| {
        let shown = apply(parse(text).unwrap(), &mut engine, &mut policies, now);
        (shown, policies.rules().len())
    };
    run(FILE).0.unwrap();
    let web = "spddelete 2001:db8:a::/48 2001:db8:b::/48[80] tcp -P";
    assert_eq!(run(&format!("{web} in;")), (Err(ApplyError::NoPolicy), 4));
    assert_eq!(run(&format!("{web} out; spddump;")), (Ok(Vec::new()), 3));
    assert_eq!(run(&format!("{web} out;")), (Err(ApplyError::NoPolicy), 3));
}

#[test]
fn the_owner_is_the_number_behind_u() {
    let commands = parse(FILE).unwrap();
    let owners: Vec<_> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Add(_, credentials) => Some(credentials.owner),
            _ => None,
        })
        .collect();
    assert_eq!(owners, [None, None, Some(SocketId(7))]);
}

#[test]
fn what_is_wrong_is_said_with_line_column_and_remedy() {
    let wrong = [
        (
            "flush;\n  fluhs;",
            "line 2, column 3: “fluhs” is no command; \
             write add, get, delete, deleteall, flush, dump, spdadd, spddelete, spddump or spdflush",
        ),
        ("flush", "line 1, column 1: this command does not end; put a semicolon behind it"),
        ("flush tcp;", "line 1, column 7: “tcp” is no security protocol here; write ah, esp or esp-udp"),
        (
            "add 192.0.2.1 host.example esp 256;",
            "line 1, column 15: “host.example” is no address; write one like 2001:db8::1 or 192.0.2.1",
        ),
        (
            "add 192.0.2.1 2001:db8::1 esp 256;",
            "line 1, column 15: source and destination are of different IP versions; take two of one version",
        ),
        (
            "get 192.0.2.1 192.0.2.2 esp 255;",
            "line 1, column 29: SPIs below 256 are reserved; take a number from 256 on",
        ),
        (
            "get 192.0.2.1 192.0.2.2 esp;",
            "line 1, column 28: the command ends too early; write the SPI before the semicolon",
        ),
        (
            "add 192.0.2.1 192.0.2.2 esp 256 -E aes-cbc 0x0123;",
            "line 1, column 36: a key of 2 bytes does not fit aes-cbc; give it one of 16 or 32 bytes",
        ),
        (
            "add 192.0.2.1 192.0.2.2 esp 256 -E aes-cbc 0x123;",
            "line 1, column 44: this is no key; \
             write a string in quotation marks, or pairs of hexadecimal digits after 0x",
        ),
        (
            "add 192.0.2.1 192.0.2.2 esp 256 -E null;",
            "line 1, column 36: nothing would be authenticated; \
             add -A hmac-sha256 and a key of 32 bytes; aes-gcm-16 and chacha20-poly1305 need none, but `ipsec up` takes \
             them from IKE alone",
        ),
        (
            "add 192.0.2.1 192.0.2.2 ah 256 -E null;",
            "line 1, column 35: nothing would be authenticated; give AH one algorithm, with -A",
        ),
        (
            "spdadd ::/0 ::/0[80] any -P out none;",
            "line 1, column 22: ports are those of a protocol; write tcp or udp instead of any",
        ),
        (
            "spdadd ::/0 ::/0 icmp6,any,4 -P out none;",
            "line 1, column 18: a code is one of a type; name the type, too, or leave both out",
        ),
        (
            "spddelete ::/0 ::/0 any -P out none;",
            "line 1, column 32: “none” is too much; end the command with a semicolon before it",
        ),
        (
            "spdadd ::/0 ::/0 any -P fwd none;",
            "line 1, column 25: “fwd” is no direction here; write in or out; in is also for what passes through",
        ),
        (
            "spdadd ::/0 ::/0 any -P out ipsec esp/transport/require;",
            "line 1, column 35: “esp/transport/require” is no request; \
             write PROTOCOL/MODE/FROM-TO/LEVEL, like esp/transport//require",
        ),
        ("spdflush now;", "line 1, column 10: “now” is too much; end the command with a semicolon before it"),
        (
            "add 192.0.2.1 192.0.2.2 ah 256 -A hmac-sha256 \"0123\n;",
            "line 1, column 47: this string does not end; put a quotation mark behind it, on the same line",
        ),
    ];
    for (text, expected) in wrong {
        assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
    }
}

#[test]
fn a_wrong_key_is_not_repeated() {
    for text in [
        "add 192.0.2.1 192.0.2.2 ah 256 -A hmac-sha256 0xsecret;",
        "add 192.0.2.1 192.0.2.2 ah 256 -A hmac-sha256 \"0123456789abcdef0123456789abcdef\" \"secret\";",
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,120}") {
        let _ = parse(&text);
    }

    #[test]
    fn nothing_of_these_words_panics(words in proptest::collection::vec(prop_oneof![
        Just("add"), Just("get"), Just("spdadd"), Just("192.0.2.1"), Just("192.0.2.1[4500]"), Just("2001:db8::1"),
        Just("::/0"), Just("::/0["), Just("esp"), Just("ah"), Just("esp-udp"), Just("0x1000"), Just("256"), Just("-m"),
        Just("tunnel"), Just("-E"), Just("aes-gcm-16"), Just("null"), Just("0x00"), Just("\"key\""), Just("-A"),
        Just("hmac-sha256"), Just("any"), Just("icmp6,1,"), Just("-P"), Just("in"), Just("ipsec"),
        Just("esp/tunnel/::1-::2/require"), Just("///"), Just("-r"), Just("-u"), Just("-lh"), Just("ü"), Just(";"),
    ], 0..20)) {
        let _ = parse(&words.join(" "));
    }
}
