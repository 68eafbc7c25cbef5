//! What the observer saw, as flows: who reads them knows neither prefixes nor keys.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::path::Path;

use lab::Error;
use lab::capture::Packet;
use serde::Serialize;

use super::options::LinkingOptions;
use super::scene::pair_of;

/// The flows and what they are in truth.
pub(super) const FLOWS: &str = "flows.json";
/// All datagrams: flow, microseconds, direction, bytes.
pub(super) const DATAGRAMS: &str = "datagrams.csv";

/// The datagrams between two endpoints.
#[derive(Debug, Serialize)]
struct Flow {
    /// The truth: which pair it is of, and what that carries.
    pair: u8,
    kind: String,
    /// Ports, and the parts of the addresses that are drawn, of both sites.
    ports: [u16; 2],
    identifiers: [u64; 2],
}

/// All of it.
#[derive(Debug, Serialize)]
struct Recording {
    pairs: u8,
    /// Seconds, of a lane on average.
    rotation: f64,
    lanes: u8,
    flows: Vec<Flow>,
}

/// Writes the files that the judges read.
///
/// # Errors
/// When they cannot be written, or nothing was seen.
pub(super) fn write(packets: &[Packet], options: &LinkingOptions, folder: &Path) -> Result<(), Error> {
    let mut numbers = HashMap::new();
    let (mut flows, mut datagrams) = (Vec::new(), String::new());
    let Some(begin) = packets.first().map(|packet| packet.time) else {
        return Err(Error::output("capture", "nothing was seen"));
    };
    for packet in packets.iter().filter(|packet| packet.is_udp()) {
        let Some((pair, site)) = pair_of(packet) else { continue };
        let mut ends = [(packet.source, packet.ports.0), (packet.destination, packet.ports.1)];
        if site == 1 {
            ends.reverse();
        }
        let number = *numbers.entry(ends).or_insert_with(|| {
            flows.push(Flow {
                pair,
                kind: options.kind(pair).to_string(),
                ports: ends.map(|(_, port)| port),
                identifiers: ends.map(|(address, _)| identifier(address)),
            });
            flows.len() - 1
        });
        let micros = packet.time.saturating_sub(begin).as_micros();
        let _ = writeln!(datagrams, "{number},{micros},{site},{}", packet.length);
    }
    let rotation = humantime::parse_duration(&options.rotation)
        .map_err(|error| Error::Usage(format!("--rotation {}: {error}", options.rotation)))?;
    let recording =
        Recording { pairs: options.pairs, rotation: rotation.as_secs_f64(), lanes: options.lanes(), flows };
    let text = serde_json::to_string(&recording).map_err(|error| Error::output("flows", error))?;
    std::fs::create_dir_all(folder).map_err(|source| Error::file(folder, source))?;
    for (name, text) in [(FLOWS, text), (DATAGRAMS, datagrams)] {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|source| Error::file(path, source))?;
    }
    Ok(())
}

/// The bits that no part of a /64 fixes.
fn identifier(address: Ipv6Addr) -> u64 {
    u128::from(address) as u64 & ((1 << 56) - 1)
}
