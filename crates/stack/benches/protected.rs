//! What IPsec costs a byte of a TCP stream between two hosts in memory, both ends together: `cargo bench -p stack --bench
//! protected`. Each packet is handed over by itself, with 1500 bytes at most.

#![allow(missing_docs, reason = "benchmarks")]

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::BytesCount;
use ipsec::key_engine::KeyEngine;
use ipsec::policy::{Level, Levels, PolicyDatabase};
use stack::host::{Host, TcpHandle};
use stack::interface::{Config, Medium};
use stack::ipsec::Ipsec;
use stack::random::Key;
use stack::{autoconf, tcp};

const OCTETS: usize = 16 << 20;
const CHUNK: usize = 65_536;
/// Of each end, each way.
const BUFFER: usize = 1 << 20;

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 20)]
fn plain(bencher: Bencher) {
    transfer(bencher, Pair::new(Levels::NONE, HMAC));
}

#[divan::bench(sample_count = 20)]
fn esp_gcm(bencher: Bencher) {
    transfer(bencher, Pair::new(ENCRYPTED, GMAC));
}

#[divan::bench(sample_count = 20)]
fn ah_gmac(bencher: Bencher) {
    transfer(bencher, Pair::new(AUTHENTICATED, GMAC));
}

#[divan::bench(sample_count = 20)]
fn ah_hmac(bencher: Bencher) {
    transfer(bencher, Pair::new(AUTHENTICATED, HMAC));
}

#[divan::bench(sample_count = 20)]
fn ah_gmac_and_esp_gcm(bencher: Bencher) {
    let both = Levels { authentication: Level::Require, ..ENCRYPTED };
    transfer(bencher, Pair::new(both, GMAC));
}

const ENCRYPTED: Levels = Levels { transport_encryption: Level::Require, ..Levels::NONE };
const AUTHENTICATED: Levels = Levels { authentication: Level::Require, ..Levels::NONE };
const GMAC: &str = "aes-gmac 0x3031323334353637383930313233343536373839";
const HMAC: &str = "hmac-sha256 0x3031323334353637383930313233343536373839303132333435363738393031";

fn address(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into())
}

fn host(now: Instant, number: u8, levels: Levels, authentication: &str) -> Host<Ipsec> {
    let config = Config {
        medium: Medium::Ip,
        mtu: 1500,
        autoconf: autoconf::Config {
            stable_key: Key::new([number; 16]),
            interface: b"tun0".to_vec(),
            temporary: false,
            duplicate_transmits: 0,
        },
        routers: false,
    };
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
    let mut host = Host::with_security(now, config, [number; 32], Ipsec::new(now, engine, policies));
    host.interface_mut().add_address(now, address(number), 64);
    host
}

/// Two hosts with a connection.
struct Pair {
    now: Instant,
    hosts: [Host<Ipsec>; 2],
    ends: [TcpHandle; 2],
    packet: Vec<u8>,
    packets: usize,
}

impl Pair {
    fn new(levels: Levels, authentication: &str) -> Self {
        let now = Instant::now();
        let mut hosts = [1, 2].map(|number| host(now, number, levels, authentication));
        let config =
            tcp::Config { max_receive_buffer: BUFFER, max_send_buffer: BUFFER, ..tcp::Config::new(u16::MAX) };
        let at = |number, port| SocketAddrV6::new(address(number), port, 0, 0);
        let listener = hosts[1].tcp_listen(at(2, 80), config, 1).unwrap();
        let ours = hosts[0].tcp_connect(now, at(2, 80), config).unwrap();
        let mut packet = Vec::new();
        while let Some(from) = (0..2).find(|host| hosts[*host].poll_transmit(now, &mut packet)) {
            hosts[1 - from].receive(now, &packet);
        }
        let theirs = hosts[1].tcp_accept(listener).unwrap().unwrap();
        Pair { now, hosts, ends: [ours, theirs], packet, packets: 0 }
    }

    /// Sends so much from the first to the second, who reads it.
    #[inline(never)]
    fn transfer(&mut self, data: &[u8], read: &mut [u8]) {
        let (mut written, mut arrived) = (0, 0);
        while arrived < OCTETS {
            self.now += Duration::from_micros(50);
            written += self.hosts[0].write(self.ends[0], &data[..data.len().min(OCTETS - written)]).unwrap();
            for from in 0..2 {
                while self.hosts[from].poll_transmit(self.now, &mut self.packet) {
                    self.hosts[1 - from].receive(self.now, &self.packet);
                    self.packets += 1;
                }
            }
            loop {
                let length = self.hosts[1].read(self.ends[1], read).unwrap();
                arrived += length;
                if length < read.len() {
                    break;
                }
            }
            for host in &mut self.hosts {
                if host.deadline().is_some_and(|deadline| deadline <= self.now) {
                    host.handle_timeout(self.now);
                }
            }
        }
    }
}

fn transfer(bencher: Bencher, mut pair: Pair) {
    let (data, mut read) = (vec![7; CHUNK], vec![0; CHUNK]);
    bencher.counter(BytesCount::new(OCTETS)).bench_local(|| pair.transfer(&data, &mut read));
}
