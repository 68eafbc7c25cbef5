//! Connections: so many, each within bounds of time and memory.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::answer::Site;
use crate::error::Error;
use crate::patience::Patient;
use crate::places::{Place, Places};

/// How long a request, or the next one, may take to come; and the beginning of TLS.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How long a browser may take nothing of what it is sent, and how long it may take over all of an answer.
const PATIENCE: Duration = Duration::from_secs(20);
const ANSWER_TIME: Duration = Duration::from_secs(120);
/// Octets of a request's head.
const LONGEST_HEAD: usize = 16 * 1024;
/// Fields of a head.
const MOST_FIELDS: usize = 64;

/// Answers until the page must end.
pub(crate) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, site: Arc<Site>) -> Error {
    let listen = site.listen;
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(source) => return Error::Listen { listen, source },
    };
    let accepting = tokio::spawn(accept(listener, tls, Arc::clone(&site)));
    site.collected.must_end.notified().await;
    accepting.abort();
    let ended = || Error::System { what: "the page", source: std::io::Error::other("has ended") };
    site.collected.why_to_end().unwrap_or_else(ended)
}

async fn accept(listener: tokio::net::TcpListener, tls: Option<TlsAcceptor>, site: Arc<Site>) {
    let places = Places::default();
    loop {
        let free = places.free().await;
        match listener.accept().await {
            Ok((stream, from)) => {
                let Some(place) = places.take(free, from.ip()) else { continue };
                // Small messages are to go out at once.
                let _ = stream.set_nodelay(true);
                tokio::spawn(greet(stream, tls.clone(), Arc::clone(&site), place));
            }
            // Nothing left to accept it with: some may come free.
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn greet(stream: tokio::net::TcpStream, tls: Option<TlsAcceptor>, site: Arc<Site>, _place: Place) {
    let Some(tls) = tls else { return converse(stream, site).await };
    // What goes wrong is the client's affair.
    if let Ok(Ok(stream)) = tokio::time::timeout(REQUEST_TIME, tls.accept(stream)).await {
        converse(stream, site).await;
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, site: Arc<Site>) {
    let service = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.answer(request).await) }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIME)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_FIELDS)
        .serve_connection(Patient::new(TokioIo::new(stream), PATIENCE, ANSWER_TIME), service)
        .await;
}

#[cfg(test)]
mod tests {
    use control::tunnel_status::example;
    use control::{Call, Reply, Request, Server};

    use super::*;
    use crate::collect::Collected;
    use crate::place::Names;
    use crate::token::Token;

    #[test]
    fn where_a_tunnel_begins_to_hop_the_page_ends() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        // As if it listened there, which takes an address that this machine need not have.
        let listen = "[2001:db8:a1::5]:443".parse().unwrap();
        let collected = Arc::new(Collected::new(listen, None));
        collected.start(folder.path().to_owned()).unwrap();
        let token = Token::load(&folder.path().join("token"), 443).unwrap();
        let site =
            Site { listen, collected, token, names: Names::new(listen, &[]), encrypted: true, people: None };
        let _daemon = Server::start(&folder.path().join("mt6d0.sock"), |call: Call| match call.request {
            Request::Show => call.answer_status(example()),
            _ => call.answer(Reply::Error("is not asked for that".into())),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let why = runtime.block_on(serve(listener, None, Arc::new(site)));
        assert!(matches!(why, Error::Hopping { .. }), "{why}");
    }
}
