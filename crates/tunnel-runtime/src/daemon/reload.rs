//! Another configuration for a daemon that runs: all of it, or none.

use std::sync::mpsc;
use std::time::Duration;

use ipnet::Ipv6Net;
use mt6d::config::NOWHERE;
use tracing::{info, warn};

use super::set_up::{is_bound, leads_to_peers};
use super::{Before, Cause, Daemon, Message, Threads};
use crate::error::Error;
use crate::kernel::Command;
use crate::limits;
use crate::load::{Loaded, load};
use crate::wrap::Found;
use config::{Mode, TunnelConfig};
use control::{Call, Reply, Request};
use router_runtime::{RouterHandle, RouterThread};

impl Daemon {
    /// Has the configuration read again, by a thread of its own: with thousands of peers it takes a second.
    pub(super) fn reload(&mut self, asked: Option<Call>, threads: &Threads) {
        if self.reloading {
            return self.reload_again.push(asked);
        }
        if self.unconfirmed.waits() {
            return match asked {
                Some(call) => call.answer(Reply::Error(Error::Unconfirmed.to_string())),
                None => warn!("the configuration stays as it is: {}", Error::Unconfirmed),
            };
        }
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
        let (file, old) = (self.file.clone(), self.config.clone());
        let (can_rewrite, can_mask) = (self.rewrites.is_some(), self.masks.is_some());
        let check = move |new: &TunnelConfig| refuse_fixed(&old, new, can_rewrite, can_mask);
        self.have_loaded(Cause::Asked(asked), threads, move |gateway| load(&file, gateway, check));
    }

    /// Nobody has confirmed the configuration in force: the one from before takes its place as one that was read would.
    pub(super) fn take_back(&mut self, Before { tunnel, router }: Before, threads: &Threads) {
        self.have_loaded(Cause::NotConfirmed, threads, |gateway| {
            let router_before = gateway.zip(router).map(|(gateway, before)| gateway.reload(before));
            Ok(Loaded { tunnel, router_before: router_before.transpose()? })
        });
    }

    /// Has the gateway's part done by a thread of its own, since it takes a while; then the tunnel's is due.
    fn have_loaded(
        &mut self,
        cause: Cause,
        threads: &Threads,
        load: impl FnOnce(Option<&RouterHandle>) -> Result<Loaded, Error> + Send + 'static,
    ) {
        self.reloading = true;
        let (messages, waker) = (threads.messages.clone(), threads.waker.clone());
        let gateway = self.router.as_ref().map(RouterThread::handle);
        std::thread::spawn(move || {
            let _ = messages.send(Message::Loaded(load(gateway.as_ref()), cause));
            waker.wake();
        });
    }

