//! A process that commits to a file is killed at any moment: what was acknowledged is there.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use store::{Commit, CommitError, Failure, Key, Prefix, Sqlite, Store as _, Watch as _};

/// Where the file is, for the process that is killed.
const FILE: &str = "STORE_TEST_FILE";

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// Not a test: the process that is killed. It says what was acknowledged, a number for each commit.
#[test]
fn commits_until_it_is_killed() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Sqlite::open(file).unwrap();
        for number in 0.. {
            let last = store.get(&key("last")).await.unwrap();
            let value = format!("{}-{number}", std::process::id());
            let commit = match last {
                Some(entry) => Commit::new().if_at(key("last"), entry.revision),
                None => Commit::new().if_absent(key("last")),
            };
            let large = vec![b'x'; (number * 7919) % 60_000];
            let commit = commit.put(key("last"), value.clone()).put(key(&format!("log/{value}")), large);
            match store.commit(&commit).await {
                Ok(revision) => println!("acknowledged {value} {revision}"),
                Err(CommitError::Conflict) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}

fn child(file: &std::path::Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::commits_until_it_is_killed", "--nocapture"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut acknowledged = Vec::new();
    for _ in 0..lab::scale::scaled(8, 100) {
        // Two at a time, one of which is killed in the middle of what it does; the other then has to go on.
        let (mut killed, mut other) = (child(&file), child(&file));
        let mut said = Vec::new();
        for (each, enough) in [(&mut killed, random.usize(1..40)), (&mut other, 10)] {
            let lines = BufReader::new(each.stdout.take().unwrap()).lines();
            let mut lines = lines.map_while(Result::ok).filter(|line| line.starts_with("acknowledged "));
            said.extend(lines.by_ref().take(enough));
            each.kill().unwrap();
            // What it said before it died.
            said.extend(lines);
            each.wait().unwrap();
        }
        acknowledged.extend(said.iter().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[1].to_owned(), words[2].parse::<u64>().unwrap())
        }));

        runtime.block_on(async {
            let store = Sqlite::open(&file).unwrap();
            for (value, revision) in &acknowledged {
                let entry = store.get(&key(&format!("log/{value}"))).await.unwrap();
                assert_eq!(entry.map(|entry| entry.revision.number()), Some(*revision), "{value}");
            }
            // Both halves of each commit, also of the last one, which nobody was told.
            let last = store.get(&key("last")).await.unwrap().unwrap();
            let log = key(&format!("log/{}", String::from_utf8(last.value).unwrap()));
            assert_eq!(store.get(&log).await.unwrap().unwrap().revision, last.revision);
        });
    }
    assert!(acknowledged.len() > 50, "{acknowledged:?}");
}

/// The lease goes on while its holder, and everybody who has the file, is stopped; who comes next finds it ended.
#[test]
fn a_process_that_was_stopped_finds_its_lease_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.db");
    let mut stopped = child(&file);
    let mut lines = BufReader::new(stopped.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.starts_with("acknowledged ")).unwrap();
    let pid = Pid::from_raw(stopped.id().cast_signed());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Sqlite::open(&file).unwrap();
        let lease = store.grant(Duration::from_millis(200)).await.unwrap();
        let held = store.commit(&Commit::new().put_leased(key("active"), "a", lease.id)).await;
        let mut watch = store.watch(&Prefix::everything(), held.unwrap());
        // It may hold the file while it is stopped: that is waited for, and told.
        kill(pid, Signal::SIGSTOP).unwrap();
        let meanwhile = store.get(&key("active")).await;
        assert!(matches!(meanwhile, Ok(_) | Err(Failure::Unreachable(_))), "{meanwhile:?}");
        kill(pid, Signal::SIGCONT).unwrap();
        while store.get(&key("active")).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // What the other process did comes by the same watch.
        assert!(watch.next().await.is_ok());
    });
    stopped.kill().unwrap();
    stopped.wait().unwrap();
}
