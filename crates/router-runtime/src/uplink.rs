//! An uplink at its interface: the sockets for router advertisements, prefix delegation, and probes.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linux::echo::EchoSocket;
use linux::event::{Interest, Poller};
use linux::icmp_tap::{IcmpTap, Messages};
use linux::netlink::{Link, Netlink};
use router::delegation::{self, Client, Lease, LeasedPrefix, Received};
use router::lifetime::Lifetime;
use router::plan::Address;
use router::site::{Probing, RouterFrom, Uplink};
use router::transition::{Endpoint, Provider, clat_address};
use router::uplink::{Reachability, UplinkState};
use tracing::{info, warn};
use wire::dhcpv6::{ALL_SERVERS, CLIENT_PORT, SERVER_PORT, StatusCode};
use wire::ethernet::{self, MacAddress};
use wire::ndp::RouterSolicitation;

use super::link::{BATCH, FRAME, advertisement, link_local};
use super::lookups::Question;
use super::random::Uuid;
use super::random::random;

/// Solicitations to a link that came up, and the time between two (RFC 4861 section 10).
const SOLICITATIONS: u32 = 3;
const BETWEEN_SOLICITATIONS: Duration = Duration::from_secs(4);
/// How soon a socket is tried again that needs an address which is not there yet.
const AGAIN: Duration = Duration::from_secs(1);
/// How often routers are looked at: whether they answer.
const LOOK: Duration = Duration::from_secs(2);
/// How long a prefix is waited for before that is a problem.
const PATIENCE: Duration = Duration::from_secs(30);
/// Of the descriptors of an uplink, what is added to its number.
const TOKENS: u64 = 4;

/// An uplink and what is open for it.
pub(super) struct Interface {
    pub(super) uplink: Uplink,
    pub(super) state: UplinkState,
    probing: Probing,
    token: u64,
    uuid: Uuid,
    /// The lease of an earlier run, and its router.
    remembered: Option<Lease>,
    remembered_router: Option<Ipv6Addr>,
    open: Option<Open>,
    /// The gateway's address in a prefix of this uplink, at a network.
    inner: Option<Ipv6Addr>,
    /// What was logged last: lifetimes change all the time.
    logged: String,
}

struct Open {
    index: u32,
    mac: Option<MacAddress>,
    routers: Option<IcmpTap>,
    solicitations: u32,
    next_solicitation: Instant,
    next_look: Instant,
    client: Option<Client>,
    dhcp: Option<UdpSocket>,
    next_try: Instant,
    echo: Option<EchoSocket>,
    next_probe: Instant,
    sequence: u16,
    /// Whether a request of the last round is unanswered.
    waiting: bool,
}

/// A prefix that was asked for and is not there.
pub(super) struct PrefixWait {
    pub(super) since: Instant,
    /// What a server has answered.
    pub(super) status: Option<StatusCode>,
    /// Why there is none, in words.
    pub(super) why: String,
}

impl Interface {
    /// `first` is the number of its first descriptor, of [`Interface::tokens`].
    pub(super) fn new(
        uplink: Uplink,
        probing: Probing,
        (remembered, router): (Option<Lease>, Option<Ipv6Addr>),
        first: u64,
        uuid: Uuid,
        now: Instant,
    ) -> Self {
        let mut state = UplinkState::new(&uplink, probing);
        let remembered =
            remembered.filter(|lease| uplink.delegation.is_some() && !lease.expires().is_expired(now));
        if let Some(router) = router.filter(|_| uplink.router == RouterFrom::Advertisements) {
            state.remember_router(router, now);
        }
        // Networks have their prefix before the link is up, as in a gateway that kept running while it was down.
        state.set_lease(remembered.clone());
        Interface {
            uplink,
            state,
            probing,
            token: first,
            uuid,
            remembered,
            remembered_router: router,
            open: None,
            inner: None,
            logged: String::new(),
        }
    }

    /// Knows what another one does of the prefixes at their interface, if it is the same, and both listen to its routers.
    pub(super) fn hear_as(&mut self, other: &Interface) {
        let heard =
            |uplink: &Uplink| (uplink.router == RouterFrom::Advertisements).then(|| uplink.interface.clone());
        if heard(&self.uplink).is_some() && heard(&self.uplink) == heard(&other.uplink) {
            self.state.hear_as(&other.state);
        }
    }

