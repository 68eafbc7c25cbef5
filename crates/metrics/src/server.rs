//! As much HTTP/1.1 as Prometheus and a person with curl need: GET and HEAD of one page, a connection for each.
//!
//! A client has a thread of its own, so that a slow one holds up no other while there are few, and bounded time and memory.
//! The daemons are asked once a second at the most, however many ask here.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::error::Error;
use crate::page::Format;
use crate::place::{Listener, Place};
use crate::sources::Sources;

/// Clients at once; others are closed.
const CLIENTS: usize = 32;
/// The longest request, and the most headers.
const LONGEST_REQUEST: usize = 8192;
const HEADERS: usize = 64;
/// How long a client may take to send its request, and to read the answer.
const REQUEST_TIME: Duration = Duration::from_secs(5);
const REPLY_TIME: Duration = Duration::from_secs(20);
/// For how long an answer is good.
const FRESH: Duration = Duration::from_secs(1);
/// How often it is looked whether a tunnel has begun to hop at our address.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// What clients come to.
struct Service {
    place: Place,
    sources: Sources,
    /// The last page, and when it was made. Whoever makes one holds it, and the others wait for that.
    last: Mutex<Option<(Instant, Arc<str>)>>,
    /// Tells that nobody may listen here any more.
    end: Sender<Error>,
}

/// # Errors
/// Where a tunnel hops there, or there is no thread to be had.
pub(crate) fn run(listener: &Listener, place: &Place, sources: Sources) -> Result<Infallible, Error> {
    let (end, ended) = channel();
    let service = Service { place: place.clone(), sources, last: Mutex::default(), end };
    let service = Arc::new(service);
    let accepting = {
        let (service, listener) = (Arc::clone(&service), listener.try_clone()?);
        move || accept(&listener, &service)
    };
    std::thread::Builder::new().name("accept".into()).spawn(accepting)?;
    loop {
        let why = if place.address().is_none() {
            ended.recv().map_err(io::Error::other)?
        } else {
            match ended.recv_timeout(LOOK_EVERY) {
                Ok(why) => why,
                Err(_) => match Error::unless_outside(place, service.sources.ask().tunnels()) {
                    Ok(()) => continue,
                    Err(why) => why,
                },
            }
        };
        return Err(why);
    }
}

fn accept(listener: &Listener, service: &Arc<Service>) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) => {
                // No descriptor or memory left: some may come free.
                debug!("cannot accept a client: {error}");
                std::thread::sleep(Duration::from_millis(200));
                continue;
            }
        };
        if clients.load(Relaxed) >= CLIENTS {
            continue;
        }
        clients.fetch_add(1, Relaxed);
        let share = Share(Arc::clone(&clients));
        let service = Arc::clone(service);
        let serve = move || {
            let _share = share;
            // A client that fails is its own affair.
            let _ = service.serve(stream);
        };
        if let Err(error) = std::thread::Builder::new().name("client".into()).spawn(serve) {
            warn!("a client is sent away: {error}");
        }
    }
}

/// One client's share of [`CLIENTS`].
struct Share(Arc<AtomicUsize>);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Question {
    Page {
        format: Format,
        only_head: bool,
    },
    /// Something else: the status line that answers it, and what to do instead.
    Refused(&'static str, &'static str),
}

const INSTEAD: &str = "GET /metrics";

