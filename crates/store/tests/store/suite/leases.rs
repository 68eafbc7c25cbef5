//! Leases.

use std::time::Instant;

use store::{Commit, CommitError, LeaseError, Store as _};

use super::{PATIENCE, Place, below, key, next, now, put, read, words};

/// Waits for a key to vanish.
async fn vanishes<P: Place>(place: &P, name: &str) {
    let begin = Instant::now();
    while read(&place.client(), name).await.is_some() {
        assert!(begin.elapsed() < PATIENCE, "{name} is still there");
        place.pass(place.lease() / 10).await;
    }
}

pub(crate) async fn keys_vanish_when_their_lease_ends<P: Place>(place: &P) {
    let [one, two] = [place.client(), place.client()];
    let begin = now(&one).await;
    let lease = one.grant(place.lease()).await.unwrap();
    assert!(lease.time_to_live >= place.lease());
    let commit = Commit::new()
        .put_leased(key("site/b"), "2", lease.id)
        .put_leased(key("site/a"), "1", lease.id)
        .put(key("site/c"), "stays");
    one.commit(&commit).await.unwrap();
    assert_eq!(read(&two, "site/a").await.unwrap().lease, Some(lease.id));
    let mut watch = two.watch(&below("site"), begin);
    assert_eq!(words(&next(&mut watch).await), "site/a=1 site/b=2 site/c=stays");

    vanishes(place, "site/a").await;

    assert_eq!(read(&two, "site/b").await, None);
    assert_eq!(words(&next(&mut watch).await), "-site/a -site/b");
    assert_eq!(read(&one, "site/c").await.unwrap().value, b"stays");
}

/// The keeper is slower than it should be, but not as slow as the lease is long.
pub(crate) async fn a_lease_that_is_kept_alive_does_not_end<P: Place>(place: &P) {
    let store = place.client();
    let lease = store.grant(place.lease()).await.unwrap();
    let revision = store.commit(&Commit::new().put_leased(key("site/a"), "1", lease.id)).await.unwrap();
    let mut kept = Instant::now();
    for _ in 0..12 {
        place.pass(lease.time_to_live / 4).await;
        let sent = Instant::now();
        let answer = store.keep_alive(lease.id).await;
        // A machine that is too slow for this has shown nothing.
        if sent.duration_since(kept) >= lease.time_to_live {
            return;
        }
        assert_eq!(answer, Ok(lease.time_to_live));
        kept = sent;
        let entry = read(&store, "site/a").await;
        if kept.elapsed() < lease.time_to_live {
            assert_eq!(entry.unwrap().revision, revision);
        }
    }
    vanishes(place, "site/a").await;
}

pub(crate) async fn a_revoked_lease_takes_its_keys_along<P: Place>(place: &P) {
    let store = place.client();
    let [lease, other] = [store.grant(60 * place.lease()).await, store.grant(60 * place.lease()).await];
    let [lease, other] = [lease.unwrap(), other.unwrap()];
    assert_ne!(lease.id, other.id);
    let commit =
        Commit::new().put_leased(key("site/a"), "1", lease.id).put_leased(key("site/b"), "1", other.id);
    store.commit(&commit).await.unwrap();

    store.revoke(lease.id).await.unwrap();

    assert_eq!(read(&store, "site/a").await, None);
    assert!(read(&store, "site/b").await.is_some());
    store.revoke(lease.id).await.unwrap();
    store.revoke(other.id).await.unwrap();
}

pub(crate) async fn a_key_is_bound_to_its_last_lease_only<P: Place>(place: &P) {
    let store = place.client();
    let lease = store.grant(60 * place.lease()).await.unwrap();
    let commit =
        Commit::new().put_leased(key("site/a"), "1", lease.id).put_leased(key("site/b"), "1", lease.id);
    store.commit(&commit).await.unwrap();
    put(&store, "site/a", "2").await;
    assert_eq!(read(&store, "site/a").await.unwrap().lease, None);

    store.revoke(lease.id).await.unwrap();

    assert_eq!(read(&store, "site/a").await.unwrap().value, b"2");
    assert_eq!(read(&store, "site/b").await, None);
}

pub(crate) async fn an_ended_lease_is_not_kept_alive_and_binds_nothing<P: Place>(place: &P) {
    let store = place.client();
    let lease = store.grant(60 * place.lease()).await.unwrap();
    store.revoke(lease.id).await.unwrap();
    assert_eq!(store.keep_alive(lease.id).await, Err(LeaseError::Ended));
    let commit = Commit::new().put_leased(key("site/a"), "1", lease.id).put(key("site/b"), "1");
    assert_eq!(store.commit(&commit).await, Err(CommitError::LeaseEnded));
    assert_eq!(read(&store, "site/b").await, None);
}

/// Two gateways of a site. The one that was active does not notice that its lease has ended, and writes on.
pub(crate) async fn who_held_the_lock_before_is_fenced_off<P: Place>(place: &P) {
    let [former, new] = [place.client(), place.client()];
    let lock = || Commit::new().if_absent(key("site/active"));
    let lease = former.grant(place.lease()).await.unwrap();
    let held = former.commit(&lock().put_leased(key("site/active"), "a", lease.id)).await.unwrap();
    let act = |fence| Commit::new().if_at(key("site/active"), fence);
    former.commit(&act(held).put(key("site/state"), "by a")).await.unwrap();

    let lease = new.grant(60 * place.lease()).await.unwrap();
    let take = lock().put_leased(key("site/active"), "b", lease.id);
    vanishes(place, "site/active").await;
    let taken = new.commit(&take).await.unwrap();
    new.commit(&act(taken).put(key("site/state"), "by b")).await.unwrap();

    let late = former.commit(&act(held).put(key("site/state"), "by a")).await;
    assert_eq!(late, Err(CommitError::Conflict));
    assert!(taken > held, "a fence grows");
    assert_eq!(read(&new, "site/state").await.unwrap().value, b"by b");
    new.revoke(lease.id).await.unwrap();
}
