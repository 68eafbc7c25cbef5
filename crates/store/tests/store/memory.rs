//! The store in memory: the stories, and its faults.

use std::time::Duration;

use store::{
    Change, Commit, CommitError, Failure, Fate, Key, Memory, Prefix, Store as _, Watch as _, WatchError, once,
};

use crate::suite::{self, Place};

struct InMemory(Memory);

impl Place for InMemory {
    type Store = Memory;

    fn client(&self) -> Memory {
        self.0.clone()
    }

    async fn forget(&self) {
        self.0.compact();
    }

    async fn pass(&self, time: Duration) {
        self.0.pass(time);
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(10)
    }
}

macro_rules! tests {
    ($($story:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $story() {
                suite::$story(&InMemory(Memory::new())).await;
            }
        )*
    };
}
for_each_story!(tests);

const PATIENCE: Duration = Duration::from_secs(600);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Each fate in turn, then the last one again and again.
fn fates(store: &Memory, fates: &[Fate]) {
    let mut fates = fates.to_vec();
    fates.reverse();
    store.decide(move |_| if fates.len() > 1 { fates.pop().unwrap() } else { fates[0] });
}

#[tokio::test]
async fn what_nobody_was_told_has_happened_or_not() {
    let store = Memory::new();
    fates(&store, &[Fate::UnknownButHappens, Fate::UnknownAndLost, Fate::Unreachable, Fate::Happens]);
    let put = |name: &str| Commit::new().put(key(name), "1");

    assert!(matches!(store.commit(&put("happens")).await, Err(CommitError::Unknown(_))));
    assert!(matches!(store.commit(&put("lost")).await, Err(CommitError::Unknown(_))));
    let unreachable = store.commit(&put("unreachable")).await;
    assert!(matches!(unreachable, Err(CommitError::Failed(Failure::Unreachable(_)))));
    store.commit(&put("told")).await.unwrap();

    let entries = store.list(&Prefix::everything()).await.unwrap().entries;
    assert_eq!(entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["happens", "told"]);
}

#[tokio::test]
async fn a_late_commit_happens_only_if_its_conditions_still_hold() {
    let store = Memory::new();
    let first = store.commit(&Commit::new().put(key("head"), "1")).await.unwrap();
    fates(&store, &[Fate::UnknownAndLate, Fate::UnknownAndLate, Fate::Happens]);
    for commit in [
        Commit::new().if_at(key("head"), first).put(key("head"), "late"),
        Commit::new().put(key("b"), "late"),
    ] {
        assert!(matches!(store.commit(&commit).await, Err(CommitError::Unknown(_))));
    }
    store.commit(&Commit::new().if_at(key("head"), first).put(key("head"), "2")).await.unwrap();

    store.arrive();

    assert_eq!(store.get(&key("head")).await.unwrap().unwrap().value, b"2");
    assert_eq!(store.get(&key("b")).await.unwrap().unwrap().value, b"late");
}

#[tokio::test]
async fn an_unreachable_store_answers_nothing_and_goes_on_later() {
    let store = Memory::new();
    let mut watch = store.watch(&Prefix::everything(), store.commit(&Commit::new()).await.unwrap());
    store.commit(&Commit::new().put(key("a"), "1")).await.unwrap();
    store.reachable(false);
    let unreachable = |error: &Failure| matches!(error, Failure::Unreachable(_));
    assert!(store.get(&key("a")).await.is_err_and(|error| unreachable(&error)));
    assert!(store.grant(Duration::from_secs(1)).await.is_err_and(|error| unreachable(&error)));
    assert!(matches!(watch.next().await, Err(WatchError::Failed(Failure::Unreachable(_)))));

    store.reachable(true);

    let told = watch.next().await.unwrap();
    assert!(matches!(&told.changes[..], [Change::Put(entry)] if entry.value == b"1"));
}

#[tokio::test]
async fn a_held_watch_is_late_and_complete() {
    let store = Memory::new();
    let mut watch = store.watch(&Prefix::everything(), store.commit(&Commit::new()).await.unwrap());
    store.hold_watches(true);
    for value in ["1", "2"] {
        store.commit(&Commit::new().put(key("a"), value)).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(20), watch.next()).await.is_err());
    }
    store.hold_watches(false);
    for value in ["1", "2"] {
        let told = watch.next().await.unwrap();
        assert!(matches!(&told.changes[..], [Change::Put(entry)] if entry.value == value.as_bytes()));
    }
}

/// Every fate of three tries: one entry, and the answer is right.
#[tokio::test(start_paused = true)]
async fn a_commit_with_a_witness_happens_once_whatever_its_fate() {
    let all = [
        Fate::Happens,
        Fate::Unreachable,
        Fate::UnknownButHappens,
        Fate::UnknownAndLost,
        Fate::UnknownAndLate,
    ];
    for number in 0..all.len().pow(3) {
        let [first, second, third] = [0, 1, 2].map(|place| all[number / all.len().pow(place) % all.len()]);
        let store = Memory::new();
        let count = store.commit(&Commit::new().put(key("count"), "0")).await.unwrap();
        let tries = [first, second, third, Fate::Happens];
        fates(&store, &tries);
        let commit = Commit::new().if_at(key("count"), count).put(key("count"), "1");

        let told = once(&store, commit, (key("log/1"), b"mine".to_vec()), PATIENCE).await;

        store.arrive();
        let read = store.get(&key("count")).await.unwrap().unwrap();
        match told {
            Ok(revision) => assert_eq!((read.value, read.revision), (b"1".to_vec(), revision), "{tries:?}"),
            // Only what was certain from the beginning is not tried again.
            Err(CommitError::Failed(_)) => {
                assert_eq!((first, read.value), (Fate::Unreachable, b"0".to_vec()), "{tries:?}");
            }
            Err(error) => panic!("{tries:?}: {error}"),
        }
    }
}

/// Another one was first, and nobody said so: that is told.
#[tokio::test(start_paused = true)]
async fn who_came_second_is_told_so_whatever_the_fate_of_the_commit() {
    for fate in [Fate::Happens, Fate::UnknownButHappens, Fate::UnknownAndLost, Fate::UnknownAndLate] {
        let store = Memory::new();
        store.commit(&Commit::new().put(key("log/1"), "another's")).await.unwrap();
        fates(&store, &[fate, Fate::Happens]);
        let told = once(&store, Commit::new(), (key("log/1"), b"mine".to_vec()), PATIENCE).await;
        assert_eq!(told, Err(CommitError::Conflict), "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_patience_ends_nobody_knows() {
    let store = Memory::new();
    fates(&store, &[Fate::UnknownAndLost]);
    let told = once(&store, Commit::new(), (key("log/1"), b"mine".to_vec()), PATIENCE).await;
    assert!(matches!(told, Err(CommitError::Unknown(_))));
}
