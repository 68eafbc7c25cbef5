//! What takes effect, and what does not.

use std::time::Duration;

use controller::{Controller, Error, begin};
use fleet::authority::Authority;
use fleet::exchange::Question;
use fleet::news::{Have, News};
use fleet::signed::Signed;
use fleet::site::Site;
use store::{Memory, Sqlite};

use crate::scene::*;

#[tokio::test(start_paused = true)]
async fn a_document_takes_effect_at_every_controller() {
    let store = Memory::new();
    let (one, other) = (network(&store).await, controller(&store).await);
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    publish(&one, |contents| contents.put(site("bonn", 3))).await.unwrap();
    until(|| other.serial() == one.serial()).await;
    assert_eq!(other.serial().unwrap().0, 3);
    assert_eq!(other.fleet().sites().len(), 3);
    // Who opens later reads the same.
    let later = controller(&store).await;
    assert_eq!(later.all_news(&Have::default()), one.all_news(&Have::default()));
}

#[tokio::test(start_paused = true)]
async fn of_two_made_at_once_one_is_published() {
    let store = Memory::new();
    let (one, other) = (network(&store).await, controller(&store).await);
    let fleet = one.fleet();
    let a = next(&fleet, &["ada"], |contents| contents.put(site("kiel", 2)));
    let b = next(&fleet, &["ada"], |contents| contents.put(site("bonn", 3)));
    let (a_result, b_result) = tokio::join!(one.publish("ada", a.clone()), other.publish("ada", b.clone()));
    assert!(a_result.is_ok() != b_result.is_ok(), "{a_result:?} {b_result:?}");
    let lost = a_result.and(b_result).unwrap_err();
    assert!(matches!(&lost, Error::Overtaken(why) if why.contains("make it anew")), "{lost}");
    // The same again is no error, and changes nothing.
    let records = one.log(1).await.unwrap().len();
    let again = if one.fleet().site(&name("kiel")).is_some() { a } else { b };
    one.publish("ada", again).await.unwrap();
    assert_eq!(one.log(1).await.unwrap().len(), records);
}

