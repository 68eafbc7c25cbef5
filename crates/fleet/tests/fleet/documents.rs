//! Documents: by whom they are signed, and which are taken.

use fleet::authority::{Administrator, Authority};
use fleet::document::Serial;
use fleet::fleet::Fleet;
use fleet::news::{DocumentNews, News};
use fleet::signed::Signed;

use crate::scene::*;

fn two_sites() -> Administrators {
    let mut administrators = Administrators::of(mesh());
    administrators.contents.put(site("kiel", "spoke", 1));
    administrators.contents.put(site("bonn", "spoke", 2));
    administrators
}

fn of(document: DocumentNews) -> News {
    News { document: Some(document), ..News::default() }
}

#[test]
fn a_document_is_taken_once() {
    let mut administrators = two_sites();
    let mut fleet = administrators.newcomer();
    let news = administrators.publish();
    assert!(take(&mut fleet, news.clone()));
    assert!(!take(&mut fleet, news));
    assert_eq!(fleet.sites().len(), 2);
}

#[test]
fn an_older_one_does_not_come_back() {
    let mut administrators = two_sites();
    let mut fleet = administrators.newcomer();
    let first = administrators.publish();
    take(&mut fleet, first.clone());
    administrators.contents.remove(&name("bonn"));
    take(&mut fleet, administrators.publish());
    assert!(!take(&mut fleet, first));
    assert_eq!(fleet.serial(), Some(Serial(2)));
    assert_eq!(fleet.sites().len(), 1);
}

#[test]
fn too_few_signatures_insert_nobody() {
    let mut administrators = two_sites();
    let mut fleet = administrators.published();
    administrators.contents.put(site("mallory", "spoke", 66));
    for (signers, found) in
        [(vec!["ada"], 1), (vec!["ada", "ada"], 1), (vec!["mallory", "eve"], 0), (vec![], 0)]
    {
        administrators.signers = signers;
        let words = refusal(&mut fleet, of(administrators.document(2)));
        assert!(
            words.contains(&format!("{found} administrators of version 1 have signed, 2 have to")),
            "{words}"
        );
    }
}

#[test]
fn contents_that_were_not_signed_are_refused() {
    let administrators = two_sites();
    let mut fleet = administrators.newcomer();
    let signed = administrators.document(1).head;
    for change in 0..3 {
        let mut other = administrators.clone();
        match change {
            0 => other.contents.put(site("mallory", "spoke", 66)),
            1 => drop(other.contents.remove(&name("bonn"))),
            _ => other.contents.set_settings(fleet::settings::Settings::default()),
        }
        let forged = DocumentNews { head: signed.clone(), change: other.contents.complete() };
        assert_eq!(
            refusal(&mut fleet, of(forged)),
            "document 1 is refused: its contents are not those that were signed"
        );
    }
    take(&mut fleet, of(administrators.document(1)));
}

#[test]
fn two_documents_of_one_serial_are_told() {
    let mut administrators = two_sites();
    let mut fleet = administrators.published();
    administrators.contents.remove(&name("bonn"));
    let words = refusal(&mut fleet, of(administrators.document(1)));
    assert_eq!(words, "there are two documents 1: the administrators have signed both");
    assert_eq!(fleet.sites().len(), 2);
    // What somebody else has made of that number is no fork.
    administrators.signers = vec!["mallory"];
    assert!(refusal(&mut fleet, of(administrators.document(1))).contains("0 administrators"));
}

#[test]
fn who_was_replaced_signs_nothing_any_more() {
    let mut administrators = two_sites();
    let mut fleet = administrators.published();
    let new = ["cleo", "dora"].map(|who| Administrator { name: name(who), key: signer(who).public() });
    let authority = Authority {
        version: 2,
        network: Some(fleet.network()),
        threshold: 2,
        administrators: new.to_vec(),
        delegates: Vec::new(),
    };
    let signers = ["ada", "ben", "cleo", "dora"].map(signer);
    let signed = Signed::new(&authority, &signers);
    take(&mut fleet, News { authorities: vec![signed.clone()], ..News::default() });
    // The last document stays, whoever signed it.
    assert_eq!(fleet.sites().len(), 2);
    administrators.contents.remove(&name("bonn"));
    let words = refusal(&mut fleet, of(administrators.document(2)));
    assert_eq!(words, "document 2 is refused: it was signed by version 1 of the authority, 2 is in force");
    administrators.chain.extend(signed).unwrap();
    assert!(refusal(&mut fleet, of(administrators.document(2))).contains("0 administrators of version 2"));
    administrators.signers = vec!["dora", "cleo"];
    take(&mut fleet, of(administrators.document(2)));
    assert_eq!(fleet.sites().len(), 1);
}

