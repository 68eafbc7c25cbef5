//! Capture of an interface's packets into a pcap file, and reading it back.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wire::ethernet::{ETHERTYPE_IPV6, Frame};
use wire::pcap::{self, Capture, LINKTYPE_ETHERNET, Record};
use wire::{ipv6, tcp, udp};

use crate::Error;
use crate::frame_socket::{FrameSocket, MAXIMUM_FRAME, wait};
use crate::lab::Lab;
use crate::process::{Process, tail};
use crate::topology::Node;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A capture that runs as a process on a machine of a lab.
#[derive(Debug)]
pub struct Recording {
    process: Process,
    file: PathBuf,
}

impl Recording {
    /// Starts it on an interface of a machine; every packet from here on is in it.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(lab: &Lab, node: Node, interface: &str) -> Result<Self, Error> {
        let name = format!("{}-{interface}", node.suffix());
        let file = lab.directory().join(format!("{name}.pcap"));
        let _ = std::fs::remove_file(&file);
        let path = file.to_string_lossy().into_owned();
        let log = lab.directory().join(format!("capture-{name}.log"));
        let mut process = Process::start(&mut lab.own_command(node, &["capture", interface, &path])?, &log)?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::fs::metadata(&file).map_or(0, |file| file.len()) < pcap::HEADER_LEN as u64 {
            if process.ended().is_some() || Instant::now() > deadline {
                process.kill();
                return Err(Error::output("capture", tail(&log)));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { process, file })
    }

    /// The pcap file, which other tools read too.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Ends it and reads what it captured.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn finish(self) -> Result<Vec<Packet>, Error> {
        // What is in the socket's buffer is written before the process ends.
        self.process.stop(Duration::from_secs(5));
        read(&self.file)
    }
}

/// Writes what passes an interface, in both directions, into a pcap file until `stop` is set.
///
/// # Errors
/// When the interface does not exist or the file cannot be written.
pub fn record(interface: &str, path: &Path, stop: &Arc<AtomicBool>) -> Result<(), Error> {
    let port = FrameSocket::open(interface, true)?;
    port.stamp()?;
    let failed = |source| Error::file(path, source);
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    file.write_all(&file_header()).map_err(failed)?;
    // The file with its header is the sign that the capture has begun.
    file.flush().map_err(failed)?;
    let mut buffer = vec![0; MAXIMUM_FRAME];
    let mut running = true;
    while running {
        running = !stop.load(Ordering::Relaxed);
        wait([&port, &port], Duration::from_millis(100))?;
        while let Some((frame, time)) = port.receive_stamped(&mut buffer)? {
            file.write_all(&Record { time, octets: frame }.header()).map_err(failed)?;
            file.write_all(frame).map_err(failed)?;
        }
        file.flush().map_err(failed)?;
    }
    Ok(())
}

fn file_header() -> [u8; pcap::HEADER_LEN] {
    pcap::Header { link_type: LINKTYPE_ETHERNET, longest: MAXIMUM_FRAME as u32 }.to_bytes()
}

/// An IPv6 packet as an observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When, in Unix time.
    pub time: Duration,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// The next-header field of the IPv6 header: 17 is UDP, 58 ICMPv6; anything else but 6 would be an
    /// extension header.
    pub next_header: u8,
    /// Ports, source and destination; zero if it is neither UDP nor TCP.
    pub ports: (u16, u16),
    /// Length of the IPv6 packet in bytes.
    pub length: usize,
    /// What follows the UDP header; of another packet, what follows the IPv6 header.
    pub payload: Vec<u8>,
}

impl Packet {
    /// Whether it is a UDP datagram.
    pub fn is_udp(&self) -> bool {
        self.next_header == UDP
    }

    fn parse(time: Duration, frame: &[u8]) -> Option<Self> {
        let frame = Frame::parse(frame).ok().filter(|frame| frame.ethertype() == ETHERTYPE_IPV6)?;
        let packet = ipv6::Packet::parse(frame.payload()).ok()?;
        let datagram = udp::Datagram::parse(packet.payload()).ok().filter(|_| packet.next_header() == UDP);
        let segment = tcp::Segment::parse(packet.payload()).ok().filter(|_| packet.next_header() == TCP);
        let ports = match (&datagram, &segment) {
            (Some(datagram), _) => (datagram.source_port(), datagram.destination_port()),
            (_, Some(segment)) => (segment.source_port(), segment.destination_port()),
            _ => (0, 0),
        };
        Some(Self {
            time,
            source: packet.source(),
            destination: packet.destination(),
            next_header: packet.next_header(),
            ports,
            length: ipv6::HEADER_LEN + packet.payload().len(),
            payload: datagram.as_ref().map_or(packet.payload(), |datagram| datagram.payload()).to_vec(),
        })
    }
}

/// The IPv6 packets of a pcap file of Ethernet frames, also of one that is still being written or was cut off.
///
/// # Errors
/// When it cannot be read or is not such a file.
pub fn read(path: &Path) -> Result<Vec<Packet>, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::file(path, source))?;
    parse(&bytes)
        .ok_or_else(|| Error::output(path.display().to_string(), "not a pcap file of Ethernet frames"))
}

fn parse(bytes: &[u8]) -> Option<Vec<Packet>> {
    let capture = Capture::parse(bytes).ok().filter(|capture| capture.link_type() == LINKTYPE_ETHERNET)?;
    Some(capture.records().flatten().filter_map(|record| Packet::parse(record.time, record.octets)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let time = Duration::new(1_700_000_000, 123_456_789);
        let mut frame = vec![0; 14 + 40 + 8 + 4];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[14] = 0x60;
        frame[19] = 12;
        frame[20] = UDP;
        frame[54..62].copy_from_slice(&[0x10, 0x92, 0x10, 0x93, 0, 12, 0, 0]);
        frame[62..].copy_from_slice(b"data");
        let mut file = file_header().to_vec();
        file.extend(Record { time, octets: &frame }.header());
        file.extend(&frame);
        file.extend(Record { time, octets: &[0; 1_000] }.header());
        let packets = parse(&file).expect("a pcap file");
        assert_eq!(packets.len(), 1, "the second record is cut off");
        assert_eq!((packets[0].time, packets[0].ports, packets[0].length), (time, (4242, 4243), 52));
        assert_eq!(packets[0].payload, b"data");
    }
}
