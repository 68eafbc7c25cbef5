//! The daemons of this machine: which there are, and what they answer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::{Error as ControlError, Request, ipsec_status, router_status, tunnel_status};
use ipnet::Ipv6Net;
use script_host::protocol::{Request as ScriptRequest, Scripts};

use crate::catalogue::{ASKING, BUILD, DAEMON, DAEMON_UP, DAEMON_UPTIME};
use crate::error::Error;
use crate::fill;
use crate::page::{Label, Page};

/// How long a daemon may take: somebody waits for the others' answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which daemons are asked.
#[derive(Debug, Default)]
pub struct Sources {
    /// All that there are, where none is named.
    named: Vec<PathBuf>,
    /// Tunnels and gateways that have been there: that one is gone is news.
    known: Mutex<BTreeSet<PathBuf>>,
}

/// What they answered.
#[derive(Debug)]
pub(crate) struct Asked {
    answers: Vec<(PathBuf, Result<Answer, ControlError>)>,
    took: Duration,
    /// In seconds of Unix time.
    at: f64,
}

#[derive(Debug)]
enum Answer {
    Tunnel(Box<tunnel_status::Status>),
    Ipsec(Box<ipsec_status::Status>),
    Gateway(Box<router_status::Status>, Option<router_status::Firewall>),
    Scripts(Box<Scripts>),
}

/// Whose a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tunnel,
    Gateway,
    Scripts,
}

impl Kind {
    fn of(socket: &Path) -> Self {
        match () {
            () if control::is_of_gateway(socket) => Kind::Gateway,
            () if control::is_of_scripts(socket) => Kind::Scripts,
            () => Kind::Tunnel,
        }
    }
}

impl Sources {
    /// Those that listen on these sockets; where there are none, all tunnels of this machine, and the gateway and the script
    /// host of this network namespace, whenever it is asked.
    ///
    /// # Errors
    /// Where two of these would have the same metrics: those of gateways and scripts do not name them.
    pub fn new(named: Vec<PathBuf>) -> Result<Self, Error> {
        for kind in [Kind::Gateway, Kind::Scripts] {
            let mut of_kind = named.iter().filter(|socket| Kind::of(socket) == kind);
            if let (Some(one), Some(other)) = (of_kind.next(), of_kind.next()) {
                return Err(Error::Ambiguous(one.clone(), other.clone()));
            }
        }
        Ok(Sources { named, known: Mutex::default() })
    }

    /// Asks all of them at once.
    pub(crate) fn ask(&self) -> Asked {
        let (began, at) = (Instant::now(), SystemTime::now());
        let sockets = self.sockets();
        let answers = std::thread::scope(|scope| {
            let asked = sockets.iter().map(|socket| scope.spawn(move || ask(socket))).collect::<Vec<_>>();
            let gone = |socket: &Path| {
                let source = std::io::Error::other("the thread that asked it has failed");
                ControlError::Io { path: socket.to_owned(), source }
            };
            let answers = asked.into_iter().map(std::thread::ScopedJoinHandle::join);
            sockets
                .iter()
                .zip(answers)
                .map(|(socket, answer)| (socket.clone(), answer.unwrap_or_else(|_| Err(gone(socket)))))
                .collect()
        });
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Asked { answers, took: began.elapsed(), at }
    }

    fn sockets(&self) -> BTreeSet<PathBuf> {
        if !self.named.is_empty() {
            return self.named.iter().cloned().collect();
        }
        let mut sockets: BTreeSet<_> = control::sockets(control::FOLDER.as_ref()).into_iter().collect();
        sockets.extend(control::socket_of_gateway().ok().filter(|socket| control::is_there(socket)));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.append(&mut sockets);
        sockets.clone_from(&known);
        // Script hosts come and go with their scripts.
        sockets.extend(control::socket_of_scripts().ok().filter(|socket| control::is_there(socket)));
        sockets
    }
}

fn ask(socket: &Path) -> Result<Answer, ControlError> {
    match Kind::of(socket) {
        Kind::Tunnel => match control::ask_for(socket, &Request::Show, PATIENCE) {
            Err(ControlError::Malformed { .. }) => control::ask_for(socket, &Request::Show, PATIENCE)
                .map(|status| Answer::Ipsec(Box::new(status))),
            answer => answer.map(|status| Answer::Tunnel(Box::new(status))),
        },
        Kind::Gateway => {
            let status: router_status::Status = control::ask_for(socket, &Request::Show, PATIENCE)?;
            let firewall = match status.firewall {
                Some(_) => control::ask_for(socket, &Request::Firewall, PATIENCE)?,
                None => None,
            };
            Ok(Answer::Gateway(Box::new(status), firewall))
        }
        Kind::Scripts => control::ask_for(socket, &ScriptRequest::List, PATIENCE)
            .map(|scripts| Answer::Scripts(Box::new(scripts))),
    }
}

impl Asked {
    /// # Errors
    /// Where nobody is there, or nobody answers.
    pub(crate) fn refuse_silence(&self) -> Result<(), Error> {
        if self.answers.iter().any(|(_, answer)| answer.is_ok()) {
            return Ok(());
        }
        Err(match self.answers.first() {
            Some((_, Err(error))) => Error::Silent(error.to_string()),
            _ => match control::find(control::FOLDER.as_ref()) {
                Err(error @ ControlError::Denied(_)) => Error::Silent(error.to_string()),
                _ => Error::Nobody,
            },
        })
    }

    /// Those in which this machine's tunnels hop.
    pub(crate) fn hop_prefixes(&self) -> Vec<Ipv6Net> {
        let tunnels = self.answers.iter().filter_map(|(_, answer)| match answer {
            Ok(Answer::Tunnel(status)) => Some(status),
            _ => None,
        });
        tunnels
            .flat_map(|status| status.peers.iter().map(|peer| peer.hop_prefix).chain([status.hop_prefix]))
            .collect()
    }

    /// As samples.
    pub(crate) fn page(&self) -> Page {
        let mut page = Page::default();
        page.add(&BUILD, &[&Label::from(env!("CARGO_PKG_VERSION"))], true);
        page.add(&ASKING, &[], self.took.as_secs_f64());
        for (socket, answer) in &self.answers {
            let daemon: Label = Arc::from(match Kind::of(socket) {
                Kind::Tunnel => socket.file_stem().unwrap_or_default().to_string_lossy(),
                Kind::Gateway => "gateway".into(),
                Kind::Scripts => "scripts".into(),
            });
            page.add(&DAEMON_UP, &[&daemon], answer.is_ok());
            let Ok(answer) = answer else { continue };
            let about = match answer {
                Answer::Tunnel(status) => Some((&status.version, status.uptime_s)),
                Answer::Ipsec(status) => Some((&status.version, status.uptime_s)),
                Answer::Gateway(status, _) => Some((&status.version, status.uptime_seconds)),
                Answer::Scripts(_) => None,
            };
            if let Some((version, uptime)) = about {
                page.add(&DAEMON, &[&daemon, &Label::from(version.as_str())], true);
                page.add(&DAEMON_UPTIME, &[&daemon], uptime);
            }
            match answer {
                Answer::Tunnel(status) => fill::tunnel(&mut page, status, self.at),
                Answer::Ipsec(status) => fill::ipsec(&mut page, status),
                Answer::Gateway(status, firewall) => {
                    fill::gateway(&mut page, status, self.at);
                    fill::firewall(&mut page, firewall.as_ref());
                }
                Answer::Scripts(scripts) => fill::scripts(&mut page, scripts),
            }
        }
        page
    }
}
