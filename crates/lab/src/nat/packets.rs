//! Small packets as fast as a host sends them: how many reach the other one in a second.
//!
//! They leave in batches that the kernel cuts (UDP_SEGMENT), so that the sender costs little, and are dropped where they
//! arrive. So what is measured is mostly the router, which works on the sender's processor here.

use std::path::Path;

use serde::Deserialize;

use super::scene::Scene;
use crate::Error;
use crate::command::{check, text};
use crate::topology::Site;
use crate::traffic::{Hosts, generator};
use crate::udp_stream::Sent;

/// Octets of payload.
pub(super) const SIZE: usize = 64;
/// How many are sent.
pub(super) const COUNT: u32 = 1_000_000;
/// The metric's name.
pub(super) const KEY: &str = "packets_64";
/// Where they are dropped.
pub(super) const PORT: u16 = 4243;

/// Packets in a second.
pub(super) fn carried(scene: &Scene) -> Result<f64, Error> {
    let target = std::net::SocketAddr::new(scene.address(Site::B, false), PORT).to_string();
    // No host sends so many in a second: it sends them as fast as it can.
    let (rate, size) = ((COUNT * 10).to_string(), SIZE.to_string());
    let words =
        ["udp-send", "--to", &target, "--rate", &rate, "--size", &size, "--seconds", "0.1", "--batched"];
    let before = arrived(scene)?;
    let output = text(&check(&mut generator(scene, Site::A, &words)?)?);
    let sent: Sent = serde_json::from_str(&output)
        .map_err(|error| Error::output("udp-send", format!("{error}: {output}")))?;
    // What a queue still holds would be missing.
    std::thread::sleep(std::time::Duration::from_millis(100));
    Ok((arrived(scene)? - before) as f64 / (sent.took_us.max(1) as f64 / 1e6))
}

/// Packets that were dropped at the server so far.
fn arrived(scene: &Scene) -> Result<u64, Error> {
    #[derive(Deserialize)]
    struct Listing {
        nftables: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        counter: Option<Counter>,
    }
    #[derive(Deserialize)]
    struct Counter {
        packets: u64,
    }
    let mut command = scene.on(Site::B, Path::new("nft"))?;
    let output = text(&check(command.args(["-j", "list", "counters"]))?);
    let listing: Listing =
        serde_json::from_str(&output).map_err(|error| Error::output("nft -j list counters", error))?;
    let counter = listing.nftables.into_iter().find_map(|entry| entry.counter);
    counter.map(|counter| counter.packets).ok_or_else(|| Error::output("nft", "there is no counter"))
}
