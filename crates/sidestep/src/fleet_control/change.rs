//! Changes of who is a member, and of the rules: shown as a difference, signed, published.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use controller::{Draft, Folder, Preview, Waiting, now, rules};
use fleet::authority::Authority;
use fleet::enrolment::{self, Application, State};
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::name::Name;
use fleet::news::News;
use fleet::notice::{Act, Delegated, DelegatedLines};
use fleet::signed::Signed;
use fleet::site::Site;

use super::applied::{is_meant, wait_for};
use super::folder::{FolderOption, KEY, make_key, read, run, signing_key};
use super::rules::settings_of;
use crate::check::list;
use crate::failure::Failure;
use crate::terminal::print;

/// How often `approve --watch` looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// Who signs, and whether he is asked.
#[derive(Debug, Args)]
pub(super) struct Signing {
    /// The administrator's key
    #[arg(long, value_name = "FILE", default_value = KEY)]
    key: PathBuf,
    /// Sign without being asked
    #[arg(long)]
    yes: bool,
}

/// Which applications.
#[derive(Debug, Args)]
pub(super) struct Applicants {
    /// Names of sites, or the first digits of applications
    #[arg(value_name = "SITE", required_unless_present = "all")]
    sites: Vec<String>,
    /// All that wait
    #[arg(long, conflicts_with = "sites")]
    all: bool,
}

/// Let sites in that have applied
///
/// Shows what would be different, asks, signs, and publishes. Compare the identity with the one that the site shows, if the
/// invitation may have been read by others.
///
/// With --delegate-key it signs as a delegate, within the limits that the administrators have given that key; with --watch it
/// goes on and lets everybody in who was invited. Run that on a machine that is no controller: whoever has that machine, or
/// makes invitations, lets sites in within those limits, without an administrator.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control approve kiel --key /media/usb/ada.key
  sidestep control approve --all
  sidestep control approve kiel bonn --wait 1h
  sidestep control approve --all --watch --delegate-key robot.key")]
pub(crate) struct ApproveOptions {
    #[command(flatten)]
    applicants: Applicants,
    /// Sign with a delegate's key
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    delegate_key: Option<PathBuf>,
    /// Go on, and let in who applies
    #[arg(long, requires = "delegate_key", requires = "all")]
    watch: bool,
    /// Wait so long until those that are named have applied
    #[arg(long, value_name = "DURATION", conflicts_with = "all", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    folder: FolderOption,
}

/// Take sites out
///
/// Their names and keys stay taken, so that nobody takes their place; --remove frees them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control revoke kiel
  sidestep control revoke kiel bonn --yes --key ada.key
  sidestep control revoke kiel --delegate-key robot.key")]
pub(crate) struct RevokeOptions {
    #[command(flatten)]
    leavers: Leavers,
    /// Sign with a delegate's key
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "remove"])]
    delegate_key: Option<PathBuf>,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    folder: FolderOption,
}

/// Which sites leave.
#[derive(Debug, Args)]
pub(super) struct Leavers {
    /// Names of sites
    #[arg(value_name = "SITE", required = true)]
    sites: Vec<Name>,
    /// Mention them no more
    #[arg(long)]
    remove: bool,
}

/// Show the rules and where controllers are, or change them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control policy > rules.toml       then edit it
  sidestep control policy rules.toml         what would be different, then sign
  sidestep control policy rules.toml --key ada.key --yes")]
pub(crate) struct PolicyOptions {
    /// The new ones, in the form that this command prints
    file: Option<PathBuf>,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    folder: FolderOption,
}

/// Show who may sign, or change that: administrators, how many have to sign, delegates and their limits
///
/// The change is signed by enough of those who may sign now, and by enough of those who may then. Where that takes several keys:
/// `control draft authority FILE`, then `control sign` with each.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control authority > authority.toml      then edit it
  sidestep control authority authority.toml        what would be different, then sign
  sidestep control draft authority authority.toml > draft")]
