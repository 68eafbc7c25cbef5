//! An Ethernet segment in virtual time: frames reach all at once, hosts do what is due, and everything is recorded.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use stack::autoconf;
use stack::interface::{Config, Event, Interface, Medium, NoUpper};
use stack::random::Key;
use stack::security::{NoSecurity, Security};
use wire::ethernet::{self, ETHERTYPE_IPV6, MacAddress};
use wire::ipv6::Packet;
use wire::ndp::{
    self, ALL_NODES, AdvertisedOption, Message, NeighborAdvertisement, Preference, PrefixInformation,
    RouterAdvertisement, multicast_mac,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A router that advertises, answers for its address, and keeps what it should forward.
pub(crate) struct Router {
    pub(crate) mac: MacAddress,
    pub(crate) address: Ipv6Addr,
    /// What it advertises when it is asked; `None`: it does not.
    pub(crate) says: Option<RouterAdvertisement>,
    /// Whether it is there at all.
    pub(crate) alive: bool,
    pub(crate) forwarded: Vec<Vec<u8>>,
}

/// The segment.
pub(crate) struct Link<S: Security = NoSecurity> {
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Interface<S>>,
    pub(crate) routers: Vec<Router>,
    /// Packets that were sent, with their frames' destinations, since the last look.
    pub(crate) seen: Vec<(MacAddress, Vec<u8>)>,
    /// Frames of other protocols.
    pub(crate) others: Vec<Vec<u8>>,
    /// Hosts that neither hear nor are heard.
    pub(crate) unplugged: Vec<usize>,
    /// Frames come back to whom they came from.
    pub(crate) loops: bool,
}

pub(crate) fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

pub(crate) fn config(number: u8) -> Config {
    Config {
        medium: Medium::Ethernet(mac(number)),
        mtu: 1500,
        autoconf: autoconf::Config {
            stable_key: Key::new([number; 16]),
            interface: b"eth0".to_vec(),
            temporary: false,
            duplicate_transmits: 1,
        },
        routers: true,
    }
}

impl Link<NoSecurity> {
    /// So many hosts, which have just been started.
    pub(crate) fn new(hosts: u8) -> Self {
        let now = Instant::now();
        let hosts = (0..hosts).map(|number| Interface::new(now, config(number), [number; 32])).collect();
        Self::with(now, hosts)
    }
}

impl<S: Security> Link<S> {
    pub(crate) fn with(now: Instant, hosts: Vec<Interface<S>>) -> Self {
        Link {
            now,
            hosts,
            routers: Vec::new(),
            seen: Vec::new(),
            others: Vec::new(),
            unplugged: Vec::new(),
            loops: false,
        }
    }

    /// A router that advertises a prefix, for half an hour.
    pub(crate) fn add_router(&mut self, number: u8) {
        self.routers.push(Router {
            mac: mac(100 + number),
            address: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number.into()),
            says: Some(advertisement(vec![prefix("2001:db8:1::", 86_400, 86_400)])),
            alive: true,
            forwarded: Vec::new(),
        });
    }

    /// Lets a router advertise to all.
    pub(crate) fn advertise(&mut self, router: usize, said: &RouterAdvertisement) {
        let router = &self.routers[router];
        let packet = router.with_address(said).to_packet(router.address, ALL_NODES);
        self.inject(router.mac, multicast_mac(ALL_NODES), &packet);
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.exchange();
            let next = self.hosts.iter().filter_map(Interface::deadline).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = next.max(self.now);
            for host in &mut self.hosts {
                if host.deadline().is_some_and(|deadline| deadline <= self.now) {
                    host.handle_timeout(self.now, &mut NoUpper);
                }
            }
        }
        self.now = end;
    }

    /// A frame from somebody who is not simulated.
    pub(crate) fn inject(&mut self, from: MacAddress, to: MacAddress, packet: &[u8]) {
        let frame = frame(from, to, packet);
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if !self.unplugged.contains(&index) {
                host.receive(self.now, &frame, &mut NoUpper);
            }
        }
        self.exchange();
    }

    /// What has been sent since the last call, as packets.
    pub(crate) fn sent(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.seen).into_iter().map(|(_, packet)| packet).collect()
    }

    /// How many messages of this ICMPv6 type have been sent since the last look, without looking.
    pub(crate) fn count(&self, message_type: u8) -> usize {
        self.seen.iter().filter(|(_, packet)| icmp_type(packet) == Some(message_type)).count()
    }

    fn exchange(&mut self) {
        let mut frame = Vec::new();
        loop {
            let mut frames = Vec::new();
            for (index, host) in self.hosts.iter_mut().enumerate() {
                while host.poll_transmit(&mut frame) {
                    if !self.unplugged.contains(&index) {
                        frames.push((Some(index), frame.clone()));
                    }
                }
            }
            for (_, bytes) in frames.clone() {
                let view = ethernet::Frame::parse(&bytes).unwrap();
                if view.ethertype() == ETHERTYPE_IPV6 {
                    self.seen.push((view.destination(), view.payload().to_vec()));
                } else {
                    self.others.push(bytes.clone());
                }
                for router in &mut self.routers {
                    if let Some(answer) = router.receive(&bytes) {
                        frames.push((None, answer));
                    }
                }
            }
            if frames.is_empty() {
                return;
            }
            for (from, bytes) in frames {
                for (index, host) in self.hosts.iter_mut().enumerate() {
                    if (self.loops || from != Some(index)) && !self.unplugged.contains(&index) {
                        host.receive(self.now, &bytes, &mut NoUpper);
                    }
                }
            }
        }
    }

    pub(crate) fn link_local(&self, host: usize) -> Ipv6Addr {
        self.hosts[host].addresses().link_local().expect("a link-local address")
    }

    /// The address in the advertised prefix.
    pub(crate) fn global(&self, host: usize) -> Ipv6Addr {
        let mut all = self.hosts[host].addresses().iter().map(|known| known.address);
        all.find(|address| !address.is_unicast_link_local()).expect("a global address")
    }

    pub(crate) fn replies(&mut self, host: usize) -> Vec<(Ipv6Addr, u16)> {
        let events = std::iter::from_fn(|| self.hosts[host].poll_event());
        events
            .filter_map(|event| match event {
                Event::EchoReply { from, sequence, .. } => Some((from, sequence)),
                Event::Address(_) | Event::EchoError { .. } => None,
            })
            .collect()
    }

    /// Whether an echo request is answered within five seconds.
    pub(crate) fn ping(&mut self, host: usize, to: Ipv6Addr) -> bool {
        self.replies(host);
        self.hosts[host].ping(self.now, to, 1, 7, b"ping").is_ok() && {
            self.run(SECOND * 5);
            self.replies(host).contains(&(to, 7))
        }
    }
}