    /// What its provider tells for a tunnel over it. A CLAT's address is one of a prefix that is routed here, which has the
    /// fewest neighbors, or else of the link.
    pub(super) fn provider(&self, secret: [u64; 2], now: Instant) -> Provider {
        let heard = self.state.heard_prefixes().filter(|known| known.autonomous);
        let prefixes = self.state.prefixes().map(|routed| (routed.prefix, routed.preferred, routed.valid));
        let prefixes = prefixes.chain(heard.map(|known| (known.prefix, known.preferred, known.valid)));
        let fixed = self.uplink.addresses.iter().filter_map(|address| match address.trunc() {
            IpNet::V6(net) => Some((net, Lifetime::Infinite, Lifetime::Infinite)),
            IpNet::V4(_) => None,
        });
        let usable = prefixes.chain(fixed).filter(|(_, _, valid)| !valid.is_expired(now));
        let best = usable.min_by_key(|(_, preferred, _)| preferred.is_expired(now));
        Provider {
            plat: self.state.nat64_prefixes().next(),
            clat: best.map(|(prefix, ..)| clat_address(prefix, secret)),
            router: self.state.router().and_then(|router| router.address),
            ..Provider::default()
        }
    }

    /// A question about a name for the DNS servers of its provider.
    pub(super) fn question(&self, name: &str) -> Question {
        let scope = self.open.as_ref().map_or(0, |open| open.index);
        let at = |server| SocketAddrV6::new(server, 53, 0, scope).into();
        Question {
            name: name.to_owned(),
            servers: self.state.dns_servers().into_iter().map(at).collect(),
            interface: self.uplink.interface.clone(),
            source: self.inner,
            link_up: self.state.link_up(),
        }
    }

    pub(super) fn probing(&self) -> Probing {
        self.probing
    }

    /// How many numbers an interface takes.
    pub(super) const fn tokens() -> u64 {
        TOKENS
    }

    /// The interface is so now. Whether that changes anything.
    pub(super) fn set_link(&mut self, link: Option<&Link>, poller: &Poller, now: Instant) -> bool {
        let running = link.is_some_and(|link| link.running);
        let other = match (&self.open, link) {
            (Some(open), Some(link)) => open.index != link.index || open.mac != link.mac,
            (Some(_), None) => true,
            (None, _) => true,
        };
        if running == self.state.link_up() && !(running && other) {
            return false;
        }
        if other {
            if let Some(open) = self.open.take() {
                open.close(poller);
                self.remembered = open.client.and_then(|client| client.lease().cloned());
            }
            self.open = match link.filter(|link| link.running) {
                Some(link) => self.open(link, poller, now),
                None => None,
            };
        } else if running && let Some(open) = &mut self.open {
            open.solicitations = SOLICITATIONS;
            open.next_solicitation = now;
            open.next_look = now;
            if let Some(client) = &mut open.client {
                client.handle_link_up(now, random());
            }
        }
        let (uplink, reason) = (self.uplink.name.as_str(), if running { "up" } else { "down" });
        info!(event = "link", uplink, reason, "uplink {uplink}: the link is {reason}");
        self.state.set_link(running, now);
        true
    }

