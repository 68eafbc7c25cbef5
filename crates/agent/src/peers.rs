//! Peers: their agents are asked, and theirs answered, over the tunnel that says who they are.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fleet::agent::WAIT;
use fleet::exchange::{Answer, PEER_PORT, Question, Request, SYNC, ToPeer};
use fleet::news::News;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::event::{Event, Held};
use crate::http::{Connection, HttpError, connect_inside};

/// How much longer than it may be held back an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a request may take to come.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Octets of a request: a site's own notices.
const LONGEST: usize = 1 << 20;
/// Connections at once. Only addresses of peers get as far as one.
const MOST: usize = 1024;
/// Of one peer, which asks one thing after the other: with one more its oldest ends, which it may have lost.
const OF_ONE: usize = 4;
/// After how long an address that is not there is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Asks the agent of a peer, from this site's own address.
pub(crate) async fn ask(
    address: IpAddr,
    own: Option<IpAddr>,
    question: Question,
    news: &News,
    wait: Duration,
) -> Result<Answer, HttpError> {
    let to = SocketAddr::new(address, PEER_PORT);
    let place = to.to_string();
    let mut connection = Connection::over(&place, connect_inside(to, own).await?).await?;
    let path = format!("{SYNC}?wait={}", wait.min(WAIT).as_secs());
    let request = Request { asking: question, news: news.clone() };
    connection.ask(Method::POST, &path, Some(&request), wait + PATIENCE).await?.read(&place)
}

/// Answers peers at this site's address inside of the tunnels, as soon as that is there.
pub(crate) async fn serve(address: IpAddr, events: mpsc::Sender<Event>) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(listener) = TcpListener::bind((address, PEER_PORT)).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        accept(&listener, &places, &events).await;
    }
}

/// Until the address is lost.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>, events: &mpsc::Sender<Event>) {
    let mut conversations: BTreeMap<IpAddr, Vec<AbortHandle>> = BTreeMap::new();
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(AGAIN).await;
            return;
        };
        let (allowed, is_peer) = oneshot::channel();
        if events.send(Event::MayAsk(from.ip(), allowed)).await.is_err() {
            return;
        }
        let Ok(place) = Arc::clone(places).try_acquire_owned() else { continue };
        if is_peer.await == Ok(true) {
            let own = conversations.entry(from.ip()).or_default();
            own.retain(|one| !one.is_finished());
            if own.len() == OF_ONE {
                own.remove(0).abort();
            }
            let events = events.clone();
            let conversation = tokio::spawn(async move {
                converse(stream, from.ip(), events).await;
                drop(place);
            });
            own.push(conversation.abort_handle());
        }
    }
}

async fn converse(stream: TcpStream, from: IpAddr, events: mpsc::Sender<Event>) {
    let service = service_fn(move |request| {
        let events = events.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(request, from, &events).await) }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: hyper::Request<Incoming>,
    from: IpAddr,
    events: &mpsc::Sender<Event>,
) -> Response<Full<Bytes>> {
    if request.method() != Method::POST || request.uri().path() != SYNC {
        return status(StatusCode::NOT_FOUND);
    }
    let wait = wait_of(request.uri().query().unwrap_or_default());
    let body = tokio::time::timeout(REQUEST_TIME, Limited::new(request.into_body(), LONGEST).collect()).await;
    let Ok(Ok(body)) = body else { return status(StatusCode::BAD_REQUEST) };
    let Ok(asked) = serde_json::from_slice::<ToPeer>(&body.to_bytes()) else {
        return status(StatusCode::BAD_REQUEST);
    };
    let (answer, answered) = oneshot::channel();
    let held = Held { from, question: asked.asking, news: asked.news, wait, answer };
    if events.send(Event::Asked(held)).await.is_err() {
        return status(StatusCode::SERVICE_UNAVAILABLE);
    }
    match answered.await {
        Ok(answer) => {
            let body = serde_json::to_vec(&answer).expect("texts and numbers");
            Response::new(Full::new(Bytes::from(body)))
        }
        Err(_) => status(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// How long the answer may be held back.
fn wait_of(query: &str) -> Duration {
    let seconds = query.strip_prefix("wait=").and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or_default()).min(WAIT)
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpSocket;

    use super::*;

    const AGENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 41, 61));

    /// Begins a question that does not go on.
    async fn connect_from(last: u8) -> TcpStream {
        loop {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 41, last], 0).into()).unwrap();
            if let Ok(mut stream) = socket.connect((AGENT, PEER_PORT).into()).await {
                stream.write_all(b"POST ").await.unwrap();
                return stream;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn is_open(stream: &TcpStream) -> bool {
        matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    #[tokio::test]
    async fn a_peer_that_connects_without_end_has_few_connections_and_ends_nobody_elses() {
        let (sender, mut events) = mpsc::channel(8);
        let server = tokio::spawn(serve(AGENT, sender));
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                if let Event::MayAsk(_, allowed) = event {
                    let _ = allowed.send(true);
                }
            }
        });
        let before = connect_from(2).await;
        let mut many = Vec::new();
        for _ in 0..200 {
            many.push(connect_from(3).await);
        }
        let after = connect_from(4).await;
        let open = || many.iter().filter(|stream| is_open(stream)).count();
        while open() > OF_ONE {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(open(), OF_ONE);
        assert!(is_open(&before) && is_open(&after));
        server.abort();
    }
}
