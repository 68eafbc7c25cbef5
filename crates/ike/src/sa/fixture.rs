//! An IKE SA of this end, and what the other end seals with: for tests of requests and responses.

use std::time::Instant;

use super::{Begin, IkeSa, State};
use crate::census::Census;
use crate::channel::{Channel, Opened};
use crate::config::{ChildConfig, Config, Mode, NAT_PORT, PeerConfig, PeerIndex};
use crate::crypto::secret::Secret;
use crate::event::{Nat, Path};
use crate::keys::Role;
use crate::lease::Leases;
use crate::message::body::{Identity, Notify};
use crate::message::builder::Builder;
use crate::message::traffic_selector::TrafficSelector;
use crate::message::{Message, Payloads};
use crate::numbers::{ExchangeType, MessageId, NotifyType, PayloadType};
use crate::output::{Context, Output};
use crate::random::{Repeatable, Spis};

/// Type, SPI and data of a notify.
pub(super) type Said = (NotifyType, Vec<u8>, Vec<u8>);

pub(super) struct Ends {
    pub(super) sa: IkeSa,
    pub(super) out: Output,
    pub(super) now: Instant,
    peer: Channel,
    config: Config,
    random: Repeatable,
    spis: Spis,
    leases: Leases,
    next: u32,
}

impl Ends {
    pub(super) fn new() -> Self {
        let name = Identity::Fqdn("a".to_owned());
        let mut peer = PeerConfig::new(name.clone(), None, Secret::new(Vec::new()));
        let any = || vec![TrafficSelector::ANY_IPV6];
        peer.children.push(ChildConfig::new(Mode::Tunnel, any(), any()));
        let (config, mut out, mut random) =
            (Config::new(vec![peer]), Output::new(NAT_PORT), Repeatable::new(1));
        let mut spis = Spis::new(&mut random);
        let (now, mut leases) = (Instant::now(), Leases::default());
        let mut context = Context {
            now,
            unix_time: None,
            config: &config,
            random: &mut random,
            spis: &mut spis,
            leases: &mut leases,
            census: &Census::default(),
            out: &mut out,
        };
        let place = (Self::path(), Nat::default());
        let own = Channel::fixture(Role::Responder, false);
        let sa = IkeSa::new(own, PeerIndex(0), name, place, Begin::anew(), &mut context);
        let peer = Channel::fixture(Role::Initiator, false);
        Self { sa, peer, config, out, random, spis, leases, now, next: 0 }
    }

    fn path() -> Path {
        Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() }
    }

    pub(super) fn with_sa<T>(&mut self, act: impl FnOnce(&mut IkeSa, &mut Context<'_>) -> T) -> T {
        let mut context = Context {
            now: self.now,
            unix_time: None,
            config: &self.config,
            random: &mut self.random,
            spis: &mut self.spis,
            leases: &mut self.leases,
            census: &Census::default(),
            out: &mut self.out,
        };
        act(&mut self.sa, &mut context)
    }

    fn deliver(&mut self, datagrams: &[Vec<u8>]) {
        for bytes in datagrams {
            self.with_sa(|sa, context| sa.receive(&Message::parse(bytes).unwrap(), Self::path(), context));
        }
    }

    /// As if so many requests had come.
    pub(super) fn expect(&mut self, id: MessageId) {
        self.next = id.0;
        self.sa.expected = id;
    }

    /// Asks, and returns the notifies of the answer.
    pub(super) fn ask(&mut self, exchange: ExchangeType, payloads: &Builder) -> Vec<Said> {
        let id = MessageId(self.next);
        self.next = self.next.wrapping_add(1);
        let request = self.peer.seal(exchange, false, id, payloads, &mut self.random);
        self.deliver(&request);
        let answer = self.out.datagrams.pop_front().unwrap().payload;
        let opened = self.peer.open(&Message::parse(&answer).unwrap(), self.now).unwrap();
        said(opened)
    }

    /// The notifies of the request that this end has sent, if it has.
    pub(super) fn asked(&mut self) -> Option<Vec<Said>> {
        let request = &self.out.datagrams.front()?.payload;
        Some(said(self.peer.open(&Message::parse(request).unwrap(), self.now).unwrap()))
    }

    /// Answers the request that this end has sent, if it has, with these payloads; returns what exchange it was.
    pub(super) fn respond(&mut self, payloads: &Builder) -> Option<ExchangeType> {
        let request = self.out.datagrams.pop_front()?.payload;
        let header = Message::parse(&request).unwrap().header();
        assert!(!header.is_response);
        let sealed = self.peer.seal(header.exchange, true, header.message_id, payloads, &mut self.random);
        self.deliver(&sealed);
        Some(header.exchange)
    }

    /// Lets the next deadline pass; none if there is none.
    pub(super) fn pass(&mut self) -> Option<Instant> {
        let at = self.sa.deadline(self.config.peers.first())?;
        self.now = at;
        self.with_sa(IkeSa::handle_timeout);
        Some(at)
    }

    pub(super) fn is_up(&self) -> bool {
        self.sa.state == State::Up
    }
}

fn said(opened: Opened) -> Vec<Said> {
    let Opened::Whole(first, content) = opened else { panic!("a fragment") };
    let payloads = Payloads::parse(first, &content).unwrap();
    let read = |body| Notify::parse(body).map(|n| (n.kind, n.spi.to_vec(), n.data.to_vec())).unwrap();
    payloads.all(PayloadType::NOTIFY).map(read).collect()
}
