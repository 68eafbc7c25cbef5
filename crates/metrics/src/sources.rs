//! The daemons of this machine: which there are, and what they answer.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::{Error as ControlError, Request, ipsec_status, router_status, tunnel_status};
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
            let start = |socket| std::thread::Builder::new().spawn_scoped(scope, move || ask(socket));
            let asked: Vec<_> = sockets.iter().map(|socket| (socket, start(socket))).collect();
            asked.into_iter().map(|(socket, asked)| (socket.clone(), answer(socket, asked))).collect()
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

/// What the thread that asks a socket has come back with, where there is one: a machine may have no more of them.
fn answer(
    socket: &Path,
    asked: io::Result<ScopedJoinHandle<'_, Result<Answer, ControlError>>>,
) -> Result<Answer, ControlError> {
    let failed = |_| io::Error::other("the thread that asked it has failed");
    asked
        .and_then(|asked| asked.join().map_err(failed))
        .unwrap_or_else(|source| Err(ControlError::Io { path: socket.to_owned(), source }))
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

    /// This machine's tunnels that answer.
    pub(crate) fn tunnels(&self) -> impl Iterator<Item = &tunnel_status::Status> {
        self.answers.iter().filter_map(|(_, answer)| match answer {
            Ok(Answer::Tunnel(status)) => Some(&**status),
            _ => None,
        })
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    const FEW_THREADS: &str = "SIDESTEP_TEST_FEW_THREADS";

    /// Not a test of its own: what the next one starts. There is memory for the stacks of a few threads more.
    #[test]
    fn asks_with_few_threads() {
        let Some(folder) = std::env::var_os(FEW_THREADS) else { return };
        let sockets: Vec<_> = (0..100).map(|at| Path::new(&folder).join(format!("{at}.sock"))).collect();
        // They take what is asked, and do not answer while all are asked.
        let listeners: Vec<_> = sockets.iter().map(|socket| UnixListener::bind(socket).unwrap()).collect();
        let memory = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = memory.split(' ').next().unwrap().parse().unwrap();
        let limit = format!("--as={}:", pages * 4096 + (20 << 20));
        let pid = format!("--pid={}", std::process::id());
        assert!(Command::new("prlimit").args([limit, pid]).status().unwrap().success());
        let asked = Sources::new(sockets).unwrap().ask();
        drop(listeners);
        let said = asked.answers.iter().map(|(_, answer)| answer.as_ref().unwrap_err().to_string());
        let unasked = said.filter(|why| !why.contains("no answer within")).count();
        println!("\n{unasked} were not asked");
    }

    #[test]
    fn where_threads_are_short_some_are_not_asked_and_the_others_are() {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--test-threads=1", "sources::tests::asks_with_few_threads"])
            .env(FEW_THREADS, folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let unasked = said.lines().find_map(|line| line.strip_suffix(" were not asked"));
        let unasked: usize = unasked.unwrap_or_else(|| panic!("{output:?}")).parse().unwrap();
        assert!((1..100).contains(&unasked), "{unasked}");
    }
}
