//! Both gateways are renumbered at the same moment, and find each other again.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use lab::edited::Edited;
use lab::patience::wait_until;
use lab::{Lab, Node, Site};

use super::scene;

const HUB: &str = "2001:db8:c1::/64";
/// Where the gateways hop afterwards.
const NEW: [&str; 2] = ["2001:db8:a9::/64", "2001:db8:b9::/64"];
const SITES: [(Site, Node); 2] = [(Site::A, Node::GatewayA), (Site::B, Node::GatewayB)];

/// A process that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sidestep(lab: &Lab, node: Node, words: &[&str]) -> String {
    let program = lab.program().to_string_lossy().into_owned();
    scene::run(lab, node, &[&[program.as_str()], words].concat())
}

fn edit(lab: &mut Lab, site: Site, change: impl Fn(&str) -> String) {
    let path = lab.gateway(site).configuration().to_owned();
    let text = std::fs::read_to_string(&path).expect("a configuration");
    std::fs::write(&path, change(&text)).expect("a changed configuration");
}

fn reload(lab: &mut Lab, site: Site) {
    let socket = format!("/run/sidestep/{}.sock", lab.gateway(site).tunnel());
    let output =
        Command::new(lab.program()).args(["reload", "--socket", &socket]).output().expect("sidestep");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Both hop elsewhere from one moment to the next, and nothing comes to where they were.
fn renumber(lab: &mut Lab) {
    let routes = "for old in a b; do ip -6 route del 2001:db8:${old}1::/64; \
                  ip -6 route add 2001:db8:${old}9::/64 via 2001:db8:f$old::2; done";
    let said = scene::run(lab, Node::Router, &["sh", "-ec", routes]);
    assert!(said.is_empty(), "{said}");
    for (site, _) in SITES {
        let letter = site.letter();
        edit(lab, site, |text| {
            text.edited(&format!("2001:db8:{letter}1::/64"), &format!("2001:db8:{letter}9::/64"))
        });
    }
    for (site, _) in SITES {
        reload(lab, site);
    }
}

fn have_met(lab: &Lab) -> bool {
    let knows = |site: Site, place: &str| {
        let peer = scene::peer(lab, site);
        peer["state"] == "established" && peer["hop_prefix"] == place
    };
    knows(Site::A, NEW[1]) && knows(Site::B, NEW[0])
}

#[test]
fn they_meet_through_a_hub() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder);
    let folder = tempfile::tempdir().expect("a folder");
    let private = sidestep(&lab, Node::Router, &["genkey"]);
    std::fs::write(folder.path().join("hub.key"), &private).expect("a key");
    let program = lab.program().to_string_lossy().into_owned();
    let pubkey = format!("{program} pubkey < {}/hub.key", folder.path().display());
    let hub_key = scene::run(&lab, Node::Router, &["sh", "-c", &pubkey]);
    let mut hub = format!(
        "[node]\nprivate_key = \"{}\"\nexternal = \"a\"\nhop_prefix = \"{HUB}\"\n\
         [tunnel]\nname = \"hub-{}\"\naddresses = [\"fd00:cc::1/128\"]\n",
        private.trim(),
        std::process::id() % 100_000
    );
    for (site, _) in SITES {
        let letter = site.letter();
        let key = lab.show(site).expect("a status")["public_key"].as_str().expect("a key").to_owned();
        hub += &format!(
            "[[peer]]\nname = \"site-{letter}\"\npublic_key = \"{key}\"\nhop_prefix = \"2001:db8:{letter}1::/64\"\n\
             allowed_ips = [\"fd00:{letter}{letter}::/64\"]\nkeepalive = \"25s\"\nintroduce = true\n"
        );
        let with_hub = format!(
            "keepalive = \"25s\"\nmeet_through = [\"hub\"]\n\n[[peer]]\nname = \"hub\"\npublic_key = \"{}\"\n\
             hop_prefix = \"{HUB}\"\nallowed_ips = [\"fd00:cc::/64\"]\nkeepalive = \"25s\"\n",
            hub_key.trim()
        );
        edit(&mut lab, site, |text| format!("{text}\n{with_hub}"));
        reload(&mut lab, site);
    }
    let file = folder.path().join("hub.toml");
    std::fs::write(&file, hub).expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let mut command = lab.command(Node::Router, &program).expect("a command");
    command.arg("up").arg(&file).arg("--state-dir").arg(folder.path());
    let _hub = Ends(command.spawn().expect("a hub"));
    let with_hub = |site: Site| lab.show(site).is_ok_and(|shown| shown["peers"][1]["state"] == "established");
    wait_until("sessions with the hub", || with_hub(Site::A) && with_hub(Site::B));

    renumber(&mut lab);
    wait_until("the two have met", || have_met(&lab));
    lab.wait_connected(std::time::Duration::from_secs(10)).expect("hosts that reach each other");
}

