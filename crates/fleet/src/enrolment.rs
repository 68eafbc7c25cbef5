//! How a site becomes a member: it is invited, it applies, and it hears what became of that.
//!
//! An [`Invitation`] has a signing key that is good for one application. Its private half is in the string that the site is
//! given; controllers store its public half. The site signs its [`Application`] with that key and with its own identity, whose
//! private half never leaves it. So a controller that has not seen the string can make no application for it, and whoever
//! signs what comes of an application can verify it, whatever the controller says.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::authority::{Authority, AuthorityError, Chain, NetworkId};
use crate::key::{Digest, SigningKey, VerifyingKey};
use crate::name::Name;
use crate::settings::Controller;
use crate::signed::{NotUnderstood, Signed, Statement};
use crate::site::{Contact, Member, SiteError};

/// What every invitation begins with; another form has another number.
const BEGIN: &str = "sidestep-fleet1-";
/// Bytes of the digest behind it, by which a part that is missing shows.
const SUM: usize = 4;

/// The longest application, in bytes, more than a site with as many networks as it can have needs: controllers keep what anybody
/// with an invitation sends.
const LONGEST: usize = 32 * 1024;

/// Where a site applies: `POST` of a [`Signed`] [`Application`], answered by a [`Status`].
pub const APPLY: &str = "/v1/enrol";

/// Where a site hears what became of its application: `GET`, answered by a [`Status`].
#[must_use]
pub fn status_path(id: &str) -> String {
    format!("{APPLY}/{id}")
}

/// How long to wait until it is asked again what became of an application that was made so long ago: a quarter of that, give
/// or take a half, and from one second to a minute. Thousands may apply at once, and wait for one administrator.
#[must_use]
pub fn pause(since: Duration, random: &mut fastrand::Rng) -> Duration {
    let mean = (since / 4).clamp(Duration::from_secs(2), Duration::from_secs(40));
    mean / 2 + mean.mul_f64(random.f64())
}

/// All that a site needs to apply, as one string: a secret until it was used.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// The network, by which the site knows its administrators.
    pub network: NetworkId,
    /// The digest of the authority that was in force, if that was not the first: administrators whose keys were replaced before
    /// have no say to this site. Without it they could, together with a controller, name others to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authority: Option<Digest>,
    /// Where it may apply.
    pub controllers: Vec<Controller>,
    /// The key that is good for one application, as [`SigningKey::to_text`].
    key: Zeroizing<String>,
    /// What it may apply as.
    pub terms: Terms,
    /// Until when, in seconds of Unix time: by the controllers' clocks, the site need not have one.
    pub expires: u64,
}

/// What a site may apply as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Its name; any, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Name>,
    /// Its role.
    pub role: Name,
    /// Its region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Name>,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    /// The gateways that it stands by for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<Name>,
    /// What its networks lie in; any, if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<IpNet>,
}

/// What a site that is no member yet says of itself. It decides nothing: an administrator or a delegate does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// The network.
    pub network: NetworkId,
    /// The public half of the invitation's key.
    pub token: VerifyingKey,
    /// What every member would know of it.
    pub member: Member,
    /// How it is met.
    pub contact: Contact,
}

impl Statement for Application {
    const KIND: &'static str = "application 1";
}

/// What became of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// Which one: [`id`].
    pub id: String,
    /// What became of it.
    pub state: State,
    /// Who may sign in this network, from the first authority on: the site verifies them by its invitation
    /// ([`Invitation::chain`]), and asks for the document itself.
    pub authorities: Vec<Signed<Authority>>,
}

/// What became of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum State {
    /// Nobody has decided.
    Waiting,
    /// The site is a member.
    Member,
    /// It was turned down.
    Refused {
        /// Why.
        why: String,
    },
}

/// Why a string is no invitation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoInvitation {
    /// It is something else.
    #[error(
        "this is no invitation to a fleet: one begins with {BEGIN}, and `sidestep control invite` prints it"
    )]
    Other,
    /// A part is missing or changed.
    #[error("this invitation is not complete, or was changed on its way: copy all of it")]
    Damaged,
    /// It is of a later program.
    #[error("this invitation is of another version of sidestep")]
    Version,
}

/// Why an application is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplicationError {
    /// It cannot be read.
    #[error(transparent)]
    NotUnderstood(#[from] NotUnderstood),
    /// It says more than an application can.
    #[error("the application has {0} bytes: {LONGEST} are the most")]
    Long(usize),
    /// It was meant for another network.
    #[error("the application is for another network")]
    Foreign,
    /// The site itself has not signed it, or nobody who has the invitation has.
    #[error("the application is not signed by both the site and the invitation's key")]
    Unsigned,
    /// It could not be configured.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// It asks for what the invitation does not offer.
    #[error("the invitation is for another {what}: {offered}, not {asked}")]
    Terms {
        /// What is different.
        what: &'static str,
        /// What it offers.
        offered: String,
        /// What is asked for.
        asked: String,
    },
}

impl Invitation {
    /// An invitation with this key.
    #[must_use]
    pub fn new(
        network: NetworkId,
        controllers: Vec<Controller>,
        key: &SigningKey,
        terms: Terms,
        expires: u64,
    ) -> Self {
        Invitation { network, authority: None, controllers, key: key.to_text(), terms, expires }
    }

