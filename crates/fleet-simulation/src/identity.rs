//! Who is who, by numbers: the first ones are hubs, two for each region, and the others spokes.

use std::net::{IpAddr, Ipv6Addr};

use fleet::key::SigningKey;
use fleet::name::Name;
use fleet::settings::{Link, Policy, Selector};
use fleet::site::{Contact, Member, TunnelKey};
use ipnet::Ipv6Net;
use mt6d::keys::PrivateKey;

/// Spokes of a region, which have a tunnel with each hub of it.
const REGION: usize = 500;
/// Hubs of a region.
const HUBS: usize = 2;

/// How many regions so many sites have.
pub(crate) fn regions(sites: usize) -> usize {
    sites.div_ceil(REGION + HUBS)
}

/// How many of them are hubs.
pub(crate) fn hubs(sites: usize) -> usize {
    (regions(sites) * HUBS).min(sites)
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("letters and digits")
}

/// A key that is drawn by who it is of.
pub(crate) fn signer(kind: u8, number: usize) -> SigningKey {
    SigningKey::from_seed(seed(kind, number))
}

fn seed(kind: u8, number: usize) -> [u8; 32] {
    let mut seed = [kind; 32];
    seed[..8].copy_from_slice(&(number as u64).to_be_bytes());
    seed
}

/// What a site's own identity is of.
pub(crate) const SITE: u8 = 1;
/// An invitation's key.
pub(crate) const TOKEN: u8 = 2;
/// Who administers, and who is delegated.
pub(crate) const PEOPLE: u8 = 3;

/// The groups of an address that a number is in.
fn groups(number: usize) -> [u16; 2] {
    [(number >> 16) as u16, (number & 0xffff) as u16]
}

pub(crate) fn member(number: usize, sites: usize) -> Member {
    let is_hub = number < hubs(sites);
    let region = number % regions(sites);
    let [high, low] = groups(number);
    let network = Ipv6Net::new(Ipv6Addr::new(0xfd00, high, low, 0, 0, 0, 0, 0), 48).expect("a prefix");
    Member {
        name: name(&format!("{}-{number}", if is_hub { "hub" } else { "site" })),
        identity: signer(SITE, number).public(),
        role: name(if is_hub { "hub" } else { "spoke" }),
        region: Some(name(&format!("region-{region}"))),
        zone: None,
        standby: None,
        networks: vec![network.into()],
        may_take: Vec::new(),
        address: Some(address(number)),
        notices_after: 0,
        revoked: None,
    }
}

/// Where a site's agent is, inside of the tunnels.
pub(crate) fn address(number: usize) -> IpAddr {
    let [high, low] = groups(number);
    Ipv6Addr::new(0xfd00, high, low, 0, 0, 0, 0, 1).into()
}

/// Whose address it is.
pub(crate) fn number_of(address: IpAddr) -> usize {
    match address {
        IpAddr::V6(address) => {
            let groups = address.segments();
            usize::from(groups[1]) << 16 | usize::from(groups[2])
        }
        IpAddr::V4(_) => usize::MAX,
    }
}

/// Where a site is outside, each in a network of its own.
pub(crate) fn outside(number: usize) -> IpAddr {
    let [high, low] = groups(number);
    Ipv6Addr::new(0x2001, 0xdb8, high, low, 0, 0, 0, 2).into()
}

pub(crate) fn contact(number: usize) -> Contact {
    let [high, low] = groups(number);
    let prefix = Ipv6Net::new(Ipv6Addr::new(0x3fff, 0, high, low, 0, 0, 0, 0), 64);
    let key = TunnelKey(PrivateKey::from_bytes(seed(4, number)).public());
    Contact { key, next_key: None, hop_prefix: prefix.expect("a prefix") }
}

/// Spokes have a tunnel with the hubs of their region, and hubs with each other; who is in the field reaches hubs only.
pub(crate) fn policy() -> Policy {
    let role = |text| Selector::of_role(name(text));
    let link =
        |one, other, same_region| Link { between: role(one), and: role(other), same_region, keepalive: 25 };
    let reach = fleet::settings::Reach { from: role("spoke"), to: role("hub") };
    let links = vec![link("spoke", "hub", true), link("hub", "hub", false)];
    Policy { links, relays: vec![role("hub")], reach: vec![reach] }
}
