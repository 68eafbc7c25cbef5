//! What is done where the store is: running a controller, letting people in, backups.

use std::fs;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use controller::oidc::Provider;
use controller::{Controller, Identity, Job, Role, Server, access, backup, now, restore, with_store};
use fleet::name::Name;
use store::Store;

use super::folder::{FolderOption, give_to_service, run, store_of};
use crate::failure::Failure;
use crate::terminal::print;

/// Where the store is.
#[derive(Debug, Args)]
pub(super) struct Stored {
    /// Where the controller keeps its state: a file, by default control.db in the folder, or etcd://HOST:PORT,HOST:PORT/NAME
    #[arg(long, value_name = "PLACE")]
    store: Option<String>,
    #[command(flatten)]
    folder: FolderOption,
}

impl Stored {
    fn run<T, J: Job<Output = Result<T, Failure>>>(&self, job: J) -> Result<T, Failure> {
        let store = store_of(&self.folder.dir, self.store.clone())?;
        run(async { with_store(&store, job).await? })
    }
}

/// Run a controller, in the foreground
///
/// Any number of them may have the same store. Without controllers everything that runs goes on; only what is new waits. It has
/// no private key but that of its certificate, which is made in the folder if it is not there; sites know it by the digest that
/// is printed, which belongs into the rules (`control policy`) of a controller that is not the first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control up
  sidestep control up --listen [2001:db8::1]:4160
  systemctl enable --now sidestep-control      as a service")]
pub(crate) struct UpOptions {
    #[command(flatten)]
    stored: Stored,
    /// Where it listens: on a gateway at an inner address, and never in a hopping prefix
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:4160")]
    listen: SocketAddr,
    /// How many connections at the most: each site has one
    #[arg(long, value_name = "NUMBER", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
}

struct Serve {
    listener: TcpListener,
    identity: Identity,
    connections: usize,
    provider: Option<Provider>,
}

impl Job for Serve {
    type Output = Result<(), Failure>;

    async fn run<S: Store>(self, store: S) -> Self::Output {
        let controller = Controller::open(store).await?;
        let sites = controller.fleet().sites().len();
        let server = Server::new(controller, self.listener, self.identity, self.connections)?
            .with_provider(self.provider);
        tracing::info!("a fleet of {sites} sites is served");
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        Ok(server.serve().await?)
    }
}

impl UpOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        events::start_log();
        let folder = &self.stored.folder.dir;
        let store = store_of(folder, self.stored.store.clone())?;
        let identity = Identity::of_folder(folder, &["sidestep-control".to_owned()])?;
        let listener = TcpListener::bind(self.listen)
            .map_err(|error| Failure::Message(format!("cannot listen at {}: {error}", self.listen)))?;
        let provider = Provider::of_folder(folder)?;
        linux::process::keep_capabilities(&[])?;
        print(format_args!("listens at {}, certificate {}\n", listener.local_addr()?, identity.digest()))?;
        let connections = usize::try_from(self.connections).unwrap_or(usize::MAX);
        controller::block_on_many(async {
            with_store(&store, Serve { listener, identity, connections, provider }).await?
        })?
    }
}

/// Let people and programs in, on the machine of the store
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control token add vera --role viewer
  sidestep control token add portal --role inviter --expires 90days
  sidestep control token list
  sidestep control token remove vera")]
pub(crate) struct TokenOptions {
    #[command(subcommand)]
    what: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Let somebody in, and print the token that he shows: it is stored nowhere
    #[command(after_help = "Examples:\n  sidestep control token add vera --role viewer > access")]
    Add {
        /// Who, for the log
        name: Name,
        /// What for: viewer, inviter or publisher; each may what those before may
        #[arg(long, value_name = "ROLE", value_parser = role)]
        role: Role,
        /// How long
        #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
        expires: Option<Duration>,
        #[command(flatten)]
        stored: Stored,
    },
    /// Show who is let in
    #[command(after_help = "Examples:\n  sidestep control token list")]
    List {
        #[command(flatten)]
        stored: Stored,
    },
    /// Let somebody in no more
    #[command(after_help = "Examples:\n  sidestep control token remove vera")]
    Remove {
        /// Who
        name: Name,
        #[command(flatten)]
        stored: Stored,
    },
}

