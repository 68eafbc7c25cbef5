//! What happens beside the loop, and is told to it.

use std::net::IpAddr;
use std::time::Duration;

use fleet::agent::RequestId;
use fleet::exchange::{Answer, Question};
use fleet::news::News;
use fleet::site::Contact;
use tokio::sync::oneshot;

use crate::http::HttpError;

/// What happens.
pub(crate) enum Event {
    /// Somebody has connected at the agent's address: whether he is a peer.
    MayAsk(IpAddr, oneshot::Sender<bool>),
    /// A peer asks.
    Asked(Held),
    /// A question was answered, or not.
    Answered(RequestId, Result<Answer, HttpError>),
    /// How the gateway is met.
    Gateway(Option<Contact>),
    /// What came of a reload.
    Reloaded(Result<(), String>),
}

/// A question of a peer, held until there is an answer.
pub(crate) struct Held {
    pub(crate) from: IpAddr,
    pub(crate) question: Question,
    pub(crate) news: News,
    pub(crate) wait: Duration,
    pub(crate) answer: oneshot::Sender<Answer>,
}
