//! What the page asks of a fleet, and what it makes of the answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::{Folder, FolderError, verified};
use fleet::explain::{Explanation, site_of};
use fleet::fleet::{Fleet, Notices};
use fleet::name::Name;
use fleet::news::{Have, News};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};

use super::audit::Audit;
use super::hearing::{Told, Why, ask_all, said};
use super::known::Known;
use super::shown;

/// How long what was told is good for: several who look at once ask once.
const FRESH: Duration = Duration::from_secs(2);

/// What the page has of a fleet.
pub(crate) struct Desk {
    pub(super) folder: Folder,
    /// Whether somebody asks by himself, who has logged in.
    is_own: bool,
    pub(super) known: Mutex<Option<Arc<Known>>>,
    audit: Mutex<Audit>,
    /// Who changes something does it alone: what is sent for it is large, and what follows from it takes a while.
    pub(super) one: Semaphore,
}

impl Desk {
    /// The fleet that is administered from a folder. `is_own`: with the token of somebody who has logged in.
    pub(super) fn new(folder: Folder, is_own: bool) -> Desk {
        let (known, audit) = (Mutex::default(), Mutex::default());
        Desk { folder, is_own, known, audit, one: Semaphore::new(1) }
    }

    /// Ends the session that this is of, at the controllers.
    pub(super) async fn log_out(&self) -> Result<(), Why> {
        let (_, told) = self.controller().await?;
        told.client.delete("/v1/session").await.map_err(said)
    }

    /// All that is shown of the fleet as a whole.
    pub(crate) async fn overview(&self) -> Result<Value, Why> {
        let known = self.known().await;
        // Of thousands of sites it takes a while, in which others are answered.
        let is_own = self.is_own;
        run(move || Ok(shown::overview(&known, is_own))).await
    }

    /// A site: what it may and has, and how it is met.
    pub(crate) async fn site(&self, name: String) -> Result<Value, Why> {
        let (known, fleet) = self.fleet().await?;
        run(move || {
            let name: Name = name.parse().map_err(|_| "there is no site of this name".to_owned())?;
            shown::site(&known, &fleet, &name).ok_or_else(|| format!("there is no site {name}"))
        })
        .await
    }

    /// Who may reach what: of two sites, or of two addresses.
    pub(crate) async fn explain(&self, from: String, to: String) -> Result<Value, Why> {
        let (_, fleet) = self.fleet().await?;
        run(move || {
            let (from, from_network) = end(&fleet, &from)?;
            let (to, to_network) = end(&fleet, &to)?;
            let explained = Explanation::of(&fleet, &from, &to).ok_or("there is no such site")?;
            let mut value = json!(explained);
            value["passes"] = explained.passes().into();
            value["from"]["in"] = json!(from_network);
            value["to"]["in"] = json!(to_network);
            Ok(value)
        })
        .await
    }

    /// The rules, as people write them.
    pub(crate) async fn rules(&self) -> Result<Value, Why> {
        let (_, fleet) = self.fleet().await?;
        let text = controller::rules::write(fleet.settings().cloned().unwrap_or_default());
        Ok(json!({ "text": text.map_err(|error| error.to_string())?, "serial": fleet.serial() }))
    }

    /// The log's last records, latest first; and whether a head that was noted is in it.
    pub(crate) async fn log(&self, noted: Option<String>) -> Result<Value, Why> {
        let (_, told) = self.controller().await?;
        let mut audit = self.audit.lock().await;
        let fault = audit.catch_up(&told.client).await.err();
        let mut answer = audit.shown();
        answer["fault"] = json!(fault);
        if let Some(noted) = noted {
            answer["noted"] = audit.has(&noted)?.into();
        }
        Ok(answer)
    }

