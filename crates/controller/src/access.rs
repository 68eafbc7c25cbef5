//! Who may use the interface for people: whoever has a token of which the store has the digest. Somebody makes it for him, or he
//! logs in, and has one for a while.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet::key::Digest;
use fleet::name::Name;
use store::{Commit, Store};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::oidc::Person;
use crate::publish::{TRIES, busy};
use crate::records::{self, Access, Role, What, now};
use crate::{keys, log};

/// What every token begins with.
const BEGIN: &str = "sidestep-access1-";
/// How many tokens are taken at once.
const AT_ONCE: usize = 50;

/// Lets somebody in, and makes the token that he shows: a secret that is stored nowhere.
///
/// # Errors
/// If somebody of this name is let in already, or the store does not answer.
pub async fn grant<S: Store>(
    store: &S,
    who: &str,
    name: Name,
    role: Role,
    expires: Option<u64>,
) -> Result<Zeroizing<String>, Error> {
    let token = draw()?;
    let access = Access { name, role, expires };
    let key = keys::access(&Digest::of(token.as_bytes()));
    for _ in 0..TRIES {
        if list(store).await?.iter().any(|other| other.name == access.name) {
            return Err(Error::Refused(format!("{} is let in already: withdraw that first", access.name)));
        }
        let commit = Commit::new().if_absent(key.clone()).put(key.clone(), records::text(&access));
        let what = What::Granted { name: access.name.clone(), role };
        if log::write(store, commit, who, what).await?.is_some() {
            return Ok(token);
        }
    }
    Err(busy())
}

/// Lets somebody in who has logged in, for as long as that is good for.
pub(crate) async fn log_in<S: Store>(store: &S, person: Person) -> Result<Zeroizing<String>, Error> {
    let Person { name, role, until } = person;
    let token = draw()?;
    let access = Access { name, role, expires: Some(until) };
    let key = keys::access(&Digest::of(token.as_bytes()));
    for _ in 0..TRIES {
        let commit = Commit::new().if_absent(key.clone()).put(key.clone(), records::text(&access));
        let what = What::LoggedIn { name: access.name.clone(), role, until };
        if log::write(store, commit, access.name.as_str(), what).await?.is_some() {
            forget_expired(store).await;
            return Ok(token);
        }
    }
    Err(busy())
}

/// Ends what somebody has logged in for.
pub(crate) async fn log_out<S: Store>(store: &S, who: &Name, token: &str) -> Result<(), Error> {
    let key = keys::access(&Digest::of(token.as_bytes()));
    for _ in 0..TRIES {
        let Some(entry) = store.get(&key).await? else { return Ok(()) };
        let access: Access = records::read(&entry)?;
        if access.expires.is_none() {
            let why = "this token has no end: `sidestep control token remove` takes it back";
            return Err(Error::Refused(why.to_owned()));
        }
        let commit = Commit::new().if_at(key.clone(), entry.revision).delete(key.clone());
        let what = What::LoggedOut { name: who.clone() };
        if log::write(store, commit, who.as_str(), what).await?.is_some() {
            return Ok(());
        }
    }
    Err(busy())
}

/// Tokens whose time is over are gone.
async fn forget_expired<S: Store>(store: &S) {
    let Ok(listing) = store.list(&keys::accesses()).await else { return };
    let is_over = |entry: &&store::Entry| {
        let access = records::read::<Access>(entry);
        access.is_ok_and(|access| access.expires.is_some_and(|until| until <= now()))
    };
    for entry in listing.entries.iter().filter(is_over).take(AT_ONCE) {
        let commit = Commit::new().if_at(entry.key.clone(), entry.revision).delete(entry.key.clone());
        // The next login tries again.
        let _ = store.commit(&commit).await;
    }
}

/// A token: a secret that is stored nowhere.
fn draw() -> Result<Zeroizing<String>, Error> {
    let secret = Zeroizing::new(records::random::<32>()?);
    Ok(Zeroizing::new(format!("{BEGIN}{}", URL_SAFE_NO_PAD.encode(*secret))))
}

/// Lets somebody in no more.
///
/// # Errors
/// If there is nobody of this name, or the store does not answer.
pub async fn withdraw<S: Store>(store: &S, who: &str, name: &Name) -> Result<(), Error> {
    for _ in 0..TRIES {
        let listing = store.list(&keys::accesses()).await?;
        let is_his =
            |entry: &&store::Entry| records::read::<Access>(entry).is_ok_and(|access| access.name == *name);
        let all: Vec<_> = listing.entries.iter().filter(is_his).take(AT_ONCE).collect();
        if all.is_empty() {
            return Err(Error::Missing(format!("token of {name}")));
        }
        let taken = |commit: Commit, entry: &&store::Entry| {
            commit.if_at(entry.key.clone(), entry.revision).delete(entry.key.clone())
        };
        let commit = all.iter().fold(Commit::new(), taken);
        if log::write(store, commit, who, What::Withdrawn { name: name.clone() }).await?.is_some() {
            return Ok(());
        }
    }
    Err(busy())
}

/// All who are let in.
///
/// # Errors
/// If the store does not answer.
pub async fn list<S: Store>(store: &S) -> Result<Vec<Access>, Error> {
    store.list(&keys::accesses()).await?.entries.iter().map(records::read).collect()
}

/// Who shows this token. It is looked for by its digest, so that how long that takes tells nothing of it.
pub(crate) async fn who<S: Store>(store: &S, token: &str) -> Result<Option<Access>, Error> {
    if !token.starts_with(BEGIN) || token.len() > 128 {
        return Ok(None);
    }
    let entry = store.get(&keys::access(&Digest::of(token.as_bytes()))).await?;
    let access: Option<Access> = entry.as_ref().map(records::read).transpose()?;
    Ok(access.filter(|access| access.expires.is_none_or(|expires| expires > now())))
}
