//! A gateway set up by commands, no file edited: `init`, `invite`, `join`, `enroll`.

pub(crate) mod enroll;
mod files;
mod invitation;
mod machine;
mod manager;
mod networkd;

use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use ipnet::{IpNet, Ipv6Net};
use mt6d::keys::PrivateKey;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use zeroize::Zeroizing;

use crate::check::list;
use crate::failure::Failure;
use crate::load::{load_tunnel, only_tunnel};
use crate::peer::{self, AddOptions};
use crate::place;
use crate::terminal::print;
use crate::tunnel_keys::{new_private, warn_if_open};
use files::{Gateway, next_steps};
use invitation::{GOOD_FOR, Invitation, KEEPALIVE};

/// Write a configuration for this machine
///
/// Looks at the machine for what is not given, asks on a terminal for the rest, and writes key and configuration. Nothing is
/// started, and nothing that is there is changed.
///
/// With --networkd it is about the interfaces of a configuration that is there: files by which systemd-networkd leaves their
/// IPv6 to Sidestep. They are shown, and written where --into says.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep init\n  sidestep init --hop-prefix 2001:db8:a1::/64\n  \
                        sidestep init --hop-prefix 2001:db8:a1::/64 --external eth0 --address 2001:db8:a::1\n  \
                        sidestep init --networkd /etc/sidestep/home.toml\n  \
                        sidestep init --networkd /etc/sidestep/home.toml --into /etc/systemd")]
pub(crate) struct InitOptions {
    #[command(flatten)]
    place: Place,
    /// The prefix to hop in, routed to this machine and used for nothing else
    #[arg(long, value_name = "PREFIX")]
    hop_prefix: Option<Ipv6Net>,
    /// Show files for systemd-networkd that leave the interfaces of this configuration alone
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Place", "hop_prefix"])]
    networkd: Option<PathBuf>,
    /// Write them into this folder, such as /etc/systemd; what is there already stays as it is
    #[arg(long, value_name = "DIR", requires = "networkd")]
    into: Option<PathBuf>,
}

/// Where a configuration is, and what is the machine's own affair.
#[derive(Debug, Args)]
struct Place {
    /// Name of the tunnel, its device and its files
    #[arg(long, value_name = "NAME", default_value = "mt6d0")]
    tunnel: String,
    /// Folder for key and configuration
    #[arg(long, value_name = "DIR", default_value = "/etc/sidestep")]
    folder: PathBuf,
    /// The interface towards the Internet; by default that of the default route
    #[arg(long, value_name = "INTERFACE")]
    external: Option<String>,
    /// An address of this machine in its own network, for what it sends itself; by default those that it has there
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<IpAddr>,
    /// The prefix to hop in is that of the link, not routed to this machine
    #[arg(long)]
    on_link: bool,
}

/// Invite another site: make its peer here, and print what `sidestep join` takes there
///
/// The string has the new site's private key: send it as you would send a password. It is good for a day, for one machine.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sidestep invite site-b --hop-prefix 2001:db8:b1::/64 --allowed 2001:db8:b::/64"
)]
pub(crate) struct InviteOptions {
    /// Name of the new site
    name: String,
    /// The prefix that it will hop in
    #[arg(long, value_name = "PREFIX")]
    hop_prefix: Ipv6Net,
    /// A network behind it; may be repeated
    #[arg(long, value_name = "PREFIX", required = true)]
    allowed: Vec<IpNet>,
    /// A network behind this site; by default those of its inner interfaces, without those of containers and virtual machines
    #[arg(long, value_name = "PREFIX")]
    own: Vec<IpNet>,
    /// What the new site calls this one; by default this machine's name
    #[arg(long = "as", value_name = "NAME")]
    own_name: Option<String>,
    /// The configuration; not needed where /etc/sidestep has one of a tunnel only
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// No QR code
    #[arg(long)]
    no_qr: bool,
}

/// Join a site that has sent an invitation: write key, configuration and peer
///
/// An invitation holds a key: with `-` it is neither in the shell's history nor in the list of processes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep join -                     # paste it, then Enter\n  \
                        sidestep join - < invitation.txt    # what `sidestep invite` has written, or a mail that has it")]
pub(crate) struct JoinOptions {
    /// What `sidestep invite` has printed, beginning with sidestep1-; `-` reads it from standard input
    invitation: String,
    #[command(flatten)]
    place: Place,
}

