//! Whose turn it is, of the two gateways of a site: a register for each, that only the site itself can fill.
//!
//! It is read from the store and replaced there under the condition that nobody else has; nothing is decided here, no time counts,
//! and as long as nothing happens nothing is written. What a site puts is signed by it, and its number does not go back: so who has
//! taken a controller over can keep a gateway from its turn, and can make none.

use std::time::Duration;

use fleet::name::Name;
use fleet::signed::Signed;
use fleet::standby::{Registered, Turn, Wish};
use store::{Commit, CommitError, Entry, Store};
use tokio::time::Instant;

use crate::controller::Controller;
use crate::error::Error;
use crate::{keys, records};

impl<S: Store> Controller<S> {
    /// Fulfils the wish of a site that has two gateways. One that only wants to see is answered as soon as there is another
    /// version than the one that it knows, and after `wait` at the latest.
    ///
    /// # Errors
    /// If it is no such site, what it puts is not its own or goes back, or the store does not answer.
    pub async fn turn(&self, who: &Name, wish: Wish, wait: Duration) -> Result<Registered, Error> {
        self.stands_by(who)?;
        match wish {
            Wish::See { known } => self.see_turn(who, known, wait).await,
            Wish::Put { at, turn } => self.put_turn(who, at, turn).await,
        }
    }

    fn stands_by(&self, who: &Name) -> Result<(), Error> {
        let desk = self.desk();
        match desk.fleet().site(who) {
            Some(site) if site.member.standby.is_some() => Ok(()),
            _ => Err(Error::Refused(format!(
                "site {who} has one gateway: administrators say that it has two (`control invite --standby`)"
            ))),
        }
    }

    async fn see_turn(&self, who: &Name, known: u64, wait: Duration) -> Result<Registered, Error> {
        let until = Instant::now() + wait;
        let mut followed = self.followed();
        loop {
            // A change after this is read below, or noted after it.
            let mark = self.turns().mark(who);
            let registered = registered(self.store().get(&keys::turn(who)).await?)?;
            if registered.version != known {
                return Ok(registered);
            }
            while self.turns().mark(who) == mark {
                let Ok(Ok(())) = tokio::time::timeout_at(until, followed.changed()).await else {
                    return Ok(registered);
                };
            }
        }
    }

    async fn put_turn(&self, who: &Name, at: u64, signed: Signed<Turn>) -> Result<Registered, Error> {
        let refused = |why: &str| Error::Refused(why.to_owned());
        let turn = signed.read().map_err(|error| Error::Refused(error.to_string()))?;
        {
            let desk = self.desk();
            let fleet = desk.fleet();
            let identity = fleet.site(who).map(|site| site.member.identity);
            if turn.site != *who
                || turn.network != fleet.network()
                || !identity.is_some_and(|identity| signed.is_signed_by(identity))
            {
                return Err(refused("a turn is signed by the site that has it"));
            }
        }
        let entry = self.store().get(&keys::turn(who)).await?;
        let before = registered(entry.clone())?;
        if before.version != at {
            return Ok(before);
        }
        let last = before.turn.and_then(|signed| signed.read().ok()).map_or(0, |turn| turn.turn);
        if turn.turn < last {
            return Err(refused("turns do not go back"));
        }
        let key = keys::turn(who);
        let commit = match entry {
            Some(entry) => Commit::new().if_at(key.clone(), entry.revision),
            None => Commit::new().if_absent(key.clone()),
        };
        match self.store().commit(&commit.put(key.clone(), records::text(&signed))).await {
            Ok(revision) => Ok(Registered { version: revision.number(), turn: Some(signed) }),
            Err(CommitError::Conflict) => registered(self.store().get(&key).await?),
            Err(error) => Err(error.into()),
        }
    }
}

fn registered(entry: Option<Entry>) -> Result<Registered, Error> {
    let Some(entry) = entry else { return Ok(Registered { version: 0, turn: None }) };
    Ok(Registered { version: entry.revision.number(), turn: Some(records::read(&entry)?) })
}