/// The program with another list of name servers than this machine's.
pub(crate) fn asks(folder: &Path, server: &str) -> PathBuf {
    let real = crate::program(&[]).expect("a program");
    let (resolver, wrapper) = (folder.join("resolv.conf"), folder.join("sidestep"));
    std::fs::write(&resolver, format!("nameserver {server}\n")).expect("a file");
    let script = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {} /etc/resolv.conf && exec {} \"$@\"' sh \"$@\"\n",
        resolver.display(),
        real.display()
    );
    std::fs::write(&wrapper, script).expect("a script");
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    wrapper
}

/// A server of names on the router, with these records.
fn serve(lab: &Lab, folder: &Path, records: &str) -> Ends {
    let file = folder.join("dnsmasq.conf");
    std::fs::write(&file, format!("no-resolv\nno-hosts\nuser=root\npid-file\nport=53\n{records}"))
        .expect("a file");
    let mut command = lab.command(Node::Router, "dnsmasq").expect("a command");
    Ends(command.arg("--keep-in-foreground").arg("-C").arg(&file).spawn().expect("a server"))
}

#[test]
fn they_find_each_other_by_names() {
    if crate::program(&["dnsmasq", "unshare"]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = asks(folder.path(), "2001:db8:fa::1");
    let mut lab = scene::up(Lab::builder(program));
    // Of A there is a sealed record for B, of B an address that anybody may know.
    edit(&mut lab, Site::A, |text| format!("{text}\nkeepalive = \"10s\"\ndns = \"site-b.example.net\"\n"));
    edit(&mut lab, Site::B, |text| format!("{text}\nkeepalive = \"10s\"\ndns_record = \"k7.example.net\"\n"));
    for (site, _) in SITES {
        reload(&mut lab, site);
    }
    let file = lab.gateway(Site::A).configuration().to_string_lossy().into_owned();
    let record = |place: &str| sidestep(&lab, Node::GatewayA, &["seal-prefix", &file, "site-b", place]);
    let (old, new) = (record("2001:db8:a1::/64"), record(NEW[0]));
    assert!(old.trim().len() == 96 && new.trim().len() == 96 && old != new, "{old} {new}");
    let first = serve(
        &lab,
        folder.path(),
        &format!(
            "txt-record=k7.example.net,{}\nhost-record=site-b.example.net,2001:db8:b1::77\n",
            old.trim()
        ),
    );
    renumber(&mut lab);
    // What DNS says is not so any more.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(!have_met(&lab));
    drop(first);
    let _second = serve(
        &lab,
        folder.path(),
        &format!(
            "txt-record=k7.example.net,{}\nhost-record=site-b.example.net,2001:db8:b9::77\n",
            new.trim()
        ),
    );
    wait_until("the two have met", || have_met(&lab));
    lab.wait_connected(std::time::Duration::from_secs(10)).expect("hosts that reach each other");
}
