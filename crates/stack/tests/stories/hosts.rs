//! Hosts with TCP on an Ethernet segment in virtual time, whose weather may be bad.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use fastrand::Rng;
use stack::host::{Host, ListenerHandle, TcpHandle};
use stack::security::{NoSecurity, Security};
use stack::tcp::{self, State};
use wire::ecn::{self, Ecn};
use wire::ethernet::Frame;
use wire::icmp_error::{self, Reason};
use wire::ipv6::Packet;

use crate::link::{ANY, SECOND, at, config, frame, mac};

/// As large as the path carries.
pub(crate) const TCP: tcp::Config = tcp::Config::new(u16::MAX);
const MS: Duration = Duration::from_millis(1);

/// What happens to frames.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    /// Packets that take part in ECN are marked so often.
    pub(crate) congestion: f64,
    /// A router on the way that carries no more, and says so.
    pub(crate) path_mtu: Option<usize>,
}

/// Hosts, and frames between them.
pub(crate) struct Segment<S: Security = NoSecurity> {
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host<S>>,
    pub(crate) weather: Weather,
    /// Frames that were sent, since they were last taken.
    pub(crate) seen: Vec<Vec<u8>>,
    random: Rng,
    /// By arrival and number: from whom, and the frame.
    flying: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    number: u64,
}

impl Segment {
    /// So many hosts, which have their addresses.
    pub(crate) fn new(hosts: u8, seed: u64) -> Self {
        let now = Instant::now();
        let hosts = (0..hosts).map(|number| Host::new(now, config(number), [number; 32])).collect();
        Self::with(now, hosts, seed)
    }
}

impl<S: Security> Segment<S> {
    /// These hosts, once they have their addresses.
    pub(crate) fn with(now: Instant, hosts: Vec<Host<S>>, seed: u64) -> Self {
        let mut segment = Segment {
            now,
            hosts,
            weather: Weather::default(),
            seen: Vec::new(),
            random: Rng::with_seed(seed),
            flying: BTreeMap::new(),
            number: 0,
        };
        segment.run(SECOND * 3);
        segment.seen.clear();
        segment
    }

