//! Where a script is put and how it is run there: a `[[script]]` of the configuration, the options of `script load`, and
//! what the script host is asked for.

use std::path::PathBuf;

use script::matching::{Rule, RuleError};
use serde::{Deserialize, Serialize};

/// Name of the tunnel's device, if nothing else is said.
pub const TUNNEL: &str = "mt6d0";

/// A script at a hook. Its fields are those of requests to the script host and of its list, whose names are a contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The script.
    pub file: PathBuf,
    /// Where it gets packets.
    pub hook: Hook,
    /// Only packets of this interface: that they go to at output, postrouting, egress and tunnel-out, that they came from
    /// elsewhere. By default [`TUNNEL`] at tunnel-in and tunnel-out.
    pub dev: Option<String>,
    /// Only packets of which this holds, see [`Rule`].
    #[serde(rename = "match")]
    pub rule: Option<String>,
    /// The function that gets the packets.
    pub function: String,
    /// Globals, tables and threads are those of the scripts of the same number; by default of the same file.
    pub state: Option<u32>,
    /// In which tier it runs.
    pub tier: Tier,
    /// At XDP of the interface.
    #[serde(default)]
    pub xdp: bool,
    /// Order among the scripts and tables at a hook, as nftables has it: the lowest comes first.
    pub priority: Option<i32>,
    /// What becomes of a packet at which it fails.
    pub failure: Failure,
    /// Packets pass when the script host is not there or cannot keep up; they are dropped otherwise.
    pub fail_open: bool,
}

/// Where a script gets packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// All that comes in, before it is routed.
    Prerouting,
    /// What is for this host.
    Input,
    /// What is for others.
    Forward,
    /// What this host sends.
    Output,
    /// All that goes out, after it was routed.
    Postrouting,
    /// What comes in through an interface.
    Ingress,
    /// What goes out through an interface.
    Egress,
    /// What comes out of the tunnel.
    TunnelIn,
    /// What goes into the tunnel.
    TunnelOut,
}

/// In which tier a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The best there is for it.
    Auto,
    /// Compiled, in the kernel.
    Kernel,
    /// In the kernel as far as it goes, which hands over to Lua what is beyond that.
    Both,
    /// In a Lua state of the script host.
    User,
}

/// What becomes of a packet at which a script fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    /// It is discarded.
    Drop,
    /// It goes on.
    Accept,
}

impl Hook {
    /// Every hook, in the order of messages.
    pub const ALL: [Self; 9] = [
        Self::Prerouting,
        Self::Input,
        Self::Forward,
        Self::Output,
        Self::Postrouting,
        Self::Ingress,
        Self::Egress,
        Self::TunnelIn,
        Self::TunnelOut,
    ];

    /// As options and configurations have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
            Self::TunnelIn => "tunnel-in",
            Self::TunnelOut => "tunnel-out",
        }
    }

    /// Netfilter's hook, which the user tier has it at.
    pub const fn netfilter(self) -> &'static str {
        match self {
            Self::Prerouting | Self::Ingress | Self::TunnelIn => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting | Self::Egress | Self::TunnelOut => "postrouting",
        }
    }

    /// Whether `dev` is where packets go to rather than where they came from.
    pub fn is_outward(self) -> bool {
        matches!(self.netfilter(), "output" | "postrouting")
    }
}

impl Tier {
    /// Every tier, in the order of messages.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Kernel, Self::Both, Self::User];

    /// As options and configurations have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kernel => "kernel",
            Self::Both => "both",
            Self::User => "user",
        }
    }
}

impl Failure {
    /// Each, in the order of messages.
    pub const ALL: [Self; 2] = [Self::Drop, Self::Accept];

    /// As options and configurations have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Accept => "accept",
        }
    }

    /// The verdict.
    pub const fn verdict(self) -> script::vm::Verdict {
        match self {
            Self::Drop => script::vm::Verdict::Drop,
            Self::Accept => script::vm::Verdict::Accept,
        }
    }
}

/// Why a script cannot be put there, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttachmentError {
    /// A hook of an interface, without one.
    #[error("{} is of an interface: name it with dev", .0.name())]
    NoDevice(Hook),
    /// XDP where no packets come in through an interface.
    #[error("XDP has what comes in through an interface: ingress or prerouting, not {}", .0.name())]
    XdpHook(Hook),
    /// XDP without an interface.
    #[error("XDP is of an interface: name it with dev")]
    XdpNoDevice,
    /// XDP in a tier with Lua.
    #[error("at XDP a script runs in the kernel alone: tier is auto or kernel")]
    XdpTier,
    /// XDP with a priority.
    #[error("an interface has one program at XDP: there is no priority")]
    XdpPriority,
    /// The rule is none.
    #[error("{0}")]
    Rule(#[from] RuleError),
    /// A rule of an interface that is not known at the hook.
    #[error("at {} it is not known where a packet goes: oif never holds", .0.name())]
    OutgoingUnknown(Hook),
    /// A rule of an interface that packets of this one did not come from.
    #[error("iif is another interface than dev: it never holds")]
    OtherIncoming,
    /// A rule of an interface, for packets that came from none.
    #[error("packets that this host sends have no input interface: iif never matches")]
    NoIncoming,
}