    fn open(&mut self, link: &Link, poller: &Poller, now: Instant) -> Option<Open> {
        let listens = self.uplink.router == RouterFrom::Advertisements && link.mac.is_some();
        let complain = |error: &linux::Error| warn!("uplink {}: {error}", self.uplink.name);
        if self.uplink.router == RouterFrom::Advertisements && !listens {
            warn!(
                "uplink {}: {} has no MAC address, so router advertisements cannot be received there: set `router` to \
                 its address, or to \"point-to-point\"",
                self.uplink.name, link.name
            );
        }
        let routers = if listens {
            let header = ethernet::HEADER_LEN as u8;
            IcmpTap::open(link.index, header, Messages::RouterAdvertisements).inspect_err(complain).ok()
        } else {
            None
        };
        if let Some(listener) = &routers {
            poller.add(listener, self.token, Interest::Readable).inspect_err(complain).ok()?;
        }
        let echo = if self.uplink.probes.is_empty() {
            None
        } else {
            let identifier = random() as u16;
            EchoSocket::open(&link.name, identifier).inspect_err(complain).ok()
        };
        if let Some(socket) = &echo {
            poller.add(socket, self.token + 2, Interest::Readable).inspect_err(complain).ok()?;
        }
        let client = self.uplink.delegation.map(|wanted| {
            // By link-layer address (RFC 8415 section 11.4), or UUID (RFC 6355): the same after every restart.
            let duid = match link.mac {
                Some(mac) => [&[0, 3, 0, 1][..], &mac.0].concat(),
                None => [&[0, 4][..], &self.uuid].concat(),
            };
            let iaid = iaid(&self.uplink.name);
            let settings =
                delegation::Settings { duid, iaid, prefix_length_hint: wanted.length, aftr: wanted.aftr };
            match self.remembered.take() {
                Some(lease) => Client::resume(settings, lease, now, random()),
                None => Client::new(settings, now, random()),
            }
        });
        if let Some(client) = &client {
            self.state.set_lease(client.lease().cloned());
        }
        Some(Open {
            index: link.index,
            mac: link.mac,
            routers,
            solicitations: SOLICITATIONS,
            next_solicitation: now,
            next_look: now,
            client,
            dhcp: None,
            next_try: now,
            echo,
            next_probe: now,
            sequence: 0,
            waiting: false,
        })
    }

