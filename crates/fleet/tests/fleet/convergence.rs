//! Whoever tells it, in whatever order and how often: what is known in the end is the same.

use fleet::fleet::{Fleet, Notices, Numbers};
use fleet::news::{Have, News};
use fleet::site::Site;
use proptest::prelude::*;

use crate::scene::*;

/// The news of a history: three documents, and notices between them.
fn history() -> (Fleet, Vec<News>) {
    let mut administrators = Administrators::of(mesh());
    let mut news = Vec::new();
    for number in 1..=4 {
        let mut member = member(&format!("s{number}"), "site", number);
        member.may_take = vec![format!("fd01:{number:x}::/32").parse().unwrap()];
        administrators.contents.put(Site::new(member, contact(number)));
    }
    let empty = administrators.newcomer();
    news.push(administrators.publish());
    for (number, at) in [(11, 1), (12, 2), (13, 3)] {
        news.push(contact_notice(&empty, "s1", at, contact(number)));
        news.push(networks_notice(&empty, "s2", at, &[&format!("fd01:2:{number}::/48")]));
    }
    administrators.contents.remove(&name("s3"));
    news.push(administrators.publish());
    news.push(contact_notice(&empty, "s4", 7, contact(14)));
    administrators.contents.put(site("s5", "site", 5));
    news.push(administrators.publish());
    (empty, news)
}

fn all_of(fleet: &Fleet) -> (Have, Numbers, Vec<String>) {
    let sites = fleet.sites().into_values().map(|site| format!("{:?}", (site.member, site.contact)));
    (fleet.have(), fleet.numbers(), sites.collect())
}

proptest! {
    #[test]
    fn gossip_in_any_order_ends_the_same(order in proptest::collection::vec(0..9usize, 0..40)) {
        let (empty, news) = history();
        assert_eq!(news.len(), 10);
        let mut told_in_order = empty.clone();
        for one in &news {
            told_in_order.take(one.clone());
        }
        let mut told_in_disorder = empty.clone();
        for at in order {
            told_in_disorder.take(news[at].clone());
        }
        // At last somebody is met who knows all.
        let numbers = told_in_disorder.numbers();
        let rest = told_in_order.all_news(&told_in_disorder.have(), Notices::After(&numbers));
        told_in_disorder.take(rest);
        prop_assert_eq!(all_of(&told_in_disorder), all_of(&told_in_order));
    }

    /// Whatever is changed on the way, nothing comes of it but what was signed.
    #[test]
    fn a_byte_that_is_changed_changes_nothing(at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let (empty, news) = history();
        let mut whole = empty.clone();
        whole.take(news[0].clone());
        let text = serde_json::to_string(&news[0]).unwrap();
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(forged) = serde_json::from_slice::<News>(&bytes) {
            let mut fleet = empty.clone();
            fleet.take(forged);
            prop_assert!(fleet.sites().is_empty() || all_of(&fleet) == all_of(&whole));
        }
    }

    #[test]
    fn arbitrary_texts_are_no_news(text in ".{0,300}") {
        let is_empty = text.split_whitespace().eq(["{}"]);
        prop_assert!(serde_json::from_str::<News>(&text).is_err() || is_empty);
    }
}
