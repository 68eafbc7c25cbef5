//! Another configuration for a daemon that runs: all of it, or none.

use std::sync::mpsc;
use std::time::Duration;

use ipnet::Ipv6Net;
use mt6d::config::NOWHERE;
use tracing::{info, warn};

use super::set_up::leads_to_peers;
use super::{Before, Daemon, Message, Threads};
use crate::error::Error;
use crate::kernel::Command;
use crate::limits;
use crate::load::{Loaded, load};
use config::attachment::Attachment;
use config::{Mode, TunnelConfig};
use control::{Call, Reply, Request};
use router_runtime::RouterThread;

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
        self.reloading = true;
        let (file, messages, waker) = (self.file.clone(), threads.messages.clone(), threads.waker.clone());
        let gateway = self.router.as_ref().map(RouterThread::handle);
        std::thread::spawn(move || {
            let _ = messages.send(Message::Loaded(load(&file, gateway.as_ref()), asked));
            waker.wake();
        });
    }

    /// Applies a configuration that was read again, all of it or nothing.
    pub(super) fn loaded(&mut self, loaded: Result<Loaded, Error>, asked: Option<Call>, threads: &Threads) {
        self.reloading = false;
        let result = loaded.and_then(|Loaded { mut tunnel, router_before }| {
            self.place(&mut tunnel);
            match (self.try_reload(tunnel, threads), router_before, &self.router) {
                (Ok(tunnel), router, _) => Ok(Before { tunnel: Box::new(tunnel), router }),
                (Err(error), Some(before), Some(gateway)) => {
                    gateway.handle().put_back(before);
                    Err(error)
                }
                (Err(error), _, _) => Err(error),
            }
        });
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        if result.is_ok() {
            info!(event = "reloaded", "configuration read again, peers: {}", self.config.peers.len());
        }
        match (result, asked) {
            (Ok(before), asked) => {
                self.unconfirmed.changed(asked.as_ref().and_then(time_to_confirm), before);
                let wanted = self.wanted_scripts();
                match (&self.scripts, asked) {
                    // Their files may have changed, too.
                    (Some(scripts), asked) => scripts.apply(wanted, asked),
                    (None, Some(call)) => call.answer(Reply::Ok(serde_json::Value::Null)),
                    (None, None) => {}
                }
            }
            (Err(error), Some(call)) => call.answer(Reply::Error(error.to_string())),
            (Err(error), None) => {
                warn!(event = "reload_refused", "the configuration stays as it was: {error}");
            }
        }
        // The file may have changed since it was read for those before.
        for asked in std::mem::take(&mut self.reload_again) {
            self.reload(asked, threads);
        }
    }

    /// Nobody has confirmed the configuration in force.
    pub(super) fn take_back(&mut self, before: Before, threads: &Threads) {
        let Before { mut tunnel, router } = before;
        self.place(&mut tunnel);
        if let (Some(router), Some(gateway)) = (router, &self.router) {
            gateway.handle().put_back(router);
        }
        match self.try_reload(tunnel, threads) {
            Ok(_) => warn!(event = "taken_back", "{}", router_runtime::taken_back(&self.file)),
            Err(error) => {
                warn!("nobody has confirmed the configuration, but it cannot be taken back: {error}");
            }
        }
        if let Some(scripts) = &self.scripts {
            scripts.apply(self.wanted_scripts(), None);
        }
    }

    fn wanted_scripts(&self) -> Vec<Attachment> {
        self.config.scripts.iter().map(|script| script.attachment.clone()).collect()
    }

    /// Where the hopping prefix is not the file's, it is that of the link, or of the uplink that the tunnel follows.
    fn place(&self, config: &mut TunnelConfig) {
        if config.node.mode == Mode::Host {
            config.node.hop_prefix = self.config.node.hop_prefix;
        } else if config.node.follows.is_some() {
            config.node.hop_prefix = self.followed.unwrap_or(NOWHERE);
        }
    }

    /// The router has another prefix for the tunnel, or none.
    pub(super) fn follow(&mut self, prefix: Option<Ipv6Net>, threads: &Threads) {
        self.followed = prefix;
        let Some(follows) = &self.config.node.follows else { return };
        let uplink = &follows.uplink;
        match prefix {
            Some(prefix) => info!(event = "own_prefix", "the tunnel hops in {prefix} of uplink {uplink} now"),
            None => warn!(
                event = "own_prefix",
                reason = "lost",
                "uplink {uplink} has no prefix any more: the tunnel waits for another"
            ),
        }
        self.moved(prefix.unwrap_or(NOWHERE), threads);
    }

    /// The link has another prefix: all that hops goes there.
    pub(super) fn moved(&mut self, prefix: Ipv6Net, threads: &Threads) {
        if prefix == self.config.node.hop_prefix {
            return;
        }
        let mut config = Box::new(self.config.clone());
        config.node.hop_prefix = prefix;
        if let Err(error) = self.try_reload(config, threads) {
            warn!("cannot hop in {prefix}: {error}");
        }
    }

    /// Returns the configuration from before.
    fn try_reload(&mut self, new: Box<TunnelConfig>, threads: &Threads) -> Result<TunnelConfig, Error> {
        let (old, tunnel) = (&self.config, &new.tunnel);
        let fixed = [
            ("[tunnel] name", tunnel.name == old.tunnel.name),
            ("[tunnel] realtime", tunnel.realtime == old.tunnel.realtime),
            ("[tunnel] spin", tunnel.spin == old.tunnel.spin),
            ("[tunnel] threads", tunnel.threads == old.tunnel.threads),
            ("[tunnel] cpus", tunnel.cpus == old.tunnel.cpus),
            ("a [[peer]] of the classic profile", new.classic == old.classic),
            (
                "carry of a [[peer]], the first with \"rewrite\",",
                self.rewrites.is_some() || !new.peers.iter().any(|peer| peer.rewrite),
            ),
            (
                "allowed_ips, which for the first time cover a peer's hop_prefix,",
                old.node.mode == Mode::Host || leads_to_peers(old) || !leads_to_peers(&new),
            ),
            ("[node] mode", new.node.mode == old.node.mode),
            ("[node] internal, protect or others", new.node.transparent == old.node.transparent),
            ("[node] external", new.node.external == old.node.external),
            (
                "[node] private_key, unless the one before is previous_private_key,",
                keeps_a_key(&old.node, &new.node),
            ),
        ];
        if let Some((key, _)) = fixed.iter().find(|(_, same)| !same) {
            return Err(Error::NeedsRestart(key));
        }
        let node_config = new.to_node_config(self.link_mtu, self.hardware_aes, self.rewrites == Some(true));
        limits::check(&new, self.shared)?;
        let (answer, applied) = mpsc::channel();
        threads.send(Command::Apply { config: new.clone(), answer });
        applied.recv().map_err(|_| Error::KernelThread)??;
        let now = self.clock.now();
        self.node.reconfigure(node_config, now, &mut self.data.outbox)?;
        Ok(std::mem::replace(&mut self.config, *new))
    }
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