    /// When [`Interface::handle_timeout`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let open = self.open.as_ref().filter(|_| self.state.link_up());
        let of_open = open.into_iter().flat_map(|open| {
            let solicitation =
                open.routers.as_ref().and((open.solicitations > 0).then_some(open.next_solicitation));
            let client = open.client.as_ref().and_then(Client::deadline);
            let client = client.map(|at| if open.dhcp.is_none() { at.max(open.next_try) } else { at });
            let probe = open.echo.as_ref().map(|_| open.next_probe);
            [solicitation, client, probe, Some(open.next_look)]
        });
        of_open.chain([self.state.deadline()]).flatten().min()
    }

    /// Does what is due. Whether what is known of the uplink is another now.
    pub(super) fn handle_timeout(&mut self, netlink: &mut Netlink, poller: &Poller, now: Instant) -> bool {
        let mut changed = self.state.expire(now);
        let Some(open) = self.open.as_mut().filter(|_| self.state.link_up()) else { return changed };
        if let (Some(listener), Some(mac)) = (&open.routers, open.mac)
            && open.solicitations > 0
            && now >= open.next_solicitation
        {
            let _ = listener.send(&RouterSolicitation.to_frame(mac));
            open.solicitations -= 1;
            open.next_solicitation = now + BETWEEN_SOLICITATIONS;
        }
        if now >= open.next_look {
            changed |= look_at_routers(&mut self.state, netlink, open.index);
            open.next_look = now + LOOK;
        }
        if open.client.is_some() && open.dhcp.is_none() && now >= open.next_try {
            open.dhcp = dhcp_socket(netlink, open.index);
            open.next_try = now + AGAIN;
            if let Some(socket) = &open.dhcp
                && let Err(error) = poller.add(socket.as_fd(), self.token + 1, Interest::Readable)
            {
                warn!("uplink {}: {error}", self.uplink.name);
                open.dhcp = None;
            }
        }
        if let (Some(client), Some(socket)) = (&mut open.client, &open.dhcp) {
            let before = client.lease().cloned();
            while let Some(datagram) = client.poll(now, random()) {
                // What does not leave is sent again, as if it were lost.
                let _ = socket.send_to(&datagram, SocketAddrV6::new(ALL_SERVERS, SERVER_PORT, 0, open.index));
            }
            if client.lease() != before.as_ref() {
                let uplink = self.uplink.name.as_str();
                warn!(event = "lease_expired", uplink, "uplink {uplink}: the lease has expired");
                self.state.set_lease(client.lease().cloned());
                changed = true;
            }
        }
        if let Some(echo) = &open.echo
            && now >= open.next_probe
        {
            if open.waiting {
                changed |= self.state.handle_probe(false);
            }
            open.sequence = open.sequence.wrapping_add(1);
            self.state.begin_probe();
            for host in &self.uplink.probes {
                // From where hosts send: what the link has advertised may be forged, and the kernel could take an address
                // of another uplink, which this one's provider lets nothing through from.
                let sent = match self.inner.map(|inner| echo.send(*host, Some(inner), open.sequence)) {
                    Some(Ok(true)) => Ok(true),
                    _ => echo.send(*host, None, open.sequence),
                };
                if let Err(error) = sent {
                    warn!("uplink {}: {error}", self.uplink.name);
                }
            }
            open.waiting = true;
            open.next_probe = now + self.probing.interval;
        }
        if changed {
            self.log_changes();
        }
        changed
    }

    /// Whether the descriptor of this number is one of the interface's.
    pub(super) fn owns(&self, token: u64) -> bool {
        (self.token..self.token + TOKENS).contains(&token)
    }

    /// The descriptor of this number, of the interface's own, can be read. Whether what is known of the uplink is another
    /// now.
    pub(super) fn handle_readable(&mut self, token: u64, now: Instant) -> bool {
        let changed = match token - self.token {
            0 => self.receive_advertisements(now),
            1 => self.receive_leases(now),
            _ => self.receive_echo_replies(),
        };
        if changed {
            self.log_changes();
        }
        changed
    }

    fn receive_advertisements(&mut self, now: Instant) -> bool {
        let Some(Open { routers: Some(listener), solicitations, .. }) = &mut self.open else { return false };
        let mut buffer = [0; FRAME];
        let mut changed = false;
        for _ in 0..BATCH {
            let Ok(Some(length)) = listener.recv(&mut buffer) else { break };
            if let Some((source, content)) = advertisement(&buffer[..length]) {
                changed |= self.state.handle_advertisement(source, &content, now);
                // Somebody else's advertisement is no answer of the router in use (RFC 4861 section 6.3.7).
                if self.state.router().is_some_and(|router| router.address == Some(source)) {
                    *solicitations = 0;
                }
            }
        }
        changed
    }

    fn receive_leases(&mut self, now: Instant) -> bool {
        let Some(Open { client: Some(client), dhcp: Some(socket), .. }) = &mut self.open else {
            return false;
        };
        let mut buffer = [0; FRAME];
        let mut changed = false;
        for _ in 0..BATCH {
            let Ok((length, _)) = socket.recv_from(&mut buffer) else { break };
            changed |= client.handle_datagram(&buffer[..length], now, random()) == Received::LeaseChanged;
        }
        if changed {
            self.state.set_lease(client.lease().cloned());
        }
        changed
    }

    fn receive_echo_replies(&mut self) -> bool {
        let Some(Open { echo: Some(socket), sequence, waiting, .. }) = &mut self.open else { return false };
        let mut changed = false;
        for _ in 0..BATCH {
            let Ok(Some((source, answered))) = socket.recv() else { break };
            // One of them is enough.
            if answered == *sequence && *waiting && self.uplink.probes.contains(&source) {
                *waiting = false;
                changed |= self.state.handle_probe(true);
            }
        }
        changed
    }

    /// A tunnel has this end now, and so perhaps a prefix of its address. Without an end it keeps the one that it had, as a
    /// lease is kept while a link is down. Whether that changes anything.
    pub(super) fn set_end(&mut self, end: Option<&Endpoint>) -> bool {
        let Some(end) = end else { return false };
        let before = self.state.domain_route();
        self.state.set_domain_route(end.domain_route());
        let Some(prefix) =
            end.delegated().filter(|prefix| self.state.leased_prefixes().all(|leased| leased != *prefix))
        else {
            return before != end.domain_route();
        };
        let leased = LeasedPrefix { prefix, preferred: Lifetime::Infinite, valid: Lifetime::Infinite };
        self.state.set_lease(Some(Lease {
            iaid: 0,
            server: Vec::new(),
            prefixes: vec![leased],
            renew: Lifetime::Infinite,
            rebind: Lifetime::Infinite,
            dns_servers: Vec::new(),
            aftr: None,
        }));
        self.log_changes();
        true
    }

    /// What it waits for, if that is a prefix.
    pub(super) fn waits_for_prefix(&self) -> Option<PrefixWait> {
        let open = self.open.as_ref().filter(|_| self.state.link_up())?;
        let wait = open.client.as_ref()?.wait()?;
        let why = match &wait.answer {
            _ if open.dhcp.is_none() => {
                format!("there is no link-local address, or its port {CLIENT_PORT} is in use")
            }
            None => "no server answers".to_owned(),
            Some((status, words)) => {
                let says = match status {
                    StatusCode::Success => "a server answers, but delegates none".to_owned(),
                    status => format!("a server answers {status}"),
                };
                if words.is_empty() { says } else { format!("{says}: {words}") }
            }
        };
        let status = wait.answer.as_ref().map(|(status, _)| *status);
        Some(PrefixWait { since: wait.since, status, why })
    }

    /// What is not as it should be, in words that stay the same as long as that does.
    pub(super) fn problems(&self, now: Instant) -> impl Iterator<Item = String> {
        let wait =
            self.waits_for_prefix().filter(|wait| now.saturating_duration_since(wait.since) >= PATIENCE);
        let (name, patience) = (&self.uplink.name, PATIENCE.as_secs());
        let no_prefix = wait.map(|wait| {
            format!("uplink {name}: no prefix after more than {patience} s of DHCPv6 requests: {}", wait.why)
        });
        let dead = self.state.router().filter(|router| router.reachability == Reachability::Unreachable);
        let no_router = dead.and_then(|router| router.address).map(|address| {
            format!(
                "uplink {name}: router {address} does not answer neighbor solicitations, nor does any other"
            )
        });
        no_prefix.into_iter().chain(no_router)
    }

    /// The router to begin with in the next run: one that answers, or did in the run before.
    pub(super) fn known_router(&self) -> Option<Ipv6Addr> {
        let router = self.state.router()?;
        let answers = router.reachability == Reachability::Reachable;
        router.address.filter(|_| answers || router.address == self.remembered_router)
    }

    /// Learns which addresses the gateway gives itself on the link: the low 64 bits are those of its link-local address, unless
    /// its administrator wants none.
    pub(super) fn learn_identifier(&mut self, netlink: &mut Netlink) {
        let autoconf = linux::sysctl::read(&self.uplink.interface, "autoconf");
        let open = self
            .open
            .as_ref()
            .filter(|open| open.routers.is_some() && autoconf.as_ref().is_ok_and(|autoconf| autoconf != "0"));
        let own = open.and_then(|open| link_local(netlink, open.index));
        self.state.set_interface_identifier(own.map(|own| own.to_bits() as u64));
    }

    /// Has the kernel ask for a router itself, which it has not listened to so far.
    pub(super) fn hand_back(&self) {
        if let Some(Open { routers: Some(listener), mac: Some(mac), .. }) = &self.open {
            let _ = listener.send(&RouterSolicitation.to_frame(*mac));
        }
    }

    /// These are the gateway's addresses now.
    pub(super) fn set_addresses(&mut self, addresses: &[Address]) {
        let of_prefix =
            |address: &Ipv6Addr| self.state.prefixes().any(|leased| leased.prefix.contains(address));
        let mut at_networks = addresses.iter().filter(|address| address.interface != self.uplink.interface);
        self.inner = at_networks.find_map(|address| match address.address.addr() {
            IpAddr::V6(address) => Some(address).filter(of_prefix),
            IpAddr::V4(_) => None,
        });
    }

    /// What there is of a lease, for the next run.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.open {
            Some(open) => open.client.as_ref().and_then(Client::lease),
            None => self.remembered.as_ref(),
        }
    }

    pub(super) fn close(&mut self, poller: &Poller) {
        if let Some(open) = self.open.take() {
            open.close(poller);
        }
    }

    fn log_changes(&mut self) {
        let prefixes: Vec<_> = self.state.prefixes().map(|leased| leased.prefix.to_string()).collect();
        let router = match self.state.router() {
            None => "no router".to_owned(),
            Some(router) => router.address.map_or("up".to_owned(), |address| format!("router {address}")),
        };
        let answers = if self.state.answers() { "" } else { ", and no probe is answered" };
        let prefixes = match prefixes.as_slice() {
            [] => "no prefix".to_owned(),
            prefixes => format!("prefixes: {}", prefixes.join(", ")),
        };
        let state = format!("{router}, {prefixes}{answers}");
        if state != self.logged {
            let uplink = self.uplink.name.as_str();
            info!(event = "uplink", uplink, "uplink {uplink}: {state}");
            self.logged = state;
        }
    }
}