    /// Applies a configuration whose gateway's part is in force, all of it or nothing.
    pub(super) fn loaded(&mut self, loaded: Result<Loaded, Error>, cause: Cause, threads: &Threads) {
        let Loaded { mut tunnel, router_before } = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return self.end_reload(Err(error), cause, threads),
        };
        self.place(&mut tunnel);
        match (self.try_reload(tunnel, threads), router_before) {
            (Ok(tunnel), router) => {
                self.end_reload(Ok(Before { tunnel: Box::new(tunnel), router }), cause, threads);
            }
            (Err(error), None) => self.end_reload(Err(error), cause, threads),
            // Until it is as it was, what it says of the tunnel's prefix is of a configuration that is refused.
            (Err(error), Some(before)) => self.have_loaded(cause, threads, |gateway| {
                if let Some(Err(why)) = gateway.map(|gateway| gateway.reload(before)) {
                    warn!("the gateway keeps its part of a configuration that is refused: {why}");
                }
                Err(error)
            }),
        }
    }

    fn end_reload(&mut self, result: Result<Before, Error>, cause: Cause, threads: &Threads) {
        self.reloading = false;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        if result.as_ref().is_ok_and(|before| before.tunnel.node.hop_prefix != self.config.node.hop_prefix) {
            self.tell_place();
        }
        match (result, cause) {
            (Ok(before), Cause::Asked(asked)) => {
                info!(event = "reloaded", "configuration read again, peers: {}", self.config.peers.len());
                self.unconfirmed.changed(asked.as_ref().and_then(time_to_confirm), before);
                match (&self.scripts, asked) {
                    // Their files may have changed, too.
                    (Some(scripts), asked) => scripts.apply(&self.config.scripts, asked),
                    (None, Some(call)) => call.answer(Reply::Ok(serde_json::Value::Null)),
                    (None, None) => {}
                }
            }
            (Ok(_), Cause::NotConfirmed) => {
                warn!(event = "taken_back", "{}", router_runtime::taken_back(&self.file));
                if let Some(scripts) = &self.scripts {
                    scripts.apply(&self.config.scripts, None);
                }
            }
            (Err(error), Cause::Asked(Some(call))) => call.answer(Reply::Error(error.to_string())),
            (Err(error), Cause::Asked(None)) => {
                warn!(event = "reload_refused", "the configuration stays as it was: {error}");
            }
            (Err(error), Cause::NotConfirmed) => {
                warn!("nobody has confirmed the configuration, but it cannot be taken back: {error}");
            }
        }
        self.go_where_uplink_is(threads);
        // The file may have changed since it was read for those before.
        for asked in std::mem::take(&mut self.reload_again) {
            self.reload(asked, threads);
        }
    }

    /// Where the hopping prefix is not the file's, it is that of the link, or of the uplink that the tunnel follows; or none, while
    /// it is the turn of the site's other gateway.
    fn place(&self, config: &mut TunnelConfig) {
        if let Some(standby) = &config.standby {
            config.node.hop_prefix = if self.turns.turn().is_some() { standby.hop_prefix } else { NOWHERE };
        } else if config.node.mode == Mode::Host {
            config.node.hop_prefix = self.config.node.hop_prefix;
        } else if config.node.follows.is_some() {
            config.node.hop_prefix = self.followed.unwrap_or(NOWHERE);
        }
    }

    /// The router has another prefix for the tunnel, or none.
    pub(super) fn follow(&mut self, prefix: Option<Ipv6Net>, threads: &Threads) {
        self.followed = prefix;
        self.go_where_uplink_is(threads);
    }

    /// Hops in what the router has for the tunnel, if that follows an uplink. While another configuration is being taken
    /// the router may speak of that one, and nobody knows yet whether it will be in force.
    fn go_where_uplink_is(&mut self, threads: &Threads) {
        if self.config.node.follows.is_some() && !self.reloading {
            self.moved(self.followed.unwrap_or(NOWHERE), threads);
        }
    }

    /// The link has another prefix: all that hops goes there. What cannot be is tried again when there is another
    /// prefix or configuration.
    pub(super) fn moved(&mut self, prefix: Ipv6Net, threads: &Threads) {
        if prefix == self.config.node.hop_prefix {
            return;
        }
        let mut config = Box::new(self.config.clone());
        config.node.hop_prefix = prefix;
        match self.try_reload(config, threads) {
            Ok(_) => self.tell_place(),
            Err(error) => warn!("cannot hop in {prefix}: {error}"),
        }
    }

    /// Tells where the tunnel hops now, where it follows an uplink.
    fn tell_place(&self) {
        let Some(follows) = &self.config.node.follows else { return };
        let (prefix, uplink) = (self.config.node.hop_prefix, &follows.uplink);
        if prefix == NOWHERE {
            warn!(
                event = "own_prefix",
                reason = "lost",
                "uplink {uplink} has no prefix any more: the tunnel waits for another"
            );
        } else {
            info!(event = "own_prefix", "the tunnel hops in {prefix} of uplink {uplink} now");
        }
    }

    /// Returns the configuration from before.
    fn try_reload(&mut self, mut new: Box<TunnelConfig>, threads: &Threads) -> Result<TunnelConfig, Error> {
        let (link_mtu, aes) = (self.link_mtu, self.hardware_aes);
        let (rewrites, masks) = (self.rewrites == Some(true), self.masks == Some(true));
        self.wrapped.know_ports(&mut new);
        // Before the kernel is where the node will not go.
        new.to_node_config(link_mtu, aes, rewrites, masks).check_values()?;
        limits::check(&new, self.shared)?;
        let (answer, applied) = mpsc::channel();
        threads.send(Command::Apply { config: new.clone(), answer });
        applied.recv().map_err(|_| Error::KernelThread)??;
        let node_config = new.to_node_config(link_mtu, aes, rewrites, masks);
        self.node.reconfigure(node_config, self.clock.now(), &mut self.data.outbox)?;
        let before = std::mem::replace(&mut self.config, *new);
        self.lead_wrapped(threads);
        self.wrapped.look();
        Ok(before)
    }

    /// What was found of the devices of `[[wrap]]`, every second.
    pub(super) fn wrapped_found(&mut self, found: Vec<Found>, threads: &Threads) {
        self.wrapped.found(found);
        if self.wrapped.know_ports(&mut self.config) {
            let (rewrites, masks) = (self.rewrites == Some(true), self.masks == Some(true));
            let config = self.config.to_node_config(self.link_mtu, self.hardware_aes, rewrites, masks);
            if let Err(error) = self.node.reconfigure(config, self.clock.now(), &mut self.data.outbox) {
                warn!("[[wrap]]: {error}");
            }
        }
        self.lead_wrapped(threads);
    }

    /// Has the devices of `[[wrap]]` lead to where sessions have their other ends now.
    pub(super) fn lead_wrapped(&mut self, threads: &Threads) {
        let sessions = self.node.masked().filter_map(|(peer, flow)| Some((peer, flow?))).collect();
        let led = self.wrapped.lead(&self.config, &sessions, || {
            let (messages, waker) = (threads.messages.clone(), threads.waker.clone());
            Box::new(move |found| {
                let _ = messages.send(Message::Wrapped(found));
                waker.wake();
            })
        });
        if let Some(led) = led {
            threads.send(Command::Lead(led));
        }
    }
}