pub(crate) struct AuthorityOptions {
    /// The new one, in the form that this command prints
    file: Option<PathBuf>,
    #[command(flatten)]
    signing: Signing,
    #[command(flatten)]
    folder: FolderOption,
}

/// Write a change that is to be signed elsewhere
///
/// The file has what is in force with it: who signs it sees what would be different, also without a network. Carry it to each
/// who has to sign (`control sign FILE --key KEY`), and back (`control publish FILE`).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control draft approve kiel > kiel.draft
  sidestep control draft revoke bonn > bonn.draft
  sidestep control draft policy rules.toml > rules.draft")]
pub(crate) struct DraftOptions {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    folder: FolderOption,
}

/// What a draft changes.
#[derive(Debug, Subcommand)]
enum What {
    /// Let sites in
    #[command(after_help = "Examples:\n  sidestep control draft approve kiel > kiel.draft")]
    Approve(Applicants),
    /// Take sites out
    #[command(after_help = "Examples:\n  sidestep control draft revoke kiel > kiel.draft")]
    Revoke(Leavers),
    /// Other rules
    #[command(after_help = "Examples:\n  sidestep control draft policy rules.toml > rules.draft")]
    Policy {
        /// In the form that `control policy` prints
        file: PathBuf,
    },
    /// Other people who may sign
    #[command(after_help = "Examples:\n  sidestep control draft authority authority.toml > draft")]
    Authority {
        /// In the form that `control authority` prints
        file: PathBuf,
    },
}

/// Make a key that signs: of another administrator, or of a delegate
///
/// Only its public half, which is printed, goes to others: into what `control authority` takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep control key ben.key\n  sidestep control key robot.key")]
pub(crate) struct KeyOptions {
    /// The file for it, which is not there yet; of one that is there the public half is printed
    file: PathBuf,
}

impl KeyOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let key = if self.file.exists() { signing_key(&self.file)? } else { make_key(&self.file)? };
        print(format_args!("{}\n", key.public()))
    }
}

/// Sign a draft, also without a network
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep control sign kiel.draft --key ada.key")]
pub(crate) struct SignOptions {
    /// What `control draft` has written; the signature is added to it
    file: PathBuf,
    /// The administrator's key
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Sign without being asked
    #[arg(long)]
    yes: bool,
}

/// Publish a draft that enough have signed
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep control publish kiel.draft")]
pub(crate) struct PublishOptions {
    /// The draft
    file: PathBuf,
    #[command(flatten)]
    folder: FolderOption,
}

