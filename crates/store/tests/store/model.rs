//! Random operations of several clients, one after another, beside a model.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use store::{Change, Commit, CommitError, Key, LeaseId, Memory, Prefix, Revision, Sqlite, Store, Watch as _};

const KEYS: usize = 5;
const CLIENTS: usize = 3;

/// What a client does.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Conditions and writes, by number of the key.
    Commit {
        conditions: Vec<(usize, Expected)>,
        writes: Vec<(usize, Written)>,
    },
    Read(usize),
    List,
    Grant,
    /// Of those that were granted, by number.
    Revoke(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Expected {
    Absent,
    /// The last revision that the key had.
    Last,
    /// One before.
    Earlier,
}

#[derive(Clone, Debug)]
pub(crate) enum Written {
    Put(u8),
    Leased(u8, usize),
    Delete,
}

pub(crate) fn operations() -> impl Strategy<Value = Vec<(usize, Operation)>> {
    let expected =
        prop_oneof![1 => Just(Expected::Absent), 3 => Just(Expected::Last), 1 => Just(Expected::Earlier)];
    let written = prop_oneof![
        3 => any::<u8>().prop_map(Written::Put),
        1 => (any::<u8>(), 0..3_usize).prop_map(|(value, lease)| Written::Leased(value, lease)),
        1 => Just(Written::Delete),
    ];
    let conditions = prop::collection::vec((0..KEYS, expected), 0..3);
    let writes = prop::collection::vec((0..KEYS, written), 0..4);
    let operation = prop_oneof![
        8 => (conditions, writes).prop_map(|(conditions, writes)| Operation::Commit { conditions, writes }),
        2 => (0..KEYS).prop_map(Operation::Read),
        1 => Just(Operation::List),
        1 => Just(Operation::Grant),
        1 => (0..3_usize).prop_map(Operation::Revoke),
    ];
    prop::collection::vec((0..CLIENTS, operation), 1..40)
}

/// A key, and what was put.
type Told = (Key, Option<Vec<u8>>);
/// What is to be put, with its lease, or removed.
type ToWrite = Option<(Vec<u8>, Option<LeaseId>)>;
type Value = (Vec<u8>, Revision, Option<LeaseId>);

/// What there should be, and what should have been told.
#[derive(Default)]
struct Model {
    entries: BTreeMap<Key, Value>,
    /// All revisions that a key had.
    had: BTreeMap<Key, Vec<Revision>>,
    leases: Vec<(LeaseId, bool)>,
    told: Vec<(Revision, Vec<Told>)>,
}

impl Model {
    fn revision_of(&self, key: &Key, expected: &Expected) -> Option<Revision> {
        let had = self.had.get(key)?;
        match expected {
            Expected::Absent => None,
            Expected::Last => had.last().copied(),
            Expected::Earlier => had.iter().rev().nth(1).copied(),
        }
    }

    fn change(&mut self, revision: Revision, writes: BTreeMap<Key, ToWrite>) -> bool {
        let mut told = Vec::new();
        for (key, write) in writes {
            match write {
                Some((value, lease)) => {
                    self.entries.insert(key.clone(), (value.clone(), revision, lease));
                    self.had.entry(key.clone()).or_default().push(revision);
                    told.push((key, Some(value)));
                }
                None if self.entries.remove(&key).is_some() => told.push((key, None)),
                None => {}
            }
        }
        let changed = !told.is_empty();
        if changed {
            self.told.push((revision, told));
        }
        changed
    }
}

fn key_of(prefix: &Prefix, number: usize) -> Key {
    prefix.key(format!("k{number}")).unwrap()
}

/// Does the operations, each by its client, and compares every answer with the model; in the end also what a watch tells.
pub(crate) async fn compare<S: Store>(clients: &[S], prefix: &Prefix, operations: Vec<(usize, Operation)>) {
    let mut model = Model::default();
    let begin = clients[0].list(prefix).await.unwrap();
    assert_eq!(begin.entries, []);
    let mut latest = begin.revision;
    for (client, operation) in operations {
        let client = &clients[client % clients.len()];
        match operation {
            Operation::Commit { conditions, writes } => {
                latest = commit(client, prefix, &mut model, latest, conditions, writes).await;
            }
            Operation::Read(number) => {
                let key = key_of(prefix, number);
                let read = client.get(&key).await.unwrap();
                let read = read.map(|entry| (entry.value, entry.revision, entry.lease));
                assert_eq!(read.as_ref(), model.entries.get(&key));
            }
            Operation::List => list(client, prefix, &model, latest).await,
            Operation::Grant => {
                let lease = client.grant(Duration::from_secs(3600)).await.unwrap();
                assert!(model.leases.iter().all(|(other, _)| *other != lease.id));
                model.leases.push((lease.id, true));
            }
            Operation::Revoke(number) => {
                let Some((id, lives)) = model.leases.get_mut(number) else { continue };
                *lives = false;
                let id = *id;
                client.revoke(id).await.unwrap();
                let revision = client.list(prefix).await.unwrap().revision;
                let bound = model.entries.iter().filter(|(_, (_, _, lease))| *lease == Some(id));
                let writes = bound.map(|(key, _)| (key.clone(), None)).collect();
                if model.change(revision, writes) {
                    assert!(revision > latest);
                    latest = revision;
                }
            }
        }
    }
    for client in clients {
        list(client, prefix, &model, latest).await;
    }
    let mut watch = clients[0].watch(prefix, begin.revision);
    for (revision, expected) in &model.told {
        let told = tokio::time::timeout(Duration::from_secs(60), watch.next()).await.unwrap().unwrap();
        let changes = told.changes.into_iter().map(|change| match change {
            Change::Put(entry) => (entry.key, Some(entry.value)),
            Change::Deleted(key) => (key, None),
        });
        assert_eq!((told.revision, changes.collect::<Vec<_>>()), (*revision, expected.clone()));
    }
}

async fn list<S: Store>(client: &S, prefix: &Prefix, model: &Model, latest: Revision) {
    let listing = client.list(prefix).await.unwrap();
    assert!(listing.revision >= latest);
    let listed =
        listing.entries.into_iter().map(|entry| (entry.key, (entry.value, entry.revision, entry.lease)));
    assert_eq!(listed.collect::<BTreeMap<_, _>>(), model.entries);
}

/// Commits, and answers the latest revision.
async fn commit<S: Store>(
    client: &S,
    prefix: &Prefix,
    model: &mut Model,
    latest: Revision,
    conditions: Vec<(usize, Expected)>,
    writes: Vec<(usize, Written)>,
) -> Revision {
    let mut commit = Commit::new();
    let mut holds = true;
    for (number, expected) in conditions {
        let key = key_of(prefix, number);
        let found = model.entries.get(&key).map(|(_, revision, _)| *revision);
        match model.revision_of(&key, &expected) {
            Some(revision) => {
                holds &= found == Some(revision);
                commit = commit.if_at(key, revision);
            }
            None => {
                holds &= found.is_none();
                commit = commit.if_absent(key);
            }
        }
    }
    let mut lives = true;
    let mut expected = BTreeMap::new();
    for (number, written) in writes {
        let key = key_of(prefix, number);
        let lease = match &written {
            Written::Leased(_, lease) => model.leases.get(*lease).copied(),
            _ => None,
        };
        match written {
            Written::Put(value) | Written::Leased(value, _) => {
                let value = vec![value; usize::from(value) % 4];
                commit = match lease {
                    Some((id, _)) => commit.put_leased(key.clone(), value.clone(), id),
                    None => commit.put(key.clone(), value.clone()),
                };
                expected.insert(key, Some((value, lease)));
            }
            Written::Delete => {
                commit = commit.delete(key.clone());
                expected.insert(key, None);
            }
        }
    }
    lives &= expected.values().flatten().all(|(_, lease)| lease.is_none_or(|(_, lives)| lives));
    match client.commit(&commit).await {
        Err(CommitError::Conflict) => assert!(!holds, "{commit:?} on {:?}", model.entries),
        Err(CommitError::LeaseEnded) => assert!(holds && !lives, "{commit:?} on {:?}", model.entries),
        Err(error) => panic!("{error}"),
        Ok(revision) => {
            assert!(holds && lives, "{commit:?} on {:?}", model.entries);
            let writes = expected
                .into_iter()
                .map(|(key, write)| (key, write.map(|(value, lease)| (value, lease.map(|(id, _)| id)))));
            if model.change(revision, writes.collect()) {
                assert!(revision > latest);
            }
            assert!(revision >= latest);
            return revision;
        }
    }
    latest
}

fn block_on(work: impl Future) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(lab::scale::scaled(200, 5000)))]

    #[test]
    fn the_store_in_memory_does_what_the_model_says(operations in operations()) {
        let clients = vec![Memory::new(); CLIENTS];
        block_on(compare(&clients, &Prefix::new("model").unwrap(), operations));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(lab::scale::scaled(40, 1000)))]

    /// Each client has the file open by itself, as another process would.
    #[test]
    fn the_store_in_a_file_does_what_the_model_says(operations in operations()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.db");
        let clients: Vec<Sqlite> = (0..CLIENTS).map(|_| Sqlite::open(&path).unwrap()).collect();
        block_on(compare(&clients, &Prefix::new("model").unwrap(), operations));
    }
}
