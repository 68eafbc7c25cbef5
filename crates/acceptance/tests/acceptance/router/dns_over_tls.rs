//! Names elsewhere by DNS over TLS (`upstream = ["tls://…"]`), with a server whose certificates the test makes.

use std::time::Duration;

use lab::edited::Edited;
use lab::patience::{wait_for, wait_until};
use lab::process::Process;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::hosts::{Office, children, is_there, run_folder};

const GATEWAY: &str = "192.168.1.1";
const SERVER: &str = "203.0.113.53";
/// What the server answers, and what the provider's answers in the clear.
const BY_TLS: &str = "9.9.9.85";
const IN_THE_CLEAR: &str = "9.9.9.80";

/// The office, whose gateway trusts the test's authority, and all that leaves it captured.
struct Private {
    office: Office,
    server: Option<Process>,
    capture: Option<Process>,
}

impl Private {
    fn new() -> Option<Self> {
        let mut office = Office::new()?;
        let script = include_str!("dot_server.py");
        office.scene.write("dot_server.py", script);
        let folder = office.scene.folder.path().display().to_string();
        // An authority, and two certificates of it: for the server's name, and for another.
        let make = format!(
            "set -e; cd {folder}; new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'\n\
             $new -x509 -keyout ca.key -out ca.pem -days 30 -subj '/CN=test'\n\
             $new -x509 -keyout self.key -out self.pem -days 30 -subj /CN=dns.example -addext subjectAltName=DNS:dns.example\n\
             for name in dns.example other.example; do\n\
             $new -keyout $name.key -out $name.csr -subj \"/CN=$name\"; echo subjectAltName=DNS:$name > extensions\n\
             openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -days 30 -out $name.pem -extfile extensions; done\n\
             mkdir authorities; cp ca.pem authorities/$(openssl x509 -hash -noout -in ca.pem).0"
        );
        office.scene.run("net", &["sh", "-c", &make]);
        assert!(office.scene.folder.path().join("other.example.pem").exists());
        office.scene.node("host").ip("addr add 192.168.1.7/24 dev eth0\n").expect("an address");
        office.scene.node("gw").ip(&format!("route add {SERVER} via 192.0.2.1\n")).expect("a route");
        office.configuration = office
            .configuration
            .edited("[dns]", &format!("[dns]\nupstream = [\"tls://{SERVER}#dns.example\"]\n"));
        let mut command = office.scene.node("net").command("tcpdump").expect("the namespace");
        command.args(["-i", "any", "-n", "-U", "-w", &format!("{folder}/pcap"), "port 53 or port 853"]);
        let capture =
            Process::start(&mut command, &office.scene.folder.path().join("tcpdump.log")).expect("tcpdump");
        let log = capture.log().to_owned();
        wait_until("a capture", || {
            std::fs::read_to_string(&log).unwrap_or_default().contains("listening on")
        });
        Some(Private { office, server: None, capture: Some(capture) })
    }

    /// Has the server listen, with the certificate for this name.
    fn serve(&mut self, name: &str) {
        self.end_server();
        let folder = self.office.scene.folder.path();
        let mut command = self.office.scene.node("net").command("python3").expect("the namespace");
        command
            .args(["dot_server.py", SERVER, &format!("{name}.pem"), &format!("{name}.key")])
            .current_dir(folder);
        self.server = Some(Process::start(&mut command, &folder.join("dot_server.log")).expect("a server"));
        wait_until("the server", || self.office.scene.run("net", &["ss", "-lnt"]).contains(":853 "));
    }

