//! Whose turn it is, of a site's two gateways, as controllers keep it.

use std::time::Duration;

use controller::{Controller, Error};
use fleet::signed::Signed;
use fleet::standby::{Registered, Run, Turn, Wish};
use store::{Memory, Store};

use crate::scene::{name, network, publish, signer, site};

const SOON: Duration = Duration::from_secs(30);

/// A network in which `kiel` has two gateways, and `bonn` one.
async fn pairs(store: &Memory) -> Controller<Memory> {
    let controller = network(store).await;
    publish(&controller, |contents| {
        let mut kiel = site("kiel", 2);
        let mut member = kiel.member.value().clone();
        member.standby = Some(name("pair"));
        kiel = fleet::site::Site::new(member, crate::scene::contact(2));
        contents.put(kiel);
        contents.put(site("bonn", 3));
    })
    .await
    .unwrap();
    controller
}

fn turn(controller: &Controller<impl Store>, who: &str, signer_of: &str, turn: u64) -> Signed<Turn> {
    let network = controller.fleet().network();
    let turn = Turn { network, site: name(who), turn, run: Run(turn), doubted_by: None };
    Signed::new(&turn, [&signer(signer_of)])
}

async fn see(controller: &Controller<Memory>, known: u64) -> Registered {
    controller.turn(&name("kiel"), Wish::See { known }, SOON).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn of_two_that_begin_a_turn_at_once_one_has_it_and_both_are_told() {
    let store = Memory::new();
    let (one, other) = (pairs(&store).await, crate::scene::controller(&store).await);
    assert_eq!(see(&one, u64::MAX).await, Registered { version: 0, turn: None });
    let waits = tokio::spawn({
        let other = other.clone();
        async move { see(&other, 0).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waits.is_finished());
    let kiel = name("kiel");
    let [first, second] = [5, 6].map(|number| turn(&one, "kiel", "kiel", number));
    let won = one.turn(&kiel, Wish::Put { at: 0, turn: first.clone() }, SOON).await.unwrap();
    assert_eq!(won.turn, Some(first));
    let lost = other.turn(&kiel, Wish::Put { at: 0, turn: second.clone() }, SOON).await.unwrap();
    assert_eq!(lost, won, "it is told who has");
    assert_eq!(waits.await.unwrap(), won, "who waited is told at the other controller");
    let taken = other.turn(&kiel, Wish::Put { at: won.version, turn: second.clone() }, SOON).await.unwrap();
    assert!(taken.version > won.version && taken.turn == Some(second));
}

#[tokio::test(start_paused = true)]
async fn nobody_but_the_site_makes_a_turn_and_none_goes_back() {
    let store = Memory::new();
    let controller = pairs(&store).await;
    let put = async |who: &str, signed: Signed<Turn>, at: u64| {
        controller.turn(&name(who), Wish::Put { at, turn: signed }, SOON).await
    };
    let refused = |result: Result<Registered, Error>| match result {
        Err(Error::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(
        refused(put("kiel", turn(&controller, "kiel", "bonn", 1), 0).await).contains("signed by the site")
    );
    assert!(
        refused(put("kiel", turn(&controller, "bonn", "kiel", 1), 0).await).contains("signed by the site")
    );
    assert!(refused(put("bonn", turn(&controller, "bonn", "bonn", 1), 0).await).contains("has one gateway"));
    let version = put("kiel", turn(&controller, "kiel", "kiel", 7), 0).await.unwrap().version;
    assert!(refused(put("kiel", turn(&controller, "kiel", "kiel", 6), version).await).contains("go back"));
    store.reachable(false);
    assert!(matches!(
        put("kiel", turn(&controller, "kiel", "kiel", 8), version).await,
        Err(Error::Unavailable(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn changes_of_others_wake_nobody_and_missed_ones_do() {
    let store = Memory::new();
    let controller = pairs(&store).await;
    let version = {
        let put = Wish::Put { at: 0, turn: turn(&controller, "kiel", "kiel", 1) };
        controller.turn(&name("kiel"), put, SOON).await.unwrap().version
    };
    let began = tokio::time::Instant::now();
    let waits = tokio::spawn({
        let controller = controller.clone();
        async move { see(&controller, version).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    publish(&controller, |contents| contents.put(site("ulm", 4))).await.unwrap();
    assert_eq!(waits.await.unwrap().version, version);
    assert!(began.elapsed() >= SOON, "it was held until its time was over");
}
