//! What IPsec costs a byte of a TCP stream between two hosts in memory, both ends together: `cargo bench -p stack --bench
//! protected`. Each packet is handed over by itself, with 1500 bytes at most.

#![allow(missing_docs, reason = "benchmarks")]

#[path = "fixture/pair.rs"]
mod pair;

use std::time::Instant;

use divan::Bencher;
use ipsec::key_engine::KeyEngine;
use ipsec::policy::{Level, Levels, PolicyDatabase};
use stack::ipsec::Ipsec;

use pair::{Handover, Pair, address};

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 20)]
fn plain(bencher: Bencher) {
    transfer(bencher, Levels::NONE, HMAC);
}

#[divan::bench(sample_count = 20)]
fn esp_gcm(bencher: Bencher) {
    transfer(bencher, ENCRYPTED, GMAC);
}

#[divan::bench(sample_count = 20)]
fn ah_gmac(bencher: Bencher) {
    transfer(bencher, AUTHENTICATED, GMAC);
}

#[divan::bench(sample_count = 20)]
fn ah_hmac(bencher: Bencher) {
    transfer(bencher, AUTHENTICATED, HMAC);
}

#[divan::bench(sample_count = 20)]
fn ah_gmac_and_esp_gcm(bencher: Bencher) {
    transfer(bencher, Levels { authentication: Level::Require, ..ENCRYPTED }, GMAC);
}

const ENCRYPTED: Levels = Levels { transport_encryption: Level::Require, ..Levels::NONE };
const AUTHENTICATED: Levels = Levels { authentication: Level::Require, ..Levels::NONE };
const GMAC: &str = "aes-gmac 0x3031323334353637383930313233343536373839";
const HMAC: &str = "hmac-sha256 0x3031323334353637383930313233343536373839303132333435363738393031";

fn transfer(bencher: Bencher, levels: Levels, authentication: &str) {
    let handover = Handover { offloads: false, batch: 1 };
    Pair::new(handover, |now| security(now, levels, authentication)).measure(bencher);
}

fn security(now: Instant, levels: Levels, authentication: &str) -> Ipsec {
    let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
    let mut file = String::new();
    for (from, to, spi) in [(1, 2, 0x1000), (2, 1, 0x1001)] {
        let ends = format!("{} {}", address(from), address(to));
        file += &format!(
            "add {ends} esp {spi} -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;\n\
             add {ends} ah {spi} -r 64 -A {authentication};\n"
        );
    }
    let commands = ipsec::setkey::parse(&file).unwrap();
    ipsec::setkey::apply(commands, &mut engine, &mut policies, now).unwrap();
    policies.set_system_levels(levels);
    Ipsec::new(now, engine, policies)
}
