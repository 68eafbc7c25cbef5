//! Why a peer is not heard, as far as this machine can know: what comes in from its prefix before any firewall, what routers
//! say of what is sent to it, and why what is sent does not leave.
//!
//! Nothing is looked at as long as all peers are well. While one is not, a packet socket sees what comes from its prefix; after
//! some minutes only for a part of the time, since such a socket is asked about each packet of the interface.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use control::tunnel_status::Fault;
use ipnet::Ipv6Net;
use linux::netlink::Netlink;
use linux::witness::{SOURCES, Sighting, Witness};
use mt6d::{DropReason, Node, Now, PeerState, SendFailure, Silence, Time, Unheard};
use tracing::{debug, warn};

use crate::happened;
use crate::obstacles::host_in;

/// How often it is looked at what came, and what is to be looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Sightings that are looked at in a turn: the rest is lost, and comes again.
const SHARE: usize = 64;
/// A peer that was tried, or silent, for less is no trouble yet.
const TROUBLE_AFTER: Duration = Duration::from_secs(2);
/// Where more peers are in trouble than a socket looks for, others have their turn after this time.
const TURN: Duration = Duration::from_secs(10);
/// A router looks so long for a neighbor before it says that there is none (RFC 4861, 10), and some more.
const ROUTERS_TAKE: Duration = Duration::from_millis(3500);
/// For so long all the time; then in each period so long, in which each of two ends tries at least once.
const ALWAYS_FOR: Duration = Duration::from_secs(300);
const PERIOD: Duration = Duration::from_secs(600);
const IN_PERIOD: Duration = Duration::from_secs(70);
/// What was seen counts for this long where there is a session, and without one, where a peer tries again within a minute.
const IN_SESSION: Duration = Duration::from_secs(5);
const COUNTS_FOR: Duration = Duration::from_secs(90);

/// What is known of a peer that is not heard.
#[derive(Debug, Default)]
struct Known {
    /// A datagram from its prefix came to an endpoint that is open, and one to another address.
    arrived: Option<Time>,
    elsewhere: Option<Time>,
    /// One came to an endpoint, and did not open or came before; and how many of them there were.
    altered: Option<Time>,
    unopened: u64,
    /// An ICMPv6 error about what was sent to it: from whom, type and code.
    error: Option<(Time, Ipv6Addr, u8, u8)>,
    /// How many of its datagrams had another source than they began with, when the trouble began.
    rewritten_before: u64,
    rewritten: bool,
    /// The kernel knows a way to its prefix.
    routed: bool,
    /// What follows from it, and what of that was told last.
    fault: Option<Fault>,
    told: Option<&'static str>,
}

/// What is known of all of them.
pub(crate) struct Evidence {
    external: String,
    hop_prefix: Ipv6Net,
    netlink: Option<Netlink>,
    witness: Option<(Witness, u32, Vec<Ipv6Net>)>,
    link_up: bool,
    known: BTreeMap<String, Known>,
    next_look: Option<Time>,
    next_renewal: Time,
}

impl Evidence {
    pub(crate) fn new(external: &str, hop_prefix: Ipv6Net) -> Self {
        Evidence {
            external: external.to_owned(),
            hop_prefix,
            netlink: None,
            witness: None,
            link_up: true,
            known: BTreeMap::new(),
            next_look: None,
            next_renewal: Time::default(),
        }
    }

    /// When [`Evidence::look`] is to be called next.
    pub(crate) fn deadline(&self) -> Time {
        self.next_look.map_or(self.next_renewal, |look| look.min(self.next_renewal))
    }

    /// Looks at what came, and at who is in trouble; tells what has become known.
    pub(crate) fn look(&mut self, node: &Node, now: Now) {
        if self.next_look.is_some_and(|at| now.boot >= at) {
            self.next_look = Some(now.boot + LOOK_EVERY);
            self.read(node, now.boot);
        }
        if now.boot >= self.next_renewal {
            self.next_renewal = now.boot + RENEW_EVERY;
            self.renew(node, now);
        }
    }

