//! `oidc.toml`: which provider, as whom, and who may what.

use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::Value;
use zeroize::Zeroizing;

use super::id_token::Claims;
use crate::folder::read_secret;
use crate::records::Role;

/// The file of a controller's folder that says which provider.
pub const OIDC: &str = "oidc.toml";

/// The file is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct ConfigError {
    path: PathBuf,
    why: String,
}

impl ConfigError {
    pub(super) fn new(path: &Path, why: impl ToString) -> Self {
        ConfigError { path: path.to_owned(), why: why.to_string() }
    }
}

/// What it says, with what is in the files that it names.
pub(super) struct Config {
    pub(super) issuer: String,
    pub(super) client_id: String,
    pub(super) secret: Option<Zeroizing<String>>,
    /// Who may sign the provider's certificate; without, whom this machine trusts.
    pub(super) roots: Option<Vec<CertificateDer<'static>>>,
    pub(super) scopes: Vec<String>,
    /// How long somebody is let in, in seconds.
    pub(super) session_s: u64,
    redirects: Vec<String>,
    roles: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    issuer: String,
    client_id: String,
    #[serde(default)]
    client_secret_file: Option<PathBuf>,
    #[serde(default)]
    ca: Option<PathBuf>,
    #[serde(default = "usual_scopes")]
    scopes: Vec<String>,
    #[serde(default = "usual_session")]
    session_minutes: u64,
    #[serde(default)]
    redirects: Vec<String>,
    #[serde(default, rename = "role")]
    roles: Vec<Rule>,
}

/// Who has a role: those of whom a claim has a value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    role: Role,
    claim: String,
    value: String,
}

fn usual_scopes() -> Vec<String> {
    ["openid", "email", "profile"].map(str::to_owned).to_vec()
}

fn usual_session() -> u64 {
    60
}

impl Config {
    pub(super) fn of_folder(folder: &Path) -> Result<Option<Self>, ConfigError> {
        let path = folder.join(OIDC);
        match std::fs::read_to_string(&path) {
            Ok(text) => Config::parse(folder, &text).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ConfigError::new(&path, error)),
        }
    }

    fn parse(folder: &Path, text: &str) -> Result<Self, ConfigError> {
        let path = folder.join(OIDC);
        let wrong = |why: &str| ConfigError::new(&path, why);
        let file: File = toml::from_str(text).map_err(|error| ConfigError::new(&path, error))?;
        if !file.issuer.starts_with("https://") {
            return Err(wrong("issuer: an https:// address is needed: who stood between could be anybody"));
        }
        if !file.scopes.iter().any(|scope| scope == "openid") {
            return Err(wrong("scopes: without \"openid\" a provider tells nobody's identity"));
        }
        if !(1..=24 * 60).contains(&file.session_minutes) {
            return Err(wrong("session_minutes: from 1 to 1440"));
        }
        if file.roles.is_empty() {
            return Err(wrong("without a [[role]] nobody may anything"));
        }
        let secret = file.client_secret_file.map(|name| {
            let path = folder.join(name);
            read_secret(&path).map_err(|error| ConfigError::new(&path, error))
        });
        let roots = file.ca.map(|name| {
            let path = folder.join(name);
            let all = CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            all.map_err(|error| ConfigError::new(&path, error))
        });
        Ok(Config {
            issuer: file.issuer,
            client_id: file.client_id,
            secret: secret.transpose()?,
            roots: roots.transpose()?,
            scopes: file.scopes,
            session_s: file.session_minutes * 60,
            redirects: file.redirects,
            roles: file.roles,
        })
    }

    /// Whether a browser may come back there: at a program of the same machine (RFC 8252, section 7.3), or where the file says.
    pub(super) fn allows_redirect(&self, uri: &str) -> bool {
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
        let loopback =
            ["http://127.0.0.1:", "http://[::1]:"].iter().find_map(|begin| uri.strip_prefix(begin));
        let is_ours = loopback.and_then(|rest| rest.strip_suffix("/login")).is_some_and(is_port);
        is_ours || self.redirects.iter().any(|one| one == uri)
    }

    /// The highest role that somebody has.
    pub(super) fn role(&self, claims: &Claims) -> Option<Role> {
        self.roles.iter().filter(|rule| rule.fits(claims)).map(|rule| rule.role).max()
    }
}

impl Rule {
    fn fits(&self, claims: &Claims) -> bool {
        // What a provider has not verified anybody can say of himself.
        if self.claim == "email" && claims.other.get("email_verified") != Some(&Value::Bool(true)) {
            return false;
        }
        match claims.other.get(&self.claim) {
            Some(Value::String(text)) => *text == self.value,
            Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(self.value.as_str())),
            _ => self.claim == "sub" && claims.sub == self.value,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = r#"
issuer = "https://login.example.net"
client_id = "sidestep"
redirects = ["https://page.example.net/fleet/callback"]
role = [
    { role = "viewer", claim = "groups", value = "netops" },
    { role = "publisher", claim = "email", value = "ada@example.net" },
    { role = "inviter", claim = "sub", value = "7" },
]
"#;

    fn config() -> Config {
        Config::parse(Path::new("/nowhere"), FILE).unwrap()
    }

    fn role(claims: Value) -> Option<Role> {
        config().role(&serde_json::from_value(claims).unwrap())
    }

    #[test]
    fn claims_give_the_highest_role_and_an_unverified_address_gives_none() {
        let claims = |more: Value| {
            let mut all = json!({ "iss": "i", "sub": "1", "aud": "a", "exp": 1 });
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            all
        };
        assert_eq!(role(claims(json!({}))), None);
        assert_eq!(role(claims(json!({ "groups": ["x", "netops"] }))), Some(Role::Viewer));
        assert_eq!(role(claims(json!({ "groups": "netops" }))), Some(Role::Viewer));
        assert_eq!(role(claims(json!({ "groups": "netops, more" }))), None);
        let mail = json!({ "email": "ada@example.net", "email_verified": true, "groups": ["netops"] });
        assert_eq!(role(claims(mail)), Some(Role::Publisher));
        assert_eq!(role(claims(json!({ "email": "ada@example.net", "email_verified": "true" }))), None);
        assert_eq!(role(claims(json!({ "email": "ada@example.net" }))), None);
        assert_eq!(role(claims(json!({ "sub": "7" }))), Some(Role::Inviter));
    }

    #[test]
    fn a_browser_comes_back_to_this_machine_or_where_it_is_said() {
        let config = config();
        for good in
            ["http://127.0.0.1:4711/login", "http://[::1]:1/login", "https://page.example.net/fleet/callback"]
        {
            assert!(config.allows_redirect(good), "{good}");
        }
        for wrong in [
            "",
            "http://127.0.0.1:4711/login?x",
            "http://127.0.0.1:1@evil.example/login",
            "http://127.0.0.1:/login",
            "http://localhost:1/login",
            "https://page.example.net/fleet/callback/",
            "https://page.example.net.evil.example/fleet/callback",
        ] {
            assert!(!config.allows_redirect(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_key() {
        for (from, to, why) in [
            ("https://login", "http://login", "issuer"),
            ("client_id", "client", "client"),
            ("redirects", "scopes", "openid"),
            ("redirects = [\"https://page.example.net/fleet/callback\"]", "session_minutes = 0", "1440"),
            ("\"viewer\"", "\"root\"", "root"),
        ] {
            let told =
                Config::parse(Path::new("/nowhere"), &FILE.replacen(from, to, 1)).err().unwrap().to_string();
            assert!(told.contains(why) && told.contains(OIDC), "{told}");
        }
    }
}