    /// For a site that takes no other authority than the newest of these, and those behind it.
    #[must_use]
    pub fn knowing(self, chain: &Chain) -> Self {
        let authority = Some(chain.digest()).filter(|digest| *digest != self.network);
        Invitation { authority, ..self }
    }

    /// Who may sign, out of the links that a controller tells.
    ///
    /// # Errors
    /// If they are of another network, one of them does not follow the one before it, or they lead past the authority that was in
    /// force.
    pub fn chain(&self, links: impl IntoIterator<Item = Signed<Authority>>) -> Result<Chain, AuthorityError> {
        let chain = Chain::of(self.network, links)?;
        let is_its = self.authority.is_none_or(|digest| chain.contains(digest));
        if is_its { Ok(chain) } else { Err(AuthorityError::Astray) }
    }

    /// As one string: a secret.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let json =
            Zeroizing::new(serde_json::to_vec(self).expect("an invitation is a map with texts as keys"));
        let sum = Digest::of(&json);
        let all = Zeroizing::new([json.as_slice(), &sum.as_bytes()[..SUM]].concat());
        Zeroizing::new(format!("{BEGIN}{}", URL_SAFE_NO_PAD.encode(&*all)))
    }

    /// The application of a site with this identity.
    ///
    /// # Errors
    /// If it asks for what is not offered, or for what could not be configured.
    pub fn apply(
        &self,
        identity: &SigningKey,
        member: Member,
        contact: Contact,
    ) -> Result<Signed<Application>, ApplicationError> {
        let key: SigningKey = self.key.parse().map_err(|_| ApplicationError::Unsigned)?;
        let application = Application { network: self.network, token: key.public(), member, contact };
        self.terms.admit(&application.member)?;
        let signed = Signed::new(&application, [identity, &key]);
        check(&signed, self.network)?;
        Ok(signed)
    }
}

impl FromStr for Invitation {
    type Err = NoInvitation;

    fn from_str(text: &str) -> Result<Self, NoInvitation> {
        let encoded = text.trim().strip_prefix(BEGIN).ok_or(NoInvitation::Other)?;
        let all = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| NoInvitation::Damaged)?;
        let all = Zeroizing::new(all);
        let (json, sum) = all.split_at_checked(all.len().wrapping_sub(SUM)).ok_or(NoInvitation::Damaged)?;
        if Digest::of(json).as_bytes()[..SUM] != *sum {
            return Err(NoInvitation::Damaged);
        }
        serde_json::from_slice(json).map_err(|_| NoInvitation::Version)
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation").field("network", &self.network).field("terms", &self.terms).finish()
    }
}

impl Terms {
    /// Refuses a site that is not what these offer.
    ///
    /// # Errors
    /// If it is not.
    pub fn admit(&self, member: &Member) -> Result<(), ApplicationError> {
        let text = |name: &Option<Name>| name.as_ref().map_or_else(|| "none".to_owned(), Name::to_string);
        let same = |what, offered: String, asked: String| {
            if offered == asked { Ok(()) } else { Err(ApplicationError::Terms { what, offered, asked }) }
        };
        if let Some(site) = &self.site {
            same("name", site.to_string(), member.name.to_string())?;
        }
        same("role", self.role.to_string(), member.role.to_string())?;
        same("region", text(&self.region), text(&member.region))?;
        same("zone", text(&self.zone), text(&member.zone))?;
        same("standby group", text(&self.standby), text(&member.standby))?;
        let is_within = |network: &&IpNet| self.within.iter().any(|wide| wide.contains(*network));
        let mut networks = member.networks.iter().chain(&member.may_take);
        if let Some(network) = networks.find(|network| !self.within.is_empty() && !is_within(network)) {
            let offered = self.within.iter().map(IpNet::to_string).collect::<Vec<_>>().join(", ");
            return Err(ApplicationError::Terms { what: "network", offered, asked: network.to_string() });
        }
        match member.revoked {
            Some(_) => same("site", "a member".to_owned(), "one that is revoked".to_owned()),
            None => same("number of notices", "0".to_owned(), member.notices_after.to_string()),
        }
    }
}

/// What an application says, if the site and who was invited have signed it, and it could be configured.
///
/// # Errors
/// If it is not so.
pub fn check(signed: &Signed<Application>, network: NetworkId) -> Result<Application, ApplicationError> {
    if signed.length() > LONGEST {
        return Err(ApplicationError::Long(signed.length()));
    }
    let application = signed.read()?;
    if application.network != network {
        return Err(ApplicationError::Foreign);
    }
    let keys = [application.member.identity, application.token];
    // Two that are the same would count once.
    if signed.signers(keys) < keys.len() {
        return Err(ApplicationError::Unsigned);
    }
    application.member.check()?;
    application.contact.check(&application.member.name)?;
    Ok(application)
}

/// Which application: the digest of what was signed, in hexadecimal.
#[must_use]
pub fn id(signed: &Signed<Application>) -> String {
    signed.digest().hex()
}
