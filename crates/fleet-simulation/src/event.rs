//! What happens to a site.

use std::net::IpAddr;
use std::time::Duration;

use fleet::agent::RequestId;
use fleet::exchange::{Answer, Question};
use fleet::news::News;
use tokio::sync::oneshot;

/// What a site is told.
pub(crate) enum Event {
    Answered(RequestId, Option<Answer>),
    /// A peer asks.
    Asked {
        from: IpAddr,
        question: Question,
        news: News,
        wait: Duration,
        reply: oneshot::Sender<Answer>,
    },
}
