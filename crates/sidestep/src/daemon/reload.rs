//! Another configuration for a daemon that runs: all of it, or none.

use std::sync::mpsc;

use ipnet::Ipv6Net;
use tracing::{info, warn};

use super::kernel::Command;
use super::{Daemon, Error, News, Threads, check_limit};
use crate::config::{self, Config, Mode};
use crate::control::{Call, Reply};

impl Daemon {
    /// Has the configuration read again, by a thread of its own: with thousands of peers it takes a second.
    pub(super) fn reload(&mut self, asked: Option<Call>, threads: &Threads) {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
        if self.reloading {
            return self.reload_again.push(asked);
        }
        self.reloading = true;
        let (file, news, waker) = (self.file.clone(), threads.news.clone(), threads.waker.clone());
        std::thread::spawn(move || {
            let config = config::load(&file).and_then(|whole| match whole.tunnel {
                Some(config) => Ok(Box::new(config)),
                None => Err(config::Error::NoTunnel { path: file }),
            });
            let config = config.map_err(|error| error.to_string());
            let _ = news.send(News::Loaded(config, asked));
            waker.wake();
        });
    }

    /// Applies a configuration that was read again, all of it or nothing.
    pub(super) fn loaded(
        &mut self,
        config: Result<Box<Config>, String>,
        asked: Option<Call>,
        threads: &Threads,
    ) {
        self.reloading = false;
        let result = config.and_then(|mut new| {
            if new.node.mode == Mode::Host {
                // The link's, not the file's.
                new.node.hop_prefix = self.config.node.hop_prefix;
            }
            self.try_reload(new, threads)
        });
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        if result.is_ok() {
            info!("configuration read again, peers: {}", self.config.peers.len());
        }
        match (result, asked) {
            (Ok(()), asked) => {
                let wanted = self.config.scripts.iter().map(|script| script.attachment.clone()).collect();
                match (&self.scripts, asked) {
                    // Their files may have changed, too.
                    (Some(scripts), asked) => scripts.apply(wanted, asked),
                    (None, Some(call)) => call.answer(Reply::Ok(serde_json::Value::Null)),
                    (None, None) => {}
                }
            }
            (Err(message), Some(call)) => call.answer(Reply::Error(message)),
            (Err(message), None) => warn!("the configuration stays as it was: {message}"),
        }
        // The file may have changed since it was read for those before.
        for asked in std::mem::take(&mut self.reload_again) {
            self.reload(asked, threads);
        }
    }

    /// The link has another prefix: all that hops goes there.
    pub(super) fn moved(&mut self, prefix: Ipv6Net, threads: &Threads) {
        if prefix == self.config.node.hop_prefix {
            return;
        }
        let mut config = Box::new(self.config.clone());
        config.node.hop_prefix = prefix;
        if let Err(message) = self.try_reload(config, threads) {
            warn!("{prefix} cannot be hopped in: {message}");
        }
    }

    fn try_reload(&mut self, new: Box<Config>, threads: &Threads) -> Result<(), String> {
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
            ("[node] mode", new.node.mode == old.node.mode),
            ("[node] internal, protect or others", new.node.transparent == old.node.transparent),
            ("[node] external", new.node.external == old.node.external),
            ("[node] private_key", new.node.private_key.as_bytes() == old.node.private_key.as_bytes()),
        ];
        if let Some((key, _)) = fixed.iter().find(|(_, same)| !same) {
            return Err(Error::NeedsRestart(key).to_string());
        }
        let node_config = new.to_node_config(self.link_mtu, self.hardware_aes, self.rewrites == Some(true));
        check_limit(&new, self.shared).map_err(|e| e.to_string())?;
        let (answer, applied) = mpsc::channel();
        threads.tell(Command::Apply { config: new.clone(), answer });
        applied.recv().map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let now = self.clock.now();
        self.node.reconfigure(node_config, now, &mut self.data.outbox).map_err(|e| e.to_string())?;
        self.config = *new;
        Ok(())
    }
}
