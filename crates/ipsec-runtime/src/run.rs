//! `sidestep ipsec run`: a program whose only way out is a tunnel. It needs no privileges.
//!
//! The program has a network namespace of its own with a TUN device in it, whose queue this process holds
//! ([`linux::jail`]). This process speaks with the remotes by ordinary UDP sockets from where it was started.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use config::ipsec::{IpsecConfig, Ports, Start};
use ipnet::IpNet;
use linux::event::{Request as Signal, Signals};
use linux::jail::{Jail, Setup};
use tracing::{debug, error, warn};

use crate::carrier::{Carrier, Event};
use crate::claim::Claim;
use crate::error::Error;
use crate::machine::{Machine, Sockets, tell_time};
use crate::moves::{self, Moves};
use crate::place;
use crate::random::System;

/// How long the first child may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long remotes may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// Any ports that are free.
const FREE: Ports = Ports { ike: 0, nat: 0 };
/// The least MTU of a device that carries IPv6 (RFC 8200 §5).
const MIN_MTU: u16 = 1280;

const SIGNALS: u64 = 2;
const PROGRAM: u64 = 3;
const CHANGES: u64 = 4;

/// Runs the program of `jail` through the tunnel of the configuration, and returns its exit status. Its name servers are
/// `dns`, or, if there are none, those that the remote gives. Call it before the first thread.
///
/// # Errors
/// [`Error`] when there is no tunnel, or the program cannot be run.
pub fn run(mut jail: Jail, file: &Path, dns: &[IpAddr], signals: &Signals) -> Result<u8, Error> {
    let _claim = Claim::stake(file)?;
    let mut config = config::ipsec::load(file)?;
    refuse(&config)?;
    for remote in config.remotes.iter_mut().filter(|remote| remote.address.is_some()) {
        remote.start = Start::Always;
    }
    linux::confine::confine([])?;
    let sockets = Sockets::open(config.local, FREE)?;
    let mut carrier = Carrier::new(&config, sockets.ports(), System::new()?, Instant::now());
    tell_time(&mut carrier);
    let machine = Machine::new(carrier, sockets)?;
    machine.also_wait_for(signals, SIGNALS)?;
    machine.also_wait_for(jail.ended(), PROGRAM)?;
    let moves = Moves::open_for(&config);
    if let Some(moves) = &moves {
        machine.also_wait_for(moves, CHANGES)?;
    }
    let mut client = Client {
        config,
        machine,
        moves,
        given: Vec::new(),
        dns: dns.to_vec(),
        keeps_dns: !dns.is_empty(),
        has_child: false,
    };

    let latest = Instant::now() + PATIENCE;
    while !client.has_child {
        match client.turn(Some(latest), signals, true)? {
            Woken::Nothing if Instant::now() >= latest => {
                return Err(Error::NotReached("the tunnel has not come about within a minute".to_owned()));
            }
            Woken::Nothing => {}
            Woken::Stop | Woken::Ended => {
                client.machine.end(GOODBYE)?;
                return Err(Error::NotReached("stopped before the tunnel was there".to_owned()));
            }
        }
    }
    let setup = client.setup()?;
    if let Some((queue, offloads)) = jail.take_queue() {
        client.machine.set_tun(vec![queue], offloads)?;
    }
    debug!("the tunnel is there: {:?}", setup.addresses);
    if let Err(error) = jail.open(&setup) {
        error!("{error}");
        client.machine.end(GOODBYE)?;
        return Ok(jail.wait()?);
    }
    loop {
        match client.turn(None, signals, false)? {
            Woken::Nothing => {}
            Woken::Stop => jail.stop(),
            Woken::Ended => break,
        }
    }
    let status = jail.wait()?;
    client.machine.end(GOODBYE)?;
    Ok(status)
}