impl ApproveOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        if let Some(patience) = self.wait {
            run(wait_for(&folder, &self.applicants.sites, patience))?;
        }
        let Some(path) = &self.delegate_key else {
            return run(async {
                let (fleet, before) = folder.fleet().await?;
                let draft = approve(&folder, &fleet, before, &self.applicants).await?;
                self.signing.finish(&folder, &fleet, draft).await
            });
        };
        let key = signing_key(path)?;
        loop {
            let once = run(self.as_delegate(&folder, &key));
            match once {
                result if !self.watch => return result,
                Ok(()) => {}
                Err(failure) => writeln!(io::stderr(), "sidestep: {failure}")?,
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Each by itself: one that is beyond the limits does not keep others out.
    async fn as_delegate(&self, folder: &Folder, key: &SigningKey) -> Result<(), Failure> {
        let (mut fleet, _) = folder.fleet().await?;
        let mut refused = Vec::new();
        for application in applicants(folder, &fleet, &self.applicants, self.watch).await? {
            let name = application.member.name.clone();
            let site = Site::new(application.member, application.contact);
            let act =
                Act::Add { member: Box::new(site.member.value().clone()), contact: *site.contact.digest() };
            let contact = site.contact.text().map(str::to_owned);
            match delegate(folder, &fleet, key, act, contact, self.signing.yes || self.watch).await {
                Ok(now) => fleet = now,
                Err(failure) => refused.push(format!("{name}: {failure}")),
            }
        }
        if refused.is_empty() { Ok(()) } else { Err(Failure::Message(refused.join("; "))) }
    }
}

/// Signs as a delegate, and publishes; answers the fleet with it. `contact`: the line of how a new site is met.
async fn delegate(
    folder: &Folder,
    fleet: &Fleet,
    key: &SigningKey,
    act: Act,
    contact: Option<String>,
    yes: bool,
) -> Result<Fleet, Failure> {
    let serial = fleet.serial().ok_or_else(|| Failure::Message("there is no document".to_owned()))?;
    let signed = Signed::new(&Delegated { network: fleet.network(), serial, act }, [key]);
    let news = News { delegated: vec![DelegatedLines { signed, contact }], ..News::default() };
    let mut after = fleet.clone();
    if let Some(refusal) = after.take(news.clone()).refused.first() {
        return Err(Failure::Message(refusal.to_string()));
    }
    show_and_ask(&Preview::between(fleet, &after), yes)?;
    folder.post::<()>("/v1/publish", &news).await?;
    Ok(after)
}

/// The applications that are meant, verified, and told.
async fn applicants(
    folder: &Folder,
    fleet: &Fleet,
    which: &Applicants,
    none_is_fine: bool,
) -> Result<Vec<Application>, Failure> {
    let all: Vec<Waiting> = folder.get("/v1/applications").await?;
    let waiting: Vec<&Waiting> = all.iter().filter(|one| one.state == State::Waiting).collect();
    let mut found = Vec::new();
    for one in waiting {
        // A controller may say anything: what is not signed by the site is none.
        let application = match enrolment::check(&one.applied.signed, fleet.network()) {
            Ok(application) if enrolment::id(&one.applied.signed) == one.id => application,
            _ => {
                return Err(Failure::Message(format!(
                    "application {} was changed at the controller",
                    one.id
                )));
            }
        };
        if which.all || which.sites.iter().any(|text| is_meant(one, &application, text)) {
            // Not where a draft goes.
            writeln!(
                io::stderr(),
                "{} applies, invited by {}: identity {}, networks {}, hops in {}",
                application.member.name,
                one.applied.invited_by.escape_debug(),
                application.member.identity,
                list(&application.member.networks),
                application.contact.hop_prefix
            )?;
            found.push(application);
        }
    }
    if found.is_empty() && !none_is_fine {
        return Err(Failure::Message(
            "no such application waits: see `sidestep control applications`".to_owned(),
        ));
    }
    Ok(found)
}

async fn approve(folder: &Folder, fleet: &Fleet, before: News, which: &Applicants) -> Result<Draft, Failure> {
    let applications = applicants(folder, fleet, which, false).await?;
    Ok(Draft::approve(fleet, before, applications)?)
}

fn policy(fleet: &Fleet, before: News, file: &Path) -> Result<Draft, Failure> {
    let draft = Draft::settings(fleet, before, settings_of(Some(file))?);
    draft.map_err(|error| Failure::Message(format!("{}: {error}", file.display())))
}

fn authority(fleet: &Fleet, before: News, file: &Path) -> Result<Draft, Failure> {
    let about = |error: &dyn std::fmt::Display| Failure::Message(format!("{}: {error}", file.display()));
    let mut next: Authority = toml::from_str(&read(file)?).map_err(|error| about(&error))?;
    next.version = fleet.chain().current().version + 1;
    next.network = Some(fleet.network());
    next.check().map_err(|error| about(&error))?;
    Ok(Draft::new(fleet, before, Some(next), |_| Ok(()))?)
}

impl RevokeOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        run(async {
            let (mut fleet, before) = folder.fleet().await?;
            let Some(path) = &self.delegate_key else {
                let draft = Draft::revoke(&fleet, before, &self.leavers.sites, self.leavers.remove)?;
                return self.signing.finish(&folder, &fleet, draft).await;
            };
            let key = signing_key(path)?;
            for name in &self.leavers.sites {
                let act = Act::Revoke { site: name.clone(), since: now() };
                fleet = delegate(&folder, &fleet, &key, act, None, self.signing.yes).await?;
            }
            Ok(())
        })
    }
}

