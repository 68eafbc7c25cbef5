//! What a connection is told by its user.

use std::time::Duration;

/// Options of a connection. [`Config::new`] has what is right for nearly everybody.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The largest payload that fits a packet of the interface: its MTU less the IP and TCP headers without options, and
    /// what IPsec adds. It is told to the other end, and is where ours begins.
    pub max_segment_size: u16,
    /// How far the receive buffer may grow, in bytes. More lets a fast and long path be filled; an application that does
    /// not read holds so much memory.
    pub max_receive_buffer: usize,
    /// How far the send buffer may grow, in bytes.
    pub max_send_buffer: usize,
    /// Whether small segments wait while one is outstanding (RFC 896): fewer packets, later.
    pub nagle: bool,
    /// Whether a window leaves spread over its round trip, where that is longer than a millisecond and the window larger
    /// than ten segments: shallow queues on the way drop less, for a timer in each millisecond.
    pub pacing: bool,
    /// Whether explicit congestion notification is offered and accepted (RFC 3168).
    pub ecn: bool,
    /// Probes while nothing else is sent. Off unless asked for, as RFC 9293 §3.8.4 requires.
    pub keepalive: Option<KeepAlive>,
    /// The Differentiated Services codepoint of what is sent, six bits (RFC 9293 §3.9.1.9, MUST-48).
    pub dscp: u8,
    /// The hop limit, or time to live, of what is sent (MUST-49 of RFC 9293 §3.9.2); `None`: that of the link.
    pub hop_limit: Option<u8>,
    /// How long data may stay unacknowledged (RFC 9293 §3.8.3, R2).
    pub user_timeout: Duration,
}

/// When to probe, and when to give up.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Between probes.
    pub interval: Duration,
    /// Probes without an answer, after which the connection is dead; at least two, as one may be lost.
    pub probes: u8,
}

impl Default for KeepAlive {
    /// Two hours, as RFC 9293 §3.8.4 requires, then nine probes in 11 minutes.
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

impl Config {
    /// The defaults for an interface that carries segments of `max_segment_size`.
    pub const fn new(max_segment_size: u16) -> Self {
        Self {
            max_segment_size,
            max_receive_buffer: 8 << 20,
            max_send_buffer: 8 << 20,
            nagle: true,
            pacing: true,
            ecn: true,
            keepalive: None,
            dscp: 0,
            hop_limit: None,
            user_timeout: Duration::from_secs(300),
        }
    }

    /// The window of a SYN, which is never scaled (RFC 7323 §2.2).
    pub(super) fn initial_window(&self) -> u16 {
        u16::try_from(self.max_receive_buffer.min(INITIAL_RECEIVE_BUFFER)).unwrap_or(u16::MAX)
    }

    /// Shift of the window field that lets the largest buffer be told (RFC 7323 §2.3).
    pub(super) fn window_scale(&self) -> u8 {
        (0..MAX_WINDOW_SCALE)
            .find(|shift| usize::from(u16::MAX) << shift >= self.max_receive_buffer)
            .unwrap_or(MAX_WINDOW_SCALE)
    }
}

/// RFC 7323 §2.3.
pub(super) const MAX_WINDOW_SCALE: u8 = 14;

/// Where the receive buffer begins: four initial windows of ten segments.
pub(super) const INITIAL_RECEIVE_BUFFER: usize = 64 * 1024;
