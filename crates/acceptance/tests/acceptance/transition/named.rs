//! The prefix of the provider's translator by the name `ipv4only.arpa` (RFC 7050): a resolver of the provider's says what the
//! test has it say, and does not always say it well.

use lab::patience::wait_until;
use lab::process::Process;
use serde_json::Value;

use super::clat::{SERVER, clat, example, provider, with_provider};
use super::scene::TransitionScene;

/// The provider's, where its router and its resolver are.
const RESOLVER: &str = "2001:db8:a000:1::1";
/// Says what is in `policy`.
const PROGRAM: &str = include_str!("named.py");
/// What the well-known prefix is told by.
const WELL_KNOWN: &str = "64:ff9b::c000:aa 64:ff9b::c000:ab";

struct Named {
    scene: TransitionScene,
    running: Vec<Process>,
}

impl Named {
    /// A provider with a resolver; `more` is about its link. `None` where there is no such test.
    fn new(more: &str) -> Option<Self> {
        crate::program(&["dnsmasq", "python3"])?;
        let mut named = Named { scene: with_provider(more)?, running: Vec::new() };
        named.says("silent 0");
        let scene = &named.scene;
        wait_until("an address to answer at", || {
            scene.run("isp", &["ip", "-6", "address", "show", "dev", "gw", "-tentative"]).contains(RESOLVER)
        });
        let [policy, log] = ["policy", "asked"].map(|name| scene.path(name).to_string_lossy().into_owned());
        named.keep(&["python3", "-c", PROGRAM, &policy, &log, RESOLVER]);
        Some(named)
    }

    fn keep(&mut self, words: &[&str]) {
        let mut command = self.scene.node("isp").command(words[0]).expect("the namespace");
        let log = self.scene.path(&format!("{}.log", words[0]));
        self.running.push(Process::start(command.args(&words[1..]), &log).expect("a process"));
    }

    /// The link has a router that says nothing of a translator, and names the resolver.
    fn with_plain_router() -> Option<Self> {
        let mut named = Self::new("advertise = false\n")?;
        let server = format!("--dhcp-option=option6:dns-server,[{RESOLVER}]");
        named.keep(&[
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--user=root",
            "--pid-file=",
            "--port=0",
            "--interface=gw",
            "--enable-ra",
            "--ra-param=gw,10,1800",
            "--dhcp-range=::,constructor:gw,ra-only,64",
            &server,
        ]);
        Some(named)
    }

    /// From now on. The file is there as a whole or not at all.
    fn says(&self, policy: &str) {
        self.scene.write("policy.new", policy);
        std::fs::rename(self.scene.path("policy.new"), self.scene.path("policy")).expect("a file");
    }

    /// What was asked so far: from where, by which port, with which number, whether recursion is desired and nothing is checked.
    fn asked(&self) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.scene.path("asked")).unwrap_or_default();
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    fn wait_for_questions(&self, more: usize) {
        let before = self.asked().len();
        wait_until("questions", || self.asked().len() >= before + more);
    }

    fn uplink(&self) -> Value {
        self.scene.status("gw").expect("a status")["uplinks"][1].clone()
    }

    fn wait_for_prefix(&self, prefix: &str) {
        wait_until(prefix, || clat(&self.scene)["plat_prefix"] == prefix);
        assert_eq!(clat(&self.scene)["plat_from"], "names");
    }

    fn wait_for_none(&self) {
        wait_until("no prefix", || {
            self.uplink()["works"] == false && clat(&self.scene)["plat_prefix"].is_null()
        });
    }

    fn problems(&self) -> String {
        self.scene.status("gw").expect("a status")["problems"].to_string()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("asked: {:?}", self.asked());
        }
        for process in std::mem::take(&mut self.running) {
            process.kill();
        }
    }
}