impl Open {
    fn close(&self, poller: &Poller) {
        // What is closed leaves the set by itself; errors here are of no use to anybody.
        if let Some(listener) = &self.routers {
            let _ = poller.remove(listener);
        }
        if let Some(socket) = &self.dhcp {
            let _ = poller.remove(socket.as_fd());
        }
        if let Some(socket) = &self.echo {
            let _ = poller.remove(socket);
        }
    }
}

/// The IAID of an uplink: the same after every restart, and wherever it is in the file (FNV-1a).
fn iaid(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A client's socket at the link-local address of an interface; None while there is no such address.
fn dhcp_socket(netlink: &mut Netlink, index: u32) -> Option<UdpSocket> {
    let address = link_local(netlink, index)?;
    let socket = UdpSocket::bind(SocketAddrV6::new(address, CLIENT_PORT, 0, index));
    let socket =
        socket.inspect_err(|error| warn!("port {CLIENT_PORT} of {address}%{index}: {error}")).ok()?;
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

/// Asks the kernel what neighbor unreachability detection has found out about routers (RFC 4861 section 7.3), and to go on
/// with those that no packets go to. Whether anything is another than before.
fn look_at_routers(state: &mut UplinkState, netlink: &mut Netlink, index: u32) -> bool {
    let mut changed = false;
    for address in state.router_addresses().collect::<Vec<_>>() {
        // What is between the two, as an entry that is stale, says nothing new.
        match netlink.neighbor(index, address.into()) {
            Ok(Some(found)) if found.confirmed => {
                changed |= state.set_reachability(address, Reachability::Reachable);
            }
            Ok(Some(found)) if found.failed => {
                changed |= state.set_reachability(address, Reachability::Unreachable);
            }
            _ => {}
        }
        // Where the interface is going the next look tells.
        let _ = netlink.solicit_neighbor(index, address.into());
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An uplink that asks for a prefix, and whose link has not been looked at.
    fn port(delegation: bool, remembered: Lease, now: Instant) -> Interface {
        let uplink = Uplink {
            name: "fibre".into(),
            interface: "eth0".into(),
            router: RouterFrom::Advertisements,
            addresses: Vec::new(),
            prefixes: Vec::new(),
            delegation: delegation.then(Default::default),
            probes: Vec::new(),
            ipv4_router: None,
            masquerade: false,
            tunnel: None,
            bandwidth: None,
        };
        Interface::new(uplink, Probing::default(), (Some(remembered), None), 16, [5; 16], now)
    }

    #[test]
    fn iaids_are_of_names() {
        assert_eq!(iaid("foobar"), 0xbf9c_f968, "the vector of FNV-1a");
        assert_ne!(iaid("fibre"), iaid("cable"));
    }

    #[test]
    fn a_remembered_lease_is_there_before_the_link_if_it_has_not_run_out() {
        let now = Instant::now();
        let lease = |valid| Lease {
            iaid: 1,
            server: vec![1],
            prefixes: vec![LeasedPrefix {
                prefix: "2001:db8::/56".parse().expect("a prefix"),
                preferred: valid,
                valid,
            }],
            renew: valid,
            rebind: valid,
            dns_servers: Vec::new(),
            aftr: None,
        };
        let later = lease(Lifetime::Until(now + Duration::from_secs(60)));
        let waiting = port(true, later.clone(), now);
        assert_eq!(waiting.state.prefixes().collect::<Vec<_>>(), later.prefixes);
        assert_eq!((waiting.lease(), waiting.state.works()), (Some(&later), false));
        assert_eq!(port(false, later, now).state.prefixes().count(), 0);
        assert_eq!(port(true, lease(Lifetime::Until(now)), now).state.prefixes().count(), 0);
    }
}
