//! Clients that do what controllers do, and record what they are told; `judge` then says whether that can have happened.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lab::history::{OnRegister, Operation};
use store::{
    Changes, Commit, CommitError, Failure, Key, Listing, Prefix, Revision, Store, Watch as _, WatchError,
    once,
};

const REGISTERS: usize = 2;
/// Operations on registers, and acknowledged commits.
const ENOUGH: usize = 150;
/// Long for anything that comes in the end.
const FOR_SURE: Duration = Duration::from_secs(60);

pub(crate) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// What was told.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) registers: BTreeMap<Key, Vec<Operation<OnRegister>>>,
    /// By number: the revision, or none where nobody was told.
    pub(crate) appended: BTreeMap<u64, Option<Revision>>,
    pub(crate) refused: Vec<u64>,
    pub(crate) entries: BTreeMap<Key, Revision>,
    /// When something was asked, when it was told, and which revision the store had then.
    pub(crate) revisions: Vec<(Instant, Instant, Revision)>,
    /// All acknowledged commits.
    pub(crate) acknowledged: Vec<(Revision, Key, Vec<u8>)>,
    pub(crate) unknown: usize,
    pub(crate) unreachable: usize,
}

#[derive(Default)]
pub(crate) struct Test {
    pub(crate) record: Mutex<Record>,
    /// Numbers that are never used again.
    numbers: AtomicU64,
    /// Faults so far: after each there are new registers, so that histories stay short.
    pub(crate) faults: AtomicUsize,
    pub(crate) end: AtomicBool,
}

impl Test {
    fn record(&self, what: impl FnOnce(&mut Record)) {
        what(&mut self.record.lock().unwrap());
    }

    /// Whether there is enough to be judged. On a slow machine that takes longer.
    pub(crate) fn has_enough(&self) -> bool {
        let record = self.record.lock().unwrap();
        let operations: usize = record.registers.values().map(Vec::len).sum();
        operations > ENOUGH && record.acknowledged.len() > ENOUGH
    }

    fn told(&self, register: Key, operation: Operation<OnRegister>) {
        self.record(|record| record.registers.entry(register).or_default().push(operation));
    }

    /// Commits one key, and records what was told.
    async fn commit<S: Store>(
        &self,
        store: &S,
        commit: Commit,
        written: (&Key, &[u8]),
    ) -> Result<Revision, CommitError> {
        let called = Instant::now();
        let told = store.commit(&commit).await;
        let returned = Instant::now();
        self.record(|record| match &told {
            Ok(revision) => {
                record.revisions.push((called, returned, *revision));
                record.acknowledged.push((*revision, written.0.clone(), written.1.to_vec()));
            }
            Err(CommitError::Unknown(_)) => record.unknown += 1,
            Err(CommitError::Failed(Failure::Unreachable(_))) => record.unreachable += 1,
            Err(CommitError::Conflict | CommitError::LeaseEnded) => {}
            Err(error) => panic!("{error}"),
        });
        told
    }
}

/// What a client last knew of a key.
type Known = HashMap<Key, Option<(Revision, u64)>>;

async fn read<S: Store>(test: &Test, store: &S, known: &mut Known, register: Key) {
    let called = Instant::now();
    let told = store.get(&register).await;
    let returned = Some(Instant::now());
    match told {
        Ok(entry) => {
            let entry = entry.map(|entry| (entry.revision, parse(&entry.value)));
            let what = OnRegister::Read(entry.map(|(_, value)| value));
            known.insert(register.clone(), entry);
            test.told(register, Operation { what, called, returned });
        }
        Err(Failure::Unreachable(_)) => test.record(|record| record.unreachable += 1),
        Err(error) => panic!("{error}"),
    }
}

fn parse(value: &[u8]) -> u64 {
    str::from_utf8(value).unwrap().parse().unwrap()
}

/// Replaces what the client has read last, which another one may have replaced already.
async fn replace<S: Store>(test: &Test, store: &S, known: &mut Known, register: Key) {
    let Some(before) = known.get(&register).copied() else { return };
    let number = test.numbers.fetch_add(1, Ordering::Relaxed);
    let commit = match before {
        Some((revision, _)) => Commit::new().if_at(register.clone(), revision),
        None => Commit::new().if_absent(register.clone()),
    };
    let value = number.to_string();
    let expected = before.map(|(_, value)| value);
    let called = Instant::now();
    let told =
        test.commit(store, commit.put(register.clone(), value.clone()), (&register, value.as_bytes())).await;
    let mut returned = Some(Instant::now());
    let what = match told {
        Ok(revision) => {
            known.insert(register.clone(), Some((revision, number)));
            OnRegister::Replaced(expected, number)
        }
        Err(CommitError::Conflict) => {
            known.remove(&register);
            OnRegister::Refused(expected)
        }
        Err(CommitError::Unknown(_)) => {
            known.remove(&register);
            returned = None;
            OnRegister::Replaced(expected, number)
        }
        // It has not happened: if it had, the value would have come from nowhere.
        Err(_) => return,
    };
    test.told(register, Operation { what, called, returned });
}

/// Asks whether the register still is as the client knows it.
async fn ask<S: Store>(test: &Test, store: &S, known: &mut Known, register: Key) {
    let Some(Some((revision, value))) = known.get(&register).copied() else { return };
    let called = Instant::now();
    let told = store.commit(&Commit::new().if_at(register.clone(), revision)).await;
    let returned = Some(Instant::now());
    let what = match told {
        Ok(_) => OnRegister::Read(Some(value)),
        Err(CommitError::Conflict) => OnRegister::Refused(Some(value)),
        // Nothing could have happened.
        Err(CommitError::Unknown(_) | CommitError::Failed(Failure::Unreachable(_))) => return,
        Err(error) => panic!("{error}"),
    };
    test.told(register, Operation { what, called, returned });
}

