//! Section 7 of the paper on NRL's IPv6 again: two hosts of the crate `stack` with nothing between them, in one thread.
//!
//! What is measured is the stacks' own time of the processor, of both ends together, as no device takes any. The paper
//! measured two machines and an Ethernet, of 1996; so what compares are the columns in percent.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use ipsec::key_engine::KeyEngine;
use ipsec::policy::{Level, Levels, PolicyDatabase};
use serde::Serialize;
use stack::host::{Host, TcpHandle};
use stack::interface::Config;
use stack::ipsec::Ipsec;
use stack::{ipv4, tcp, udp};

use super::ours;
use crate::comparison::quantile;
use crate::comparison::tables::Table;

const PORT: u16 = 7;
/// Of each value in a repetition.
const LENGTH: Duration = Duration::from_millis(150);
/// What has no answer by then has none.
const STUCK: usize = 100_000;

/// Sizes of tables 1 and 2 and of figure 8, with their latencies in milliseconds: TCP and UDP, IPv4 and IPv6.
const LATENCY: [(usize, [f64; 4]); 6] = [
    (1, [1.27, 1.54, 0.93, 1.08]),
    (64, [1.45, 1.83, 1.13, 1.30]),
    (1024, [3.12, 3.62, 2.82, 3.06]),
    (2048, [5.34, 6.01, 5.00, 5.77]),
    (4096, [10.4, 11.9, 8.89, 9.90]),
    (8192, [19.0, 22.1, 17.0, 20.2]),
];
/// Table 3: bytes of a write and of a socket's buffer, KB/s of IPv4 and IPv6.
const TCP: [(usize, usize, [f64; 2]); 9] = [
    (4096, 57_344, [780.0, 731.0]),
    (8192, 57_344, [778.0, 729.0]),
    (32_768, 57_344, [776.0, 730.0]),
    (4096, 32_768, [807.0, 763.0]),
    (8192, 32_768, [806.0, 758.0]),
    (32_768, 32_768, [811.0, 762.0]),
    (4096, 8192, [861.0, 775.0]),
    (8192, 8192, [858.0, 784.0]),
    (32_768, 8192, [863.0, 784.0]),
];
/// Table 4: bytes of a datagram, KB/s of IPv4 and IPv6.
const UDP: [(usize, [f64; 2]); 2] = [(64, [537.0, 500.0]), (1024, [1144.0, 1125.0])];

/// How packets are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Security {
    None,
    Authentication,
    Encryption,
    Both,
}

impl Security {
    /// With table 5's KB/s.
    const ALL: [(Self, &'static str, f64); 4] = [
        (Self::None, "none", 775.0),
        (Self::Authentication, "authentication: AH, AES-128-GMAC", 345.0),
        (Self::Encryption, "encryption: ESP, AES-128-GCM", 192.0),
        (Self::Both, "both", 153.0),
    ];

    fn levels(self) -> Levels {
        let level = |is_so| if is_so { Level::Require } else { Level::None };
        Levels {
            authentication: level(matches!(self, Self::Authentication | Self::Both)),
            transport_encryption: level(matches!(self, Self::Encryption | Self::Both)),
            ..Levels::NONE
        }
    }
}

/// One value.
#[derive(Clone, Debug, Serialize)]
struct Value {
    what: String,
    repetition: u32,
    is_ipv6: bool,
    value: f64,
}

/// What was measured: latencies in microseconds, throughput in MB/s.
#[derive(Debug, Default, Serialize)]
pub(super) struct Section7 {
    values: Vec<Value>,
}

/// Measures everything so often.
pub(super) fn measure(repetitions: u32) -> Section7 {
    let mut all = Section7::default();
    for repetition in 1..=repetitions {
        // The other one first, each time.
        let versions = if repetition % 2 == 0 { [true, false] } else { [false, true] };
        let mut keep = |what: String, is_ipv6: bool, value: f64| {
            all.values.push(Value { what, repetition, is_ipv6, value });
        };
        for (size, _) in LATENCY {
            for (security, name, _) in Security::ALL {
                for is_ipv6 in versions {
                    keep(latency("TCP", size, name), is_ipv6, tcp_latency(is_ipv6, security, size));
                    keep(latency("UDP", size, name), is_ipv6, udp_latency(is_ipv6, security, size));
                }
            }
        }
        for (write, buffer, _) in TCP {
            for is_ipv6 in versions {
                let speed = tcp_speed(is_ipv6, Security::None, write, buffer);
                keep(format!("TCP {write} {buffer}"), is_ipv6, speed);
            }
        }
        for (size, _) in UDP {
            for is_ipv6 in versions {
                keep(format!("UDP {size}"), is_ipv6, udp_speed(is_ipv6, size));
            }
        }
        for (security, name, _) in Security::ALL {
            for is_ipv6 in versions {
                keep(format!("security {name}"), is_ipv6, tcp_speed(is_ipv6, security, 32_768, 1 << 20));
            }
        }
        eprintln!("section 7: {repetition} of {repetitions}");
    }
    all
}

fn latency(protocol: &str, size: usize, security: &str) -> String {
    format!("latency {protocol} {size} {security}")
}

impl Section7 {
    fn values(&self, what: &str, is_ipv6: bool) -> Vec<f64> {
        self.values
            .iter()
            .filter(|value| value.what == what && value.is_ipv6 == is_ipv6 && value.value.is_finite())
            .map(|value| value.value)
            .collect()
    }