impl Service {
    fn serve(&self, stream: Box<dyn Stream>) -> io::Result<()> {
        let mut stream = Timed { stream, deadline: Instant::now() + REQUEST_TIME };
        let question = read_question(&mut stream, self.place.is_loopback())?;
        let (status, kind, body, only_head) = match question {
            Question::Page { format, only_head } => match self.page() {
                Ok(page) => ("200 OK", format.content_type(), format.of(page.to_string()), only_head),
                Err(why) => {
                    let _ = self.end.send(why);
                    return Ok(());
                }
            },
            Question::Refused(status, instead) => {
                (status, "text/plain; charset=utf-8", format!("{status}: {instead}\n"), false)
            }
        };
        stream.deadline = Instant::now() + REPLY_TIME;
        let length = body.len();
        let mut answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        );
        if !only_head {
            answer += &body;
        }
        stream.write_all(answer.as_bytes())?;
        stream.flush()
    }

    /// # Errors
    /// Where a tunnel hops at this place now.
    fn page(&self) -> Result<Arc<str>, Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((made, page)) if made.elapsed() < FRESH => Ok(Arc::clone(page)),
            _ => {
                let asked = self.sources.ask();
                Error::unless_outside(&self.place, asked.tunnels())?;
                let page: Arc<str> = asked.page().text().into();
                *last = Some((Instant::now(), Arc::clone(&page)));
                Ok(page)
            }
        }
    }
}

fn read_question(stream: &mut impl Read, by_address: bool) -> io::Result<Question> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..count]);
        if let Some(question) = question(&head, by_address) {
            return Ok(question);
        }
        if head.len() > LONGEST_REQUEST {
            return Ok(Question::Refused("431 Request Header Fields Too Large", INSTEAD));
        }
    }
}

/// None while there is more to come. Where a browser could be led by a name to what only its own machine can reach (DNS
/// rebinding), who asks says `by_address` whom.
fn question(head: &[u8], by_address: bool) -> Option<Question> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Some(Question::Refused("431 Request Header Fields Too Large", INSTEAD));
        }
        Err(_) => return Some(Question::Refused("400 Bad Request", INSTEAD)),
    }
    let is_led = |header: &httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("host")
            && !is_address(std::str::from_utf8(header.value).unwrap_or("?"))
    };
    if by_address && request.headers.iter().any(is_led) {
        return Some(Question::Refused("421 Misdirected Request", "ask by an address, or by localhost"));
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    Some(match (request.method, path) {
        (Some(method @ ("GET" | "HEAD")), "/metrics") => {
            let wants = |header: &httparse::Header<'_>| {
                let value = std::str::from_utf8(header.value).unwrap_or_default();
                header.name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
            };
            let format = if request.headers.iter().any(wants) { Format::OpenMetrics } else { Format::Text };
            Question::Page { format, only_head: method == "HEAD" }
        }
        (Some("GET" | "HEAD"), _) => Question::Refused("404 Not Found", INSTEAD),
        _ => Question::Refused("405 Method Not Allowed", INSTEAD),
    })
}

/// Whether a `Host` header is an address or `localhost`, which no other site's name is, with a port or without.
fn is_address(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok(),
    }
}

/// A connection whose waits can be limited.
trait Stream: Read + Write + Send {
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Tcp(listener) => Box::new(listener.accept()?.0),
            Listener::Unix(listener) => Box::new(listener.accept()?.0),
        })
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Listener::Tcp(listener) => Listener::Tcp(listener.try_clone()?),
            Listener::Unix(listener) => Listener::Unix(listener.try_clone()?),
        })
    }
}

/// A stream with a deadline for all that is read from it or written to it.
struct Timed {
    stream: Box<dyn Stream>,
    deadline: Instant,
}

