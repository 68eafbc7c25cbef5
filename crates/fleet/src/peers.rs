//! A plan as a file that a gateway's configuration includes.

use std::fmt::Write as _;

use ipnet::IpNet;

use crate::plan::{Plan, PlannedPeer};

/// The first line, by which others see whose the file is.
pub const OURS: &str =
    "# Written by `sidestep agent`: what is changed here is lost when something changes in its fleet.\n";

/// The file: a `[[peer]]` table for each peer of a plan.
#[must_use]
pub fn text(plan: &Plan) -> String {
    let mut text = OURS.to_owned();
    for peer in &plan.peers {
        table(&mut text, peer);
    }
    text
}

fn table(text: &mut String, peer: &PlannedPeer) {
    let PlannedPeer { name, contact, keepalive, networks } = peer;
    let all: Vec<&IpNet> = networks.values().flatten().collect();
    let mut add = |line: std::fmt::Arguments<'_>| text.write_fmt(line).expect("a text takes all");
    add(format_args!("\n[[peer]]\nname        = \"{name}\"\n"));
    add(format_args!("public_key  = \"{}\"\n", contact.key.0));
    if let Some(next) = &contact.next_key {
        add(format_args!("next_public_key = \"{}\"\n", next.0));
    }
    add(format_args!("hop_prefix  = \"{}\"\n", contact.hop_prefix));
    let list: Vec<String> = all.iter().map(|network| format!("\"{network}\"")).collect();
    add(format_args!("allowed_ips = [{}]\n", list.join(", ")));
    if let Some(seconds) = keepalive {
        add(format_args!("keepalive   = \"{seconds}s\"\n"));
    }
}
