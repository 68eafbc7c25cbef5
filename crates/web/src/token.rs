//! Who may look: whoever has the token, once, and then the browser that keeps the cookie made of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::error::Error;

/// Octets of randomness in a token.
const STRENGTH: usize = 20;

/// What lets somebody in. It is the same from one start to the next.
#[derive(Clone)]
pub(crate) struct Token {
    token: String,
    /// What the browser keeps: nobody gets the token back from it.
    cookie: String,
    /// The cookie's name: cookies do not tell ports of a host apart, and several pages may be on one.
    name: String,
}

impl Token {
    /// Reads the token from a file, or makes one there that its owner alone can read.
    pub(crate) fn load(path: &Path, port: u16) -> Result<Token, Error> {
        let about = |source| Error::File { path: path.to_owned(), source };
        let token = match File::open(path) {
            Ok(file) => read(path, file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let token = draw()?;
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(about)?;
                file.write_all(format!("{token}\n").as_bytes()).map_err(about)?;
                token
            }
            Err(error) => return Err(about(error)),
        };
        let cookie = hex(&Sha256::digest(format!("sidestep-web cookie {token}")));
        Ok(Token { token, cookie, name: format!("sidestep-{port}") })
    }

    /// The token itself, for the one who starts the page.
    pub(crate) fn reveal(&self) -> &str {
        &self.token
    }

    /// Whether this is it.
    pub(crate) fn is(&self, offered: &str) -> bool {
        same(offered.trim(), &self.token)
    }

    /// Whether a `Cookie` header has the cookie.
    pub(crate) fn is_in(&self, cookies: &str) -> bool {
        let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == self.name && same(value, &self.cookie))
    }

    /// The `Set-Cookie` header. Other sites' pages never send it, and no script reads it.
    pub(crate) fn set_cookie(&self, encrypted: bool) -> String {
        let secure = if encrypted { "; Secure" } else { "" };
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000{secure}", self.name, self.cookie)
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

fn read(path: &Path, file: File) -> Result<String, Error> {
    let about = |source| Error::File { path: path.to_owned(), source };
    let mode = file.metadata().map_err(about)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::Open { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(256).read_to_string(&mut text).map_err(about)?;
    let token = text.trim();
    let is_token = token.len() >= 2 * STRENGTH && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_token { Ok(token.to_owned()) } else { Err(Error::NoToken(path.to_owned())) }
}

fn draw() -> Result<String, Error> {
    let mut random = [0; STRENGTH];
    getrandom::fill(&mut random)
        .map_err(|error| Error::System { what: "randomness", source: io::Error::other(error.to_string()) })?;
    Ok(hex(&random))
}

/// In a time that says nothing of where they differ: what is compared are hashes.
pub(crate) fn same(left: &str, right: &str) -> bool {
    Sha256::digest(left).ct_eq(&Sha256::digest(right)).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_token_is_made_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::load(&path, 8641).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let again = Token::load(&path, 8641).unwrap();
        assert_eq!(token.reveal(), again.reveal());
        assert!(again.is(token.reveal()) && again.is(&format!(" {}\n", token.reveal())));
        for wrong in ["", "0", &token.reveal()[1..], &token.reveal().to_uppercase()] {
            assert!(!again.is(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others_and_is_not_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let token = Token::load(&folder.path().join("token"), 8641).unwrap();
        let set = token.set_cookie(false);
        let cookie = set.split(';').next().unwrap();
        assert!(!set.contains(token.reveal()));
        assert!(token.is_in(cookie));
        assert!(token.is_in(&format!("theme=dark; {cookie};x")));
        let other = Token::load(&folder.path().join("token"), 8642).unwrap();
        assert!(!other.is_in(cookie), "another port's page has another name");
        for wrong in ["", "sidestep-8641", "sidestep-8641=", "sidestep-8641=0", &format!("x{cookie}")] {
            assert!(!token.is_in(wrong), "{wrong}");
        }
        assert!(token.set_cookie(true).ends_with("; Secure"));
    }

    #[test]
    fn a_file_that_others_can_read_or_that_has_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        Token::load(&path, 1).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let said = Token::load(&path, 1).unwrap_err().to_string();
        assert!(said.contains("mode 640") && said.contains("chmod 600"), "{said}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "short\n").unwrap();
        assert!(matches!(Token::load(&path, 1), Err(Error::NoToken(_))));
    }
}