impl Timed {
    fn limit(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { self.stream.limit(left) }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use control::{Call, Reply, Request, Server};
    use proptest::prelude::*;

    use super::*;

    /// A server of metrics over a daemon with the example of a status; how often that was asked is counted.
    fn served() -> (std::net::SocketAddr, Server, Arc<AtomicUsize>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt6d0.sock");
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let daemon = Server::start(&path, move |call: Call| match call.request {
            Request::Show => {
                count.fetch_add(1, Relaxed);
                call.answer_status(control::tunnel_status::example());
            }
            _ => call.answer(Reply::Error("is not asked for that".into())),
        })
        .unwrap();
        let listener = TcpListener::bind("[::1]:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sources = Sources::new(vec![path]).unwrap();
        std::thread::spawn(move || run(&Listener::Tcp(listener), &Place::Tcp(address), sources));
        (address, daemon, asked, folder)
    }

    fn exchange(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_page_in_the_format_that_is_asked_for() {
        let (address, _daemon, _, _folder) = served();
        let text = exchange(address, "GET /metrics HTTP/1.1\r\nHost: [::1]:9469\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{text}");
        assert!(
            text.contains("sidestep_peer_state{tunnel=\"mt6d0\",peer=\"site-b\",state=\"established\"} 1\n"),
            "{text}"
        );
        let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        let open = exchange(address, &format!("GET /metrics?x=1 HTTP/1.1\r\n{accept}\r\n\r\n"));
        assert!(open.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
        let head = exchange(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn anything_else_is_refused() {
        let (address, _daemon, asked, _folder) = served();
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(2 * LONGEST_REQUEST));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(2 * HEADERS));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\n", "405"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example:9469\r\n\r\n", "421"),
            ("nonsense\r\n\r\n", "400"),
            (&many, "431"),
        ] {
            let answer = exchange(address, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
        // It may be cut off while it still sends.
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(long.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
        assert_eq!(asked.load(Relaxed), 0);
    }

    /// A page in a browser whose site's name leads here could read the metrics otherwise.
    #[test]
    fn nobody_is_led_here_by_a_name() {
        for own in ["[::1]:9469", "[2001:db8::1]", "127.0.0.1:9469", "192.0.2.1", "localhost", "LocalHost:1"]
        {
            assert!(is_address(own), "{own}");
        }
        for other in
            ["", "evil.example", "localhost.evil.example:9469", "127.0.0.1.evil.example", "::1", "[::1", "1"]
        {
            assert!(!is_address(other), "{other}");
        }
        let request = |host: &str| format!("GET /metrics HTTP/1.1\r\nHost: [::1]\r\nhost: {host}\r\n\r\n");
        let refused = question(request("evil.example").as_bytes(), true);
        assert!(matches!(refused, Some(Question::Refused(status, _)) if status.starts_with("421")));
        // A proxy has whatever name it has.
        let through_a_proxy = question(request("metrics.example").as_bytes(), false);
        assert!(matches!(through_a_proxy, Some(Question::Page { .. })));
    }

    #[test]
    fn slow_clients_hold_up_nobody_and_many_ask_the_daemon_once() {
        let (address, _daemon, asked, _folder) = served();
        let slow: Vec<_> = (0..CLIENTS / 2).map(|_| TcpStream::connect(address).unwrap()).collect();
        for mut stream in &slow {
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
        }
        let began = Instant::now();
        for _ in 0..20 {
            assert!(exchange(address, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        }
        // However long that took.
        let most = began.elapsed().div_duration_f64(FRESH) as usize + 2;
        assert!(asked.load(Relaxed) <= most, "{most} {asked:?}");
    }

    /// A status names addresses and keys: none of these is a metric.
    #[test]
    fn no_address_and_no_key_is_told() {
        let (address, _daemon, _, _folder) = served();
        let text = exchange(address, "GET /metrics HTTP/1.1\r\n\r\n");
        let status = control::tunnel_status::example();
        assert!(!text.contains("2001:db8") && !text.contains(&status.public_key));
        let labels: String =
            text.lines().filter_map(|line| line.split_once('{')?.1.split_once('}')).map(|of| of.0).collect();
        for peer in &status.peers {
            assert!(!text.contains(&peer.public_key));
            for endpoint in peer.local.iter().chain(&peer.remote) {
                assert!(!labels.contains(&endpoint.port.to_string()), "{}", endpoint.port);
            }
        }
    }

    proptest! {
        #[test]
        fn no_request_makes_it_panic(head in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = question(&head, true);
            let _ = question(&[b"GET /metrics HTTP/1.1\r\n", &head[..], b"\r\n\r\n"].concat(), true);
            let _ = is_address(&String::from_utf8_lossy(&head));
        }
    }
}