    /// What is wrong with a peer, in one word and one sentence; nothing where nothing is known to be.
    pub(crate) fn fault(&self, peer: &str) -> Option<Fault> {
        self.known.get(peer)?.fault.clone()
    }

    fn read(&mut self, node: &Node, now: Time) {
        let mut prefixes: Vec<_> =
            node.unheard(Now { boot: now, unix_ms: 0 }).map(|peer| (peer.hop_prefix, peer.name)).collect();
        prefixes.sort();
        for _ in 0..SHARE {
            let Some((witness, _, _)) = &self.witness else { return };
            let sighting = match witness.next() {
                Ok(Some(sighting)) => sighting,
                Ok(None) => return,
                Err(error) => {
                    debug!("{error}");
                    self.witness = None;
                    return;
                }
            };
            self.note(sighting, &prefixes, node, now);
        }
    }

    /// What something that was seen says of the peers in these prefixes.
    fn note(&mut self, sighting: Sighting, prefixes: &[(Ipv6Net, &str)], node: &Node, now: Time) {
        let about = match sighting {
            Sighting::Datagram { source, .. } => *source.ip(),
            // Only peers and who sees what passes know where an endpoint is.
            Sighting::Error { to, source, destination, .. }
                if *source.ip() == to && (node.is_at(source) || node.was_at(source)) =>
            {
                *destination.ip()
            }
            Sighting::Error { .. } => return,
        };
        for (_, name) in prefixes.iter().filter(|(prefix, _)| prefix.contains(&about)) {
            let Some(known) = self.known.get_mut(*name) else { continue };
            match sighting {
                Sighting::Datagram { destination, .. } if node.is_at(destination) => {
                    known.arrived = Some(now);
                }
                // It is late: its sender has the keys.
                Sighting::Datagram { destination, .. } if node.was_at(destination) => {}
                Sighting::Datagram { destination, .. } if self.hop_prefix.contains(destination.ip()) => {
                    known.elsewhere = Some(now);
                }
                Sighting::Datagram { .. } => {}
                Sighting::Error { from, kind, code, .. } => known.error = Some((now, from, kind, code)),
            }
        }
    }

    fn renew(&mut self, node: &Node, now: Now) {
        self.hop_prefix = node.hop_prefix();
        let peers: Vec<_> = node.unheard(now).filter(|peer| peer.since >= TROUBLE_AFTER).collect();
        self.count(&peers, now.boot);
        for peer in &peers {
            let known = self.known.get_mut(peer.name).expect("just made");
            // What an ICMPv6 error has said makes a send fail, too.
            let there = host_in(peer.hop_prefix.network()).into();
            known.routed =
                self.netlink.as_mut().is_none_or(|netlink| !matches!(netlink.route_to(there), Ok(None)));
        }
        let wanted = wanted(&peers, now.boot);
        self.open(&wanted);
        self.next_look = self.witness.is_some().then(|| now.boot + LOOK_EVERY);
        for peer in &peers {
            let (code, says) = self.verdict(peer, &self.known[peer.name]);
            let known = self.known.get_mut(peer.name).expect("just made");
            known.fault = Some(Fault { code: code.to_owned(), says: says.clone() });
            let is_vague = VAGUE.contains(&code);
            // A silence was told when it began; and to whom a try has just left an answer may be on its way.
            let is_news = match peer.state {
                PeerState::Silent(_) => !is_vague,
                _ => !is_vague || peer.since >= 2 * TROUBLE_AFTER,
            };
            if !is_news || known.told == Some(code) {
                continue;
            }
            known.told = Some(code);
            let peer = peer.name;
            warn!(event = "peer_unreachable", peer, reason = code, "{peer}: {says}");
        }
    }

