//! A fleet that Ada administers, with controllers on one store.

use controller::{Controller, Error, begin};
use fleet::authority::{Administrator, Authority, Chain, Delegate};
use fleet::document::{Contents, Document, Head, Serial};
use fleet::enrolment::{Application, Invitation, Terms};
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::name::Name;
use fleet::news::{DocumentNews, News};
use fleet::notice::{Act, ContactNotice, Delegated, DelegatedLines};
use fleet::settings::{Link, Policy, Selector, Settings};
use fleet::signed::Signed;
use fleet::site::{Contact, Member, Site, TunnelKey};
use mt6d::keys::PrivateKey;
use store::Store;

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// The key that somebody signs with.
pub(crate) fn signer(text: &str) -> SigningKey {
    let mut seed = [0; 32];
    for (at, byte) in seed.iter_mut().zip(text.bytes()) {
        *at = byte;
    }
    SigningKey::from_seed(seed)
}

pub(crate) fn member(who: &str, number: u16) -> Member {
    Member {
        name: name(who),
        identity: signer(who).public(),
        role: name(if who.starts_with("hub") { "hub" } else { "spoke" }),
        region: None,
        zone: None,
        standby: None,
        networks: vec![format!("fd00:{number:x}::/48").parse().unwrap()],
        may_take: Vec::new(),
        address: None,
        notices_after: 0,
        revoked: None,
    }
}

pub(crate) fn contact(number: u16) -> Contact {
    let mut bytes = [7; 32];
    bytes[1..3].copy_from_slice(&number.to_be_bytes());
    let hop_prefix = format!("2001:db8:{number:x}::/64").parse().unwrap();
    Contact { key: TunnelKey(PrivateKey::from_bytes(bytes).public()), next_key: None, hop_prefix }
}

pub(crate) fn site(who: &str, number: u16) -> Site {
    Site::new(member(who, number), contact(number))
}

/// Spokes that have a tunnel with each hub.
pub(crate) fn policy() -> Policy {
    let role = |text| Selector::of_role(name(text));
    let links = vec![Link { between: role("hub"), and: role("spoke"), same_region: false, keepalive: 25 }];
    Policy { links, relays: vec![role("hub")], reach: Vec::new() }
}

/// A site that was taken out.
pub(crate) fn revoked(who: &str, number: u16) -> Site {
    let member = Member { revoked: Some(1_800_000_000), ..member(who, number) };
    Site::new(member, contact(number))
}

/// The first authority: Ada alone, and a robot that may add spokes.
pub(crate) fn authority() -> Signed<Authority> {
    let delegate = Delegate {
        name: name("robot"),
        key: signer("robot").public(),
        most: 2,
        roles: vec![name("spoke")],
        zones: Vec::new(),
        within: vec!["fd00::/16".parse().unwrap()],
        may_revoke: true,
    };
    let authority = Authority {
        version: 1,
        network: None,
        threshold: 1,
        administrators: vec![Administrator { name: name("ada"), key: signer("ada").public() }],
        delegates: vec![delegate],
    };
    Signed::new(&authority, [&signer("ada")])
}

/// The next document after what is known, signed by some.
pub(crate) fn next(fleet: &Fleet, signers: &[&str], change: impl FnOnce(&mut Contents)) -> News {
    let before = fleet.document().unwrap();
    next_after(fleet, before, signers, change)
}

pub(crate) fn next_after(
    fleet: &Fleet,
    before: &Document,
    signers: &[&str],
    change: impl FnOnce(&mut Contents),
) -> News {
    let mut contents = before.contents.clone();
    change(&mut contents);
    let head = Head {
        network: fleet.network(),
        authority: fleet.chain().current().version,
        serial: Serial(before.head.serial.0 + 1),
        made: 1_800_000_000,
        previous: Some(before.signed.digest()),
        contents: contents.digest(),
    };
    let keys: Vec<SigningKey> = signers.iter().map(|who| signer(who)).collect();
    let change = contents.change_since(before);
    News { document: Some(DocumentNews { head: Signed::new(&head, &keys), change }), ..News::default() }
}

/// What a network begins with: one hub.
pub(crate) fn first() -> News {
    let chain = Chain::begin(authority()).unwrap();
    let mut contents = Contents::new(Settings { policy: policy(), ..Settings::default() });
    contents.put(site("hub", 1));
    let head = Head {
        network: chain.network(),
        authority: 1,
        serial: Serial(1),
        made: 1_800_000_000,
        previous: None,
        contents: contents.digest(),
    };
    let document = DocumentNews { head: Signed::new(&head, [&signer("ada")]), change: contents.complete() };
    News { authorities: vec![authority()], document: Some(document), ..News::default() }
}

/// A controller that follows its store for as long as the test runs.
pub(crate) async fn controller<S: Store>(store: &S) -> Controller<S> {
    let controller = Controller::open(store.clone()).await.unwrap();
    let followed = controller.clone();
    tokio::spawn(async move { followed.follow().await });
    controller
}

/// A network with one controller.
pub(crate) async fn network<S: Store>(store: &S) -> Controller<S> {
    begin(store, "ada", first()).await.unwrap();
    controller(store).await
}

/// Publishes a document made from what the controller knows.
pub(crate) async fn publish<S: Store>(
    controller: &Controller<S>,
    change: impl FnOnce(&mut Contents),
) -> Result<(), Error> {
    let news = next(&controller.fleet(), &["ada"], change);
    controller.publish("ada", news).await
}

/// Something that a delegate adds.
pub(crate) fn added_by(who: &str, fleet: &Fleet, site: &Site) -> News {
    let act = Act::Add { member: Box::new(site.member.value().clone()), contact: *site.contact.digest() };
    delegated(who, fleet, act, site.contact.text().map(str::to_owned))
}

/// A site that a delegate takes out.
pub(crate) fn revoked_by(who: &str, fleet: &Fleet, site: &str) -> News {
    delegated(who, fleet, Act::Revoke { site: name(site), since: 1_800_000_000 }, None)
}

fn delegated(who: &str, fleet: &Fleet, act: Act, contact: Option<String>) -> News {
    let delegated = Delegated { network: fleet.network(), serial: fleet.serial().unwrap(), act };
    let signed = Signed::new(&delegated, [&signer(who)]);
    News { delegated: vec![DelegatedLines { signed, contact }], ..News::default() }
}

/// What a site says of how it is met.
pub(crate) fn notice(fleet: &Fleet, who: &str, number: u64, contact: Contact) -> News {
    let notice = ContactNotice { network: fleet.network(), site: name(who), number, contact };
    News { contacts: vec![Signed::new(&notice, [&signer(who)])], ..News::default() }
}

pub(crate) fn terms(who: &str) -> Terms {
    Terms {
        site: Some(name(who)),
        role: name("spoke"),
        region: None,
        zone: None,
        standby: None,
        within: Vec::new(),
    }
}

/// A time that is not over soon.
pub(crate) fn soon() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() + 3600
}

/// Invites a site with a token of this name.
pub(crate) async fn invite<S: Store>(controller: &Controller<S>, who: &str, token: &str) -> Invitation {
    let key = signer(token);
    controller.invite("ada", key.public(), terms(who), soon()).await.unwrap();
    Invitation::new(controller.fleet().network(), Vec::new(), &key, terms(who), soon())
}

pub(crate) fn application(invitation: &Invitation, who: &str, number: u16) -> Signed<Application> {
    invitation.apply(&signer(who), member(who, number), contact(number)).unwrap()
}
