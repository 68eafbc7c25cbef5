//! Sites that enrol, at controllers that behave and at others.

mod controller;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::{EnrolError, Enrolment, Folder, Identity};
use controller::{Certificate, Fake, Said};
use fleet::authority::{Administrator, Authority, Chain};
use fleet::desk::Desk;
use fleet::document::{Contents, Head, Serial};
use fleet::enrolment::{APPLY, Application, Invitation, State, Status, Terms, check, id};
use fleet::exchange::{Challenge, FromController, Problem, SYNC, ToController};
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::name::Name;
use fleet::news::{DocumentNews, News};
use fleet::settings::{Controller, Settings};
use fleet::signed::Signed;
use fleet::site::{Contact, Member, Site, TunnelKey};
use mt6d::keys::PrivateKey;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed([seed; 32])
}

/// The network, whose administrator has key 1.
fn chain() -> Chain {
    let administrators = vec![Administrator { name: name("ada"), key: key(1).public() }];
    let authority =
        Authority { version: 1, network: None, threshold: 1, administrators, delegates: Vec::new() };
    Chain::begin(Signed::new(&authority, [&key(1)])).unwrap()
}

fn contact() -> Contact {
    Contact {
        key: TunnelKey(PrivateKey::from_bytes([5; 32]).public()),
        next_key: None,
        hop_prefix: "2001:db8:b1::/64".parse().unwrap(),
    }
}

fn member(identity: u8) -> Member {
    Member {
        name: name("kiel"),
        identity: key(identity).public(),
        role: name("spoke"),
        region: None,
        zone: None,
        standby: None,
        networks: vec!["2001:db8:b::/64".parse().unwrap()],
        may_take: Vec::new(),
        address: Some("2001:db8:b::1".parse().unwrap()),
        notices_after: 0,
        revoked: None,
    }
}

/// A document with this site, by this administrator.
fn document(member: Member, administrator: u8) -> News {
    let mut contents = Contents::new(Settings::default());
    contents.put(Site::new(member, contact()));
    let head = Head {
        network: chain().network(),
        authority: 1,
        serial: Serial(1),
        made: 0,
        previous: None,
        contents: contents.digest(),
    };
    let document =
        DocumentNews { head: Signed::new(&head, [&key(administrator)]), change: contents.complete() };
    News { document: Some(document), ..News::default() }
}

/// A controller that admits a site after a while, as whatever `admits` makes of its application.
fn admitting(admits: impl Fn(&Application) -> News + Send + Sync + 'static) -> impl Fn(&str, &[u8]) -> Said {
    let desk = Mutex::new(Desk::new(Fleet::new(chain()), 7));
    let applied = Mutex::new(None::<Signed<Application>>);
    let asked = AtomicUsize::new(0);
    move |path, body| {
        let state = if asked.fetch_add(1, Relaxed) < 1 { State::Waiting } else { State::Member };
        if path == APPLY {
            *applied.lock().unwrap() = Some(serde_json::from_slice(body).unwrap());
        }
        let signed = applied.lock().unwrap().clone().unwrap();
        let application = check(&signed, chain().network()).unwrap();
        if path.starts_with(APPLY) {
            let authorities = chain().after(0).to_vec();
            return Said::ok(&Status { id: id(&signed), state, authorities });
        }
        assert!(path.starts_with(SYNC), "{path}");
        let request: ToController = serde_json::from_slice(body).unwrap();
        let asking = request.asking.read().unwrap();
        assert!(request.asking.is_signed_by(application.member.identity));
        if asking.challenge != "fresh" {
            return Said::of(401, &Challenge { challenge: "fresh".into() });
        }
        let mut desk = desk.lock().unwrap();
        let news = admits(&application);
        // Whatever it makes of it itself, it passes it on.
        let mut answer = desk.answer(&asking.site, &asking.question, true).unwrap();
        desk.take(news.clone());
        answer.news = news;
        Said::ok(&FromController { answer, challenge: "next".into() })
    }
}