/// What cannot be a program's way out.
fn refuse(config: &IpsecConfig) -> Result<(), Error> {
    if config.remotes.iter().all(|remote| remote.address.is_none()) {
        let what = "`ipsec run` begins the conversation: a [[remote]] needs an `address`";
        return Err(Error::NotCarried(what.to_owned()));
    }
    if let Some(path) = &config.setkey {
        let what = format!(
            "{}: `ipsec run` carries associations of IKE alone: leave setkey_file out, or see `ipsec up`",
            path.display()
        );
        return Err(Error::NotCarried(what));
    }
    let is_tunnel = |child: &ike::config::ChildConfig| child.mode == ike::config::Mode::Tunnel;
    if !config.ike.peers.iter().flat_map(|peer| &peer.children).all(is_tunnel) {
        let what = "`ipsec run` carries tunnels: a [[remote.child]] has mode = \"transport\", which is for `ipsec up`";
        return Err(Error::NotCarried(what.to_owned()));
    }
    Ok(())
}

enum Woken {
    Nothing,
    Stop,
    Ended,
}

struct Client {
    config: IpsecConfig,
    machine: Machine,
    /// None where this end's address is fixed, or the kernel tells nobody.
    moves: Option<Moves>,
    given: Vec<IpNet>,
    dns: Vec<IpAddr>,
    /// Those that the remote gives are not wanted.
    keeps_dns: bool,
    has_child: bool,
}

impl Client {
    /// A turn of the machine, and what there is to do then. `first`: a failure is the end.
    fn turn(&mut self, latest: Option<Instant>, signals: &Signals, first: bool) -> Result<Woken, Error> {
        while let Some(event) = self.machine.carrier.poll_event() {
            self.happened(event, first)?;
        }
        let mut others = Vec::new();
        let look_at = self.moves.as_ref().and_then(Moves::deadline);
        self.machine.turn(latest.into_iter().chain(look_at).min(), &mut others)?;
        let mut woken = Woken::Nothing;
        for event in others {
            match (event.token, &mut self.moves) {
                (PROGRAM, _) => return Ok(Woken::Ended),
                (CHANGES, Some(moves)) => drop(moves.read(Instant::now())?),
                _ if signals.read()? == Some(Signal::Stop) => woken = Woken::Stop,
                _ => {}
            }
        }
        if self.moves.as_mut().is_some_and(|moves| moves.is_due(Instant::now())) {
            self.machine.with_carrier(|carrier, sink, now| moves::follow(carrier, now, sink));
        }
        while let Some(event) = self.machine.carrier.poll_event() {
            self.happened(event, first)?;
        }
        Ok(woken)
    }

    fn happened(&mut self, event: Event, first: bool) -> Result<(), Error> {
        match event {
            Event::Reach(remote) => {
                let place = self.config.remotes.get(remote.0).and_then(|remote| remote.address.clone());
                let Some(place) = place else { return Ok(()) };
                let ends = place::ends(self.config.local, &place);
                self.machine.with_carrier(|carrier, sink, now| carrier.reach(remote, ends, now, sink));
            }
            Event::Up { addresses, dns, .. } => {
                let given = addresses.into_iter().map(IpNet::from);
                if first {
                    self.given.extend(given);
                    if !self.keeps_dns {
                        self.dns.extend(dns);
                    }
                } else if given.into_iter().any(|address| !self.given.contains(&address)) {
                    warn!("the remote gives other addresses now: the program has to be started again");
                }
            }
            Event::Child { .. } => self.has_child = true,
            Event::Failed { why, .. } if first => return Err(Error::NotReached(why)),
            Event::Failed { why: what, .. }
            | Event::Down { why: what, .. }
            | Event::Unanswered { what, .. } => {
                warn!("the tunnel: {what}");
            }
            Event::Stranger { what } | Event::Contested { what, .. } => warn!("{what}"),
            Event::Keys(_) | Event::Mtu => {}
        }
        Ok(())
    }

    fn setup(&self) -> Result<Setup, Error> {
        let addresses: Vec<IpNet> = self.config.addresses.iter().chain(&self.given).copied().collect();
        if addresses.is_empty() {
            let what = "the program would have no address: set `request_addresses = true` for the [[remote]], or \
                        `addresses` in [ipsec]";
            return Err(Error::NotReached(what.to_owned()));
        }
        let mtu = self.config.mtu.unwrap_or_else(|| self.machine.carrier.inner_mtu()).max(MIN_MTU);
        Ok(Setup { addresses, mtu: mtu.into(), dns: self.dns.clone() })
    }
}
