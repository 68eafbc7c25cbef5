//! Questions of peers that wait for an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Agent;
use crate::exchange::{Answer, Question};
use crate::name::Name;

/// Questions that wait, the last one of each peer. `R`: how the answer gets to it.
#[derive(Debug)]
pub struct Held<R> {
    waiting: BTreeMap<Name, Waiting<R>>,
    /// Whether something has become known since all were looked at.
    is_new: bool,
}

#[derive(Debug)]
struct Waiting<R> {
    question: Question,
    until: Duration,
    reply: R,
    /// Whether it was looked at.
    is_seen: bool,
}

impl<R> Default for Held<R> {
    fn default() -> Self {
        Held { waiting: BTreeMap::new(), is_new: false }
    }
}

impl<R> Held<R> {
    /// Holds a question until there is an answer, or until then.
    pub fn put(&mut self, peer: Name, question: Question, until: Duration, reply: R) {
        self.waiting.insert(peer, Waiting { question, until, reply, is_seen: false });
    }

    /// Something has become known ([`super::Action::Keep`]): it may be an answer.
    pub fn note_news(&mut self) {
        self.is_new = true;
    }

    /// When [`Held::answered`] is to be called, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.waiting.values().map(|waiting| waiting.until).min()
    }

    /// Those who are told something now: there is something new for them, or they have waited long enough. Those who are not
    /// there any more are forgotten.
    pub fn answered(
        &mut self,
        agent: &Agent,
        now: Duration,
        is_gone: impl Fn(&R) -> bool,
    ) -> Vec<(R, Answer)> {
        let is_new = std::mem::take(&mut self.is_new);
        let mut answered = BTreeMap::new();
        for (peer, waiting) in &mut self.waiting {
            let is_late = waiting.until <= now;
            if is_new || is_late || !waiting.is_seen {
                waiting.is_seen = true;
                answered.extend(
                    agent.answer(peer, &waiting.question, is_late).map(|answer| (peer.clone(), answer)),
                );
            }
        }
        self.waiting.retain(|peer, waiting| answered.contains_key(peer) || !is_gone(&waiting.reply));
        let reply = |(peer, answer): (Name, Answer)| Some((self.waiting.remove(&peer)?.reply, answer));
        answered.into_iter().filter_map(reply).collect()
    }
}
