//! What a provider's name servers say: names are looked up in threads that may wait, and again before that gets old. A lookup
//! that fails changes nothing at first: what was found before stays a while, or as long as nobody says otherwise. If servers say
//! that there is nothing, it ends once its time is over.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::panic::catch_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use linux::event::Waker;
use tracing::{info, warn};

/// How soon one is looked up again of which nothing is known; none is looked up more often while all stays as it is.
const AGAIN: Duration = Duration::from_secs(10);
/// How soon one is looked up again at other servers.
const ELSEWHERE: Duration = Duration::from_secs(1);
/// Nothing is believed longer, whatever servers say.
pub(super) const LONGEST: Duration = Duration::from_secs(3_600);

/// A name, and who is asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The name.
    pub(super) name: String,
    /// Those of the uplink, if there are any.
    pub(super) servers: Vec<SocketAddr>,
    /// By which they are reached.
    pub(super) interface: String,
    /// From where, if the gateway has an address in a prefix of that uplink.
    pub(super) source: Option<Ipv6Addr>,
    /// Whether the link has signal. When it comes back, it may lead somewhere else.
    pub(super) link_up: bool,
}

impl Question {
    /// A socket for a server, which is reached by the uplink alone, wherever packets go by default.
    pub(super) fn open(&self, server: SocketAddr) -> io::Result<UdpSocket> {
        let is_of_link = matches!(server.ip(), IpAddr::V6(server) if server.is_unicast_link_local());
        let source = self.source.filter(|_| server.is_ipv6() && !is_of_link).map(IpAddr::V6);
        let any: IpAddr = if server.is_ipv6() { [0u16; 8].into() } else { [0u8; 4].into() };
        let from = |source| linux::port::udp_by(&self.interface, source);
        // An address that is just going away is no reason not to ask.
        source.map_or_else(|| from(any), |source| from(source).or_else(|_| from(any)))
    }
}

/// What has been found, at least one, and for how long that holds.
pub(super) type Found<V> = (Vec<V>, Duration);

/// Why there is nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nothing {
    pub(super) why: String,
    /// A server says so.
    pub(super) is_certain: bool,
}

/// Looks one up, and waits for it.
type LookUp<V> = fn(&Question) -> Result<Found<V>, Nothing>;
type Answer<V> = (String, Question, Result<Found<V>, Nothing>);

/// What is looked up for all uplinks, by these uplinks' names.
pub(super) struct Lookups<V> {
    /// What it is, for the log.
    what: &'static str,
    /// How long what was found outlives its time while no server answers; for ever, if that is none.
    silence: Option<Duration>,
    known: BTreeMap<String, Known<V>>,
    waker: Waker,
    look_up: LookUp<V>,
    answers: (Sender<Answer<V>>, Receiver<Answer<V>>),
}

struct Known<V> {
    question: Question,
    /// Whether somebody asks for it still.
    is_wanted: bool,
    value: Option<V>,
    /// From when on servers may say that it is none any more.
    until: Instant,
    /// Why there is none, or none that is fresh.
    why: String,
    /// Whether a thread waits for an answer.
    is_asking: bool,
    /// When it is looked up next.
    next: Instant,
}

impl<V> Known<V> {
    fn is_due(&self) -> Option<Instant> {
        (self.is_wanted && !self.is_asking && self.question.link_up).then_some(self.next)
    }
}

