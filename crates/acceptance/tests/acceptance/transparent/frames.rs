//! Frames as somebody at a port of a switch sees them.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use lab::patience::wait_until;
use lab::process::Process;

use super::scene::TransparentScene;

/// A capture that runs.
pub(crate) struct Capture {
    process: Process,
    file: PathBuf,
}

impl Capture {
    /// Of both directions.
    pub(crate) fn start(scene: &TransparentScene, node: &str, port: &str) -> Self {
        let file = scene.lab.directory().join(format!("{node}-{port}.pcap"));
        let words = [
            "tcpdump",
            "-i",
            port,
            "-s",
            "0",
            "-B",
            "32768",
            "--immediate-mode",
            "-U",
            "-w",
            &file.to_string_lossy(),
        ]
        .map(str::to_owned);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let process = scene.start(node, &words, &format!("{node}-{port}.log"));
        wait_until("tcpdump", || file.metadata().is_ok_and(|file| file.len() >= 24));
        Capture { process, file }
    }

    /// Its frames.
    pub(crate) fn finish(self) -> Vec<Vec<u8>> {
        std::thread::sleep(Duration::from_millis(300));
        self.process.stop(Duration::from_secs(5));
        let bytes = std::fs::read(&self.file).expect("a capture");
        let mut frames = Vec::new();
        let mut rest = &bytes[24..];
        while let Some(length) = rest.get(8..12).map(|length| u32::from_le_bytes(length.try_into().unwrap()))
        {
            let Some(frame) = rest.get(16..16 + length as usize) else { break };
            frames.push(frame.to_vec());
            rest = &rest[16 + frame.len()..];
        }
        frames
    }
}

/// Whether the bytes are anywhere in the frame.
pub(crate) fn holds(frame: &[u8], bytes: &[u8]) -> bool {
    frame.windows(bytes.len()).any(|window| window == bytes)
}

/// The IPv6 addresses, next header and payload of a frame.
pub(crate) fn ipv6(frame: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr, u8, &[u8])> {
    if frame.get(12..14)? != [0x86, 0xdd] {
        return None;
    }
    let address = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(frame.get(at..at + 16)?).ok()?));
    Some((address(22)?, address(38)?, frame[20], frame.get(54..)?))
}
