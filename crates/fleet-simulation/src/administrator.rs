//! Who signs: an administrator, who lets in all that were invited, and a delegate, who lets some in between two documents.

use controller::{Controller, Error};
use fleet::authority::{Administrator, Authority, Chain, Delegate};
use fleet::document::{Contents, Head, Serial};
use fleet::enrolment::{Application, State, check};
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::line::Line;
use fleet::name::Name;
use fleet::news::{DocumentNews, News};
use fleet::notice::{Act, Delegated, DelegatedLines};
use fleet::settings::Settings;
use fleet::signed::Signed;
use fleet::site::Site;

use crate::distant::Distant;
use crate::identity::{PEOPLE, name, policy, signer};

/// How many sites the delegate may let in.
pub(crate) const MOST: usize = 50;

fn key() -> SigningKey {
    signer(PEOPLE, 1)
}

fn delegates_key() -> SigningKey {
    signer(PEOPLE, 2)
}

/// What a network begins with: no site.
pub(crate) fn first(controllers: Vec<fleet::settings::Controller>) -> News {
    let delegate = Delegate {
        name: name("robot"),
        key: delegates_key().public(),
        most: MOST,
        roles: vec![name("spoke")],
        zones: Vec::new(),
        within: vec!["fd00::/16".parse().expect("a prefix")],
        may_revoke: false,
    };
    let authority = Authority {
        version: 1,
        network: None,
        threshold: 1,
        administrators: vec![Administrator { name: name("ada"), key: key().public() }],
        delegates: vec![delegate],
    };
    let authority = Signed::new(&authority, [&key()]);
    let network = Chain::begin(authority.clone()).expect("it is signed by who has to").network();
    let contents = Contents::new(Settings { policy: policy(), controllers, ..Settings::default() });
    let head = Head {
        network,
        authority: 1,
        serial: Serial(1),
        made: 1_800_000_000,
        previous: None,
        contents: contents.digest(),
    };
    let document = DocumentNews { head: Signed::new(&head, [&key()]), change: contents.complete() };
    News { authorities: vec![authority], document: Some(document), ..News::default() }
}

/// The next document: with what delegates have let in since the last one.
fn next(fleet: &Fleet, change: impl FnOnce(&mut Contents)) -> Option<News> {
    let before = fleet.document()?;
    let mut contents = before.contents.clone();
    for (name, site) in fleet.sites() {
        if let (None, Some(contact)) = (contents.site(name), site.contact) {
            contents.put(Site::new(site.member.into_owned(), contact.clone()));
        }
    }
    change(&mut contents);
    let head = Head {
        network: fleet.network(),
        authority: fleet.chain().current().version,
        serial: Serial(before.head.serial.0 + 1),
        made: 1_800_000_000,
        previous: Some(before.signed.digest()),
        contents: contents.digest(),
    };
    let document = DocumentNews { head: Signed::new(&head, [&key()]), change: contents.change_since(before) };
    Some(News { document: Some(document), ..News::default() })
}

/// Those who have applied, and wait.
async fn applicants(controller: &Controller<Distant>) -> Result<Vec<Application>, Error> {
    let network = controller.fleet().network();
    let all = controller.applications().await?;
    let waiting = all.iter().filter(|one| one.state == State::Waiting);
    Ok(waiting.filter_map(|one| check(&one.applied.signed, network).ok()).collect())
}

/// Lets everybody in who waits, by one document; how many that were.
pub(crate) async fn approve_all(controller: &Controller<Distant>) -> Result<usize, Error> {
    let applicants = applicants(controller).await?;
    let count = applicants.len();
    if count == 0 {
        return Ok(0);
    }
    let news = next(&controller.fleet(), |contents| {
        for application in applicants {
            contents.put(Site::new(application.member, application.contact));
        }
    });
    controller.publish("ada", news.unwrap_or_default()).await?;
    Ok(count)
}

/// Lets some spokes in, within the limits of a delegate; how many that were.
pub(crate) async fn delegate(controller: &Controller<Distant>) -> Result<usize, Error> {
    let fleet = controller.fleet();
    let Some(serial) = fleet.serial() else { return Ok(0) };
    let mut lines = Vec::new();
    for application in applicants(controller).await? {
        if application.member.role.as_str() == "spoke" && lines.len() < MOST {
            let contact = Line::new(application.contact);
            let act = Act::Add { member: Box::new(application.member), contact: *contact.digest() };
            let delegated = Delegated { network: fleet.network(), serial, act };
            let signed = Signed::new(&delegated, [&delegates_key()]);
            lines.push(DelegatedLines { signed, contact: Some(contact.text().to_owned()) });
        }
    }
    let count = lines.len();
    if count > 0 {
        controller.publish("robot", News { delegated: lines, ..News::default() }).await?;
    }
    Ok(count)
}

/// The document in which a site is none any more.
pub(crate) fn revocation(fleet: &Fleet, who: &Name) -> Option<News> {
    next(fleet, |contents| {
        if let Some(mut site) = contents.site(who) {
            let mut member = site.member.value().clone();
            member.revoked = Some(1_800_000_000);
            site.member = Line::new(member);
            contents.put(site);
        }
    })
}
