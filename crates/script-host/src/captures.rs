//! Packets that scripts write to files: `nf.capture`.
//!
//! The files lie beside the host's socket, where nothing else of it is written, and have names that cannot lead out of there.
//! A file has [`LARGEST`] octets at most; then it is the one before, with `.1` in its name, and another begins. Of each
//! capture [`RATE`] packets in a second are written, and there are [`MOST`] captures.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use script::pcap::{Format, capture_name};
use tracing::warn;
use wire::pcap::{self, LINKTYPE_RAW, Record};
use wire::pcapng;

use super::log::Log;

/// Octets of a file.
const LARGEST: usize = 8 << 20;
/// Packets of a capture in a second.
const RATE: u32 = 1000;
/// Captures of a host.
const MOST: usize = 16;
/// What files say: no packet has more octets.
const LONGEST: u32 = 1 << 16;

/// The captures of a host, for all threads.
#[derive(Debug, Clone)]
pub(super) struct Captures {
    shared: Arc<Mutex<Shared>>,
    log: Log,
}

#[derive(Debug)]
struct Shared {
    /// `/run/sidestep/scripts-N`
    beginning: PathBuf,
    largest: usize,
    /// By their names, without `.pcapng`, which says nothing.
    captures: BTreeMap<String, Capture>,
    /// Whether it was said that there are too many.
    said: bool,
}

/// One of them.
#[derive(Debug)]
struct Capture {
    format: Format,
    path: PathBuf,
    /// None where it could not be written: that was said.
    file: Option<File>,
    length: usize,
    /// When this second began, and how many packets there were in it.
    since: Instant,
    count: u32,
}

impl Captures {
    /// Those of the host at this socket; nothing is written before the first packet.
    pub(super) fn beside(socket: &Path, log: Log) -> Self {
        let beginning = socket.with_extension("");
        let shared = Shared { beginning, largest: LARGEST, captures: BTreeMap::new(), said: false };
        Self { shared: Arc::new(Mutex::new(shared)), log }
    }

    /// Writes a packet, which begins with an IP header, for a script.
    pub(super) fn add(&self, id: u32, name: &str, packet: &[u8]) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = shared.add(name, packet, Instant::now()) {
            warn!("script {id}: {what}");
            self.log.add(id, &what);
        }
    }
}

impl Shared {
    /// What is to be said of it, if anything.
    fn add(&mut self, name: &str, packet: &[u8], now: Instant) -> Option<String> {
        let name = name.strip_suffix(".pcapng").unwrap_or(name);
        if !self.captures.contains_key(name) {
            if self.captures.len() == MOST {
                let first = !std::mem::replace(&mut self.said, true);
                return first.then(|| format!("more than {MOST} captures: {name:?} is none"));
            }
            let (word, format) = capture_name(name).ok()?;
            let capture = Capture::new(&self.beginning, word, format, now);
            let said = match &capture {
                Ok(capture) => format!("capture {name:?}: {}", capture.path.display()),
                Err(error) => format!("capture {name:?} is not written: {error}"),
            };
            let none =
                || Capture { format, path: PathBuf::new(), file: None, length: 0, since: now, count: 0 };
            let capture = self.captures.entry(name.to_owned()).or_insert(capture.unwrap_or_else(|_| none()));
            return capture.add(packet, now, self.largest).or(Some(said));
        }
        self.captures.get_mut(name)?.add(packet, now, self.largest)
    }
}

impl Capture {
    fn new(beginning: &Path, word: &str, format: Format, now: Instant) -> io::Result<Self> {
        let end = match format {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
        };
        let mut path = beginning.as_os_str().to_owned();
        path.push(format!("-{word}.{end}"));
        let mut capture = Self { format, path: path.into(), file: None, length: 0, since: now, count: 0 };
        capture.begin()?;
        Ok(capture)
    }

    /// Begins a file; what there is under its name becomes the one before.
    fn begin(&mut self) -> io::Result<()> {
        self.file = None;
        let before = self.path.with_extension(match self.format {
            Format::Pcap => "1.pcap",
            Format::Pcapng => "1.pcapng",
        });
        match std::fs::rename(&self.path, before) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A link that somebody has put there is not followed: nobody but its owner may write in the folder, and it is new.
        let mut file = File::options().write(true).create_new(true).open(&self.path)?;
        let head = match self.format {
            Format::Pcap => pcap::Header { link_type: LINKTYPE_RAW, longest: LONGEST }.to_bytes().to_vec(),
            Format::Pcapng => [pcapng::section(), pcapng::interface(LINKTYPE_RAW, LONGEST)].concat(),
        };
        file.write_all(&head)?;
        (self.length, self.file) = (head.len(), Some(file));
        Ok(())
    }

