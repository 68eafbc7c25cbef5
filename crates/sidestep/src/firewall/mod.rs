//! `sidestep firewall`: the zones and rules of a file, checked, explained, tested, and put into the kernel.
//!
//! | module | what it is |
//! |---|---|
//! | [`explain`] | `explain` and `test`: which rule decides a packet |
//! | [`show`] | `show`: what each rule has counted |
//!
//! The table in the kernel is [`router_runtime::firewall`]'s.

mod explain;
mod show;

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use router::firewall::{Compiled, Trust, with_addresses};
use router::site::Site;
use router_runtime::firewall::{self as table, Confirmed, compiled};

use config::{DurationError, Firewall};

use crate::failure::Failure;
use crate::load::{self, not_loaded};
use crate::ssh;
use crate::terminal::{output, print};

/// The firewall: zones and rules of a configuration
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  sidestep firewall check gateway.toml
  sidestep firewall explain gateway.toml tcp from 2a02:8100:1::5 to 2a00:1450::1 port 22 in lan
  sidestep firewall test gateway.toml
  sidestep firewall apply gateway.toml --confirm 60s
  sidestep firewall confirm
  sidestep firewall show gateway.toml")]
pub(crate) enum FirewallCommand {
    /// Validate zones and rules, and summarize them
    ///
    /// Warns of rules that never decide, because earlier ones do, and shows both.
    #[command(after_help = "Examples:\n  sidestep firewall check gateway.toml\n  \
                            sidestep firewall check gateway.toml --nft\n\n\
                            Exit status: 0 if it is valid, even with warnings; 1 if not.")]
    Check {
        /// The configuration
        file: PathBuf,
        /// Write the nftables table
        #[arg(long)]
        nft: bool,
    },
    /// Say what happens to a packet, and which rule decides
    #[command(after_help = "Examples:
  sidestep firewall explain gateway.toml tcp from 2a02:8100:1::5 to 2a00:1450::1 port 22 in lan
  sidestep firewall explain gateway.toml 'icmpv6/echo-request from 2a00:1450::1 to gateway in wan'
  sidestep firewall explain gateway.toml 'udp/53 from 2a02:8100:2::9 to gateway in guest at sat 23:00'

docs/firewall.md lists all words. Exit status: 0, whatever happens to the packet.")]
    Explain {
        /// The configuration
        file: PathBuf,
        /// The packet
        #[arg(required = true, trailing_var_arg = true)]
        packet: Vec<String>,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
    },
    /// Run the packets of [[firewall.test]] tables through the rules
    #[command(after_help = "Examples:\n  sidestep firewall test gateway.toml\n  \
                            sidestep firewall test gateway.toml expectations.toml\n\n\
                            Exit status: 0 if all tests pass, 1 if one fails.")]
    Test {
        /// The configuration
        file: PathBuf,
        /// Another file with [[firewall.test]] tables, in place of those of the configuration
        table: Option<PathBuf>,
    },
    /// Show what each rule has counted since the table was loaded into the kernel
    #[command(after_help = "Examples:\n  sidestep firewall show gateway.toml\n  \
                            sidestep firewall show --json | jq '.rules[] | {number, packets}'\n\n\
                            Exit status: 1 if no firewall is in the kernel, or not that of the file.")]
    Show {
        /// The configuration that was applied, for the text of the rules
        file: Option<PathBuf>,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
    },
    /// Load zones and rules into the kernel, replacing the previous ones in one step
    ///
    /// Connections continue. With --confirm, the previous table is restored after this time, unless
    /// `sidestep firewall confirm` is run: a change that locks its administrator out undoes itself.
    #[command(after_help = "Examples:\n  sidestep firewall apply gateway.toml --confirm 60s\n  \
                            sidestep firewall apply gateway.toml")]
    Apply {
        /// The configuration
        file: PathBuf,
        /// Restore the previous table after this time, unless confirmed
        #[arg(long, value_name = "DURATION", value_parser = time_to_confirm)]
        confirm: Option<Duration>,
    },
    /// Keep what `apply --confirm` has loaded into the kernel
    #[command(after_help = "Examples:\n  sidestep firewall confirm\n\n\
                            Exit status: 1 if nothing awaits it, as when it came too late.")]
    Confirm,
    /// Remove the firewall from the kernel: everything passes
    #[command(after_help = "Examples:\n  sidestep firewall remove")]
    Remove,
    /// Wait, then restore the previous table (what `apply --confirm` starts)
    #[command(hide = true, after_help = "Examples:\n  sidestep firewall guard --after 60s")]
    Guard {
        /// How long to wait
        #[arg(long, value_parser = config::parse_duration)]
        after: Duration,
    },
}

