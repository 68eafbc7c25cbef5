//! A fleet that is not there: its controller runs in this process, over a store in memory, and sites have asked it as they are
//! told to. For tests, and for the stage.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use controller::oidc::Provider;
use controller::{
    ACCESS, Controller, Draft, Identity, NETWORK, Network, Role, Server, access, begin, now, rules,
};
use fleet::authority::{Administrator, Authority, Chain};
use fleet::document::{Contents, Head, Serial};
use fleet::enrolment::{Invitation, Terms};
use fleet::exchange::Question;
use fleet::key::SigningKey;
use fleet::name::Name;
use fleet::news::{DocumentNews, News};
use fleet::settings::{Controller as Place, Settings};
use fleet::signed::Signed;
use fleet::site::{Contact, Member, Site, TunnelKey};
use mt6d::keys::PrivateKey;
use store::Memory;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Regional hubs; sensors reach hubs alone.
const RULES: &str = r#"
link = [
    { between = { roles = ["hub"] }, and = { roles = ["hub"] } },
    { between = { roles = ["hub"] }, and = { roles = ["spoke", "sensor"] }, same_region = true },
]
relay = [{ roles = ["hub"] }]
reach = [
    { from = { zones = ["core", "office"] }, to = {} },
    { from = { roles = ["sensor"] }, to = { roles = ["hub"] } },
]
"#;
/// Name, role, region, zone.
const SITES: [(&str, &str, &str, &str); 23] = [
    ("hub-north", "hub", "north", "core"),
    ("hub-south", "hub", "south", "core"),
    ("hub-west", "hub", "west", "core"),
    ("berlin", "spoke", "north", "office"),
    ("goteborg", "spoke", "north", "office"),
    ("helsinki", "spoke", "north", "office"),
    ("oslo", "spoke", "north", "office"),
    ("riga", "spoke", "north", "office"),
    ("tallinn", "spoke", "north", "office"),
    ("gdansk", "sensor", "north", "plant"),
    ("bern", "spoke", "south", "office"),
    ("ljubljana", "spoke", "south", "office"),
    ("praha", "spoke", "south", "office"),
    ("wien", "spoke", "south", "office"),
    ("graz", "sensor", "south", "plant"),
    ("milano", "sensor", "south", "plant"),
    ("amsterdam", "spoke", "west", "office"),
    ("bruxelles", "spoke", "west", "office"),
    ("lisboa", "spoke", "west", "office"),
    ("lyon", "spoke", "west", "office"),
    ("madrid", "spoke", "west", "office"),
    ("dublin", "sensor", "west", "plant"),
    ("bonn", "spoke", "west", "office"),
];
/// It has asked once, a long time ago.
const SILENT: &str = "tallinn";
/// It does not take the document in force.
const BEHIND: &str = "lisboa";
/// It was taken out.
const REVOKED: &str = "bonn";
/// They apply.
const APPLY: [&str; 2] = ["malmo", "porto"];

/// How the fleet is.
pub(crate) struct Wanted {
    /// What the page may.
    pub(crate) role: Role,
    /// Spokes beside those that there are.
    pub(crate) more: u16,
    /// What makes an identity provider, in the folder of the controller and within its runtime.
    pub(crate) provider: Option<fn(&Path)>,
    /// Why an application was turned down, as somebody could write it who wants that to become a part of a page.
    pub(crate) hostile: Option<String>,
}

/// The folder for `--fleet`. Its controller runs as long as this process.
pub(crate) fn start(folder: &Path, wanted: Wanted) -> Result<PathBuf> {
    let folder = folder.join("fleet");
    std::fs::create_dir_all(&folder)?;
    let (tell, told) = channel();
    let of_thread = folder.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = make(&of_thread, wanted).await.unwrap();
            tell.send(()).unwrap();
            server.serve().await.unwrap();
        });
    });
    told.recv()?;
    Ok(folder)
}

/// The draft with somebody's signature.
pub(crate) fn signed(draft: &str, who: &str) -> Result<String> {
    let (mut draft, fleet) = Draft::parse(draft)?;
    draft.sign(&fleet, &signer(who))?;
    Ok(draft.to_text()?)
}

