//! Looks where WireGuard's devices have their peers, and leads these back.

use std::collections::HashMap;
use std::io::Read;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use linux::outside::Stray;
use tracing::{info, warn};

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same, when it was just led back: what was underway may have led it away again.
const LOOK_SOON: Duration = Duration::from_millis(100);
/// How long `wg` may take for an answer: it takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where it may be.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Where a device is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) peer: String,
    pub(super) interface: String,
    /// Which of the device's peers, if it has several.
    pub(super) public_key: Option<String>,
    /// Its port here, if the configuration says it.
    pub(super) own_port: Option<u16>,
    /// Inner ends of this node's and of the peer's.
    pub(super) local: Ipv6Addr,
    pub(super) remote: Ipv6Addr,
    /// Its port at the peer, if that has said it.
    pub(super) port: Option<u16>,
    /// All inner ends that the peer may have.
    pub(super) inner: Vec<Ipv6Addr>,
}

/// How a device was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(super) peer: String,
    pub(super) interface: String,
    /// Its own port, if it has one.
    pub(super) port: Option<u16>,
    /// Where it had its peer, before that was led back.
    pub(super) endpoint: Option<SocketAddr>,
    /// The flow that this makes, if it is outside, and that of no other of the device's peers.
    pub(super) stray: Option<Stray>,
    /// Why it could not be looked at, or its peer not led.
    pub(super) problem: Option<String>,
}

/// Looks after devices.
#[derive(Default)]
pub(super) struct Watch {
    /// By the devices and their peers' keys.
    led: HashMap<(String, String), Last>,
    /// What was said of each last, so that nothing is said twice in a row.
    told: HashMap<String, String>,
}

/// Where a device was led last.
struct Last {
    at: SocketAddr,
    /// What was wanted then, unless there may be news since.
    wanted: Option<Wanted>,
    /// When it was looked at last, it was at another of the peer's inner ends.
    is_elsewhere: bool,
}

