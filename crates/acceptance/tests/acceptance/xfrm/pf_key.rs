//! Our PF_KEY messages in the kernel's socket, and the kernel's in our parser. It has no combined algorithms there.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ipsec::key::Key;
use ipsec::pf_key::extension::{Address, Lifetime, Sa, Sa2, SpiRange};
use ipsec::pf_key::message::{Extensions, Message, MessageError, MessageType, satype, state};
use lab::command;
use lab::namespaces::Namespace;
use linux::netns;

const AES_CBC: u8 = 12;
const HMAC_SHA_256: u8 = 5;
const HMAC_SHA_512: u8 = 7;
const NO_SUCH: u8 = nix::errno::Errno::ESRCH as u8;
const FROM: &str = "2001:db8:6::1";
const TO: &str = "2001:db8:6::2";
/// For a message of the kernel's, on a machine that is emulated, too: before it answers REGISTER, it loads the module of each
/// algorithm that there is.
const PATIENCE: Duration = Duration::from_secs(240);

/// Carries messages, a line of digits each, between us and a socket of the kernel's.
const CARRY: &str = "
import socket, sys, threading
key = socket.socket(15, socket.SOCK_RAW, 2) # PF_KEY, PF_KEY_V2
def hear():
    while True:
        print(key.recv(1 << 16).hex(), flush=True)
threading.Thread(target=hear, daemon=True).start()
for line in sys.stdin:
    key.send(bytes.fromhex(line))
";

/// A key daemon of the kernel's.
struct Daemon {
    namespace: Namespace,
    python: Child,
    input: ChildStdin,
    heard: Receiver<Message>,
    sequence: u32,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.python.kill();
        let _ = self.python.wait();
        let _ = self.namespace.delete();
    }
}

impl Daemon {
    fn new() -> Self {
        let namespace = Namespace::named(lab::prefix::unique());
        namespace.create().expect("a namespace");
        namespace
            .ip(&format!("link add eth0 type dummy\naddr add {FROM}/64 dev eth0 nodad\nlink set eth0 up\n"))
            .expect("a link");
        let mut command = namespace.command("/usr/bin/python3").expect("the namespace");
        command.args(["-c", CARRY]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut python = command.spawn().expect("python3");
        let (input, output) = (python.stdin.take().expect("stdin"), python.stdout.take().expect("stdout"));
        let (sender, heard) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                let digit = |at| u8::from_str_radix(&line[at..at + 2], 16).expect("a digit");
                let bytes: Vec<u8> = (0..line.len()).step_by(2).map(digit).collect();
                let message = match Message::parse(&bytes) {
                    Ok(message) => message,
                    // It tells of its policies, too.
                    Err(MessageError::Type) => continue,
                    Err(error) => panic!("{error}: {line}"),
                };
                // What we make of it again says the same.
                assert_eq!(Message::parse(&message.to_bytes()).expect("our own"), message);
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Daemon { namespace, python, input, heard, sequence: 0 }
    }

    fn say(&mut self, message_type: MessageType, satype: u8, extensions: Extensions) {
        self.sequence += 1;
        let message = Message {
            message_type,
            errno: 0,
            satype,
            sequence: self.sequence,
            pid: self.python.id(),
            extensions,
        };
        let digits: String = message.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.input, "{digits}").expect("python3 reads");
    }

    /// The next message of a type; others pass.
    fn hear(&self, message_type: MessageType) -> Message {
        loop {
            let message = self.heard.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {message_type:?}"));
            if message.message_type == message_type {
                return message;
            }
        }
    }

    fn ask(&mut self, message_type: MessageType, satype: u8, extensions: Extensions) -> Message {
        self.say(message_type, satype, extensions);
        loop {
            let answer = self.hear(message_type);
            if answer.sequence == self.sequence || message_type == MessageType::Dump {
                return answer;
            }
        }
    }

    fn in_kernel(&self) -> String {
        let mut ip = self.namespace.command("ip").expect("the namespace");
        command::text(&command::check(ip.args(["xfrm", "state", "list"])).expect("ip xfrm"))
    }
}

