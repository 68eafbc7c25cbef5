//! Where in the kernel a script gets its packets: at an interface, or at a hook of netfilter.

use bpf::{netfilter, verdict, xdp};
use linux::bpf::attach::Direction;
use linux::bpf::netfilter::{Family, Hook as NetfilterHook};
use script::compile::{
    AttachType, CompileError, Compiled, PUNT_MASK, Refusal, Results, Side, compile, followed, matched,
};
use script::matching::Rule;
use script::vm::Script;

use super::kernel::{Interfaces, TopLevel};
use config::attachment::{Attachment, Failure};
use config::folder::Folder;

/// On all packets that scripts make: none of them comes to a script of this host again, so none goes round for ever.
pub const MARK: u32 = 0x51de_57e9;
/// The upper half of the marks of packets that scripts in the kernel hand over to Lua; the lower half has a bit for each
/// such script. It lasts from the interface to netfilter's prerouting, where the bit is taken away.
pub const PUNT_MARK: u32 = 0x51df_0000;
/// So many scripts can hand over.
pub const MOST_PUNTS: u32 = PUNT_MASK.trailing_zeros();
/// As of the table mangle, which is before filters.
pub const PRIORITY: i32 = -150;

/// Why no packet can be handed over to Lua from a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CannotPunt {
    /// It is behind netfilter, where the user tier is.
    #[error("packets that leave have passed netfilter: none can be handed over to Lua")]
    Egress,
    /// It is at XDP.
    #[error("at XDP no packet can be handed over to Lua")]
    Xdp,
    /// It is at netfilter.
    #[error("packets are handed over to Lua at interfaces only (--dev, and no --priority)")]
    Netfilter,
}

/// A place in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttachPoint {
    /// At an interface.
    Interface {
        /// Its name.
        device: String,
        /// Which packets.
        direction: Direction,
    },
    /// At XDP of an interface of this name.
    Xdp(String),
    /// At a hook of netfilter.
    Netfilter {
        /// Which.
        hook: NetfilterHook,
        /// IP versions that the rule may hold of.
        families: Vec<Family>,
        /// As of chains of nftables.
        priority: i32,
        /// Packets of these interfaces.
        interfaces: Vec<(Side, String)>,
    },
}

impl AttachPoint {
    /// Where packets of an attachment are seen: at an interface if they are all those of one, as it may be changed there.
    pub fn of(attachment: &Attachment) -> Self {
        let rule = attachment.matching();
        let own = if attachment.hook.is_outward() { Side::Outgoing } else { Side::Incoming };
        let device = attachment.device().map(|device| (own, device.to_owned()));
        let iif = rule.iif.map(|name| (Side::Incoming, name));
        let oif = rule.oif.map(|name| (Side::Outgoing, name));
        let mut interfaces: Vec<_> = device.iter().cloned().chain(iif).chain(oif).collect();
        interfaces.dedup();
        let hook = netfilter_hook(attachment);
        let direction = direction(hook);
        match (direction, device) {
            (Some(Direction::Ingress), Some((_, device))) if attachment.xdp => AttachPoint::Xdp(device),
            (Some(direction), Some((_, device)))
                if interfaces.len() == 1 && attachment.priority.is_none() =>
            {
                AttachPoint::Interface { device, direction }
            }
            _ => {
                let priority = priority(attachment);
                let families = match rule.family {
                    Some(4) => vec![Family::Ipv4],
                    Some(_) => vec![Family::Ipv6],
                    None => vec![Family::Ipv4, Family::Ipv6],
                };
                AttachPoint::Netfilter { hook, families, priority, interfaces }
            }
        }
    }

    /// The interface that it is at.
    pub fn device(&self) -> Option<&str> {
        match self {
            AttachPoint::Interface { device, .. } | AttachPoint::Xdp(device) => Some(device),
            AttachPoint::Netfilter { .. } => None,
        }
    }

    /// Whether a program there comes before netfilter, to which it can hand packets over by their mark.
    ///
    /// # Errors
    /// Why not.
    pub const fn may_punt(&self) -> Result<(), CannotPunt> {
        match self {
            AttachPoint::Interface { direction: Direction::Ingress, .. } => Ok(()),
            AttachPoint::Interface { .. } => Err(CannotPunt::Egress),
            AttachPoint::Xdp(_) => Err(CannotPunt::Xdp),
            AttachPoint::Netfilter { .. } => Err(CannotPunt::Netfilter),
        }
    }

    /// What a script is compiled for there.
    ///
    /// # Errors
    /// If this kernel has no such place.
    pub fn attach_type(&self, has_link: bool) -> linux::Result<AttachType> {
        Ok(match self {
            AttachPoint::Interface { .. } => AttachType::Interface { has_link },
            AttachPoint::Xdp(_) => AttachType::Xdp,
            AttachPoint::Netfilter { interfaces, .. } => AttachType::Netfilter {
                layout: linux::bpf::netfilter::layout()?,
                interfaces: interfaces.clone(),
            },
        })
    }
}

