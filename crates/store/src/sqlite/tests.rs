//! What the clock does to leases.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A machine with a clock that is set by hand.
struct Machine {
    folder: tempfile::TempDir,
    ms: Arc<AtomicU64>,
}

impl Machine {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), ms: Arc::default() }
    }

    /// A process opens the file in this boot of the machine.
    fn open(&self, boot: &str) -> Sqlite {
        let ms = Arc::clone(&self.ms);
        let clock = Clock { boot: boot.to_owned(), now_ms: Box::new(move || ms.load(Ordering::SeqCst)) };
        Sqlite::open_by(&self.folder.path().join("fleet.db"), HISTORY, clock).unwrap()
    }

    fn set(&self, ms: u64) {
        self.ms.store(ms, Ordering::SeqCst);
    }
}

fn active() -> Key {
    Key::new("site/active").unwrap()
}

async fn hold(store: &Sqlite, time_to_live: Duration) -> LeaseId {
    let lease = store.grant(time_to_live).await.unwrap();
    store.commit(&Commit::new().put_leased(active(), "a", lease.id)).await.unwrap();
    lease.id
}

async fn is_held(store: &Sqlite) -> bool {
    store.get(&active()).await.unwrap().is_some()
}

#[tokio::test]
async fn a_lease_ends_at_its_time_and_not_before() {
    let machine = Machine::new();
    let store = machine.open("one");
    let lease = hold(&store, Duration::from_secs(10)).await;
    machine.set(9_999);
    assert!(is_held(&store).await);
    store.keep_alive(lease).await.unwrap();
    machine.set(19_998);
    assert!(is_held(&store).await);
    machine.set(19_999);
    assert!(!is_held(&store).await);
    assert_eq!(store.keep_alive(lease).await, Err(LeaseError::Ended));
}

/// The clock goes on, nobody runs.
#[tokio::test]
async fn a_machine_that_slept_longer_than_a_lease_finds_it_ended() {
    let machine = Machine::new();
    let store = machine.open("one");
    let lease = hold(&store, Duration::from_secs(10)).await;
    machine.set(8 * 3600 * 1000);
    assert_eq!(store.keep_alive(lease).await, Err(LeaseError::Ended));
    assert!(!is_held(&store).await);
}

#[tokio::test]
async fn after_a_reboot_a_lease_begins_again() {
    let machine = Machine::new();
    machine.set(1_000_000);
    let store = machine.open("one");
    let lease = hold(&store, Duration::from_secs(10)).await;
    drop(store);

    machine.set(50);
    let store = machine.open("two");
    machine.set(10_049);
    assert!(is_held(&store).await);
    store.keep_alive(lease).await.unwrap();
    machine.set(20_049);
    assert!(!is_held(&store).await);
}

#[tokio::test]
async fn a_lease_ends_while_nobody_has_the_file_and_the_next_one_tells_its_watchers() {
    let machine = Machine::new();
    let store = machine.open("one");
    hold(&store, Duration::from_secs(10)).await;
    let before = store.list(&Prefix::everything()).await.unwrap().revision;
    drop(store);

    machine.set(10_000);
    let store = machine.open("one");
    let mut watch = store.watch(&Prefix::everything(), before);
    let told = watch.next().await.unwrap();
    assert!(told.revision > before && told.changes == [crate::Change::Deleted(active())]);
}

/// One process keeps the lease alive that another one is about to end.
#[tokio::test]
async fn a_lease_that_another_process_keeps_alive_is_not_ended() {
    let machine = Machine::new();
    let [one, other] = [machine.open("one"), machine.open("one")];
    let lease = hold(&one, Duration::from_secs(10)).await;
    for round in 1..20 {
        machine.set(round * 9_000);
        one.keep_alive(lease).await.unwrap();
        assert!(is_held(&other).await, "round {round}");
    }
}