fn address(text: &str) -> Option<Address> {
    let address: IpAddr = text.parse().expect("an address");
    Some(Address { protocol: 0, prefix_length: 128, address, port: 0 })
}

fn between() -> Extensions {
    Extensions { address_source: address(FROM), address_destination: address(TO), ..Extensions::default() }
}

fn sa(spi: u32, authentication: u8, encryption: u8) -> Option<Sa> {
    Some(Sa { spi, replay: 4, state: state::MATURE, authentication, encryption, flags: 0 })
}

fn key(length: u8) -> Option<Key> {
    Some(Key::new(&(1..=length).collect::<Vec<_>>()))
}

const TRANSPORT: Sa2 = Sa2 { mode: 1, sequence: 0, request_id: 0 };

#[test]
fn the_kernel_does_what_our_messages_say_and_says_what_ours_read() {
    if !super::is_there() {
        return;
    }
    let mut daemon = Daemon::new();
    let answer = daemon.ask(MessageType::Register, satype::ESP, Extensions::default());
    let supported = |list: Option<Vec<ipsec::pf_key::extension::Algorithm>>| -> Vec<u8> {
        list.unwrap_or_default().iter().map(|algorithm| algorithm.id).collect()
    };
    assert_eq!(answer.errno, 0);
    assert!(supported(answer.extensions.supported_encryption).contains(&AES_CBC));
    assert!(supported(answer.extensions.supported_authentication).contains(&HMAC_SHA_256));

    // An SPI, then its association.
    let range = Some(SpiRange { min: 0x4000, max: 0x4fff });
    let asked = Extensions { spi_range: range, sa2: Some(TRANSPORT), ..between() };
    let answer = daemon.ask(MessageType::GetSpi, satype::ESP, asked);
    let spi = answer.extensions.sa.expect("an SPI").spi;
    assert!((0x4000..=0x4fff).contains(&spi), "{spi:#x}");
    let esp = Extensions {
        sa: sa(spi, HMAC_SHA_256, AES_CBC),
        sa2: Some(TRANSPORT),
        key_encryption: key(16),
        key_authentication: key(32),
        lifetime_hard: Some(Lifetime { bytes: 1_000_000, added: 3600, ..Lifetime::default() }),
        lifetime_soft: Some(Lifetime { bytes: 900_000, added: 3000, ..Lifetime::default() }),
        ..between()
    };
    assert_eq!(daemon.ask(MessageType::Update, satype::ESP, esp.clone()).errno, 0);

    // Two more without asking for an SPI.
    let ah = Extensions {
        sa: sa(0x5000, HMAC_SHA_512, 0),
        sa2: Some(TRANSPORT),
        key_authentication: key(64),
        ..between()
    };
    assert_eq!(daemon.ask(MessageType::Add, satype::AH, ah).errno, 0);
    let tunnel = Extensions {
        sa: sa(0x5001, HMAC_SHA_256, AES_CBC),
        sa2: Some(Sa2 { mode: 2, ..TRANSPORT }),
        key_encryption: key(32),
        key_authentication: key(32),
        ..between()
    };
    assert_eq!(daemon.ask(MessageType::Add, satype::ESP, tunnel).errno, 0);
    let listed = daemon.in_kernel();
    for part in [
        format!("proto esp spi {spi:#010x}"),
        "proto ah spi 0x00005000".into(),
        "mode tunnel".into(),
        "enc cbc(aes) 0x0102030405060708090a0b0c0d0e0f10".into(),
        "auth-trunc hmac(sha256)".into(),
        "auth-trunc hmac(sha512)".into(),
    ] {
        assert!(listed.contains(&part), "{part} in\n{listed}");
    }

    // One is shown, with what it was given.
    let named = |spi| Extensions { sa: Some(Sa { spi, ..Sa::default() }), ..between() };
    let shown = daemon.ask(MessageType::Get, satype::ESP, named(spi)).extensions;
    let parts = |sa: Option<Sa>| sa.map(|sa| (sa.spi, sa.authentication, sa.encryption, sa.state));
    assert_eq!(parts(shown.sa), parts(esp.sa));
    assert_eq!((shown.key_encryption, shown.key_authentication), (key(16), key(32)));
    assert_eq!((shown.lifetime_hard, shown.lifetime_soft), (esp.lifetime_hard, esp.lifetime_soft));
    assert_eq!(shown.sa2.map(|sa2| sa2.mode), Some(1));
    let host = |address: Option<Address>| address.map(|address| address.address.to_string());
    assert_eq!(host(shown.address_source).as_deref(), Some(FROM));
    assert_eq!(host(shown.address_destination).as_deref(), Some(TO));

    // All are shown.
    let mut spis = vec![];
    let mut answer = daemon.ask(MessageType::Dump, satype::UNSPECIFIED, Extensions::default());
    loop {
        spis.push(answer.extensions.sa.expect("an association").spi);
        if spis.len() == 3 {
            break;
        }
        answer = daemon.hear(MessageType::Dump);
    }
    spis.sort_unstable();
    assert_eq!(spis, [spi, 0x5000, 0x5001]);

    // One goes, then all.
    assert_eq!(daemon.ask(MessageType::Delete, satype::ESP, named(spi)).errno, 0);
    assert_eq!(daemon.ask(MessageType::Get, satype::ESP, named(spi)).errno, NO_SUCH);
    assert_eq!(daemon.ask(MessageType::Flush, satype::UNSPECIFIED, Extensions::default()).errno, 0);
    assert_eq!(daemon.in_kernel(), "");
}

