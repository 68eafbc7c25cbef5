//! The tests with gateways, hosts and traffic on this machine's kernel: the program runs as a user starts it, in networks
//! made of namespaces. `SIDESTEP_BIN` names the program; without it, and without root, they are skipped.

mod adversary;
mod charon;
mod confined;
mod doctor;
mod doctor_judges;
mod events;
mod firewall;
mod fixture;
mod fleet;
mod gateway_firewall;
mod hangs;
mod host;
mod hostile;
mod ike;
mod ipsec;
mod large_fleet;
mod onboarding;
mod onlookers;
mod promises;
mod recipes;
mod reference;
mod router;
mod screens;
mod scripts;
mod stack;
mod transition;
mod transparent;
mod tunnel;
mod two_gateways;
mod wireguard;
mod wireshark;
mod xfrm;

use std::path::PathBuf;

use lab::command::find;

/// The program under test. `None` where there is none, no root, or not all of these other programs: then a test is
/// skipped, which in continuous integration is a failure.
fn program(others: &[&str]) -> Option<PathBuf> {
    let program = std::env::var_os("SIDESTEP_BIN").map(PathBuf::from).filter(|path| path.exists());
    let there = others.iter().all(|other| find(other).is_some());
    let program = program.filter(|_| there && nix::unistd::geteuid().is_root());
    if program.is_none() {
        skip(&[&["root", "the program, in SIDESTEP_BIN"], others].concat().join(", "));
    }
    program
}

/// Says what a test is skipped for want of.
fn skip(needs: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "needs {needs}");
    eprintln!("skipped: needs {needs}");
}