impl FirewallCommand {
    /// Runs the command; its exit status.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Check { file, nft } => check(&file, nft)?,
            Self::Explain { file, packet, json } => {
                let (firewall, site) = load_with_site(&file)?;
                let packet = with_addresses(&packet.join(" "), |name| fixed_addresses(&site, name));
                print(explain::explain(&firewall, &file, &packet, json)?)?;
            }
            Self::Test { file, table } => {
                let firewall = load(&file)?;
                let tests = match &table {
                    Some(table) => {
                        config::load_tests(table, &firewall).map_err(|error| not_loaded(table, error))?
                    }
                    None => firewall.tests.clone(),
                };
                let mut passed = true;
                let mut out = io::stdout().lock();
                let result = explain::test(&firewall, &tests, table.as_ref().unwrap_or(&file), &mut out);
                output(result.map(|all| passed = all))?;
                return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Self::Show { file, json } => {
                let firewall = file.as_deref().map(load).transpose()?;
                print(show::show(firewall.as_ref().zip(file.as_deref()), json)?)?;
            }
            Self::Apply { file, confirm } => {
                let firewall = load(&file)?;
                ssh::refuse_to_close(&firewall, &file, confirm.is_some())?;
                table::apply(&firewall, confirm)?;
                let shown = file.display();
                match confirm {
                    None => print(format_args!("{shown}: applied\n"))?,
                    Some(after) => print(format_args!(
                        "{shown}: applied; `sidestep firewall confirm` within {}s keeps it\n",
                        after.as_secs_f64()
                    ))?,
                }
            }
            Self::Confirm => print(match table::confirm()? {
                Confirmed::InTime => "confirmed: the firewall stays as it is\n",
                Confirmed::WithoutGuard => {
                    "the process that guards this change was killed and has restored nothing: the firewall stays as it is\n"
                }
            })?,
            Self::Remove => print(if table::remove()? {
                "the firewall is removed: everything passes until `sidestep up` loads one again\n"
            } else {
                "no firewall is applied\n"
            })?,
            Self::Guard { after } => table::guard(after)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Why nobody can confirm in a time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfirmTimeError {
    /// It is none.
    #[error("{0}")]
    Duration(#[from] DurationError),
    /// It is over at once.
    #[error("that leaves no time to confirm: write a time like 60s")]
    Zero,
}

/// A time in which somebody can confirm.
pub(crate) fn time_to_confirm(text: &str) -> Result<Duration, ConfirmTimeError> {
    match config::parse_duration(text)? {
        Duration::ZERO => Err(ConfirmTimeError::Zero),
        time => Ok(time),
    }
}

/// Loads a firewall; warnings go to standard error.
fn load(file: &Path) -> Result<Firewall, Failure> {
    load_with_site(file).map(|(firewall, _)| firewall)
}

/// The same, with what it stands between.
fn load_with_site(file: &Path) -> Result<(Firewall, Site), Failure> {
    let none = config::Error::NoFirewall { path: file.to_owned() };
    let gateway = load::load(file)?.gateway;
    gateway.and_then(|gateway| Some((gateway.firewall?, gateway.site))).ok_or_else(|| none.into())
}

/// The addresses of a host that the file gives one: of IPv6 those in the network's own prefixes, since the file alone does not
/// say which ones providers delegate.
fn fixed_addresses(site: &Site, name: &str) -> Vec<IpAddr> {
    let fixed = site.fixed_hosts().filter(|(_, host)| host.name.eq_ignore_ascii_case(name));
    let fixed6 = site.fixed_hosts6().filter(|(_, host)| host.name.eq_ignore_ascii_case(name));
    let fixed6 = fixed6.flat_map(|(network, host)| {
        network.prefixes.iter().filter_map(move |prefix| host.address_in(*prefix).map(IpAddr::V6))
    });
    fixed.map(|(_, host)| IpAddr::V4(host.address)).chain(fixed6).collect()
}

/// `firewall check`
fn check(file: &Path, nft: bool) -> Result<(), Failure> {
    let firewall = load(file)?;
    let table = compiled(&firewall);
    let mut out = io::stdout().lock();
    if nft {
        return output(out.write_all(table.script.as_bytes()));
    }
    output(write!(out, "{}: the firewall is valid\n{}", file.display(), describe(&firewall, &table)))
}

/// What the file comes to, in plain words.
pub(crate) fn describe(firewall: &Firewall, table: &Compiled) -> String {
    let policy = &firewall.policy;
    let mut text = String::new();
    for zone in policy.zones() {
        let trust = match zone.trust {
            Trust::Inside => "inside",
            Trust::Guest => "guest",
            Trust::Outside => "outside",
        };
        text += &format!("  zone {} ({trust}): {}", zone.name, zone.interfaces.join(", "));
        for network in &zone.networks {
            text += &format!(" {network}");
        }
        text += "\n";
    }
    text += &format!(
        "  {} zones, {} rules, {} tests\n",
        policy.zones().len(),
        policy.rules().len(),
        firewall.tests.len(),
    );
    text += &match table.lookups {
        0 => "  the trust of the zones decides everything\n".to_owned(),
        sets => format!(
            "  the first packet of a connection is looked up in at most {sets} sets, with {} elements\n",
            table.elements
        ),
    };
    if policy.rules().iter().any(|rule| rule.schedule.is_some()) {
        text += "  schedules are loaded in UTC: apply the firewall again when daylight saving time begins or ends\n";
    }
    text
}
