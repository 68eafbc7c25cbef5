//! Prefixes from an uplink: a requesting router (DHCPv6 prefix delegation, RFC 8415 and RFC 7084 section 4.2).
//!
//! [`Client`] is given datagrams and time, and returns datagrams and when it wants to be called; what it has is its
//! [`Lease`]. A lease is never released on purpose: after a restart the same prefixes come back, and hosts behind keep
//! their addresses (RFC 9096 section 3.1).

mod lease;
mod retransmission;
#[cfg(test)]
mod simulation;

use std::time::{Duration, Instant};

use wire::dhcpv6::{Builder, DelegatedPrefix, Delegation, Message, MessageType, StatusCode};

use lease::Offer;
pub use lease::{Lease, LeasedPrefix};
use retransmission::{Limits, Retransmission};

/// The first Solicit is up to this late, so that routers which come up together do not ask together.
const SOLICIT_DELAY: Duration = Duration::from_secs(1);
/// How long a lease from before a restart, or from before the link went down, is asked about in haste (RFC 8415 section
/// 18.2.12, CNF_MAX_RD). It is used meanwhile, and asked about at the pace of other Rebinds from then on: the line may have
/// come up later than this router, and with another prefix.
const CONFIRM_FOR: Duration = Duration::from_secs(10);
/// An advertisement of this preference is taken at once.
const BEST_PREFERENCE: u8 = 255;

/// Who asks, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The DUID of this router (RFC 8415 section 11).
    pub duid: Vec<u8>,
    /// The name of the identity association: one for each uplink.
    pub iaid: u32,
    /// Length of the prefix to ask for (RFC 8168), 128 at most. The server may give another one.
    pub prefix_length_hint: Option<u8>,
    /// Whether the name of an AFTR is asked for, too (RFC 6334).
    pub aftr: bool,
}

/// A requesting router on one uplink.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    lease: Option<Lease>,
    state: State,
    /// Of meaning without a lease.
    wait: Wait,
    /// What a server has set as the longest interval of Solicits.
    solicit_interval: Duration,
}

/// How long there has been no lease, and what servers say of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Since then.
    pub since: Instant,
    /// Status and words of the last answer; success, where a server just has nothing to give.
    pub answer: Option<(StatusCode, String)>,
}

#[derive(Debug)]
enum State {
    /// Solicits begin then.
    Waiting(Instant),
    /// A message is repeated until it is answered.
    Exchanging(Box<Exchange>),
    /// There is a lease, and nothing to do before T1.
    Bound,
}

#[derive(Debug)]
struct Exchange {
    message: MessageType,
    transaction: [u8; 3],
    started: Instant,
    retransmission: Retransmission,
    /// The best offer so far, while Solicits are answered.
    best: Option<Offer>,
    /// The server and the prefixes that are asked for; of no meaning in a Solicit.
    target: Offer,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is not for this client, or not of a server: nothing has changed.
    Ignored,
    /// It was an answer that leaves the lease as it is.
    Unchanged,
    /// The lease is another one now.
    LeaseChanged,
}

impl Client {
    /// Begins to ask. `random` is evenly distributed, here and everywhere else.
    pub fn new(settings: Settings, now: Instant, random: u64) -> Self {
        let state = State::Waiting(now + retransmission::part(SOLICIT_DELAY, random));
        let solicit_interval = retransmission::SOLICIT.longest;
        Client { settings, lease: None, state, wait: Wait::begins(now), solicit_interval }
    }

    /// Goes on with a lease from before a restart, if it is still valid; under its IAID, since servers know it by that.
    pub fn resume(settings: Settings, lease: Lease, now: Instant, random: u64) -> Self {
        let mut client = Client::new(settings, now, random);
        client.lease = Some(lease).filter(|lease| !lease.expires().is_expired(now));
        if let Some(lease) = &client.lease {
            client.settings.iaid = lease.iaid;
        }
        client.handle_link_up(now, random);
        client
    }

    /// The link came up, possibly to somewhere else: the lease is to be confirmed.
    pub fn handle_link_up(&mut self, now: Instant, random: u64) {
        match &self.lease {
            Some(lease) => {
                let target = lease.as_offer(now);
                self.begin(MessageType::Rebind, target, Some(now + CONFIRM_FOR), now, random);
            }
            None => {
                self.state = State::Waiting(now + retransmission::part(SOLICIT_DELAY, random));
                self.wait = Wait::begins(now);
            }
        }
    }

