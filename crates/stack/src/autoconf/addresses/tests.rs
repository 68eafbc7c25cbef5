//! The rules of RFC 4862 §5.3 to §5.5 and RFC 8981 §3.4, one by one.

use super::*;
use proptest::prelude::*;

struct Host {
    addresses: Addresses,
    random: Random,
    now: Instant,
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: u32 = 3600;

impl Host {
    fn new(temporary: bool) -> Self {
        let config = Config {
            stable_key: Key::new([7; 16]),
            interface: b"eth0".to_vec(),
            temporary,
            duplicate_transmits: 1,
        };
        Host { addresses: Addresses::new(config), random: Random::new([1; 32]), now: Instant::now() }
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.addresses.next_action()).collect()
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.addresses.deadline()
            && next <= end
        {
            self.now = next.max(self.now);
            self.addresses.handle_timeout(self.now, SECOND, &mut self.random);
        }
        self.now = end;
    }

    fn advertise(&mut self, prefix: &str, preferred: u32, valid: u32) {
        let net: Ipv6Net = prefix.parse().unwrap();
        let said = PrefixInformation {
            prefix: net.addr(),
            prefix_length: net.prefix_len(),
            on_link: true,
            autonomous: true,
            valid_lifetime: valid,
            preferred_lifetime: preferred,
        };
        let router = "fe80::1".parse().unwrap();
        let by = Advertiser { router, reachable: &[router] };
        self.addresses.advertised(self.now, &said, by, &mut self.random);
    }

    fn only(&self) -> &Address {
        let all: Vec<_> = self.addresses.iter().collect();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0]
    }
}

#[test]
fn rfc_4862_5_3_and_5_4_the_link_local_address_is_ours_when_nobody_answers() {
    let mut host = Host::new(false);
    host.addresses.start(host.now, &mut host.random);
    let address = host.only().address;
    assert!(address.is_unicast_link_local());
    let actions = host.actions();
    let [Action::Join(group, from)] = actions[..] else { panic!("{actions:?}") };
    assert_eq!((group, Some(from)), (solicited_node(address), host.addresses.deadline()), "the group first");
    assert_eq!((host.addresses.is_assigned(address), host.addresses.link_local()), (false, None));
    host.wait(SECOND * 2);
    let actions = host.actions();
    assert!(matches!(actions[0], Action::Search(DuplicateSolicitation { target, .. }) if target == address));
    assert_eq!(actions[1..], [Action::Event(Event::Assigned(address))]);
    assert_eq!(host.addresses.link_local(), Some(address));
}

#[test]
fn rfc_4862_5_4_3_a_solicitation_of_somebody_who_wants_the_address_takes_it() {
    let mut host = Host::new(false);
    host.addresses.start(host.now, &mut host.random);
    let first = host.only().address;
    assert!(host.addresses.asked_for(host.now, first, None, &mut host.random));
    let second = host.only().address;
    assert_ne!(first, second, "RFC 7217 §6: another one is made");
    assert!(host.actions().contains(&Action::Event(Event::Duplicate(first))));
    host.wait(SECOND * 2);
    assert_eq!(host.addresses.link_local(), Some(second));
    assert!(!host.addresses.asked_for(host.now, second, None, &mut host.random), "ours, and defended");
}

#[test]
fn rfc_4862_5_4_4_an_advertisement_takes_a_tentative_address_and_no_other() {
    let mut host = Host::new(false);
    host.addresses.start(host.now, &mut host.random);
    let first = host.only().address;
    assert!(host.addresses.claimed(host.now, first, &mut host.random));
    host.wait(SECOND * 2);
    let second = host.only().address;
    assert!(!host.addresses.claimed(host.now, second, &mut host.random));
    assert!(host.addresses.is_assigned(second));
}

#[test]
fn rfc_7217_6_after_some_addresses_that_others_have_there_is_none() {
    let mut host = Host::new(false);
    host.addresses.start(host.now, &mut host.random);
    for _ in 0..4 {
        let address = host.only().address;
        host.addresses.claimed(host.now, address, &mut host.random);
    }
    assert_eq!(host.addresses.iter().count(), 0);
}

#[test]
fn rfc_7217_6_and_8981_3_4_no_more_addresses_are_tried_where_all_were_somebody_elses() {
    let mut host = Host::new(true);
    let tried = |host: &mut Host, prefix: &str, temporary: bool| {
        host.advertise(prefix, HOUR, HOUR);
        let next = |host: &Host| {
            let found = host.addresses.iter().find(|known| known.is_temporary() == temporary);
            found.map(|known| known.address)
        };
        let mut tried = 0;
        while let Some(address) = next(host) {
            host.addresses.claimed(host.now, address, &mut host.random);
            tried += 1;
        }
        tried
    };
    for temporary in [true, false] {
        let times = [0, 1].map(|_| tried(&mut host, "2001:db8::/64", temporary));
        assert_eq!(times, [4, 0]);
    }
    let mut host = Host::new(false);
    for number in 0..100 {
        assert_eq!(tried(&mut host, &format!("2001:db8:9:{number}::/64"), false), 4, "other prefixes");
    }
    assert_eq!(host.addresses.given_up.len(), MAX_ADDRESSES);
}

#[test]
fn rfc_4862_5_5_3_what_is_no_prefix_for_addresses_makes_none() {
    let mut host = Host::new(false);
    host.advertise("fe80::/64", HOUR, HOUR);
    host.advertise("2001:db8::/63", HOUR, HOUR);
    host.advertise("2001:db8::/64", HOUR + 1, HOUR);
    host.advertise("2001:db8::/64", 0, 0);
    host.advertise("ff02::/64", HOUR, HOUR);
    assert_eq!(host.addresses.iter().count(), 0);
}

