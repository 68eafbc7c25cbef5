//! Invitations and applications.

use fleet::authority::{Administrator, Authority, AuthorityError};
use fleet::enrolment::{Application, ApplicationError, Invitation, NoInvitation, Terms, check, id};
use fleet::signed::Signed;

use crate::scene::{Administrators, contact, member, mesh, name, signer};

fn terms() -> Terms {
    Terms {
        site: Some(name("kiel")),
        role: name("spoke"),
        region: None,
        zone: None,
        standby: None,
        within: vec!["fd00::/16".parse().unwrap()],
    }
}

fn invitation(administrators: &Administrators) -> Invitation {
    Invitation::new(administrators.chain.network(), Vec::new(), &signer("token"), terms(), 1_800_000_000)
}

#[test]
fn a_site_applies_with_one_string() {
    let administrators = Administrators::of(mesh());
    let network = administrators.chain.network();
    let text = invitation(&administrators).to_text();
    let read: Invitation = format!(" {}\n", &*text).parse().unwrap();
    let signed = read.apply(&signer("kiel"), member("kiel", "spoke", 1), contact(1)).unwrap();
    let application = check(&signed, network).unwrap();
    assert_eq!(application.token, signer("token").public());
    assert_eq!(application.member.identity, signer("kiel").public());
    assert_eq!(id(&signed).len(), 64);
    assert!(!format!("{read:?}").contains("ed25519-private"));
}

#[test]
fn a_string_that_is_not_whole_is_told_from_another() {
    let text = invitation(&Administrators::of(mesh())).to_text();
    let no = |text: &str| text.parse::<Invitation>().unwrap_err();
    assert_eq!(no("sidestep1-abc"), NoInvitation::Other);
    for length in 16..text.len() {
        assert_eq!(no(&text[..length]), NoInvitation::Damaged, "{length}");
    }
}

#[test]
fn who_has_seen_no_invitation_makes_no_application() {
    let administrators = Administrators::of(mesh());
    let network = administrators.chain.network();
    let good =
        invitation(&administrators).apply(&signer("kiel"), member("kiel", "spoke", 1), contact(1)).unwrap();
    let mut said = good.read().unwrap();
    // A controller, which knows the public half of the key, puts its own identity in.
    said.member.identity = signer("mallory").public();
    for signers in [vec!["mallory"], vec!["mallory", "kiel"], vec!["kiel"]] {
        let keys: Vec<_> = signers.iter().map(|who| signer(who)).collect();
        assert_eq!(check(&Signed::new(&said, &keys), network), Err(ApplicationError::Unsigned));
    }
    // One who has the invitation cannot apply for an identity that is not his.
    let others = Signed::new(&good.read().unwrap(), [&signer("token")]);
    assert_eq!(check(&others, network), Err(ApplicationError::Unsigned));
    assert_eq!(check(&good, fleet::key::Digest::of(b"another")), Err(ApplicationError::Foreign));
}

#[test]
fn administrators_who_were_replaced_have_no_say_to_who_is_invited_since() {
    let mut administrators = Administrators::of(mesh());
    let before = invitation(&administrators).knowing(&administrators.chain);
    let first = administrators.chain.after(0).to_vec();
    let network = administrators.chain.network();
    let next = |version: u64, who: &str, signers: &[&str]| {
        let value = Authority {
            version,
            network: Some(network),
            threshold: 1,
            administrators: vec![Administrator { name: name(who), key: signer(who).public() }],
            delegates: Vec::new(),
        };
        Signed::new(&value, &signers.iter().map(|who| signer(who)).collect::<Vec<_>>())
    };
    administrators.chain.extend(next(2, "dora", &["ada", "ben", "dora"])).unwrap();
    let text = invitation(&administrators).knowing(&administrators.chain).to_text();
    let read: Invitation = text.parse().unwrap();
    // By enough of those who went, and a controller that tells it.
    let others = [first[0].clone(), next(2, "mallory", &["ada", "ben", "mallory"])];
    assert_eq!(read.chain(others.clone()).unwrap_err(), AuthorityError::Astray);
    assert_eq!(read.chain(first.clone()).unwrap_err(), AuthorityError::Astray, "and what comes later");
    assert_eq!(read.chain(administrators.chain.after(0).to_vec()).unwrap().current().version, 2);
    administrators.chain.extend(next(3, "emil", &["dora", "emil"])).unwrap();
    assert_eq!(read.chain(administrators.chain.after(0).to_vec()).unwrap().current().version, 3);
    // While the first one is in force it is the network's name, and the string is as it was.
    assert_eq!(before.to_text(), invitation(&administrators).to_text());
    assert!(before.chain(others).is_ok());
    assert!(text.len() - before.to_text().len() < 90);
}

/// Networks of /64, so many of them.
fn networks(count: u16) -> Vec<ipnet::IpNet> {
    (0..count).map(|number| format!("fd00:0:0:{number:x}::/64").parse().unwrap()).collect()
}

#[test]
fn an_application_is_no_longer_than_what_can_be_said_in_it() {
    let administrators = Administrators::of(mesh());
    let network = administrators.chain.network();
    let apply = |own: u16, may_take: u16| {
        let mut asked = member("kiel", "spoke", 1);
        asked.address = None;
        (asked.networks, asked.may_take) = (networks(own), networks(may_take));
        invitation(&administrators).apply(&signer("kiel"), asked, contact(1))
    };
    let most = apply(256, 256).unwrap();
    for (own, may_take) in [(257, 0), (0, 257)] {
        let words = apply(own, may_take).unwrap_err().to_string();
        assert!(
            words.contains("site kiel has 257 networks") && words.contains("256 are the most"),
            "{words}"
        );
    }
    // Nor can it be made longer with what says nothing.
    let padded = serde_json::to_string(&most.read().unwrap()).unwrap() + &" ".repeat(30_000);
    let json = serde_json::json!({ "text": padded, "signatures": [] });
    let mut padded: Signed<Application> = serde_json::from_value(json).unwrap();
    padded.sign(&signer("kiel"));
    padded.sign(&signer("token"));
    assert!(matches!(check(&padded, network), Err(ApplicationError::Long(_))));
}

#[test]
fn more_than_is_offered_is_not_asked_for() {
    let invitation = invitation(&Administrators::of(mesh()));
    let refused = |change: fn(&mut fleet::site::Member)| {
        let mut asked = member("kiel", "spoke", 1);
        change(&mut asked);
        invitation.apply(&signer("kiel"), asked, contact(1)).unwrap_err().to_string()
    };
    assert!(refused(|member| member.name = name("luebeck")).contains("name: kiel"));
    assert!(refused(|member| member.role = name("hub")).contains("role: spoke, not hub"));
    assert!(refused(|member| member.zone = Some(name("dmz"))).contains("zone: none, not dmz"));
    assert!(
        refused(|member| member.may_take.push("fe00::/16".parse().unwrap()))
            .contains("network: fd00::/16, not fe00::/16")
    );
    assert!(refused(|member| member.revoked = Some(1)).contains("revoked"));
    assert!(refused(|member| member.notices_after = 5).contains("number of notices"));
    assert!(refused(|member| member.address = Some("fd99::1".parse().unwrap())).contains("in none of its"));
}
