//! Stores that fail: nothing acknowledged is lost, serials never go back, an invitation is used once.

use controller::{Controller, Error};
use fleet::enrolment;
use fleet::news::Have;
use store::{Commit, Fate, Memory};

use crate::publishing::until;
use crate::scene::*;

/// A store that does with each commit what is drawn.
fn shaky(store: &Memory, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    store.decide(move |_: &Commit| match random.u8(0..10) {
        0 => Fate::Unreachable,
        1 => Fate::UnknownButHappens,
        2 => Fate::UnknownAndLost,
        3 => Fate::UnknownAndLate,
        _ => Fate::Happens,
    });
}

/// Asks for the same until it is done, or cannot be.
async fn insist<T>(what: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match what().await {
            Err(Error::Unavailable(_)) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            other => return other,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_what_was_acknowledged_is_there() {
    for seed in 0..20 {
        let store = Memory::new();
        let controllers = [network(&store).await, controller(&store).await];
        shaky(&store, seed);
        let mut random = fastrand::Rng::with_seed(seed ^ 0xff);
        let mut serial = 1;
        for step in 0..15 {
            let one = &controllers[random.usize(0..2)];
            let number = 2 + step;
            let who = format!("s{number}");
            let token = format!("token {number}");
            let (key, until_when) = (signer(&token), soon());
            insist(async || one.invite("ada", key.public(), terms(&who), until_when).await).await.unwrap();
            let invitation =
                enrolment::Invitation::new(one.fleet().network(), Vec::new(), &key, terms(&who), until_when);
            let signed = application(&invitation, &who, number);
            let status = insist(async || one.apply(signed.clone()).await).await.unwrap();
            assert_eq!(status.id, enrolment::id(&signed), "seed {seed}");
            let second = application(&invitation, &who, number + 1000);
            assert!(insist(async || one.apply(second.clone()).await).await.is_err(), "seed {seed}");
            until(|| one.serial().unwrap().0 >= serial).await;
            let news = next(&one.fleet(), &["ada"], |contents| contents.put(site(&who, number)));
            insist(async || one.publish("ada", news.clone()).await).await.unwrap();
            serial += 1;
            if random.u8(0..3) == 0 {
                store.arrive();
            }
            if random.u8(0..4) == 0 {
                store.compact();
            }
            assert_eq!(one.serial_in_store().await.unwrap().0, serial, "seed {seed}");
        }
        store.arrive();
        store.decide(|_| Fate::Happens);
        let later = Controller::open(store.clone()).await.unwrap();
        assert_eq!(later.serial().unwrap().0, serial, "seed {seed}");
        assert_eq!(later.fleet().sites().len(), 16, "seed {seed}");
        assert_eq!(later.applications().await.unwrap().len(), 15, "seed {seed}");
        for one in &controllers {
            until(|| one.serial() == later.serial()).await;
            assert_eq!(one.all_news(&Have::default()), later.all_news(&Have::default()));
        }
        // The log tells each of them once.
        let texts = later.log(1).await.unwrap();
        let (records, head) = controller::log::verify(None, texts.iter().map(String::as_str)).unwrap();
        assert_eq!(records.len(), 1 + 15 * 3, "seed {seed}");
        assert_eq!(head, later.log_head().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_store_is_gone_agents_are_answered() {
    let store = Memory::new();
    let one = network(&store).await;
    store.reachable(false);
    let question = fleet::exchange::Question::default();
    let answer = one.answer(&name("hub"), &question, std::time::Duration::ZERO).await;
    assert!(answer.news.document.is_some());
    let why = publish(&one, |_| {}).await.unwrap_err();
    assert!(matches!(why, Error::Unavailable(_)), "{why}");
    store.reachable(true);
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    until(|| one.serial().unwrap().0 == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_put_back_does_not_put_a_controller_back() {
    let store = Memory::new();
    let one = network(&store).await;
    let old = controller::backup(&store).await.unwrap();
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    // Somebody writes the older state over the newer one.
    let lines: Vec<&str> = old.lines().collect();
    assert!(lines.len() > 5);
    put_back(&store, &old).await;
    store.compact();
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert_eq!(one.serial().unwrap().0, 2);
    assert!(one.fleet().site(&name("kiel")).is_some());
}

/// Writes what a backup has, whatever is there.
async fn put_back(store: &Memory, backup: &str) {
    use base64::Engine as _;
    for line in backup.lines().filter(|line| line.starts_with('{')) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let key = store::Key::new(line["key"].as_str().unwrap()).unwrap();
        let value = base64::prelude::BASE64_STANDARD.decode(line["value"].as_str().unwrap()).unwrap();
        store::Store::commit(store, &Commit::new().put(key, value)).await.unwrap();
    }
}
