//! What others ask of the router, by its control socket.

use std::time::Instant;

use config::Firewall;
use control::{Call, Reply, Request};
use ipnet::IpNet;
use router::firewall::{Packet, WordsError, with_addresses};
use tracing::warn;

use super::Router;
use crate::firewall::explain;
use crate::traffic;

impl Router {
    pub(super) fn answer(&mut self, call: Call, now: Instant) {
        let reply = match call.request {
            Request::Show => {
                let (mut status, sources) = (self.status(now), self.sources());
                let answer = move || {
                    sources.add_to(&mut status);
                    let document = serde_json::to_value(&status);
                    call.answer(document.map_or_else(|error| Reply::Error(error.to_string()), Reply::Ok));
                };
                // Without a thread the client is told that there is no answer.
                if let Err(error) = std::thread::Builder::new().name("status".into()).spawn(answer) {
                    warn!("cannot report the status: {error}");
                }
                return;
            }
            Request::Firewall => {
                let sources = self.sources();
                let answer = move || call.answer(traffic::firewall_in_full(&sources.rules));
                if let Err(error) = std::thread::Builder::new().name("firewall".into()).spawn(answer) {
                    warn!("cannot report what the firewall has counted: {error}");
                }
                return;
            }
            Request::Events { after } => Reply::of(&events::since(after)),
            Request::Explain { ref packet } => match self.kernel.firewall_in_force() {
                Some(firewall) => match self.explain(&firewall, packet, now) {
                    Ok(document) => Reply::Ok(document),
                    Err(error) => Reply::Error(error.to_string()),
                },
                None => Reply::Error("there is no firewall in the configuration".to_owned()),
            },
            Request::Reach { .. } => Reply::Error("a gateway has no peers: give the tunnel's name".to_owned()),
            Request::Turn { .. } => Reply::Error("a gateway has no turns: give the tunnel's name".to_owned()),
            Request::Reload { .. } | Request::Confirm => Reply::Error(
                "the gateway is reloaded together with its tunnel: give the tunnel's name".to_owned(),
            ),
            Request::Down => Reply::Error(
                "`sidestep down` ends tunnels; end this one where it was started (`systemctl stop sidestep@…`)"
                    .to_owned(),
            ),
            Request::TestClockOffset { .. } => Reply::Error("a gateway has no clock".to_owned()),
        };
        call.answer(reply);
    }

    /// What becomes of a packet now: with hosts' names, and ports that they have asked for.
    fn explain(
        &self,
        firewall: &Firewall,
        packet: &str,
        now: Instant,
    ) -> Result<serde_json::Value, WordsError> {
        let translate = |packet: &mut Packet| {
            self.port_mapping.translate(&self.site, &firewall.policy, packet);
        };
        let addresses = &self.plan.addresses;
        let packet = with_addresses(packet, |name| self.dnsmasqs.named(&self.site, name, addresses, now));
        explain(firewall, &self.file, &packet, translate)
    }

    /// Networks of hosts behind the gateway, each with the gateway's own address in it.
    pub(super) fn networks_behind(&self) -> Vec<IpNet> {
        let interfaces: Vec<_> = self.networks.iter().map(|interface| &interface.network.interface).collect();
        let inner = self.plan.addresses.iter().filter(|address| interfaces.contains(&&address.interface));
        inner.map(|address| address.address).collect()
    }

    /// Whom to ask for what this thread does not know.
    pub(super) fn sources(&self) -> traffic::Sources {
        let rules = self.kernel.firewall().map_or_else(Vec::new, |firewall| {
            let comments = firewall.policy.rules().iter().map(|rule| rule.comment.clone());
            firewall.lines.iter().copied().zip(comments).collect()
        });
        traffic::Sources {
            rules,
            networks: self.networks_behind(),
            tunnel: self.tunnel.as_ref().map(|tunnel| tunnel.socket.clone()),
        }
    }
}
