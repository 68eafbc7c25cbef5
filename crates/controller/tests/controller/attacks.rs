//! A controller that is taken over, with its store, its tokens and its certificate's key: it puts no site in, brings no old
//! document back, and has no private key to learn.

use fleet::authority::Authority;
use fleet::desk::Desk;
use fleet::fleet::Fleet;
use fleet::news::{Have, News};
use fleet::signed::Signed;
use store::{Commit, Key, Memory, Prefix, Store as _};

use crate::scene::*;

/// Mallory writes what it likes.
async fn put(store: &Memory, key: &str, value: impl Into<Vec<u8>>) {
    store.commit(&Commit::new().put(Key::new(key).unwrap(), value)).await.unwrap();
}

async fn get(store: &Memory, key: &str) -> Vec<u8> {
    store.get(&Key::new(key).unwrap()).await.unwrap().unwrap().value
}

/// An agent that has heard all so far, and takes what it is told.
fn agent(one: &controller::Controller<Memory>) -> Fleet {
    let fleet = one.fleet();
    let news = fleet.news_for(
        &name("hub"),
        &Have { authority: 1, ..Have::default() },
        None,
        fleet::fleet::Notices::All,
    );
    let mut own = Fleet::new(fleet::authority::Chain::begin(authority()).unwrap());
    assert!(own.take(news).refused.is_empty());
    own
}

#[tokio::test(start_paused = true)]
async fn it_puts_no_site_in() {
    let store = Memory::new();
    let one = network(&store).await;
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    let mut own = agent(&one);
    let have = own.have();
    // All that Mallory can sign: with keys of its own, as administrator, as delegate, as a new authority.
    let mut attempts = vec![
        next(&one.fleet(), &["mallory"], |contents| contents.put(site("mallory", 66))),
        added_by("mallory", &one.fleet(), &site("mallory", 66)),
    ];
    let mut value: Authority = authority().read().unwrap();
    value.version = 2;
    value.network = Some(own.network());
    value.administrators[0].key = signer("mallory").public();
    let usurped = Signed::new(&value, [&signer("mallory")]);
    attempts.push(News { authorities: vec![usurped.clone()], ..News::default() });
    // An old signature under other contents.
    let mut swapped = next(&one.fleet(), &["mallory"], |contents| contents.put(site("mallory", 66)));
    swapped.document.as_mut().unwrap().head = one.fleet().document().unwrap().signed.clone();
    attempts.push(swapped);
    for news in attempts {
        let taken = own.take(news.clone());
        assert!(!taken.is_new, "{news:?}");
        assert_eq!(own.have(), have);
        assert!(own.site(&name("mallory")).is_none());
        // What is in force already is no news, whatever comes with it.
        assert!(one.publish("mallory", news).await.is_err() || one.fleet().have() == have);
        assert!(one.fleet().site(&name("mallory")).is_none());
    }
    // Straight into the store: other controllers take none of it, neither as it comes nor when they read all.
    put(&store, "fleet/authority/00000000000000000002", serde_json::to_vec(&usurped).unwrap()).await;
    let added = added_by("mallory", &one.fleet(), &site("mallory", 66)).delegated.remove(0);
    put(&store, "fleet/delegated/00000000000000000002/00", serde_json::to_vec(&added).unwrap()).await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    for fleet in [one.fleet(), controller(&store).await.fleet()] {
        assert!(fleet.site(&name("mallory")).is_none());
        assert_eq!(fleet.chain().current().version, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn it_brings_no_old_document_back() {
    let store = Memory::new();
    let one = network(&store).await;
    let old_head = get(&store, "fleet/head").await;
    let old = one.all_news(&Have { authority: 1, ..Have::default() });
    publish(&one, |contents| {
        let mut revoked = member("hub", 1);
        revoked.revoked = Some(1_800_000_000);
        contents.put(fleet::site::Site::new(revoked, contact(1)));
    })
    .await
    .unwrap();
    let mut own = agent(&one);
    assert!(!own.take(old.clone()).is_new);
    assert!(own.site(&name("hub")).unwrap().member.is_revoked());
    assert!(one.publish("mallory", News { authorities: Vec::new(), ..old }).await.is_err());
    // The head put back, and the newer document removed: one that runs knows it, and so does every agent.
    put(&store, "fleet/head", old_head).await;
    let newer = Key::new("fleet/document/00000000000000000002").unwrap();
    store.commit(&Commit::new().delete(newer)).await.unwrap();
    store.compact();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(one.fleet().site(&name("hub")).unwrap().member.is_revoked());
    let put_back = Desk::new(controller(&store).await.fleet(), 1);
    let told = put_back.fleet().all_news(&own.have(), fleet::fleet::Notices::All);
    assert!(!own.take(told).is_new);
}

#[tokio::test(start_paused = true)]
async fn it_has_no_private_key_to_learn() {
    let store = Memory::new();
    let one = network(&store).await;
    let invitation = invite(&one, "kiel", "token").await;
    let access = controller::access::grant(&store, "root", name("ada"), controller::Role::Publisher, None)
        .await
        .unwrap();
    one.apply(application(&invitation, "kiel", 2)).await.unwrap();
    publish(&one, |contents| contents.put(site("kiel", 2))).await.unwrap();
    let all = store.list(&Prefix::everything()).await.unwrap();
    for entry in all.entries {
        let value = String::from_utf8(entry.value).unwrap();
        for who in ["ada", "robot", "kiel", "hub", "token"] {
            assert!(!value.contains(&**signer(who).to_text()), "{}", entry.key);
        }
        assert!(!value.contains("private") && !value.contains(&**access), "{}", entry.key);
    }
}

#[tokio::test(start_paused = true)]
async fn it_puts_no_identity_of_its_own_into_an_application() {
    let store = Memory::new();
    let one = network(&store).await;
    let invitation = invite(&one, "kiel", "token").await;
    let status = one.apply(application(&invitation, "kiel", 2)).await.unwrap();
    let stored = get(&store, &format!("application/{}", status.id)).await;
    let text = String::from_utf8(stored).unwrap();
    let (honest, own) = (signer("kiel").public().to_string(), signer("mallory").public().to_string());
    assert!(text.contains(&honest));
    put(&store, &format!("application/{}", status.id), text.replace(&honest, &own)).await;
    // Whoever approves verifies what is handed out.
    let waiting = one.applications().await.unwrap().remove(0);
    let why = fleet::enrolment::check(&waiting.applied.signed, one.fleet().network()).unwrap_err();
    assert!(why.to_string().contains("not signed by both"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn what_it_does_to_the_log_shows() {
    let store = Memory::new();
    let one = network(&store).await;
    for number in 2..6 {
        publish(&one, |contents| contents.put(site("kiel", number))).await.unwrap();
    }
    let noted = one.log_head().await.unwrap().unwrap();
    let check = async || {
        let texts = one.log(1).await?;
        let read = controller::log::verify(None, texts.iter().map(String::as_str));
        read.map_err(|error| controller::Error::Broken(error.to_string()))
    };
    assert_eq!(check().await.unwrap().1, Some(noted));
    let third = "log/record/00000000000000000003";
    let honest = get(&store, third).await;
    put(&store, third, String::from_utf8(honest.clone()).unwrap().replace("ada", "eve")).await;
    assert!(check().await.unwrap_err().to_string().contains("record 4 does not follow"));
    store.commit(&Commit::new().delete(Key::new(third).unwrap())).await.unwrap();
    assert!(check().await.unwrap_err().to_string().contains("record 3 of the log is missing"));
}
