//! Reading, listing, committing.

use store::{COMMIT_OCTETS, Commit, CommitError, Prefix, Store as _, WRITES, once};

use super::{PATIENCE, Place, below, key, now, put, read};

pub(crate) async fn what_was_put_is_read_back<P: Place>(place: &P) {
    let [one, two] = [place.client(), place.client()];
    assert_eq!(read(&one, "site/kiel").await, None);

    let revision = put(&one, "site/kiel", "first").await;

    let entry = read(&two, "site/kiel").await.unwrap();
    assert_eq!((entry.key, entry.value, entry.revision), (key("site/kiel"), b"first".to_vec(), revision));
    assert_eq!(entry.lease, None);
    let octets: Vec<u8> = (0..=255).collect();
    for value in [Vec::new(), octets] {
        one.commit(&Commit::new().put(key("site/kiel"), value.clone())).await.unwrap();
        assert_eq!(read(&two, "site/kiel").await.unwrap().value, value);
    }
    two.commit(&Commit::new().delete(key("site/kiel"))).await.unwrap();
    assert_eq!(read(&one, "site/kiel").await, None);
}

pub(crate) async fn only_what_was_read_is_replaced<P: Place>(place: &P) {
    let [one, two] = [place.client(), place.client()];
    let first = put(&one, "head", "1").await;

    let second = two.commit(&Commit::new().if_at(key("head"), first).put(key("head"), "2")).await.unwrap();
    let late = one.commit(&Commit::new().if_at(key("head"), first).put(key("head"), "lost")).await;

    assert_eq!(late, Err(CommitError::Conflict));
    assert_eq!(read(&one, "head").await.map(|entry| entry.revision), Some(second));
    let gone = one.commit(&Commit::new().if_at(key("other"), first).put(key("head"), "lost")).await;
    assert_eq!(gone, Err(CommitError::Conflict));
    // A key that was removed and made again is another one.
    one.commit(&Commit::new().delete(key("head"))).await.unwrap();
    put(&one, "head", "2").await;
    let again = one.commit(&Commit::new().if_at(key("head"), second).delete(key("head"))).await;
    assert_eq!(again, Err(CommitError::Conflict));
}

pub(crate) async fn only_what_is_not_there_is_made<P: Place>(place: &P) {
    let store = place.client();
    let make = Commit::new().if_absent(key("token")).put(key("token"), "used by kiel");
    store.commit(&make).await.unwrap();

    assert_eq!(store.commit(&make).await, Err(CommitError::Conflict));

    store.commit(&Commit::new().delete(key("token"))).await.unwrap();
    store.commit(&make).await.unwrap();
}

pub(crate) async fn a_commit_happens_as_a_whole_or_not_at_all<P: Place>(place: &P) {
    let store = place.client();
    let first = put(&store, "head", "1").await;
    put(&store, "old", "1").await;

    let write = |commit: Commit| commit.put(key("head"), "2").put(key("new"), "2").delete(key("old"));
    let refused = store.commit(&write(Commit::new().if_at(key("head"), first).if_absent(key("old")))).await;
    assert_eq!(refused, Err(CommitError::Conflict));
    assert_eq!(read(&store, "head").await.unwrap().value, b"1");
    assert_eq!(read(&store, "new").await, None);

    let second = store.commit(&write(Commit::new().if_at(key("head"), first))).await.unwrap();
    for name in ["head", "new"] {
        let entry = read(&store, name).await.unwrap();
        assert_eq!((entry.value, entry.revision), (b"2".to_vec(), second));
    }
    assert_eq!(read(&store, "old").await, None);
}

pub(crate) async fn revisions_rise_and_what_changes_nothing_has_none<P: Place>(place: &P) {
    let store = place.client();
    let begin = now(&store).await;
    let first = put(&store, "a", "same").await;
    let second = put(&store, "a", "same").await;
    assert!(begin < first && first < second);

    let nothing = store.commit(&Commit::new().if_at(key("a"), second)).await.unwrap();
    let not_there = store.commit(&Commit::new().delete(key("b"))).await.unwrap();

    // Others may have written elsewhere in the meantime, where the store is shared.
    assert!(nothing >= second && not_there >= nothing);
    assert_eq!(read(&store, "a").await.unwrap().revision, second);
    assert!(store.commit(&Commit::new().delete(key("a"))).await.unwrap() > not_there);
}

/// Also by a member of a cluster that has not heard of it yet.
pub(crate) async fn conditions_alone_are_judged_by_what_was_committed_before<P: Place>(place: &P) {
    let clients = [place.client(), place.client(), place.client()];
    for round in 0..60 {
        let [writer, reader] = [&clients[round % 3], &clients[(round + 1) % 3]];
        let revision = put(writer, "head", &round.to_string()).await;
        let held = reader.commit(&Commit::new().if_at(key("head"), revision)).await;
        assert!(held.as_ref().is_ok_and(|now| *now >= revision), "round {round}: {held:?}");
        let absent = reader.commit(&Commit::new().if_absent(key("head"))).await;
        assert_eq!(absent, Err(CommitError::Conflict), "round {round}");
    }
}