impl Place {
    fn external(&self) -> Result<String, Failure> {
        if let Some(name) = &self.external {
            return match machine::missing(name) {
                None => Ok(name.clone()),
                Some(others) => {
                    Err(Failure::Message(format!("there is no interface {name}: there are {others}")))
                }
            };
        }
        machine::external().ok_or_else(|| {
            Failure::Message(
                "this machine has no IPv6 default route: name the interface towards the Internet with --external"
                    .into(),
            )
        })
    }

    /// Refuses a prefix to hop in that this machine is in, unless it is said to be that of the link.
    fn refuse_own(&self, hop_prefix: Ipv6Net) -> Result<(), Failure> {
        let Some((interface, address)) = machine::within(hop_prefix).filter(|_| !self.on_link) else {
            return Ok(());
        };
        Err(Failure::Message(format!(
            "{hop_prefix} is a network of this machine, which is {address} at {interface}: name a prefix that is routed here and used for \
             nothing else, or say --on-link"
        )))
    }

    /// Its addresses in inner networks that `is_own` accepts.
    fn addresses(&self, external: &str, is_own: impl Fn(&IpNet) -> bool) -> Vec<IpAddr> {
        if !self.address.is_empty() {
            return self.address.clone();
        }
        let inner = linux::inner::networks(external).into_iter().filter(|inner| is_own(&inner.network));
        inner.map(|inner| inner.address).collect()
    }
}

/// `init`.
pub(crate) fn init(options: &InitOptions) -> Result<(), Failure> {
    if let Some(file) = &options.networkd {
        return networkd::write(file, options.into.as_deref());
    }
    let external = options.place.external()?;
    let hop_prefix = match options.hop_prefix {
        Some(prefix) => prefix,
        None => ask(&external)?,
    };
    options.place.refuse_own(hop_prefix)?;
    let key = new_private()?;
    let gateway = Gateway {
        tunnel: &options.place.tunnel,
        external: &external,
        hop_prefix,
        on_link: options.place.on_link,
        addresses: &options.place.addresses(&external, |_| true),
        private_key: &key.0,
        fleet: None,
    };
    let file = gateway.write(&options.place.folder)?;
    print(format_args!(
        "{} is written: {external} faces the Internet.\nThe public key of this site is {}\n{}\nInvite another site:\n    \
         sidestep invite NAME --hop-prefix ITS_PREFIX --allowed ITS_NETWORK\n",
        file.display(),
        key.1,
        next_steps(&file)?,
    ))
}

/// Asks for the prefix, on a terminal.
fn ask(external: &str) -> Result<Ipv6Net, Failure> {
    let missing = "give the prefix to hop in with --hop-prefix: one that is routed to this machine and used for nothing else, usually a /64";
    if !io::stdin().is_terminal() {
        return Err(Failure::Message(missing.into()));
    }
    loop {
        let mut answer = String::new();
        print(format_args!(
            "{external} faces the Internet. Which prefix is routed to this machine, and used for nothing else? "
        ))?;
        let read = io::stdout().flush().and_then(|()| io::stdin().lock().read_line(&mut answer));
        if read.map_or(0, |length| length) == 0 {
            return Err(Failure::Message(missing.into()));
        }
        match answer.trim().parse::<Ipv6Net>() {
            Ok(prefix) => return Ok(prefix),
            Err(_) => print("That is no prefix: write one such as 2001:db8:a1::/64.\n")?,
        }
    }
}

