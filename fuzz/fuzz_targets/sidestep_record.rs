//! What a server of names may say of a peer.
#![no_main]

use dns::message::{Answer, Found, Kind, answer};
use libfuzzer_sys::fuzz_target;
use mt6d::keys::{PairKeys, PrivateKey};
use mt6d::record::Record;

fuzz_target!(|bytes: &[u8]| {
    let key = |n| PrivateKey::from_bytes([n; 32]);
    let keys = PairKeys::derive(&key(1), &key(2).public(), None).expect("two keys");
    for kind in [Kind::Aaaa, Kind::Txt] {
        let Some(Answer::Found(found)) = answer(bytes, 7, "b.example", kind) else { continue };
        assert!(found.len() <= 4);
        for found in found {
            if let Found::Text(text) = found {
                let _ = Record::open(&text, &keys, 0, u64::MAX);
            }
        }
    }
    let _ = std::str::from_utf8(bytes).map(|text| Record::open(text, &keys, 0, 0));
});
