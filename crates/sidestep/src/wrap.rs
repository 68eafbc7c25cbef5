//! `wrap`: a device of WireGuard's travels with a peer. What is added has a file of its own, as peers that are added have.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use config::TunnelConfig;

use crate::failure::Failure;
use crate::load::load_tunnel;
use crate::peer::{FileOption, about, check_name, folder, made_folder, reload, take_away, write_new};
use crate::running::{Running, unit_of};
use crate::terminal::print;

/// The first line of files that are ours to remove.
const OURS: &str = "# Made by `sidestep wrap`; `sidestep wrap --remove` takes it away.";
/// What WireGuard's own packets leave of 1500 bytes over IPv6.
const MTU: u32 = 1_500 - 80;

/// Have a WireGuard device's packets move with a peer's, masked
///
/// Both ends do it. The device's peer gets an endpoint in the tunnel, nothing else of WireGuard changes; its packets are not
/// encrypted again, but masked by the kernel, and leave from the addresses and ports that the tunnel has at the moment.
///
/// Once a device is in the configuration the same command without --peer leads it into the tunnel again, as after `wg-quick up`:
/// `PostUp = sidestep wrap %i || true`, since wg-quick takes the device away again where such a command fails.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sidestep wrap wg0 --peer site-b\n  sidestep wrap wg0      as PostUp of wg-quick\n  \
                        sidestep wrap wg0 --remove"
)]
pub(crate) struct WrapOptions {
    /// The device
    interface: String,
    /// The peer that it leads to
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Which of the device's peers, if it has several
    #[arg(long, value_name = "KEY", requires = "peer")]
    public_key: Option<String>,
    /// Take it out of the configuration again
    #[arg(long, conflicts_with = "peer")]
    remove: bool,
    #[command(flatten)]
    file: FileOption,
}

impl WrapOptions {
    /// Does it.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        check_name(&self.interface)?;
        let file = self.file.path()?;
        let before = load_tunnel(&file)?;
        let running = Running::find(&before.tunnel.name, &file)?;
        let said = if self.remove {
            self.take_out(&file, &before, &running)?
        } else {
            self.put_in(&file, &before, &running)?
        };
        print(said)?;
        Ok(ExitCode::SUCCESS)
    }

    fn is_in(&self, config: &TunnelConfig) -> bool {
        config.wraps.iter().any(|wrap| wrap.interface.as_ref() == Some(&self.interface))
    }

    fn put_in(&self, file: &Path, before: &TunnelConfig, running: &Running) -> Result<String, Failure> {
        let (interface, tunnel) = (&self.interface, &before.tunnel.name);
        let Some(peer) = &self.peer else {
            if !self.is_in(before) {
                let why = format!(
                    "{} has no [[wrap]] for {interface}: which peer does it lead to? --peer NAME",
                    file.display()
                );
                return Err(Failure::Message(why));
            }
            return Ok(format!("{interface}{}\n{}", reload(tunnel, running)?, hint(interface, file)));
        };
        let path = made_folder(file)?.join(format!("wrap-{interface}.toml"));
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut text =
            format!("{OURS}\n[[wrap]]\ninterface = {}\npeer = {}\n", quoted(interface), quoted(peer));
        if let Some(key) = &self.public_key {
            let _ = writeln!(text, "public_key = {}", quoted(key));
        }
        write_new(&path, &text)?;
        let undo = || std::fs::remove_file(&path).map_err(|error| about(&path, &error));
        let taken_over = load_tunnel(file).and_then(|after| {
            if !self.is_in(&after) {
                return Err(Failure::Message(format!(
                    "{} does not include {}",
                    file.display(),
                    path.display()
                )));
            }
            // A daemon that has begun without has given up the right to load programs.
            if before.wraps.is_empty() && matches!(running, Running::FromIt) {
                return Ok(format!(", from the next start on: systemctl restart {}", unit_of(file)));
            }
            Ok(reload(tunnel, running)?)
        });
        match taken_over {
            Ok(told) => {
                Ok(format!("{}: {interface} is added{told}\n{}", path.display(), hint(interface, file)))
            }
            Err(failure) => {
                undo()?;
                Err(failure)
            }
        }
    }

    fn take_out(&self, file: &Path, before: &TunnelConfig, running: &Running) -> Result<String, Failure> {
        let interface = &self.interface;
        let path = folder(file)?.join(format!("wrap-{interface}.toml"));
        let is_ours = std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with(OURS));
        if !is_ours {
            let why = format!(
                "{interface} was not added by `sidestep wrap`: take its [[wrap]] out of {} or what it includes",
                file.display()
            );
            return Err(Failure::Message(why));
        }
        let told = take_away(&path, file, &before.tunnel.name, running)?;
        Ok(format!(
            "{}: {interface} is removed{told}\nits peer's endpoint is still the address in the tunnel, which leads nowhere now: `wg set {interface} peer KEY endpoint ADDRESS:PORT` says where else it is, or `wg-quick down {interface}` and `up`\n",
            path.display()
        ))
    }
}

/// What there is to say of the device: of its MTU, or how this is run when it is there.
fn hint(interface: &str, file: &Path) -> String {
    let path = format!("/sys/class/net/{interface}/mtu");
    let mtu = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok());
    match mtu {
        Some(mtu) if mtu > MTU => format!(
            "{interface} has an MTU of {mtu}, of which {MTU} fit a path of 1500 bytes: ip link set {interface} mtu {MTU}\n"
        ),
        Some(_) => String::new(),
        None => {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
            format!(
                "there is no device {interface} yet; run this again once there is: PostUp = sidestep wrap %i --config {} || true\n",
                file.display()
            )
        }
    }
}