/// `invite`.
pub(crate) fn invite(options: &InviteOptions) -> Result<(), Failure> {
    let none = "no configuration of a tunnel is in /etc/sidestep, or there are several: `sidestep init` writes one, --config FILE names one";
    let file =
        options.config.clone().or_else(|| only_tunnel(None)).ok_or_else(|| Failure::Message(none.into()))?;
    let config = load_tunnel(&file)?;
    let own: Vec<IpNet> = match options.own.as_slice() {
        [] => linux::inner::networks(&config.node.external).into_iter().map(|inner| inner.network).collect(),
        own => own.to_vec(),
    };
    if own.is_empty() {
        return Err(Failure::Message(
            "this machine is in no inner network: name what is behind it with --own".into(),
        ));
    }
    let host_name =
        || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let own_name = options.own_name.clone().unwrap_or_else(host_name);
    peer::check_name(&own_name)?;
    if !is_kept()? {
        return Err(Failure::Message(
            "nobody would read the invitation, which cannot be had again: let it go to a terminal or a file"
                .into(),
        ));
    }
    let key = new_private()?;
    let invitation = Invitation {
        name: options.name.clone(),
        key: key.0.clone(),
        hop_prefix: options.hop_prefix,
        networks: options.allowed.clone(),
        peer: own_name,
        peer_key: config.node.private_key.public().to_string(),
        peer_hop_prefix: place::hop_prefix(&config)?,
        peer_networks: own,
        expires: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs()) + GOOD_FOR,
    };
    invitation.try_out()?;
    let written = peer::write(&AddOptions {
        name: options.name.clone(),
        public_key: key.1.clone(),
        hop_prefix: options.hop_prefix,
        allowed: options.allowed.clone(),
        keepalive: Some(KEEPALIVE.to_owned()),
        preshared_key_file: None,
        file: peer::FileOption { config: Some(file) },
    })?;
    let text = invitation.to_text();
    let mut page = Zeroizing::new(format!(
        "{} is told that behind {} are {}.\nRun this there, within a day, and paste the line below, which holds the site's key \
         (send it as you would send a password):\n\n    sidestep join -\n\n{}\n",
        options.name,
        invitation.peer,
        list(&invitation.peer_networks),
        *text
    ));
    // One that is too long for a code can still be pasted.
    let code = QrCode::new(text.as_bytes()).ok();
    if let Some(code) = code.filter(|_| !options.no_qr && io::stdout().is_terminal()) {
        *page += &format!("\n{}\n", code.render::<Dense1x2>().build());
    }
    warn_if_open();
    // Before a daemon is waited for: a peer whose key nobody has is of no use.
    print(&*page).map_err(|failure| {
        let why = match failure {
            Failure::ClosedOutput => "nobody reads it".to_owned(),
            failure => failure.to_string(),
        };
        let outcome = match written.undo() {
            Ok(()) => format!("so {} is not added", options.name),
            Err(error) => format!("and {} cannot be removed again: {error}", options.name),
        };
        Failure::Message(format!("the invitation is lost ({why}), {outcome}"))
    })?;
    let added = written.take_over().map_err(|failure| {
        Failure::Message(format!("{failure}; {} is not added, and its invitation is of no use", options.name))
    })?;
    print(format_args!("\n{added}"))
}

/// Whether what is printed is not thrown away at once. /dev/null also stands in for an output that was closed before.
fn is_kept() -> io::Result<bool> {
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?).metadata()?;
    Ok(!output.file_type().is_char_device() || output.rdev() != std::fs::metadata("/dev/null")?.rdev())
}

/// `join`.
pub(crate) fn join(options: &JoinOptions) -> Result<(), Failure> {
    let now = SystemTime::now();
    let invitation = if options.invitation == "-" {
        let is_terminal = io::stdin().is_terminal();
        if is_terminal {
            print("Paste the invitation, then Enter:\n")?;
        }
        Invitation::read(io::stdin().lock(), is_terminal, now)
            .map_err(|error| Failure::Message(format!("cannot read standard input: {error}")))?
    } else {
        Invitation::from_text(&options.invitation.replace("sidestep join ", ""), now)
    };
    let invitation = invitation?;
    let _: PrivateKey = invitation
        .key
        .parse()
        .map_err(|error| Failure::Message(format!("the key in this invitation is {error}")))?;
    // Neither comes from this machine, and both are written to its terminal.
    for name in [&invitation.name, &invitation.peer] {
        peer::check_name(name)?;
    }
    options.place.refuse_own(invitation.hop_prefix)?;
    let external = options.place.external()?;
    let is_own = |network: &IpNet| invitation.networks.iter().any(|own| own.contains(network));
    let gateway = Gateway {
        tunnel: &options.place.tunnel,
        external: &external,
        hop_prefix: invitation.hop_prefix,
        on_link: options.place.on_link,
        addresses: &options.place.addresses(&external, is_own),
        private_key: &invitation.key,
        fleet: None,
    };
    let file = gateway.write(&options.place.folder)?;
    let added = peer::add(&invitation.peer_here(&file));
    let added = added.inspect_err(|_| {
        let _ = std::fs::remove_file(&file);
        let _ = std::fs::remove_file(file.with_extension("key"));
    })?;
    print(format_args!(
        "{added}{} is written: this is {}, and {external} faces the Internet.\nPackets for {} go to {peer} through the tunnel, and are \
         taken from there.\n{peer} has made this site's key, and so can pass for it: before another peer is added, change the key \
         (the manual, \"Changing a key\").\n{}",
        file.display(),
        invitation.name,
        list(&invitation.peer_networks),
        next_steps(&file)?,
        peer = invitation.peer,
    ))
}