impl<V: Copy + PartialEq + std::fmt::Display + Send + 'static> Lookups<V> {
    /// `waker` is woken by each answer, which [`Lookups::take_answers`] takes. What was found outlives its time by `silence`
    /// while no server answers, or without an end.
    pub(super) fn new(
        what: &'static str,
        silence: Option<Duration>,
        look_up: LookUp<V>,
        waker: &Waker,
    ) -> Self {
        Lookups { what, silence, known: BTreeMap::new(), waker: waker.clone(), look_up, answers: channel() }
    }

    /// What is known for an uplink that asks this now. What was known before serves until there is an answer.
    pub(super) fn value(&mut self, uplink: &str, question: Question, now: Instant) -> Option<V> {
        let known = self.known.entry(uplink.to_owned()).or_insert_with(|| Known {
            question: question.clone(),
            is_wanted: true,
            value: None,
            until: now,
            why: String::new(),
            is_asking: false,
            next: now,
        });
        known.is_wanted = true;
        if known.question != question {
            // Those of another network may know that there is nothing there.
            known.until = now;
            known.next = known.next.min(now + ELSEWHERE);
            known.question = question;
        }
        if known.is_due().is_some_and(|due| now >= due) {
            let (sender, waker, look_up) = (self.answers.0.clone(), self.waker.clone(), self.look_up);
            let (uplink, question) = (uplink.to_owned(), known.question.clone());
            let ask = move || {
                // A thread that ended without an answer would be waited for, for ever.
                let found = catch_unwind(|| look_up(&question)).unwrap_or_else(|_| {
                    let why = "the program has a fault, which its log says more of".to_owned();
                    Err(Nothing { why, is_certain: false })
                });
                let _ = sender.send((uplink, question, found));
                waker.wake();
            };
            known.next = now + AGAIN;
            match std::thread::Builder::new().name("lookup".into()).spawn(ask) {
                Ok(_) => known.is_asking = true,
                Err(error) => known.why = error.to_string(),
            }
        }
        known.value
    }

    /// Forgets what is known for other uplinks than these; but when it was asked is remembered as long as nobody may ask again, so
    /// that who has it wanted now and then does not have it asked all the time.
    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool, now: Instant) {
        self.known.retain(|uplink, known| {
            if wanted(uplink) {
                return true;
            }
            (known.is_wanted, known.value, known.until) = (false, None, now);
            known.why.clear();
            known.next = known.next.min(now + AGAIN);
            known.is_asking || known.next > now
        });
    }

    /// Takes what lookups have found. Whether there was something.
    pub(super) fn take_answers(&mut self, now: Instant) -> bool {
        let answers: Vec<_> = self.answers.1.try_iter().collect();
        for (uplink, question, found) in &answers {
            let Some(known) = self.known.get_mut(uplink) else { continue };
            known.is_asking = false;
            if !known.is_wanted {
                continue;
            }
            // Of a question that is none any more, nothing is believed.
            if known.question != *question {
                known.next = now + ELSEWHERE;
                continue;
            }
            let what = format!("{} {}", self.what, question.name);
            match found {
                Ok((values, lasts)) => {
                    known.why.clear();
                    let lasts = (*lasts).min(LONGEST);
                    known.until = now + lasts;
                    known.next = now + (lasts * 4 / 5).max(AGAIN);
                    if known.value.is_none_or(|value| !values.contains(&value)) {
                        known.value = values.first().copied();
                        info!("uplink {uplink}: the {what} is {}", values[0]);
                    }
                }
                Err(Nothing { why, is_certain }) => {
                    known.next = now + AGAIN;
                    if known.why != *why {
                        warn!("uplink {uplink}: the {what} cannot be looked up: {why}");
                    }
                    known.why.clone_from(why);
                    let more = if *is_certain { Some(Duration::ZERO) } else { self.silence };
                    if more.is_some_and(|more| now >= known.until + more) {
                        known.value = None;
                    }
                }
            }
        }
        !answers.is_empty()
    }

    /// When something is to be looked up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.known.values().filter_map(Known::is_due).min()
    }

    /// Why an uplink has none, in words.
    pub(super) fn problem(&self, uplink: &str) -> Option<String> {
        let known = self.known.get(uplink).filter(|known| known.value.is_none() && !known.why.is_empty())?;
        let (what, name, why) = (self.what, &known.question.name, &known.why);
        Some(format!("uplink {uplink}: the {what} {name} cannot be looked up: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        lookups: Lookups<u32>,
        question: Question,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            // The answers are those of the test.
            let never = |_: &Question| loop {
                std::thread::park();
            };
            let servers = vec!["[2001:db8::53]:53".parse().unwrap()];
            let (name, interface) = ("aftr.example".to_owned(), "eth0".to_owned());
            let question = Question { name, servers, interface, source: None, link_up: true };
            Scene {
                lookups: Lookups::new("number", None, never, &Waker::new().unwrap()),
                question,
                now: Instant::now(),
            }
        }

        fn value(&mut self) -> Option<u32> {
            self.lookups.value("fibre", self.question.clone(), self.now)
        }

        fn told(&mut self, question: &Question, found: Result<Found<u32>, Nothing>) {
            self.lookups.answers.0.send(("fibre".to_owned(), question.clone(), found)).unwrap();
            assert!(self.lookups.take_answers(self.now));
        }

        fn finds(&mut self, found: &[u32], seconds: u64) {
            self.value();
            let question = self.question.clone();
            self.told(&question, Ok((found.to_vec(), Duration::from_secs(seconds))));
        }

        fn finds_none(&mut self, is_certain: bool) {
            self.value();
            let question = self.question.clone();
            self.told(&question, Err(Nothing { why: "nothing".to_owned(), is_certain }));
        }

        fn pass(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
        }
    }

    #[test]
    fn a_value_stays_while_lookups_fail_and_as_long_as_servers_have_it() {
        let mut scene = Scene::new();
        assert_eq!(scene.value(), None);
        assert_eq!(scene.lookups.deadline(), None, "it is being looked up");
        scene.finds(&[1, 2], 300);
        assert_eq!(scene.value(), Some(1));
        assert_eq!(scene.lookups.deadline(), Some(scene.now + Duration::from_secs(240)), "before it is old");
        scene.pass(240);
        scene.finds(&[2, 1], 300);
        assert_eq!(scene.value(), Some(1));
        for _ in 0..20 {
            scene.pass(60);
            scene.finds_none(false);
            assert_eq!(scene.value(), Some(1), "nobody has said anything else");
        }
        scene.finds(&[3], 300);
        assert_eq!(scene.value(), Some(3));
    }

    #[test]
    fn what_servers_deny_ends_when_its_time_is_over_and_not_before() {
        let mut scene = Scene::new();
        scene.finds(&[1], 300);
        scene.pass(299);
        scene.finds_none(true);
        assert_eq!((scene.value(), scene.lookups.problem("fibre")), (Some(1), None));
        scene.pass(1);
        scene.finds_none(true);
        assert_eq!(scene.value(), None);
        assert!(scene.lookups.problem("fibre").unwrap().contains("number aftr.example"));
    }

    #[test]
    fn nothing_is_asked_all_the_time_nor_believed_for_ever() {
        let mut scene = Scene::new();
        scene.finds(&[1], 0);
        assert_eq!(scene.lookups.deadline(), Some(scene.now + AGAIN));
        scene.pass(AGAIN.as_secs());
        scene.finds(&[1], u64::from(u32::MAX));
        assert_eq!(scene.lookups.deadline(), Some(scene.now + LONGEST * 4 / 5));
        scene.pass(LONGEST.as_secs());
        scene.finds_none(true);
        assert_eq!(scene.value(), None);
        assert_eq!(scene.lookups.deadline(), Some(scene.now + AGAIN));
    }

    #[test]
    fn a_question_that_changes_is_asked_anew_and_late_answers_to_the_one_before_are_not_heard() {
        let mut scene = Scene::new();
        scene.finds(&[1], 300);
        let before = scene.question.clone();
        scene.question.servers = vec!["[2001:db8::54]:53".parse().unwrap()];
        assert_eq!(scene.value(), Some(1), "the one before serves");
        assert_eq!(scene.lookups.deadline(), Some(scene.now + ELSEWHERE));
        scene.pass(1);
        assert_eq!((scene.value(), scene.lookups.deadline()), (Some(1), None));
        scene.told(&before, Ok((vec![9], LONGEST)));
        assert_eq!((scene.value(), scene.lookups.deadline()), (Some(1), Some(scene.now + ELSEWHERE)));
        // These others know of none: that counts at once.
        scene.pass(1);
        scene.finds_none(true);
        assert_eq!(scene.value(), None);
    }

    #[test]
    fn nobody_is_asked_without_a_link_nor_for_an_uplink_that_is_gone() {
        let mut scene = Scene::new();
        scene.finds(&[1], 300);
        scene.question.link_up = false;
        assert_eq!((scene.value(), scene.lookups.deadline()), (Some(1), None));
        scene.question.link_up = true;
        assert_eq!(scene.value(), Some(1));
        assert_eq!(scene.lookups.deadline(), Some(scene.now + ELSEWHERE), "it may be another network");
        scene.lookups.retain(|_| false, scene.now);
        assert_eq!((scene.lookups.deadline(), scene.lookups.known.len()), (None, 1));
        scene.pass(AGAIN.as_secs());
        scene.lookups.retain(|_| false, scene.now);
        assert_eq!(scene.lookups.known.len(), 0);
    }

    #[test]
    fn who_has_it_wanted_now_and_then_does_not_have_it_asked_all_the_time() {
        let mut scene = Scene::new();
        scene.finds_none(false);
        for _ in 0..100 {
            scene.value();
            assert!(!scene.lookups.known["fibre"].is_asking);
            scene.lookups.retain(|_| false, scene.now);
        }
        scene.pass(AGAIN.as_secs());
        scene.value();
        assert!(scene.lookups.known["fibre"].is_asking);
        // An answer that nobody waits for any more.
        scene.lookups.retain(|_| false, scene.now);
        let question = scene.question.clone();
        scene.told(&question, Ok((vec![5], LONGEST)));
        assert_eq!(scene.lookups.known["fibre"].value, None);
    }

    #[test]
    fn a_lookup_that_panics_is_one_that_found_nothing() {
        let mut scene = Scene::new();
        scene.lookups.look_up = |_| panic!("in a test");
        assert_eq!(scene.value(), None);
        while !scene.lookups.take_answers(scene.now) {
            std::thread::yield_now();
        }
        assert_eq!(scene.lookups.deadline(), Some(scene.now + AGAIN));
        assert!(scene.lookups.problem("fibre").unwrap().contains("fault"));
    }

    #[test]
    fn what_nobody_confirms_ends_if_it_is_to() {
        let mut scene = Scene::new();
        scene.lookups.silence = Some(LONGEST);
        scene.finds(&[1], 300);
        scene.pass(300 + LONGEST.as_secs() - 1);
        scene.finds_none(false);
        assert_eq!(scene.value(), Some(1));
        scene.pass(AGAIN.as_secs());
        scene.finds_none(false);
        assert_eq!(scene.value(), None);
    }
}
