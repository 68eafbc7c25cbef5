//! How a daemon is run: what is said on the command line beside the configuration.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Options of `sidestep up`.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The configuration.
    pub file: PathBuf,
    /// The control socket, by default `/run/sidestep/NAME.sock` with the tunnel's name.
    pub socket: Option<PathBuf>,
    /// Folder for what is remembered from one run to the next.
    pub state_dir: PathBuf,
    /// A program that is run at each event.
    pub on_event: Option<PathBuf>,
    /// A file for secrets that open captures of the tunnel.
    pub key_log: Option<PathBuf>,
    /// It ends after this time, unless that is confirmed.
    pub confirm: Option<Duration>,
    /// For tests: added to the wall clock, in milliseconds; the control socket may change it then.
    pub test_clock_offset_ms: Option<i64>,
    /// For tests: keys are renewed at this age.
    pub test_rekey_after: Option<Duration>,
    /// For tests: features that are done without.
    pub test_without: Vec<Feature>,
}

/// Features of the kernel and the processor that a test can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Segmentation offload of UDP sockets.
    UdpSegment,
    /// Receive offload of UDP sockets.
    UdpGro,
    /// Offloads of the TUN device.
    TunOffload,
    /// Of these, what carries UDP.
    TunUdpOffload,
    /// Queues of the TUN device, for flows of their own.
    TunQueues,
    /// One socket for all rendezvous endpoints.
    SkLookup,
    /// Links that attach BPF programs to interfaces: the queueing discipline clsact has to do.
    Tcx,
    /// Programs that replace addresses.
    Rewriting,
    /// Programs that mask another tunnel's packets.
    Masking,
    /// The processor's instructions for AES: packets are sealed with ChaCha20-Poly1305.
    Aes,
}

impl Feature {
    /// Each with its name.
    const NAMES: [(&str, Self); 10] = [
        ("udp-segment", Self::UdpSegment),
        ("udp-gro", Self::UdpGro),
        ("tun-offload", Self::TunOffload),
        ("tun-udp-offload", Self::TunUdpOffload),
        ("tun-queues", Self::TunQueues),
        ("sk-lookup", Self::SkLookup),
        ("tcx", Self::Tcx),
        ("rewriting", Self::Rewriting),
        ("masking", Self::Masking),
        ("aes", Self::Aes),
    ];
}

/// A text that names no [`Feature`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no such feature; choose from {}", Feature::NAMES.map(|(name, _)| name).join(", "))]
pub struct UnknownFeature;

impl FromStr for Feature {
    type Err = UnknownFeature;

    fn from_str(text: &str) -> Result<Self, UnknownFeature> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, feature)| *feature).ok_or(UnknownFeature)
    }
}
