//! `capture`: the packets of a host that answers, as a pcap file or a line each.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linux::event::Signals;
use stack::interface::Medium;
use stack_runtime::device::{Captured, Recorded};
use wire::{ethernet, ipv4, ipv6, protocol};

use super::options::HostOptions;
use crate::failure::Failure;

/// How often is looked whether the user has seen enough.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Options of `capture`.
#[derive(Debug, Args)]
pub(crate) struct CaptureOptions {
    #[command(flatten)]
    host: HostOptions,
    /// Write a pcap file in place of text
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Captures until it is interrupted.
pub(crate) fn run(options: &CaptureOptions) -> Result<(), Failure> {
    let signals = Signals::new()?;
    type Show = Box<dyn FnMut(Captured<'_>) -> io::Result<()> + Send>;
    let show: Show = match &options.output {
        None => Box::new(|captured| writeln!(io::stdout(), "{}", line(&captured))),
        Some(path) => {
            let file = File::create(path)
                .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
            let mut file = Some(file);
            let mut write: Option<Show> = None;
            // What the file is of is known with the first packet.
            Box::new(move |captured: Captured<'_>| {
                if let Some(file) = file.take() {
                    write = Some(Box::new(Recorded::to_pcap(file, captured.medium)?));
                }
                write.as_mut().map_or(Ok(()), |write| write(captured))
            })
        }
    };
    let running = options.host.start_at_once(Some(show))?;
    while signals.read()?.is_none() {
        match running.stack.next_event(LOOK_EVERY) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Failure::ClosedOutput),
            Err(error) if error.kind() != io::ErrorKind::TimedOut => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// One line about a packet.
fn line(captured: &Captured<'_>) -> String {
    let direction = if captured.sent { '>' } else { '<' };
    let time = captured.record.time;
    let what = packet(captured.medium, captured.record.octets).unwrap_or_else(|| "malformed".to_owned());
    format!("{}.{:06} {direction} {what}", time.as_secs(), time.subsec_micros())
}

fn packet(medium: Medium, octets: &[u8]) -> Option<String> {
    let packet = match medium {
        Medium::Ip => octets,
        Medium::Ethernet(_) => {
            let frame = ethernet::Frame::parse(octets).ok()?;
            if ![ethernet::ETHERTYPE_IPV6, ethernet::ETHERTYPE_IPV4].contains(&frame.ethertype()) {
                let (from, to) = (frame.source(), frame.destination());
                return Some(format!("{from} > {to} ethertype 0x{:04x}", frame.ethertype()));
            }
            frame.payload()
        }
    };
    let length = packet.len();
    if packet.first()? >> 4 == 4 {
        let view = ipv4::Packet::parse(packet).ok()?;
        let (from, to) = (IpAddr::V4(view.source()), IpAddr::V4(view.destination()));
        return Some(summary(from, to, view.protocol(), view.payload(), length));
    }
    let view = ipv6::Packet::parse(packet).ok()?;
    let (from, to) = (IpAddr::V6(view.source()), IpAddr::V6(view.destination()));
    match view.upper_layer() {
        Ok(upper) if upper.is_later_fragment() => Some(format!("{from} > {to} fragment, {length} octets")),
        Ok(upper) => Some(summary(from, to, upper.protocol, packet.get(upper.offset..)?, length)),
        Err(_) => Some(format!("{from} > {to} malformed headers, {length} octets")),
    }
}

fn summary(from: IpAddr, to: IpAddr, upper: u8, payload: &[u8], length: usize) -> String {
    let name = match upper {
        protocol::TCP => "tcp",
        protocol::UDP => "udp",
        protocol::ICMPV6 | protocol::ICMPV4 => "icmp",
        protocol::ESP => "esp",
        protocol::AUTHENTICATION => "ah",
        other => return format!("{from} > {to} protocol {other}, {length} octets"),
    };
    match (upper, payload) {
        (protocol::TCP | protocol::UDP, [a, b, c, d, ..]) => {
            let (source, destination) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
            format!("{from} > {to} {name} {source} > {destination}, {length} octets")
        }
        (protocol::ICMPV6 | protocol::ICMPV4, [kind, code, ..]) => {
            format!("{from} > {to} {name} type {kind} code {code}, {length} octets")
        }
        _ => format!("{from} > {to} {name}, {length} octets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::ethernet::MacAddress;

    #[test]
    fn a_datagram_is_one_line() {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: 8,
            next_header: protocol::UDP,
            hop_limit: 64,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        };
        let packet = [&header.to_bytes()[..], &[0, 53, 0, 54, 0, 8, 0, 0]].concat();
        let line = super::packet(Medium::Ip, &packet).unwrap();
        assert_eq!(line, "2001:db8::1 > 2001:db8::2 udp 53 > 54, 48 octets");
    }

    proptest! {
        #[test]
        fn never_panics(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = packet(Medium::Ip, &octets);
            let _ = packet(Medium::Ethernet(MacAddress([2; 6])), &octets);
        }
    }
}
