//! Turns of the two gateways of a site (`[standby]`), between a daemon and the agent beside it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// What the agent wants the daemon to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Be {
    /// Its turn; null: it is not met.
    pub turn: Option<u64>,
    /// Whether it may tell its links that the addresses of the active one are with it.
    #[serde(default)]
    pub announce: bool,
    /// Until when nothing new comes of this, in milliseconds of CLOCK_BOOTTIME: what a daemon or an agent that stood still finds
    /// in its socket is over.
    pub until_ms: u64,
    /// What the agent knows.
    pub view: View,
}

/// What an agent knows of the two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The last turn that anybody has begun, as far as is known.
    pub known: u64,
    /// What the other gateway said last: `active`, `able` or `unable`; null if it was not heard.
    #[serde(default)]
    pub other: Option<String>,
    /// How long ago, in milliseconds.
    #[serde(default)]
    pub other_ms: Option<u64>,
    /// Whether a controller answers.
    #[serde(default)]
    pub register: bool,
}

/// What the daemon answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Its turn; null: it is not met.
    pub turn: Option<u64>,
    /// Where the two gateways hear each other, as configured.
    pub gateways: Vec<IpAddr>,
    /// After how many milliseconds without a sign of life the other one is doubted.
    pub silence_ms: u64,
}

/// What `sidestep show` says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its turn; null: it is not met.
    pub turn: Option<u64>,
    /// Seconds since it became that.
    pub since_s: u64,
    /// What the agent knows; null if it has said nothing yet.
    pub view: Option<View>,
    /// How long ago it said that, in milliseconds.
    pub view_ms: Option<u64>,
}
