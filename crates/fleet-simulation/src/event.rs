//! What happens to a site.

use std::net::IpAddr;
use std::time::Duration;

use fleet::agent::RequestId;
use fleet::exchange::{Answer, Question, Told};
use fleet::news::News;
use tokio::sync::oneshot;

/// What a site is told.
pub(crate) enum Event {
    Answered(RequestId, Option<(Answer, Told)>),
    /// A peer asks.
    Asked {
        from: IpAddr,
        question: Question,
        news: News,
        wait: Duration,
        reply: oneshot::Sender<Answer>,
    },
}