fn role(text: &str) -> Result<Role, String> {
    match text {
        "viewer" => Ok(Role::Viewer),
        "inviter" => Ok(Role::Inviter),
        "publisher" => Ok(Role::Publisher),
        _ => Err("take viewer, inviter or publisher".to_owned()),
    }
}

/// Whoever is root where the store is.
const HERE: &str = "the machine of the store";

struct Grant(Name, Role, Option<u64>);
struct Withdraw(Name);
struct List;
struct Backup;
struct Restore(String);

impl Job for Grant {
    type Output = Result<(), Failure>;

    async fn run<S: Store>(self, store: S) -> Self::Output {
        let token = access::grant(&store, HERE, self.0, self.1, self.2).await?;
        print(format_args!("{}\n", *token))
    }
}

impl Job for Withdraw {
    type Output = Result<(), Failure>;

    async fn run<S: Store>(self, store: S) -> Self::Output {
        Ok(access::withdraw(&store, HERE, &self.0).await?)
    }
}

impl Job for List {
    type Output = Result<(), Failure>;

    async fn run<S: Store>(self, store: S) -> Self::Output {
        for one in access::list(&store).await? {
            let until = one.expires.map_or_else(String::new, |expires| {
                let at = std::time::UNIX_EPOCH + Duration::from_secs(expires);
                format!(", until {}", humantime::format_rfc3339_seconds(at))
            });
            print(format_args!("{} ({}){until}\n", one.name, one.role))?;
        }
        Ok(())
    }
}

impl Job for Backup {
    type Output = Result<(), Failure>;

    async fn run<S: Store>(self, store: S) -> Self::Output {
        print(backup(&store).await?)
    }
}

impl Job for Restore {
    type Output = Result<(), Failure>;

    async fn run<S: Store>(self, store: S) -> Self::Output {
        restore(&store, HERE, &self.0).await?;
        let controller = Controller::open(store).await?;
        let serial = controller.serial().map_or(0, |serial| serial.0);
        print(format_args!("restored: document {serial}, {} sites\n", controller.fleet().sites().len()))
    }
}

impl TokenOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.what {
            TokenCommand::Add { name, role, expires, stored } => {
                stored.run(Grant(name, role, expires.map(|time| now() + time.as_secs())))
            }
            TokenCommand::List { stored } => stored.run(List),
            TokenCommand::Remove { name, stored } => stored.run(Withdraw(name)),
        }
    }
}

/// Write all that a controller has to standard output, while it runs
///
/// There is no key in it, and of tokens only digests; but where every site hops.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  umask 077; sidestep control backup > fleet.backup")]
pub(crate) struct BackupOptions {
    #[command(flatten)]
    stored: Stored,
}

impl BackupOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        self.stored.run(Backup)
    }
}

/// Bring a backup back into an empty store
///
/// Sites that have heard of a later document than the one in the backup keep that one: publish no other under its serial
/// (docs/fleet-control.md says how to go on).
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sidestep control restore fleet.backup\n  sidestep control restore - < fleet.backup"
)]
pub(crate) struct RestoreOptions {
    /// What `control backup` has written; `-` is standard input
    file: PathBuf,
    #[command(flatten)]
    stored: Stored,
}

impl RestoreOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let about = |error: io::Error| Failure::Message(format!("{}: {error}", self.file.display()));
        let text = if self.file.as_os_str() == "-" {
            let mut text = String::new();
            io::stdin().lock().read_to_string(&mut text).map(|_| text)
        } else {
            fs::read_to_string(&self.file)
        };
        self.stored.run(Restore(text.map_err(about)?))?;
        give_to_service(&self.stored.folder.dir)
    }
}

/// Print the digest of this controller's certificate, which is made if it is not there
///
/// For a controller that is not the first: it belongs into the rules (`control policy`), with where the controller is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep control certificate")]
pub(crate) struct CertificateOptions {
    #[command(flatten)]
    folder: FolderOption,
}

impl CertificateOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let identity = Identity::of_folder(&self.folder.dir, &["sidestep-control".to_owned()])?;
        give_to_service(&self.folder.dir)?;
        print(format_args!("{}\n", identity.digest()))
    }
}
