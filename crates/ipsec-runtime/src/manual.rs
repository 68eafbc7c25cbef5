//! Associations and policies by hand, of a file in setkey's language: what of it `ipsec up` carries.
//!
//! What leaves is protected or does not leave, so that a policy must demand what it asks for. And keys of a file are used
//! again at each start, with counters that begin anew: ciphers that a counter must never meet twice are refused (RFC 4106
//! §10), since the first two packets of two starts would give away what they have in common, and the key of the ICV.

use std::path::Path;
use std::time::Instant;

use ipsec::algorithm::Authentication;
use ipsec::association::Transform;
use ipsec::key_engine::KeyEngine;
use ipsec::level::{Level, Levels};
use ipsec::policy::{Action, Direction, PolicyDatabase, Rule};
use ipsec::setkey::{self, Command, Position};
use zeroize::Zeroizing;

use crate::error::Error;

/// What a file says, in order: policies first, since tunnels take their selectors from them.
#[derive(Debug)]
pub struct Manual {
    file: String,
    policies: Vec<Rule>,
    others: Vec<(Position, Command)>,
}

impl Manual {
    /// Reads a file that nobody else may read.
    ///
    /// # Errors
    /// Where it is, what is wrong, and what to do.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file = path.display().to_string();
        let bytes = linux::file::read_private(path).map(Zeroizing::new)?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| Error::NotCarried(format!("{file} is no text: write setkey's commands there")))?;
        Self::parse(file, text)
    }

    fn parse(file: String, text: &str) -> Result<Self, Error> {
        let commands =
            setkey::parse_placed(text).map_err(|error| Error::NotCarried(format!("{file}: {error}")))?;
        let mut manual = Self { file, policies: Vec::new(), others: Vec::new() };
        for (position, command) in commands {
            if let Some((what, remedy)) = refusal(&command) {
                return Err(manual.wrong(position, &format!("{what}; {remedy}")));
            }
            match command {
                Command::PolicyAdd(rule) => manual.policies.push(rule),
                // There is nothing before the file.
                Command::Flush(_) | Command::PolicyFlush => {}
                other => manual.others.push((position, other)),
            }
        }
        Ok(manual)
    }

    /// The policies.
    pub fn policies(&self) -> &[Rule] {
        &self.policies
    }

    /// Puts all of it into an engine and a policy database.
    ///
    /// # Errors
    /// As above; what was put in until then stays, so that the two are not to be used.
    pub fn apply(
        self,
        engine: &mut KeyEngine,
        policies: &mut PolicyDatabase,
        now: Instant,
    ) -> Result<(), Error> {
        let Self { file, policies: rules, others } = self;
        rules.into_iter().for_each(|rule| policies.add(rule));
        for (position, command) in others {
            setkey::apply(vec![command], engine, policies, now)
                .map_err(|error| Error::NotCarried(placed(&file, position, &error.to_string())))?;
        }
        Ok(())
    }

    fn wrong(&self, position: Position, what: &str) -> Error {
        Error::NotCarried(placed(&self.file, position, what))
    }
}

fn placed(file: &str, Position { line, column }: Position, what: &str) -> String {
    format!("{file}: line {line}, column {column}: {what}")
}

/// What is not carried, and what to write instead.
fn refusal(command: &Command) -> Option<(&'static str, &'static str)> {
    match command {
        Command::Add(_, credentials) if credentials.owner.is_some() => {
            Some(("there are no sockets here that could own an association", "leave -u out"))
        }
        Command::Add(parameters, _) => uses_counter(&parameters.transform).then_some((
            "this algorithm must never use a key twice, and each start of `ipsec up` would",
            "take -E rijndael-cbc with -A hmac-sha256, AH with hmac-sha256, or IKE",
        )),
        Command::PolicyAdd(Rule { direction: Direction::Out, action, .. }) => match action {
            Action::Bypass => Some((
                "`ipsec up` carries nothing in clear",
                "leave this policy out: what no policy is for keeps its way",
            )),
            Action::Protect { levels, .. } if has_use(*levels) => Some((
                "level “use” would let packets leave in clear, which `ipsec up` does not",
                "write require",
            )),
            _ => None,
        },
        Command::Get(_)
        | Command::Dump(_)
        | Command::Delete(_)
        | Command::DeleteAll { .. }
        | Command::PolicyDelete(..)
        | Command::PolicyDump => Some((
            "a file that is loaded at the start only adds",
            "leave it out, or give it to `sidestep key -f`",
        )),
        _ => None,
    }
}

fn uses_counter(transform: &Transform) -> bool {
    let gmac =
        |authentication| matches!(authentication, Authentication::AesGmac128 | Authentication::AesGmac256);
    match transform {
        Transform::Esp(esp) => esp.encryption().is_combined() || gmac(esp.authentication()),
        Transform::Ah(ah) => gmac(ah.authentication()),
    }
}

fn has_use(levels: Levels) -> bool {
    [levels.authentication, levels.transport_encryption, levels.tunnel_encryption].contains(&Level::Use)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "-E rijndael-cbc 0x000102030405060708090a0b0c0d0e0f \
         -A hmac-sha256 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn told(text: &str) -> String {
        let manual = Manual::parse("f".to_owned(), text);
        let applied = manual.and_then(|manual| {
            manual.apply(&mut KeyEngine::new(), &mut PolicyDatabase::new(), Instant::now())
        });
        applied.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn a_tunnel_by_hand_is_taken_and_has_the_selectors_of_its_policies() {
        let text = format!(
            "flush; spdflush;\nadd ::1 ::2 esp 0x1000 -m tunnel {KEYS};\n\
             spdadd fd00:a::/64 fd00:b::/64 any -P out ipsec esp/tunnel/::1-::2/require;"
        );
        let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
        let manual = Manual::parse("f".to_owned(), &text).unwrap();
        assert_eq!(manual.policies().len(), 1);
        manual.apply(&mut engine, &mut policies, Instant::now()).unwrap();
        let (_, association) = engine.associations().next().unwrap();
        assert_eq!(association.parameters().selectors.len(), 1);
    }

    #[test]
    fn what_is_not_carried_is_told_with_its_place_and_what_to_write() {
        let twice = format!("add ::1 ::2 esp 0x1000 {KEYS};\nadd ::1 ::2 esp 0x1000 {KEYS};");
        for (text, parts) in [
            (
                "add ::1 ::2 esp 0x1000 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;",
                ["line 1, column 1", "hmac-sha256"],
            ),
            ("\nspdadd ::1 ::2 any -P out none;", ["line 2", "in clear"]),
            ("spdadd ::1 ::2 any -P out ipsec esp/transport//use;", ["line 1", "write require"]),
            ("dump;", ["line 1", "leave it out"]),
            ("\nspddelete ::1 ::2 any -P in;", ["line 2", "leave it out"]),
            ("nonsense;", ["f: line 1, column 1", "write add"]),
            (&twice, ["line 2, column 1", "there is an association"]),
        ] {
            let told = told(text);
            assert!(parts.iter().all(|part| told.contains(part)), "{text}: {told}");
        }
        assert_eq!(told("spdadd ::1 ::2 any -P in none; spdadd ::1 ::2 any -P out discard;"), "");
    }
}
