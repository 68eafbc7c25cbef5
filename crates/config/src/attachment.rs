//! Where a script is put and how it is run there: the options of `script load`, a `[[script]]` of the configuration, and
//! what the script host is asked for.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use script::matching::Rule;
use serde::{Deserialize, Serialize};

/// Name of the tunnel's device, if nothing else is said.
pub const TUNNEL: &str = "mt6d0";

/// A script at a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The script
    pub file: PathBuf,
    /// Where it gets packets
    #[arg(long)]
    pub hook: Hook,
    /// Only packets of this interface: that they go to at output, postrouting, egress and tunnel-out, that they came from
    /// elsewhere. By default mt6d0 at tunnel-in and tunnel-out
    #[arg(long, value_name = "IF")]
    pub dev: Option<String>,
    /// Only packets of which this holds, such as 'ip6 saddr 2001:db8::/32 tcp dport { 80, 443 }'
    #[arg(long = "match", value_name = "RULE", value_parser = rule)]
    #[serde(rename = "match")]
    pub rule: Option<String>,
    /// The function that gets the packets
    #[arg(long, default_value = "process_packet")]
    pub function: String,
    /// Share globals, nf.table and its like with the scripts of the same number; by default with those of the same file
    #[arg(long, value_name = "N")]
    pub state: Option<u32>,
    /// In which tier it runs
    #[arg(long, default_value = "auto")]
    pub tier: Tier,
    /// At XDP of the interface, where packets come first of all, and it costs least to drop them: for a script of ingress
    /// or prerouting that runs in the kernel as a whole, and changes and redirects no packet
    #[arg(long)]
    #[serde(default)]
    pub xdp: bool,
    /// Order among the scripts and tables at a hook, as nftables has it: the lowest comes first. By default -150 (mangle)
    #[arg(long, allow_hyphen_values = true)]
    pub priority: Option<i32>,
    /// What becomes of a packet at which it fails
    #[arg(long, default_value = "drop")]
    pub failure: Failure,
    /// Let packets pass when the script host is not there or cannot keep up; they are dropped otherwise
    #[arg(long)]
    pub fail_open: bool,
}

/// Where a script gets packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// All that comes in, before it is routed
    Prerouting,
    /// What is for this host
    Input,
    /// What is for others
    Forward,
    /// What this host sends
    Output,
    /// All that goes out, after it was routed
    Postrouting,
    /// What comes in through an interface (--dev)
    Ingress,
    /// What goes out through an interface (--dev)
    Egress,
    /// What comes out of the tunnel
    TunnelIn,
    /// What goes into the tunnel
    TunnelOut,
}

/// In which tier a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The best there is for it
    Auto,
    /// Compiled, in the kernel
    Kernel,
    /// In the kernel as far as it goes, which hands over to Lua what is beyond that
    Both,
    /// In a Lua state of the script host
    User,
}

/// What becomes of a packet at which a script fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    /// It is discarded
    Drop,
    /// It goes on
    Accept,
}

impl Hook {
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
    /// The verdict.
    pub const fn verdict(self) -> script::vm::Verdict {
        match self {
            Self::Drop => script::vm::Verdict::Drop,
            Self::Accept => script::vm::Verdict::Accept,
        }
    }
}

/// What is wrong with an attachment: the key, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The key, or option, that is wrong.
    pub key: &'static str,
    /// What to do about it.
    pub message: String,
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
    pub fn check(&self) -> Result<(), Wrong> {
        let wrong = |key, message: String| Err(Wrong { key, message });
        let hook = self.hook.name();
        if matches!(self.hook, Hook::Ingress | Hook::Egress) && self.dev.is_none() {
            return wrong("dev", format!("{hook} is of an interface: name it with dev"));
        }
        let xdp = |message: String| wrong("xdp", message);
        if self.xdp && !matches!(self.hook, Hook::Ingress | Hook::Prerouting) {
            return xdp(format!(
                "XDP has what comes in through an interface: ingress or prerouting, not {hook}"
            ));
        }
        if self.xdp && self.dev.is_none() {
            return xdp("XDP is of an interface: name it with dev".to_owned());
        }
        if self.xdp && matches!(self.tier, Tier::User | Tier::Both) {
            return xdp("at XDP a script runs in the kernel alone: tier is auto or kernel".to_owned());
        }
        if self.xdp && self.priority.is_some() {
            return xdp("an interface has one program at XDP: there is no priority".to_owned());
        }
        let rule = match self.rule.as_deref().map(Rule::parse).transpose() {
            Ok(rule) => rule.unwrap_or_default(),
            Err(error) => return wrong("match", error.to_string()),
        };
        if rule.oif.is_some() && matches!(self.hook.netfilter(), "prerouting" | "input") {
            return wrong("match", format!("at {hook} it is not known where a packet goes: oif never holds"));
        }
        if self.xdp && rule.iif.is_some() && rule.iif != self.dev {
            return wrong("match", "iif is another interface than dev: it never holds".to_owned());
        }
        if rule.iif.is_some() && self.hook == Hook::Output {
            return wrong("match", "what this host sends came from nowhere: iif never holds".to_owned());
        }
        Ok(())
    }
}

/// A rule on the command line.
pub fn rule(text: &str) -> Result<String, String> {
    Rule::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
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
        let key = |attachment: &Attachment| attachment.check().map_err(|wrong| wrong.key);
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
