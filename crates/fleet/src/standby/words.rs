//! What gateways of one site say: to each other on their site's own links, and into the fleet's store.

use serde::{Deserialize, Serialize};

use crate::authority::NetworkId;
use crate::key::Digest;
use crate::name::Name;
use crate::signed::{Signed, Statement};

/// The UDP port at which gateways of a site hear each other, at their own addresses.
pub const BEAT_PORT: u16 = 4162;
/// Where a controller keeps whose turn it is: `POST` of a [`ToRegister`] with `?wait=SECONDS`, answered by a [`FromRegister`], or
/// as [`SYNC`](crate::exchange::SYNC) by a challenge.
pub const REGISTER: &str = "/v1/turn";

/// One life of an agent: drawn at its start, so that no two are the same, and nothing has to be set up for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Run(pub u64);

/// Whose turn it is, as the site itself has signed it: no controller can make one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The network.
    pub network: NetworkId,
    /// The site.
    pub site: Name,
    /// Its number: larger than all before.
    pub turn: u64,
    /// Who has it.
    pub run: Run,
    /// Who hears nothing of that one, and will begin another turn unless it says that it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted_by: Option<Run>,
}

impl Statement for Turn {
    const KIND: &'static str = "turn 1";
}

/// What a gateway can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ability {
    /// It is its turn.
    Active,
    /// It could begin one.
    Able,
    /// Its daemon does not answer.
    Unable,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beat {
    /// The network.
    pub network: NetworkId,
    /// The site.
    pub site: Name,
    /// Who says so.
    pub run: Run,
    /// How many it has sent.
    pub count: u64,
    /// Whom it has heard last: who is not named there takes it for no sign of life, as it may have been recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hears: Option<Run>,
    /// What it can do.
    pub ability: Ability,
    /// The last turn that it knows of, and the last that it had itself.
    pub known: u64,
    /// The last that its own machine had.
    pub held: u64,
}

impl Statement for Beat {
    const KIND: &'static str = "beat 1";
}

/// What a gateway wants of the register.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Wish {
    /// To be told when it has another version than this one.
    See {
        /// The one that it knows.
        known: u64,
    },
    /// To have it replaced, if it still has this version: 0 if there is nothing yet.
    Put {
        /// The one that it knows.
        at: u64,
        /// By this.
        turn: Signed<Turn>,
    },
}

/// A wish, as a controller wants it: bound to that controller, and to now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wishing {
    /// The network.
    pub network: NetworkId,
    /// Who asks.
    pub site: Name,
    /// The digest of the certificate of who is asked.
    pub certificate: Digest,
    /// What that one gave out lately.
    pub challenge: String,
    /// What is wished.
    pub wish: Wish,
}

impl Statement for Wishing {
    const KIND: &'static str = "turn wish 1";
}

/// What the register has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registered {
    /// Its version: another one each time that it is replaced; 0 if there is nothing yet.
    pub version: u64,
    /// What was put last.
    pub turn: Option<Signed<Turn>>,
}

/// A request to the register.
pub type ToRegister = Signed<Wishing>;

/// What a controller answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromRegister {
    /// What it has now.
    pub registered: Registered,
    /// What the next question to this controller is bound to.
    pub challenge: String,
}