    /// What there is, valid or not: see [`LeasedPrefix::valid`].
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// How the wait for a lease goes, where there is none.
    pub fn wait(&self) -> Option<&Wait> {
        self.lease.is_none().then_some(&self.wait)
    }

    /// When [`Client::poll`] wants to be called; never, where a lease has no end.
    pub fn deadline(&self) -> Option<Instant> {
        let state = match &self.state {
            State::Waiting(at) => Some(*at),
            State::Exchanging(exchange) => Some(exchange.retransmission.deadline()),
            State::Bound => self.lease.as_ref().and_then(Lease::renew_at),
        };
        let expiry = self.lease.as_ref().and_then(Lease::next_expiry);
        state.into_iter().chain(expiry).min()
    }

    /// Does what is due, and returns a datagram for the servers of the link. To be called until there is none.
    pub fn poll(&mut self, now: Instant, random: u64) -> Option<Vec<u8>> {
        if self.expire(now) {
            self.state = State::Waiting(now);
        }
        loop {
            match &mut self.state {
                State::Waiting(at) if now < *at => return None,
                State::Waiting(_) => self.begin(MessageType::Solicit, Offer::default(), None, now, random),
                State::Bound => {
                    let lease = self.lease.as_ref()?;
                    let (message, end) = match (lease.renew_at(), lease.rebind_at()) {
                        (_, Some(t2)) if now >= t2 => (MessageType::Rebind, None),
                        (Some(t1), t2) if now >= t1 => (MessageType::Renew, t2),
                        _ => return None,
                    };
                    let target = lease.as_offer(now);
                    self.begin(message, target, end, now, random);
                }
                State::Exchanging(exchange) => {
                    if now < exchange.retransmission.deadline() {
                        return None;
                    }
                    // The first Solicit was answered for as long as it may be: the best offer is taken.
                    if let Some(best) = exchange.best.take() {
                        self.begin(MessageType::Request, best, None, now, random);
                        continue;
                    }
                    if exchange.retransmission.next(now, random) {
                        let elapsed = now.saturating_duration_since(exchange.started);
                        return Some(self.settings.message(exchange, elapsed));
                    }
                    // Nobody answered. A lease lasts for as long as it was promised; without one it begins anew.
                    match exchange.message {
                        MessageType::Request => self.state = State::Waiting(now),
                        MessageType::Rebind => {
                            let target = self.lease.as_ref()?.as_offer(now);
                            self.begin(MessageType::Rebind, target, None, now, random);
                        }
                        _ => self.state = State::Bound,
                    }
                }
            }
        }
    }

    /// A datagram from a server, received at [`wire::dhcpv6::CLIENT_PORT`].
    pub fn handle_datagram(&mut self, bytes: &[u8], now: Instant, random: u64) -> Received {
        let State::Exchanging(exchange) = &mut self.state else { return Received::Ignored };
        let Ok(message) = Message::parse(bytes) else { return Received::Ignored };
        let (Some(client), Some(server)) = (message.client_id(), message.server_id()) else {
            return Received::Ignored;
        };
        if client != self.settings.duid || message.transaction() != exchange.transaction {
            return Received::Ignored;
        }
        if let Some(seconds) = message.longest_solicit_interval() {
            self.solicit_interval = Duration::from_secs(seconds.into());
        }
        self.wait.answer = Some(message.remark(self.settings.iaid));
        let delegation = message.delegation(self.settings.iaid);
        match (message.message_type(), exchange.message) {
            (MessageType::Advertise, MessageType::Solicit) => {
                let Some(delegation) = delegation.filter(|found| usable(&message, found)) else {
                    return Received::Unchanged;
                };
                let preference = message.preference();
                let offer = Offer { server: server.to_vec(), preference, prefixes: delegation.prefixes };
                if preference == BEST_PREFERENCE || exchange.retransmission.sent() > 1 {
                    self.begin(MessageType::Request, offer, None, now, random);
                } else if exchange.best.as_ref().is_none_or(|best| best.preference < preference) {
                    exchange.best = Some(offer);
                }
                Received::Unchanged
            }
            (MessageType::Reply, MessageType::Solicit) if !message.rapid_commit() => Received::Ignored,
            (MessageType::Reply, asked) => {
                let Some(delegation) = delegation else { return Received::Unchanged };
                match delegation.status {
                    // The server has forgotten it: the same prefixes are asked for as if they were new.
                    StatusCode::NoBinding if asked != MessageType::Request => {
                        let target = Offer { server: server.to_vec(), ..exchange.target.clone() };
                        self.begin(MessageType::Request, target, None, now, random);
                        Received::Unchanged
                    }
                    _ if usable(&message, &delegation) || withdraws(&message, &delegation) => {
                        self.bind(server, &delegation, &message, asked, now)
                    }
                    // Solicits go on at their own slow pace.
                    StatusCode::NoPrefixAvail | StatusCode::NoBinding if asked == MessageType::Request => {
                        self.begin(MessageType::Solicit, Offer::default(), None, now, random);
                        Received::Unchanged
                    }
                    _ => Received::Unchanged,
                }
            }
            _ => Received::Ignored,
        }
    }