impl Router {
    /// As routers advertise: with their link-layer address.
    fn with_address(&self, said: &RouterAdvertisement) -> RouterAdvertisement {
        let mut said = said.clone();
        said.options.push(AdvertisedOption::SourceLinkLayer(self.mac));
        said
    }

    fn receive(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let frame = ethernet::Frame::parse(frame).unwrap();
        let packet = Packet::parse(frame.payload()).ok()?;
        if !self.alive || frame.destination() != self.mac && !frame.destination().is_multicast() {
            return None;
        }
        match ndp::parse(&packet) {
            Ok(Message::NeighborSolicitation { target, source_link_layer, .. }) if target == self.address => {
                let answer = NeighborAdvertisement::answer(packet.source(), target, self.mac, true);
                Some(answer.to_frame(source_link_layer?).to_vec())
            }
            Ok(Message::RouterSolicitation { .. }) => {
                let packet = self.with_address(self.says.as_ref()?).to_packet(self.address, ALL_NODES);
                Some(self::frame(self.mac, multicast_mac(ALL_NODES), &packet))
            }
            _ => {
                if frame.destination() == self.mac && packet.destination() != self.address {
                    self.forwarded.push(frame.payload().to_vec());
                }
                None
            }
        }
    }
}

pub(crate) fn advertisement(options: Vec<AdvertisedOption>) -> RouterAdvertisement {
    RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other_configuration: false,
        preference: Preference::Medium,
        router_lifetime: 1800,
        reachable_time: 0,
        retransmission_timer: 0,
        options,
    }
}

pub(crate) fn prefix(net: &str, preferred: u32, valid: u32) -> AdvertisedOption {
    AdvertisedOption::Prefix(PrefixInformation {
        prefix: net.parse().unwrap(),
        prefix_length: 64,
        on_link: true,
        autonomous: true,
        valid_lifetime: valid,
        preferred_lifetime: preferred,
    })
}

pub(crate) fn frame(source: MacAddress, destination: MacAddress, packet: &[u8]) -> Vec<u8> {
    let header = ethernet::Header { destination, source, ethertype: ETHERTYPE_IPV6 };
    [&header.to_bytes()[..], packet].concat()
}

/// The type of a packet's ICMPv6 message, if it is one.
pub(crate) fn icmp_type(packet: &[u8]) -> Option<u8> {
    let upper = Packet::parse(packet).ok()?.upper_layer().ok()?;
    (upper.protocol == wire::protocol::ICMPV6 && !upper.is_later_fragment())
        .then(|| packet.get(upper.offset).copied())?
}

pub(crate) fn at(address: Ipv6Addr, port: u16) -> SocketAddrV6 {
    SocketAddrV6::new(address, port, 0, 0)
}

pub(crate) const ANY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;
/// Somewhere behind the routers.
pub(crate) const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);
