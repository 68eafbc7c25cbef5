//! News of a fleet with a part that somebody has replaced on the way.
#![no_main]

use std::sync::LazyLock;

use fleet::authority::{Administrator, Authority, Chain};
use fleet::document::{Contents, Head, Serial};
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::news::{DocumentNews, News};
use fleet::notice::{ContactNotice, NetworksNotice};
use fleet::settings::Settings;
use fleet::signed::Signed;
use fleet::site::{Contact, Member, Site, TunnelKey};
use libfuzzer_sys::fuzz_target;
use mt6d::keys::PrivateKey;

/// Somebody who knows the network, and news of it as they were sent.
static SENT: LazyLock<(Fleet, String)> = LazyLock::new(|| {
    let (ada, kiel) = (SigningKey::from_seed([1; 32]), SigningKey::from_seed([2; 32]));
    let administrators = vec![Administrator { name: "ada".parse().unwrap(), key: ada.public() }];
    let authority =
        Authority { version: 1, network: None, threshold: 1, administrators, delegates: Vec::new() };
    let chain = Chain::begin(Signed::new(&authority, [&ada])).unwrap();
    let network = chain.network();
    let mut contact = Contact {
        key: TunnelKey(PrivateKey::from_bytes([3; 32]).public()),
        next_key: None,
        hop_prefix: "2001:db8:1::/64".parse().unwrap(),
    };
    let member = Member {
        name: "kiel".parse().unwrap(),
        identity: kiel.public(),
        role: "spoke".parse().unwrap(),
        region: None,
        zone: None,
        standby: None,
        networks: vec!["fd00:1::/48".parse().unwrap()],
        may_take: vec!["fd01::/16".parse().unwrap()],
        address: None,
        notices_after: 0,
        revoked: None,
    };
    let site = member.name.clone();
    let mut contents = Contents::new(Settings::default());
    contents.put(Site::new(member, contact.clone()));
    let digest = contents.digest();
    let head = Head { network, authority: 1, serial: Serial(1), made: 0, previous: None, contents: digest };
    contact.hop_prefix = "2001:db8:2::/64".parse().unwrap();
    let networks = vec!["fd01:5::/32".parse().unwrap()];
    let networks = NetworksNotice { network, site: site.clone(), number: 1, networks, address: None };
    let news = News {
        document: Some(DocumentNews { head: Signed::new(&head, [&ada]), change: contents.complete() }),
        contacts: vec![Signed::new(&ContactNotice { network, site, number: 1, contact }, [&kiel])],
        networks: vec![Signed::new(&networks, [&kiel])],
        ..News::default()
    };
    (Fleet::new(chain), serde_json::to_string(&news).unwrap())
});

fuzz_target!(|edit: (u16, u16, &[u8])| {
    let (fleet, sent) = &*SENT;
    let (at, length, put) = edit;
    let at = usize::from(at) % (sent.len() + 1);
    let end = (at + usize::from(length)).min(sent.len());
    let text = [&sent.as_bytes()[..at], put, &sent.as_bytes()[end..]].concat();
    let Ok(news) = serde_json::from_slice::<News>(&text) else { return };
    let mut other = fleet.clone();
    other.take(news);
    // What was signed, or a part of it; nothing else.
    for site in other.sites().into_values() {
        assert_eq!(site.member.name.as_str(), "kiel");
        let network = site.member.networks[0].to_string();
        assert!(
            ["fd00:1::/48", "fd01:5::/32"].contains(&network.as_str()) && site.member.networks.len() == 1
        );
        let prefix = site.contact.map(|contact| contact.hop_prefix.to_string());
        assert!(
            prefix.is_none_or(|prefix| ["2001:db8:1::/64", "2001:db8:2::/64"].contains(&prefix.as_str()))
        );
    }
});