impl AttachmentError {
    /// The key, or option, that is wrong.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::NoDevice(_) => "dev",
            Self::XdpHook(_) | Self::XdpNoDevice | Self::XdpTier | Self::XdpPriority => "xdp",
            Self::Rule(_) | Self::OutgoingUnknown(_) | Self::OtherIncoming | Self::NoIncoming => "match",
        }
    }
}

impl Attachment {
    /// The interface that it is limited to.
    pub fn device(&self) -> Option<&str> {
        match (self.dev.as_deref(), self.hook) {
            (None, Hook::TunnelIn | Hook::TunnelOut) => Some(TUNNEL),
            (dev, _) => dev,
        }
    }

    /// The rule; a wrong one is refused by [`check`](Self::check).
    pub fn matching(&self) -> Rule {
        self.rule.as_deref().and_then(|text| Rule::parse(text).ok()).unwrap_or_default()
    }

    /// What concerns several values.
    ///
    /// # Errors
    /// The first thing that cannot be so.
    pub fn check(&self) -> Result<(), AttachmentError> {
        if matches!(self.hook, Hook::Ingress | Hook::Egress) && self.dev.is_none() {
            return Err(AttachmentError::NoDevice(self.hook));
        }
        if self.xdp {
            self.check_xdp()?;
        }
        let rule = self.rule.as_deref().map(Rule::parse).transpose()?.unwrap_or_default();
        if rule.oif.is_some() && matches!(self.hook.netfilter(), "prerouting" | "input") {
            return Err(AttachmentError::OutgoingUnknown(self.hook));
        }
        if self.xdp && rule.iif.is_some() && rule.iif != self.dev {
            return Err(AttachmentError::OtherIncoming);
        }
        if rule.iif.is_some() && self.hook == Hook::Output {
            return Err(AttachmentError::NoIncoming);
        }
        Ok(())
    }

    fn check_xdp(&self) -> Result<(), AttachmentError> {
        if !matches!(self.hook, Hook::Ingress | Hook::Prerouting) {
            return Err(AttachmentError::XdpHook(self.hook));
        }
        if self.dev.is_none() {
            return Err(AttachmentError::XdpNoDevice);
        }
        if matches!(self.tier, Tier::User | Tier::Both) {
            return Err(AttachmentError::XdpTier);
        }
        if self.priority.is_some() {
            return Err(AttachmentError::XdpPriority);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Attachment {
        serde_json::from_str(text).expect("an attachment")
    }

    const PLAIN: &str = r#"{"file":"/a.lua","hook":"ingress","dev":null,"match":null,"function":"f","state":null,
        "tier":"auto","priority":null,"failure":"drop","fail_open":false}"#;

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        let plain = parsed(PLAIN);
        let key = |attachment: &Attachment| attachment.check().map_err(|error| error.key());
        assert_eq!(key(&plain), Err("dev"));
        let eth0 = Attachment { dev: Some("eth0".into()), ..plain };
        assert_eq!(key(&eth0), Ok(()));
        assert_eq!(key(&Attachment { rule: Some("oif eth1".into()), ..eth0.clone() }), Err("match"));
        assert_eq!(key(&Attachment { rule: Some("tcp port 1".into()), ..eth0.clone() }), Err("match"));
        let xdp = Attachment { xdp: true, ..eth0.clone() };
        assert_eq!(key(&xdp), Ok(()));
        assert_eq!(key(&Attachment { hook: Hook::Prerouting, dev: None, ..xdp.clone() }), Err("xdp"));
        assert_eq!(key(&Attachment { hook: Hook::Egress, ..xdp.clone() }), Err("xdp"));
        assert_eq!(key(&Attachment { tier: Tier::Both, ..xdp.clone() }), Err("xdp"));
        assert_eq!(key(&Attachment { priority: Some(1), ..xdp.clone() }), Err("xdp"));
        assert_eq!(key(&Attachment { rule: Some("iif eth1".into()), ..xdp }), Err("match"));
        let tunnel = Attachment { hook: Hook::TunnelIn, dev: None, ..eth0 };
        assert_eq!(tunnel.device(), Some("mt6d0"));
    }
}
