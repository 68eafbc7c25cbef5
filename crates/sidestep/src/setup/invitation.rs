//! An invitation: all that a site needs to join, as one string.
//!
//! `sidestep1-` and base64url of a JSON document with four bytes of its SHA-256 behind it. The new site's private key is in it,
//! made by the site that invites: so one string makes both ends right, and whoever reads it can be that site. It is a secret
//! until it was used, and good for a day; `join` of another machine with the same string would contend for the same identity.

use std::io::{self, BufRead};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::files::Gateway;
use crate::failure::Failure;
use crate::peer::{self, AddOptions, FileOption};

/// What every invitation begins with; another form has another number.
const BEGIN: &str = "sidestep1-";
const SUM: usize = 4;
/// What is read of a text that has one, in bytes.
const LONGEST: u64 = 64 * 1024;
/// How long it is good for, in seconds.
pub(super) const GOOD_FOR: u64 = 24 * 3600;
/// What most sites want: firewalls on the path forget after 30 s at the least, and a peer that is gone shows within five.
pub(super) const KEEPALIVE: &str = "25s";

/// What the new site needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Invitation {
    /// The new site's name.
    pub(super) name: String,
    /// Its private key.
    pub(super) key: Zeroizing<String>,
    /// Where it hops.
    pub(super) hop_prefix: Ipv6Net,
    /// The networks behind it.
    pub(super) networks: Vec<IpNet>,
    /// The name of the site that invites, as the new one calls it.
    pub(super) peer: String,
    /// Its public key.
    pub(super) peer_key: String,
    /// Where it hops.
    pub(super) peer_hop_prefix: Ipv6Net,
    /// The networks behind it.
    pub(super) peer_networks: Vec<IpNet>,
    /// When it is no longer good, in seconds of Unix time.
    pub(super) expires: u64,
}

/// Why a string is no invitation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// It is something else.
    #[error("this is no invitation: one begins with {BEGIN}, and `sidestep invite` prints it")]
    Other,
    /// A part is missing or changed.
    #[error("this invitation is not complete, or was changed on its way: copy all of it")]
    Damaged,
    /// It is of a later program.
    #[error("this invitation is of another version of sidestep")]
    Version,
    /// It is too old.
    #[error(
        "this invitation is older than a day: have it made anew (`sidestep peer remove` there, then `sidestep invite`)"
    )]
    Expired,
}

impl Invitation {
    /// The site that invites, as a peer in the new one's configuration.
    pub(super) fn peer_here(&self, file: &Path) -> AddOptions {
        AddOptions {
            name: self.peer.clone(),
            public_key: self.peer_key.clone(),
            hop_prefix: self.peer_hop_prefix,
            allowed: self.peer_networks.clone(),
            keepalive: Some(KEEPALIVE.to_owned()),
            preshared_key_file: None,
            file: FileOption { config: Some(file.to_owned()) },
        }
    }

    /// Refuses one that leads to no valid configuration at the new site, wherever that is.
    pub(super) fn try_out(&self) -> Result<(), Failure> {
        let gateway = Gateway {
            tunnel: "mt6d0",
            external: "eth0",
            hop_prefix: self.hop_prefix,
            on_link: false,
            addresses: &[],
            private_key: &self.key,
            fleet: None,
        };
        let file = Path::new("what would be written there");
        let text = gateway.text() + &peer::text(&self.peer_here(file));
        let key = |_: &Path| Ok(Zeroizing::new(self.key.as_bytes().to_vec()));
        match config::parse(&text, file, &key) {
            Ok(_) => Ok(()),
            Err(report) => {
                let why = format!("{} could not join: nothing is added", self.name);
                Err(Failure::Report(report, why))
            }
        }
    }

    /// As one string.
    pub(super) fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(serde_json::to_vec(self).expect("texts and numbers"));
        let sum = Sha256::digest(&*bytes);
        bytes.extend_from_slice(&sum[..SUM]);
        Zeroizing::new(format!("{BEGIN}{}", URL_SAFE_NO_PAD.encode(&*bytes)))
    }

    /// Reads one out of what `invite` has written, or a mail: the word that it begins with and what is after that, over line
    /// breaks that have come into it, until it is complete or a line is empty. What is typed on a terminal also ends by an
    /// empty line before it.
    pub(super) fn read(
        input: impl BufRead,
        is_typed: bool,
        now: SystemTime,
    ) -> io::Result<Result<Self, Refusal>> {
        let mut input = input.take(LONGEST);
        let mut found = Zeroizing::new(String::new());
        loop {
            let mut bytes = Zeroizing::new(Vec::new());
            let is_end = input.read_until(b'\n', &mut bytes)? == 0;
            let line = String::from_utf8_lossy(&bytes);
            let has_begun = !found.is_empty();
            match line.split_whitespace().find(|word| is_begin(word)) {
                _ if has_begun => *found += &line,
                Some(word) => *found += word,
                None => {}
            }
            let read = Self::from_text(&found, now);
            let is_complete = !matches!(read, Err(Refusal::Other | Refusal::Damaged));
            let is_gap = line.trim().is_empty() && (has_begun || is_typed);
            if is_end || is_gap || is_complete {
                return Ok(read);
            }
        }
    }

    /// Reads one, whatever white space has come into it.
    pub(super) fn from_text(text: &str, now: SystemTime) -> Result<Self, Refusal> {
        let text = Zeroizing::new(text.split_whitespace().collect::<String>());
        let Some(encoded) = text.strip_prefix(BEGIN) else {
            let later = text.strip_prefix("sidestep").is_some_and(|rest| rest.contains('-'));
            return Err(if later { Refusal::Version } else { Refusal::Other });
        };
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(encoded).map_err(|_| Refusal::Damaged)?);
        let (document, sum) = bytes.split_last_chunk::<SUM>().ok_or(Refusal::Damaged)?;
        if Sha256::digest(document)[..SUM] != *sum {
            return Err(Refusal::Damaged);
        }
        let invitation: Invitation = serde_json::from_slice(document).map_err(|_| Refusal::Version)?;
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if now > invitation.expires { Err(Refusal::Expired) } else { Ok(invitation) }
    }
}

