//! Questions over HTTP: bounded in time and memory, whoever answers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fleet::exchange::Problem;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};

/// How long a connection may take to be there.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// The longest answer, in bytes: the whole document of some ten thousand sites, several times.
const LONGEST: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nobody is there.
    #[error("{place} does not answer: {why}")]
    Unreachable {
        /// Where.
        place: String,
        /// Why.
        why: String,
    },
    /// Something else is there.
    #[error("at {place} is not the controller whose certificate this site was given: {why}")]
    Stranger {
        /// Where.
        place: String,
        /// Why.
        why: String,
    },
    /// It has refused.
    #[error("{place} has refused that ({status}): {why}")]
    Refused {
        /// Where.
        place: String,
        /// With which status.
        status: u16,
        /// In its words.
        why: String,
    },
    /// What it says is no answer.
    #[error("{place} answers what is none of ours: {why}")]
    Strange {
        /// Where.
        place: String,
        /// What is wrong with it.
        why: String,
    },
}

/// What is answered.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    body: Bytes,
}

/// A connection that is asked one thing after the other.
pub(crate) struct Connection {
    place: String,
    sender: http1::SendRequest<Full<Bytes>>,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Connects to a place: a host or an address, and a port.
pub(crate) async fn connect(place: &str) -> Result<TcpStream, HttpError> {
    connected(place, TcpStream::connect(place)).await
}

/// Connects inside of the tunnels, from the site's own address there: others know it by that, and before there is a way inside
/// the kernel would take an outer one, and keep it.
pub(crate) async fn connect_inside(to: SocketAddr, own: Option<IpAddr>) -> Result<TcpStream, HttpError> {
    let connecting = async {
        let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(own) = own.filter(|own| own.is_ipv4() == to.is_ipv4()) {
            socket.bind((own, 0).into())?;
        }
        socket.connect(to).await
    };
    connected(&to.to_string(), connecting).await
}

async fn connected(
    place: &str,
    connecting: impl Future<Output = io::Result<TcpStream>>,
) -> Result<TcpStream, HttpError> {
    let unreachable = |why: String| HttpError::Unreachable { place: place.to_owned(), why };
    let connected = tokio::time::timeout(CONNECT, connecting).await;
    let stream = connected
        .map_err(|_| unreachable(format!("not within {} s", CONNECT.as_secs())))?
        .map_err(|error| unreachable(error.to_string()))?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

impl Connection {
    /// Over a stream to this place.
    pub(crate) async fn over(
        place: &str,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, HttpError> {
        let place = place.to_owned();
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| HttpError::Unreachable { place: place.clone(), why: error.to_string() })?;
        // What goes wrong is told to who asks.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Connection { place, sender, driver })
    }

    /// Asks, and waits so long for the answer.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
        patience: Duration,
    ) -> Result<Reply, HttpError> {
        let place = self.place.clone();
        let unreachable = |why: String| HttpError::Unreachable { place: place.clone(), why };
        let bytes = body.map(|body| serde_json::to_vec(body).expect("texts and numbers"));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "sidestep")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(bytes.unwrap_or_default())))
            .map_err(|error| unreachable(error.to_string()))?;
        let answer = async {
            let response = self.sender.send_request(request).await;
            let response = response.map_err(|error| unreachable(error.to_string()))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST).collect().await;
            let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
                Ok(_) => HttpError::Strange { place: place.clone(), why: "it does not end".to_owned() },
                Err(error) => unreachable(error.to_string()),
            })?;
            Ok(Reply { status, body: body.to_bytes() })
        };
        let answered = tokio::time::timeout(patience, answer).await;
        answered.unwrap_or_else(|_| Err(unreachable(format!("not within {} s", patience.as_secs()))))
    }
}

impl Reply {
    /// What it says, if it is no refusal.
    pub(crate) fn read<T: DeserializeOwned>(&self, place: &str) -> Result<T, HttpError> {
        let place = place.to_owned();
        if self.status.is_success() {
            return self.parse().map_err(|why| HttpError::Strange { place, why });
        }
        let status = self.status.as_u16();
        match self.parse::<Problem>() {
            // It comes from elsewhere, and may go to a terminal.
            Ok(problem) => {
                Err(HttpError::Refused { place, status, why: problem.error.escape_debug().to_string() })
            }
            Err(_) => Err(HttpError::Strange { place, why: format!("it has status {status}") }),
        }
    }

    /// What it says, whatever its status is.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body).map_err(|error| error.to_string())
    }
}