    /// What is known, asked for anew unless that was a moment ago.
    pub(super) async fn known(&self) -> Arc<Known> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.at.elapsed() < FRESH) {
            return Arc::clone(known);
        }
        let new = Arc::new(self.ask(known.as_deref()).await);
        *known = Some(Arc::clone(&new));
        new
    }

    /// The same, where there is a fleet.
    pub(super) async fn fleet(&self) -> Result<(Arc<Known>, Arc<Fleet>), Why> {
        let known = self.known().await;
        match &known.fleet {
            Some(fleet) => Ok((Arc::clone(&known), Arc::clone(fleet))),
            None => Err(known.why_not()),
        }
    }

    /// A controller that has answered just now.
    pub(super) async fn controller(&self) -> Result<(Arc<Known>, Told), Why> {
        let known = self.known().await;
        let told = known.best().cloned().ok_or_else(|| known.why_not())?;
        Ok((known, told))
    }

    /// Asks all controllers.
    async fn ask(&self, before: Option<&Known>) -> Known {
        let known = before.and_then(|before| before.fleet.clone());
        let told = known.as_ref().and_then(|fleet| fleet.settings()).map(|settings| &settings.controllers);
        let places = told.filter(|places| !places.is_empty()).unwrap_or(&self.folder.network.controllers);
        let controllers = ask_all(&self.folder, places).await;
        let mut new = Known {
            at: Instant::now(),
            revision: before.map_or(0, |before| before.revision),
            fleet: known,
            controllers,
            applications: Vec::new(),
            fault: None,
        };
        let Some(best) = new.best().cloned() else {
            new.fault = before.and_then(|before| before.fault.clone());
            return new;
        };
        if new.fleet.is_none() || best.short.revision != new.revision {
            match best.client.get::<News>("/v1/news").await {
                Ok(news) => match self.take(new.fleet.as_deref(), news) {
                    Ok(fleet) => (new.fleet, new.revision) = (Some(Arc::new(fleet)), best.short.revision),
                    Err(why) => new.fault = Some(why),
                },
                Err(error) => new.fault = Some(error.to_string()),
            }
        }
        match best.client.get("/v1/applications").await {
            Ok(applications) => new.applications = applications,
            Err(error) => new.fault = new.fault.or(Some(error.to_string())),
        }
        let serial = new.fleet.as_ref().and_then(|fleet| fleet.serial());
        if new.fault.is_none() && best.short.serial < serial {
            let why = "the controllers tell an older document than they did: what is shown is the newer one";
            new.fault = Some(why.to_owned());
        }
        new
    }

    /// Takes what was told: what is older than what is known, or not signed, is not taken.
    fn take(&self, known: Option<&Fleet>, news: News) -> Result<Fleet, Why> {
        let Some(known) = known else {
            return verified(self.folder.network.network, news).map_err(|error| error.to_string());
        };
        let mut fleet = known.clone();
        match fleet.take(news).refused.first() {
            Some(refusal) => Err(FolderError::NotRight(refusal.to_string()).to_string()),
            None => Ok(fleet),
        }
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Desk")
    }
}

/// What is in force, for a draft.
pub(super) fn in_force(fleet: &Fleet) -> News {
    fleet.all_news(&Have::default(), Notices::All)
}

/// The site that somebody means by its name, or by an address behind it.
fn end(fleet: &Fleet, text: &str) -> Result<(Name, Option<ipnet::IpNet>), Why> {
    let text = text.trim();
    if let Some(name) = text.parse::<Name>().ok().filter(|name| fleet.site(name).is_some()) {
        return Ok((name, None));
    }
    match text.parse() {
        Ok(address) => {
            let found = site_of(fleet, address).ok_or_else(|| format!("{address} is behind no site"))?;
            Ok((found.0, Some(found.1)))
        }
        Err(_) => Err(format!("{text:?} is neither a site nor an address")),
    }
}

/// Computes beside the answers to others.
pub(super) async fn run<T: Send + 'static>(
    what: impl FnOnce() -> Result<T, Why> + Send + 'static,
) -> Result<T, Why> {
    tokio::task::spawn_blocking(what).await.map_err(|error| error.to_string())?
}
