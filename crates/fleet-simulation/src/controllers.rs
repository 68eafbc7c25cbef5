//! Controllers that come and go, and what it takes to ask them.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use controller::{Controller, Error, Interface};
use fleet::key::Digest;
use fleet::news::News;
use fleet::settings;
use store::Memory;
use tokio::sync::watch;

use crate::distant::Distant;
use crate::identity::name;
use crate::processor::{On, Processor};

/// How long a message takes.
pub(crate) const LATENCY: Duration = Duration::from_millis(20);
/// How long somebody waits for one that is not there.
pub(crate) const REFUSED: Duration = Duration::from_secs(3);
/// Octets of a new connection, both ways: TLS (measured, see the test below), and the headers of IPv6 and TCP of some ten packets.
pub(crate) const OF_CONNECTION: u64 = 2_800;
/// The same for a request over it and its answer, beside their bodies: HTTP's heads, TLS's records, headers of five packets.
pub(crate) const OF_REQUEST: u64 = 800;
/// The same for a question to a peer, which has a connection of its own, without TLS, inside of a tunnel.
pub(crate) const OF_PEER: u64 = 1_100;

/// All controllers, and their store.
pub(crate) struct Controllers {
    store: Memory,
    places: Vec<Place>,
}

struct Place {
    about: settings::Controller,
    running: RefCell<Option<Running>>,
    processor: Rc<Processor>,
    requests: Cell<u64>,
    octets: Cell<u64>,
}

struct Running {
    controller: Controller<Distant>,
    interface: Interface,
    following: tokio::task::JoinHandle<()>,
    /// Dropped when it ends.
    ended: watch::Sender<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.following.abort();
    }
}

/// What controllers have done, each as much as the one that has done most.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    /// With what is not in bodies.
    pub(crate) octets: u64,
    pub(crate) processor: Duration,
    pub(crate) connections: usize,
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

impl Controllers {
    /// So many that do not run yet.
    pub(crate) fn new(count: usize) -> Self {
        let place = |number| {
            let text = format!("c{number}");
            Place {
                about: settings::Controller {
                    name: name(&text),
                    inside: None,
                    outside: Some(format!("{text}.example:4160")),
                    certificate: Digest::of(text.as_bytes()),
                },
                running: RefCell::default(),
                processor: Rc::default(),
                requests: Cell::default(),
                octets: Cell::default(),
            }
        };
        Controllers { store: Memory::new(), places: (0..count).map(place).collect() }
    }

