//! Several clients of a cluster whose members are killed, stopped, slowed and cut off: what they were told is what has happened
//! (in the manner of Jepsen).
//!
//! Clients read registers, replace them, append to a list, and write entries once, while one fault follows another. Everything
//! that they are told is recorded. In the end:
//! - each register's history is linearizable (`lab::history`);
//! - each acknowledged append is in the list once, in the order of revisions; none that was refused is;
//! - each entry that was acknowledged is there, with the revision that was told;
//! - revisions never go back, from one answer to any request after it;
//! - a watch that was there all the time has told every acknowledged commit, once, and in order.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lab::etcd::Cluster;
use lab::history::{OnRegister, Operation, Register, check};
use lab::scale::scaled;
use linux::netns;
use store::{
    Change, Changes, Commit, CommitError, Etcd, Failure, Key, Prefix, Revision, Store as _, Watch as _,
    WatchError, once,
};

use crate::etcd::{among_clients, client};

const CLIENTS: usize = 5;
const REGISTERS: usize = 2;
/// Below which all is.
const BELOW: &str = "faults";

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// What was told.
#[derive(Default)]
struct Record {
    registers: BTreeMap<Key, Vec<Operation<OnRegister>>>,
    /// By number: the revision, or none where nobody was told.
    appended: BTreeMap<u64, Option<Revision>>,
    refused: Vec<u64>,
    entries: BTreeMap<Key, Revision>,
    /// When something was asked, when it was told, and which revision the store had then.
    revisions: Vec<(Instant, Instant, Revision)>,
    /// All acknowledged commits.
    acknowledged: Vec<(Revision, Key, Vec<u8>)>,
    unknown: usize,
    unreachable: usize,
}

struct Test {
    record: Mutex<Record>,
    /// Numbers that are never used again.
    numbers: AtomicU64,
    /// Faults so far: after each there are new registers, so that histories stay short.
    faults: AtomicUsize,
    end: AtomicBool,
}

impl Test {
    fn record(&self, what: impl FnOnce(&mut Record)) {
        what(&mut self.record.lock().unwrap());
    }

    fn told(&self, register: Key, operation: Operation<OnRegister>) {
        self.record(|record| record.registers.entry(register).or_default().push(operation));
    }

    /// Commits one key, and records what was told.
    async fn commit(
        &self,
        store: &Etcd,
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
            Err(CommitError::Conflict) => {}
            Err(error) => panic!("{error}"),
        });
        told
    }
}

/// What a client last knew of a key.
type Known = HashMap<Key, Option<(Revision, u64)>>;