    fn bind(
        &mut self,
        server: &[u8],
        delegation: &Delegation,
        message: &Message<'_>,
        asked: MessageType,
        now: Instant,
    ) -> Received {
        let before = self.lease.take();
        // Only the server that has given a lease extends it by not mentioning it.
        let is_new = matches!(asked, MessageType::Solicit | MessageType::Request);
        let kept = before.clone().map(|lease| match is_new || lease.server != server {
            true => lease.replaced(now),
            false => lease,
        });
        let lease = Lease::new(server, delegation, message, kept.as_ref(), now);
        let changed = before.as_ref() != Some(&lease);
        self.lease = Some(lease);
        self.state = State::Bound;
        if self.expire(now) {
            self.state = State::Waiting(now + SOLICIT_DELAY);
        }
        if changed { Received::LeaseChanged } else { Received::Unchanged }
    }

    /// Takes away what is not valid any more. Returns whether that was the last of it.
    fn expire(&mut self, now: Instant) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        lease.expire(now);
        let gone = lease.prefixes.is_empty();
        if gone {
            self.lease = None;
            self.wait = Wait::begins(now);
        }
        gone
    }

    fn begin(
        &mut self,
        message: MessageType,
        target: Offer,
        end: Option<Instant>,
        now: Instant,
        random: u64,
    ) {
        let limits = match message {
            MessageType::Solicit => Limits { longest: self.solicit_interval, ..retransmission::SOLICIT },
            MessageType::Request => retransmission::REQUEST,
            // Only where a lease is confirmed does a Rebind end before the lease does.
            MessageType::Rebind if end.is_some() => retransmission::CONFIRM,
            _ => retransmission::EXTEND,
        };
        let [a, b, c, ..] = random.to_be_bytes();
        let exchange = Exchange {
            message,
            transaction: [a, b, c],
            started: now,
            retransmission: Retransmission::new(limits, end, now),
            best: None,
            target,
        };
        self.state = State::Exchanging(Box::new(exchange));
    }
}

impl Wait {
    fn begins(since: Instant) -> Self {
        Wait { since, answer: None }
    }
}

impl Settings {
    fn message(&self, exchange: &Exchange, elapsed: Duration) -> Vec<u8> {
        let hundredths = u16::try_from(elapsed.as_millis() / 10).unwrap_or(u16::MAX);
        let mut builder = Builder::new(exchange.message, exchange.transaction)
            .client_id(&self.duid)
            .elapsed_time(hundredths)
            .option_request(self.aftr);
        if matches!(exchange.message, MessageType::Request | MessageType::Renew) {
            builder = builder.server_id(&exchange.target.server);
        }
        let mut prefixes = exchange.target.prefixes.clone();
        if exchange.message == MessageType::Solicit {
            builder = builder.rapid_commit();
            prefixes.extend(self.prefix_length_hint.map(|prefix_length| DelegatedPrefix {
                prefix: std::net::Ipv6Addr::UNSPECIFIED,
                prefix_length,
                preferred_lifetime: 0,
                valid_lifetime: 0,
            }));
        }
        let status = StatusCode::Success;
        builder.delegation(&Delegation { iaid: self.iaid, t1: 0, t2: 0, prefixes, status }).finish()
    }
}

/// Whether there is something to be had (RFC 8415 section 18.2.9, and section 21.21 for T1 and T2).
fn usable(message: &Message<'_>, delegation: &Delegation) -> bool {
    answers(message, delegation) && delegation.prefixes.iter().any(|prefix| prefix.valid_lifetime > 0)
}

/// Whether all that it has is to be given up.
fn withdraws(message: &Message<'_>, delegation: &Delegation) -> bool {
    answers(message, delegation) && !delegation.prefixes.is_empty()
}

fn answers(message: &Message<'_>, delegation: &Delegation) -> bool {
    let times = delegation.t1 <= delegation.t2 || delegation.t2 == 0;
    message.status() == StatusCode::Success && delegation.status == StatusCode::Success && times
}