#[test]
fn a_prefix_that_no_router_advertises_is_found_by_name() {
    let Some(mut named) = Named::with_plain_router() else { return };
    // The provider has a resolver, and no translator.
    named.says("nothing 0");
    named.scene.start("gw", &example());
    wait_until("a reason", || {
        named
            .problems()
            .contains("the prefix behind ipv4only.arpa cannot be looked up: the name has no AAAA record")
    });
    assert!(named.problems().contains("nor do its name servers (RFC 7050)"), "{}", named.problems());
    named.wait_for_none();

    // It has, and says other things besides.
    named.says(&format!("answer 3600 2001:db8::1 ::ffff:192.0.0.170 {WELL_KNOWN}"));
    named.wait_for_prefix("64:ff9b::/96");
    wait_until("the server", || named.scene.answers("host", SERVER));
    let text = String::from_utf8(named.scene.sidestep("gw", &["status"]).stdout).expect("text");
    assert!(text.contains("to 64:ff9b::/96 (RFC 7050), MTU"), "{text}");
    let asked = named.asked();
    let differ = |place: usize| asked.iter().any(|one| one[place] != asked[0][place]);
    assert!(asked.len() >= 2 && differ(1) && differ(2), "ports and numbers are drawn: {asked:?}");
    assert!(asked.iter().all(|one| one[3..] == ["1", "0"]), "recursion desired, CD off: {asked:?}");
}

#[test]
fn a_prefix_by_name_is_followed_until_its_time_is_over() {
    let Some(mut named) = Named::with_plain_router() else { return };
    named.says(&format!("answer 1 {WELL_KNOWN}"));
    named.scene.start("gw", &example());
    named.wait_for_prefix("64:ff9b::/96");

    // Another, and of another length: 192.0.0.171 in 2001:db8:afff:64::/64.
    let other = "2001:db8:afff:64::/64";
    let with_other =
        provider("advertise = false\n").replace("[nat64]\n", &format!("[nat64]\nprefix = \"{other}\"\n"));
    named.scene.reload("isp", &with_other);
    named.says("answer 1 2001:db8:afff:64:c0:0:ab00:0");
    named.wait_for_prefix(other);
    wait_until("the server", || named.scene.answers("host", SERVER));

    // A resolver that is silent, or has trouble itself, ends nothing.
    for policy in ["silent 0", "fails 0"] {
        named.says(policy);
        named.wait_for_questions(3);
        assert!(named.scene.answers("host", SERVER), "{policy}");
        assert_eq!(clat(&named.scene)["plat_prefix"], other, "{policy}");
    }
    // One that says there is none does.
    for policy in ["no-such-name 0", "answer 60 2001:db8::1"] {
        named.says(policy);
        named.wait_for_none();
        let asked = named.scene.run("host", &["ping", "-c", "1", "-W", "2", SERVER]);
        assert!(asked.contains("nreachable"), "{asked}");
        named.says("answer 1 2001:db8:afff:64:c0:0:ab00:0");
        named.wait_for_prefix(other);
    }
}

#[test]
fn answers_that_fit_no_question_are_passed_over() {
    let Some(mut named) = Named::with_plain_router() else { return };
    named.says(&format!("junk 1 {WELL_KNOWN}"));
    named.scene.start("gw", &example());
    named.wait_for_prefix("64:ff9b::/96");
    named.wait_for_questions(2);
    assert_eq!(clat(&named.scene)["plat_prefix"], "64:ff9b::/96");
    assert!(!named.scene.log("gw").contains("2001:db8:bad"), "{}", named.scene.log("gw"));
}

#[test]
fn what_routers_advertise_goes_before_what_the_name_tells() {
    let more = format!("dns = [\"{RESOLVER}\"]\n");
    let Some(mut named) = Named::new(&more) else { return };
    named.says("answer 3600 2001:db8:bad:64:c0:0:aa00:0");
    named.scene.start("gw", &example());
    wait_until("the server", || named.scene.answers("host", SERVER));
    let tunnel = clat(&named.scene);
    assert_eq!((&tunnel["plat_prefix"], &tunnel["plat_from"]), (&"64:ff9b::/96".into(), &"routers".into()));

    // The router has none any more: then the name counts, until there is one again.
    named.scene.reload("isp", &provider(&more).replace("[nat64]\n", ""));
    named.wait_for_prefix("2001:db8:bad:64::/64");
    named.scene.reload("isp", &provider(&more));
    wait_until("the router's", || clat(&named.scene)["plat_from"] == "routers");
    wait_until("the server", || named.scene.answers("host", SERVER));
    named.scene.stop("gw");
    let left = named.scene.kernel("gw");
    assert!(!left.contains("clat") && !left.contains("sidestep"), "{left}");
}
