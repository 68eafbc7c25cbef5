//! Packets in words, addresses and services: any text is one, or refused, and every packet is decided.
#![no_main]

use libfuzzer_sys::fuzz_target;
use router::firewall::address::Address;
use router::firewall::policy::Settings;
use router::firewall::service::Service;
use router::firewall::{Packet, Policy, Trust, Zone, evaluate};

fuzz_target!(|text: &str| {
    let zone = |name: &str, trust| Zone {
        name: name.to_owned(),
        trust,
        interfaces: vec![name.to_owned()],
        networks: Vec::new(),
    };
    let zones = vec![zone("lan", Trust::Inside), zone("guest", Trust::Guest), zone("wan", Trust::Outside)];
    let policy = Policy::new(zones, Vec::new(), Settings::default()).expect("zones that fit together");
    if let Ok(packet) = Packet::parse(text, &policy) {
        let _ = evaluate(&policy, &packet);
    }
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
    if let Ok(service) = text.parse::<Service>() {
        assert_eq!(service.to_string().parse(), Ok(service));
    }
});
