//! `check`: what a configuration leads to, in plain words.

mod ipsec;
mod peers;
mod router;
mod script;
mod tunnel;

use std::path::{Path, PathBuf};

use clap::Args;
use config::Source;

use crate::failure::Failure;
use crate::load::{load_ipsec, load_source, not_loaded};
use crate::show::no_peer;
use crate::terminal::print;
use peers::Peers;
pub(crate) use peers::list;

/// What is checked, and what is said of it.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// Where the files are that it names, such as keys, instead of its own folder
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,
    /// Of the peers of a tunnel this one alone; may be repeated
    #[arg(long = "peer", value_name = "NAME", conflicts_with = "all")]
    peers: Vec<String>,
    /// Each peer, however many there are, and each warning; otherwise many are summed up
    #[arg(long)]
    all: bool,
    /// The configuration; `-` is standard input, with its files in the current folder
    file: PathBuf,
}

/// Prints what a configuration leads to, or fails with what is wrong.
pub(crate) fn check(options: &CheckOptions) -> Result<(), Failure> {
    let file = options.file.as_path();
    let source = match (file == Path::new("-"), &options.base) {
        (true, base) => Source::standard_input(base.as_deref().unwrap_or(Path::new(""))),
        (false, Some(base)) => Source::read_in(file, base),
        (false, None) => Source::read(file),
    };
    let source = source.map_err(|error| not_loaded(file, error))?;
    let file = source.name();
    if source.is_ipsec() {
        let config = load_ipsec(&source)?;
        let refused = ipsec_runtime::check(&config).err().map(|why| why.to_string());
        print(ipsec::describe(file, &config, refused.as_deref()))?;
        return match refused {
            Some(why) => Err(Failure::Message(format!("`sidestep ipsec up` would refuse this: {why}"))),
            None => Ok(()),
        };
    }
    let config = load_source(&source)?;
    if let Some(tunnel) = &config.tunnel {
        let system = tunnel::System::of_this_machine(tunnel, config.gateway.is_some());
        let peers = match options {
            CheckOptions { all: true, .. } => Peers::All,
            CheckOptions { peers, .. } if !peers.is_empty() => Peers::Named(peers),
            _ => Peers::SummedUp,
        };
        print(tunnel::describe(file, tunnel, &system, peers)?)?;
    } else if let Some(name) = options.peers.first() {
        return Err(Failure::Message(no_peer(name, &[])));
    }
    if let Some(gateway) = &config.gateway {
        print(router::describe(file, gateway))?;
    }
    let refused = |error: String| Failure::NotHere(format!("`up` would refuse this here: {error}"));
    if let Some(tunnel) = &config.tunnel {
        tunnel_runtime::surroundings::refuse_to_start(tunnel).map_err(|error| refused(error.to_string()))?;
    }
    if let Some(gateway) = &config.gateway {
        router_runtime::refuse(gateway).map_err(|error| refused(error.to_string()))?;
    }
    Ok(())
}
