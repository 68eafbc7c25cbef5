//! What contenders with sockets that block do with their connections: they take at [`SINK`], and give at any other port.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::load::SINK;

/// How often it is looked for a stop.
const IDLE: Duration = Duration::from_millis(200);
/// Of one read or write.
const CHUNK: usize = 256 * 1024;

/// Until the client ends it.
pub(super) fn serve(mut stream: impl Read + Write, port: u16) {
    let mut chunk = vec![0x5a; CHUNK];
    if port == SINK {
        while stream.read(&mut chunk).is_ok_and(|length| length > 0) {}
    } else {
        while stream.write_all(&chunk).is_ok() {}
    }
}

/// Waits until `stop` is set.
pub(super) fn wait(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(IDLE);
    }
}