/// Refuses what a running daemon cannot change; whether addresses can be replaced and packets masked was found out at the
/// start.
fn refuse_fixed(
    old: &TunnelConfig,
    new: &TunnelConfig,
    can_rewrite: bool,
    can_mask: bool,
) -> Result<(), Error> {
    let tunnel = &new.tunnel;
    let fixed = [
        ("[tunnel] name", tunnel.name == old.tunnel.name),
        ("[tunnel] realtime", tunnel.realtime == old.tunnel.realtime),
        ("[tunnel] spin", tunnel.spin == old.tunnel.spin),
        ("[tunnel] threads", tunnel.threads == old.tunnel.threads),
        ("[tunnel] cpus", tunnel.cpus == old.tunnel.cpus),
        ("a [[peer]] of the classic profile", new.classic == old.classic),
        (
            "carry of a [[peer]], the first with \"rewrite\",",
            can_rewrite || !new.peers.iter().any(|peer| peer.rewrite),
        ),
        ("[[wrap]], the first,", can_mask || new.wraps.is_empty()),
        (
            "allowed_ips, which for the first time cover a peer's hop_prefix,",
            is_bound(old) || !leads_to_peers(new),
        ),
        ("[node] mode", new.node.mode == old.node.mode),
        ("[node] internal, protect or others", new.node.transparent == old.node.transparent),
        ("[node] external", new.node.external == old.node.external),
        ("[standby], which is there or is not,", new.standby.is_some() == old.standby.is_some()),
        (
            "[node] private_key, unless the one before is previous_private_key,",
            keeps_a_key(&old.node, &new.node),
        ),
    ];
    let changed = fixed.iter().find(|(_, same)| !same);
    changed.map_or(Ok(()), |(key, _)| Err(Error::NeedsRestart(key)))
}

/// Whether a key that peers know stays: the private one goes on beside another, or the one before it is back in its place.
fn keeps_a_key(old: &config::Node, new: &config::Node) -> bool {
    let is_back = old.previous_key.iter().any(|key| key.as_bytes() == new.private_key.as_bytes());
    let mut keys = [Some(&new.private_key), new.previous_key.as_ref()].into_iter().flatten();
    is_back || keys.any(|key| key.as_bytes() == old.private_key.as_bytes())
}

/// The time in which a change is to be confirmed, if who has asked for it wants that.
fn time_to_confirm(asked: &Call) -> Option<Duration> {
    let Request::Reload { confirm_ms } = asked.request else { return None };
    confirm_ms.map(|ms| Duration::from_millis(ms.into()))
}
