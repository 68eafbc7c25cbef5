//! `control init`: a fleet with one administrator, and its first controller.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use clap::Args;
use controller::{ACCESS, Identity, Job, NETWORK, Network, Role, access, begin, now, with_store};
use fleet::authority::{Administrator, Authority, Chain};
use fleet::document::{Contents, Head, Serial};
use fleet::name::Name;
use fleet::news::{DocumentNews, News};
use fleet::settings::Controller;
use fleet::signed::Signed;
use store::Store;
use zeroize::Zeroizing;

use super::folder::{FolderOption, KEY, give_to_service, make_key, run, store_of};
use super::rules::settings_of;
use crate::failure::Failure;
use crate::peer::write_new;
use crate::terminal::print;

/// Begin a fleet: an administrator's key, a controller's certificate, and the first document
///
/// The administrator's key, which is written where this is run, decides who is a member. Move it to a machine that is no
/// controller: whoever has it has the fleet, and without it nothing can be changed any more. Rules and more administrators come with
/// `control policy` and `control authority`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control init --outside control.example.net:4160
  sidestep control init --dir ~/fleet --key /media/usb/ada.key --outside [2001:db8::1]:4160 --administrator ada --policy policy.toml
  sidestep control init --store etcd://10.0.0.1:2379,10.0.0.2:2379 --outside c1.example.net:4160")]
pub(crate) struct InitOptions {
    #[command(flatten)]
    folder: FolderOption,
    /// Where sites reach the controller over the Internet, to enrol and to recover
    #[arg(long, value_name = "HOST:PORT")]
    outside: String,
    /// Where sites reach it inside of their tunnels
    #[arg(long, value_name = "ADDRESS:PORT")]
    inside: Option<SocketAddr>,
    /// The controller's name
    #[arg(long, value_name = "NAME", default_value = "control-1")]
    name: Name,
    /// The file for the administrator's key: where no controller runs, or soon moved there
    #[arg(long, value_name = "FILE", default_value = KEY)]
    key: PathBuf,
    /// The administrator's name
    #[arg(long, value_name = "NAME", default_value = "admin")]
    administrator: Name,
    /// Rules for a start, as `control policy` prints them; without, sites of the role `hub` have tunnels with each other and with those of the role `spoke`
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Where the controller keeps its state: a file, by default control.db in the folder, or etcd://HOST:PORT,HOST:PORT/NAME
    #[arg(long, value_name = "PLACE")]
    store: Option<String>,
}

struct Begin {
    news: News,
    administrator: Name,
}

impl Job for Begin {
    type Output = Result<Zeroizing<String>, Failure>;

    async fn run<S: Store>(self, store: S) -> Self::Output {
        let who = self.administrator.as_str();
        begin(&store, who, self.news).await?;
        Ok(access::grant(&store, who, self.administrator.clone(), Role::Publisher, None).await?)
    }
}

impl InitOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = &self.folder.dir;
        let about = |error: std::io::Error| Failure::Message(format!("{}: {error}", folder.display()));
        DirBuilder::new().mode(0o700).recursive(true).create(folder).map_err(about)?;
        if folder.join(NETWORK).exists() {
            return Err(Failure::Message(format!("{}: there is a fleet already", folder.display())));
        }
        let mut settings = settings_of(self.policy.as_deref())?;
        check_place(&self.outside)?;
        let identity = Identity::of_folder(folder, &[host(&self.outside).to_owned()])?;
        let place = Controller {
            name: self.name.clone(),
            inside: self.inside,
            outside: Some(self.outside.clone()),
            certificate: identity.digest(),
        };
        settings.controllers.retain(|other| other.name != place.name);
        settings.controllers.push(place.clone());
        let key_file = &self.key;
        let key = make_key(key_file)?;
        let authority = Authority {
            version: 1,
            network: None,
            threshold: 1,
            administrators: vec![Administrator { name: self.administrator.clone(), key: key.public() }],
            delegates: Vec::new(),
        };
        let first = Signed::new(&authority, [&key]);
        let network = Chain::begin(first.clone())?.network();
        // All that the rules name: who administers asks another where this one does not run.
        let controllers = std::iter::once(place.clone())
            .chain(settings.controllers.iter().filter(|other| other.name != place.name).cloned())
            .collect();
        let contents = Contents::new(settings);
        let head = Head {
            network,
            authority: 1,
            serial: Serial(1),
            made: now(),
            previous: None,
            contents: contents.digest(),
        };
        let document = DocumentNews { head: Signed::new(&head, [&key]), change: contents.complete() };
        let news = News { authorities: vec![first], document: Some(document), ..News::default() };
        let store = store_of(folder, self.store.clone())?;
        let job = Begin { news, administrator: self.administrator.clone() };
        let begun = run(async { with_store(&store, job).await? });
        // A second try is to find the folder as the first one did.
        let token = begun.inspect_err(|_| drop(std::fs::remove_file(key_file)))?;
        let text = toml::to_string(&Network { network, controllers })?;
        write_new(&folder.join(ACCESS), &format!("{}\n", *token))?;
        write_new(&folder.join(NETWORK), &text)?;
        give_to_service(folder)?;
        print(format_args!(
            "the fleet {network}\n\
             {}: its administrator's key. Move it to where you sign, and keep a copy: who has it has the fleet\n\
             {}: what lets you in, with {} on whichever machine you work\n\
             next: sidestep control up; sidestep control invite --site NAME\n",
            key_file.display(),
            folder.join(ACCESS).display(),
            NETWORK,
        ))
    }
}

fn check_place(place: &str) -> Result<(), Failure> {
    let is_good = place.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && port.parse::<u16>().is_ok_and(|port| port > 0)
            && (!host.contains(':') || host.starts_with('['))
    });
    match is_good {
        true => Ok(()),
        false => Err(Failure::Message(format!(
            "{place:?} is no place: take HOST:PORT, like control.example.net:4160 or [2001:db8::1]:4160"
        ))),
    }
}

/// The name or address of a place.
fn host(place: &str) -> &str {
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
