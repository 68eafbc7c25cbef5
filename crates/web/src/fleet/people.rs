//! Who asks the controllers: the page, with what its folder has; or somebody by himself, who has logged in at the identity
//! provider of the controllers. A session is in memory alone, as long as its token is good, and of use only to a browser that
//! has shown the page's token, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use controller::oidc::{Login, Returned, challenge, draw};
use controller::{Folder, FolderError, Session, now};

use super::desk::Desk;
use super::hearing::{Why, ask_first};
use crate::token::same;

/// Where a browser comes back from the provider.
pub(crate) const CALLBACK: &str = "/fleet/callback";
/// How long somebody may take to log in.
const LOGIN_TIME: Duration = Duration::from_secs(600);
/// Logins and sessions at the most: the oldest make room.
const MOST: usize = 32;

/// Those who ask.
pub(crate) struct People {
    folder: Folder,
    /// What is asked with what the folder has.
    shared: Arc<Desk>,
    /// What the cookies' names end with: cookies do not tell ports apart.
    port: u16,
    encrypted: bool,
    there: Mutex<There>,
}

#[derive(Default)]
struct There {
    logins: Vec<Begun>,
    sessions: Vec<Open>,
}

/// A login of which the answer has not come.
struct Begun {
    cookie: String,
    state: String,
    nonce: String,
    verifier: String,
    redirect_uri: String,
    at: Instant,
}

/// Somebody who has logged in.
struct Open {
    cookie: String,
    desk: Arc<Desk>,
    /// Seconds of Unix time.
    until: u64,
}

impl People {
    /// Those who ask about the fleet that is administered from a folder.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn open(folder: &std::path::Path, port: u16, encrypted: bool) -> Result<People, FolderError> {
        let folder = Folder::read(folder)?;
        let shared = Arc::new(Desk::new(folder.clone(), false));
        Ok(People { folder, shared, port, encrypted, there: Mutex::default() })
    }

    /// What somebody asks who sends these cookies.
    pub(crate) fn desk(&self, cookies: &str) -> Arc<Desk> {
        let mut there = self.there();
        there.sessions.retain(|session| session.until > now());
        let cookie = self.cookie(cookies, "session");
        let own = cookie.and_then(|value| there.sessions.iter().find(|session| same(value, &session.cookie)));
        own.map_or_else(|| Arc::clone(&self.shared), |session| Arc::clone(&session.desk))
    }

    /// Begins a login: where the browser goes, and the cookie that it keeps for when it comes back.
    pub(crate) async fn begin(&self, origin: &str) -> Result<(String, String), Why> {
        let login: Login = ask_first(&self.folder, "/v1/login", None::<&Returned>).await?;
        let draw = || draw().map_err(|error| error.to_string());
        let begun = Begun {
            cookie: draw()?,
            state: draw()?,
            nonce: draw()?,
            verifier: draw()?,
            redirect_uri: format!("{origin}{CALLBACK}"),
            at: Instant::now(),
        };
        let url = login.url(&begun.redirect_uri, &begun.state, &begun.nonce, &challenge(&begun.verifier));
        // The provider's answer comes from another site: with a strict one it would come without.
        let cookie = self.set("login", &begun.cookie, "/fleet/", "Lax", LOGIN_TIME.as_secs());
        let mut there = self.there();
        there.logins.retain(|login| login.at.elapsed() < LOGIN_TIME);
        push(&mut there.logins, begun);
        Ok((url, cookie))
    }

    /// The browser is back: the cookie of who has logged in.
    pub(crate) async fn finish(&self, cookies: &str, state: &str, code: &str) -> Result<String, Why> {
        let begun = self.take(cookies, state).ok_or("this is no answer to a login that was begun here")?;
        let (nonce, verifier, redirect_uri) = (begun.nonce, begun.verifier, begun.redirect_uri);
        let returned = Returned { code: code.to_owned(), verifier, nonce, redirect_uri };
        let session: Session = ask_first(&self.folder, "/v1/session", Some(&returned)).await?;
        let desk = Arc::new(Desk::new(self.folder.with_token(session.token), true));
        let cookie = draw().map_err(|error| error.to_string())?;
        let for_s = session.expires.saturating_sub(now());
        let set = self.set("session", &cookie, "/", "Strict", for_s);
        push(&mut self.there().sessions, Open { cookie, desk, until: session.expires });
        Ok(set)
    }

    /// Ends the session of who sends these cookies, here and at the controllers.
    pub(crate) async fn log_out(&self, cookies: &str) -> Result<(), Why> {
        let desk = {
            let mut there = self.there();
            let cookie = self.cookie(cookies, "session").ok_or("nobody has logged in")?;
            let at = there.sessions.iter().position(|session| same(cookie, &session.cookie));
            there.sessions.remove(at.ok_or("nobody has logged in")?).desk
        };
        desk.log_out().await
    }

    /// The login that these cookies and this state are of: there is one answer to it.
    fn take(&self, cookies: &str, state: &str) -> Option<Begun> {
        let cookie = self.cookie(cookies, "login")?;
        let mut there = self.there();
        there.logins.retain(|login| login.at.elapsed() < LOGIN_TIME);
        let is_it = |login: &Begun| same(cookie, &login.cookie) && same(state, &login.state);
        let at = there.logins.iter().position(is_it)?;
        Some(there.logins.remove(at))
    }

    fn cookie<'c>(&self, cookies: &'c str, what: &str) -> Option<&'c str> {
        let name = format!("sidestep-fleet-{what}-{}", self.port);
        let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn set(&self, what: &str, value: &str, path: &str, same_site: &str, seconds: u64) -> String {
        let secure = if self.encrypted { "; Secure" } else { "" };
        let name = format!("sidestep-fleet-{what}-{}", self.port);
        format!("{name}={value}; Path={path}; HttpOnly; SameSite={same_site}; Max-Age={seconds}{secure}")
    }

    fn there(&self) -> MutexGuard<'_, There> {
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for People {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("People")
    }
}

/// Adds one; the oldest makes room.
fn push<T>(list: &mut Vec<T>, one: T) {
    if list.len() >= MOST {
        list.remove(0);
    }
    list.push(one);
}