impl Watch {
    /// Starts a thread that looks every second, and whenever it is told where devices are to lead. It ends with the sender.
    pub(super) fn start(
        mut self,
        mut devices: Vec<Wanted>,
        report: Box<dyn Fn(Vec<Found>) + Send>,
    ) -> std::io::Result<mpsc::Sender<Vec<Wanted>>> {
        let (send, wanted) = mpsc::channel::<Vec<Wanted>>();
        let run = move || {
            let mut pause = LOOK_EVERY;
            loop {
                let next = match devices.is_empty() {
                    true => wanted.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    false => wanted.recv_timeout(pause),
                };
                match next {
                    Ok(first) => {
                        devices = wanted.try_iter().last().unwrap_or(first);
                        // Somebody says that there may be news.
                        self.led.values_mut().for_each(|last| last.wanted = None);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let found = self.look(&devices);
                let is_new = found.iter().any(|found| found.stray.is_some()) && pause == LOOK_EVERY;
                pause = if is_new { LOOK_SOON } else { LOOK_EVERY };
                report(found);
            }
        };
        std::thread::Builder::new().name("wireguard".into()).spawn(run)?;
        Ok(send)
    }

    /// Looks at devices, and leads them to where they are not.
    pub(super) fn look(&mut self, devices: &[Wanted]) -> Vec<Found> {
        devices.iter().map(|device| self.look_at(device)).collect()
    }

    fn look_at(&mut self, wanted: &Wanted) -> Found {
        let Wanted { peer, interface, .. } = wanted.clone();
        let mut found = Found { peer, interface, ..Found::default() };
        match self.lead(wanted, &mut found) {
            Ok(()) => drop(self.told.remove(&found.peer)),
            Err(problem) => {
                let before = self.told.insert(found.peer.clone(), problem.clone());
                if before.as_ref() != Some(&problem) {
                    warn!("[[wrap]] {}: {problem}; it is tried again", found.interface);
                }
                found.problem = Some(problem);
            }
        }
        found
    }

    fn lead(&mut self, wanted: &Wanted, found: &mut Found) -> Result<(), String> {
        let Wanted { interface, peer, .. } = wanted;
        let endpoints = wg(&["show", interface, "endpoints"])?;
        let (key, endpoint) = choose(&endpoints, wanted.public_key.as_deref())?;
        found.endpoint = endpoint;
        let own = match wanted.own_port {
            Some(port) => port,
            // Asked for after the peers: before it has some, WireGuard in user space listens at a port that it keeps only
            // until it is told its own, with its peers. What is dropped outside would be of the wrong port meanwhile.
            None => {
                let port = wg(&["show", interface, "listen-port"])?.trim().parse().unwrap_or(0);
                found.port = Some(port).filter(|port| *port != 0);
                found.port.ok_or("the device listens at no port yet: set its ListenPort")?
            }
        };
        let is_inner = |at: &SocketAddr| wanted.inner.iter().any(|inner| at.ip() == *inner);
        let outside = endpoint.filter(|at| !is_inner(at) && !is_of_another(&endpoints, &key, *at));
        found.stray = outside.map(|remote| Stray { port: own, remote });
        let own_peer = (interface.clone(), key.clone());
        let last = self.led.get_mut(&own_peer);
        let is_led = last.as_ref().is_some_and(|last| last.wanted.as_ref() == Some(wanted));
        // The port is the peer's, whatever leads there.
        let at_first = last.as_ref().map(|last| last.at).or(endpoint).map(|at| at.port());
        let port = wanted.port.or(at_first).unwrap_or(own);
        let new = SocketAddr::new(wanted.remote.into(), port);
        // It may know before anybody has said so which of the peer's ends the session has now; but what was underway from the one
        // before may have led it there, too, which nobody will say.
        if let Some(last) =
            last.filter(|_| is_led && endpoint.is_some_and(|at| is_inner(&at) && at.port() == port))
        {
            let was_elsewhere = std::mem::replace(&mut last.is_elsewhere, endpoint != Some(new));
            if !(was_elsewhere && last.is_elsewhere) {
                return Ok(());
            }
        }
        // At first also where it is that already: it forgets by which interface and from which address it last sent there,
        // which are not those of today.
        wg(&["set", interface, "peer", &key, "endpoint", &new.to_string()])?;
        self.led.insert(own_peer, Last { at: new, wanted: Some(wanted.clone()), is_elsewhere: false });
        if endpoint != Some(new) {
            let was = endpoint.map_or_else(|| "unset".to_owned(), |endpoint| endpoint.to_string());
            info!("{interface}: the endpoint of {key} was {was}, and is {new}, in the tunnel to {peer}");
        }
        Ok(())
    }
}

/// The device's peers, by their keys, with their endpoints, as far as they have some.
fn peers(endpoints: &str) -> impl Iterator<Item = (&str, Result<Option<SocketAddr>, String>)> {
    let peers = endpoints.lines().filter_map(|line| line.split_once('\t'));
    peers.map(|(key, endpoint)| (key, address(endpoint)))
}

/// An endpoint as `wg` writes it; of one on a link, `[fe80::1%eth0]:7`, without the link.
fn address(endpoint: &str) -> Result<Option<SocketAddr>, String> {
    if endpoint == "(none)" {
        return Ok(None);
    }
    let link = endpoint.find('%').zip(endpoint.rfind(']')).filter(|(from, to)| from < to);
    let text =
        link.map_or_else(|| endpoint.to_owned(), |(from, to)| endpoint[..from].to_owned() + &endpoint[to..]);
    text.parse().map(Some).map_err(|_| format!("its peer is at {endpoint:?}, which is no address"))
}

/// Of the device's peers the one that is meant, with its endpoint, if it has one.
fn choose(endpoints: &str, wanted: Option<&str>) -> Result<(String, Option<SocketAddr>), String> {
    let peers: Vec<_> = peers(endpoints).collect();
    let (key, endpoint) = match (wanted, &peers[..]) {
        (Some(wanted), peers) => peers
            .iter()
            .find(|(key, _)| *key == wanted)
            .ok_or_else(|| format!("the device has no peer with the public key {wanted}"))?,
        (None, [only]) => only,
        (None, []) => return Err("the device has no peer yet".to_owned()),
        (None, _) => {
            return Err("the device has several peers: write which one, public_key = \"…\"".to_owned());
        }
    };
    Ok(((*key).to_owned(), endpoint.clone()?))
}

/// Whether another of the device's peers is there.
fn is_of_another(endpoints: &str, key: &str, at: SocketAddr) -> bool {
    peers(endpoints).any(|(other, endpoint)| other != key && endpoint == Ok(Some(at)))
}

/// What WireGuard's tool says.
fn wg(arguments: &[&str]) -> Result<String, String> {
    // By its whole path, which spawns it without a copy of this process: that would hold up packets each time.
    let path = FOLDERS.map(|folder| Path::new(folder).join("wg")).into_iter().find(|path| path.is_file());
    let mut command = Command::new(path.unwrap_or_else(|| "/usr/bin/wg".into()));
    command.args(arguments);
    run(command, PATIENCE).map_err(|problem| match problem {
        Problem::Missing => "`wg` is not installed: apt install wireguard-tools".to_owned(),
        Problem::Silent => format!("`wg {}` does not answer: is WireGuard stopped?", arguments.join(" ")),
        Problem::Said(text) => text,
    })
}

/// Why a program has said nothing that could be used.
#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Missing,
    /// It took too long, and was ended.
    Silent,
    Said(String),
}

/// What a program writes, which is ended where it takes longer than this.
fn run(mut command: Command, patience: Duration) -> Result<String, Problem> {
    let said = |error: std::io::Error| Problem::Said(error.to_string());
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Problem::Missing,
        _ => said(error),
    })?;
    let (mut output, mut errors) = (child.stdout.take(), child.stderr.take());
    let (send, all) = mpsc::channel();
    let read = move || {
        let mut texts = [Vec::new(), Vec::new()];
        let _ = output.as_mut().map(|output| output.read_to_end(&mut texts[0]));
        let _ = errors.as_mut().map(|errors| errors.read_to_end(&mut texts[1]));
        let _ = send.send(texts.map(|text| String::from_utf8_lossy(&text).trim_end().to_owned()));
    };
    let reader = std::thread::Builder::new().name("wg".into()).spawn(read);
    let texts = reader.map_err(said).and_then(|_| all.recv_timeout(patience).map_err(|_| Problem::Silent));
    if texts.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(said)?;
    let [output, errors] = texts?;
    if status.success() { Ok(output) } else { Err(Problem::Said(errors)) }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_only_peer_is_meant_and_of_several_the_one_that_is_named() {
        let one = "aaaa=\t[2001:db8::1]:51820\n";
        assert_eq!(choose(one, None), Ok(("aaaa=".to_owned(), "[2001:db8::1]:51820".parse().ok())));
        let two = "aaaa=\t(none)\nbbbb=\t192.0.2.1:7\n";
        assert!(choose(two, None).unwrap_err().contains("public_key"));
        assert_eq!(choose(two, Some("bbbb=")), Ok(("bbbb=".to_owned(), "192.0.2.1:7".parse().ok())));
        assert_eq!(choose(two, Some("aaaa=")), Ok(("aaaa=".to_owned(), None)));
        assert!(choose(two, Some("cccc=")).is_err() && choose("", None).is_err());
        let at = "192.0.2.1:7".parse().unwrap();
        assert!(is_of_another(two, "aaaa=", at) && !is_of_another(two, "bbbb=", at));
    }

    #[test]
    fn a_peer_on_a_link_is_known_and_what_is_no_address_is_said() {
        let link_local = choose("aaaa=\t[fe80::1%eth0]:51820\n", None);
        assert_eq!(link_local, Ok(("aaaa=".to_owned(), "[fe80::1]:51820".parse().ok())));
        for odd in ["here:7", "%]", "]%", ""] {
            let said = choose(&format!("aaaa=\t{odd}\n"), None).unwrap_err();
            assert!(said.contains("no address"), "{said}");
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let shell = |script: &str, patience: Duration| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(command, patience)
        };
        let long = Duration::from_secs(30);
        assert_eq!(shell("echo one; echo two", long), Ok("one\ntwo".to_owned()));
        assert_eq!(shell("echo why >&2; false", long), Err(Problem::Said("why".to_owned())));
        assert_eq!(run(Command::new("/nowhere/wg"), long), Err(Problem::Missing));
        let more =
            "i=0; while [ $i -lt 3000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done";
        assert_eq!(shell(more, long).map(|text| text.lines().count()), Ok(3_000), "more than a pipe holds");
        let begun = Instant::now();
        assert_eq!(shell("exec sleep 600", Duration::from_millis(50)), Err(Problem::Silent));
        assert!(begun.elapsed() < Duration::from_secs(300));
    }
}
