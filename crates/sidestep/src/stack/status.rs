//! What a host says about itself, to others who ask the process that holds its device.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Instant;

use control::stack_status::{Address, Destination, Neighbor, Route, Socket, Status};
use control::{Call, Reply, Request, Server};
use ipnet::{IpNet, Ipv6Net};
use stack::autoconf::{self, Origin, Phase};
use stack::host::Host;
use stack::interface::{Interface, Medium};
use stack::ipsec::Ipsec;
use stack::neighbor::State;
use stack::tcp;
use stack_runtime::Stack;
use wire::ndp::Preference;

use crate::failure::Failure;

/// The control socket of a host.
pub(crate) struct Answering(#[expect(dead_code, reason = "held until the host ends")] Server);

/// Answers who asks for the host's status, while the value lives. `None`: there is no place for the socket, which is said.
pub(crate) fn answer(stack: &Stack<Ipsec>, device: &str) -> Result<Option<Answering>, Failure> {
    let (stack, name) = (stack.clone(), device.to_owned());
    let deliver = move |call: Call<Request>| {
        let reply = match call.request {
            Request::Show => match of(&stack, &name).map(serde_json::to_value) {
                Ok(Ok(status)) => Reply::Ok(status),
                Ok(Err(error)) => Reply::Error(error.to_string()),
                Err(error) => Reply::Error(error.to_string()),
            },
            _ => Reply::Error("a host stack only says how it is: `sidestep stack netstat`".to_owned()),
        };
        call.answer(reply);
    };
    let started = control::socket_of_stack(device).and_then(|path| Server::start(&path, deliver));
    match started {
        Ok(server) => Ok(Some(Answering(server))),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(error.into()),
        Err(error) => {
            let _ = writeln!(
                io::stderr(),
                "sidestep: no control socket, `netstat` cannot ask this host: {error}"
            );
            Ok(None)
        }
    }
}

/// The status of a host.
pub(crate) fn of(stack: &Stack<Ipsec>, device: &str) -> io::Result<Status> {
    let medium = stack.medium();
    stack.with(|now, host| {
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: device.to_owned(),
            link_layer: match medium {
                Medium::Ethernet(mac) => Some(mac.to_string()),
                Medium::Ip => None,
            },
            mtu: host.interface().link_mtu(),
            addresses: Vec::new(),
            routers: host.interface().default_routers().collect(),
            routes: Vec::new(),
            ipv4_gateway: host.interface().ipv4().and_then(|ipv4| ipv4.gateway),
            dns_servers: host.interface().dns_servers().collect(),
            destinations: Vec::new(),
            neighbors: Vec::new(),
            sockets: sockets(host),
            drops: BTreeMap::new(),
        };
        describe_interface(now, host.interface(), &mut status);
        let ip = host.interface().drops().nonzero().map(|(reason, count)| (reason.name().to_owned(), count));
        let tcp = host.tcp_drops().nonzero().map(|(reason, count)| (reason.name().to_owned(), count));
        status.drops = [("ip".to_owned(), ip.collect()), ("tcp".to_owned(), tcp.collect())].into();
        let security = host.interface_mut().security().drops().nonzero();
        let security = security.map(|(reason, count)| (reason.name().to_owned(), count)).collect();
        status.drops.insert("ipsec".to_owned(), security);
        status
    })
}

