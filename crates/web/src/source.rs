//! One control socket: what it is asked, how often, and what it said last.

use std::path::{Path, PathBuf};
use std::time::Duration;

use control::Request;
use control::tunnel_status::Status;
use serde_json::{Value, json};

use crate::happened::{self, Told};
use crate::tunnel::Tunnel;

/// What listens at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A tunnel.
    Tunnel,
    /// A gateway.
    Gateway,
    /// The process that packet scripts run in.
    Scripts,
}

impl Kind {
    /// By the socket's name.
    fn of(socket: &Path) -> Kind {
        match () {
            () if control::is_of_gateway(socket) => Kind::Gateway,
            () if control::is_of_scripts(socket) => Kind::Scripts,
            () => Kind::Tunnel,
        }
    }

    /// Where it is in the document.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Kind::Tunnel => "tunnels",
            Kind::Gateway => "gateways",
            Kind::Scripts => "scripts",
        }
    }

    /// How long it is left alone between two questions: an answer costs a tunnel least, and a gateway a listing of its firewall.
    pub(crate) fn pause(self, watched: bool) -> Duration {
        Duration::from_secs(match (self, watched) {
            (Kind::Tunnel, true) => 1,
            (Kind::Scripts, true) => 2,
            (Kind::Gateway, true) | (Kind::Tunnel, false) => 5,
            (Kind::Gateway | Kind::Scripts, false) => 30,
        })
    }
}

/// A socket that is asked.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    pub(crate) socket: PathBuf,
    pub(crate) tunnel: Tunnel,
    /// The last answer, of what is no tunnel.
    answer: Value,
    /// Why there is none now, and since when, in milliseconds since 1970.
    fault: Option<(String, u64)>,
    /// Something answers there that the page does not show.
    is_of_other_kind: bool,
}

impl Source {
    pub(crate) fn new(kind: Kind, socket: &Path) -> Source {
        Source {
            kind,
            socket: socket.to_owned(),
            tunnel: Tunnel::default(),
            answer: Value::Null,
            fault: None,
            is_of_other_kind: false,
        }
    }

    /// Takes in what it said.
    pub(crate) fn take(&mut self, answer: Result<Answer, control::Error>, now_ms: u64) {
        match answer {
            Ok(Answer::Tunnel(status)) => self.tunnel.take(*status, now_ms),
            Ok(Answer::Other(document)) => self.answer = document,
            Err(control::Error::OtherKind { .. }) => {
                self.is_of_other_kind = true;
                return;
            }
            Err(error) => {
                let since = self.fault.take().map_or(now_ms, |(_, since)| since);
                self.fault = Some((error.to_string(), since));
                return;
            }
        }
        self.fault = None;
        self.is_of_other_kind = false;
    }

    pub(crate) fn answers(&self) -> bool {
        self.fault.is_none() && self.is_shown()
    }

    /// Whether it is of a kind that the page knows.
    pub(crate) fn is_shown(&self) -> bool {
        !self.is_of_other_kind
    }

    /// Whether nobody needs to know that it is gone: script hosts come and go with their scripts.
    pub(crate) fn may_go(&self) -> bool {
        self.kind == Kind::Scripts || self.is_of_other_kind
    }

    /// What the page is told of it.
    pub(crate) fn summary(&self) -> Value {
        let mut document = match self.kind {
            Kind::Tunnel => self.tunnel.summary(),
            Kind::Gateway | Kind::Scripts => self.answer.clone(),
        };
        if !document.is_object() {
            document = json!({});
        }
        if let Some((why, since_ms)) = &self.fault {
            document["fault"] = json!({ "says": why, "since_ms": since_ms });
        }
        document
    }
}

/// What was said.
#[derive(Debug)]
pub(crate) enum Answer {
    Tunnel(Box<Status>),
    Other(Value),
}

/// Asks one socket.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    socket: PathBuf,
    told: Told,
}

impl Asker {
    pub(crate) fn new(socket: &Path) -> Asker {
        let name = socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Asker { kind: Kind::of(socket), name, socket: socket.to_owned(), told: Told::default() }
    }

    /// How things are.
    pub(crate) fn ask(&self) -> Result<Answer, control::Error> {
        Ok(match self.kind {
            Kind::Tunnel => Answer::Tunnel(Box::new(ask_tunnel(&self.socket)?)),
            Kind::Gateway => Answer::Other(control::ask(&self.socket, &Request::Show)?),
            Kind::Scripts => Answer::Other(control::ask(&self.socket, &json!({ "command": "list" }))?),
        })
    }

    /// Whether nothing is where it was: neither a daemon nor what one that was killed leaves behind.
    pub(crate) fn is_gone(&self, answer: &Result<Answer, control::Error>) -> bool {
        matches!(answer, Err(control::Error::NotRunning { .. })) && !control::is_there(&self.socket)
    }

    /// What has happened since it was asked last.
    pub(crate) fn ask_events(&mut self) -> Result<Vec<Value>, control::Error> {
        happened::ask(&self.socket, &self.name, &mut self.told)
    }
}

/// The status of a tunnel.
pub(crate) fn ask_tunnel(socket: &Path) -> Result<Status, control::Error> {
    let value = control::ask(socket, &Request::Show)?;
    if value.get("remotes").is_some() {
        return Err(control::Error::OtherKind { path: socket.to_owned(), command: "ipsec status" });
    }
    serde_json::from_value(value)
        .map_err(|source| control::Error::Malformed { path: socket.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_another_kind_is_no_fault_unless_it_becomes_a_tunnel() {
        let mut source = Source::new(Kind::Tunnel, Path::new(""));
        let other = control::Error::OtherKind { path: PathBuf::new(), command: "ipsec status" };
        source.take(Err(other), 1_000);
        assert!(!source.is_shown() && !source.answers() && source.may_go());
        source.take(Err(control::Error::Refused("gone".into())), 2_000);
        assert!(!source.is_shown());
        source.take(Ok(Answer::Tunnel(Box::new(control::tunnel_status::example()))), 3_000);
        assert!(source.is_shown() && source.answers() && !source.may_go());
    }

    #[test]
    fn one_that_no_longer_answers_is_shown_as_it_was_with_the_reason() {
        let mut source = Source::new(Kind::Tunnel, Path::new(""));
        source.take(Ok(Answer::Tunnel(Box::new(control::tunnel_status::example()))), 1_000);
        let gone = || Err(control::Error::Refused("gone".into()));
        source.take(gone(), 2_000);
        source.take(gone(), 3_000);
        let summary = source.summary();
        assert_eq!(summary["fault"], json!({ "says": "gone", "since_ms": 2_000 }));
        assert_eq!(summary["peers"]["site-b"]["state"], "established");
        source.take(Ok(Answer::Tunnel(Box::new(control::tunnel_status::example()))), 4_000);
        assert!(source.answers() && source.summary().get("fault").is_none());
    }
}
