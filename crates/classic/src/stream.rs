//! One stream: two hosts, the routes of its session key, and the change to the next one (thesis section 3.1.2,
//! docs/classic.md section 9.2).

use std::net::Ipv6Addr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use wire::ipv6;

use crate::drops::DropReason;
use crate::exchange::{Exchange, KeyMessage, State};
use crate::hashed::{HashedHost, Salt};
use crate::host_interface::{Action, Endpoint, HostInterface};
use crate::icmp;
use crate::packet::{self, Content, Opened};
use crate::profile::{Carry, StreamConfig};
use crate::rewrite;
use crate::routes::{self, Hosts, Path, Route, Table};
use crate::time::UnixTime;

/// Least time between two answers to the flag, in milliseconds.
const ANSWER_PAUSE: u64 = 1000;

/// How long a path is taken to carry less than its link, after it has last said so (RFC 8201 section 4).
const PATH_MTU_LIFETIME: Duration = Duration::from_secs(600);

/// How far a key exchange has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// There is none.
    Idle,
    /// This end offers a key.
    Offered,
    /// The peer acknowledged it.
    Agreed,
    /// This end acknowledged the peer's key.
    Accepted,
    /// And the peer knows.
    Confirmed,
    /// Routes of both keys receive, until the peer has shown which one it uses.
    Undecided,
}

/// A stream at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStatus {
    /// True addresses of the local and the remote host.
    pub hosts: (Ipv6Addr, Ipv6Addr),
    /// The rotation interval under the present session key, in seconds.
    pub interval: u64,
    /// How far a key exchange has come.
    pub key: KeyState,
    /// Where packets leave from, and go to.
    pub path: Option<(HashedHost, HashedHost)>,
    /// Routes that receive.
    pub routes: usize,
    /// Changes of session key since the start.
    pub keys_adopted: u64,
    /// The largest outer packet, in bytes, as far as is known.
    pub outer_mtu: u16,
}

/// The routes of a stream, for somebody who carries its packets in the node's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRoutes {
    /// The way out, and the flag that goes with it; none before the first round.
    pub outgoing: Option<(Path, bool)>,
    /// The ways in that receive.
    pub incoming: Vec<Path>,
    /// How far a key exchange has come. While one is under way, what comes in is to be seen by the node: it may decide
    /// which key is used.
    pub key: KeyState,
    /// The largest outer packet, in bytes, as far as is known.
    pub outer_mtu: u16,
}

/// What a stream is given with each call.
pub(crate) struct Context<'a> {
    pub(crate) now: UnixTime,
    pub(crate) host: &'a mut HostInterface,
}

/// The second table, while it is not decided which one the peer uses.
struct Undecided {
    table: Table,
    /// The first interval of the new key: what the peer sends under the old one later shows that it did not change.
    first: UnixTime,
    /// This end is to send under the new key: it knows that the peer has it.
    sends: bool,
}

/// The table that a packet came on.
enum KeyTable {
    New,
    /// Whether in an interval in which a peer with the new key would not have used the old one.
    Present {
        after_change: bool,
    },
    Former,
}

pub(crate) struct Stream {
    index: usize,
    config: StreamConfig,
    present: Table,
    undecided: Option<Undecided>,
    former: Option<Table>,
    exchange: Exchange,
    /// When routes are made and collected next.
    next_round: UnixTime,
    last_answer: Option<UnixTime>,
    keys_adopted: u64,
    /// What a router on the path has said that it carries, and until when that holds.
    path_mtu: Option<(u16, UnixTime)>,
}

impl Stream {
    /// A stream whose first round is due at once.
    pub(crate) fn new(index: usize, config: StreamConfig, now: UnixTime, rng: &mut ChaCha20Rng) -> Self {
        let hosts = hosts(&config);
        let interval = config.rotation.interval(&config.key);
        let addresses = (config.local.address, config.remote.address);
        Stream {
            index,
            present: Table::new(hosts, config.key.clone(), interval, Salt(0)),
            undecided: None,
            former: None,
            exchange: Exchange::new(addresses, config.key_exchange, now, rng),
            next_round: now,
            last_answer: None,
            keys_adopted: 0,
            path_mtu: None,
            config,
        }
    }

    /// The largest inner packet, in bytes. What a router says, whoever it is, does not make it less than the 1280 that
    /// every link carries and a host need not go below (RFC 8200 section 5).
    pub(crate) fn inner_mtu(&self) -> u16 {
        let path = self.config.inner_mtu_of(self.outer_mtu()).max(ipv6::MIN_MTU as u16);
        path.min(self.config.inner_mtu())
    }