impl PolicyOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        run(async {
            let (fleet, before) = folder.fleet().await?;
            match &self.file {
                None => print(rules::write(fleet.settings().cloned().unwrap_or_default())?),
                Some(file) => {
                    let draft = policy(&fleet, before, file)?;
                    self.signing.finish(&folder, &fleet, draft).await
                }
            }
        })
    }
}

impl AuthorityOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        run(async {
            let (fleet, before) = folder.fleet().await?;
            match &self.file {
                None => print(toml::to_string(fleet.chain().current())?),
                Some(file) => {
                    let draft = authority(&fleet, before, file)?;
                    self.signing.finish(&folder, &fleet, draft).await
                }
            }
        })
    }
}

impl DraftOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        run(async {
            let (fleet, before) = folder.fleet().await?;
            let draft = match &self.what {
                What::Approve(which) => approve(&folder, &fleet, before, which).await?,
                What::Revoke(which) => Draft::revoke(&fleet, before, &which.sites, which.remove)?,
                What::Policy { file } => policy(&fleet, before, file)?,
                What::Authority { file } => authority(&fleet, before, file)?,
            };
            write!(io::stderr(), "{}", draft.preview(&fleet)?)?;
            print(draft.to_text()?)
        })
    }
}

impl SignOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let key = signing_key(&self.key)?;
        let (mut draft, fleet) = read_draft(&self.file)?;
        print(format_args!("the fleet {}\n", draft.network))?;
        show_and_ask(&draft.preview(&fleet)?, self.yes)?;
        draft.sign(&fleet, &key)?;
        linux::file::replace(&self.file, draft.to_text()?.as_bytes())
            .map_err(|error| Failure::Message(format!("{}: {error}", self.file.display())))?;
        match draft.lacks(&fleet) {
            None => print("signed: `sidestep control publish` takes it\n"),
            Some(why) => print(format_args!("signed; it is not enough yet: {why}\n")),
        }
    }
}

impl PublishOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (draft, _) = read_draft(&self.file)?;
        let folder = Folder::read(&self.folder.dir)?;
        run(async {
            folder.post::<()>("/v1/publish", &draft.change).await?;
            print("published\n")
        })
    }
}

impl Signing {
    /// Shows a draft, asks, signs and publishes.
    async fn finish(&self, folder: &Folder, fleet: &Fleet, mut draft: Draft) -> Result<(), Failure> {
        let path = &self.key;
        if !path.exists() {
            let why = format!(
                "{}: there is no key: name it with --key, or write a draft and sign it where the key is \
                 (sidestep control draft --help)",
                path.display()
            );
            return Err(Failure::Message(why));
        }
        let key = signing_key(path)?;
        show_and_ask(&draft.preview(fleet)?, self.yes)?;
        draft.sign(fleet, &key)?;
        if let Some(why) = draft.lacks(fleet) {
            let why =
                format!("{why}: write a draft, and let others sign it, too (sidestep control draft --help)");
            return Err(Failure::Message(why));
        }
        folder.post::<()>("/v1/publish", &draft.change).await?;
        print("published\n")
    }
}

/// Reads a draft, with the fleet that it says is in force: verified.
fn read_draft(file: &Path) -> Result<(Draft, Fleet), Failure> {
    Draft::parse(&read(file)?).map_err(|error| Failure::Message(format!("{}: {error}", file.display())))
}

/// Shows what would be different, and asks whether that is to be signed.
fn show_and_ask(preview: &Preview, yes: bool) -> Result<(), Failure> {
    print(preview)?;
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Message("nothing was signed: nobody can be asked here; --yes signs".to_owned()));
    }
    print("sign this? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Message("nothing was signed".to_owned())),
    }
}