    fn median(&self, what: &str, is_ipv6: bool) -> Option<f64> {
        quantile(&self.values(what, is_ipv6), 0.5)
    }

    /// The median of IPv6's multiples of IPv4 within each repetition.
    fn ratio(&self, what: &str) -> Option<f64> {
        self.multiple((what, true), (what, false))
    }

    fn multiple(&self, of: (&str, bool), base: (&str, bool)) -> Option<f64> {
        let [values, bases] = [of, base].map(|(what, is_ipv6)| self.values(what, is_ipv6));
        let ratios: Vec<f64> = values.iter().zip(&bases).map(|(value, base)| value / base).collect();
        quantile(&ratios, 0.5)
    }

    pub(super) fn tables(&self) -> Vec<Table> {
        let both_ends = "Theirs: milliseconds. Ours: microseconds of both stacks, to and fro. Medians.";
        vec![
            self.latencies("Table 1: TCP latency", "TCP", 0, both_ends),
            self.latencies("Table 2: UDP latency", "UDP", 2, both_ends),
            self.tcp(),
            self.udp(),
            self.security(),
        ]
    }

    fn latencies(&self, title: &str, protocol: &str, at: usize, how: &str) -> Table {
        let row = |(size, theirs): &(usize, [f64; 4])| {
            let what = latency(protocol, *size, Security::ALL[0].1);
            let (four, six) = (theirs[at], theirs[at + 1]);
            Some(vec![
                size.to_string(),
                format!("{four}"),
                format!("{six}"),
                percent(six / four),
                format!("{:.2}", self.median(&what, false)?),
                format!("{:.2}", self.median(&what, true)?),
                percent(self.ratio(&what)?),
            ])
        };
        Table {
            title: title.to_owned(),
            how: how.to_owned(),
            header: ["bytes", "theirs: IPv4", "IPv6", "increase", "ours: IPv4", "IPv6", "increase"]
                .map(str::to_owned)
                .to_vec(),
            rows: LATENCY.iter().filter_map(row).collect(),
        }
    }

    fn tcp(&self) -> Table {
        let row = |(write, buffer, [four, six]): &(usize, usize, [f64; 2])| {
            let ours = self.speeds(&format!("TCP {write} {buffer}"))?;
            let theirs = [format!("{four}"), format!("{six}"), percent(six / four)];
            Some([vec![write.to_string(), buffer.to_string()], theirs.to_vec(), ours.to_vec()].concat())
        };
        Table {
            title: "Table 3: TCP throughput".to_owned(),
            how: "Theirs: KB/s. Ours: MB/s of both stacks in one thread. Medians.".to_owned(),
            header: ["write", "buffer", "theirs: IPv4", "IPv6", "change", "ours: IPv4", "IPv6", "change"]
                .map(str::to_owned)
                .to_vec(),
            rows: TCP.iter().filter_map(row).collect(),
        }
    }

