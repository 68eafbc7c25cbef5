//! From an invitation to a member.

use controller::Error;
use fleet::authority::Chain;
use fleet::enrolment::{Invitation, State};
use fleet::site::Site;
use store::Memory;

use crate::scene::*;

#[tokio::test(start_paused = true)]
async fn a_site_is_invited_applies_and_is_approved() {
    let store = Memory::new();
    let one = network(&store).await;
    let invitation = invite(&one, "kiel", "token").await;
    let status = one.apply(application(&invitation, "kiel", 2)).await.unwrap();
    assert_eq!(status.state, State::Waiting);
    // It verifies the administrators by the network's name.
    Chain::of(invitation.network, status.authorities).unwrap();
    let waiting = one.applications().await.unwrap();
    assert_eq!((waiting.len(), &waiting[0].id), (1, &status.id));
    let applied = waiting[0].applied.signed.read().unwrap();
    publish(&one, |contents| contents.put(Site::new(applied.member, applied.contact))).await.unwrap();
    assert_eq!(one.status(&status.id).await.unwrap().state, State::Member);
    let texts = one.log(1).await.unwrap();
    let (records, _) = controller::log::verify(None, texts.iter().map(String::as_str)).unwrap();
    let told: Vec<String> = records.iter().map(|record| format!("{}: {}", record.who, record.what)).collect();
    assert!(told[1].starts_with("ada: invited kiel (token "), "{told:?}");
    assert!(told[2].starts_with("site kiel: kiel has applied"), "{told:?}");
    assert!(told[3].contains("published document 2"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_invitation_is_good_for_one_application() {
    let store = Memory::new();
    let (one, other) = (network(&store).await, controller(&store).await);
    let invitation = invite(&one, "kiel", "token").await;
    let first = application(&invitation, "kiel", 2);
    let second = application(&invitation, "kiel", 3);
    let (a, b) = tokio::join!(one.apply(first.clone()), other.apply(second));
    assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
    let lost = a.and(b).unwrap_err();
    assert!(lost.to_string().contains("was used"), "{lost}");
    // The same again, whose answer was lost, is answered.
    let id = one.applications().await.unwrap()[0].id.clone();
    if fleet::enrolment::id(&first) == id {
        assert_eq!(other.apply(first).await.unwrap().id, id);
    }
    assert_eq!(one.applications().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_invited_leaves_nothing() {
    let store = Memory::new();
    let one = network(&store).await;
    let revision = one.figures().revision;
    let uninvited =
        Invitation::new(one.fleet().network(), Vec::new(), &signer("forged"), terms("kiel"), soon());
    let why = one.apply(application(&uninvited, "kiel", 2)).await.unwrap_err();
    assert!(why.to_string().contains("is not known here"), "{why}");
    // One who has the string, and asks for more than it offers.
    let invitation = invite(&one, "kiel", "token").await;
    let wide = Invitation::new(one.fleet().network(), Vec::new(), &signer("token"), terms("hub"), soon());
    let mut as_hub = member("hub", 2);
    as_hub.role = name("spoke");
    as_hub.identity = signer("eve").public();
    let why = one.apply(wide.apply(&signer("eve"), as_hub, contact(2)).unwrap()).await.unwrap_err();
    assert!(why.to_string().contains("another name"), "{why}");
    assert!(one.applications().await.unwrap().is_empty());
    assert_eq!(one.figures().revision, revision);
    // It was not used up by that.
    one.apply(application(&invitation, "kiel", 2)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_invited_can_be_taken_back_and_turned_down() {
    let store = Memory::new();
    let one = network(&store).await;
    let taken_back = invite(&one, "bonn", "token").await;
    let id = one.invitations().await.unwrap()[0].id.clone();
    one.uninvite("ada", &id).await.unwrap();
    assert!(one.apply(application(&taken_back, "bonn", 3)).await.is_err());
    assert!(matches!(one.uninvite("ada", &id).await, Err(Error::Missing(_))));

    let used = invite(&one, "kiel", "another").await;
    let status = one.apply(application(&used, "kiel", 2)).await.unwrap();
    let id = one.invitations().await.unwrap()[0].id.clone();
    assert!(one.uninvite("ada", &id).await.unwrap_err().to_string().contains("was used"));
    assert!(one.refuse("ada", &status.id, "two\nlines").await.is_err());
    one.refuse("ada", &status.id, "who is that?").await.unwrap();
    let state = one.status(&status.id).await.unwrap().state;
    assert_eq!(state, State::Refused { why: "who is that?".to_owned() });
    for wrong in ["", "zz", "../token", &"a".repeat(64)] {
        assert!(matches!(one.status(wrong).await, Err(Error::Missing(_))), "{wrong:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn invitations_end() {
    let store = Memory::new();
    let one = network(&store).await;
    let key = signer("token").public();
    for expires in [0, 1, soon() + 31 * 24 * 3600] {
        assert!(one.invite("ada", key, terms("kiel"), expires).await.is_err());
    }
    let name_of_another = invite(&one, "hub", "token").await;
    let mut asked = member("hub", 5);
    asked.role = name("spoke");
    asked.identity = signer("eve").public();
    let signed = name_of_another.apply(&signer("eve"), asked, contact(5)).unwrap();
    let why = one.apply(signed).await.unwrap_err();
    assert!(why.to_string().contains("a site hub already"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn who_was_taken_out_does_not_wait_again() {
    let store = Memory::new();
    let one = network(&store).await;
    // Revoked, removed at once, and taken out by the delegate that had let it in.
    let mut all = Vec::new();
    for (who, number) in [("kiel", 2), ("bonn", 3), ("jena", 4)] {
        let invitation = invite(&one, who, &format!("token of {who}")).await;
        let status = one.apply(application(&invitation, who, number)).await.unwrap();
        all.push((who, status.id));
    }
    publish(&one, |contents| {
        contents.put(site("kiel", 2));
        contents.put(site("bonn", 3));
    })
    .await
    .unwrap();
    one.publish("robot", added_by("robot", &one.fleet(), &site("jena", 4))).await.unwrap();
    for (who, id) in &all {
        assert_eq!(one.status(id).await.unwrap().state, State::Member, "{who}");
    }
    one.publish("robot", revoked_by("robot", &one.fleet(), "jena")).await.unwrap();
    publish(&one, |contents| {
        contents.put(revoked("kiel", 2));
        contents.remove(&name("bonn"));
        contents.put(revoked("jena", 4));
    })
    .await
    .unwrap();
    for (who, id) in &all {
        let state = one.status(id).await.unwrap().state;
        assert!(matches!(&state, State::Refused { why } if why.contains("taken out")), "{who}: {state:?}");
    }
    // Nor when nothing reminds of them any more.
    publish(&one, |contents| {
        contents.remove(&name("kiel"));
        contents.remove(&name("jena"));
    })
    .await
    .unwrap();
    let again = controller(&store).await;
    for one in again.applications().await.unwrap() {
        assert!(matches!(one.state, State::Refused { .. }), "{one:?}");
    }
    // Whoever is invited anew waits, and the old application stays what it is.
    let invitation = invite(&one, "kiel", "another").await;
    let status = one.apply(application(&invitation, "kiel", 2)).await.unwrap();
    assert_eq!(status.state, State::Waiting);
    assert!(matches!(one.status(&all[0].1).await.unwrap().state, State::Refused { .. }));
}
