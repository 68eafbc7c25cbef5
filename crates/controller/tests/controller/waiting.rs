//! Agents that wait.

use std::time::Duration;

use controller::Controller;
use fleet::exchange::{Answer, Question};
use fleet::news::News;
use fleet::site::{Member, Site};
use store::Memory;
use tokio::task::JoinHandle;

use crate::publishing::until;
use crate::scene::*;

fn wait(controller: &Controller<Memory>, who: &str, question: Question) -> JoinHandle<Answer> {
    let (controller, who) = (controller.clone(), name(who));
    tokio::spawn(async move { controller.answer(&who, &question, Duration::from_secs(300)).await })
}

/// What somebody asks who has heard all so far.
async fn has_heard(controller: &Controller<Memory>) -> Question {
    let question = Question { have: controller.fleet().have(), since: None };
    let since = controller.answer(&name("nobody"), &question, Duration::ZERO).await.since;
    Question { since: Some(since), ..question }
}

/// A fleet of so many spokes, in one document.
async fn fleet_of(spokes: u16) -> Controller<Memory> {
    let one = network(&Memory::new()).await;
    publish(&one, |contents| {
        for number in 2..spokes + 2 {
            contents.put(site(&format!("s{number}"), number));
        }
    })
    .await
    .unwrap();
    one
}

#[tokio::test(start_paused = true)]
async fn one_is_answered_when_something_is_new_or_late() {
    let one = fleet_of(2).await;
    let heard = has_heard(&one).await;
    let waits = wait(&one, "s2", heard);
    tokio::time::sleep(Duration::from_secs(250)).await;
    assert!(!waits.is_finished());
    publish(&one, |contents| contents.put(site("kiel", 9))).await.unwrap();
    assert!(waits.await.unwrap().news.document.is_some());
    let heard = has_heard(&one).await;
    let begin = tokio::time::Instant::now();
    assert_eq!(wait(&one, "s2", heard).await.unwrap().news, News::default());
    assert!(begin.elapsed() >= Duration::from_secs(300));
    // A second question takes the place of the first one.
    let first = wait(&one, "s2", heard);
    until(|| one.figures().waiting == 1).await;
    let second = wait(&one, "s2", heard);
    assert_eq!(first.await.unwrap().news, News::default());
    assert_eq!(one.figures().waiting, 1);
    second.abort();
    until(|| one.figures().waiting == 0).await;
}

/// They have one name, and neither is in the other's way.
#[tokio::test(start_paused = true)]
async fn both_gateways_of_a_site_wait_beside_each_other() {
    let one = network(&Memory::new()).await;
    publish(&one, |contents| {
        let member = Member { standby: Some(name("pair")), ..member("kiel", 2) };
        contents.put(Site::new(member, contact(2)));
    })
    .await
    .unwrap();
    let heard = has_heard(&one).await;
    let first = wait(&one, "kiel", heard);
    until(|| one.figures().waiting == 1).await;
    let second = wait(&one, "kiel", heard);
    until(|| one.figures().waiting == 2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!first.is_finished() && !second.is_finished());
    // A third question takes the place of the first one.
    let third = wait(&one, "kiel", heard);
    assert_eq!(first.await.unwrap().news, News::default());
    assert_eq!(one.figures().waiting, 2);
    publish(&one, |contents| contents.put(site("ulm", 9))).await.unwrap();
    for waits in [second, third] {
        assert!(waits.await.unwrap().news.document.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn of_ten_thousand_those_are_woken_whom_it_concerns() {
    let one = fleet_of(10_000).await;
    let heard = has_heard(&one).await;
    let waiting: Vec<_> = (2..10_002).map(|number| wait(&one, &format!("s{number}"), heard)).collect();
    let hub = wait(&one, "hub", heard);
    until(|| one.figures().waiting == 10_001).await;
    // A spoke is renumbered: the hub has to know, and no other spoke.
    one.hear(&name("s77"), notice(&one.fleet(), "s77", 5, contact(20_000))).await.unwrap();
    assert_eq!(hub.await.unwrap().news.contacts.len(), 1);
    assert!(one.figures().woken <= 2, "{:?}", one.figures());
    assert!(waiting.iter().filter(|one| one.is_finished()).count() <= 1);
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn a_controller_says_when_each_site_asked_and_forgets_who_is_none() {
    let controller = network(&Memory::new()).await;
    publish(&controller, |contents| contents.put(site("kiel", 2))).await.unwrap();
    assert!(controller.heard().sites.is_empty());
    let asked = Question { have: controller.fleet().have(), since: None };
    controller.answer(&name("hub"), &Question::default(), Duration::ZERO).await;
    let kiel = tokio::spawn({
        let controller = controller.clone();
        let since = controller.answer(&name("kiel"), &asked, Duration::ZERO).await.since;
        async move {
            let asked = Question { since: Some(since), ..asked };
            controller.answer(&name("kiel"), &asked, Duration::from_secs(300)).await
        }
    });
    tokio::time::sleep(Duration::from_secs(100)).await;
    let heard = controller.heard();
    assert!(heard.for_s >= 100, "{heard:?}");
    let of = |who: &str| heard.sites.iter().find(|one| one.site == name(who)).unwrap().clone();
    assert_eq!((of("kiel").waits, of("kiel").serial, of("kiel").ago_s), (true, controller.serial(), 100));
    assert_eq!((of("hub").waits, of("hub").serial, of("hub").ago_s), (false, None, 100));
    kiel.abort();
    let _ = kiel.await;
    assert!(!controller.heard().sites.iter().any(|one| one.waits), "who went does not wait");
    publish(&controller, |contents| drop(contents.remove(&name("kiel")))).await.unwrap();
    let left: Vec<_> = controller.heard().sites.into_iter().map(|one| one.site).collect();
    assert_eq!(left, [name("hub")]);
}
