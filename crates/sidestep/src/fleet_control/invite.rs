//! Invitations and applications.

use std::time::Duration;

use clap::Args;
use controller::{Folder, Waiting, now};
use fleet::enrolment::{self, Invitation, State, Terms};
use fleet::fleet::Fleet;
use fleet::key::SigningKey;
use fleet::name::Name;
use ipnet::IpNet;
use serde::Serialize;
use zeroize::Zeroizing;

use super::folder::{FolderOption, run};
use crate::check::list;
use crate::failure::Failure;
use crate::terminal::print;

/// Invite sites: print the string that `sidestep enroll` takes at each
///
/// The string is a secret until the site has applied: send it as you would send a password. Controllers know only the public half
/// of its key, so none of them can apply in the site's place. The site is a member when an administrator or a delegate has signed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control invite --site kiel --expires 1h
  sidestep control invite --site kiel --role spoke --zone branch --within fd00:7::/32
  sidestep control invite --site kiel --site bonn     a line for each, with its name and its string
  sidestep control invite --role spoke                any name: the site says it itself")]
pub(crate) struct InviteOptions {
    /// The site's name; any, if it is not given. May be repeated, for several with the same terms
    #[arg(long, value_name = "NAME")]
    site: Vec<Name>,
    /// How long the string is good for
    #[arg(long, value_name = "DURATION", default_value = "1day", value_parser = humantime::parse_duration)]
    expires: Duration,
    /// The site's role, for the rules
    #[arg(long, value_name = "NAME", default_value = "spoke")]
    role: Name,
    /// The site's region, for the rules
    #[arg(long, value_name = "NAME")]
    region: Option<Name>,
    /// The site's zone, for the rules
    #[arg(long, value_name = "NAME")]
    zone: Option<Name>,
    /// The group of gateways that stand by for each other
    #[arg(long, value_name = "NAME")]
    standby: Option<Name>,
    /// What the networks behind it lie in; may be repeated
    #[arg(long, value_name = "PREFIX")]
    within: Vec<IpNet>,
    #[command(flatten)]
    folder: FolderOption,
}

/// What a controller is told of an invitation.
#[derive(Serialize)]
struct ToInvite<'i> {
    key: fleet::key::VerifyingKey,
    terms: &'i Terms,
    expires: u64,
}

impl InviteOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        let expires = now() + self.expires.as_secs();
        run(async {
            let (fleet, _) = folder.fleet().await?;
            // None is invited where one of them cannot be.
            if let Some(site) = self.site.iter().find(|site| fleet.site(site).is_some()) {
                let why = format!(
                    "there is a site {site} already: `sidestep control revoke --remove` frees its name"
                );
                return Err(Failure::Message(why));
            }
            match self.site.as_slice() {
                [] => print(format_args!("{}\n", *self.invite(&folder, &fleet, None, expires).await?)),
                [site] => {
                    print(format_args!("{}\n", *self.invite(&folder, &fleet, Some(site), expires).await?))
                }
                sites => {
                    for site in sites {
                        let string = self.invite(&folder, &fleet, Some(site), expires).await?;
                        print(format_args!("{site} {}\n", *string))?;
                    }
                    Ok(())
                }
            }
        })
    }

    /// One invitation, which the controllers know of; its string.
    async fn invite(
        &self,
        folder: &Folder,
        fleet: &Fleet,
        site: Option<&Name>,
        expires: u64,
    ) -> Result<Zeroizing<String>, Failure> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *seed).map_err(|error| Failure::Message(error.to_string()))?;
        let key = SigningKey::from_seed(*seed);
        let terms = Terms {
            site: site.cloned(),
            role: self.role.clone(),
            region: self.region.clone(),
            zone: self.zone.clone(),
            standby: self.standby.clone(),
            within: self.within.clone(),
        };
        let controllers = fleet.settings().map(|settings| settings.controllers.clone()).unwrap_or_default();
        let to_invite = ToInvite { key: key.public(), terms: &terms, expires };
        folder.post::<serde_json::Value>("/v1/invitations", &to_invite).await?;
        let invitation = Invitation::new(fleet.network(), controllers, &key, terms, expires);
        Ok(invitation.knowing(fleet.chain()).to_text())
    }
}

/// Show which sites have applied
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control applications
  sidestep control applications --all --json | jq '.[] | {site, state}'")]
pub(crate) struct ApplicationsOptions {
    /// Those that were decided, too
    #[arg(long)]
    all: bool,
    /// Write JSON; its fields are stable
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: FolderOption,
}

#[derive(Serialize)]
struct Row {
    id: String,
    site: Name,
    role: Name,
    networks: Vec<IpNet>,
    hop_prefix: String,
    identity: String,
    invited_by: String,
    state: String,
}

impl ApplicationsOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        let network = folder.network.network;
        let all: Vec<Waiting> = run(async { Ok(folder.get("/v1/applications").await?) })?;
        let mut rows = Vec::new();
        for one in all.into_iter().filter(|one| self.all || one.state == State::Waiting) {
            let application = enrolment::check(&one.applied.signed, network).map_err(|error| {
                Failure::Message(format!("application {} was changed: {error}", one.id.escape_debug()))
            })?;
            rows.push(Row {
                id: enrolment::id(&one.applied.signed),
                site: application.member.name,
                role: application.member.role,
                networks: application.member.networks,
                hop_prefix: application.contact.hop_prefix.to_string(),
                identity: application.member.identity.to_string(),
                invited_by: one.applied.invited_by.escape_debug().to_string(),
                state: match one.state {
                    State::Waiting => "waiting".to_owned(),
                    State::Member => "member".to_owned(),
                    State::Refused { why } => format!("refused: {}", why.escape_debug()),
                },
            });
        }
        if self.json {
            return print(serde_json::to_string_pretty(&rows)? + "\n");
        }
        if rows.is_empty() {
            return print("nobody waits\n");
        }
        for Row { id, site, role, networks, hop_prefix, identity, invited_by, state } in rows {
            print(format_args!(
                "{site} ({role}), {state}\n  application {}, invited by {invited_by}\n  identity {identity}\n  \
                 networks {}, hops in {hop_prefix}\n",
                id.get(..12).unwrap_or(&id),
                list(&networks)
            ))?;
        }
        Ok(())
    }
}

/// Turn an application down
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep control refuse kiel --why 'who is that?'")]
pub(crate) struct RefuseOptions {
    /// The site's name, or the first digits of the application
    site: String,
    /// What the site is told
    #[arg(long, value_name = "TEXT", default_value = "turned down by an administrator")]
    why: String,
    #[command(flatten)]
    folder: FolderOption,
}

impl RefuseOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        run(async {
            let all: Vec<Waiting> = folder.get("/v1/applications").await?;
            let is_meant = |one: &&Waiting| {
                let name = one.applied.signed.read().map(|application| application.member.name);
                one.state == State::Waiting
                    && (name.is_ok_and(|name| name.as_str() == self.site)
                        || (self.site.len() >= 6 && one.id.starts_with(&self.site)))
            };
            let found: Vec<&Waiting> = all.iter().filter(is_meant).collect();
            let [one] = found.as_slice() else {
                let why =
                    format!("{} applications of that name wait: take the first digits of one", found.len());
                return Err(Failure::Message(why));
            };
            let why = serde_json::json!({ "why": self.why });
            folder.post::<()>(&format!("/v1/applications/{}/refuse", one.id), &why).await?;
            print("turned down\n")
        })
    }
}