    pub(crate) fn about(&self) -> Vec<settings::Controller> {
        self.places.iter().map(|place| place.about.clone()).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Which one has this name.
    pub(crate) fn number_of(&self, name: &fleet::name::Name) -> Option<usize> {
        self.places.iter().position(|place| place.about.name == *name)
    }

    pub(crate) fn certificate(&self, which: usize) -> Digest {
        self.places[which].about.certificate
    }

    /// Makes the network.
    pub(crate) async fn begin(&self, news: News) -> Result<(), Error> {
        controller::begin(&Distant(self.store.clone()), "ada", news).await
    }

    /// All that the store has, as one text.
    pub(crate) async fn backup(&self) -> Result<String, Error> {
        controller::backup(&self.store).await
    }

    /// Starts all of them, which read the store, and begin to answer when they have.
    pub(crate) async fn start(&self) -> Result<(), Error> {
        self.store.reachable(true);
        for place in &self.places {
            let store = Distant(self.store.clone());
            let controller = On::new(&place.processor, Controller::open(store)).await?;
            let followed = controller.clone();
            let following = On::new(&place.processor, async move { followed.follow().await });
            let running = Running {
                interface: Interface::new(controller.clone(), place.about.certificate)?,
                controller,
                following: tokio::task::spawn_local(following),
                ended: watch::Sender::new(()),
            };
            place.running.replace(Some(running));
        }
        Ok(())
    }

    /// Ends all of them at once, and the store.
    pub(crate) fn end(&self) {
        self.store.reachable(false);
        for place in &self.places {
            place.running.replace(None);
        }
    }

    /// Whether one runs.
    pub(crate) fn is_there(&self, which: usize) -> bool {
        self.places[which].running.borrow().is_some()
    }

    /// One that runs.
    pub(crate) fn one(&self) -> Option<Controller<Distant>> {
        self.places.iter().find_map(|place| place.running.borrow().as_ref().map(|one| one.controller.clone()))
    }

    /// What they have done so far.
    pub(crate) fn loads(&self) -> Vec<Load> {
        let load = |place: &Place| Load {
            requests: place.requests.get(),
            octets: place.octets.get(),
            processor: place.processor.used(),
            connections: place.running.borrow().as_ref().map_or(0, |one| one.controller.figures().waiting),
        };
        self.places.iter().map(load).collect()
    }

    /// Asks one; nothing if it is not there, or goes away.
    pub(crate) async fn ask(
        &self,
        which: usize,
        from: IpAddr,
        path: &str,
        body: Option<Vec<u8>>,
        is_connected: bool,
    ) -> Option<Reply> {
        let place = &self.places[which];
        let there = place.running.borrow().as_ref().map(|one| (one.interface.clone(), one.ended.subscribe()));
        let Some((interface, mut ended)) = there else {
            tokio::time::sleep(REFUSED).await;
            return None;
        };
        let sent = body.as_ref().map_or(0, Vec::len) as u64;
        place.requests.set(place.requests.get() + 1);
        let method = if body.is_some() { "POST" } else { "GET" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.unwrap_or_default()))
            .ok()?;
        tokio::time::sleep(if is_connected { LATENCY } else { 3 * LATENCY }).await;
        place.processor.free().await;
        let answering = On::new(&place.processor, async move {
            let response = interface.answer(from, request).await;
            let status = response.status();
            let body = to_bytes(response.into_body(), usize::MAX).await.ok()?;
            Some(Reply { status, body: body.to_vec() })
        });
        let reply = tokio::select! {
            biased;
            _ = ended.changed() => None,
            reply = answering => reply,
        }?;
        let octets = sent + reply.body.len() as u64 + Self::beside(is_connected);
        place.octets.set(place.octets.get() + octets);
        place.processor.done().await;
        tokio::time::sleep(LATENCY).await;
        Some(reply)
    }

    /// Octets beside bodies.
    pub(crate) fn beside(is_connected: bool) -> u64 {
        if is_connected { OF_REQUEST } else { OF_CONNECTION + OF_REQUEST }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use axum::body::Bytes;
    use axum::http::Method;
    use controller::{Client, Identity, Server};
    use tokio::net::TcpStream;

    use super::*;

    /// Headers of the packets that are not counted here, 72 octets each.
    const HEADERS: u64 = 15 * 72;

    #[test]
    fn what_is_added_for_a_connection_and_a_request_is_what_they_take() {
        let measured = controller::block_on(async {
            let store = Memory::new();
            controller::begin(&store, "ada", crate::administrator::first(Vec::new())).await.unwrap();
            let folder = tempfile::tempdir().unwrap();
            let identity = Identity::of_folder(folder.path(), &["localhost".to_owned()]).unwrap();
            let certificate = identity.digest();
            let listener = TcpListener::bind("[::1]:0").unwrap();
            let server = listener.local_addr().unwrap();
            let controller = Controller::open(store).await.unwrap();
            tokio::spawn(Server::new(controller, listener, identity, 10).unwrap().serve());
            let relay = tokio::net::TcpListener::bind("[::1]:0").await.unwrap();
            let at = relay.local_addr().unwrap().to_string();
            let relayed = tokio::spawn(async move {
                let (mut client, _) = relay.accept().await.unwrap();
                let mut server = TcpStream::connect(server).await.unwrap();
                tokio::io::copy_bidirectional(&mut client, &mut server).await.unwrap()
            });
            let body = Bytes::from_static(b"{}");
            let client = Client::new(&at, certificate, None).unwrap();
            let (_, answer) = client.ask(Method::POST, "/v1/sync?wait=300", body.clone()).await.unwrap();
            drop(client);
            let (sent, received) = relayed.await.unwrap();
            sent + received - (body.len() + answer.len()) as u64
        });
        let measured = measured.unwrap();
        eprintln!("{measured} octets beside bodies, and headers of packets");
        let added = OF_CONNECTION + OF_REQUEST;
        assert!((added / 2..=added).contains(&(measured + HEADERS)), "{measured} + {HEADERS} octets");
    }
}
