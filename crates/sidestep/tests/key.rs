//! `sidestep key` against a PF_KEY socket, as a user meets it.

#![allow(missing_docs, reason = "a test's name says what it is about")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ipsec::key_engine::KeyEngine;
use ipsec::policy::PolicyDatabase;
use ipsec_runtime::key_socket::{KeySocket, clock};
use linux::event::{Events, Interest, Poller, Waker};

/// A key engine in a thread, with nothing but its socket.
struct Engine {
    folder: tempfile::TempDir,
    waker: Waker,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        let mut keys = KeySocket::open(&folder.path().join("home.key"), &poller, 1).unwrap();
        poller.add(&waker, 0, Interest::Readable).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
            let mut events = Events::with_capacity(16);
            while !is_over.load(Ordering::Relaxed) {
                let wait = engine.deadline().map(|at| at.saturating_duration_since(clock().now));
                poller.wait(&mut events, wait).unwrap();
                for event in events.iter().filter(|event| KeySocket::owns(1, event.token)) {
                    keys.handle(&poller, event, &mut engine, &mut policies, clock());
                }
                engine.handle_timeout(clock().now);
                while let Some(event) = engine.next_event() {
                    keys.tell(&poller, &event, &mut engine, clock());
                }
            }
        });
        Self { folder, waker, ends, thread: Some(thread) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("home.key")
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_sidestep"))
            .args(["key", "--socket"])
            .arg(self.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn key(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.spawn(arguments);
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// What a command prints that succeeds.
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.key(arguments, "");
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn load(&self, file: &str) {
        let output = self.key(&["-f", "-"], file);
        assert!(output.status.success(), "{}", stderr(&output));
    }

    /// What is said of a file that is refused.
    fn refuses(&self, file: &str) -> String {
        let output = self.key(&["-f", "-"], file);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const KEY: &str = "0x000102030405060708090a0b0c0d0e0f10111213";

const FILE: &str = r#"
    # A tunnel, and what is to go through it.
    add 203.0.113.1[4501] 203.0.113.2 esp-udp 0x2000 -m tunnel -lh 3600 -ls 3000
        -E aes-cbc "0123456789abcdef" -A hmac-sha256 "0123456789abcdef0123456789abcdef";
    spdadd 192.0.2.0/24 198.51.100.0/24[80] tcp -P out ipsec esp/tunnel/203.0.113.1-203.0.113.2/require;
    spdadd ::/0 ::/0 icmp6,135 -P in none;
"#;

#[test]
fn an_association_is_added_shown_and_deleted() {
    let engine = Engine::start();
    assert_eq!(engine.prints(&["dump"]), "");
    engine.prints(&[
        "add",
        "2001:db8::1",
        "2001:db8::2",
        "esp",
        "0x1000",
        "-r",
        "64",
        "-E",
        "aes-gcm-16",
        KEY,
    ]);
    let shown = engine.prints(&["dump"]);
    assert!(shown.starts_with(
        "2001:db8::1 2001:db8::2\n\tesp mode=transport spi=4096(0x00001000) reqid=0\n\tE: aes-gcm-16  160 bits\n\
         \treplay=255 state=mature\n\tcreated: 2"
    ), "{shown}");
    assert_eq!(engine.prints(&["get", "2001:db8::1", "2001:db8::2", "esp", "0x1000"]), shown);
    let json: serde_json::Value = serde_json::from_str(&engine.prints(&["dump", "esp", "--json"])).unwrap();
    assert_eq!(json[0]["encryption"], serde_json::json!({ "algorithm": "aes-gcm-16", "key_bits": 160 }));
    for text in [&shown, &json.to_string()] {
        assert!(!text.contains("0001020304"), "a key");
    }
    assert_eq!(engine.prints(&["dump", "ah", "--json"]), "[]\n");
    engine.prints(&["delete", "2001:db8::1", "2001:db8::2", "esp", "0x1000"]);
    let again = engine.key(&["delete", "2001:db8::1", "2001:db8::2", "esp", "0x1000"], "");
    assert!(stderr(&again).contains("there is no such association"), "{}", stderr(&again));
}

#[test]
fn a_file_with_policies_is_loaded_and_a_tunnel_gets_their_selectors() {
    let engine = Engine::start();
    engine.load(FILE);
    assert!(engine.prints(&["dump"]).starts_with(
        "203.0.113.1[4501] 203.0.113.2[4500]\n\tesp-udp mode=tunnel spi=8192(0x00002000) reqid=0\n\
         \tE: aes-cbc  128 bits\n\tA: hmac-sha256  256 bits\n"
    ));
    assert_eq!(
        engine.prints(&["dump", "--policies"]),
        "192.0.2.0/24[any] 198.51.100.0/24[80] 6\n\tout ipsec esp/tunnel/203.0.113.1-203.0.113.2/require\n\
         ::/0[any] ::/0[any] 58,135,any\n\tin none\n"
    );
    engine.load("flush; spdflush;");
    assert_eq!(engine.prints(&["dump", "--policies", "--json"]), "[]\n");
}

#[test]
fn policies_are_shown_and_taken_away_in_setkeys_language() {
    let engine = Engine::start();
    engine.load(FILE);
    let twice = engine.refuses("spdadd ::/0 ::/0 icmp6,135 -P in none;");
    assert!(twice.contains("take it away with spddelete first") && !twice.contains("SPI"), "{twice}");
    let delete = "spddelete ::/0 ::/0 icmp6,135 -P in;\n";
    let output = engine.key(&["-f", "-"], &format!("{delete}spddump;"));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "192.0.2.0/24[any] 198.51.100.0/24[80] 6\n\tout ipsec esp/tunnel/203.0.113.1-203.0.113.2/require\n"
    );
    let missing = engine.refuses(delete);
    assert!(
        missing.contains("line 1: there is no such policy") && missing.contains("nothing was changed"),
        "{missing}"
    );
}

#[test]
fn a_file_is_applied_as_a_whole_or_not_at_all() {
    let engine = Engine::start();
    engine.load(FILE);
    // The time that it was made at is computed in whole seconds, and may be one more the next time.
    let tables = || {
        let associations = engine.prints(&["dump"]);
        let lasting = associations.lines().filter(|line| !line.contains("created:"));
        (lasting.map(str::to_owned).collect::<Vec<_>>(), engine.prints(&["dump", "--policies"]))
    };
    let before = tables();
    let add = |spi: u32| format!("add ::1 ::2 esp {spi} -E aes-gcm-16 {KEY};\n");
    let twice = engine.refuses(&format!("flush;\n{}{}{}", add(300), add(301), add(300)));
    assert!(
        twice.contains("standard input: line 4: it is there already")
            && twice.contains("nothing was changed"),
        "{twice}"
    );
    let missing = engine.refuses(&format!("{}delete ::1 ::2 ah 999;", add(300)));
    assert!(missing.contains("line 2: there is no such association"), "{missing}");
    let syntax = engine.refuses(&format!("{}add ::1 ::2 esp 300 -E aes-gcm-17 {KEY};", add(300)));
    assert!(
        syntax.contains("standard input: line 2, column") && syntax.contains("is no encryption algorithm"),
        "{syntax}"
    );
    assert!(!syntax.contains("00010203"), "a key in an error");
    let untold = engine.refuses(&format!("{}spdadd ::/0 ::/0 icmp6,1,0 -P in none;", add(300)));
    assert!(untold.contains("line 2: in PF_KEY"), "{untold}");
    let full: String = (0..2000).map(|n| format!("spdadd ::{n:x} ::2 any -P out discard;\n")).collect();
    let full = engine.refuses(&(add(300) + &full));
    assert!(full.contains("the table is full") && full.contains("nothing was changed"), "{full}");
    assert_eq!(tables(), before);
}

#[test]
fn the_monitor_prints_a_line_for_what_happens() {
    let engine = Engine::start();
    let mut monitor = engine.spawn(&["monitor"]);
    let mut lines = BufReader::new(monitor.stdout.take().unwrap()).lines().map_while(Result::ok);
    // It listens from a moment that only it knows: something happens until it says so.
    let add = format!("add ::1 ::2 esp 0x1000 -lh 1 -E aes-gcm-16 {KEY};");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(lines.next()));
        while receiver.try_recv().is_err() {
            engine.load("flush;");
        }
    });
    engine.load(&add);
    let output = lines.find(|line| !line.starts_with("flushed")).unwrap();
    assert!(output.starts_with("added esp transport spi 0x00001000 ::1 -> ::2 by "), "{output}");
    assert_eq!(lines.next().unwrap(), "expired (hard) esp transport spi 0x00001000 ::1 -> ::2");
    monitor.kill().unwrap();
    monitor.wait().unwrap();
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let run = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_sidestep")).arg("key").args(arguments).output().unwrap();
        assert!(!output.status.success());
        stderr(&output)
    };
    assert!(
        run(&["--socket", "/nonexistent/a.key", "dump"])
            .contains("/nonexistent/a.key is not there: `sidestep ipsec up FILE` opens one")
    );
    assert!(run(&["--name", "no-such-host", "dump"]).contains("/run/sidestep/no-such-host.key"));
    assert!(run(&["dump", "tcp"]).contains("write ah, esp or esp-udp"));
    assert!(run(&["get", "::1", "::2", "esp", "256;", "flush"]).contains("more than one command"));
    assert!(run(&["-f", "/nonexistent/file"]).contains("cannot read /nonexistent/file"));
}