    fn udp(&self) -> Table {
        let row = |(size, [four, six]): &(usize, [f64; 2])| {
            let ours = self.speeds(&format!("UDP {size}"))?;
            let theirs = [format!("{four}"), format!("{six}"), percent(six / four)];
            Some([vec![size.to_string()], theirs.to_vec(), ours.to_vec()].concat())
        };
        Table {
            title: "Table 4: UDP throughput".to_owned(),
            how: "As table 3; their socket buffer was 32767.".to_owned(),
            header: ["bytes", "theirs: IPv4", "IPv6", "change", "ours: IPv4", "IPv6", "change"]
                .map(str::to_owned)
                .to_vec(),
            rows: UDP.iter().filter_map(row).collect(),
        }
    }

    fn security(&self) -> Table {
        let what = |name: &str| format!("security {name}");
        let none = what(Security::ALL[0].1);
        let row = |(_, name, theirs): &(Security, &'static str, f64)| {
            let what = what(name);
            Some(vec![
                (*name).to_owned(),
                format!("~{theirs}"),
                format!("{:.0} %", theirs / Security::ALL[0].2 * 100.0),
                format!("{:.0}", self.median(&what, true)?),
                format!("{:.0} %", self.multiple((&what, true), (&none, true))? * 100.0),
            ])
        };
        Table {
            title: "Table 5: impact of IPv6 security on throughput".to_owned(),
            how: "TCP. Theirs: KB/s with keyed MD5 and DES-CBC. Ours: MB/s of both stacks in one thread. Medians."
                .to_owned(),
            header: ["security", "theirs", "of none", "ours", "of none"].map(str::to_owned).to_vec(),
            rows: Security::ALL.iter().filter_map(row).collect(),
        }
    }

    /// What is left of plain TCP over IPv6 with each kind of security.
    pub(super) fn shares(&self) -> Vec<(&'static str, f64)> {
        let what = |name: &str| (format!("security {name}"), true);
        let (none, is_ipv6) = what(Security::ALL[0].1);
        let share = |(_, name, _): &(Security, &'static str, f64)| {
            Some((*name, self.multiple((&what(name).0, is_ipv6), (&none, is_ipv6))?))
        };
        Security::ALL[1..].iter().filter_map(share).collect()
    }

    /// What IPv6 does of IPv4's work in the same time, in the worst row of tables 1 to 4.
    pub(super) fn versions(&self) -> Vec<(&'static str, f64)> {
        let sizes = |protocol: &str| -> Vec<String> {
            LATENCY.iter().map(|(size, _)| latency(protocol, *size, Security::ALL[0].1)).collect()
        };
        let slowest =
            |rows: Vec<String>| rows.iter().filter_map(|what| Some(1.0 / self.ratio(what)?)).reduce(f64::min);
        let least = |rows: Vec<String>| rows.iter().filter_map(|what| self.ratio(what)).reduce(f64::min);
        let tcp = TCP.iter().map(|(write, buffer, _)| format!("TCP {write} {buffer}")).collect();
        let udp = UDP.iter().map(|(size, _)| format!("UDP {size}")).collect();
        let all = [
            ("latency of TCP", slowest(sizes("TCP"))),
            ("latency of UDP", slowest(sizes("UDP"))),
            ("throughput of TCP", least(tcp)),
            ("throughput of UDP", least(udp)),
        ];
        all.into_iter().filter_map(|(name, ratio)| Some((name, ratio?))).collect()
    }

    fn speeds(&self, what: &str) -> Option<[String; 3]> {
        Some([
            format!("{:.0}", self.median(what, false)?),
            format!("{:.0}", self.median(what, true)?),
            percent(self.ratio(what)?),
        ])
    }

