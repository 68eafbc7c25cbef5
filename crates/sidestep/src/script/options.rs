//! Where a script is put and how it is run there, as options say it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use script::matching::{Rule, RuleError};

use config::attachment::{Attachment, Failure, Hook, Tier};

/// Options of `script load`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadOptions {
    /// The script
    file: PathBuf,
    /// Where it gets packets
    #[arg(long)]
    hook: HookName,
    /// Only packets of this interface: that they go to at output, postrouting, egress and tunnel-out, that they came from
    /// elsewhere. By default mt6d0 at tunnel-in and tunnel-out
    #[arg(long, value_name = "IF")]
    dev: Option<String>,
    /// Only packets of which this holds, such as 'ip6 saddr 2001:db8::/32 tcp dport { 80, 443 }'
    #[arg(long = "match", value_name = "RULE", value_parser = rule)]
    rule: Option<String>,
    /// The function that gets the packets
    #[arg(long, default_value = "process_packet")]
    function: String,
    /// Share globals, nf.table and its like with the scripts of the same number; by default with those of the same file
    #[arg(long, value_name = "N")]
    state: Option<u32>,
    /// In which tier it runs
    #[arg(long, default_value = "auto")]
    tier: TierName,
    /// At XDP of the interface, where packets come first of all, and it costs least to drop them: for a script of ingress
    /// or prerouting that runs in the kernel as a whole, and changes and redirects no packet
    #[arg(long)]
    xdp: bool,
    /// Order among the scripts and tables at a hook, as nftables has it: the lowest comes first. By default -150 (mangle)
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// What becomes of a packet at which it fails
    #[arg(long, default_value = "drop")]
    failure: FailureName,
    /// Let packets pass when the script host is not there or cannot keep up; they are dropped otherwise
    #[arg(long)]
    fail_open: bool,
}

/// A [`Hook`], by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookName {
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

/// A [`Tier`], by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TierName {
    /// The best there is for it
    Auto,
    /// Compiled, in the kernel
    Kernel,
    /// In the kernel as far as it goes, which hands over to Lua what is beyond that
    Both,
    /// In a Lua state of the script host
    User,
}

/// A [`Failure`], by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailureName {
    /// It is discarded
    Drop,
    /// It goes on
    Accept,
}

impl From<LoadOptions> for Attachment {
    fn from(options: LoadOptions) -> Self {
        let LoadOptions { file, hook, dev, rule, function, state, tier, xdp, priority, failure, fail_open } =
            options;
        let (hook, tier, failure) = (hook.into(), tier.into(), failure.into());
        Self { file, hook, dev, rule, function, state, tier, xdp, priority, failure, fail_open }
    }
}

impl From<HookName> for Hook {
    fn from(name: HookName) -> Self {
        match name {
            HookName::Prerouting => Self::Prerouting,
            HookName::Input => Self::Input,
            HookName::Forward => Self::Forward,
            HookName::Output => Self::Output,
            HookName::Postrouting => Self::Postrouting,
            HookName::Ingress => Self::Ingress,
            HookName::Egress => Self::Egress,
            HookName::TunnelIn => Self::TunnelIn,
            HookName::TunnelOut => Self::TunnelOut,
        }
    }
}

impl From<TierName> for Tier {
    fn from(name: TierName) -> Self {
        match name {
            TierName::Auto => Self::Auto,
            TierName::Kernel => Self::Kernel,
            TierName::Both => Self::Both,
            TierName::User => Self::User,
        }
    }
}

impl From<FailureName> for Failure {
    fn from(name: FailureName) -> Self {
        match name {
            FailureName::Drop => Self::Drop,
            FailureName::Accept => Self::Accept,
        }
    }
}

/// A rule, checked and left as it is written.
pub(super) fn rule(text: &str) -> Result<String, RuleError> {
    Rule::parse(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value of an option, and the name that it has in the configuration.
    fn names<N: ValueEnum + Into<T>, T>(name: fn(T) -> &'static str) -> Vec<(String, &'static str)> {
        let option = |value: &N| value.to_possible_value().expect("none is hidden").get_name().to_owned();
        N::value_variants().iter().map(|value| (option(value), name(value.clone().into()))).collect()
    }

    #[test]
    fn options_name_what_the_configuration_does() {
        let (hooks, tiers) = (names::<HookName, _>(Hook::name), names::<TierName, _>(Tier::name));
        let failures = names::<FailureName, _>(Failure::name);
        assert_eq!(hooks.len(), Hook::ALL.len());
        assert_eq!(tiers.len(), Tier::ALL.len());
        assert_eq!(failures.len(), Failure::ALL.len());
        for (option, configured) in hooks.iter().chain(&tiers).chain(&failures) {
            assert_eq!(option, configured);
        }
    }
}
