//! Authentication by certificate (RFC 7427, RFC 4945), over whole exchanges.

mod world;

use std::time::Duration;

use ike::certificate::{CertificateError, Certificates};
use ike::config::{Authentication, Config};
use ike::event::{EndReason, Event};
use ike::message::body::Identity;
use world::{Link, Side, World, config, identity, message};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("certificates/", $name)).to_vec()
    };
}

/// Certificate and private key of the leaves a and b.
type Pair = [(Vec<u8>, Vec<u8>); 2];

fn pairs() -> [Pair; 4] {
    [
        [(file!("a-p256.crt"), file!("a-p256.key")), (file!("b-p256.crt"), file!("b-p256.key"))],
        [(file!("a-p384.crt"), file!("a-p384.key")), (file!("b-p384.crt"), file!("b-p384.key"))],
        [(file!("a-ed25519.crt"), file!("a-ed25519.key")), (file!("b-ed25519.crt"), file!("b-ed25519.key"))],
        [(file!("a-rsa.crt"), file!("a-rsa.key")), (file!("b-rsa.crt"), file!("b-rsa.key"))],
    ]
}

fn with(mut config: Config, (certificate, key): &(Vec<u8>, Vec<u8>), authority: Vec<u8>) -> Config {
    let certificates = Certificates::new(vec![certificate.clone()], key, vec![authority]).unwrap();
    config.peers[0].authentication = Authentication::Certificates(Box::new(certificates));
    config
}

fn world(seed: u64, pair: &Pair) -> World {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    (a.peers[0].local, a.peers[0].remote) = (identity("a.example"), Some(identity("b.example")));
    (b.peers[0].local, b.peers[0].remote) = (identity("b.example"), Some(identity("a.example")));
    let authority = || file!("authority.crt");
    World::with(seed, with(a, &pair[0], authority()), with(b, &pair[1], authority()))
}

/// In 2030, or whenever else.
fn at(world: &mut World, years: u64) {
    let (now, since_1970) = (world.now, Duration::from_secs(years * 365 * 24 * 3600));
    world.a.endpoint.set_wall_clock(now, since_1970);
    world.b.endpoint.set_wall_clock(now, since_1970);
}

fn no_ike_sa(world: &mut World) {
    world.initiate();
    world.run(Duration::from_secs(10));
    assert!(world.a.ikes.is_empty() && world.b.ikes.is_empty());
    assert!(world.a.children.is_empty() && world.b.children.is_empty());
    let failed = |event: &Event| {
        matches!(event, Event::InitiationFailed { reason: EndReason::AuthenticationFailed, .. })
    };
    assert_eq!(world.count(Side::A, failed), 1);
}

#[test]
fn each_kind_of_key_proves_who_an_end_is() {
    for (seed, pair) in (0..).zip(pairs()) {
        let mut world = world(seed, &pair);
        at(&mut world, 60);
        world.initiate();
        world.run(Duration::from_secs(2));
        world.agree();
        assert_eq!(world.a.children.len(), 1, "pair {seed}");
    }
}

#[test]
fn two_ends_need_not_have_keys_of_the_same_kind_and_the_link_may_lose() {
    let [p256, p384, ed25519, rsa] = pairs();
    for (seed, (a, b)) in (0..).zip([(&p256, &rsa), (&rsa, &ed25519), (&p384, &p256)]) {
        let mut world = world(seed, &[a[0].clone(), b[1].clone()]);
        world.link = Link { lost: 20, repeated: 20, jitter_ms: 500, nat: None };
        at(&mut world, 60);
        world.initiate();
        world.run(Duration::from_secs(60));
        world.agree();
        assert_eq!(world.a.children.len(), 1);
    }
}