    pub(crate) fn address(&self, host: usize) -> Ipv6Addr {
        self.hosts[host].interface().addresses().link_local().expect("a link-local address")
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    /// Goes on to the next thing that happens, until then.
    pub(crate) fn step(&mut self, end: Instant) -> bool {
        self.send();
        let due = self.hosts.iter().filter_map(Host::deadline).min();
        let arrival = self.flying.keys().next().map(|(at, _)| *at);
        let Some(next) = due.into_iter().chain(arrival).min().filter(|next| *next <= end) else {
            self.now = end;
            return false;
        };
        self.now = next.max(self.now);
        while let Some(first) = self.flying.first_entry()
            && first.key().0 <= self.now
        {
            let (from, bytes) = first.remove();
            for (_, host) in self.hosts.iter_mut().enumerate().filter(|(index, _)| *index != from) {
                host.receive(self.now, &bytes);
            }
        }
        for host in &mut self.hosts {
            if host.deadline().is_some_and(|deadline| deadline <= self.now) {
                host.handle_timeout(self.now);
            }
        }
        true
    }

    fn send(&mut self) {
        let mut out = Vec::new();
        for index in 0..self.hosts.len() {
            while self.hosts[index].poll_transmit(self.now, &mut out) {
                self.seen.push(out.clone());
                if self.is_too_big(&out) || self.random.f64() < self.weather.loss {
                    continue;
                }
                if ecn::get(&out[14..]).is_some_and(|ecn| ecn != Ecn::NotEct)
                    && self.random.f64() < self.weather.congestion
                {
                    ecn::set(&mut out[14..], Ecn::Ce);
                }
                if self.random.f64() < self.weather.duplicate {
                    self.fly(index, out.clone(), MS);
                }
                let late = self.random.f64() < self.weather.reorder;
                self.fly(index, out.clone(), if late { MS * 10 } else { MS });
            }
        }
    }

    fn fly(&mut self, from: usize, bytes: Vec<u8>, time: Duration) {
        self.number += 1;
        self.flying.insert((self.now + time, self.number), (from, bytes));
    }

    /// A router does not carry it, and tells the sender.
    fn is_too_big(&mut self, bytes: &[u8]) -> bool {
        let packet = &bytes[14..];
        let Some(mtu) = self.weather.path_mtu.filter(|mtu| packet.len() > *mtu) else { return false };
        let answer = too_big(packet, mtu as u32);
        self.fly(usize::MAX, answer, MS);
        true
    }

    /// Connects host 0 to host 1.
    pub(crate) fn connect(&mut self) -> [TcpHandle; 2] {
        let listener = self.hosts[1].tcp_listen(at(ANY, 80), TCP, 10).unwrap();
        let to = at(self.address(1), 80);
        let ours = self.hosts[0].tcp_connect(self.now, to, TCP).unwrap();
        let theirs = self.accept(listener);
        self.hosts[1].tcp_unlisten(listener).unwrap();
        assert_eq!(self.hosts[0].tcp(ours).unwrap().state(), State::Established);
        [ours, theirs]
    }

    pub(crate) fn accept(&mut self, listener: ListenerHandle) -> TcpHandle {
        let end = self.now + SECOND * 100;
        loop {
            if let Some(accepted) = self.hosts[1].tcp_accept(listener).unwrap() {
                return accepted;
            }
            assert!(self.step(end), "no connection");
        }
    }

    /// Sends so much each way and closes; what arrives must be what was sent.
    pub(crate) fn transfer(&mut self, ends: [TcpHandle; 2], octets: usize) {
        self.transfer_between([0, 1], ends, octets);
    }

    pub(crate) fn transfer_between(&mut self, hosts: [usize; 2], ends: [TcpHandle; 2], octets: usize) {
        let stop = self.now + SECOND * 600;
        let (mut written, mut read) = ([0; 2], [0; 2]);
        let mut buffer = [0; 5000];
        loop {
            for end in 0..2 {
                let (host, handle) = (&mut self.hosts[hosts[end]], ends[end]);
                if written[end] < octets {
                    let most = (octets - written[end]).min(5000);
                    let chunk: Vec<u8> =
                        (written[end]..written[end] + most).map(|at| octet(end, at)).collect();
                    written[end] += host.write(handle, &chunk).unwrap();
                    if written[end] == octets {
                        host.close(handle).unwrap();
                    }
                }
                while let length @ 1.. = host.read(handle, &mut buffer).unwrap() {
                    for (index, got) in buffer[..length].iter().enumerate() {
                        assert_eq!(*got, octet(1 - end, read[end] + index));
                    }
                    read[end] += length;
                }
                assert_eq!(host.tcp(handle).unwrap().error(), None);
            }
            let ended = |end: usize| self.hosts[hosts[end]].tcp(ends[end]).unwrap().has_ended();
            if ended(0) && ended(1) {
                break;
            }
            assert!(self.step(stop), "{written:?} written, {read:?} read");
        }
        assert_eq!(read, [octets; 2]);
    }
}

/// The octet at a place of what an end sends.
fn octet(end: usize, at: usize) -> u8 {
    (at ^ at >> 8 ^ at >> 16 ^ end) as u8
}

/// What a router says of this packet of host 0.
pub(crate) fn too_big(packet: &[u8], mtu: u32) -> Vec<u8> {
    let router = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 9, 9));
    let mut error = [0; icmp_error::MAX_LEN];
    let length = icmp_error::build(Reason::PacketTooBig { mtu }, router, packet, &mut error).unwrap();
    frame(mac(9), mac(0), &error[..length])
}

/// The TCP segments among frames, with the traffic class of their packets.
pub(crate) fn segments(frames: &[Vec<u8>]) -> impl Iterator<Item = (u8, wire::tcp::Segment<'_>)> {
    frames.iter().filter_map(|bytes| {
        let packet = Packet::parse(Frame::parse(bytes).ok()?.payload()).ok()?;
        let is_tcp = packet.next_header() == wire::protocol::TCP;
        is_tcp.then(|| (packet.traffic_class(), wire::tcp::Segment::parse(packet.payload()).unwrap()))
    })
}