fn invitation(fake: &Fake) -> Invitation {
    let controller = Controller {
        name: name("c1"),
        inside: None,
        outside: Some(fake.address.to_string()),
        certificate: fake.certificate,
    };
    let terms = Terms {
        site: None,
        role: name("spoke"),
        region: None,
        zone: None,
        standby: None,
        within: Vec::new(),
    };
    Invitation::new(chain().network(), vec![controller], &key(9), terms, 0)
}

/// What comes of it, and the folder.
fn enrol(invitation: &Invitation) -> (Result<(), EnrolError>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let enrolment = Enrolment::new(invitation, key(3), member(3), contact()).unwrap();
    let result = enrolment.run(&Folder::new(folder.path().to_owned()), Duration::from_secs(60));
    (result, folder)
}

fn refused(answers: impl Fn(&str, &[u8]) -> Said + Send + Sync + 'static) -> String {
    let fake = Fake::start(Certificate::new(), answers);
    let (result, folder) = enrol(&invitation(&fake));
    assert!(!folder.path().join("fleet.json").exists());
    result.unwrap_err().to_string()
}

#[test]
fn a_site_that_is_admitted_keeps_what_was_signed() {
    let fake =
        Fake::start(Certificate::new(), admitting(|application| document(application.member.clone(), 1)));
    let (result, folder) = enrol(&invitation(&fake));
    result.unwrap();
    let folder = Folder::new(folder.path().to_owned());
    let fleet = folder.fleet(chain().network()).unwrap().unwrap();
    assert_eq!(fleet.serial(), Some(Serial(1)));
    assert!(fleet.site(&name("kiel")).unwrap().contact.is_some());
}

#[test]
fn what_is_not_signed_by_this_networks_administrators_is_not_kept() {
    let by_a_stranger = refused(admitting(|application| document(application.member.clone(), 66)));
    assert!(
        by_a_stranger.contains("not to be believed: the document is refused: 0 administrators"),
        "{by_a_stranger}"
    );
    let another_site = refused(admitting(|_| document(member(67), 1)));
    assert!(another_site.contains("there is no site kiel with this identity"), "{another_site}");
    // An older document, which they have signed, does not know this site yet.
    let older = refused(admitting(|_| {
        let mut other = member(67);
        other.name = name("bonn");
        document(other, 1)
    }));
    assert!(older.contains("there is no site kiel with this identity"), "{older}");
    let nothing = refused(admitting(|_| News::default()));
    assert!(nothing.contains("there is no site kiel with this identity"), "{nothing}");
}

/// Who has a controller's keys sees all that a site sends it.
#[test]
fn no_private_key_is_sent() {
    let sent = Arc::new(Mutex::new(String::new()));
    let (seen, admits) =
        (Arc::clone(&sent), admitting(|application| document(application.member.clone(), 1)));
    let fake = Fake::start(Certificate::new(), move |path, body| {
        let text = format!("{path}\n{}\n", String::from_utf8_lossy(body));
        seen.lock().unwrap().push_str(&text);
        admits(path, body)
    });
    enrol(&invitation(&fake)).0.unwrap();
    let sent = sent.lock().unwrap();
    assert!(sent.contains(&key(3).public().to_string()) && sent.contains(&String::from(contact().key)));
    for private in [key(3).to_text(), key(9).to_text(), PrivateKey::from_bytes([5; 32]).to_base64()] {
        let bare = private.rsplit(':').next().unwrap();
        assert!(bare.len() >= 43 && !sent.contains(bare));
    }
}

#[test]
fn a_controller_of_another_network_is_refused() {
    let said = refused(|_, _| {
        let administrators = vec![Administrator { name: name("eve"), key: key(66).public() }];
        let other =
            Authority { version: 1, network: None, threshold: 1, administrators, delegates: Vec::new() };
        let authorities = vec![Signed::new(&other, [&key(66)])];
        Said::ok(&Status { id: String::new(), state: State::Member, authorities })
    });
    assert!(said.contains("not to be believed: it is of another network"), "{said}");
}

