//! The kernel at one end of a TUN device, a host of `crates/stack` at the other, with a key daemon if wanted.

use std::io::{ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ipsec::association::{Mode, Parameters, Protocol, Spi, UdpEncapsulation};
use ipsec::key_engine::KeyEngine;
use ipsec::policy::{Level, Levels, PolicyDatabase};
use ipsec::udp_encapsulation::PORT;
use lab::namespaces::Namespace;
use linux::netns;
use linux::tun::{self, MAX_READ, Offloads, VNET_HEADER};
use stack::host::Host;
use stack::interface::{Config, Medium};
use stack::ipsec::Ipsec;
use stack::{autoconf, ipv4, random, udp};
use wire::protocol;

use super::key_daemon::KeyDaemon;
use super::packets::Suite;

/// The service that gives back what it gets.
pub(super) const ECHO: u16 = 7;
const TO_HOST: u32 = 0x1000;
const TO_KERNEL: u32 = 0x1001;
/// Of an answer, on a machine that is emulated, too.
const PATIENCE: Duration = Duration::from_secs(30);
/// Takes ESP out of UDP for as long as it runs, as a key daemon has the kernel do.
const TAKE_UDP: &str = "
import socket, sys
held = []
for family in (socket.AF_INET, socket.AF_INET6):
    held.append(socket.socket(family, socket.SOCK_DGRAM))
    if family == socket.AF_INET6:
        held[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    held[-1].bind(('', 4500))
    held[-1].setsockopt(socket.IPPROTO_UDP, 100, 2) # UDP_ENCAP, UDP_ENCAP_ESPINUDP
print('ready', flush=True)
sys.stdin.read()
";

/// How the two protect what they send each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) suite: Suite,
    pub(super) mode: Mode,
    pub(super) is_ipv6: bool,
    pub(super) extended: bool,
    pub(super) in_udp: bool,
    /// How many numbers the kernel has used.
    pub(super) used: u32,
}

pub(super) struct Scene {
    namespace: Namespace,
    queue: tun::Queue,
    host: Host<Ipsec>,
    echo: udp::SocketId,
    buffer: Vec<u8>,
    packet: Vec<u8>,
    /// What has crossed the device since it was last asked for.
    pub(super) crossed: Vec<Vec<u8>>,
    udp: Option<Child>,
    daemon: Option<KeyDaemon>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut udp) = self.udp.take() {
            let _ = udp.kill();
            let _ = udp.wait();
        }
        let _ = self.namespace.delete();
    }
}

/// The addresses of the kernel and of the host.
pub(super) fn ends(is_ipv6: bool) -> (IpAddr, IpAddr) {
    let (kernel, host) =
        if is_ipv6 { ("2001:db8:5::1", "2001:db8:5::2") } else { ("192.0.2.1", "192.0.2.2") };
    (kernel.parse().expect("an address"), host.parse().expect("an address"))
}

impl Scene {
    pub(super) fn new() -> Self {
        let namespace = Namespace::named(lab::prefix::unique());
        namespace.create().expect("a namespace");
        let opened = netns::Namespace::open(namespace.name()).expect("the namespace");
        let device = opened.run(|| tun::create("stack", 1, Offloads::None)).expect("a thread");
        let queue = device.expect("a TUN device").queues.remove(0);
        namespace
            .ip("addr add 2001:db8:5::1/64 dev stack nodad\naddr add 192.0.2.1/24 dev stack\nlink set stack up\n")
            .expect("addresses");
        let now = Instant::now();
        let config = Config {
            medium: Medium::Ip,
            mtu: 1500,
            autoconf: autoconf::Config {
                stable_key: random::Key::new([1; 16]),
                interface: b"stack".to_vec(),
                temporary: false,
                duplicate_transmits: 0,
            },
            routers: false,
        };
        let security = Ipsec::new(now, KeyEngine::new(), PolicyDatabase::new());
        let mut host = Host::with_security(now, config, [2; 32], security);
        let interface = host.interface_mut();
        interface.add_address(now, "2001:db8:5::2".parse().expect("an address"), 64);
        let net = "192.0.2.2/24".parse().expect("a network");
        interface.set_ipv4(Some(ipv4::Ipv4 { address: net, gateway: None }));
        let echo =
            interface.udp_bind(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, ECHO, 0, 0)).expect("the port");
        Scene {
            namespace,
            queue,
            host,
            echo,
            buffer: vec![0; MAX_READ],
            packet: Vec::new(),
            crossed: Vec::new(),
            udp: None,
            daemon: None,
        }
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(super) fn host(&mut self) -> &mut Host<Ipsec> {
        &mut self.host
    }

