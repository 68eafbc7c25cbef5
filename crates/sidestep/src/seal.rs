//! `seal-prefix`: where this end hops, sealed for one peer, to be published as a TXT record.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use ipnet::Ipv6Net;
use mt6d::keys::PairKeys;
use mt6d::record::Record;

use crate::failure::Failure;
use crate::load::load_tunnel;
use crate::place;
use crate::terminal::print;

/// Print where this end hops, sealed for one peer
///
/// The line is the text of a TXT record that only this peer can read: 96 characters that tell nobody else what they are, and no
/// two of which have anything in common. Publish it under a name that the peer has as `dns_record`, anew whenever the prefix
/// changes and once a day; a record of 32 days tells nothing any more.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep seal-prefix mt6d0 site-b\n  \
                        sidestep seal-prefix mt6d0 site-b 2001:db8:a1::/64\n  \
                        sidestep seal-prefix /etc/sidestep/mt6d0.toml site-b\n  \
                        printf 'update delete k7.example.net TXT\\nupdate add k7.example.net 60 TXT %s\\nsend\\n' \\\n    \
                        \"$(sidestep seal-prefix mt6d0 site-b)\" | nsupdate -k /etc/sidestep/dns.key")]
pub(crate) struct SealCommand {
    /// Name of the tunnel, or its configuration file
    tunnel: String,
    /// The peer that is to read it
    peer: String,
    /// The prefix; by default the one that this end hops in now
    prefix: Option<Ipv6Net>,
}

impl SealCommand {
    /// Prints it.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let file = match self.tunnel.contains(['/', '.']) {
            true => PathBuf::from(&self.tunnel),
            false => Path::new("/etc/sidestep").join(format!("{}.toml", self.tunnel)),
        };
        let config = load_tunnel(&file)?;
        let Some(peer) = config.peer(&self.peer) else {
            let names: Vec<&str> = config.peers.iter().map(|peer| peer.name.as_str()).collect();
            let why = format!("there is no peer {}: there are {}", self.peer, names.join(", "));
            return Err(Failure::Message(why));
        };
        let place = match self.prefix {
            Some(prefix) if prefix != prefix.trunc() => {
                return Err(Failure::Message(format!(
                    "bits are set after the prefix: write {}",
                    prefix.trunc()
                )));
            }
            Some(prefix) => prefix,
            None => place::hop_prefix(&config)?,
        };
        let keys = PairKeys::derive(&config.node.private_key, &peer.public_key, peer.preshared_key.as_ref())?;
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        let mut nonce = [0; 24];
        getrandom::fill(&mut nonce)?;
        print(format_args!("{}\n", Record { place, unix_ms }.seal(&keys, &nonce)))
    }
}
