//! One stubby, where servers elsewhere are to be asked by TLS: [`router::hosts::stubby`] says what it is told. Each network's
//! dnsmasq asks it, and nobody else.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use control::router_status as status;
use linux::process::{Capability, find_program};
use router::hosts::TlsServer;
use router::hosts::stubby::{self, LISTENS_AT, Said};
use router::site::Site;
use tracing::warn;

use super::program::{Description, Program, taken};
use crate::error::Error;

/// The program, and Debian's package of it.
const PROGRAM: &str = "stubby";
const CONFIGURATION: &str = "stubby.yml";
/// Where systems have the authorities that they trust, and OpenSSL its settings.
const AUTHORITIES: [&str; 4] = ["/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/pki"];
/// What it says of connections, it says at this level: GETDNS_LOG_DEBUG.
const LEVEL: &str = "7";

/// The one that runs, if it is to.
pub(crate) struct Stubby {
    /// What it reads is here.
    folder: PathBuf,
    running: Option<Running>,
}

struct Running {
    servers: Vec<TlsServer>,
    program: Program,
    verdicts: Verdicts,
}

/// Why a server is of no use, or None where it has answered, by its address. Nobody is in it who was not asked yet.
type Verdicts = Arc<Mutex<BTreeMap<IpAddr, Option<String>>>>;

impl Stubby {
    /// `journal` is the gateway's own file.
    pub(crate) fn new(journal: &Path) -> Self {
        let folder = journal.with_extension("stubby");
        // What a crash has left.
        let _ = std::fs::remove_dir_all(&folder);
        Stubby { folder, running: None }
    }

    /// Has it run where the site wants it, with the servers that it names. What cannot be done is returned.
    pub(crate) fn follow(&mut self, site: &Site) -> Vec<String> {
        let servers = site.tls_servers();
        if self.running.as_ref().is_some_and(|running| running.servers != servers) {
            self.end();
        }
        if self.running.is_none() && !servers.is_empty() {
            match self.start(servers) {
                Ok(running) => self.running = Some(running),
                Err(error) => return vec![format!("[dns]: {PROGRAM} cannot be started: {error}")],
            }
        }
        let Some(running) = &self.running else { return Vec::new() };
        let failing = servers.iter().filter_map(|server| {
            let why = running.verdict(server)?.clone()?;
            Some(format!("[dns]: {} ({}) is not asked: {why}", server.place, server.name))
        });
        let why = running.program.state().why;
        let ended =
            why.map(|why| format!("[dns]: names elsewhere cannot be resolved by TLS: {PROGRAM}: {why}"));
        failing.chain(ended).collect()
    }

    fn start(&self, servers: &[TlsServer]) -> io::Result<Running> {
        let not_found = || io::Error::other(format!("it is not installed (`apt install {PROGRAM}`)"));
        let path = find_program(PROGRAM).ok_or_else(not_found)?;
        let file = self.folder.join(CONFIGURATION);
        linux::file::replace(&file, stubby::configuration(servers).as_bytes())?;
        let obstacle = || {
            linux::port::is_taken(LISTENS_AT.ip(), LISTENS_AT.port())
                .then(|| taken(LISTENS_AT.port(), LISTENS_AT.ip()))
        };
        let verdicts = Verdicts::default();
        let heard = Arc::clone(&verdicts);
        let program = Program::start(Description {
            name: PROGRAM.to_owned(),
            path,
            arguments: vec!["-C".into(), file.into(), "-v".into(), LEVEL.into()],
            readable: AUTHORITIES.iter().map(PathBuf::from).chain([self.folder.clone()]).collect(),
            writable: Vec::new(),
            capabilities: &[Capability::CAP_NET_BIND_SERVICE],
            obstacle: Box::new(obstacle),
            listen: Arc::new(move |line| listen(&heard, line)),
        })?;
        Ok(Running { servers: servers.to_vec(), program, verdicts })
    }

    /// Ends it, if it runs.
    pub(crate) fn end(&mut self) {
        if self.running.take().is_some()
            && let Err(error) = std::fs::remove_dir_all(&self.folder)
        {
            warn!("{}: {error}", self.folder.display());
        }
    }

    /// How it is, and what it has heard of each server; None where names are asked for otherwise.
    pub(crate) fn status(&self, site: &Site) -> Option<status::DnsOverTls> {
        let servers = site.tls_servers();
        if servers.is_empty() {
            return None;
        }
        let state = self.running.as_ref().map(|running| running.program.state()).unwrap_or_default();
        let server = |server: &TlsServer| {
            let verdict = self.running.as_ref().and_then(|running| running.verdict(server));
            status::TlsServer {
                address: server.place,
                name: server.name.clone(),
                works: verdict.as_ref().map(Option::is_none),
                why: verdict.flatten(),
            }
        };
        Some(status::DnsOverTls {
            runs: state.id.is_some(),
            why: state.why,
            restarts: state.restarts,
            servers: servers.iter().map(server).collect(),
        })
    }
}

impl Running {
    fn verdict(&self, server: &TlsServer) -> Option<Option<String>> {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.get(&server.place.ip()).cloned()
    }
}

/// Takes a line to heart; whether the program is of use still.
fn listen(verdicts: &Verdicts, line: &str) -> bool {
    let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
    match stubby::said(line) {
        Some(Said::Works(address)) => drop(verdicts.insert(address, None)),
        Some(Said::Untrusted(address, why)) => {
            verdicts.insert(address, Some(format!("its certificate does not verify for that name: {why}")));
        }
        // That it closes the connection to one that it does not trust is no news.
        Some(Said::Unreachable(address)) => {
            let verdict = verdicts.entry(address).or_default();
            verdict.get_or_insert_with(|| "no answer by TLS".to_owned());
        }
        Some(Said::GivesUp) => return false,
        None => {}
    }
    true
}

/// What `up` refuses on this machine as it is now: servers to be asked by TLS, and no program that does.
///
/// # Errors
/// There is none.
pub(crate) fn refuse(site: &Site) -> Result<(), Error> {
    if site.tls_servers().is_empty() || find_program(PROGRAM).is_some() {
        return Ok(());
    }
    Err(Error::NoStubby)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_which_a_server_is_not_asked_is_kept_until_it_answers() {
        let verdicts = Verdicts::default();
        let said = |line: &str| listen(&verdicts, &format!("[09:14:11.779809] STUBBY: 10.9.9.9 : {line}"));
        let verdict = || verdicts.lock().unwrap().get(&"10.9.9.9".parse::<IpAddr>().unwrap()).cloned();
        assert_eq!(verdict(), None);
        assert!(said("Verify failed : TLS - *Failure* - (62) \"hostname mismatch\""));
        assert!(said("Conn closed: TLS - *Failure*"));
        let why = "its certificate does not verify for that name: hostname mismatch";
        assert_eq!(verdict(), Some(Some(why.to_owned())));
        assert!(said("Verify passed : TLS"));
        assert_eq!(verdict(), Some(None));
        assert!(said("Conn closed: TLS - *Failure*"));
        assert_eq!(verdict(), Some(Some("no answer by TLS".to_owned())));
        assert!(!listen(
            &verdicts,
            "Could not schedule query: None of the configured upstreams could be used"
        ));
    }
}