#[test]
fn rfc_4862_5_5_3_d_and_5_5_4_an_address_is_preferred_deprecated_and_gone() {
    let mut host = Host::new(false);
    host.advertise("2001:db8::/64", HOUR, 2 * HOUR);
    host.wait(SECOND * 2);
    let address = host.only().address;
    assert_eq!(host.only().phase(host.now), Phase::Preferred);
    host.wait(Duration::from_secs(3600));
    assert_eq!(host.only().phase(host.now), Phase::Deprecated);
    assert!(host.addresses.candidates(host.now).all(|candidate| candidate.deprecated));
    host.actions();
    host.wait(Duration::from_secs(3600));
    assert_eq!(host.addresses.iter().count(), 0);
    let gone = [Action::Leave(solicited_node(address)), Action::Event(Event::Removed(address))];
    assert_eq!(host.actions(), gone);
}

#[test]
fn rfc_4862_5_5_3_e_a_forged_advertisement_leaves_two_hours() {
    let mut host = Host::new(false);
    host.advertise("2001:db8::/64", 24 * HOUR, 24 * HOUR);
    host.advertise("2001:db8::/64", 0, 0);
    assert_eq!(host.only().valid_until(), Some(host.now + Duration::from_secs(7200)));
    host.advertise("2001:db8::/64", u32::MAX, u32::MAX);
    assert_eq!((host.only().valid_until(), host.only().preferred_until()), (None, None));
}

#[test]
fn a_static_address_is_searched_for_and_stays() {
    let mut host = Host::new(false);
    let address = "2001:db8::7".parse().unwrap();
    host.addresses.add_static(host.now, address, 64);
    host.advertise("2001:db8:1::/64", HOUR, HOUR);
    host.wait(Duration::from_secs(7200));
    assert_eq!(host.only().address, address);
    host.addresses.remove(address);
    assert_eq!(host.addresses.iter().count(), 0);
}

#[test]
fn rfc_8981_3_4_temporary_addresses_follow_each_other_day_by_day() {
    let mut host = Host::new(true);
    host.advertise("2001:db8::/64", u32::MAX, u32::MAX);
    host.wait(SECOND * 3);
    let preferred = |host: &Host| {
        let fresh = |known: &&Address| known.is_temporary() && known.phase(host.now) == Phase::Preferred;
        host.addresses.iter().find(fresh).map(|known| known.address)
    };
    let mut seen = Vec::new();
    for _ in 0..100 {
        let now = preferred(&host).expect("there is always one");
        if !seen.contains(&now) {
            seen.push(now);
        }
        assert!(host.addresses.iter().count() <= 6, "{:?}", host.addresses.iter().collect::<Vec<_>>());
        host.advertise("2001:db8::/64", u32::MAX, u32::MAX);
        host.wait(Duration::from_secs(3 * 3600));
    }
    // 12.5 days, and each lasts 0.6 to 1 day.
    assert!((12..=21).contains(&seen.len()), "{}", seen.len());
}

#[test]
fn rfc_8981_3_4_a_temporary_address_lives_no_longer_than_its_prefix() {
    let mut host = Host::new(true);
    host.advertise("2001:db8::/64", HOUR, 3 * HOUR);
    let temporary = host.addresses.iter().find(|known| known.is_temporary()).unwrap();
    assert_eq!(temporary.valid_until(), Some(host.now + Duration::from_secs(3 * 3600)));
    host.wait(Duration::from_secs(3 * 3600));
    assert_eq!(host.addresses.iter().count(), 0);
}

#[test]
fn rfc_8981_3_4_a_prefix_that_is_renewed_at_the_last_moment_has_temporary_addresses_again() {
    let mut host = Host::new(true);
    host.advertise("2001:db8::/64", 60, 24 * HOUR);
    host.wait(SECOND * 70);
    let preferred = |host: &Host| {
        host.addresses.iter().any(|known| known.is_temporary() && known.phase(host.now) == Phase::Preferred)
    };
    assert!(!preferred(&host));
    host.advertise("2001:db8::/64", HOUR, 24 * HOUR);
    host.wait(SECOND * 3);
    assert!(preferred(&host));
    host.wait(Duration::from_secs(24 * 3600 - 60));
    assert!(host.addresses.iter().count() <= 4);
}

#[test]
fn a_flood_of_prefixes_fills_no_memory() {
    let mut host = Host::new(true);
    for number in 0..1000 {
        host.advertise(&format!("2001:db8:{number:x}::/64"), HOUR, HOUR);
    }
    assert_eq!(host.addresses.iter().count(), MAX_ADDRESSES);
}

proptest! {
    #[test]
    fn whatever_is_advertised_the_table_is_bounded_and_time_goes_on(
        steps in proptest::collection::vec((0u8..4, any::<u32>(), any::<u32>(), 0u64..100_000), 0..40)
    ) {
        let mut host = Host::new(true);
        host.addresses.start(host.now, &mut host.random);
        for (net, preferred, valid, seconds) in steps {
            host.advertise(&format!("2001:db8:{net}::/64"), preferred, valid);
            let first = host.addresses.iter().next().map(|known| known.address);
            if let Some(first) = first && seconds % 5 == 0 {
                host.addresses.claimed(host.now, first, &mut host.random);
            }
            host.wait(Duration::from_secs(seconds));
            host.actions();
            prop_assert!(host.addresses.iter().count() <= MAX_ADDRESSES);
        }
    }
}
