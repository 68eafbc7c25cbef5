//! The AFTR of a provider (DS-Lite, RFC 6333): its name has come by DHCPv6 (RFC 6334), its address is looked up at the servers
//! of the same uplink, in a thread that may wait. A lookup that fails changes nothing: the address before stays.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use dns::{Found, Kind};
use linux::event::Waker;
use tracing::{info, warn};

/// How often it is looked whether a name has another address.
const FRESH: Duration = Duration::from_secs(300);
/// How soon one is looked up again of which nothing is known.
const AGAIN: Duration = Duration::from_secs(10);

/// Looks up the addresses of a name at these servers.
type LookUp = fn(&str, &[SocketAddr]) -> Result<Vec<Ipv6Addr>, String>;

/// What a lookup has found: of which uplink, of which name, and the addresses, or why there are none.
type Answer = (String, String, Result<Vec<Ipv6Addr>, String>);

/// The AFTRs of all uplinks, by these uplinks' names.
pub(super) struct Aftrs {
    known: BTreeMap<String, Aftr>,
    waker: Waker,
    look_up: LookUp,
    answers: (Sender<Answer>, Receiver<Answer>),
}

#[derive(Default)]
struct Aftr {
    name: String,
    address: Option<Ipv6Addr>,
    /// Why there is no address, or none that is fresh.
    why: String,
    /// When it is looked up next; None while it is.
    next: Option<Instant>,
}

impl Aftrs {
    /// `waker` is woken by each answer, which [`Aftrs::take_answers`] takes.
    pub(super) fn new(waker: &Waker) -> Self {
        Aftrs { known: BTreeMap::new(), waker: waker.clone(), look_up, answers: channel() }
    }

    /// The address of the AFTR that an uplink's provider names now, as far as is known. `servers` can tell.
    pub(super) fn address(
        &mut self,
        uplink: &str,
        name: Option<&str>,
        servers: impl FnOnce() -> Vec<SocketAddr>,
        now: Instant,
    ) -> Option<Ipv6Addr> {
        let Some(name) = name else {
            self.known.remove(uplink);
            return None;
        };
        let known = self.known.entry(uplink.to_owned()).or_default();
        if known.name != name {
            // The one before serves until the other has an address.
            *known =
                Aftr { name: name.to_owned(), address: known.address, next: Some(now), ..Aftr::default() };
        }
        if known.next.is_some_and(|next| now >= next) {
            known.next = None;
            let (sender, waker) = (self.answers.0.clone(), self.waker.clone());
            let (uplink, name, servers) = (uplink.to_owned(), name.to_owned(), servers());
            let look_up = self.look_up;
            let look_up = move || {
                let found = look_up(&name, &servers);
                let _ = sender.send((uplink, name, found));
                waker.wake();
            };
            if let Err(error) = std::thread::Builder::new().name("aftr".into()).spawn(look_up) {
                known.next = Some(now + AGAIN);
                known.why = error.to_string();
            }
        }
        known.address
    }

    /// Takes what lookups have found. Whether there was something.
    pub(super) fn take_answers(&mut self, now: Instant) -> bool {
        let answers: Vec<_> = self.answers.1.try_iter().collect();
        for (uplink, name, found) in &answers {
            // Of a name that is none any more, nothing is believed.
            let Some(known) = self.known.get_mut(uplink).filter(|known| known.name == *name) else {
                continue;
            };
            known.next = Some(now + if found.is_ok() { FRESH } else { AGAIN });
            match found {
                Ok(addresses) => {
                    known.why.clear();
                    if known.address.is_none_or(|address| !addresses.contains(&address)) {
                        known.address = addresses.first().copied();
                        info!("uplink {uplink}: the AFTR {name} is {}", addresses[0]);
                    }
                }
                Err(why) => {
                    if known.why != *why {
                        warn!("uplink {uplink}: the AFTR {name} cannot be looked up: {why}");
                    }
                    known.why.clone_from(why);
                }
            }
        }
        !answers.is_empty()
    }

    /// When an address is to be looked up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.known.values().filter_map(|known| known.next).min()
    }

    /// Why an uplink has no AFTR, in words.
    pub(super) fn problem(&self, uplink: &str) -> Option<String> {
        let known =
            self.known.get(uplink).filter(|known| known.address.is_none() && !known.why.is_empty())?;
        Some(format!("uplink {uplink}: the AFTR {} cannot be looked up: {}", known.name, known.why))
    }
}

/// The addresses of a name, at least one, or why there are none.
fn look_up(name: &str, servers: &[SocketAddr]) -> Result<Vec<Ipv6Addr>, String> {
    let found = match servers {
        [] => dns::lookup(name, Kind::Aaaa),
        servers => dns::lookup_at(name, Kind::Aaaa, servers),
    };
    let usable = |address: &Ipv6Addr| {
        !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && !address.is_unicast_link_local()
    };
    let found = found.map_err(|error| error.to_string())?.into_iter();
    let addresses = found.filter_map(|found| match found {
        Found::Address(address) => Some(address).filter(usable),
        Found::Text(_) => None,
    });
    let addresses: Vec<_> = addresses.collect();
    if addresses.is_empty() { Err("no address that it has can be one's".to_owned()) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(aftrs: &mut Aftrs, name: &str, found: &[&str], now: Instant) {
        let found: Vec<Ipv6Addr> = found.iter().map(|address| address.parse().expect("one")).collect();
        let found = if found.is_empty() { Err("no answer".to_owned()) } else { Ok(found) };
        aftrs.answers.0.send(("fibre".to_owned(), name.to_owned(), found)).expect("a receiver");
        assert!(aftrs.take_answers(now));
    }

    #[test]
    fn an_address_stays_while_lookups_fail_and_as_long_as_the_name_has_it() {
        let now = Instant::now();
        // The answers are those of the test.
        let never = |_: &str, _: &[SocketAddr]| loop {
            std::thread::park();
        };
        let mut aftrs = Aftrs { look_up: never, ..Aftrs::new(&Waker::new().expect("a waker")) };
        let address = |aftrs: &mut Aftrs, name| aftrs.address("fibre", name, Vec::new, now);
        assert_eq!(address(&mut aftrs, Some("aftr.example")), None);
        assert_eq!(aftrs.deadline(), None, "it is being looked up");
        told(&mut aftrs, "aftr.example", &["2001:db8::1", "2001:db8::2"], now);
        let first = "2001:db8::1".parse().ok();
        assert_eq!(address(&mut aftrs, Some("aftr.example")), first);
        assert_eq!(aftrs.deadline(), Some(now + FRESH));
        told(&mut aftrs, "aftr.example", &["2001:db8::2", "2001:db8::1"], now);
        told(&mut aftrs, "aftr.example", &[], now);
        assert_eq!(address(&mut aftrs, Some("aftr.example")), first);
        // Another name: the one before serves, and of it nothing more is heard.
        assert_eq!(address(&mut aftrs, Some("other.example")), first);
        told(&mut aftrs, "aftr.example", &["2001:db8::3"], now);
        assert_eq!(address(&mut aftrs, Some("other.example")), first);
        told(&mut aftrs, "other.example", &["2001:db8::4"], now);
        assert_eq!(address(&mut aftrs, Some("other.example")), "2001:db8::4".parse().ok());
        assert_eq!(address(&mut aftrs, None), None);
    }
}