#[tokio::test(start_paused = true)]
async fn signatures_decide_alone() {
    let store = Memory::new();
    let one = network(&store).await;
    let fleet = one.fleet();
    let refused = async |news: News| one.publish("eve", news).await.unwrap_err().to_string();
    for signers in [vec![], vec!["eve"], vec!["robot"]] {
        let news = next(&fleet, &signers, |contents| contents.put(site("eve", 9)));
        assert!(refused(news).await.contains("have signed, 1 have to"));
    }
    // Signed, and changed on its way.
    let mut news = next(&fleet, &["ada"], |contents| contents.put(site("kiel", 2)));
    let other = next(&fleet, &["ada"], |contents| contents.put(site("eve", 9)));
    news.document.as_mut().unwrap().change = other.document.unwrap().change;
    assert!(refused(news).await.contains("not those that were signed"));
    // Authorities alone, nothing at all, and what is for sites to say.
    let authorities = News { authorities: vec![authority()], ..News::default() };
    assert!(refused(authorities).await.contains("a document that they have signed"));
    assert!(refused(News::default()).await.contains("publish a document"));
    assert!(refused(notice(&fleet, "hub", 5, contact(8))).await.contains("they say themselves"));
    assert_eq!(one.serial().unwrap().0, 1);
    assert_eq!(one.log(1).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn administrators_change_with_a_document_of_theirs() {
    let store = Memory::new();
    let one = network(&store).await;
    let fleet = one.fleet();
    let mut value: Authority = authority().read().unwrap();
    value.version = 2;
    value.network = Some(fleet.network());
    value.administrators[0].key = signer("ben").public();
    let second = Signed::new(&value, [&signer("ada"), &signer("ben")]);
    let mut changed = fleet.clone();
    changed.take(News { authorities: vec![second.clone()], ..News::default() });
    let mut news = next(&changed, &["ben"], |_| {});
    news.authorities = vec![second];
    one.publish("ben", news).await.unwrap();
    // Who reads all from the beginning follows.
    let later = controller(&store).await;
    assert_eq!(later.fleet().chain().current().version, 2);
    assert!(publish(&later, |_| {}).await.is_err(), "Ada is none any more");
}

#[tokio::test(start_paused = true)]
async fn what_a_delegate_allows_is_counted_over_all_controllers() {
    let store = Memory::new();
    let (one, other) = (network(&store).await, controller(&store).await);
    let fleet = one.fleet();
    let adds: Vec<News> = ["kiel", "bonn", "jena"]
        .iter()
        .zip(2..)
        .map(|(who, number)| added_by("robot", &fleet, &site(who, number)))
        .collect();
    let (a, b, c) = tokio::join!(
        one.publish("robot", adds[0].clone()),
        other.publish("robot", adds[1].clone()),
        one.publish("robot", adds[2].clone())
    );
    let done = [&a, &b, &c].iter().filter(|result| result.is_ok()).count();
    assert_eq!(done, 2, "{a:?} {b:?} {c:?}");
    let later = controller(&store).await;
    assert_eq!(later.fleet().sites().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_document_does_not_undo_what_a_delegate_did_meanwhile() {
    let store = Memory::new();
    let one = network(&store).await;
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    // Made before a delegate takes one site out and lets another in, and published after it.
    let fleet = one.fleet();
    let old = next(&fleet, &["ada"], |contents| contents.put(site("jena", 4)));
    one.publish("robot", added_by("robot", &fleet, &site("bonn", 3))).await.unwrap();
    let lost = one.publish("ada", old.clone()).await.unwrap_err();
    assert!(matches!(&lost, Error::Overtaken(why) if why.contains("let bonn in")), "{lost}");
    one.publish("robot", revoked_by("robot", &fleet, "kiel")).await.unwrap();
    let lost = one.publish("ada", old).await.unwrap_err();
    assert!(matches!(&lost, Error::Overtaken(why) if why.contains("delegate")), "{lost}");
    let knows_one = next(&fleet, &["ada"], |contents| contents.put(site("bonn", 3)));
    let lost = one.publish("ada", knows_one).await.unwrap_err();
    assert!(matches!(&lost, Error::Overtaken(why) if why.contains("taken kiel out")), "{lost}");
    // Another one by that name is not the one that was let in.
    let of_another = next(&fleet, &["ada"], |contents| {
        let mut site = member("bonn", 3);
        site.identity = signer("eve").public();
        contents.put(Site::new(site, contact(3)));
        contents.put(revoked("kiel", 2));
    });
    assert!(matches!(one.publish("ada", of_another).await, Err(Error::Overtaken(_))));
    let knows_both = next(&fleet, &["ada"], |contents| {
        contents.put(site("bonn", 3));
        contents.put(revoked("kiel", 2));
    });
    one.publish("ada", knows_both).await.unwrap();
    let later = controller(&store).await.fleet();
    assert!(later.site(&name("kiel")).unwrap().member.is_revoked());
    assert!(!later.site(&name("bonn")).unwrap().member.is_revoked());
}

#[tokio::test(start_paused = true)]
async fn a_site_speaks_for_itself_alone() {
    let store = Memory::new();
    let one = network(&store).await;
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    let fleet = one.fleet();
    one.hear(&name("kiel"), notice(&fleet, "kiel", 5, contact(8))).await.unwrap();
    assert_eq!(one.fleet().site(&name("kiel")).unwrap().contact, Some(&contact(8)));
    // An older one is passed over, one of another refused, also if it is signed.
    one.hear(&name("kiel"), notice(&fleet, "kiel", 4, contact(9))).await.unwrap();
    let of_hub = notice(&fleet, "hub", 5, contact(10));
    assert!(one.hear(&name("kiel"), of_hub.clone()).await.is_err());
    let mut forged = of_hub;
    forged.contacts = notice(&fleet, "eve", 5, contact(10)).contacts;
    assert!(one.hear(&name("eve"), forged).await.is_err());
    let later = controller(&store).await;
    assert_eq!(later.all_news(&Have::default()), one.all_news(&Have::default()));
    assert_eq!(later.fleet().site(&name("kiel")).unwrap().contact, Some(&contact(8)));
}

#[tokio::test(start_paused = true)]
async fn a_site_that_says_something_new_all_the_time_is_heard_at_a_pace() {
    let store = Memory::new();
    let one = network(&store).await;
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    publish(&one, |contents| contents.put(site("bonn", 3))).await.unwrap();
    let mut heard = 0;
    for number in 1..=100_u16 {
        let said = notice(&one.fleet(), "kiel", u64::from(number), contact(100 + number));
        match one.hear(&name("kiel"), said).await {
            Ok(()) => heard += 1,
            Err(why) => assert!(matches!(why, Error::Unavailable(_)), "{why}"),
        }
    }
    assert!((2..=30).contains(&heard), "{heard} of 100");
    // Another is heard meanwhile, and the last word in the end.
    one.hear(&name("bonn"), notice(&one.fleet(), "bonn", 5, contact(8))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    one.hear(&name("kiel"), notice(&one.fleet(), "kiel", 1000, contact(9))).await.unwrap();
    assert_eq!(one.fleet().site(&name("kiel")).unwrap().contact, Some(&contact(9)));
}

#[tokio::test(start_paused = true)]
async fn positions_are_those_of_the_store() {
    let store = Memory::new();
    let (one, other) = (network(&store).await, controller(&store).await);
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    let ask = |since| Question { have: one.fleet().have(), since };
    let heard = one.answer(&name("hub"), &ask(None), Duration::ZERO).await.since;
    one.hear(&name("kiel"), notice(&one.fleet(), "kiel", 5, contact(8))).await.unwrap();
    until(|| other.figures().revision == one.figures().revision).await;
    // Where it asks next is the same place, and tells what is new alone; so does one that opens later.
    for asked in [&other, &controller(&store).await] {
        let answer = asked.answer(&name("hub"), &ask(Some(heard)), Duration::ZERO).await;
        assert_eq!(answer.news.contacts.len(), 1);
        assert_eq!(answer.since.place, heard.place);
        let again = asked.answer(&name("hub"), &ask(Some(answer.since)), Duration::ZERO).await;
        assert_eq!(again.news, News::default());
    }
}

#[tokio::test]
async fn many_documents_leave_some_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(folder.path().join("control.db")).unwrap();
    let one = network(&store).await;
    let early = one.fleet();
    for number in 2..120 {
        publish(&one, |contents| contents.put(site("kiel", number))).await.unwrap();
    }
    let later = Controller::open(store.clone()).await.unwrap();
    assert_eq!(later.serial().unwrap().0, 119);
    assert_eq!(later.all_news(&Have::default()), one.all_news(&Have::default()));
    // Who is far behind is told all, who is a little behind what is different.
    let ask = |have| Question { have, since: None };
    let all = later.answer(&name("hub"), &ask(early.have()), Duration::ZERO).await;
    assert_eq!(all.news.document.unwrap().change.from, None);
    let mut have = one.fleet().have();
    have.serial = Some(fleet::document::Serial(80));
    let some = later.answer(&name("hub"), &ask(have), Duration::ZERO).await;
    assert_eq!(some.news.document.unwrap().change.from, have.serial);
    let stored = store::Store::list(&store, &store::Prefix::everything()).await.unwrap().entries;
    let documents = stored.iter().filter(|entry| entry.key.as_str().starts_with("fleet/document/")).count();
    assert!((64..100).contains(&documents), "{documents} documents are kept");
}

#[tokio::test]
async fn a_network_begins_once() {
    let store = Memory::new();
    assert!(matches!(Controller::open(store.clone()).await, Err(Error::Missing(_))));
    network(&store).await;
    assert!(matches!(begin(&store, "eve", first()).await, Err(Error::Overtaken(_))));
    let mut unsigned = first();
    unsigned.document = next(&controller(&store).await.fleet(), &["eve"], |_| {}).document;
    assert!(begin(&Memory::new(), "eve", unsigned).await.is_err());
}

/// Waits for something that comes by itself.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come");
}