    /// Figure 8: latency by size, as SVG. Each protocol has a panel, theirs above and ours below.
    pub(super) fn figure(&self) -> String {
        let theirs = |at: usize| -> Vec<(f64, f64)> {
            LATENCY.iter().map(|(size, values)| (*size as f64, values[at])).collect()
        };
        let ours = |protocol: &str, security: &str, is_ipv6| -> Vec<(f64, f64)> {
            let value = |size| self.median(&latency(protocol, size, security), is_ipv6);
            LATENCY.iter().filter_map(|(size, _)| Some((*size as f64, value(*size)?))).collect()
        };
        let mut panels = Vec::new();
        for (protocol, at) in [("UDP", 2), ("TCP", 0)] {
            panels.push(super::figure::Panel {
                title: format!("{protocol}, theirs (1996), ms by bytes"),
                lines: vec![("IPv4".into(), theirs(at)), ("IPv6".into(), theirs(at + 1))],
            });
        }
        for protocol in ["UDP", "TCP"] {
            let mut lines = vec![("IPv4".to_owned(), ours(protocol, Security::ALL[0].1, false))];
            for (_, name, _) in Security::ALL {
                let short = name.split(':').next().unwrap_or(name);
                let name = if short == "none" { "IPv6".to_owned() } else { format!("IPv6, {short}") };
                let security = Security::ALL.iter().find(|(_, full, _)| full.starts_with(short));
                lines.push((name, ours(protocol, security.map_or("", |(_, full, _)| full), true)));
            }
            panels.push(super::figure::Panel { title: format!("{protocol}, ours, µs by bytes"), lines });
        }
        super::figure::svg(&panels)
    }
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

/// Two hosts with nothing between them.
struct Two {
    hosts: [Host<Ipsec>; 2],
    packet: Vec<u8>,
    now: Instant,
}

const ADDRESSES: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]];

impl Two {
    fn new(is_ipv6: bool, security: Security) -> Self {
        let now = Instant::now();
        let [a, b] = ADDRESSES[usize::from(is_ipv6)];
        let mut file = String::new();
        for (from, to, spi) in [(a, b, 0x1000), (b, a, 0x1001)] {
            file += &format!(
                "add {from} {to} esp {spi} -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;\n\
                 add {from} {to} ah {spi} -r 64 -A aes-gmac 0x000102030405060708090a0b0c0d0e0f10111213;\n"
            );
        }
        let hosts = [0, 1].map(|number: usize| {
            let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
            if let Ok(commands) = ipsec::setkey::parse(&file) {
                let _ = ipsec::setkey::apply(commands, &mut engine, &mut policies, now);
            }
            policies.set_system_levels(security.levels());
            let config = Config { mtu: 1500, ..ours::config() };
            let seed = [number as u8 + 1; 32];
            let mut host = Host::with_security(now, config, seed, Ipsec::new(now, engine, policies));
            let interface = host.interface_mut();
            if let Ok(address) = ADDRESSES[1][number].parse() {
                interface.add_address(now, address, 64);
            }
            if let Ok(net) = format!("{}/24", ADDRESSES[0][number]).parse() {
                interface.set_ipv4(Some(ipv4::Ipv4 { address: net, gateway: None }));
            }
            host
        });
        Self { hosts, packet: Vec::new(), now }
    }

    fn peer(is_ipv6: bool) -> SocketAddrV6 {
        let address = match ADDRESSES[usize::from(is_ipv6)][1].parse() {
            Ok(std::net::IpAddr::V4(address)) => address.to_ipv6_mapped(),
            Ok(std::net::IpAddr::V6(address)) => address,
            Err(_) => Ipv6Addr::UNSPECIFIED,
        };
        SocketAddrV6::new(address, PORT, 0, 0)
    }

    /// Carries all that there is to send, both ways.
    fn carry(&mut self) {
        self.now = Instant::now();
        let [a, b] = &mut self.hosts;
        for host in [&mut *a, &mut *b] {
            if host.deadline().is_some_and(|deadline| deadline <= self.now) {
                host.handle_timeout(self.now);
            }
        }
        loop {
            let mut idle = true;
            while a.poll_transmit(self.now, &mut self.packet) {
                b.receive(self.now, &self.packet);
                idle = false;
            }
            while b.poll_transmit(self.now, &mut self.packet) {
                a.receive(self.now, &self.packet);
                idle = false;
            }
            if idle {
                return;
            }
        }
    }

    /// A connection from the first to the second.
    fn connect(&mut self, is_ipv6: bool, config: tcp::Config) -> Option<[TcpHandle; 2]> {
        let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, PORT, 0, 0);
        let listener = self.hosts[1].tcp_listen(any, config, 4).ok()?;
        let client = self.hosts[0].tcp_connect(self.now, Self::peer(is_ipv6), config).ok()?;
        for _ in 0..STUCK {
            self.carry();
            if let Ok(Some(server)) = self.hosts[1].tcp_accept(listener) {
                return Some([client, server]);
            }
        }
        None
    }

    fn bind(&mut self) -> Option<[udp::SocketId; 2]> {
        let any = |port| SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
        let client = self.hosts[0].interface_mut().udp_bind(any(PORT + 1)).ok()?;
        let server = self.hosts[1].interface_mut().udp_bind(any(PORT)).ok()?;
        Some([client, server])
    }
}

