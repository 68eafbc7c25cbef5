//! `enroll`: this machine becomes a site of a fleet.

use std::fs::DirBuilder;
use std::io::{self, IsTerminal as _, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::Duration;

use ::agent::{EnrolError, Enrolment, Folder, Identity};
use clap::Args;
use fleet::enrolment::Invitation;
use fleet::key::SigningKey;
use fleet::name::Name;
use fleet::site::{Contact, Member, TunnelKey};
use ipnet::{IpNet, Ipv6Net};
use mt6d::keys::PublicKey;
use zeroize::Zeroizing;

use super::files::{Gateway, configuration, next_steps};
use super::{Place, ask};
use crate::check::list;
use crate::failure::Failure;
use crate::load::load_tunnel;
use crate::place;
use crate::terminal::print;
use crate::tunnel_keys::new_private;

/// Where agents keep what they know.
pub(crate) const STATE: &str = "/var/lib/sidestep-agent";
/// Whose that is.
const USER: &str = "sidestep-agent";
/// The longest text that an invitation is looked for in.
const LONGEST: u64 = 64 * 1024;

/// Make this machine a site of a fleet, with what `sidestep control invite` has printed
///
/// Writes key and configuration, unless there are some, applies at the fleet's controllers, and waits until an administrator has
/// signed. The keys are made here, and only their public halves leave the machine. To run it again goes on where it was.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep enroll - --hop-prefix 2001:db8:b1::/64             # paste the invitation, then Enter
  sidestep enroll - --hop-prefix 2001:db8:b1::/64 --network 2001:db8:b::/64 < invitation.txt")]
pub(crate) struct EnrollOptions {
    /// What `sidestep control invite` has printed, beginning with sidestep-fleet1-; `-` reads it from standard input
    invitation: String,
    /// The site's name, if the invitation is for any
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// The prefix to hop in, routed to this machine and used for nothing else
    #[arg(long, value_name = "PREFIX")]
    hop_prefix: Option<Ipv6Net>,
    /// A network behind this site; by default those of its inner interfaces
    #[arg(long, value_name = "PREFIX")]
    network: Vec<IpNet>,
    /// A prefix that this site may take networks of by itself, when its provider renumbers it
    #[arg(long, value_name = "PREFIX")]
    may_take: Vec<IpNet>,
    /// How long to wait for an administrator
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Folder for what the agent keeps
    #[arg(long, value_name = "DIR", default_value = STATE)]
    state_dir: PathBuf,
    #[command(flatten)]
    place: Place,
}

/// `enroll`.
pub(crate) fn enroll(options: &EnrollOptions) -> Result<(), Failure> {
    let invitation = read(&options.invitation)?;
    let terms = &invitation.terms;
    let site = terms.site.clone().or_else(|| options.name.clone()).ok_or_else(|| {
        Failure::Message("this invitation is for any site: name this one with --name".into())
    })?;
    // It stands in the configuration, which is somewhere else.
    let folder = Folder::new(std::path::absolute(&options.state_dir)?.join(&options.place.tunnel));
    let tunnel = tunnel(options, &folder)?;
    let identity = identity(&folder, &invitation, &site, &options.place.tunnel)?;

    let networks = networks(options, &tunnel.external, &terms.within)?;
    let is_inside = |address: &&IpAddr| networks.iter().any(|network| network.contains(*address));
    let member = Member {
        name: site.clone(),
        identity: identity.public(),
        role: terms.role.clone(),
        region: terms.region.clone(),
        zone: terms.zone.clone(),
        standby: terms.standby.clone(),
        address: tunnel.addresses.iter().find(is_inside).copied(),
        networks: networks.clone(),
        may_take: options.may_take.clone(),
        notices_after: 0,
        revoked: None,
    };
    if member.address.is_none() {
        eprintln!(
            "sidestep: none of the tunnel's addresses is in {}, so other sites' agents cannot ask this one",
            list(&networks)
        );
    }
    let contact = Contact { key: TunnelKey(tunnel.key), next_key: None, hop_prefix: tunnel.hop_prefix };
    let shown = identity.public();
    let enrolment = Enrolment::new(&invitation, identity, member, contact)?;
    print(format_args!(
        "{site} applies: an administrator of the fleet is to sign it.\nIts identity is {shown}\n"
    ))?;
    match enrolment.run(&folder, options.wait) {
        Ok(()) => {}
        Err(EnrolError::Waiting) => {
            return Err(Failure::Message(
                "no administrator has signed it yet: run this again to go on waiting".into(),
            ));
        }
        Err(error) => return Err(error.into()),
    }
    // The daemon, whose group is root's, reads the peers in it.
    linux::file::give_away(folder.path(), USER)?;
    let name = &options.place.tunnel;
    print(format_args!(
        "{site} is a site of the fleet now. Its agent keeps it one:\n    systemctl enable --now sidestep-agent@{name}\n{}",
        next_steps(&tunnel.file)?
    ))
}

/// The invitation, out of what was given or what is on standard input.
fn read(given: &str) -> Result<Invitation, Failure> {
    let mut text = Zeroizing::new(given.to_owned());
    if given == "-" {
        text.clear();
        if io::stdin().is_terminal() {
            print("Paste the invitation, then Enter:\n")?;
            io::stdin().read_line(&mut text)?;
        } else {
            io::stdin().lock().take(LONGEST).read_to_string(&mut text)?;
        }
    }
    // The command itself, or a mail, may be around it.
    let word = text.split_whitespace().find(|word| word.starts_with("sidestep-")).unwrap_or(&text);
    Ok(word.parse::<Invitation>()?)
}

/// The gateway of this machine.
struct Tunnel {
    file: PathBuf,
    external: String,
    hop_prefix: Ipv6Net,
    key: PublicKey,
    addresses: Vec<IpAddr>,
}

/// The one that is configured, or a new one.
fn tunnel(options: &EnrollOptions, folder: &Folder) -> Result<Tunnel, Failure> {
    let place = &options.place;
    let file = configuration(&place.folder, &place.tunnel);
    if !file.exists() {
        let external = place.external()?;
        let hop_prefix = match options.hop_prefix {
            Some(prefix) => prefix,
            None => ask(&external)?,
        };
        place.refuse_own(hop_prefix)?;
        let key = new_private()?;
        let gateway = Gateway {
            tunnel: &place.tunnel,
            external: &external,
            hop_prefix,
            on_link: place.on_link,
            addresses: &place.addresses(&external, |_| true),
            private_key: &key.0,
            fleet: Some(&folder.peers()),
        };
        gateway.write(&place.folder)?;
    }
    let fleet = config::Source::read(&file).ok().and_then(|source| source.fleet());
    if fleet != Some(folder.peers()) {
        let (file, peers) = (file.display(), folder.peers());
        return Err(Failure::Message(format!(
            "{file} does not take the peers of a fleet: write this at its top, and run this again:\n    fleet = \"{}\"",
            peers.display()
        )));
    }
    let config = load_tunnel(&file)?;
    let hop_prefix = place::hop_prefix(&config)?;
    if let Some(given) = options.hop_prefix.filter(|given| *given != hop_prefix) {
        return Err(Failure::Message(format!("{} hops in {hop_prefix}, not in {given}", file.display())));
    }
    Ok(Tunnel {
        external: config.node.external.clone(),
        hop_prefix,
        key: config.node.private_key.public(),
        addresses: config.tunnel.addresses.iter().map(IpNet::addr).collect(),
        file,
    })
}

/// What this site signs with: what it has, if it has applied already.
fn identity(
    folder: &Folder,
    invitation: &Invitation,
    site: &Name,
    tunnel: &str,
) -> Result<SigningKey, Failure> {
    if let Ok((known, key)) = folder.identity() {
        if known.site != *site || known.network != invitation.network {
            return Err(Failure::Message(format!(
                "{} is that of site {} already{}: remove it to be another one",
                folder.path().display(),
                known.site,
                if known.network == invitation.network { "" } else { ", of another fleet" },
            )));
        }
        return Ok(key);
    }
    let about = |error: io::Error| Failure::Message(format!("{}: {error}", folder.path().display()));
    DirBuilder::new().mode(0o700).recursive(true).create(folder.path()).map_err(about)?;
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed)?;
    let key = SigningKey::from_seed(*seed);
    let identity = Identity { site: site.clone(), network: invitation.network, tunnel: tunnel.to_owned() };
    folder.keep_identity(&identity, &key)?;
    Ok(key)
}

/// The networks behind this site.
fn networks(options: &EnrollOptions, external: &str, within: &[IpNet]) -> Result<Vec<IpNet>, Failure> {
    if !options.network.is_empty() {
        return Ok(options.network.clone());
    }
    let is_offered = |network: &IpNet| within.is_empty() || within.iter().any(|wide| wide.contains(network));
    let inner = linux::inner::networks(external).into_iter().map(|inner| inner.network.trunc());
    let mut found: Vec<IpNet> = inner.filter(is_offered).collect();
    found.sort();
    found.dedup();
    match found.is_empty() {
        true => Err(Failure::Message(
            "this machine is in no inner network: name what is behind it with --network".into(),
        )),
        false => Ok(found),
    }
}
