//! What is told of those who fail to prove who they are: a line from time to time, however many they are and whatever they
//! call themselves.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ike::message::body::Identity;

/// A line in so long a time at most.
const EVERY: Duration = Duration::from_secs(10);
/// A claimed identity is cut off after so many characters, and one of bytes after half as many.
const SHOWN: usize = 64;

/// Who was told of last.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    next: Option<Instant>,
    untold: u64,
}

impl Strangers {
    /// What is to be told of one more, if it is time.
    pub(super) fn tell(
        &mut self,
        remote: SocketAddr,
        claimed: Option<&Identity>,
        now: Instant,
    ) -> Option<String> {
        if self.next.is_some_and(|next| now < next) {
            self.untold = self.untold.saturating_add(1);
            return None;
        }
        self.next = Some(now + EVERY);
        let who = claimed.map_or_else(|| "somebody".to_owned(), shown);
        let others = match std::mem::take(&mut self.untold) {
            0 => String::new(),
            count => format!("; {count} more since the last such line"),
        };
        Some(format!("{who} at {remote} has not proved to be who it says it is{others}"))
    }
}

/// An identity that a stranger has made up, safe to print: in one line, of no great length.
fn shown(identity: &Identity) -> String {
    let (text, is_whole) = match identity {
        Identity::Address(address) => return address.to_string(),
        Identity::Fqdn(name) | Identity::Email(name) => {
            let shown: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
            (shown, name.chars().nth(SHOWN).is_none())
        }
        Identity::DistinguishedName(bytes) | Identity::KeyId(bytes) => {
            let shown = bytes.iter().take(SHOWN / 2).map(|byte| format!("{byte:02x}")).collect();
            (shown, bytes.len() <= SHOWN / 2)
        }
    };
    if is_whole { format!("\"{text}\"") } else { format!("\"{text}\"...") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds_says_how_many_there_were() {
        let (mut strangers, begin) = (Strangers::default(), Instant::now());
        let remote = "[2001:db8::1]:500".parse().unwrap();
        let name = Identity::Fqdn("b.example".to_owned());
        let mut lines = Vec::new();
        for number in 0..301 {
            let now = begin + Duration::from_millis(100 * number);
            lines.extend(strangers.tell(remote, Some(&name), now));
        }
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], "\"b.example\" at [2001:db8::1]:500 has not proved to be who it says it is");
        assert!(lines[1].ends_with("; 99 more since the last such line"), "{}", lines[1]);
    }

    #[test]
    fn a_claimed_identity_is_one_short_line_of_characters_that_are_seen() {
        let name = |name: &str| shown(&Identity::Fqdn(name.to_owned()));
        assert_eq!(name("a.example"), "\"a.example\"");
        assert_eq!(name("a\u{2028}b\u{202e}c\"d"), "\"a\\u{2028}b\\u{202e}c\\\"d\"");
        assert_eq!(name(&"x".repeat(1000)), format!("\"{}\"...", "x".repeat(64)));
        assert_eq!(shown(&Identity::KeyId(vec![0, 27, 255])), "\"001bff\"");
        assert!(shown(&Identity::KeyId(vec![7; 1024])).len() < 80);
        assert_eq!(shown(&Identity::Address("192.0.2.1".parse().unwrap())), "192.0.2.1");
    }
}
