//! `seal-prefix`: where this end hops, sealed for one peer, to be published as a TXT record.

use std::iter;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use config::TunnelConfig;
use ipnet::Ipv6Net;
use mt6d::config::PeerConfig;
use mt6d::keys::{KeyError, PairKeys};
use mt6d::record::Record;

use crate::failure::Failure;
use crate::load::load_tunnel;
use crate::place;
use crate::terminal::print;

/// Print where this end hops, sealed for one peer
///
/// The line is the text of a TXT record that only this peer can read: 96 characters that tell nobody else what they are, and no
/// two of which have anything in common. Publish it under a name that the peer has as `dns_record`, anew whenever the prefix
/// changes and once a day; a record of 32 days tells nothing any more. While a key changes there are up to four lines, one for
/// each pair of keys by which the two may know each other: publish all of them as records of one name.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep seal-prefix mt6d0 site-b\n  \
                        sidestep seal-prefix mt6d0 site-b 2001:db8:a1::/64\n  \
                        sidestep seal-prefix /etc/sidestep/mt6d0.toml site-b\n  \
                        records=$(sidestep seal-prefix mt6d0 site-b) && {\n    \
                        echo 'update delete k7.example.net TXT'\n    \
                        printf 'update add k7.example.net 60 TXT %s\\n' $records\n    \
                        echo send\n  \
                        } | nsupdate -k /etc/sidestep/dns.key")]
pub(crate) struct SealCommand {
    /// Name of the configuration file in /etc/sidestep, without its ending, or its path
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
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        // All at once: where one is missing, a timer is not to publish the others.
        let mut lines = String::new();
        for keys in pairs_of_keys(&config, peer) {
            let mut nonce = [0; 24];
            getrandom::fill(&mut nonce)?;
            lines += &Record { place, unix_ms }.seal(&keys?, &nonce);
            lines.push('\n');
        }
        print(lines)
    }
}

/// The keys of each pair that this end and a peer may know each other by: more than one while either changes its key.
pub(crate) fn pairs_of_keys(
    config: &TunnelConfig,
    peer: &PeerConfig,
) -> impl Iterator<Item = Result<PairKeys, KeyError>> {
    let own = iter::once(&config.node.private_key).chain(&config.node.previous_key);
    own.flat_map(move |own| {
        let theirs = iter::once(&peer.public_key).chain(&peer.next_key);
        theirs.map(move |their| PairKeys::derive(own, their, peer.preshared_key.as_ref()))
    })
}
