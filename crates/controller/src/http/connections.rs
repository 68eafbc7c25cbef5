//! Connections: so many, each within bounds of time, and of those that are refused so many a minute.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// How long the beginning of TLS may take, and a request or the next one.
const REQUEST_TIME: Duration = Duration::from_secs(15);
/// How long one connection lasts: agents make another.
const LIFETIME: Duration = Duration::from_secs(3600);
/// How long an answer may take then: as long as an agent waits, and more.
const LAST_ANSWER: Duration = Duration::from_secs(360);
/// Octets of a request's head.
const LONGEST_HEAD: usize = 16 * 1024;
/// Fields of a head.
const MOST_FIELDS: usize = 64;
/// How many connections one place may have: a network of which all sites are behind one address.
const OF_ONE: usize = 256;
/// What may be refused to one place in a minute.
const REFUSED: u32 = 60;
/// How many places are remembered of which something was refused.
const PLACES: usize = 4096;

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place(IpAddr);

impl Place {
    /// A network of hosts counts as one.
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let prefix = u128::from(address) & !u128::from(u64::MAX);
                Place(Ipv6Addr::from(prefix).into())
            }
            address @ IpAddr::V4(_) => Place(address),
        }
    }
}

/// To whom something was refused lately.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    since: Option<Instant>,
    refused: HashMap<Place, u32>,
}

impl Strangers {
    /// Notes that something was refused.
    pub(crate) fn note(&self, place: Place) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.since.is_none_or(|since| since.elapsed() >= Duration::from_secs(60)) {
            *counts = Counts { since: Some(Instant::now()), refused: HashMap::new() };
        }
        if counts.refused.len() < PLACES || counts.refused.contains_key(&place) {
            *counts.refused.entry(place).or_default() += 1;
        }
    }

    /// Whether nothing more is even looked at.
    pub(crate) fn is_over(&self, place: Place) -> bool {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_now = counts.since.is_some_and(|since| since.elapsed() < Duration::from_secs(60));
        is_now && counts.refused.get(&place).is_some_and(|count| *count >= REFUSED)
    }
}

/// How many connections each place has.
type Open = Arc<Mutex<HashMap<Place, usize>>>;

struct Held {
    open: Open,
    place: Place,
    _permit: OwnedSemaphorePermit,
}

impl Held {
    fn take(open: &Open, place: Place, permit: OwnedSemaphorePermit) -> Option<Self> {
        let mut counts = open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(place).or_default();
        if *count >= OF_ONE {
            return None;
        }
        *count += 1;
        Some(Held { open: Arc::clone(open), place, _permit: permit })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.place);
            }
        }
    }
}

/// Answers at a listener.
pub(super) async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    router: Router,
    most: usize,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(most));
    let open = Open::default();
    loop {
        let Ok(permit) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, from)) => {
                let place = Place::of(from.ip());
                let Some(held) = Held::take(&open, place, permit) else { continue };
                // Small messages are to go out at once.
                let _ = stream.set_nodelay(true);
                tokio::spawn(converse(stream, tls.clone(), router.clone().layer(Extension(place)), held));
            }
            // Nothing left to accept it with: some may come free.
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn converse(stream: TcpStream, tls: TlsAcceptor, router: Router, _held: Held) {
    // What goes wrong is the client's affair.
    let Ok(Ok(stream)) = tokio::time::timeout(REQUEST_TIME, tls.accept(stream)).await else { return };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_FIELDS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    if tokio::time::timeout(LIFETIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST_ANSWER, connection).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_often_is_heard_no_more_for_a_while_and_nobody_else() {
        let strangers = Strangers::default();
        let place = |text: &str| Place::of(text.parse().unwrap());
        for _ in 0..REFUSED {
            assert!(!strangers.is_over(place("2001:db8::1")));
            strangers.note(place("2001:db8::1"));
        }
        assert!(strangers.is_over(place("2001:db8::2")), "a network is one");
        assert!(!strangers.is_over(place("2001:db8:1::1")));
        for number in 0..PLACES as u32 * 2 {
            strangers.note(Place::of(IpAddr::from(number.to_be_bytes())));
        }
        assert!(strangers.counts.lock().unwrap().refused.len() <= PLACES);
    }
}