/// Microseconds of a request and an answer of so many bytes; NaN where there was none.
fn tcp_latency(is_ipv6: bool, security: Security, size: usize) -> f64 {
    let mut two = Two::new(is_ipv6, security);
    let config = tcp::Config { nagle: false, ..tcp::Config::new(u16::MAX) };
    let Some([client, server]) = two.connect(is_ipv6, config) else { return f64::NAN };
    let (data, mut taken) = (vec![1; size], vec![0; size]);
    timed(|| {
        for (from, handle, to, peer) in [(0, client, 1, server), (1, server, 0, client)] {
            let (mut sent, mut received, mut tries) = (0, 0, 0);
            while received < size {
                sent += two.hosts[from].write(handle, &data[sent..]).unwrap_or(0);
                two.carry();
                received += two.hosts[to].read(peer, &mut taken).unwrap_or(0);
                tries += 1;
                if tries > STUCK {
                    return None;
                }
            }
        }
        Some(1)
    })
    .map_or(f64::NAN, |per_second| 1e6 / per_second)
}

fn udp_latency(is_ipv6: bool, security: Security, size: usize) -> f64 {
    let mut two = Two::new(is_ipv6, security);
    let Some([client, server]) = two.bind() else { return f64::NAN };
    let (data, mut taken) = (vec![1; size], Vec::new());
    timed(|| {
        two.hosts[0].interface_mut().udp_send(two.now, client, Some(Two::peer(is_ipv6)), &data).ok()?;
        two.carry();
        let from = two.hosts[1].interface_mut().udp_receive(server, &mut taken)?.from;
        two.hosts[1].interface_mut().udp_send(two.now, server, Some(from), &data).ok()?;
        two.carry();
        two.hosts[0].interface_mut().udp_receive(client, &mut taken)?;
        (taken.len() == size).then_some(1)
    })
    .map_or(f64::NAN, |per_second| 1e6 / per_second)
}

/// MB/s of one connection.
fn tcp_speed(is_ipv6: bool, security: Security, write: usize, buffer: usize) -> f64 {
    let mut two = Two::new(is_ipv6, security);
    let config =
        tcp::Config { max_receive_buffer: buffer, max_send_buffer: buffer, ..tcp::Config::new(u16::MAX) };
    let Some([client, server]) = two.connect(is_ipv6, config) else { return f64::NAN };
    let (data, mut taken) = (vec![1; write], vec![0; write.max(65_536)]);
    timed(|| {
        let mut received = 0;
        for _ in 0..STUCK {
            let _ = two.hosts[0].write(client, &data).ok()?;
            two.carry();
            received += two.hosts[1].read(server, &mut taken).ok()?;
            if received >= 1 << 20 {
                return Some(received);
            }
        }
        None
    })
    .map_or(f64::NAN, |per_second| per_second / 1e6)
}

fn udp_speed(is_ipv6: bool, size: usize) -> f64 {
    let mut two = Two::new(is_ipv6, Security::None);
    let Some([client, server]) = two.bind() else { return f64::NAN };
    let (data, mut taken) = (vec![1; size], Vec::new());
    timed(|| {
        for _ in 0..16 {
            two.hosts[0].interface_mut().udp_send(two.now, client, Some(Two::peer(is_ipv6)), &data).ok()?;
        }
        two.carry();
        let mut received = 0;
        while two.hosts[1].interface_mut().udp_receive(server, &mut taken).is_some() {
            received += taken.len();
        }
        Some(received)
    })
    .map_or(f64::NAN, |per_second| per_second / 1e6)
}

/// Does something again and again, and returns how much of it there was in a second of the processor's, which others
/// cannot take. `None`: it has failed.
fn timed(mut once: impl FnMut() -> Option<usize>) -> Option<f64> {
    let warm = processor_time()?;
    while processor_time()? - warm < LENGTH / 4 {
        once()?;
    }
    let begun = processor_time()?;
    let mut done = 0;
    loop {
        done += once()?;
        let took = processor_time()? - begun;
        if took >= LENGTH {
            return Some(done as f64 / took.as_secs_f64());
        }
    }
}

/// That of this thread.
fn processor_time() -> Option<Duration> {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}