    fn add(&mut self, packet: &[u8], now: Instant, largest: usize) -> Option<String> {
        self.file.as_ref()?;
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        if self.count > RATE {
            let path = self.path.display();
            return (self.count == RATE + 1)
                .then(|| format!("{path}: more than {RATE} packets in a second: the others are left out"));
        }
        let written = self.write(packet, largest);
        written.err().map(|error| {
            self.file = None;
            format!("{}: {error}: nothing more is captured there", self.path.display())
        })
    }

    fn write(&mut self, packet: &[u8], largest: usize) -> io::Result<()> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let record = Record { time, octets: packet };
        let octets = match self.format {
            Format::Pcap => [&record.header()[..], packet].concat(),
            Format::Pcapng => pcapng::enhanced_packet(0, &record),
        };
        if self.length + octets.len() > largest {
            self.begin()?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        self.length += octets.len();
        file.write_all(&octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(folder: &Path, largest: usize) -> Shared {
        let beginning = folder.join("scripts-7");
        Shared { beginning, largest, captures: BTreeMap::new(), said: false }
    }

    fn read(file: &Path) -> Vec<Vec<u8>> {
        let packets = script::pcap::read(&std::fs::read(file).expect("a file")).expect("a capture");
        packets.into_iter().map(|packet| packet.octets).collect()
    }

    #[test]
    fn packets_are_in_files_of_either_format_beside_the_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut shared = shared(folder.path(), LARGEST);
        for (name, file) in [("odd", "scripts-7-odd.pcapng"), ("odd.pcap", "scripts-7-odd.pcap")] {
            let said = shared.add(name, b"one", Instant::now()).expect("where it is");
            assert!(said.ends_with(file), "{said}");
            assert_eq!(shared.add(name, b"two", Instant::now()), None);
            assert_eq!(read(&folder.path().join(file)), [b"one", b"two"]);
        }
        // The same file by its other name.
        assert_eq!(shared.add("odd.pcapng", b"three", Instant::now()), None);
        assert_eq!(read(&folder.path().join("scripts-7-odd.pcapng")).len(), 3);
        assert_eq!(shared.add("../odd", b"one", Instant::now()), None);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn a_file_that_is_full_is_the_one_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("scripts-7-odd.pcap");
        std::fs::write(&file, "of an earlier host").expect("a file");
        let mut shared = shared(folder.path(), 24 + 2 * (16 + 3));
        shared.add("odd.pcap", b"one", Instant::now());
        let before = folder.path().join("scripts-7-odd.1.pcap");
        assert_eq!(std::fs::read(&before).expect("a file"), b"of an earlier host");
        for packet in [b"two", b"thr", b"fou", b"fiv"] {
            shared.add("odd.pcap", packet, Instant::now());
        }
        assert_eq!(read(&before), [b"thr", b"fou"]);
        assert_eq!(read(&file), [b"fiv"]);
    }

    #[test]
    fn there_are_so_many_packets_in_a_second_and_so_many_captures() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut shared = shared(folder.path(), LARGEST);
        let now = Instant::now();
        let said: Vec<_> = (0..3 * RATE).filter_map(|_| shared.add("a", b"one", now)).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[1].contains("more than 1000 packets in a second"), "{said:?}");
        let file = folder.path().join("scripts-7-a.pcapng");
        assert_eq!(read(&file).len(), RATE as usize);
        shared.add("a", b"one", now + Duration::from_secs(1));
        assert_eq!(read(&file).len(), RATE as usize + 1);
        let said: Vec<_> = (0..40).filter_map(|at| shared.add(&format!("c{at}"), b"one", now)).collect();
        assert_eq!(said.len(), MOST, "one for each file, and one that there are no more");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), MOST);
    }

    #[test]
    fn what_cannot_be_written_is_said_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut shared = shared(&folder.path().join("none"), LARGEST);
        let said = shared.add("a", b"one", Instant::now()).expect("something is said");
        assert!(said.contains("is not written: "), "{said}");
        assert_eq!(shared.add("a", b"one", Instant::now()), None);
    }
}
