//! The store in a file: the stories, and what becomes of files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use store::{Commit, CommitError, Failure, Key, OpenError, Prefix, Revision, Sqlite, Store as _};
use tempfile::TempDir;

use crate::suite::{self, Place};

/// Each client has the file open by itself, as another process would.
struct InAFile {
    folder: TempDir,
}

/// How many revisions are kept.
const HISTORY: u64 = 400;

impl InAFile {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("fleet.db")
    }
}

impl Place for InAFile {
    type Store = Sqlite;

    fn client(&self) -> Sqlite {
        Sqlite::open_with(self.path(), HISTORY).unwrap()
    }

    async fn forget(&self) {
        let store = self.client();
        for _ in 0..=HISTORY {
            store.commit(&Commit::new().put(key("elsewhere"), "")).await.unwrap();
        }
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(500)
    }
}

macro_rules! tests {
    ($($story:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                suite::$story(&InAFile::new()).await;
            }
        )*
    };
}
for_each_story!(tests);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn nobody_else_reads_the_file_or_those_beside_it() {
    let place = InAFile::new();
    let store = place.client();
    store.commit(&Commit::new().put(key("a"), "secret")).await.unwrap();
    let files: Vec<PathBuf> =
        std::fs::read_dir(place.folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() > 1, "{files:?}");
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    drop(store);

    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = Sqlite::open(place.path()).unwrap_err();
    assert!(matches!(error, OpenError::Open { mode: 0o640, .. }));
    assert!(
        error.to_string().ends_with("fleet.db can be read by others (mode 640): chmod 600 it"),
        "{error}"
    );
}

#[test]
fn what_is_no_store_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let private =
        |name: &str| std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o600)).unwrap();

    Connection::open(at("other.db"))
        .unwrap()
        .execute_batch("CREATE TABLE mine (a); PRAGMA user_version = 1")
        .unwrap();
    private("other.db");
    let before = std::fs::read(at("other.db")).unwrap();
    let error = Sqlite::open(at("other.db")).unwrap_err();
    assert!(matches!(error, OpenError::Foreign(_)), "{error}");
    assert_eq!(std::fs::read(at("other.db")).unwrap(), before);

    std::fs::write(at("text"), "not a database, but long enough to be taken for one\n".repeat(100)).unwrap();
    private("text");
    let error = Sqlite::open(at("text")).unwrap_err();
    assert!(matches!(&error, OpenError::Failed { failure: Failure::Broken(_), .. }), "{error}");

    let error = Sqlite::open(at("no/such/folder.db")).unwrap_err();
    assert!(error.to_string().contains("no/such/folder.db: No such file"), "{error}");
    let error = Sqlite::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
}

#[test]
fn a_file_of_a_later_version_is_refused() {
    let place = InAFile::new();
    drop(place.client());
    Connection::open(place.path()).unwrap().pragma_update(None, "user_version", 1000).unwrap();
    let error = Sqlite::open(place.path()).unwrap_err();
    assert!(matches!(error, OpenError::Newer { schema: 1000, .. }), "{error}");
}

/// Files as they were written by each schema that was released, in `tests/schemas`. `UPDATE_SCHEMAS=1` writes that of a new
/// one; those before it are never written again.
#[tokio::test]
async fn files_of_every_schema_are_opened() {
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas");
    let place = InAFile::new();
    drop(place.client());
    let latest: i64 = Connection::open(place.path())
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    for schema in 1..=latest {
        let kept = schemas.join(format!("{schema}.db"));
        if !kept.exists() && schema == latest && std::env::var_os("UPDATE_SCHEMAS").is_some() {
            write_fixture(&kept).await;
        }
        let path = place.folder.path().join("old.db");
        let octets = std::fs::read(&kept).unwrap_or_else(|error| panic!("{}: {error}", kept.display()));
        std::fs::write(&path, octets).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        // It was written in another boot of a machine, wherever this runs: its lease begins again.
        let connection = Connection::open(&path).unwrap();
        connection.execute("UPDATE lease SET boot = 'another'", ()).unwrap();
        drop(connection);

        let store = Sqlite::open(&path).unwrap();

        let read = |name: &'static str| {
            let store = store.clone();
            async move { store.get(&key(name)).await.unwrap() }
        };
        let head = read("document/head").await.unwrap();
        assert_eq!((head.value, head.revision), (b"2".to_vec(), Revision::new(4).unwrap()));
        assert_eq!(read("document/chunk").await.unwrap().value, [0, 255]);
        assert_eq!(read("token").await, None);
        let leased = read("site/active").await.unwrap();
        assert_eq!(store.keep_alive(leased.lease.unwrap()).await, Ok(Duration::from_secs(3600)));
        let mut watch = store.watch(&Prefix::everything(), Revision::new(2).unwrap());
        let told = store::Watch::next(&mut watch).await.unwrap();
        assert_eq!((told.revision.number(), told.changes.len()), (3, 2));
        let next = store.commit(&Commit::new().if_at(key("document/head"), head.revision)).await.unwrap();
        assert_eq!(next.number(), 5);
        std::fs::remove_file(path).unwrap();
    }
}

