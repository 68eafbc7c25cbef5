//! What happens beside the loop, and is told to it.

use std::net::IpAddr;
use std::time::Duration;

use fleet::agent::RequestId;
use fleet::exchange::{Answer, Question, Told};
use fleet::news::News;
use tokio::sync::oneshot;

use crate::gateway::{Found, Reloaded};
use crate::http::HttpError;

/// What happens.
pub(crate) enum Event {
    /// Somebody has connected at the agent's address: whether he is a peer.
    MayAsk(IpAddr, oneshot::Sender<bool>),
    /// A peer asks.
    Asked(Held),
    /// A question was answered, or not.
    Answered(RequestId, Result<(Answer, Told), HttpError>),
    /// What names say of where controllers are.
    Signposts(Vec<String>),
    /// How the gateway is found, if it is there.
    Gateway(Option<Found>),
    /// What came of a reload.
    Reloaded(Reloaded),
}

/// A question of a peer, held until there is an answer.
pub(crate) struct Held {
    pub(crate) from: IpAddr,
    pub(crate) question: Question,
    pub(crate) news: News,
    pub(crate) wait: Duration,
    pub(crate) answer: oneshot::Sender<Answer>,
}
