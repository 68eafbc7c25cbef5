//! Features that tests do without, as options name them.

use clap::ValueEnum;
use config::run::Feature;

/// A [`Feature`], by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FeatureName {
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
    /// The processor's instructions for AES: packets are sealed with ChaCha20-Poly1305.
    Aes,
}

impl From<FeatureName> for Feature {
    fn from(name: FeatureName) -> Self {
        match name {
            FeatureName::UdpSegment => Self::UdpSegment,
            FeatureName::UdpGro => Self::UdpGro,
            FeatureName::TunOffload => Self::TunOffload,
            FeatureName::TunUdpOffload => Self::TunUdpOffload,
            FeatureName::TunQueues => Self::TunQueues,
            FeatureName::SkLookup => Self::SkLookup,
            FeatureName::Tcx => Self::Tcx,
            FeatureName::Rewriting => Self::Rewriting,
            FeatureName::Aes => Self::Aes,
        }
    }
}

/// The features of these names.
pub(crate) fn features(names: Vec<FeatureName>) -> Vec<Feature> {
    names.into_iter().map(Feature::from).collect()
}