fn describe_interface(now: Instant, interface: &Interface<Ipsec>, status: &mut Status) {
    let left = |until: Option<Instant>| until.map(|until| until.saturating_duration_since(now).as_secs());
    status.addresses = interface.addresses().iter().map(|known| address(now, known)).collect();
    if let Some(ipv4) = interface.ipv4() {
        status.addresses.push(Address {
            address: IpNet::V4(ipv4.address),
            origin: "static".to_owned(),
            state: "preferred".to_owned(),
            preferred_seconds: None,
            valid_seconds: None,
        });
    }
    let table = interface.routes();
    let on_link = table.on_link().map(|(destination, until)| Route {
        destination,
        router: None,
        preference: None,
        valid_seconds: left(until),
    });
    let through = table.routes().map(|(destination, router, preference, until)| Route {
        destination,
        router: Some(router),
        preference: Some(preference_name(preference).to_owned()),
        valid_seconds: left(until),
    });
    status.routes = on_link.chain(through).collect();
    status.destinations = interface
        .destinations()
        .iter()
        .map(|(address, redirected_to, path_mtu)| Destination {
            address,
            path_mtu: path_mtu.map(|(mtu, _)| mtu),
            path_mtu_seconds: path_mtu.and_then(|(_, until)| left(Some(until))),
            redirected_to,
        })
        .collect();
    let neighbors = interface.neighbors().iter();
    status.neighbors = neighbors
        .map(|(address, state, link_layer)| Neighbor {
            address: IpAddr::V6(address).to_canonical(),
            link_layer: link_layer.map(|mac| mac.to_string()),
            state: neighbor_state(state).to_owned(),
            is_router: table.is_router(address),
        })
        .collect();
}

fn address(now: Instant, known: &autoconf::Address) -> Address {
    let left = |until: Option<Instant>| until.map(|until| until.saturating_duration_since(now).as_secs());
    let origin = match known.origin {
        Origin::Static => "static",
        Origin::Stable { .. } => "stable",
        Origin::Temporary { .. } => "temporary",
    };
    let state = match known.phase(now) {
        Phase::Tentative => "tentative",
        Phase::Preferred => "preferred",
        Phase::Deprecated => "deprecated",
    };
    // The length of the prefix is never more than that of an address.
    let net = Ipv6Net::new(known.address, known.prefix.prefix_len()).unwrap_or(known.address.into());
    Address {
        address: IpNet::V6(net),
        origin: origin.to_owned(),
        state: state.to_owned(),
        preferred_seconds: left(known.preferred_until()),
        valid_seconds: left(known.valid_until()),
    }
}

fn sockets(host: &Host<Ipsec>) -> Vec<Socket> {
    let listeners = host.listeners().map(|(local, waiting)| Socket {
        protocol: "tcp".to_owned(),
        local: end(local),
        remote: None,
        state: Some("listen".to_owned()),
        receive_queue: 0,
        send_queue: waiting,
        rtt_ms: None,
    });
    let connections = host.connections().map(|(local, remote, connection)| Socket {
        protocol: "tcp".to_owned(),
        local: end(local),
        remote: Some(end(remote)),
        state: Some(tcp_state(connection.state()).to_owned()),
        receive_queue: connection.readable(),
        send_queue: connection.unacknowledged(),
        rtt_ms: connection.rtt().map(|rtt| rtt.as_secs_f64() * 1000.0),
    });
    let datagrams = host.interface().udp_sockets().map(|(local, remote)| Socket {
        protocol: "udp".to_owned(),
        local: end(local),
        remote: remote.map(end),
        state: None,
        receive_queue: 0,
        send_queue: 0,
        rtt_ms: None,
    });
    listeners.chain(connections).chain(datagrams).collect()
}

fn end(address: SocketAddrV6) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(*address.ip()).to_canonical(), address.port())
}

fn preference_name(preference: Preference) -> &'static str {
    match preference {
        Preference::Low => "low",
        Preference::Medium => "medium",
        Preference::High => "high",
    }
}

fn neighbor_state(state: State) -> &'static str {
    match state {
        State::Incomplete { .. } => "incomplete",
        State::Reachable { .. } => "reachable",
        State::Stale => "stale",
        State::Delay { .. } => "delay",
        State::Probe { .. } => "probe",
    }
}

fn tcp_state(state: tcp::State) -> &'static str {
    match state {
        tcp::State::SynSent => "syn-sent",
        tcp::State::SynReceived => "syn-received",
        tcp::State::Established => "established",
        tcp::State::FinWait1 => "fin-wait-1",
        tcp::State::FinWait2 => "fin-wait-2",
        tcp::State::CloseWait => "close-wait",
        tcp::State::Closing => "closing",
        tcp::State::LastAck => "last-ack",
        tcp::State::TimeWait => "time-wait",
        tcp::State::Closed => "closed",
    }
}