#[test]
fn what_was_taken_stays_over_a_restart_whoever_may_sign_by_now() {
    let mut administrators = two_sites();
    let mut fleet = administrators.published();
    let moved = contact_notice(&fleet, "kiel", 10, contact(11));
    take(&mut fleet, moved);
    let authority = Authority {
        version: 2,
        network: Some(fleet.network()),
        threshold: 1,
        administrators: vec![Administrator { name: name("dora"), key: signer("dora").public() }],
        delegates: Vec::new(),
    };
    let signed = Signed::new(&authority, &["ada", "ben", "dora"].map(signer));
    take(&mut fleet, News { authorities: vec![signed], ..News::default() });
    let (authorities, kept) = fleet.memory();
    let again = Fleet::restore(fleet.network(), &authorities, kept.clone()).unwrap();
    assert_eq!((again.have(), hops(&again)), (fleet.have(), hops(&fleet)));
    // Who has nothing takes none of somebody who may not sign any more.
    let mut newcomer = Fleet::new(fleet.chain().clone());
    assert!(
        newcomer.take(kept.clone()).refused[0].to_string().contains("signed by version 1 of the authority")
    );
    // And what was changed on the disk is no memory.
    let other = Administrators::with(Vec::new(), fleet::settings::Policy::default());
    assert!(Fleet::restore(fleet.network(), &other.chain.after(0)[..0], kept).is_err());
}

#[test]
fn a_document_of_another_network_is_refused() {
    let mut fleet = two_sites().newcomer();
    let delegate = fleet::authority::Delegate {
        name: name("desk"),
        key: signer("desk").public(),
        most: 1,
        roles: Vec::new(),
        zones: Vec::new(),
        within: Vec::new(),
        may_revoke: false,
    };
    let mut others = Administrators::with(vec![delegate], mesh());
    assert_eq!(refusal(&mut fleet, others.publish()), "it is of another network");
}

#[test]
fn sites_that_could_not_both_be_configured_are_refused() {
    let collide = |change: &dyn Fn(&mut Administrators)| {
        let mut administrators = two_sites();
        change(&mut administrators);
        let mut fleet = administrators.newcomer();
        refusal(&mut fleet, administrators.publish())
    };
    let words = collide(&|a| a.contents.put(fleet::site::Site::new(member("trier", "spoke", 3), contact(1))));
    assert!(words.contains("the key of trier is also that of kiel"), "{words}");
    let words = collide(&|a| {
        let mut twice = member("trier", "spoke", 1);
        twice.address = None;
        a.contents.put(fleet::site::Site::new(twice, contact(3)));
    });
    assert!(words.contains("a network of trier is also that of kiel"), "{words}");
    let words = collide(&|a| {
        let mut among = contact(3);
        among.hop_prefix = "fd00:1:0:7::/64".parse().unwrap();
        a.contents.put(fleet::site::Site::new(member("trier", "spoke", 3), among));
    });
    assert!(
        words.contains("hopping prefix fd00:1:0:7::/64 of trier overlaps the network fd00:1::/48 of kiel"),
        "{words}"
    );
    let words = collide(&|a| {
        let mut small = contact(3);
        small.key = fleet::site::TunnelKey(mt6d::keys::PublicKey::from_bytes([0; 32]));
        a.contents.put(fleet::site::Site::new(member("trier", "spoke", 3), small));
    });
    assert!(words.contains("small order"), "{words}");
    let words = collide(&|a| {
        let mut away = member("trier", "spoke", 3);
        away.address = Some("fd00:1::9".parse().unwrap());
        a.contents.put(fleet::site::Site::new(away, contact(3)));
    });
    assert!(
        words.contains("the agent's address fd00:1::9 of site trier is in none of its networks"),
        "{words}"
    );
}
