//! Associations and policies that are none of IKE's: of a file, and of daemons at the key socket. Their policies are kept apart,
//! so that who takes all of them away takes none of the configuration's along.
//!
//! This file and the carrier need each other: a carrier is made with the rules that are put together here.

use std::time::Instant;

use ike::random::Random;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ipsec::key_engine::KeyEngine;
use ipsec::level::{Level, Levels};
use ipsec::policy::{Action, Direction, PolicyDatabase, Rule};
use ipsec::selector::Selector;

use super::Carrier;
use crate::deliver::Deliver;
use crate::error::Error;
use crate::manual::Manual;

impl<R: Random> Carrier<R> {
    /// Puts in what a file says, before the first packet.
    ///
    /// # Errors
    /// What is wrong with it; the carrier is not to be used then.
    pub fn load(&mut self, manual: Manual, now: Instant) -> Result<(), Error> {
        manual.apply(&mut self.engine, &mut self.by_hand, now)?;
        self.engine_deadline = self.engine.deadline();
        self.compose_policies();
        Ok(())
    }

    /// Tells daemons beside IKE by [`Event::Keys`](super::Event::Keys) from now on.
    pub fn tell_keys(&mut self) {
        self.tells_keys = true;
    }

    /// The engine, and the policies by hand, for a key socket; then call [`keys_changed`](Self::keys_changed).
    pub fn keys(&mut self) -> (&mut KeyEngine, &mut PolicyDatabase) {
        (&mut self.engine, &mut self.by_hand)
    }

    /// The policies by hand.
    pub fn policies_by_hand(&self) -> &[Rule] {
        self.by_hand.rules()
    }

    /// Somebody has changed associations or policies by hand, and so many packets were dropped as nobody made them an
    /// association.
    pub fn keys_changed(&mut self, dropped: usize, now: Instant, deliver: &mut dyn Deliver) {
        for _ in 0..dropped {
            self.ipsec_drops.count(ipsec::drops::DropReason::NotKeyed);
        }
        self.compose_policies();
        self.recent.clear();
        // A child of which one association is gone is of no use: IKE makes another when there is something to carry.
        let is_broken = |id| self.engine.get(id).is_none();
        let broken =
            self.children.iter().filter(|(_, c)| is_broken(c.inbound_id) || is_broken(c.outbound_id));
        let broken: Vec<_> = broken.map(|(spi, child)| (child.ike, ike::numbers::Spi(*spi))).collect();
        for (ike, spi) in broken {
            // One that is about to end anyway need not be deleted.
            let _ = self.ike.delete_child(now, ike, spi);
        }
        self.events.push_back(super::Event::Mtu);
        self.settle(now, deliver);
    }

    /// The configuration's own rules first, then those by hand, then what children stand for. What no rule is for goes through
    /// a tunnel or not at all.
    pub(super) fn compose_policies(&mut self) {
        let all = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let rest = [Direction::Out, Direction::In].into_iter().flat_map(|direction| {
            all.map(|all| Rule { direction, selector: Selector::between(all, all), action: TUNNEL })
        });
        let rules = self.own_rules.iter().chain(self.by_hand.rules()).chain(&self.child_rules);
        self.judges_input = self.policies.system_levels().transport_encryption >= Level::Require
            || rules.clone().any(|rule| rule.direction == Direction::In);
        let rules: Vec<Rule> = rules.cloned().chain(rest).collect();
        self.policies.flush();
        rules.into_iter().for_each(|rule| self.policies.add(rule));
    }
}

const TUNNEL: Action =
    Action::Protect { levels: Levels { tunnel_encryption: Level::Require, ..Levels::NONE }, tunnel: None };

/// A rule of the configuration: what it has protected goes through a tunnel, unless it demands something else.
pub(super) fn stricter(mut rule: Rule) -> Rule {
    if let Action::Protect { levels, .. } = &mut rule.action
        && levels.authentication.max(levels.transport_encryption) < Level::Require
    {
        levels.tunnel_encryption = levels.tunnel_encryption.max(Level::Require);
    }
    rule
}

/// Whether a child's rule is of AH or transport mode.
pub(super) fn is_no_tunnel(rule: &Rule) -> bool {
    matches!(rule.action, Action::Protect { levels, .. } if levels.tunnel_encryption == Level::None)
}