async fn append<S: Store>(test: &Test, store: &S) {
    let list = key("list");
    let Ok(entry) = store.get(&list).await else { return };
    let number = test.numbers.fetch_add(1, Ordering::Relaxed);
    let (commit, mut value) = match entry {
        Some(entry) => (Commit::new().if_at(list.clone(), entry.revision), entry.value),
        None => (Commit::new().if_absent(list.clone()), Vec::new()),
    };
    value.extend(format!("{number} ").into_bytes());
    let told = test.commit(store, commit.put(list.clone(), value.clone()), (&list, &value)).await;
    test.record(|record| match told {
        Ok(revision) => drop(record.appended.insert(number, Some(revision))),
        Err(CommitError::Unknown(_)) => drop(record.appended.insert(number, None)),
        Err(_) => record.refused.push(number),
    });
}

/// An entry whose writer has to know.
async fn write_once<S: Store>(test: &Test, store: &S) {
    let number = test.numbers.fetch_add(1, Ordering::Relaxed);
    let entry = key(&format!("once/{number}"));
    let witness = (entry.clone(), number.to_string().into_bytes());
    match once(store, Commit::new(), witness, Duration::from_secs(8)).await {
        Ok(revision) => test.record(|record| {
            record.acknowledged.push((revision, entry.clone(), number.to_string().into_bytes()));
            record.entries.insert(entry, revision);
        }),
        Err(CommitError::Unknown(_)) => test.record(|record| record.unknown += 1),
        Err(CommitError::Failed(Failure::Unreachable(_))) => test.record(|record| record.unreachable += 1),
        Err(error) => panic!("nobody else writes {entry}: {error}"),
    }
}

/// Tries to be the one that is active, and writes as long as nobody says that it is another one; then gives the lock back, or
/// dies.
async fn lead<S: Store>(test: &Test, store: &S, dies: bool) {
    let lock = key("lock");
    let Ok(lease) = store.grant(Duration::from_secs(1)).await else { return };
    let number = test.numbers.fetch_add(1, Ordering::Relaxed).to_string();
    let take = Commit::new().if_absent(lock.clone()).put_leased(lock.clone(), number.clone(), lease.id);
    if let Ok(fence) = test.commit(store, take, (&lock, number.as_bytes())).await {
        for _ in 0..5 {
            let (guarded, value) = (key("guarded"), fence.to_string());
            let write = Commit::new().if_at(lock.clone(), fence).put(guarded.clone(), value.clone());
            if test.commit(store, write, (&guarded, value.as_bytes())).await == Err(CommitError::Conflict) {
                break;
            }
            let _ = store.keep_alive(lease.id).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    if !dies {
        let _ = store.revoke(lease.id).await;
    }
}

async fn be_a_client<S: Store>(test: Arc<Test>, store: S, number: u64) {
    let mut random = fastrand::Rng::with_seed(number);
    let mut known = Known::new();
    while !test.end.load(Ordering::Relaxed) {
        let epoch = test.faults.load(Ordering::Relaxed);
        let register = key(&format!("register/{epoch}-{}", random.usize(..REGISTERS)));
        match random.u8(..20) {
            0 => lead(&test, &store, random.bool()).await,
            1..6 => read(&test, &store, &mut known, register).await,
            6..8 => ask(&test, &store, &mut known, register).await,
            8..14 => replace(&test, &store, &mut known, register).await,
            14..18 => append(&test, &store).await,
            _ => write_once(&test, &store).await,
        }
        tokio::time::sleep(Duration::from_millis(random.u64(5..30))).await;
    }
}

/// Everything that is told, until `last`.
async fn watch<S: Store>(
    store: S,
    begin: Revision,
    last: tokio::sync::watch::Receiver<Option<Revision>>,
) -> Vec<Changes> {
    let mut watch = store.watch(&Prefix::everything(), begin);
    let mut told: Vec<Changes> = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_millis(200), watch.next()).await {
            Ok(Ok(changes)) => told.push(changes),
            Ok(Err(WatchError::Failed(Failure::Unreachable(_)))) | Err(_) => {}
            Ok(Err(error)) => panic!("{error}"),
        }
        if let (Some(last), Some(changes)) = (*last.borrow(), told.last())
            && changes.revision >= last
        {
            return told;
        }
    }
}

/// What is left in the end.
pub(crate) struct End {
    /// All that a watch has told, which was there all the time.
    pub(crate) told: Vec<Changes>,
    pub(crate) listing: Listing,
}

/// Lets a client work on each of these, until the test says that it ends.
pub(crate) async fn run<S: Store>(test: &Arc<Test>, stores: Vec<S>) -> End {
    let begin = mark(&stores[0], "begin").await;
    let (tell_last, last) = tokio::sync::watch::channel(None);
    let watching = tokio::spawn(watch(stores[0].clone(), begin, last));
    let clients: Vec<_> = (0..)
        .zip(&stores)
        .map(|(number, store)| tokio::spawn(be_a_client(Arc::clone(test), store.clone(), number)))
        .collect();
    for each in clients {
        each.await.unwrap();
    }
    tell_last.send_replace(Some(mark(&stores[0], "end").await));
    let told = watching.await.unwrap();
    End { told, listing: stores[0].list(&Prefix::everything()).await.unwrap() }
}

async fn mark<S: Store>(store: &S, name: &str) -> Revision {
    let begin = Instant::now();
    loop {
        match once(store, Commit::new(), (key(name), b"0".to_vec()), FOR_SURE).await {
            Err(CommitError::Failed(Failure::Unreachable(_))) => assert!(begin.elapsed() < FOR_SURE),
            told => return told.unwrap(),
        }
    }
}
