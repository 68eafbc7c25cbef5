//! Several clients of a store that fails: what they were told is what has happened (in the manner of Jepsen). What they do is in
//! `clients`, what must hold in `judge`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lab::etcd::Cluster;
use lab::scale::scaled;
use linux::netns;
use store::{Etcd, EtcdOptions, Fate, Memory, Sqlite};

use crate::clients::{Test, key, run};
use crate::etcd::among_clients;
use crate::judge::judge;

const CLIENTS: usize = 5;

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The one that fails in every way, at every third commit.
#[test]
fn in_memory_what_clients_are_told_is_what_has_happened() {
    let (test, store) = (Arc::new(Test::default()), Memory::new());
    let fail = async {
        let mut random = fastrand::Rng::with_seed(1);
        let mut rounds = 0;
        while rounds < scaled(100, 3000) || !test.has_enough() {
            rounds += 1;
            let mut fates = random.fork();
            store.decide(move |_| match fates.u8(..12) {
                0 => Fate::UnknownButHappens,
                1 => Fate::UnknownAndLost,
                2 => Fate::UnknownAndLate,
                3 => Fate::Unreachable,
                _ => Fate::Happens,
            });
            store.hold_watches(random.bool());
            store.reachable(random.u8(..5) > 0);
            store.pass(Duration::from_millis(random.u64(..400)));
            tokio::time::sleep(Duration::from_millis(random.u64(5..40))).await;
            if random.bool() {
                store.arrive();
            }
            if random.u8(..10) == 0 {
                test.faults.fetch_add(1, Ordering::Relaxed);
            }
        }
        store.hold_watches(false);
        store.reachable(true);
        store.decide(|_| Fate::Happens);
        store.arrive();
        test.end.store(true, Ordering::Relaxed);
    };
    let end = block_on(async { tokio::join!(run(&test, vec![store.clone(); CLIENTS]), fail).0 });
    judge(&test.record.lock().unwrap(), &end);
}

/// Each client has the file open by itself, and another program holds it now and then.
#[test]
fn in_a_file_what_clients_are_told_is_what_has_happened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.db");
    let test = Arc::new(Test::default());
    let stores: Vec<Sqlite> = (0..CLIENTS).map(|_| Sqlite::open(&path).unwrap()).collect();
    let hold = async {
        let other = rusqlite::Connection::open(&path).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut rounds = 0;
        while rounds < scaled(10, 300) || !test.has_enough() {
            rounds += 1;
            if other.execute_batch("BEGIN IMMEDIATE").is_ok() {
                tokio::time::sleep(Duration::from_millis(random.u64(..200))).await;
                other.execute_batch("ROLLBACK").unwrap();
            }
            tokio::time::sleep(Duration::from_millis(random.u64(50..300))).await;
            test.faults.fetch_add(1, Ordering::Relaxed);
        }
        test.end.store(true, Ordering::Relaxed);
    };
    let end = block_on(async { tokio::join!(run(&test, stores), hold).0 });
    judge(&test.record.lock().unwrap(), &end);
}

#[test]
fn in_etcd_what_clients_are_told_is_what_has_happened() {
    if !netns::available_to_tests() {
        return;
    }
    let mut cluster = Cluster::start(3, None).unwrap();
    let clients = cluster.clients().name().to_owned();
    let endpoints = cluster.endpoints();
    let test = Arc::new(Test::default());
    let end = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            among_clients(&clients, async || {
                let store = |first: usize| {
                    let mut endpoints = endpoints.clone();
                    endpoints.rotate_left(first % 3);
                    let options = EtcdOptions::new(endpoints, &key("faults"));
                    Etcd::new(&options.patience(Duration::from_millis(1500))).unwrap()
                };
                run(&test, (0..CLIENTS).map(store).collect()).await
            })
        });
        break_things(&mut cluster, &test, 20_26);
        cluster.wait_until_well().unwrap();
        test.end.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    judge(&test.record.lock().unwrap(), &end);
}

/// One fault after another.
fn break_things(cluster: &mut Cluster, test: &Test, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut faults = ["kill", "stop", "isolate", "cut off", "slow", "kill all", "stop two"];
    let mut count = 0;
    while count < scaled(7, 150) || !test.has_enough() {
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