    /// The largest outer packet, in bytes, as far as is known.
    pub(crate) fn outer_mtu(&self) -> u16 {
        self.path_mtu.map_or(self.config.outer_mtu, |(mtu, _)| mtu.min(self.config.outer_mtu))
    }

    pub(crate) fn set_outer_mtu(&mut self, mtu: u16) {
        self.config.outer_mtu = mtu;
    }

    pub(crate) fn status(&self) -> StreamStatus {
        let path = self.way_out().map(|(path, _)| path);
        let tables = self.tables();
        StreamStatus {
            hosts: (self.config.local.address, self.config.remote.address),
            interval: self.present.interval(),
            key: self.key_state(),
            path: path.map(|path| (path.source, path.destination)),
            routes: tables.map(|table| table.live().len()).sum(),
            keys_adopted: self.keys_adopted,
            outer_mtu: self.outer_mtu(),
        }
    }

    pub(crate) fn routes(&self) -> StreamRoutes {
        let live = self.tables().flat_map(|table| table.live().map(|route| route.incoming));
        let (outgoing, key, outer_mtu) = (self.way_out(), self.key_state(), self.outer_mtu());
        StreamRoutes { outgoing, incoming: live.collect(), key, outer_mtu }
    }

    pub(crate) fn key_state(&self) -> KeyState {
        match (&self.undecided, self.exchange.state()) {
            (Some(_), _) => KeyState::Undecided,
            (None, State::Idle) => KeyState::Idle,
            (None, State::Offered(_)) => KeyState::Offered,
            (None, State::Agreed(_)) => KeyState::Agreed,
            (None, State::Accepted(_)) => KeyState::Accepted,
            (None, State::Confirmed(_)) => KeyState::Confirmed,
        }
    }

    /// Where packets leave now, and with which flag. A key that was just adopted may have one route yet, which the peer
    /// has too.
    fn way_out(&self) -> Option<(Path, bool)> {
        let (table, flag) = self.sending();
        table.in_use().or(table.newest()).map(|route| (route.outgoing, flag))
    }

