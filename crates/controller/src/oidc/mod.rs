//! People log in at an identity provider (OpenID Connect Core 1.0): authorization code flow with PKCE (RFC 7636).
//!
//! Who begins a login (`sidestep control login`, the page) draws state, nonce and verifier itself, sends the browser to the
//! provider, and takes the answer with the same state. It hands the code to a controller, which redeems it at the provider and
//! verifies the ID token. What comes of it is a token as `control token` makes them, with an end: a role, and nothing that puts
//! anything in force. So a controller keeps nothing between the two, and any of several may be asked.

mod config;
mod https;
mod id_token;

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fleet::key::Digest;
use fleet::name::Name;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::records::{Role, now};
use config::Config;
pub use config::{ConfigError, OIDC};
use https::Https;
use id_token::{Claims, Expected, Keys, Wrong};

/// What the provider says of itself is asked for again after this time.
const FRESH: Duration = Duration::from_secs(3600);
/// Between two questions for keys, where a token is signed by one that is not known.
const AGAIN: Duration = Duration::from_secs(10);

/// A provider.
pub struct Provider {
    config: Config,
    https: Https,
    known: Mutex<Option<Known>>,
}

#[derive(Clone)]
struct Known {
    at: Instant,
    metadata: Metadata,
    keys: Keys,
}

/// OpenID Connect Discovery 1.0, section 3, as far as it is used.
#[derive(Debug, Clone, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// Where a browser is sent to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The provider's page, without a query of ours.
    pub authorization_endpoint: String,
    /// As whom this fleet is known there.
    pub client_id: String,
    /// What is asked for, with spaces.
    pub scope: String,
}

/// What comes back from there, as it is handed to a controller.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Returned {
    /// The code: good once.
    pub code: String,
    /// Whose challenge the browser was sent with (PKCE).
    pub verifier: String,
    /// What the browser was sent with.
    pub nonce: String,
    /// Where the browser came back.
    pub redirect_uri: String,
}

/// Who has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: Name,
    pub(crate) role: Role,
    /// Until when, in seconds of Unix time.
    pub(crate) until: u64,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

/// RFC 6749, section 5.2.
#[derive(Deserialize)]
struct NoTokens {
    error: String,
}

impl Login {
    /// What a browser opens. `challenge`: of the verifier.
    #[must_use]
    pub fn url(&self, redirect_uri: &str, state: &str, nonce: &str, challenge: &str) -> String {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("scope", &self.scope)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("state", state)
            .append_pair("nonce", nonce)
            .append_pair("code_challenge", challenge)
            .append_pair("code_challenge_method", "S256")
            .finish();
        let separator = if self.authorization_endpoint.contains('?') { '&' } else { '?' };
        format!("{}{separator}{query}", self.authorization_endpoint)
    }
}

/// The challenge of a verifier (RFC 7636, section 4.2).
#[must_use]
pub fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Digest::of(verifier.as_bytes()).as_bytes())
}

/// Something that nobody guesses: a state, a nonce, a verifier.
///
/// # Errors
/// If the kernel has no randomness.
pub fn draw() -> Result<String, Error> {
    Ok(URL_SAFE_NO_PAD.encode(crate::records::random::<32>()?))
}

impl Provider {
    /// The provider that a folder has, if it has one.
    ///
    /// # Errors
    /// If the file is there, and is wrong.
    pub fn of_folder(folder: &Path) -> Result<Option<Self>, ConfigError> {
        let Some(config) = Config::of_folder(folder)? else { return Ok(None) };
        let https =
            Https::new(config.roots.clone()).map_err(|why| ConfigError::new(&folder.join(OIDC), why))?;
        Ok(Some(Provider { config, https, known: Mutex::default() }))
    }

    /// Where a browser is sent to.
    pub(crate) async fn login(&self) -> Result<Login, Error> {
        let known = self.known(FRESH).await?;
        Ok(Login {
            authorization_endpoint: known.metadata.authorization_endpoint,
            client_id: self.config.client_id.clone(),
            scope: self.config.scopes.join(" "),
        })
    }

