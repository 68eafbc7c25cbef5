//! An invitation: all that a site needs to join, as one string.
//!
//! `sidestep1-` and base64url of a JSON document with four bytes of its SHA-256 behind it. The new site's private key is in it,
//! made by the site that invites: so one string makes both ends right, and whoever reads it can be that site. It is a secret
//! until it was used, and good for a day; `join` of another machine with the same string would contend for the same identity.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// What every invitation begins with; another form has another number.
const BEGIN: &str = "sidestep1-";
const SUM: usize = 4;
/// How long it is good for, in seconds.
pub(super) const GOOD_FOR: u64 = 24 * 3600;

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
    /// As one string.
    pub(super) fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(serde_json::to_vec(self).expect("texts and numbers"));
        let sum = Sha256::digest(&*bytes);
        bytes.extend_from_slice(&sum[..SUM]);
        Zeroizing::new(format!("{BEGIN}{}", URL_SAFE_NO_PAD.encode(&*bytes)))
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

    proptest! {
        #[test]
        fn arbitrary_text(text in ".{0,200}", tail in "[A-Za-z0-9_-]{0,400}") {
            let _ = Invitation::from_text(&text, at(0));
            let _ = Invitation::from_text(&format!("{BEGIN}{tail}"), at(0));
        }
    }
}
