//! Twenty sites out of `contrib/fleet/twenty-sites`, run as a user does; then one comes and one goes, under traffic.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lab::machines::Machines;

use super::latency;
use super::sites::{Sites, wait_until};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/fleet/twenty-sites");
/// What the script calls its machines.
const PREFIX: &str = "fleet";
const SITES: usize = 20;
/// The one that leaves, and the one that comes.
const LEAVES: usize = 20;
const COMES: usize = 21;

/// Ends what the script has started, however the test ends.
struct Ending(Machines);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

#[test]
fn ten_lines_make_a_fleet_of_twenty_sites() {
    let Some(program) = crate::program(&["bash"]) else { return };
    let text = std::fs::read_to_string(SCRIPT).expect("the script");
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).count();
    assert_eq!(lines, 10, "{text}");

    let machines = Machines::named(PREFIX);
    let ending = Ending(machines.clone());
    let tools = tempfile::tempdir().expect("a folder");
    for (name, program) in
        [("sidestep", program.clone()), ("sidestep-lab", lab::helper::program().expect("the lab"))]
    {
        let program = std::path::absolute(program).expect("a path");
        std::os::unix::fs::symlink(program, tools.path().join(name)).expect("a link");
    }
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap_or_default());
    let log = tools.path().join("said");
    let said = File::create(&log).expect("a file");
    let begin = Instant::now();
    let mut script = Command::new("bash");
    script
        .arg(SCRIPT)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(said.try_clone().expect("a file"))
        .stderr(said);
    let status = script.status().expect("bash");
    let said = std::fs::read_to_string(&log).expect("what it said");
    assert!(status.success(), "{said}");
    let signed = begin.elapsed();

    // The script works in a folder that it names first.
    let folder = PathBuf::from(said.lines().next().expect("a folder"));
    let mut sites = Sites::new(machines.clone(), program);
    sites.control = "/var/lib/sidestep-control".into();
    sites.key = folder.join("sidestep-administrator.key");
    let all: Vec<usize> = (1..=SITES).collect();
    sites.wait_until_all_reach(&all, &all);
    eprintln!(
        "{SITES} sites: signed {:.1} s after nothing, each reaches each other {:.1} s after it",
        signed.as_secs_f64(),
        begin.elapsed().as_secs_f64()
    );

    machines.make(COMES).expect("one more machine");
    let name = format!("site-{COMES}");
    let pings = [(2, 1), (3, 17), (18, 5), (1, 19)]
        .map(|(from, to)| sites.ping(from, to, 50, Duration::from_secs(12)));
    let invitation = sites.administer(&["invite", "--site", &name]);
    sites.enroll(COMES, invitation.trim());
    sites.sign(&["approve", &name, "--wait", "1m"]);
    sites.begin(COMES);
    sites.wait_until_all_reach(&[COMES], &[1, 2, 19]);
    let others: Vec<usize> = (1..=COMES).filter(|site| *site != LEAVES).collect();
    for latencies in latency::revoke(&sites, LEAVES, &others) {
        eprintln!("{latencies}");
    }
    wait_until("the one that left is out", || !sites.reaches(LEAVES, 1) && !sites.reaches(1, LEAVES));
    for pings in pings {
        let (sent, lost) = sites.count(pings);
        assert!(sent > 0 && lost == 0, "{lost} of {sent} lost");
    }
    sites.wait_until_all_reach(&[2, COMES], &others);
    drop(ending);
}