/// The hook of netfilter that the user tier has a script's packets at.
#[must_use]
pub fn netfilter_hook(attachment: &Attachment) -> NetfilterHook {
    match attachment.hook.netfilter() {
        "prerouting" => NetfilterHook::Prerouting,
        "input" => NetfilterHook::Input,
        "forward" => NetfilterHook::Forward,
        "output" => NetfilterHook::Output,
        _ => NetfilterHook::Postrouting,
    }
}

/// Which packets of an interface are those of a hook.
const fn direction(hook: NetfilterHook) -> Option<Direction> {
    match hook {
        NetfilterHook::Prerouting => Some(Direction::Ingress),
        NetfilterHook::Postrouting => Some(Direction::Egress),
        NetfilterHook::Input | NetfilterHook::Forward | NetfilterHook::Output => None,
    }
}

/// The priority that was asked for.
#[must_use]
pub fn priority(attachment: &Attachment) -> i32 {
    attachment.priority.unwrap_or(PRIORITY)
}

/// Compiles a script for a place, with the rule that says which packets are its own: all of it, or what can be if there is
/// a mark for what it hands over.
///
/// # Errors
/// Why that cannot be.
pub fn compile_for(
    attachment: &Attachment,
    script: &Script,
    attach_type: AttachType,
    punt_mark: Option<u32>,
    interfaces: Interfaces,
) -> Result<Compiled, CompileError> {
    let script = matched(script, &attachment.matching());
    compile_as_it_is(attachment, &script, attach_type, punt_mark, interfaces)
}

/// The same with points that tell of packets of which a rule holds, if they are not all followed yet.
///
/// # Errors
/// Why that cannot be: it may be too long with them.
pub(super) fn compile_followed(
    attachment: &Attachment,
    script: &Script,
    attach_type: AttachType,
    punt_mark: Option<u32>,
    which: &Rule,
) -> Result<Compiled, CompileError> {
    let followed = followed(script, &attachment.matching(), which);
    let script = followed.map_err(|reason| CompileError::Refused(vec![Refusal { line: 1, reason }]))?;
    compile_as_it_is(attachment, &script, attach_type, punt_mark, Interfaces::Here)
}

fn compile_as_it_is(
    attachment: &Attachment,
    script: &Script,
    attach_type: AttachType,
    punt_mark: Option<u32>,
    interfaces: Interfaces,
) -> Result<Compiled, CompileError> {
    let (pass, drop) = match attach_type {
        AttachType::Interface { .. } => (verdict::NEXT, verdict::DROP),
        AttachType::Xdp => (xdp::PASS, xdp::DROP),
        AttachType::Netfilter { .. } => (netfilter::verdict::ACCEPT, netfilter::verdict::DROP),
    };
    let error = match attachment.failure {
        Failure::Drop => drop,
        Failure::Accept => pass,
    };
    let results = Results { pass, drop, error, queue_mark: None, unseen_mark: Some(MARK), punt_mark };
    let top = TopLevel { folder: Folder::of(&attachment.file), interfaces };
    compile(script, top, results, attach_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::attachment::{Hook, Tier};

    #[test]
    fn what_is_all_of_an_interface_is_there_and_the_rest_at_netfilter() {
        let plain = Attachment {
            file: "/a.lua".into(),
            hook: Hook::Ingress,
            dev: Some("lan".to_owned()),
            rule: None,
            function: "f".to_owned(),
            state: None,
            tier: Tier::Auto,
            xdp: false,
            priority: None,
            failure: Failure::Drop,
            fail_open: false,
        };
        let direction = Direction::Ingress;
        let interface = AttachPoint::Interface { device: "lan".to_owned(), direction };
        assert_eq!(AttachPoint::of(&plain), interface);
        let same = Attachment { rule: Some("iif lan ip6 saddr ::/0".to_owned()), ..plain.clone() };
        assert_eq!(AttachPoint::of(&same), interface);
        assert_eq!(AttachPoint::of(&Attachment { xdp: true, ..same }), AttachPoint::Xdp("lan".to_owned()));
        for (hook, priority, rule, wanted) in [
            (Hook::Ingress, Some(-300), None, (NetfilterHook::Prerouting, 2, -300, 1)),
            (Hook::Forward, None, Some("oif wan tcp dport 80"), (NetfilterHook::Forward, 2, -150, 2)),
            (
                Hook::Postrouting,
                None,
                Some("iif wan ip saddr 10.0.0.0/8"),
                (NetfilterHook::Postrouting, 1, -150, 2),
            ),
            (Hook::Output, None, None, (NetfilterHook::Output, 2, -150, 1)),
        ] {
            let rule = rule.map(str::to_owned);
            let point = AttachPoint::of(&Attachment { hook, priority, rule, ..plain.clone() });
            let AttachPoint::Netfilter { hook, families, priority, interfaces } = &point else {
                panic!("{point:?}")
            };
            assert_eq!((*hook, families.len(), *priority, interfaces.len()), wanted);
        }
    }
}