async fn write_fixture(path: &Path) {
    let store = Sqlite::open(path).unwrap();
    let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
    for commit in [
        Commit::new().put(key("document/head"), "1").put(key("token"), "t"),
        Commit::new().put(key("document/chunk"), [0, 255]).delete(key("token")),
        Commit::new().put(key("document/head"), "2"),
        Commit::new().put_leased(key("site/active"), "a", lease.id),
    ] {
        store.commit(&commit).await.unwrap();
    }
    drop(store);
    // All of it in the one file.
    let connection = Connection::open(path).unwrap();
    connection.query_row("PRAGMA journal_mode = DELETE", (), |_| Ok(())).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_program_that_holds_the_file_is_waited_for() {
    let place = InAFile::new();
    let store = place.client();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let held = Duration::from_millis(400);
    let begin = Instant::now();
    let commit = Commit::new().put(key("a"), "1");
    let release = async {
        tokio::time::sleep(held).await;
        // The executor is not held up by who waits for the file.
        assert!(begin.elapsed() < Duration::from_secs(5));
        other.execute_batch("COMMIT").unwrap();
    };
    let (committed, ()) = tokio::join!(store.commit(&commit), release);
    committed.unwrap();
    assert!(begin.elapsed() >= held);
}

/// It waits in the end, but says that nothing has happened.
#[tokio::test]
async fn a_file_that_is_never_let_go_cannot_be_reached() {
    let place = InAFile::new();
    let store = place.client();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.commit(&Commit::new().put(key("a"), "1")).await;
    assert!(matches!(refused, Err(CommitError::Failed(Failure::Unreachable(_)))), "{refused:?}");
    assert_eq!(store.get(&key("a")).await.unwrap(), None, "who only reads does not wait");
    other.execute_batch("ROLLBACK").unwrap();
    store.commit(&Commit::new().put(key("a"), "1")).await.unwrap();
}

#[tokio::test]
async fn history_does_not_grow_without_bound() {
    let place = InAFile::new();
    let store = Sqlite::open_with(place.path(), 10).unwrap();
    let rows = || {
        let connection = Connection::open(place.path()).unwrap();
        connection.query_row("SELECT count(*) FROM version", (), |row| row.get::<_, i64>(0)).unwrap()
    };
    for _ in 0..50 {
        store.commit(&Commit::new().put(key("a"), vec![0; 1000]).delete(key("b"))).await.unwrap();
        store.commit(&Commit::new().put(key("b"), vec![0; 1000])).await.unwrap();
    }
    assert!(rows() < 40, "{}", rows());
    assert_eq!(store.list(&Prefix::everything()).await.unwrap().entries.len(), 2);
}

/// Octets anywhere in the file become others, as on a disk that fails: errors, but no panic, and never a wrong key.
#[tokio::test]
async fn whatever_is_in_the_file_nothing_panics() {
    let place = InAFile::new();
    let store = place.client();
    for at in 0..40 {
        let lease = store.grant(Duration::from_secs(3600)).await.unwrap();
        let commit = Commit::new().put(key(&format!("a/{at}")), vec![at; 300]);
        store.commit(&commit.put_leased(key(&format!("b/{at}")), "1", lease.id)).await.unwrap();
    }
    drop(store);
    let connection = Connection::open(place.path()).unwrap();
    connection.query_row("PRAGMA journal_mode = DELETE", (), |_| Ok(())).unwrap();
    drop(connection);
    let whole = std::fs::read(place.path()).unwrap();
    let mut opened = 0;
    for seed in 0..lab::scale::scaled(100, 5000) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut octets = whole.clone();
        for _ in 0..random.usize(1..20) {
            let end = if random.u8(..) < 64 { 4096 } else { octets.len() };
            octets[random.usize(..end)] = random.u8(..);
        }
        if random.u8(..) < 32 {
            octets.truncate(random.usize(..octets.len()));
        }
        let path = place.folder.path().join("broken.db");
        std::fs::write(&path, &octets).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Ok(store) = Sqlite::open(&path) {
            opened += 1;
            let _ = store.list(&Prefix::everything()).await;
            let _ = store.get(&key("a/1")).await;
            let _ = store.commit(&Commit::new().put(key("a/1"), "2").delete(key("b/2"))).await;
            if let Some(after) = Revision::new(1) {
                let mut watch = store.watch(&Prefix::everything(), after);
                let _ = tokio::time::timeout(Duration::from_millis(5), store::Watch::next(&mut watch)).await;
            }
        }
        for name in ["broken.db", "broken.db-wal", "broken.db-shm"] {
            let _ = std::fs::remove_file(place.folder.path().join(name));
        }
    }
    assert!(opened > 0, "nothing but the header was tried");
}