pub(crate) async fn a_list_is_ordered_and_ends_where_its_prefix_ends<P: Place>(place: &P) {
    let store = place.client();
    let names =
        ["site", "site-2/x", "site/b", "site/a/deep", "site/a", "site0", "sites/c", "site/B", "site/b.c"];
    for name in names {
        put(&store, name, name).await;
    }

    let listing = store.list(&below("site")).await.unwrap();

    let found: Vec<String> = listing.entries.iter().map(|entry| entry.key.to_string()).collect();
    assert_eq!(found, ["site/B", "site/a", "site/a/deep", "site/b", "site/b.c"]);
    assert!(listing.entries.iter().all(|entry| entry.value == entry.key.as_str().as_bytes()));
    assert!(listing.entries.iter().all(|entry| entry.revision <= listing.revision));
    assert_eq!(store.list(&Prefix::everything()).await.unwrap().entries.len(), names.len());
    assert_eq!(store.list(&below("site/a/deep")).await.unwrap().entries, []);
}

/// More than is sent at once, and all of it changes all the time.
pub(crate) async fn a_list_is_one_moment_while_others_write<P: Place>(place: &P) {
    const KEYS: usize = 300;
    let [writer, reader] = [place.client(), place.client()];
    let write = |round: usize| {
        let commit = (0..WRITES).fold(Commit::new(), |commit, at| {
            commit.put(key(&format!("many/{}", at * KEYS / WRITES)), format!("{round:0>4000}"))
        });
        let writer = writer.clone();
        async move { writer.commit(&commit).await.unwrap() }
    };
    for at in 0..KEYS {
        put(&writer, &format!("many/{at}"), &"0".repeat(4000)).await;
    }
    write(0).await;
    let writing = async {
        for round in 1..15 {
            write(round).await;
        }
    };
    let reading = async {
        for _ in 0..15 {
            let listing = reader.list(&below("many")).await.unwrap();
            assert_eq!(listing.entries.len(), KEYS);
            let newest = listing.entries.iter().map(|entry| entry.revision).max();
            let together = listing.entries.iter().filter(|entry| Some(entry.revision) == newest);
            assert_eq!(together.count(), WRITES, "a list has a part of a commit");
        }
    };
    tokio::join!(writing, reading);
}

pub(crate) async fn of_many_who_replace_the_same_one_is_first<P: Place>(place: &P) {
    const CLIENTS: usize = 4;
    const EACH: usize = 10;
    put(&place.client(), "count", "0").await;
    let add = |store: P::Store| async move {
        let mut conflicts = 0;
        for _ in 0..EACH {
            loop {
                let entry = read(&store, "count").await.unwrap();
                let count: usize = String::from_utf8(entry.value).unwrap().parse().unwrap();
                let commit = Commit::new().if_at(key("count"), entry.revision);
                match store.commit(&commit.put(key("count"), (count + 1).to_string())).await {
                    Ok(_) => break,
                    Err(CommitError::Conflict) => conflicts += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        conflicts
    };
    let adding: Vec<_> = (0..CLIENTS).map(|_| tokio::spawn(add(place.client()))).collect();
    for each in adding {
        each.await.unwrap();
    }
    let count = read(&place.client(), "count").await.unwrap().value;
    assert_eq!(String::from_utf8(count).unwrap(), (CLIENTS * EACH).to_string());
}

pub(crate) async fn what_is_too_large_is_refused_before_it_is_sent<P: Place>(place: &P) {
    let store = place.client();
    let large = store.commit(&Commit::new().put(key("a"), vec![0; COMMIT_OCTETS])).await;
    assert_eq!(large, Err(CommitError::TooLarge(COMMIT_OCTETS + 1)));

    let many = |count: usize| {
        (0..count).fold(Commit::new(), |commit, at| commit.put(key(&format!("many/{at}")), "x"))
    };
    assert_eq!(store.commit(&many(WRITES + 1)).await, Err(CommitError::TooMany(WRITES + 1)));
    let conditions = (0..=WRITES).fold(Commit::new(), |commit, _| commit.if_absent(key("a")));
    assert_eq!(store.commit(&conditions).await, Err(CommitError::TooMany(WRITES + 1)));

    let as_many_as_may_be =
        (0..WRITES).fold(many(WRITES), |commit, at| commit.if_absent(key(&format!("many/{at}"))));
    store.commit(&as_many_as_may_be).await.unwrap();
    assert_eq!(store.list(&below("many")).await.unwrap().entries.len(), WRITES);
}

pub(crate) async fn large_values_come_back_whole<P: Place>(place: &P) {
    let store = place.client();
    let chunks = 9;
    for at in 0..chunks {
        let name = format!("chunk/{at}");
        let value = vec![at; COMMIT_OCTETS - name.len()];
        store.commit(&Commit::new().put(key(&name), value)).await.unwrap();
    }
    let listing = store.list(&below("chunk")).await.unwrap();
    assert_eq!(listing.entries.len(), usize::from(chunks));
    for (at, entry) in (0..).zip(&listing.entries) {
        assert!(entry.value.iter().all(|octet| *octet == at), "chunk {at}");
    }
}

pub(crate) async fn a_commit_with_a_witness_happens_once<P: Place>(place: &P) {
    let store = place.client();
    let first = put(&store, "head", "1").await;
    let commit = Commit::new().if_at(key("head"), first).put(key("head"), "2");
    let witness = |who: &str| (key("log/17"), who.as_bytes().to_vec());

    let second = once(&store, commit.clone(), witness("kiel"), PATIENCE).await.unwrap();

    assert_eq!(read(&store, "log/17").await.unwrap().revision, second);
    let other = once(&store, Commit::new(), witness("bonn"), PATIENCE).await;
    assert_eq!(other, Err(CommitError::Conflict));
}