/// A controller has the key of an administrator who was replaced before the site was invited.
#[test]
fn who_may_not_sign_any_more_names_nobody_to_a_site_that_was_invited_since() {
    let next = |seed: u8| {
        let administrators = vec![Administrator { name: name("ben"), key: key(seed).public() }];
        let network = Some(chain().network());
        let authority =
            Authority { version: 2, network, threshold: 1, administrators, delegates: Vec::new() };
        Signed::new(&authority, [&key(1), &key(seed)])
    };
    let fake = Fake::start(Certificate::new(), move |_, _| {
        let authorities = [chain().after(0), &[next(66)]].concat();
        Said::ok(&Status { id: String::new(), state: State::Member, authorities })
    });
    let mut now = chain();
    now.extend(next(4)).unwrap();
    let (result, _folder) = enrol(&invitation(&fake).knowing(&now));
    let said = result.unwrap_err().to_string();
    assert!(said.contains("not to be believed: it does not follow from the authority"), "{said}");
}

#[test]
fn a_controller_with_another_certificate_is_told_nothing() {
    let told = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&told);
    let fake = Fake::start(Certificate::new(), move |_, _| {
        seen.fetch_add(1, Relaxed);
        Said::of(500, &Problem { error: String::new() })
    });
    let mut other = invitation(&fake);
    other.controllers[0].certificate = Certificate::new().digest();
    let (result, _folder) = enrol(&other);
    let said = result.unwrap_err().to_string();
    assert!(said.contains("is not the controller whose certificate this site was given"), "{said}");
    assert_eq!(told.load(Relaxed), 0);
}

#[test]
fn whatever_is_answered_is_told_in_words_that_do_no_harm() {
    let escapes = refused(|_, _| Said::of(403, &Problem { error: "no \u{1b}[2Jone".into() }));
    assert!(escapes.contains("(403): no \\u{1b}[2Jone"), "{escapes}");
    let turned_down = refused(|_, _| {
        let state = State::Refused { why: "no \u{7}".into() };
        Said::ok(&Status { id: String::new(), state, authorities: Vec::new() })
    });
    assert!(turned_down.ends_with("turned this site down: no \\u{7}"), "{turned_down}");
    let nonsense = refused(|_, _| Said { status: 200, body: b"<html>".to_vec() });
    assert!(nonsense.contains("answers what is none of ours"), "{nonsense}");
    let redirect = refused(|_, _| Said { status: 302, body: Vec::new() });
    assert!(redirect.contains("it has status 302"), "{redirect}");
}

#[test]
fn nobody_there_is_told_with_all_who_were_tried() {
    let fake = Fake::start(Certificate::new(), |_, _| Said::of(500, &Problem { error: String::new() }));
    let mut gone = invitation(&fake);
    gone.controllers[0].outside = Some("[::1]:1".into());
    let (result, _folder) = enrol(&gone);
    let said = result.unwrap_err().to_string();
    assert!(said.starts_with("no controller of the fleet answers: [::1]:1 does not answer"), "{said}");
}

#[test]
fn a_folder_that_somebody_has_changed_is_refused() {
    let fake =
        Fake::start(Certificate::new(), admitting(|application| document(application.member.clone(), 1)));
    let (result, temporary) = enrol(&invitation(&fake));
    result.unwrap();
    let folder = Folder::new(temporary.path().to_owned());
    let network = chain().network();
    assert!(matches!(folder.identity(), Err(agent::FolderError::NotEnrolled(_))));
    folder.keep_identity(&Identity { site: name("kiel"), network, tunnel: "mt6d0".into() }, &key(3)).unwrap();
    assert_eq!(folder.identity().unwrap().1.public(), key(3).public());
    let path = temporary.path().join("fleet.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("2001:db8:b1::/64", "2001:db8:66::/64")).unwrap();
    let error = folder.fleet(network).unwrap_err().to_string();
    assert!(
        error.contains("fleet.json: document 1 is refused: its contents are not those that were signed"),
        "{error}"
    );
}
