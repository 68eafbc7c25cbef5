//! Watching.

use std::time::Duration;

use store::{Change, Commit, CommitError, Prefix, Revision, Store as _, Watch as _, WatchError};

use super::{PATIENCE, Place, below, key, next, now, put, words};

pub(crate) async fn a_watch_hands_out_whole_commits_in_order<P: Place>(place: &P) {
    let [one, two] = [place.client(), place.client()];
    let begin = now(&one).await;
    let mut watch = one.watch(&below("site"), begin);

    put(&two, "other/a", "not watched").await;
    let first = put(&two, "site/a", "1").await;
    let commit = Commit::new().put(key("site/b"), "2").put(key("other/b"), "2").put(key("site/a"), "2");
    let second = two.commit(&commit).await.unwrap();
    two.commit(&Commit::new().delete(key("site/nothing"))).await.unwrap();
    let third = two.commit(&Commit::new().delete(key("site/b")).put(key("site/c"), "3")).await.unwrap();

    let told = [next(&mut watch).await, next(&mut watch).await, next(&mut watch).await];
    assert_eq!(told.each_ref().map(words), ["site/a=1", "site/a=2 site/b=2", "-site/b site/c=3"]);
    assert_eq!(told.each_ref().map(|commit| commit.revision), [first, second, third]);
    let Change::Put(entry) = &told[0].changes[0] else { panic!("{told:?}") };
    assert_eq!((entry.revision, entry.lease), (first, None));
}

pub(crate) async fn a_watch_goes_on_after_any_revision<P: Place>(place: &P) {
    let store = place.client();
    let mut revisions = vec![now(&store).await];
    for round in 0..5 {
        put(&store, "elsewhere", "1").await;
        revisions.push(put(&store, "site/a", &round.to_string()).await);
    }
    for (at, after) in revisions.iter().enumerate() {
        let mut watch = store.watch(&below("site"), *after);
        for (expected, revision) in revisions.iter().enumerate().skip(at + 1) {
            let commit = next(&mut watch).await;
            assert_eq!((words(&commit), commit.revision), (format!("site/a={}", expected - 1), *revision));
        }
    }
}

pub(crate) async fn a_watch_misses_nothing_while_others_write<P: Place>(place: &P) {
    const EACH: usize = 60;
    let begin = now(&place.client()).await;
    let write = |store: P::Store, name: &'static str| async move {
        let mut revisions = Vec::new();
        for round in 0..EACH {
            revisions.push(put(&store, name, &round.to_string()).await);
        }
        revisions
    };
    let writers = ["site/a", "site/b", "elsewhere"].map(|name| tokio::spawn(write(place.client(), name)));
    let mut early = place.client().watch(&below("site"), begin);
    let mut told = Vec::new();
    let mut late_from = None;
    while told.len() < 2 * EACH {
        let commit = next(&mut early).await;
        told.push((commit.revision, words(&commit)));
        // Another one begins in the middle.
        late_from.get_or_insert(told.len() / 2);
    }
    assert!(told.is_sorted_by(|one, other| one.0 < other.0), "{told:?}");
    let mut written = Vec::new();
    for (name, writer) in ["site/a", "site/b"].into_iter().zip(writers) {
        let revisions = writer.await.unwrap();
        written.extend(
            (0..)
                .zip(revisions)
                .map(|(round, revision): (usize, Revision)| (revision, format!("{name}={round}"))),
        );
    }
    written.sort();
    assert_eq!(told, written);
    let middle = EACH;
    let mut late = place.client().watch(&below("site"), told[middle].0);
    for expected in &told[middle + 1..] {
        let commit = next(&mut late).await;
        assert_eq!((commit.revision, words(&commit)), *expected);
    }
}

pub(crate) async fn a_watch_that_is_not_waited_for_takes_nothing_with_it<P: Place>(place: &P) {
    let store = place.client();
    let mut watch = store.watch(&below("site"), now(&store).await);
    for round in 0..20 {
        let commit = Commit::new().put(key("site/a"), round.to_string());
        let writing = store.commit(&commit);
        // Given up at different moments.
        let given_up = tokio::time::timeout(Duration::from_micros(200 * round), watch.next());
        let (written, given_up) = tokio::join!(writing, given_up);
        let commit = match given_up {
            Ok(commit) => commit.unwrap(),
            Err(_) => next(&mut watch).await,
        };
        assert_eq!((words(&commit), commit.revision), (format!("site/a={round}"), written.unwrap()));
    }
}

pub(crate) async fn a_watch_of_what_is_forgotten_says_so<P: Place>(place: &P) {
    let store = place.client();
    let begin = put(&store, "site/a", "1").await;
    put(&store, "site/a", "2").await;
    let mut early = store.watch(&below("site"), begin);

    place.forget().await;

    let mut watch = store.watch(&below("site"), begin);
    for _ in 0..2 {
        let told = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
        assert_eq!(told, Err(WatchError::Compacted(begin)));
    }
    // One that was there before may have had it already.
    let told = tokio::time::timeout(PATIENCE, early.next()).await.unwrap();
    assert!(
        told.as_ref().map_or(told == Err(WatchError::Compacted(begin)), |told| words(told) == "site/a=2")
    );
    // What is there is not forgotten, and a watch begins anew from it.
    let listing = store.list(&Prefix::everything()).await.unwrap();
    let entry = listing.entries.iter().find(|entry| entry.key == key("site/a")).unwrap();
    assert_eq!(entry.value, b"2");
    let mut watch = store.watch(&below("site"), listing.revision);
    let refused = store.commit(&Commit::new().if_absent(key("site/a")).put(key("site/a"), "3")).await;
    assert_eq!(refused, Err(CommitError::Conflict));
    put(&store, "site/a", "3").await;
    assert_eq!(words(&next(&mut watch).await), "site/a=3");
}

/// As of a store that was restored to what it was earlier.
pub(crate) async fn a_watch_of_a_revision_that_never_was_says_so<P: Place>(place: &P) {
    let store = place.client();
    let later = Revision::new(now(&store).await.number() + 1_000_000).unwrap();
    let mut watch = store.watch(&below("site"), later);
    let told = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    assert_eq!(told, Err(WatchError::Compacted(later)));
}
