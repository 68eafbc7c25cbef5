//! What is asked on the socket, and how it is answered.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is answered by one that ends.
pub const ENDING: &str = "the daemon is shutting down";

/// In the answer to [`Request::Reload`]: why the packet scripts stay as they were. All else is in force.
pub(crate) const SCRIPTS_REFUSED: &str = "scripts_refused";

/// The longest request that needs no saying, in bytes.
pub const SHORT: usize = 4096;

/// What is asked of a daemon. Each request says of itself what comes of it: there is no other list of those that members of the
/// groups may use.
pub trait Ask: DeserializeOwned {
    /// The longest request of the owner, in bytes. Others' are no longer than [`SHORT`].
    const LONGEST: usize = SHORT;

    /// What comes of it.
    fn effect(&self) -> Effect;
}

/// What comes of a request. Who may ask for one of these may ask for those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It is answered, and nothing else.
    Looks,
    /// The daemon reads again what belongs to its owner, and takes it over or not; or is met in its turn, if its owner wants that.
    Reloads,
    /// Anything else.
    Changes,
}

/// What a client can ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The status.
    Show,
    /// What has happened.
    Events {
        /// After the event with this number; 0 for all that is remembered.
        #[serde(default)]
        after: u64,
    },
    /// What the firewall has counted, of all its rules: [`Firewall`](crate::router_status::Firewall), or null where none is
    /// applied. Only a gateway knows.
    Firewall,
    /// What a gateway's firewall does with a packet, and why; nothing is sent.
    Explain {
        /// The packet, in the words of `sidestep firewall explain`.
        packet: String,
    },
    /// Try to reach a peer, if there is no session with it.
    Reach {
        /// Its configured name.
        peer: String,
    },
    /// Read the configuration again. Where it is in force but for its packet scripts, [the answer](Reply::but_scripts) says so.
    Reload {
        /// Milliseconds after which what was before comes back, unless that is confirmed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_ms: Option<u32>,
    },
    /// Of two gateways of a site this one is met from now on, or not; without either, only which it is. Answered by a
    /// [`Turn`](crate::standby::Turn). For an agent: it does nothing where the daemon's owner has not written `[standby]`.
    Turn {
        /// What it is to be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        be: Option<crate::standby::Be>,
    },
    /// What waits for its confirmation stays.
    Confirm,
    /// End. The answer comes before.
    Down,
    /// Set the test offset of the wall clock; refused unless the daemon was started for tests.
    TestClockOffset {
        /// Milliseconds that are added to the wall clock.
        ms: i64,
    },
}

impl Ask for Request {
    fn effect(&self) -> Effect {
        match self {
            Request::Show
            | Request::Events { .. }
            | Request::Firewall
            | Request::Explain { .. }
            | Request::Turn { be: None } => Effect::Looks,
            // Without a time: what somebody else waits to confirm is not to be in its place.
            Request::Reload { confirm_ms: None } | Request::Turn { be: Some(_) } => Effect::Reloads,
            // Reaching sends datagrams.
            Request::Reach { .. }
            | Request::Reload { confirm_ms: Some(_) }
            | Request::Confirm
            | Request::Down
            | Request::TestClockOffset { .. } => Effect::Changes,
        }
    }
}

impl Reply {
    /// What was asked for, as a document.
    pub fn of(document: &impl Serialize) -> Self {
        serde_json::to_value(document).map_or_else(|error| Reply::Error(error.to_string()), Reply::Ok)
    }

    /// The configuration was read again and is in force, but its packet scripts stay as they were, for this reason.
    pub fn but_scripts(why: &dyn std::fmt::Display) -> Self {
        Reply::Ok(serde_json::json!({ SCRIPTS_REFUSED: why.to_string() }))
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// What was asked for.
    Ok(Value),
    /// Why it was refused.
    Error(String),
}