#[test]
fn what_the_kernel_wants_and_what_it_says_of_lifetimes_is_read() {
    if !super::is_there() {
        return;
    }
    let mut daemon = Daemon::new();
    assert_eq!(daemon.ask(MessageType::Register, satype::ESP, Extensions::default()).errno, 0);
    daemon
        .namespace
        .ip(&format!("xfrm policy add src {FROM} dst {TO} dir out tmpl proto esp mode transport\n"))
        .expect("a policy");
    let namespace = netns::Namespace::open(daemon.namespace.name()).expect("the namespace");
    let sent =
        namespace.run(|| UdpSocket::bind((FROM, 0)).and_then(|socket| socket.send_to(b"data", (TO, 9))));
    let _ = sent.expect("a thread"); // The kernel says that it has to wait, or nothing.
    let acquire = daemon.hear(MessageType::Acquire);
    assert_eq!(acquire.satype, satype::ESP);
    let host = |address: Option<Address>| address.map(|address| address.address.to_string());
    assert_eq!(host(acquire.extensions.address_source).as_deref(), Some(FROM));
    assert_eq!(host(acquire.extensions.address_destination).as_deref(), Some(TO));
    let combinations = acquire.extensions.proposal.expect("a proposal").combinations;
    let is_wanted = |encryption, authentication| {
        combinations.iter().any(|combination| {
            (combination.encryption, combination.authentication) == (encryption, authentication)
        })
    };
    assert!(is_wanted(AES_CBC, HMAC_SHA_256), "{combinations:?}");

    // What was wanted comes, and does not last.
    let esp = Extensions {
        sa: sa(0x6000, HMAC_SHA_256, AES_CBC),
        sa2: Some(TRANSPORT),
        key_encryption: key(32),
        key_authentication: key(32),
        lifetime_soft: Some(Lifetime { added: 1, ..Lifetime::default() }),
        lifetime_hard: Some(Lifetime { added: 2, ..Lifetime::default() }),
        ..between()
    };
    daemon.sequence = acquire.sequence - 1;
    assert_eq!(daemon.ask(MessageType::Add, satype::ESP, esp).errno, 0);
    let (soft, hard) = (daemon.hear(MessageType::Expire), daemon.hear(MessageType::Expire));
    for expired in [&soft, &hard] {
        assert_eq!(expired.extensions.sa.map(|sa| sa.spi), Some(0x6000));
        assert!(expired.extensions.lifetime_current.is_some_and(|current| current.added > 0));
    }
    assert!(soft.extensions.lifetime_soft.is_some() && hard.extensions.lifetime_hard.is_some());
}