    fn end_server(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    fn start(&mut self) {
        self.office.scene.write("gw.toml", &self.office.configuration);
        let trusts = "mount --bind \"$0/authorities\" /etc/ssl/certs && exec \"$@\"";
        let mut command = self.office.scene.node("gw").command("unshare").expect("the namespace");
        command.args(["-m", "sh", "-c", trusts]).arg(self.office.scene.folder.path());
        command.arg(self.office.scene.program());
        self.office.scene.begin_by(command);
        wait_for("a gateway that answers", || self.office.scene.status());
        self.office.wait_for_dnsmasqs();
        wait_until("stubby", || self.status()["runs"] == true);
    }

    /// What the status says of it.
    fn status(&self) -> Value {
        self.office.scene.status().map_or(Value::Null, |status| status["dns_over_tls"].clone())
    }

    fn why(&self) -> String {
        self.status()["servers"][0]["why"].as_str().unwrap_or_default().to_owned()
    }

    fn resolves(&self, name: &str) -> String {
        let words = ["dig", &format!("@{GATEWAY}"), "+short", "+tries=1", "+time=2", name];
        let said = self.office.scene.run("host", &words);
        if said.contains(";;") { String::new() } else { said.trim().to_owned() }
    }

    /// What has come to the provider's port of DNS in the clear, and by TLS.
    fn captured(&mut self) -> (String, String) {
        if let Some(capture) = self.capture.take() {
            capture.stop(Duration::from_secs(5));
        }
        let file = self.office.scene.folder.path().join("pcap").display().to_string();
        let read =
            |filter: &str| self.office.scene.run("net", &["tcpdump", "-n", "-t", "-A", "-r", &file, filter]);
        (read("port 53"), read("port 853"))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.end_server();
        if let Some(capture) = self.capture.take() {
            capture.stop(Duration::from_secs(5));
        }
    }
}

#[test]
fn names_are_asked_by_tls_of_the_server_that_proves_its_name_and_of_nobody_else() {
    let Some(mut private) = Private::new() else { return };
    let before = private.office.scene.kernel();
    // First one with another's certificate: nothing is asked, and it is told why.
    private.serve("other.example");
    private.start();
    wait_until("the reason", || {
        assert_eq!(private.resolves("www.example"), "");
        private.why().contains("certificate does not verify for that name: hostname mismatch")
    });
    let told = || {
        let text = String::from_utf8(private.office.scene.sidestep(&["status"]).stdout).expect("text");
        text.contains("problem: [dns]: 203.0.113.53:853 (dns.example) is not asked: its certificate")
            && text.contains("  server: 203.0.113.53:853 (dns.example): its certificate")
    };
    wait_until("a problem", told);
    assert_eq!(private.office.answer("host", GATEWAY, "printer.office.internal"), "NOERROR");

    // Nor of one that nobody vouches for.
    private.serve("self");
    wait_until("another reason", || {
        assert_eq!(private.resolves("www.example"), "");
        private.why().contains("self-signed certificate") || private.why().contains("self signed certificate")
    });

    // Once it has its own, names are resolved, without a hand.
    private.serve("dns.example");
    wait_until("names elsewhere", || private.resolves("www.example") == BY_TLS);
    wait_until("a server that works", || private.status()["servers"][0]["works"] == true);
    let problems = || private.office.scene.status().expect("a status")["problems"].to_string();
    wait_until("no problem", || !problems().contains("[dns]"));
    // Away, and back.
    private.end_server();
    wait_until("no answer", || {
        private.resolves("www.example").is_empty() && private.why() == "no answer by TLS"
    });
    private.serve("dns.example");
    wait_until("names elsewhere again", || private.resolves("www.example") == BY_TLS);

    // No more privileges than it needs.
    let stubby = children(private.office.scene.id(), "stubby");
    assert_eq!(stubby.len(), 1);
    let status = std::fs::read_to_string(format!("/proc/{}/status", stubby[0])).expect("a process");
    let line =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).expect(name).trim().to_owned();
    // NET_BIND_SERVICE.
    assert_eq!(line("CapEff:"), "0000000000000400");
    assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), ("1".to_owned(), "2".to_owned()));

    // Nothing of it was ever asked in the clear, though the provider has a server that would answer.
    let (clear, tls) = private.captured();
    assert!(!clear.contains("example") && !clear.contains(IN_THE_CLEAR), "{clear}");
    assert!(tls.contains(".853") && !tls.contains("\u{3}www\u{7}example"), "{tls}");

    let folder = run_folder(&private.office).with_extension("stubby");
    assert!(folder.exists());
    private.office.scene.stop();
    assert!(!is_there(stubby[0]) && !folder.exists());
    assert_eq!(private.office.scene.kernel(), before);
}

#[test]
fn it_outlives_its_end_and_a_reload_and_ends_with_the_gateway() {
    let Some(mut private) = Private::new() else { return };
    private.serve("dns.example");
    private.start();
    wait_until("names elsewhere", || private.resolves("www.example") == BY_TLS);
    let gateway = private.office.scene.id();
    let stubby = || children(gateway, "stubby");

    // Killed, it is started anew.
    let first = stubby();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first[0]), Signal::SIGKILL).expect("a process");
    wait_until("another process", || stubby() != first && stubby().len() == 1);
    wait_until("names elsewhere", || private.resolves("www1.example") == BY_TLS);
    assert_eq!(private.status()["restarts"], 1);

    // A reload leaves it, as long as it names the same servers; others are another process.
    let now = stubby();
    private
        .office
        .scene
        .write("gw.toml", &private.office.configuration.edited("guests print", "guests may print"));
    private.office.scene.signal(Signal::SIGHUP);
    wait_until("a reload", || private.office.scene.log().contains("configuration read again"));
    assert_eq!(stubby(), now);
    private
        .office
        .scene
        .write("gw.toml", &private.office.configuration.edited("#dns.example", "#other.example"));
    private.office.scene.signal(Signal::SIGHUP);
    wait_until("another name", || private.status()["servers"][0]["name"] == "other.example");
    wait_until("no answer", || {
        private.resolves("www2.example").is_empty() && private.why().contains("mismatch")
    });
    // Without TLS it goes, and names are asked of the uplink's servers.
    let clear = format!("[dns]\nupstream = [\"tls://{SERVER}#dns.example\"]\n");
    private.office.scene.write("gw.toml", &private.office.configuration.edited(&clear, "[dns]\n"));
    private.office.scene.signal(Signal::SIGHUP);
    wait_until("none", || stubby().is_empty() && private.status().is_null());
    private.office.scene.write("gw.toml", &private.office.configuration);
    private.office.scene.signal(Signal::SIGHUP);
    wait_until("one again", || stubby().len() == 1);

    let last = stubby();
    private.office.scene.kill();
    wait_until("its end", || !is_there(last[0]));

    // Without the program the file is refused, with what to install.
    let check = "mount --bind /dev/null \"$(command -v stubby)\" && exec \"$0\" check gw.toml";
    let mut command = private.office.scene.node("gw").command("unshare").expect("the namespace");
    command
        .args(["-m", "sh", "-c", check, &private.office.scene.program()])
        .current_dir(private.office.scene.folder.path());
    let said = String::from_utf8_lossy(&command.output().expect("a command").stderr).into_owned();
    assert!(said.contains("apt install stubby"), "{said}");
}