async fn make(folder: &Path, wanted: Wanted) -> Result<Server<Memory>> {
    let listener = TcpListener::bind("[::1]:0")?;
    let identity = Identity::of_folder(folder, &["localhost".to_owned()])?;
    let at = listener.local_addr()?.to_string();
    let place =
        Place { name: name("control-1"), inside: None, outside: Some(at), certificate: identity.digest() };
    let (store, first) = (Memory::new(), first(place.clone(), wanted.more)?);
    // What was heard an hour ago takes no hour.
    tokio::time::pause();
    begin(&store, "ada", first).await?;
    let controller = Controller::open(store.clone()).await?;
    let following = controller.clone();
    tokio::spawn(async move { following.follow().await });
    let have = controller.fleet().have();
    let asked = Question { have, since: None };
    controller.answer(&name(SILENT), &asked, Duration::ZERO).await;
    tokio::time::advance(Duration::from_secs(3700)).await;
    tokio::time::resume();
    let before = controller.all_news(&Default::default());
    let mut draft = Draft::revoke(&controller.fleet(), before, &[name(REVOKED)], false)?;
    for who in ["ada", "ben"] {
        draft.sign(&controller.fleet(), &signer(who))?;
    }
    controller.publish("ada", draft.change).await?;
    for (who, number) in APPLY.iter().zip(201..) {
        apply(&controller, who, number).await?;
    }
    if let Some(why) = &wanted.hostile {
        apply(&controller, "sofia", 210).await?;
        let all = controller.applications().await?;
        let id = all.iter().map(|one| &one.id).next_back().ok_or("nobody has applied")?;
        controller.refuse("ada", id, why).await?;
    }
    for (who, _) in controller.fleet().sites() {
        match who.as_str() {
            SILENT | REVOKED => {}
            BEHIND => drop(tokio::spawn(ask_in_vain(controller.clone(), who.clone(), asked))),
            _ => drop(tokio::spawn(ask(controller.clone(), who.clone()))),
        }
    }
    let token = access::grant(&store, "ada", name("vera"), wanted.role, None).await?;
    let network = Network { network: controller.fleet().network(), controllers: vec![place] };
    std::fs::write(folder.join(NETWORK), toml::to_string(&network)?)?;
    let _ = std::fs::remove_file(folder.join(ACCESS));
    let mut options = std::fs::OpenOptions::new();
    let mut access = options.write(true).create_new(true).mode(0o600).open(folder.join(ACCESS))?;
    std::io::Write::write_all(&mut access, token.as_bytes())?;
    if let Some(provide) = wanted.provider {
        provide(folder);
    }
    let provider = Provider::of_folder(folder)?;
    Ok(Server::new(controller, listener, identity, 100)?.with_provider(provider))
}

/// Asks as an agent does that takes what it is told.
async fn ask(controller: Controller<Memory>, who: Name) {
    let mut since = None;
    loop {
        let have = controller.fleet().have();
        let answer = controller.answer(&who, &Question { have, since }, fleet::agent::WAIT).await;
        since = Some(answer.since);
    }
}

/// Asks as an agent does whose gateway refuses what it is told.
async fn ask_in_vain(controller: Controller<Memory>, who: Name, question: Question) {
    loop {
        controller.answer(&who, &question, Duration::ZERO).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

async fn apply(controller: &Controller<Memory>, who: &str, number: u16) -> Result<()> {
    let key = signer(&format!("token of {who}"));
    let terms = Terms {
        site: Some(name(who)),
        role: name("spoke"),
        region: Some(name(if who == "porto" { "west" } else { "north" })),
        zone: Some(name("office")),
        standby: None,
        within: Vec::new(),
    };
    let expires = now() + 3600;
    controller.invite("ian", key.public(), terms.clone(), expires).await?;
    let invitation = Invitation::new(controller.fleet().network(), Vec::new(), &key, terms.clone(), expires);
    let member = member((who, "spoke", terms.region.as_ref().map_or("", Name::as_str), "office"), number);
    controller.apply(invitation.apply(&signer(who), member, contact(number))?).await?;
    Ok(())
}

fn first(place: Place, more: u16) -> Result<News> {
    let administrators = ["ada", "ben", "cleo"];
    let of = |who: &str| Administrator { name: name(who), key: signer(who).public() };
    let authority = Authority {
        version: 1,
        network: None,
        threshold: 2,
        administrators: administrators.map(of).to_vec(),
        delegates: Vec::new(),
    };
    let keys = [signer("ada"), signer("ben")];
    let authority = Signed::new(&authority, &keys);
    let network = Chain::begin(authority.clone())?.network();
    let settings = Settings { controllers: vec![place], ..rules::read(RULES)? };
    let mut contents = Contents::new(settings);
    for (of, number) in SITES.into_iter().zip(1..) {
        contents.put(Site::new(member(of, number), contact(number)));
    }
    for number in 0..more {
        let (who, number) = (format!("s{number}"), 1000 + number);
        contents.put(Site::new(member((&who, "spoke", "north", "office"), number), contact(number)));
    }
    let head = Head {
        network,
        authority: 1,
        serial: Serial(1),
        made: now(),
        previous: None,
        contents: contents.digest(),
    };
    let document = DocumentNews { head: Signed::new(&head, &keys), change: contents.complete() };
    Ok(News { authorities: vec![authority], document: Some(document), ..News::default() })
}

fn member((who, role, region, zone): (&str, &str, &str, &str), number: u16) -> Member {
    Member {
        name: name(who),
        identity: signer(who).public(),
        role: name(role),
        region: Some(name(region)),
        zone: Some(name(zone)),
        standby: None,
        networks: vec![format!("fd00:{number:x}::/48").parse().expect("a network")],
        may_take: Vec::new(),
        address: Some(format!("fd00:{number:x}::1").parse().expect("an address")),
        notices_after: 0,
        revoked: None,
    }
}

fn contact(number: u16) -> Contact {
    let mut bytes = [7; 32];
    bytes[1..3].copy_from_slice(&number.to_be_bytes());
    let hop_prefix = format!("2001:db8:{number:x}::/64").parse().expect("a prefix");
    Contact { key: TunnelKey(PrivateKey::from_bytes(bytes).public()), next_key: None, hop_prefix }
}

/// The key that somebody signs with.
fn signer(text: &str) -> SigningKey {
    let mut seed = [0; 32];
    for (at, byte) in seed.iter_mut().zip(text.bytes()) {
        *at = byte;
    }
    SigningKey::from_seed(seed)
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// What the roles are called.
#[allow(dead_code, reason = "the stage has it in its environment, tests have not")]
pub(crate) fn role(text: &str) -> Option<Role> {
    BTreeMap::from([("viewer", Role::Viewer), ("inviter", Role::Inviter), ("publisher", Role::Publisher)])
        .remove(text)
}