async fn read(test: &Test, store: &Etcd, known: &mut Known, register: Key) {
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
async fn replace(test: &Test, store: &Etcd, known: &mut Known, register: Key) {
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
async fn ask(test: &Test, store: &Etcd, known: &mut Known, register: Key) {
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

async fn append(test: &Test, store: &Etcd) {
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
async fn write_once(test: &Test, store: &Etcd) {
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

async fn be_a_client(test: Arc<Test>, store: Etcd, number: u64) {
    let mut random = fastrand::Rng::with_seed(number);
    let mut known = Known::new();
    while !test.end.load(Ordering::Relaxed) {
        let epoch = test.faults.load(Ordering::Relaxed);
        let register = key(&format!("register/{epoch}-{}", random.usize(..REGISTERS)));
        match random.u8(..10) {
            0..3 => read(&test, &store, &mut known, register).await,
            3 => ask(&test, &store, &mut known, register).await,
            4..7 => replace(&test, &store, &mut known, register).await,
            7..9 => append(&test, &store).await,
            _ => write_once(&test, &store).await,
        }
        tokio::time::sleep(Duration::from_millis(random.u64(5..30))).await;
    }
}

/// Everything that is told, until `last`.
async fn watch(
    store: Etcd,
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

/// One fault after another.
fn break_things(cluster: &mut Cluster, test: &Test, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut faults = ["kill", "stop", "isolate", "cut off", "slow", "kill all", "stop two"];
    let mut count = 0;
    while count < scaled(7, 150) {
        random.shuffle(&mut faults);
        for fault in faults {
            let member = match cluster.leader() {
                Some(leader) if random.bool() => leader,
                _ => random.usize(..cluster.members()),
            };
            let other = (member + 1) % cluster.members();
            eprintln!("{fault} {member}");
            let lasts = Duration::from_millis(random.u64(600..1800));
            match fault {
                "kill" => {
                    cluster.kill(member);
                    std::thread::sleep(lasts);
                    cluster.run(member).unwrap();
                }
                "kill all" => {
                    (0..cluster.members()).for_each(|member| cluster.kill(member));
                    std::thread::sleep(lasts / 4);
                    (0..cluster.members()).for_each(|member| cluster.run(member).unwrap());
                }
                "stop" | "stop two" => {
                    let two = fault == "stop two";
                    cluster.stop(member);
                    if two {
                        cluster.stop(other);
                    }
                    std::thread::sleep(lasts);
                    cluster.go_on(member);
                    cluster.go_on(other);
                }
                "isolate" | "cut off" => {
                    if fault == "isolate" { cluster.isolate(member) } else { cluster.cut_off(member) }
                        .unwrap();
                    std::thread::sleep(lasts);
                    cluster.mend(member).unwrap();
                }
                _ => {
                    let slowed = cluster.slow(member);
                    std::thread::sleep(lasts);
                    drop(slowed);
                }
            }
            count += 1;
            test.faults.fetch_add(1, Ordering::Relaxed);
            // Some time in which it may mend, not always long enough.
            std::thread::sleep(Duration::from_millis(random.u64(100..900)));
        }
    }
}

#[test]
fn what_clients_are_told_is_what_has_happened() {
    if !netns::available_to_tests() {
        return;
    }
    let mut cluster = Cluster::start(3, None).unwrap();
    let clients = cluster.clients().name().to_owned();
    let test = Arc::new(Test {
        record: Mutex::default(),
        numbers: AtomicU64::new(1),
        faults: AtomicUsize::new(0),
        end: AtomicBool::new(false),
    });
    let begin = among_clients(&clients, async || {
        client(&cluster, 0, BELOW).commit(&Commit::new().put(key("begin"), "0")).await.unwrap()
    });
    let endpoints = cluster.endpoints();
    let (tell_last, last) = tokio::sync::watch::channel(None);
    let told = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            among_clients(&clients, async || {
                let store = |first: usize| {
                    let mut endpoints = endpoints.clone();
                    endpoints.rotate_left(first % 3);
                    let options = store::EtcdOptions::new(endpoints, &key(BELOW));
                    Etcd::new(&options.patience(Duration::from_millis(1500))).unwrap()
                };
                let watching = tokio::spawn(watch(store(0), begin, last));
                let all: Vec<_> = (0..CLIENTS)
                    .map(|number| tokio::spawn(be_a_client(Arc::clone(&test), store(number), number as u64)))
                    .collect();
                for each in all {
                    each.await.unwrap();
                }
                watching.await.unwrap()
            })
        });
        break_things(&mut cluster, &test, 20_26);
        cluster.wait_until_well().unwrap();
        test.end.store(true, Ordering::Relaxed);
        // What is late arrives before the last commit, or not at all: what it replaces is no longer there.
        let marked = among_clients(&clients, async || {
            let store = client(&cluster, 0, BELOW);
            once(&store, Commit::new(), (key("end"), b"0".to_vec()), Duration::from_secs(60)).await.unwrap()
        });
        tell_last.send_replace(Some(marked));
        running.join().unwrap()
    });
    let listing = among_clients(&clients, async || {
        client(&cluster, 0, BELOW).list(&Prefix::everything()).await.unwrap()
    });
    let record = std::mem::take(&mut *test.record.lock().unwrap());
    judge(&record, &told, &listing);
}

fn judge(record: &Record, told: &[Changes], listing: &store::Listing) {
    let operations: usize = record.registers.values().map(Vec::len).sum();
    eprintln!(
        "{operations} on {} registers, {} appended, {} entries, {} commits acknowledged, {} unknown, {} unreachable",
        record.registers.len(),
        record.appended.len(),
        record.entries.len(),
        record.acknowledged.len(),
        record.unknown,
        record.unreachable
    );
    assert!(operations > 100 && record.acknowledged.len() > 100, "the cluster was hardly ever there");

    for (register, history) in &record.registers {
        if let Err(best) = check::<Register>(None, history) {
            let best: Vec<_> = best.iter().map(|place| &history[*place]).collect();
            panic!("{register} is not linearizable.\n{history:#?}\nbest order: {best:#?}");
        }
    }

    let there: HashMap<&Key, &store::Entry> =
        listing.entries.iter().map(|entry| (&entry.key, entry)).collect();
    let list = there
        .get(&key("list"))
        .map_or(String::new(), |entry| String::from_utf8(entry.value.clone()).unwrap());
    let list: Vec<u64> = list.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let mut last = None;
    for (place, number) in list.iter().enumerate() {
        assert!(!list[..place].contains(number), "{number} was appended twice");
        assert!(
            !record.refused.contains(number),
            "{number} was appended, and its writer was told that it was not"
        );
        let revision = record.appended.get(number).unwrap_or_else(|| panic!("{number} came from nowhere"));
        if revision.is_some() {
            assert!(*revision > last, "{number} is not where it was appended");
            last = *revision;
        }
    }
    for (number, revision) in &record.appended {
        assert!(revision.is_none() || list.contains(number), "{number} was acknowledged, and is lost");
    }

    for (entry, revision) in &record.entries {
        assert_eq!(there.get(entry).map(|entry| entry.revision), Some(*revision), "{entry}");
    }

    let mut by_return = record.revisions.clone();
    by_return.sort_by_key(|(_, returned, _)| *returned);
    let mut highest = Vec::new();
    for (_, returned, revision) in &by_return {
        let before = highest.last().map_or(*revision, |(_, highest): &(Instant, Revision)| *highest);
        highest.push((*returned, before.max(*revision)));
    }
    for (called, _, revision) in &by_return {
        let before = highest.partition_point(|(returned, _)| returned < called);
        if let Some((_, highest)) = before.checked_sub(1).map(|before| highest[before]) {
            assert!(*revision > highest, "{revision} was told after {highest}");
        }
    }

    assert!(told.is_sorted_by(|one, other| one.revision < other.revision), "a watch went back");
    let mut watched: HashMap<(Revision, Key), Vec<u8>> = HashMap::new();
    let mut state = BTreeMap::new();
    for change in told.iter().flat_map(|changes| &changes.changes) {
        match change {
            Change::Put(entry) => {
                watched.insert((entry.revision, entry.key.clone()), entry.value.clone());
                state.insert(entry.key.clone(), entry.value.clone());
            }
            Change::Deleted(key) => panic!("{key} was never deleted"),
        }
    }
    for (revision, key, value) in &record.acknowledged {
        assert_eq!(
            watched.get(&(*revision, key.clone())),
            Some(value),
            "the watch did not tell of {key} at {revision}"
        );
    }
    let there = listing.entries.iter().filter(|entry| entry.key != key("begin"));
    assert_eq!(
        there.map(|entry| (entry.key.clone(), entry.value.clone())).collect::<BTreeMap<_, _>>(),
        state
    );
}