/// Whether a word is the beginning of an invitation, perhaps of another version.
fn is_begin(word: &str) -> bool {
    let rest = word.strip_prefix("sidestep").unwrap_or_default();
    let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    after.len() < rest.len() && after.starts_with('-')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            name: "site-b".to_owned(),
            key: Zeroizing::new("yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=".to_owned()),
            hop_prefix: "2001:db8:b1::/64".parse().unwrap(),
            networks: vec!["2001:db8:b::/64".parse().unwrap(), "10.0.2.0/24".parse().unwrap()],
            peer: "site-a".to_owned(),
            peer_key: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=".to_owned(),
            peer_hop_prefix: "2001:db8:a1::/64".parse().unwrap(),
            peer_networks: vec!["2001:db8:a::/64".parse().unwrap()],
            expires: 1_000_000,
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn it_comes_back_as_it_was_also_in_lines() {
        let text = invitation().to_text();
        assert_eq!(Invitation::from_text(&text, at(999_999)), Ok(invitation()));
        let (one, two) = text.split_at(60);
        assert_eq!(Invitation::from_text(&format!(" {one}\n  {two}\n"), at(0)), Ok(invitation()));
    }

    #[test]
    fn what_is_old_damaged_or_something_else_is_told_apart() {
        let text = invitation().to_text();
        let of = |text: &str| Invitation::from_text(text, at(5)).unwrap_err();
        assert_eq!(Invitation::from_text(&text, at(1_000_001)), Err(Refusal::Expired));
        assert_eq!(of(&text[..text.len() - 8]), Refusal::Damaged);
        assert_eq!(of(&text.replacen("eyJ", "eyK", 1)), Refusal::Damaged);
        assert_eq!(of(&text.replace("sidestep1-", "sidestep2-")), Refusal::Version);
        assert_eq!(of("hello"), Refusal::Other);
        assert_eq!(of(""), Refusal::Other);
    }

    #[test]
    fn it_is_read_out_of_what_is_around_it() {
        let text = invitation().to_text();
        let read = |around: &str, is_typed| {
            let mut input = around.as_bytes();
            let read = Invitation::read(&mut input, is_typed, at(5)).unwrap();
            (read, String::from_utf8(input.to_vec()).unwrap())
        };
        let found = || Ok(invitation());
        // As `invite` writes it, in one line with the command, and broken by a mail's program.
        let before = "sidestep2.d/site-b.toml: site-b is added\n\nRun this:\n\n    sidestep join -\n\n";
        let (one, two) = text.split_at(76);
        for of in [text.to_string(), format!("sidestep join {}", *text), format!("{one}\n{two}")] {
            for after in ["", "\n", "\n\nRegards\n"] {
                assert_eq!(read(&format!("{before}{of}{after}"), false).0, found(), "{of}{after}");
            }
        }
        // Typed, it ends with Enter; what comes after that is for the shell.
        assert_eq!(read(&format!("{}\nls\n", *text), true), (found(), "ls\n".to_owned()));
        assert_eq!(read(&format!("{one}\n{two}\nls\n"), true), (found(), "ls\n".to_owned()));
        assert_eq!(read("\nls\n", true), (Err(Refusal::Other), "ls\n".to_owned()));
        // What is not complete ends at an empty line, and with the input.
        let cut = &text[..text.len() - 9];
        assert_eq!(read(&format!("{cut}\n\nls\n"), true), (Err(Refusal::Damaged), "ls\n".to_owned()));
        assert_eq!(read(&format!("{before}{cut}\nRegards\n"), false).0, Err(Refusal::Damaged));
        assert_eq!(read(before, false).0, Err(Refusal::Other));
        assert_eq!(read("sidestep2-abc\n", false).0, Err(Refusal::Version));
        let endless = Invitation::read(io::BufReader::new(io::repeat(b'x')), false, at(5));
        assert_eq!(endless.unwrap(), Err(Refusal::Other));
    }

    proptest! {
        #[test]
        fn arbitrary_text(text in ".{0,200}", tail in "[A-Za-z0-9_-]{0,400}") {
            let _ = Invitation::from_text(&text, at(0));
            let _ = Invitation::read(format!("{text}\n{BEGIN}{tail}").as_bytes(), false, at(0));
            let _ = Invitation::from_text(&format!("{BEGIN}{tail}"), at(0));
        }
    }
}
