//! All of it as one text.

use controller::{Controller, Error, backup, restore};
use fleet::exchange::Question;
use fleet::news::Have;
use store::{Commit, Fate, Memory, Sqlite};

use crate::scene::*;

#[tokio::test(start_paused = true)]
async fn a_backup_comes_back_in_another_store() {
    let store = Memory::new();
    let one = network(&store).await;
    let invitation = invite(&one, "kiel", "token").await;
    one.apply(application(&invitation, "kiel", 2)).await.unwrap();
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    one.hear(&name("kiel"), notice(&one.fleet(), "kiel", 5, contact(8))).await.unwrap();
    let token =
        controller::access::grant(&store, "root", name("ada"), controller::Role::Viewer, None).await.unwrap();
    let text = backup(&store).await.unwrap();
    assert!(!text.contains(&**token));

    let folder = tempfile::tempdir().unwrap();
    let other = Sqlite::open(folder.path().join("control.db")).unwrap();
    restore(&other, "root", &text).await.unwrap();
    let back = Controller::open(other.clone()).await.unwrap();
    assert_eq!(back.all_news(&Have::default()), one.all_news(&Have::default()));
    assert_eq!(back.applications().await.unwrap().len(), 1);
    // The invitation stays used, and positions of before mean nothing.
    assert!(back.apply(application(&invitation, "kiel", 3)).await.is_err());
    let since = |one: &Controller<Memory>| {
        let (one, question) = (one.clone(), Question::default());
        async move { one.answer(&name("hub"), &question, std::time::Duration::ZERO).await.since.place }
    };
    let place = back.answer(&name("hub"), &Question::default(), std::time::Duration::ZERO).await.since.place;
    assert_ne!(place, since(&one).await);
    let texts = back.log(1).await.unwrap();
    let (records, _) = controller::log::verify(None, texts.iter().map(String::as_str)).unwrap();
    assert_eq!(records.last().unwrap().what.to_string(), "restored from a backup");
    assert!(matches!(restore(&other, "root", &text).await, Err(Error::Refused(_))), "it is not empty");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_backup_is_refused() {
    let store = Memory::new();
    network(&store).await;
    let text = backup(&store).await.unwrap();
    let empty = || Memory::new();
    for length in [0, 1, 30, text.len() / 2, text.len() - 1] {
        assert!(restore(&empty(), "root", &text[..length]).await.is_err(), "{length}");
    }
    let changed = text.replacen("fleet/head", "fleet/heat", 1);
    assert!(restore(&empty(), "root", &changed).await.unwrap_err().to_string().contains("changed"));
    let later = text.replacen("backup 1", "backup 9", 1);
    let body = &later[..later.trim_end().rfind('\n').unwrap() + 1];
    let later = format!("{body}{}\n", fleet::key::Digest::of(body.as_bytes()));
    let why = restore(&empty(), "root", &later).await.unwrap_err().to_string();
    assert!(why.contains("backup 9"), "{why}");
}

/// A backup in which one entry says something else.
fn with_entry(text: &str, key: &str, value: &str) -> String {
    use base64::Engine as _;
    let value = base64::prelude::BASE64_STANDARD.encode(value);
    let lines = text.lines().filter(|line| line.starts_with("sidestep") || line.starts_with('{'));
    let kept = lines.filter(|line| !line.contains(&format!("\"{key}\"")));
    let mut body: String = kept.map(|line| format!("{line}\n")).collect();
    body += &format!("{}\n", serde_json::json!({ "key": key, "value": value }));
    format!("{body}{}\n", fleet::key::Digest::of(body.as_bytes()))
}

#[tokio::test(start_paused = true)]
async fn a_backup_with_what_nobody_signed_is_never_in_force() {
    let store = Memory::new();
    let one = network(&store).await;
    let good = backup(&store).await.unwrap();
    let forged =
        with_entry(&good, "fleet/head", &format!(r#"{{"serial":9,"head":"{}"}}"#, one.fleet().network()));
    let later = with_entry(&good, "schema", "9");
    let other = Memory::new();
    for wrong in [forged, later] {
        let why = restore(&other, "root", &wrong).await.unwrap_err();
        assert!(matches!(why, Error::Broken(_)), "{why}");
        let why = Controller::open(other.clone()).await.err().unwrap();
        assert!(matches!(why, Error::Missing(_)), "{why}");
    }
    // The store is still one that a good backup can be restored into.
    restore(&other, "root", &good).await.unwrap();
    let back = Controller::open(other.clone()).await.unwrap();
    assert_eq!(back.all_news(&Have::default()), one.all_news(&Have::default()));
}

#[tokio::test(start_paused = true)]
async fn of_a_restore_that_did_not_come_to_its_end_nothing_is_left() {
    let store = Memory::new();
    let one = network(&store).await;
    let old = backup(&store).await.unwrap();
    invite(&one, "kiel", "token").await;
    controller::access::grant(&store, "root", name("vera"), controller::Role::Viewer, None).await.unwrap();
    let newer = backup(&store).await.unwrap();

    let other = Memory::new();
    // The last commit is the one that puts it in force.
    let place = |commit: &Commit| format!("{commit:?}").contains(" place: Put");
    other.decide(move |commit| if place(commit) { Fate::Unreachable } else { Fate::Happens });
    let why = restore(&other, "root", &newer).await.unwrap_err();
    assert!(matches!(why, Error::Unavailable(_)), "{why}");
    other.decide(|_| Fate::Happens);
    assert!(matches!(controller::begin(&other, "ada", first()).await, Err(Error::Overtaken(_))));
    restore(&other, "root", &old).await.unwrap();
    let back = controller(&other).await;
    assert_eq!(back.invitations().await.unwrap(), []);
    assert_eq!(controller::access::list(&other).await.unwrap(), []);
    assert_eq!(back.log_head().await.unwrap().unwrap().number, 2);
    publish(&back, |contents| contents.put(site("bonn", 3))).await.unwrap();
    assert!(!backup(&other).await.unwrap().contains("restoring"));
}

/// What a version that was released has written is read by all later ones: `tests/schemas` has a backup of each schema.
#[tokio::test]
async fn backups_of_every_schema_come_back() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemas");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let store = Memory::new();
        restore(&store, "root", &text).await.unwrap();
        let back = controller(&store).await;
        assert_eq!(back.fleet().sites().len(), 2);
        assert!(back.fleet().sites().into_values().all(|site| site.member.is_revoked()));
        assert_eq!(back.serial().unwrap().0, 4);
        let texts = back.log(1).await.unwrap();
        let (records, _) = controller::log::verify(None, texts.iter().map(String::as_str)).unwrap();
        assert_eq!(records.len(), 12);
        assert_eq!(back.documents().await.unwrap().len(), 4);
        // One that the administrator let in, and one that a delegate had.
        assert_eq!(back.past(fleet::document::Serial(3)).await.unwrap().1.added.len(), 2);
        count += 1;
    }
    assert_eq!(count, 1);
}

#[tokio::test]
async fn what_a_later_version_has_written_is_left_alone() {
    let store = Memory::new();
    network(&store).await;
    let schema = store::Key::new("schema").unwrap();
    store::Store::commit(&store, &store::Commit::new().put(schema, "9")).await.unwrap();
    let why = Controller::open(store.clone()).await.err().unwrap();
    assert!(why.to_string().contains("its schema is \"9\""), "{why}");
}
