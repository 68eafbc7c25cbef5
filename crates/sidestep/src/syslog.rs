//! Events as messages of syslog (RFC 5424), over UDP (RFC 5426).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use control::event::Event;

use crate::event_lines::printable;

/// What every receiver over IPv6 takes (RFC 5426 section 3.2).
const LONGEST: usize = 1_180;
/// The facility of system daemons (RFC 5424 table 1).
const DAEMON: u8 = 3;
/// What a name may have at the most: a host's, and a process's.
const LONGEST_HOST: usize = 255;
const LONGEST_PROCESS: usize = 128;
/// Says that the text behind it is UTF-8 (RFC 5424 section 6.4).
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A server that events are sent to.
pub(crate) struct Syslog {
    server: SocketAddr,
    socket: UdpSocket,
    host: String,
}

impl Syslog {
    /// Nothing is sent yet: whether somebody listens is not known.
    pub(crate) fn new(server: SocketAddr) -> io::Result<Self> {
        let socket = match server {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
        }?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(Self { server, socket, host: host.trim().to_owned() })
    }

    /// Tells the server what happened to `source`.
    pub(crate) fn send(&self, source: &str, event: &Event) -> io::Result<()> {
        self.socket.send_to(message(&self.host, source, event).as_bytes(), self.server).map(drop)
    }
}

fn message(host: &str, source: &str, event: &Event) -> String {
    let severity = match event.priority.as_str() {
        "error" => 3,
        "warning" => 4,
        _ => 6,
    };
    let text = printable(&event.message);
    let mark = if text.is_ascii() { String::new() } else { BYTE_ORDER_MARK.to_string() };
    let mut message = format!(
        "<{}>1 {} {} sidestep {} {} - {mark}{text}",
        DAEMON * 8 + severity,
        event.time,
        word(host, LONGEST_HOST),
        word(source, LONGEST_PROCESS),
        word(&event.event, 32),
    );
    message.truncate(message.floor_char_boundary(LONGEST));
    message
}

/// A word of the header: visible ASCII, or `-` where there is none.
fn word(text: &str, longest: usize) -> String {
    let word: String = text.chars().filter(char::is_ascii_graphic).take(longest).collect();
    if word.is_empty() { "-".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: &str) -> Event {
        Event {
            number: 1,
            time: "2026-01-01T00:00:00.000Z".to_owned(),
            unix_ms: 0,
            priority: "warning".to_owned(),
            event: "peer_silent".to_owned(),
            peer: None,
            reason: None,
            message: message.to_owned(),
            fields: serde_json::Map::new(),
        }
    }

    #[test]
    fn a_message_has_the_form_of_rfc_5424() {
        assert_eq!(
            message("gw 1", "mt6d0", &event("site-b is silent\n<0>forged")),
            "<28>1 2026-01-01T00:00:00.000Z gw1 sidestep mt6d0 peer_silent - site-b is silent\\n<0>forged"
        );
        assert!(
            message("", "mt6d0", &event("Zürich"))
                .ends_with(" - sidestep mt6d0 peer_silent - \u{feff}Zürich")
        );
    }

    #[test]
    fn none_is_longer_than_every_server_takes() {
        let long = message(&"h".repeat(999), "mt6d0", &event(&"ü".repeat(2_000)));
        assert!((LONGEST - 1..=LONGEST).contains(&long.len()), "{}", long.len());
    }
}