    /// Who comes with a code.
    pub(crate) async fn redeem(&self, returned: &Returned) -> Result<Person, Error> {
        if !self.config.allows_redirect(&returned.redirect_uri) {
            let why = format!("{:?} is none of the redirects in {OIDC}", returned.redirect_uri);
            return Err(Error::Refused(why));
        }
        let known = self.known(FRESH).await?;
        let token = self.exchange(&known.metadata, returned).await?;
        let expected = Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            nonce: &returned.nonce,
            now: now(),
        };
        let claims = match id_token::verify(&token, &known.keys, &expected) {
            // Keys are changed now and then.
            Err(Wrong::Key) => id_token::verify(&token, &self.known(AGAIN).await?.keys, &expected),
            other => other,
        };
        let claims = claims.map_err(|wrong| Error::Refused(format!("the ID token is refused: {wrong}")))?;
        self.person(&claims)
    }

    fn person(&self, claims: &Claims) -> Result<Person, Error> {
        let called = claims.called();
        let role = self.config.role(claims);
        let role =
            role.ok_or_else(|| Error::Refused(format!("{called} has logged in, and may nothing here")))?;
        let name = name_of(&called, &self.config.issuer, &claims.sub)?;
        Ok(Person { name, role, until: now() + self.config.session_s })
    }

    async fn exchange(&self, metadata: &Metadata, returned: &Returned) -> Result<String, Error> {
        let (body, basic) = self.form(metadata, returned);
        let (status, text) = self.https.post(&metadata.token_endpoint, &body, basic.as_deref()).await?;
        if !status.is_success() {
            let error =
                serde_json::from_slice::<NoTokens>(&text).map_or_else(|_| status.to_string(), |no| no.error);
            let error: String = error.chars().filter(|c| !c.is_control()).take(100).collect();
            return Err(Error::Refused(format!("the identity provider refuses the code: {error}")));
        }
        let tokens: Tokens = serde_json::from_slice(&text)
            .map_err(|_| Error::Refused("the identity provider has told no ID token".to_owned()))?;
        Ok(tokens.id_token)
    }

    /// What is sent for a code, and how the client says who it is, if by a field.
    fn form(
        &self,
        metadata: &Metadata,
        returned: &Returned,
    ) -> (Zeroizing<String>, Option<Zeroizing<String>>) {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", &returned.code)
            .append_pair("redirect_uri", &returned.redirect_uri)
            .append_pair("code_verifier", &returned.verifier);
        let supported = &metadata.token_endpoint_auth_methods_supported;
        let is_basic = supported.is_empty() || supported.iter().any(|method| method == "client_secret_basic");
        let mut basic = None;
        match &self.config.secret {
            Some(secret) if is_basic => {
                // RFC 6749, section 2.3.1.
                let encode =
                    |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = Zeroizing::new(format!("{}:{}", encode(&self.config.client_id), encode(secret)));
                basic = Some(Zeroizing::new(format!("Basic {}", STANDARD.encode(&*pair))));
            }
            Some(secret) => {
                form.append_pair("client_id", &self.config.client_id).append_pair("client_secret", secret);
            }
            None => {
                form.append_pair("client_id", &self.config.client_id);
            }
        }
        (Zeroizing::new(form.finish()), basic)
    }

    /// What the provider says of itself, not older than this.
    async fn known(&self, oldest: Duration) -> Result<Known, Error> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.at.elapsed() < oldest) {
            return Ok(known.clone());
        }
        let issuer = self.config.issuer.trim_end_matches('/');
        let metadata: Metadata =
            self.https.get(&format!("{issuer}/.well-known/openid-configuration")).await?;
        if metadata.issuer != self.config.issuer {
            let why = format!("the identity provider says that it is {:?}", metadata.issuer);
            return Err(Error::Broken(why));
        }
        let keys = self.https.get(&metadata.jwks_uri).await?;
        let new = Known { at: Instant::now(), metadata, keys };
        *known = Some(new.clone());
        Ok(new)
    }
}

/// What somebody is called in the log: what is readable of it, and what tells apart who are called alike.
fn name_of(called: &str, issuer: &str, subject: &str) -> Result<Name, Error> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let readable: String = called.chars().take(40).map(plain).collect();
    let mark = Digest::of(format!("{issuer} {subject}").as_bytes()).hex();
    let name = format!("{}-{}", readable.trim_start_matches('.'), &mark[..12]);
    name.parse().map_err(|_| Error::Refused(format!("{called:?} cannot be a name")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_readable_and_only_ones_own() {
        let of = |called, subject| name_of(called, "https://a.example", subject).unwrap().to_string();
        assert!(of("ada@example.net", "1").starts_with("ada_example.net-"));
        assert_ne!(of("ada@example.net", "1"), of("ada_example.net", "2"));
        assert_eq!(of("ada", "1"), of("ada", "1"));
        assert!(of("..<b>\n", "1").starts_with("_b__-"));
        of("", "1");
        of(&"ä".repeat(500), "1");
    }

    #[test]
    fn the_browser_is_sent_with_all_that_binds_the_answer() {
        let login = Login {
            authorization_endpoint: "https://a.example/authorize?tenant=1".into(),
            client_id: "side step".into(),
            scope: "openid email".into(),
        };
        let url = login.url("http://127.0.0.1:9/", "s", "n", &challenge("v"));
        assert!(
            url.starts_with("https://a.example/authorize?tenant=1&response_type=code&client_id=side+step")
        );
        for part in
            ["state=s", "nonce=n", "code_challenge_method=S256", "redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2F"]
        {
            assert!(url.contains(part), "{part}");
        }
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