    /// Keeps something known of each of these and of no other, and what has been counted for them since.
    fn count(&mut self, peers: &[Unheard<'_>], now: Time) {
        self.known.retain(|name, _| peers.iter().any(|peer| peer.name == name));
        for peer in peers {
            if !self.known.contains_key(peer.name) {
                let (rewritten_before, unopened) = (peer.source_rewritten, peer.unopened);
                let known = Known { rewritten_before, unopened, ..Known::default() };
                self.known.insert(peer.name.to_owned(), known);
            }
            let known = self.known.get_mut(peer.name).expect("just made");
            known.rewritten = peer.source_rewritten > known.rewritten_before;
            if peer.unopened > std::mem::replace(&mut known.unopened, peer.unopened) {
                known.altered = Some(now);
            }
        }
    }

    /// Has the socket look for these, or closes it.
    fn open(&mut self, wanted: &[Ipv6Net]) {
        if wanted.is_empty() {
            (self.witness, self.netlink, self.link_up) = (None, None, true);
            return;
        }
        if self.netlink.is_none() {
            self.netlink = Netlink::open().inspect_err(|error| debug!("{error}")).ok();
        }
        let Some(netlink) = &mut self.netlink else { return };
        let link = netlink.link_by_name(&self.external).ok().flatten();
        self.link_up = link.as_ref().is_some_and(|link| link.running);
        let Some(link) = link else { return self.witness = None };
        if self.witness.as_ref().is_some_and(|(_, index, nets)| *index == link.index && nets == wanted) {
            return;
        }
        let witness = Witness::open(&link, wanted).inspect_err(|error| debug!("{error}")).ok();
        self.witness = witness.map(|witness| (witness, link.index, wanted.to_vec()));
    }

    fn verdict(&self, peer: &Unheard<'_>, known: &Known) -> (&'static str, String) {
        let (external, ours, theirs) = (&self.external, self.hop_prefix, peer.hop_prefix);
        // Where there is a session, both ends ask again and again. Without one the peer tries within a minute, and what is said
        // of our own tries is said at once.
        let silent = matches!(peer.state, PeerState::Silent(_));
        let recent = |at: Option<Time>, limit| at.is_some_and(|at| self.next_renewal.since(at) < limit);
        let of_peer = |at| recent(at, if silent { IN_SESSION } else { COUNTS_FOR });
        let of_ours = |at| recent(at, peer.sent.unwrap_or_default() + IN_SESSION);
        if !self.link_up {
            return (
                "link_down",
                format!(
                    "the interface {external} is down, or gone: `ip link set {external} up`, or look at its cable"
                ),
            );
        }
        match peer.send_failure {
            Some(SendFailure::NoRoute) if !known.routed => {
                return (
                    "no_route",
                    format!(
                        "this machine has no route to {theirs}: look at `ip -6 route get {}`",
                        theirs.network()
                    ),
                );
            }
            Some(SendFailure::Refused) => {
                return (
                    "refused_here",
                    format!(
                        "a firewall of this machine refuses what is sent to {theirs}: accept it in the output chain (`ip6 saddr {ours} udp accept`)"
                    ),
                );
            }
            Some(_) | None => {}
        }
        if known.rewritten {
            return (
                "source_rewritten",
                "its datagrams come with another source address or port than they were sent with: a translator (NAT66) is in the path, which is not supported; prefixes may be translated where both ends set `translated`".to_owned(),
            );
        }
        // One that was heard since, or whose messages of a handshake came, did not meet a firewall.
        let came_before = |came: Option<Duration>, at: Time, by: Duration| {
            let ago = self.next_renewal.since(at);
            came.is_none_or(|came| came > ago + by)
        };
        let unheard_of = |at: &Time| {
            [peer.heard, peer.contact]
                .into_iter()
                .all(|came| came_before(came, *at, LOOK_EVERY + RENEW_EVERY))
        };
        let [arrived, elsewhere, altered] =
            [known.arrived, known.elsewhere, known.altered].map(|at| at.filter(unheard_of));
        let refused =
            peer.refused.filter(|(_, ago)| *ago < COUNTS_FOR && peer.heard.is_none_or(|heard| heard > *ago));
        if let Some((why, _)) = refused.filter(|_| peer.state == PeerState::Handshake) {
            return (
                "refused_contact",
                format!("its first messages arrive, and are refused: {}", refusal(why)),
            );
        }
        let hears_nothing = peer.state == PeerState::Silent(Silence::NothingArrives);
        if of_peer(altered) && !hears_nothing {
            return (
                "altered",
                format!(
                    "its datagrams arrive altered, or are old ones again, so that none opens: something on the path does that; compare what leaves the peer with what arrives here (`tcpdump -Xni {external} src net {theirs}`)"
                ),
            );
        }
        if of_peer(arrived) && !hears_nothing {
            return (
                "filtered_here",
                format!(
                    "its datagrams arrive at {external}, and a firewall of this machine drops them: accept them in the input chain (`ip6 daddr {ours} udp dport 1024-65535 accept`); or, if `nstat -az Udp6InCsumErrors` grows, the path damages them"
                ),
            );
        }
        // What a router said of something that was sent before the peer was heard is no longer true, unless one direction works.
        let is_true = |at| of_ours(Some(at)) && (hears_nothing || came_before(peer.heard, at, ROUTERS_TAKE));
        let error = known.error.filter(|(at, ..)| is_true(*at));
        if let Some((_, from, kind, code)) = error {
            return icmp(from, kind, code, theirs);
        }
        if of_peer(elsewhere) && peer.state == PeerState::Handshake {
            return (
                "another_key",
                format!(
                    "datagrams come from {theirs}, but to addresses that are not those of this pair: one end has another public key or preshared key for the other (`sidestep pubkey`, `sidestep check`), or their clocks are more than an hour apart (`clockless`); or the peer goes on for some seconds with a session that this end has lost"
                ),
            );
        }
        match peer.state {
            PeerState::Silent(silence) => (happened::code(silence), happened::says(silence).to_owned()),
            _ if peer.contact.is_some_and(|ago| ago < COUNTS_FOR) => (
                NOTHING_ARRIVES,
                format!(
                    "its first messages arrive, and it answers none of ours: something between drops what goes to {theirs}, such as its firewall, or the prefix is not routed to it"
                ),
            ),
            _ => (
                NO_ANSWER,
                format!(
                    "nothing comes back from {theirs}: is the peer running, with this node as its peer, is its prefix routed to it, and does its firewall let UDP to it pass?"
                ),
            ),
        }
    }
}

/// What says no more than that it does not work.
const VAGUE: [&str; 3] = [NO_ANSWER, "nothing_comes", NOTHING_ARRIVES];
const NOTHING_ARRIVES: &str = "nothing_arrives";
const NO_ANSWER: &str = "no_answer";

/// The prefixes to look for now.
fn wanted(peers: &[Unheard<'_>], now: Time) -> Vec<Ipv6Net> {
    let in_turn = |peer: &&Unheard<'_>| {
        peer.since < ALWAYS_FOR
            || now.since(Time::default()).as_secs() % PERIOD.as_secs() < IN_PERIOD.as_secs()
    };
    let mut prefixes: Vec<_> = peers.iter().filter(in_turn).map(|peer| peer.hop_prefix).collect();
    prefixes.sort();
    prefixes.dedup();
    if prefixes.len() > SOURCES {
        let turn = (now.since(Time::default()).as_secs() / TURN.as_secs()) as usize;
        let first = turn * SOURCES % prefixes.len();
        prefixes.rotate_left(first);
        prefixes.truncate(SOURCES);
    }
    prefixes
}

/// Why a first message is refused, and what to do.
fn refusal(why: DropReason) -> String {
    match why {
        DropReason::HandshakeOld | DropReason::HandshakeRepeated => {
            "they are from the past: a clock was set back, here or there, and a later try succeeds once it has caught up (timedatectl)".to_owned()
        }
        DropReason::HandshakeLate => "answers take more than five seconds: the path or an end is overloaded".to_owned(),
        DropReason::HandshakeFailed => "what is in them cannot be understood: the two ends have different versions".to_owned(),
        other => format!("`{}`", other.name()),
    }
}

/// What a router says (RFC 4443, 3).
fn icmp(from: Ipv6Addr, kind: u8, code: u8, theirs: Ipv6Net) -> (&'static str, String) {
    let says = |what: &str| format!("{from} says of what is sent to {theirs}: {what}");
    match (kind, code) {
        (1, 0) => ("no_route_there", says("no route: the prefix is not routed to the peer")),
        (1, 1) => ("prohibited_there", says("prohibited: a firewall refuses it")),
        (1, 3) => (
            "unreachable_there",
            says(
                "address unreachable: the prefix ends on a link, and nobody there has the address: route the prefix to the peer, or is the peer down?",
            ),
        ),
        (1, 4) => (
            "refused_there",
            says(
                "no such port: the prefix is there, but Sidestep is not running, or not with this pair's keys",
            ),
        ),
        (1, 5 | 6) => ("prohibited_there", says("refused by a policy, such as a firewall")),
        (3, 0) => (
            "loop_there",
            says(
                "hop limit exceeded: it goes round in circles, as where a provider routes a prefix to a router that sends it back",
            ),
        ),
        (2, _) => ("too_big_there", says("too big")),
        _ => ("error_there", says(&format!("ICMPv6 type {kind}, code {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::SocketAddrV6;
    use std::ops::Range;

    use mt6d::config::{NOWHERE, NodeConfig, PeerConfig, REKEY_AFTER};
    use mt6d::keys::PrivateKey;
    use mt6d::{Action, Deliver, Outbox};

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A peer that has been tried for a while, in vain.
    fn tried() -> Unheard<'static> {
        Unheard {
            name: "site-b",
            state: PeerState::Handshake,
            since: s(20),
            hop_prefix: "2001:db8:b1::/64".parse().unwrap(),
            heard: None,
            contact: None,
            refused: None,
            sent: Some(s(10)),
            send_failure: None,
            source_rewritten: 0,
            unopened: 0,
        }
    }

    /// What is said of it when ten seconds ago a router has said that there is nobody, or nothing came.
    fn said(peer: Unheard<'_>, error: bool) -> &'static str {
        let mut evidence = Evidence::new("eth0", "2001:db8:a1::/64".parse().unwrap());
        evidence.next_renewal = Time::default() + s(1000);
        let error = error.then(|| (Time::default() + s(990), "2001:db8:ff::1".parse().unwrap(), 1, 3));
        evidence.verdict(&peer, &Known { error, routed: true, ..Known::default() }).0
    }

    #[test]
    fn what_a_router_said_before_the_peer_was_heard_counts_no_more() {
        assert_eq!(said(tried(), true), "unreachable_there");
        assert_eq!(said(Unheard { heard: Some(s(15)), ..tried() }, true), "unreachable_there");
        let heard = Unheard { heard: Some(s(12)), ..tried() };
        assert_eq!(said(heard, true), "no_answer");
        assert_eq!(
            said(Unheard { state: PeerState::Silent(Silence::NothingComes), ..heard }, true),
            "nothing_comes"
        );
        // It is heard all the time, and the way there is cut.
        let one_way =
            Unheard { state: PeerState::Silent(Silence::NothingArrives), heard: Some(s(0)), ..tried() };
        assert_eq!(said(one_way, true), "unreachable_there");
    }

    #[test]
    fn what_a_router_said_of_a_try_counts_until_the_next() {
        assert_eq!(said(Unheard { sent: Some(s(6)), ..tried() }, true), "unreachable_there");
        assert_eq!(said(Unheard { sent: Some(s(4)), ..tried() }, true), "no_answer");
    }

    #[test]
    fn a_peer_whose_first_messages_arrive_is_not_called_absent() {
        let contact = Unheard { contact: Some(s(1)), ..tried() };
        assert_eq!(said(contact, false), "nothing_arrives");
        assert_eq!(said(contact, true), "unreachable_there");
        let refused = Unheard { refused: Some((DropReason::HandshakeOld, s(1))), ..contact };
        assert_eq!(said(refused, true), "refused_contact");
        assert_eq!(said(Unheard { heard: Some(s(0)), ..refused }, false), "nothing_arrives");
    }

    /// A node that looks for its peer, and where it does that.
    fn looking(peer: &Unheard<'_>) -> (Node, SocketAddrV6) {
        struct Nothing;
        impl Deliver for Nothing {
            fn packet(&mut self, _: &[u8], _: &[u8], _: Range<usize>) {}
            fn whole_packet(&mut self, _: &[u8]) {}
        }
        let key = PrivateKey::from_bytes([2; 32]).public();
        let inside = vec!["2001:db8:b::/64".parse().unwrap()];
        let config = NodeConfig {
            private_key: PrivateKey::from_bytes([1; 32]),
            previous_key: None,
            hop_prefix: "2001:db8:a1::/64".parse().unwrap(),
            link_mtu: 1500,
            hardware_aes: false,
            addresses: Vec::new(),
            rekey_after: REKEY_AFTER,
            peers: vec![PeerConfig::new(peer.name, key, peer.hop_prefix, inside)],
        };
        let now = Now { boot: Time::from_micros(1_000_000), unix_ms: 1_800_000_000_000 };
        let mut node = Node::new(config, &HashMap::new(), || [7; 32], now).unwrap();
        node.handle_timeout(now, &mut Outbox::new(), &mut Nothing);
        let opened = std::iter::from_fn(|| node.next_action()).find_map(|action| match action {
            Action::Open { local, .. } => Some(local),
            _ => None,
        });
        (node, opened.expect("an endpoint"))
    }

    /// What is said of a peer after this was seen.
    fn said_after(peer: &Unheard<'_>, node: &Node, sighting: Sighting) -> &'static str {
        let mut evidence = Evidence::new("eth0", node.hop_prefix());
        let now = Time::default() + s(1000);
        evidence.next_renewal = now + RENEW_EVERY;
        evidence.known.insert(peer.name.to_owned(), Known { routed: true, ..Known::default() });
        evidence.note(sighting, &[(peer.hop_prefix, peer.name)], node, now);
        evidence.verdict(peer, &evidence.known[peer.name]).0
    }

    #[test]
    fn an_error_counts_only_where_it_is_about_what_an_endpoint_has_sent() {
        let peer = Unheard { sent: Some(s(0)), ..tried() };
        let (node, endpoint) = looking(&peer);
        let after = |to, source, destination: &str| {
            let from = "2001:db8:fc::2".parse().unwrap();
            let destination = destination.parse().unwrap();
            said_after(&peer, &node, Sighting::Error { from, to, kind: 1, code: 1, source, destination })
        };
        let own = *endpoint.ip();
        assert_eq!(after(own, endpoint, "[2001:db8:b1::77]:9"), "prohibited_there");
        // Sent from beside the path, to an address that everybody may know, about what nobody has sent.
        let (ordinary, dead) = ("2001:db8:fa::2".parse().unwrap(), "[2001:dead::1]:1".parse().unwrap());
        assert_eq!(after(ordinary, dead, "[2001:db8:b1::77]:2"), "no_answer");
        assert_eq!(after(own, dead, "[2001:db8:b1::77]:2"), "no_answer");
        assert_eq!(after(ordinary, endpoint, "[2001:db8:b1::77]:9"), "no_answer");
        let another_port = SocketAddrV6::new(own, endpoint.port() ^ 1, 0, 0);
        assert_eq!(after(own, another_port, "[2001:db8:b1::77]:9"), "no_answer");
        assert_eq!(after(own, endpoint, "[2001:db8:b2::77]:9"), "no_answer", "another peer");
    }

    #[test]
    fn an_endpoint_that_was_closed_is_remembered_for_errors_and_for_what_is_late() {
        let peer = Unheard { sent: Some(s(0)), ..tried() };
        let (mut node, endpoint) = looking(&peer);
        let (source, astray) =
            ("[2001:db8:b1::77]:9".parse().unwrap(), "[2001:db8:a1::77]:9".parse().unwrap());
        let late = Sighting::Datagram { source, destination: endpoint };
        assert_eq!(said_after(&peer, &node, late), "filtered_here");
        let now = Now { boot: Time::from_micros(2_000_000), unix_ms: 1_800_000_001_000 };
        node.move_to(NOWHERE, now);
        node.move_to("2001:db8:a1::/64".parse().unwrap(), now);
        assert!(!node.is_at(endpoint));
        let (to, from) = (*endpoint.ip(), "2001:db8:fc::2".parse().unwrap());
        let error = Sighting::Error { from, to, kind: 1, code: 1, source: endpoint, destination: source };
        assert_eq!(said_after(&peer, &node, error), "prohibited_there");
        assert_eq!(said_after(&peer, &node, late), "no_answer");
        let elsewhere = Sighting::Datagram { source, destination: astray };
        assert_eq!(said_after(&peer, &node, elsewhere), "another_key");
    }

    #[test]
    fn no_firewall_is_blamed_for_what_has_come_to_an_endpoint() {
        let mut evidence = Evidence::new("eth0", "2001:db8:a1::/64".parse().unwrap());
        evidence.next_renewal = Time::default() + s(1000);
        let at = |seconds| Some(Time::default() + s(seconds));
        let known = Known { routed: true, arrived: at(999), ..Known::default() };
        let altered = Known { altered: at(999), routed: true, arrived: at(999), ..Known::default() };
        let silent = |silence| Unheard { state: PeerState::Silent(silence), heard: Some(s(20)), ..tried() };
        for peer in [tried(), silent(Silence::NothingComes)] {
            assert_eq!(evidence.verdict(&peer, &known).0, "filtered_here");
            assert_eq!(evidence.verdict(&peer, &altered).0, "altered");
        }
        // A copy of what was heard is no reason not to hear it; nor is what came before the firewall was there.
        assert_eq!(evidence.verdict(&silent(Silence::NothingArrives), &altered).0, "nothing_arrives");
        let heard = Unheard { heard: Some(s(1)), ..tried() };
        assert_eq!(evidence.verdict(&heard, &altered).0, "no_answer");
        let before = Known { altered: at(990), routed: true, arrived: at(999), ..Known::default() };
        assert_eq!(evidence.verdict(&silent(Silence::NothingComes), &before).0, "filtered_here");
    }

    #[test]
    fn what_did_not_open_counts_from_when_the_trouble_began() {
        let peer = Unheard { unopened: 5, ..tried() };
        let (node, _) = looking(&peer);
        let mut evidence = Evidence::new("eth0", node.hop_prefix());
        let altered = |evidence: &mut Evidence, unopened, seconds| {
            evidence.count(&[Unheard { unopened, ..peer }], Time::default() + s(seconds));
            evidence.known[peer.name].altered
        };
        assert_eq!(altered(&mut evidence, 5, 100), None);
        assert_eq!(altered(&mut evidence, 5, 101), None);
        assert_eq!(altered(&mut evidence, 6, 102), Some(Time::default() + s(102)));
        assert_eq!(altered(&mut evidence, 6, 103), Some(Time::default() + s(102)));
    }
}