#[test]
fn an_identity_that_the_certificate_has_not_is_refused() {
    let [p256, ..] = pairs();
    // A's certificate and key are those of b.example.
    let mut world = world(1, &[p256[1].clone(), p256[1].clone()]);
    at(&mut world, 60);
    no_ike_sa(&mut world);
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let [p256, ..] = pairs();
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    (a.peers[0].local, a.peers[0].remote) = (identity("a.example"), None);
    (b.peers[0].local, b.peers[0].remote) = (identity("b.example"), None);
    let mut world =
        World::with(1, with(a, &p256[0], file!("authority.crt")), with(b, &p256[1], file!("other.crt")));
    at(&mut world, 60);
    no_ike_sa(&mut world);

    // The initiator refuses, too, and tells the responder, which has believed it.
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    (a.peers[0].local, a.peers[0].remote) = (identity("a.example"), None);
    (b.peers[0].local, b.peers[0].remote) = (identity("b.example"), None);
    let mut world =
        World::with(2, with(a, &p256[0], file!("other.crt")), with(b, &p256[1], file!("authority.crt")));
    at(&mut world, 60);
    no_ike_sa(&mut world);
    let down =
        |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::AuthenticationFailed, .. });
    assert_eq!(world.count(Side::B, down), 1);
}

#[test]
fn certificates_are_believed_in_their_time_alone_and_not_without_a_clock() {
    let [p256, ..] = pairs();
    let mut early = world(1, &p256);
    at(&mut early, 20);
    no_ike_sa(&mut early);
    no_ike_sa(&mut world(2, &p256));
}

#[test]
fn an_end_knows_that_its_own_certificate_is_not_valid_at_a_time() {
    for [(certificate, key), _] in pairs() {
        let own = Certificates::new(vec![certificate], &key, vec![file!("authority.crt")]).unwrap();
        let after = |years: u64| Duration::from_secs(years * 365 * 24 * 3600);
        assert_eq!([20, 60].map(|years| own.is_outdated(after(years))), [true, false]);
    }
}

#[test]
fn a_shared_key_does_not_do_where_a_certificate_is_wanted() {
    let [p256, ..] = pairs();
    let mut with_key = config("a", "b");
    (with_key.peers[0].local, with_key.peers[0].remote) = (identity("a.example"), None);
    let mut b = config("b", "a");
    (b.peers[0].local, b.peers[0].remote) = (identity("b.example"), None);
    let mut world = World::with(1, with_key, with(b, &p256[1], file!("authority.crt")));
    at(&mut world, 60);
    no_ike_sa(&mut world);
}

#[test]
fn a_subject_is_an_identity_too() {
    let [p256, ..] = pairs();
    // /O=Test/CN=a.example, as DER.
    let name = |letter: u8| {
        let organization = [&[0x31, 13, 0x30, 11, 6, 3, 0x55, 4, 10, 12, 4][..], b"Test"].concat();
        let common = [&[0x31, 18, 0x30, 16, 6, 3, 0x55, 4, 3, 12, 9][..], &[letter], b".example"].concat();
        let content = [organization, common].concat();
        Identity::DistinguishedName([vec![0x30, content.len() as u8], content].concat())
    };
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    (a.peers[0].local, a.peers[0].remote) = (name(b'a'), Some(name(b'b')));
    (b.peers[0].local, b.peers[0].remote) = (name(b'b'), Some(name(b'a')));
    let authority = || file!("authority.crt");
    let mut world = World::with(1, with(a, &p256[0], authority()), with(b, &p256[1], authority()));
    at(&mut world, 60);
    world.initiate();
    world.run(Duration::from_secs(2));
    world.agree();
    assert_eq!(world.a.children.len(), 1);
    assert!(message(&world.sent[0].1).len() > 28);
}

#[test]
fn what_does_not_go_together_is_refused_when_it_is_configured() {
    let [p256, p384, ..] = pairs();
    let error = |certificate: &[u8], key: &[u8], authority: Vec<u8>| {
        Certificates::new(vec![certificate.to_vec()], key, vec![authority]).unwrap_err()
    };
    let authority = || file!("authority.crt");
    assert_eq!(error(&p256[0].0, &p256[1].1, authority()), CertificateError::OtherKey);
    assert_eq!(error(&p256[0].0, &p384[0].1, authority()), CertificateError::OtherKey);
    assert_eq!(error(&p256[0].0, b"key", authority()), CertificateError::NotAPrivateKey);
    assert_eq!(error(b"certificate", &p256[0].1, authority()), CertificateError::NotACertificate);
    assert_eq!(error(&p256[0].0, &p256[0].1, b"authority".to_vec()), CertificateError::NotACertificate);
}
