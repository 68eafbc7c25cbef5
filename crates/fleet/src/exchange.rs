//! What agents ask, and what they are answered: by controllers, and by each other.

use serde::{Deserialize, Serialize};

use crate::authority::NetworkId;
use crate::key::Digest;
use crate::name::Name;
use crate::news::{Have, News};
use crate::signed::{Signed, Statement};

/// How far somebody has heard what was told at one place: notices up to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// The place: all controllers with one store are the same, each agent is another.
    pub place: u64,
    /// The last notice.
    pub position: u64,
}

/// The port at which agents answer their peers, at their own addresses inside of the tunnels: `POST` of a [`ToPeer`] to [`SYNC`],
/// answered by an [`Answer`].
pub const PEER_PORT: u16 = 4161;

/// What an agent wants to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// What it has.
    #[serde(default)]
    pub have: Have,
    /// How far it has heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Cursor>,
}

/// A question to a controller, which is to know who asks. No clock is needed for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asking {
    /// The network.
    pub network: NetworkId,
    /// Who asks.
    pub site: Name,
    /// The digest of the certificate of who is asked, so that he cannot ask another with it.
    pub certificate: Digest,
    /// What that one gave out lately, so that nobody can ask again with it.
    pub challenge: String,
    /// What is asked.
    pub question: Question,
}

impl Statement for Asking {
    const KIND: &'static str = "asking 1";
}

/// A question with what the asker has to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request<Q> {
    /// The question: a [`Signed`] one of [`Asking`] to a controller. To a peer it is a plain [`Question`], as its tunnel says
    /// who asks.
    pub asking: Q,
    /// What the asker says of itself, and is not known there, as far as it knows.
    #[serde(default)]
    pub news: News,
}

/// Where a controller is asked: `POST` of a [`ToController`] with `?wait=SECONDS`, answered by a [`FromController`]. With status
/// 401 the answer is a [`Challenge`], and the same is asked again with that; with [`NOT_KEPT`] what was told is told again.
pub const SYNC: &str = "/v1/sync";

/// The status of an answer at [`SYNC`] where the controller could not keep what was told with the question. Agents from before
/// take it for any other answer.
pub const NOT_KEPT: u16 = 202;

/// What became of what was told with a question that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It is heard.
    Kept,
    /// It is to be told again: the controller's store does not answer.
    NotKept,
}

impl Told {
    /// What the status of an answer says.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        if status == NOT_KEPT { Told::NotKept } else { Told::Kept }
    }
}

/// What a controller answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromController {
    /// What the asker lacks.
    pub answer: Answer,
    /// What the next question to this controller is bound to.
    pub challenge: String,
}

/// What a question to a controller has to be bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    /// Good for some minutes by the controller's clock.
    pub challenge: String,
}

/// Why something was not done, in words: with every status from 400 on but the 401 of [`SYNC`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// Why, and what to do.
    pub error: String,
}

/// A request to a controller.
pub type ToController = Request<Signed<Asking>>;
/// A request to a peer.
pub type ToPeer = Request<Question>;

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// What the asker lacks.
    pub news: News,
    /// How far it has heard with it.
    pub since: Cursor,
}
