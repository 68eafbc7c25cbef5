//! A network with three administrators, two of whom have to sign, and its sites.

use std::collections::BTreeMap;

use fleet::authority::{Administrator, Authority, Chain, Delegate};
use fleet::document::{Contents, Head, Serial};
use fleet::fleet::{Fleet, Notices};
use fleet::key::SigningKey;
use fleet::name::Name;
use fleet::news::{DocumentNews, Have, News, Taken};
use fleet::notice::{ContactNotice, NetworksNotice};
use fleet::settings::{Link, Policy, Selector, Settings};
use fleet::signed::Signed;
use fleet::site::{Contact, Member, Site, TunnelKey};
use mt6d::keys::PrivateKey;

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

/// Administrators, who make documents.
#[derive(Clone)]
pub(crate) struct Administrators {
    pub(crate) chain: Chain,
    pub(crate) contents: Contents,
    pub(crate) serial: u64,
    pub(crate) signers: Vec<&'static str>,
}

impl Administrators {
    /// Ada, Ben and Cleo, two of whom have to sign, and what they have delegated.
    pub(crate) fn with(delegates: Vec<Delegate>, policy: Policy) -> Self {
        let administrators =
            ["ada", "ben", "cleo"].map(|who| Administrator { name: name(who), key: signer(who).public() });
        let authority = Authority {
            version: 1,
            network: None,
            threshold: 2,
            administrators: administrators.to_vec(),
            delegates,
        };
        let chain = Chain::begin(Signed::new(&authority, [&signer("ada"), &signer("ben")])).unwrap();
        let contents = Contents::new(Settings { policy, ..Settings::default() });
        Administrators { chain, contents, serial: 0, signers: vec!["ada", "ben"] }
    }

    pub(crate) fn of(policy: Policy) -> Self {
        Self::with(Vec::new(), policy)
    }

    /// Somebody who knows the network, and nothing of it.
    pub(crate) fn newcomer(&self) -> Fleet {
        Fleet::new(self.chain.clone())
    }

    /// The next document, as a whole.
    pub(crate) fn publish(&mut self) -> News {
        self.serial += 1;
        let news = self.document(self.serial);
        News { document: Some(news), ..News::default() }
    }

    pub(crate) fn head(&self, serial: u64) -> Head {
        Head {
            network: self.chain.network(),
            authority: self.chain.current().version,
            serial: Serial(serial),
            made: 1_800_000_000,
            previous: None,
            contents: self.contents.digest(),
        }
    }

    pub(crate) fn document(&self, serial: u64) -> DocumentNews {
        let signers: Vec<SigningKey> = self.signers.iter().map(|who| signer(who)).collect();
        let head = Signed::new(&self.head(serial), &signers);
        DocumentNews { head, change: self.contents.complete() }
    }

    /// A fleet that has the next document.
    pub(crate) fn published(&mut self) -> Fleet {
        let mut fleet = self.newcomer();
        take(&mut fleet, self.publish());
        fleet
    }
}

/// Takes news of which nothing is refused.
pub(crate) fn take(fleet: &mut Fleet, news: News) -> bool {
    let Taken { is_new, refused, .. } = fleet.take(news);
    assert_eq!(refused, []);
    is_new
}

/// What is refused of news, in words.
pub(crate) fn refusal(fleet: &mut Fleet, news: News) -> String {
    let before = (fleet.have(), fleet.numbers());
    let taken = fleet.take(news);
    assert!(!taken.is_new, "something was taken");
    assert_eq!((fleet.have(), fleet.numbers()), before);
    let refused: Vec<String> = taken.refused.iter().map(ToString::to_string).collect();
    refused.join("; ")
}

/// A site of a role: the number is in its prefixes and keys.
pub(crate) fn site(who: &str, role: &str, number: u16) -> Site {
    Site::new(member(who, role, number), contact(number))
}

pub(crate) fn member(who: &str, role: &str, number: u16) -> Member {
    Member {
        name: name(who),
        identity: signer(who).public(),
        role: name(role),
        region: None,
        zone: None,
        standby: None,
        networks: vec![format!("fd00:{number:x}::/48").parse().unwrap()],
        may_take: Vec::new(),
        address: Some(format!("fd00:{number:x}::1").parse().unwrap()),
        notices_after: 0,
        revoked: None,
    }
}

pub(crate) fn contact(number: u16) -> Contact {
    Contact { key: tunnel_key(number), next_key: None, hop_prefix: hop_prefix(number) }
}

pub(crate) fn tunnel_key(number: u16) -> TunnelKey {
    let mut bytes = [7; 32];
    bytes[1..3].copy_from_slice(&number.to_be_bytes());
    TunnelKey(PrivateKey::from_bytes(bytes).public())
}

pub(crate) fn hop_prefix(number: u16) -> ipnet::Ipv6Net {
    format!("2001:db8:{number:x}::/64").parse().unwrap()
}

/// What a site says of how it is met.
pub(crate) fn contact_notice(fleet: &Fleet, who: &str, number: u64, contact: Contact) -> News {
    let notice = ContactNotice { network: fleet.network(), site: name(who), number, contact };
    News { contacts: vec![Signed::new(&notice, [&signer(who)])], ..News::default() }
}

/// What a site says of its networks.
pub(crate) fn networks_notice(fleet: &Fleet, who: &str, number: u64, networks: &[&str]) -> News {
    let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
    let notice =
        NetworksNotice { network: fleet.network(), site: name(who), number, networks, address: None };
    News { networks: vec![Signed::new(&notice, [&signer(who)])], ..News::default() }
}

pub(crate) fn link(between: Selector, and: Selector) -> Link {
    Link { between, and, same_region: false, keepalive: 25 }
}

pub(crate) fn role(text: &str) -> Selector {
    Selector::of_role(name(text))
}

/// Spokes that have a tunnel with each hub, which relays.
pub(crate) fn hub_and_spokes() -> Policy {
    let links = vec![link(role("hub"), role("spoke")), link(role("hub"), role("hub"))];
    Policy { links, relays: vec![role("hub")], reach: Vec::new() }
}

/// Everybody has a tunnel with everybody.
pub(crate) fn mesh() -> Policy {
    let links = vec![link(Selector::default(), Selector::default())];
    Policy { links, ..Policy::default() }
}

/// All that somebody who has nothing is told as a member.
pub(crate) fn told(fleet: &Fleet, who: &str) -> News {
    fleet.news_for(&name(who), &Have { authority: 1, ..Have::default() }, None, Notices::All)
}

/// The sites and their hopping prefixes, as far as they are known.
pub(crate) fn hops(fleet: &Fleet) -> BTreeMap<String, Option<String>> {
    let sites = fleet.sites().into_iter();
    let hop = |contact: &Contact| contact.hop_prefix.to_string();
    sites.map(|(name, site)| (name.to_string(), site.contact.map(hop))).collect()
}