    /// From now on a key daemon runs on the host.
    pub(super) fn give_daemon(&mut self, daemon: KeyDaemon) {
        self.daemon = Some(daemon);
    }

    pub(super) fn daemon(&mut self) -> &mut KeyDaemon {
        self.daemon.as_mut().expect("a key daemon")
    }

    /// Has the kernel take ESP out of UDP.
    pub(super) fn take_udp(&mut self) {
        use std::io::BufRead;
        let mut command = self.namespace.command("/usr/bin/python3").expect("the namespace");
        command
            .args(["-c", TAKE_UDP])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut python = command.spawn().expect("python3");
        let mut said = String::new();
        let output = python.stdout.take().expect("its output");
        std::io::BufReader::new(output).read_line(&mut said).expect("a line");
        self.udp = Some(python);
        assert_eq!(said, "ready\n");
    }

    /// Gives both ends associations and policies of this kind, and nothing else.
    pub(super) fn protect(&mut self, way: &Way) {
        let (kernel, host) = ends(way.is_ipv6);
        let mut lines = String::from("xfrm state flush\nxfrm policy flush\n");
        for (direction, from, to, spi) in [("out", kernel, host, TO_HOST), ("in", host, kernel, TO_KERNEL)] {
            lines += &in_kernel(way, from, to, spi, if direction == "out" { way.used } else { 0 });
            let (proto, mode) = (way.suite.proto(), mode(way));
            // What is not bypassed must be protected, and ESP in UDP is not yet taken out when the kernel looks.
            let level = if way.in_udp && direction == "in" { "use" } else { "required" };
            lines += &format!(
                "xfrm policy add src {from} dst {to} dir {direction} \
                 tmpl src {from} dst {to} proto {proto} mode {mode} level {level}\n",
            );
        }
        self.namespace.ip(&lines).unwrap_or_else(|error| panic!("{way:?}: {error}"));

        let now = Instant::now();
        let engine = self.host.interface_mut().security().engine();
        engine.flush(None);
        for (from, to, spi) in [(kernel, host, TO_HOST), (host, kernel, TO_KERNEL)] {
            let mut parameters = Parameters::new(Spi(spi), from, to, way.mode, way.suite.transform());
            parameters.extended_sequence = way.extended;
            parameters.encapsulation =
                way.in_udp.then_some(UdpEncapsulation { source_port: PORT, destination_port: PORT });
            engine.add(parameters, None, now).expect("an association");
        }
        self.require(way);
    }

    /// The host demands protection of this kind, of all but IKE.
    pub(super) fn require(&mut self, way: &Way) {
        let policies = self.host.interface_mut().security().policies();
        let require = Level::Require;
        policies.set_system_levels(match (way.suite.protocol(), way.mode) {
            (Protocol::Ah, _) => Levels { authentication: require, ..Levels::NONE },
            // Nothing is hidden, and so nothing can be required.
            (Protocol::Esp, Mode::Transport) if !way.suite.hides() => {
                Levels { transport_encryption: Level::Use, ..Levels::NONE }
            }
            (Protocol::Esp, Mode::Tunnel) if !way.suite.hides() => {
                Levels { tunnel_encryption: Level::Use, ..Levels::NONE }
            }
            (Protocol::Esp, Mode::Transport) => Levels { transport_encryption: require, ..Levels::NONE },
            (Protocol::Esp, Mode::Tunnel) => Levels { tunnel_encryption: require, ..Levels::NONE },
        });
    }

    /// Makes the kernel's sending association anew, with other numbers; the host's stays.
    pub(super) fn let_kernel_skip(&mut self, way: &Way) {
        let (kernel, host) = ends(way.is_ipv6);
        let proto = way.suite.proto();
        let lines = format!("xfrm state delete src {kernel} dst {host} proto {proto} spi {TO_HOST:#x}\n")
            + &in_kernel(way, kernel, host, TO_HOST, way.used);
        self.namespace.ip(&lines).unwrap_or_else(|error| panic!("{way:?}: {error}"));
    }

    /// A socket of the kernel's.
    pub(super) fn socket(&self, is_ipv6: bool) -> UdpSocket {
        let (kernel, _) = ends(is_ipv6);
        let opened = netns::Namespace::open(self.namespace.name()).expect("the namespace");
        let socket = opened.run(|| UdpSocket::bind((kernel, 0))).expect("a thread").expect("a socket");
        socket.set_nonblocking(true).expect("a flag");
        socket
    }

