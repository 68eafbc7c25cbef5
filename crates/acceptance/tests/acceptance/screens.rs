//! The screens in a terminal: they show what runs, follow it through a restart, and give the terminal back as it was.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use lab::patience::{wait_for, wait_until};
use lab::{Lab, Node, Site};

use crate::promises::scene::{lab, run, up};

/// Its lines and columns.
const SIZE: (u16, u16) = (30, 100);

/// A program in a terminal, as script(1) makes one.
struct Terminal {
    child: Child,
    shown: Arc<Mutex<vt100::Parser>>,
    folder: tempfile::TempDir,
}

impl Terminal {
    /// Starts `sidestep` with these words; what the terminal's settings are before and after is kept.
    fn start(lab: &Lab, node: Node, words: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (at, (lines, columns)) = (folder.path().display(), SIZE);
        let script = format!(
            "stty rows {lines} cols {columns}; stty -g > {at}/before; sh -c 'echo $$ > {at}/pid; exec {} {words}'; \
             echo $? > {at}/status; stty -g > {at}/after",
            lab.program().display()
        );
        let mut command: Command = lab.command(node, "script").expect("a command");
        command.args(["--quiet", "--flush", "--command", &script, "/dev/null"]).env("TERM", "xterm-256color");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("script(1)");
        let mut output = child.stdout.take().expect("piped");
        let shown = Arc::new(Mutex::new(vt100::Parser::new(lines, columns, 0)));
        let all = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                all.lock().expect("no panic").process(&buffer[..count]);
            }
        });
        Terminal { child, shown, folder }
    }

    fn shows(&self, part: &str) -> bool {
        self.shown.lock().expect("no panic").screen().contents().contains(part)
    }

    fn wait_for(&self, part: &str) {
        wait_until(part, || self.shows(part));
    }

    fn type_in(&mut self, keys: &str) {
        let keyboard = self.child.stdin.as_mut().expect("piped");
        keyboard.write_all(keys.as_bytes()).and_then(|()| keyboard.flush()).expect("a terminal");
    }

    fn file(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.folder.path().join(name)).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    }

    /// Waits for its end; the terminal is as it was before.
    fn ended(mut self) -> String {
        let after = wait_for("the end", || self.file("after"));
        assert_eq!(Some(after), self.file("before"), "the terminal's settings");
        wait_until("the screen from before", || {
            let shown = self.shown.lock().expect("no panic");
            !shown.screen().alternate_screen() && !shown.screen().hide_cursor()
        });
        let status = self.file("status").expect("a status");
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        status
    }
}

#[test]
fn a_screen_follows_a_tunnel_through_a_restart_and_gives_the_terminal_back() {
    let Some(builder) = lab() else { return };
    let mut lab = up(builder);
    let tunnel = lab.gateway(Site::A).tunnel().to_owned();
    let watch = format!("show {tunnel} --watch");

    let mut terminal = Terminal::start(&lab, Node::GatewayA, &watch);
    terminal.wait_for("1 peer: 1 established");
    terminal.type_in("\r");
    terminal.wait_for("handshakes: 1");
    terminal.type_in("\x1b");
    terminal.wait_for("PEER");
    terminal.type_in("/elsewhere");
    terminal.wait_for("no peer, or none that is looked for");
    terminal.type_in("\x1b");
    lab.gateway(Site::A).kill();
    terminal.wait_for("is not running");
    terminal.wait_for("site-b");
    lab.gateway(Site::A).restart().expect("a gateway");
    wait_until("it is back", || !terminal.shows("not running") && terminal.shows("1 established"));
    terminal.type_in("q");
    assert_eq!(terminal.ended(), "0");

    let terminal = Terminal::start(&lab, Node::GatewayA, &watch);
    terminal.wait_for("site-b");
    let pid = terminal.file("pid").expect("a process");
    run(&lab, Node::GatewayA, &["kill", "-TERM", &pid]);
    assert_eq!(terminal.ended(), "0");

    let mut terminal = Terminal::start(&lab, Node::GatewayA, &watch);
    terminal.wait_for("site-b");
    terminal.type_in("\x03");
    assert_eq!(terminal.ended(), "0");
}

#[test]
fn without_a_terminal_there_is_a_table_each_second_and_no_escape() {
    let Some(builder) = lab() else { return };
    let mut lab = up(builder);
    let tunnel = lab.gateway(Site::A).tunnel().to_owned();
    let program = lab.program().to_string_lossy().into_owned();
    let watch = format!("timeout 4 {program} show {tunnel} --watch; true");
    let shown = run(&lab, Node::GatewayA, &["sh", "-c", &watch]);
    assert!(shown.matches("\nPEER").count() >= 2 && !shown.contains('\x1b'), "{shown}");
    let one = run(&lab, Node::GatewayA, &[&program, "show", &tunnel, "--peer", "site-b"]);
    assert!(one.contains("session: established") && one.contains("lane "), "{one}");
    let none = run(&lab, Node::GatewayA, &[&program, "show", &tunnel, "--state", "silent", "--json"]);
    assert!(none.contains("\"peers\": []"), "{none}");
}
