//! Challenges: what a signed question is bound to, so that it is asked once only. Nothing is stored for them: each is the time
//! with a code (HMAC-SHA-256, RFC 2104) that only this process can make.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use tokio::time::Instant;

use crate::error::Error;
use crate::records;

/// How long one is good for: longer than an agent waits for the answer that brings the next.
const GOOD_FOR: Duration = Duration::from_secs(600);

pub(crate) struct Challenges {
    key: hmac::Key,
    begin: Instant,
}

impl Challenges {
    pub(crate) fn new() -> Result<Self, Error> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &records::random::<32>()?);
        Ok(Challenges { key, begin: Instant::now() })
    }

    /// One that is good from now on.
    pub(crate) fn give(&self) -> String {
        self.at(self.begin.elapsed())
    }

    fn at(&self, since: Duration) -> String {
        let time = since.as_secs().to_be_bytes();
        let code = hmac::sign(&self.key, &time);
        URL_SAFE_NO_PAD.encode([time.as_slice(), code.as_ref()].concat())
    }

    /// Whether it was given, and lately.
    pub(crate) fn is_good(&self, text: &str) -> bool {
        self.is_good_at(text, self.begin.elapsed())
    }

    fn is_good_at(&self, text: &str, now: Duration) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(text) else { return false };
        let Some((time, code)) = bytes.split_first_chunk::<8>() else { return false };
        let given = Duration::from_secs(u64::from_be_bytes(*time));
        hmac::verify(&self.key, time, code).is_ok() && now.saturating_sub(given) <= GOOD_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_good_for_a_while_where_it_was_given() {
        let (here, there) = (Challenges::new().unwrap(), Challenges::new().unwrap());
        let given = here.at(Duration::from_secs(5));
        assert!(here.is_good_at(&given, Duration::from_secs(600)));
        assert!(!here.is_good_at(&given, Duration::from_secs(606)));
        assert!(!there.is_good_at(&given, Duration::from_secs(6)));
        for wrong in ["", "AA", "!", &given[1..], &there.give()] {
            assert!(!here.is_good(wrong), "{wrong:?}");
        }
    }
}