    /// The ways into all routes that are not collected yet.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = Endpoint> {
        self.tables().flat_map(|table| {
            let live = table.live().map(|route| &route.incoming);
            live.chain(table.aside()).map(|path| Endpoint::of(self.index, path))
        })
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        let undecided = self.undecided.as_ref().map(|undecided| &undecided.table);
        [Some(&self.present), undecided, self.former.as_ref()].into_iter().flatten()
    }

    // Time

    pub(crate) fn deadline(&self) -> UnixTime {
        let path_mtu = self.path_mtu.map_or(UnixTime::NEVER, |(_, until)| until);
        let round = self.next_round.min(path_mtu);
        match self.undecided {
            Some(_) => round,
            None => round.min(self.exchange.deadline()),
        }
    }

    /// Does what is due; a round also when the clock was set back.
    pub(crate) fn handle_timeout(&mut self, set_back: bool, cx: &mut Context<'_>) {
        if self.path_mtu.is_some_and(|(_, until)| set_back || until <= cx.now) {
            self.path_mtu = None;
        }
        if set_back || self.next_round <= cx.now {
            self.begin_change(cx);
            self.rehash(cx);
            self.announce(cx);
            let next = self.present.next_boundary(cx.now);
            let of_new = self.undecided.as_ref().map(|undecided| undecided.table.next_boundary(cx.now));
            self.next_round = of_new.map_or(next, |of_new| next.min(of_new));
        }
        if self.undecided.is_none()
            && let Some(say) = self.exchange.handle_timeout(cx.now, &mut cx.host.rng)
        {
            self.say(say, cx);
        }
    }

    /// Makes the second table at the first round after the change time.
    fn begin_change(&mut self, cx: &mut Context<'_>) {
        if self.undecided.is_some() {
            return;
        }
        let Some((offer, sends)) = self.exchange.agreed() else { return };
        let boundary = u64::from(offer.change).next_multiple_of(self.present.interval());
        if cx.now.secs() < boundary {
            return;
        }
        let interval = self.config.rotation.interval(&offer.key);
        let first = routes::first_salt_after(boundary, interval);
        let table = Table::new(hosts(&self.config), offer.key.clone(), interval, first);
        self.undecided = Some(Undecided { first: table.begins(first), table, sends });
    }

    fn rehash(&mut self, cx: &mut Context<'_>) {
        let index = self.index;
        let mut changes = |change| cx.host.change(index, change);
        self.present.rehash(cx.now, &mut changes);
        if let Some(undecided) = &mut self.undecided {
            undecided.table.rehash(cx.now, &mut changes);
        }
        if let Some(former) = &mut self.former {
            former.expire(cx.now, &mut changes);
            if former.is_empty() {
                self.former = None;
            }
        }
    }

    /// Undecided ends show themselves to each other, also without traffic.
    fn announce(&mut self, cx: &mut Context<'_>) {
        let Some(undecided) = &self.undecided else { return };
        let tables = [(&undecided.table, false), (&self.present, true)];
        for (table, flag) in tables {
            if let Some(route) = table.in_use().filter(|_| undecided.first <= cx.now) {
                let mut outer = Vec::new();
                let content = Content { flag, ..Content::default() };
                packet::encapsulate(&route.outgoing, table.ciphers(), None, content, &mut outer);
                cx.host.actions.push_back(Action::Transmit(outer));
            }
        }
    }

    // Out

    /// The table to send on, and the flag to send with.
    fn sending(&self) -> (&Table, bool) {
        match &self.undecided {
            Some(undecided) if undecided.sends && undecided.table.in_use().is_some() => {
                (&undecided.table, false)
            }
            Some(_) => (&self.present, true),
            None => (&self.present, self.exchange.flag()),
        }
    }

    /// Tunnels a whole packet of the local host that fits.
    pub(crate) fn send(&self, inner: &[u8], outer: &mut Vec<u8>) {
        if self.config.carry == Carry::Encapsulate {
            return self.write(Content { inner: Some(inner), ..Content::default() }, outer);
        }
        outer.clear();
        let Some((path, _)) = self.way_out() else { return };
        outer.extend(inner);
        rewrite::outgoing(&path, (self.config.local.address, self.config.remote.address), outer);
    }

    fn say(&self, say: KeyMessage, cx: &mut Context<'_>) {
        let mut outer = Vec::new();
        match say {
            KeyMessage::Flag => self.write(Content::default(), &mut outer),
            KeyMessage::Offer(offer) => {
                self.write(Content { offer: Some(&offer), ..Content::default() }, &mut outer);
            }
        }
        cx.host.actions.push_back(Action::Transmit(outer));
    }

    /// Writes a packet with the present flag; nothing before the first round.
    fn write(&self, content: Content<'_>, outer: &mut Vec<u8>) {
        let (table, flag) = self.sending();
        // A key that was just adopted may have one route yet, which the peer has too.
        let Some(route) = table.in_use().or(table.newest()) else { return outer.clear() };
        let content = Content { flag, ..content };
        packet::encapsulate(&route.outgoing, table.ciphers(), self.config.cipher, content, outer);
    }

    // In

    /// Takes an outer packet with the addresses of one of this stream's routes. Tells whether an inner packet was
    /// written.
    pub(crate) fn receive(
        &mut self,
        outer: &ipv6::Packet<'_>,
        inner: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Result<bool, DropReason> {
        if self.config.carry == Carry::Rewrite {
            let receiving = self.receiving(outer.source(), outer.destination());
            let (_, route) = receiving.ok_or(DropReason::ExpiredRoute)?;
            if !rewrite::is_key_exchange(&route.incoming, outer) {
                inner.clear();
                inner.extend(outer.header());
                inner.extend(outer.payload());
                rewrite::replace(inner, (self.config.remote.address, self.config.local.address));
                return Ok(true);
            }
        }
        let (from, opened) = self.open(outer, inner)?;
        self.decide(&from, &opened, cx);
        let Opened { flag, has_inner, offer } = opened;
        if self.undecided.is_some() || matches!(from, KeyTable::Former) {
            // Nothing new is agreed on until it is decided, and nothing under a former key.
        } else if let Some(offer) = offer {
            let answer = self.exchange.receive_offer(offer, self.present.key(), cx.now);
            let (result, say) = match answer {
                Ok(say) => (Ok(has_inner), say),
                Err((reason, say)) => (Err(reason), say),
            };
            if let Some(say) = say {
                self.say(say, cx);
            }
            return result;
        }
        if self.undecided.is_none() {
            self.exchange.receive_flag(flag);
            self.answer_flag(flag, cx);
        }
        Ok(has_inner)
    }

    /// Finds the route of a packet, and opens it.
    fn open(&self, outer: &ipv6::Packet<'_>, inner: &mut Vec<u8>) -> Result<(KeyTable, Opened), DropReason> {
        let new = self.undecided.as_ref().map(|undecided| &undecided.table);
        for (table, which) in [(new, 0), (Some(&self.present), 1), (self.former.as_ref(), 2)] {
            let Some(table) = table else { continue };
            let Some(route) = table.receiving(outer.source(), outer.destination()) else { continue };
            let hosts = (self.config.remote.address, self.config.local.address);
            let opened = packet::decapsulate(
                &route.incoming,
                table.ciphers(),
                self.config.cipher,
                outer,
                hosts,
                inner,
            )?;
            let from = match which {
                0 => KeyTable::New,
                1 => KeyTable::Present {
                    after_change: self
                        .undecided
                        .as_ref()
                        .is_some_and(|u| table.begins(route.salt) >= u.first),
                },
                _ => KeyTable::Former,
            };
            return Ok((from, opened));
        }
        Err(DropReason::ExpiredRoute)
    }

    /// What the peer sends shows which key it uses.
    fn decide(&mut self, from: &KeyTable, opened: &Opened, cx: &mut Context<'_>) {
        let Some(undecided) = &self.undecided else { return };
        let other_key = opened.offer.as_ref().is_some_and(|offer| offer.key != *undecided.table.key());
        let unchanged = match from {
            KeyTable::New => return self.adopt(cx),
            KeyTable::Present { after_change } => {
                (*after_change && !opened.flag) || ((*after_change || cx.now < undecided.first) && other_key)
            }
            KeyTable::Former => false,
        };
        if unchanged {
            self.discard(cx);
        }
    }

    fn adopt(&mut self, cx: &mut Context<'_>) {
        let Some(undecided) = self.undecided.take() else { return };
        let key = undecided.table.key().clone();
        cx.host.actions.push_back(Action::StoreKey { stream: self.index, key });
        let old = std::mem::replace(&mut self.present, undecided.table);
        if let Some(former) = self.former.replace(old) {
            self.give_up(former, cx);
        }
        self.keys_adopted += 1;
        self.exchange.restart(cx.now, &mut cx.host.rng);
    }

    fn discard(&mut self, cx: &mut Context<'_>) {
        let Some(mut undecided) = self.undecided.take() else { return };
        undecided.table.set_all_aside();
        if let Some(former) = self.former.replace(undecided.table) {
            self.give_up(former, cx);
        }
        self.exchange.restart(cx.now, &mut cx.host.rng);
    }

    /// Two changes are at least two lifetimes apart, so a second former table has routes only if clocks were set.
    fn give_up(&self, mut table: Table, cx: &mut Context<'_>) {
        table.set_all_aside();
        table.collect(&mut |change| cx.host.change(self.index, change));
    }

    fn answer_flag(&mut self, flag: bool, cx: &mut Context<'_>) {
        let idle = *self.exchange.state() == State::Idle;
        let pause_over =
            self.last_answer.is_none_or(|last| last.millis().abs_diff(cx.now.millis()) >= ANSWER_PAUSE);
        if flag && idle && pause_over {
            self.last_answer = Some(cx.now);
            self.say(KeyMessage::Flag, cx);
        }
    }

    /// Translates an error about an outer packet of this stream. What it says of the path holds for a while.
    pub(crate) fn receive_error(
        &mut self,
        error: &icmp::Error<'_>,
        now: UnixTime,
        inner: &mut Vec<u8>,
    ) -> Result<(), DropReason> {
        let (local, remote) = error.addresses().ok_or(DropReason::MalformedError)?;
        let (table, route) = self.receiving(remote, local).ok_or(DropReason::ExpiredRoute)?;
        let hosts = (self.config.local.address, self.config.remote.address);
        let translated = match self.config.carry {
            Carry::Encapsulate => {
                error.translate(&route.outgoing, table.ciphers(), self.config.cipher, hosts, inner)
            }
            Carry::Rewrite => error.translate_rewritten(hosts, inner),
        };
        translated.ok_or(DropReason::MalformedError)?;
        if let Some(mtu) = error.path_mtu().filter(|mtu| *mtu <= self.outer_mtu()) {
            self.path_mtu = Some((mtu, now.after(PATH_MTU_LIFETIME)));
        }
        Ok(())
    }

    /// The route that packets with these addresses come on.
    fn receiving(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Option<(&Table, &Route)> {
        self.tables().find_map(|table| Some((table, table.receiving(source, destination)?)))
    }
}

fn hosts(config: &StreamConfig) -> Hosts {
    Hosts { local: config.local, remote: config.remote, lifetime: config.lifetime }
}