    /// Sends from the kernel to the host, and returns what comes back.
    pub(super) fn echo(&mut self, socket: &UdpSocket, data: &[u8]) -> Option<Vec<u8>> {
        let is_ipv6 = socket.local_addr().expect("its address").is_ipv6();
        socket.send_to(data, SocketAddr::new(ends(is_ipv6).1, ECHO)).expect("to be sent");
        let mut answer = vec![0; 65_536];
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.run_once();
            match socket.recv(&mut answer) {
                Ok(length) => {
                    answer.truncate(length);
                    return Some(answer);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
        None
    }

    /// Everything that can be done now.
    pub(super) fn run_once(&mut self) {
        let now = Instant::now();
        while let Some(length) = self.queue.read(&mut self.buffer).expect("the device") {
            let packet = &self.buffer[VNET_HEADER..length];
            self.crossed.push(packet.to_vec());
            self.host.receive(now, packet);
        }
        if self.host.deadline().is_some_and(|deadline| deadline <= now) {
            self.host.handle_timeout(now);
        }
        let mut data = Vec::new();
        while let Some(from) = self.host.interface_mut().udp_receive(self.echo, &mut data) {
            let sent = self.host.interface_mut().udp_send(now, self.echo, Some(from.from), &data);
            sent.expect("an answer");
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.turn(now, &mut self.host);
        }
        while self.host.poll_transmit(now, &mut self.packet) {
            self.crossed.push(self.packet.clone());
            let header = [0; VNET_HEADER];
            self.queue.write(&[IoSlice::new(&header), IoSlice::new(&self.packet)]).expect("the device");
        }
    }

    /// Packets between the two ends that have crossed, without what finds neighbors and groups.
    pub(super) fn take_crossed(&mut self) -> Vec<Vec<u8>> {
        let mut crossed = std::mem::take(&mut self.crossed);
        crossed.retain(|packet| {
            let at = if packet[0] >> 4 == 6 { 8 } else { 12 };
            let (kernel, host) = ends(packet[0] >> 4 == 6);
            let octets = |address| match address {
                IpAddr::V6(address) => Ipv6Addr::octets(&address).to_vec(),
                IpAddr::V4(address) => address.octets().to_vec(),
            };
            let (kernel, host) = (octets(kernel), octets(host));
            let pair = &packet[at..at + 2 * kernel.len()];
            pair == [&kernel[..], &host].concat() || pair == [&host[..], &kernel].concat()
        });
        crossed
    }

    /// What the host has dropped, for a message.
    pub(super) fn drops(&mut self) -> String {
        let drops: Vec<_> = self.host.interface_mut().security().drops().nonzero().collect();
        format!("{drops:?}")
    }

    /// What the kernel has dropped, for a message.
    pub(super) fn kernel_drops(&self) -> String {
        let mut command: Command = self.namespace.command("cat").expect("the namespace");
        let said = command.arg("/proc/net/xfrm_stat").output().expect("cat");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        text.lines()
            .filter(|line| !line.ends_with("\t0") && !line.ends_with(" 0"))
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// The line that gives the kernel an association.
fn in_kernel(way: &Way, from: IpAddr, to: IpAddr, spi: u32, used: u32) -> String {
    let window = if way.extended { "replay-window 128" } else { "replay-window 32" };
    // As RFC 4302 §2.6 has it; by itself the kernel aligns the AH of IPv4 to 64 bits, and takes no other.
    let align = if from.is_ipv4() && way.suite.protocol() == Protocol::Ah { "align4" } else { "" };
    let flags = format!("{} {align}", if way.extended { "esn" } else { "" });
    let flags = if flags.trim().is_empty() { String::new() } else { format!("flag {}", flags.trim()) };
    let used = if used > 0 { format!("replay-oseq {used}") } else { String::new() };
    let zero = if from.is_ipv6() { "::" } else { "0.0.0.0" };
    let udp = if way.in_udp { format!("encap espinudp {PORT} {PORT} {zero}") } else { String::new() };
    let (proto, mode, algorithms) = (way.suite.proto(), mode(way), way.suite.in_kernel());
    format!(
        "xfrm state add src {from} dst {to} proto {proto} spi {spi:#x} mode {mode} \
         {window} {flags} {used} {algorithms} {udp}\n"
    )
}

fn mode(way: &Way) -> &'static str {
    if way.mode == Mode::Tunnel { "tunnel" } else { "transport" }
}

/// The header that follows the IP header, behind that of a fragment.
pub(super) fn header_of(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 {
        return packet[9];
    }
    if packet[6] == protocol::FRAGMENT { packet[40] } else { packet[6] }
}
