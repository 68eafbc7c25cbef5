//! What a server of names may say of a peer, or of a translator.
#![no_main]

use std::net::Ipv6Addr;

use dns::message::{Answer, Found, Kind, Records, answer};
use libfuzzer_sys::fuzz_target;
use mt6d::keys::{PairKeys, PrivateKey};
use mt6d::record::Record;
use router::nat64::{IPV4_ONLY, prefixes};

fuzz_target!(|bytes: &[u8]| {
    let key = |n| PrivateKey::from_bytes([n; 32]);
    let keys = PairKeys::derive(&key(1), &key(2).public(), None).expect("two keys");
    for kind in [Kind::Aaaa, Kind::Txt] {
        let Some(Answer::Found(Records { found, .. })) = answer(bytes, 7, "b.example", kind) else {
            continue;
        };
        let mut addresses = Vec::new();
        for found in found {
            match found {
                Found::Text(text) => drop(Record::open(&text, &keys, 0, u64::MAX)),
                Found::Address(address) => addresses.push(address),
            }
        }
        for prefix in prefixes(&addresses) {
            let told = |address: &Ipv6Addr| {
                prefix.net().contains(address) && IPV4_ONLY.1.contains(&prefix.extract(*address))
            };
            assert!(addresses.iter().any(told));
        }
    }
    let _ = std::str::from_utf8(bytes).map(|text| Record::open(text, &keys, 0, 0));
});
