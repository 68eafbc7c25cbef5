//! `http --serve`: the files of a folder (RFC 9110, RFC 9112): GET and HEAD, and PUT where that is allowed. One request for
//! each connection. One thread waits for requests, a few answer them; [`super::http_clients`] has the bounds.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use stack::ipsec::Ipsec;
use stack_runtime::{Stack, TcpListener, TcpOptions, TcpStream};

use super::http_clients::{Client, MAX_ANSWERED, Network, Number, Ready, Requests, Waiting};
use super::http_message::{Length, MAX_FIELDS, body_length, broken, copy, copy_chunks, read_head};

/// Connections that wait to be accepted.
const BACKLOG: usize = 1024;
/// Of these, before it is heard what others have to say.
const ACCEPTED_AT_ONCE: usize = 64;
/// No head of a request is longer: many wait at once.
const LONGEST_HEAD: usize = 8 * 1024;
/// A client that says nothing for so long while it is answered is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// The listener, among the numbers of connections.
const LISTENER: Number = 0;

/// A request.
struct Request {
    stream: TcpStream<Ipsec>,
    from: SocketAddr,
    /// Its head, and what has come behind it.
    octets: Vec<u8>,
}

/// A connection, and who is at its other end.
type Connection = (TcpStream<Ipsec>, SocketAddr);

/// Serves until the stack ends.
pub(super) fn serve(stack: &Stack<Ipsec>, port: u16, folder: &Path, writable: bool) -> io::Result<()> {
    let about = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    let folder: Arc<Path> = folder.canonicalize().map_err(about)?.into();
    let local = (Ipv6Addr::UNSPECIFIED, port).into();
    let listener = TcpListener::bind_with(stack, local, &TcpOptions::default(), BACKLOG)?;
    let requests = Arc::new(Requests::new());
    for _ in 0..MAX_ANSWERED {
        let (folder, requests) = (Arc::clone(&folder), Arc::clone(&requests));
        std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            loop {
                let (network, request): (Network, Request) = requests.next();
                if let Err(error) = answer(&request, &folder, writable) {
                    let _ = writeln!(io::stderr(), "{}: {error}", request.from);
                }
                drop(request);
                requests.done(network);
            }
        })?;
    }
    wait_for_requests(&listener, &requests)
}

/// Hears all who have connected, until they have asked.
fn wait_for_requests(listener: &TcpListener<Ipsec>, requests: &Requests<Request>) -> io::Result<()> {
    let ready = Arc::new(Ready::default());
    let mut waiting: Waiting<Connection> = Waiting::new();
    let accepting = ready.waker(LISTENER);
    ready.add(LISTENER);
    loop {
        'news: for number in ready.take(waiting.deadline()) {
            if number == LISTENER {
                for _ in 0..ACCEPTED_AT_ONCE {
                    let Poll::Ready(accepted) = listener.poll_accept(&mut Context::from_waker(&accepting))
                    else {
                        continue 'news;
                    };
                    let (stream, from) = accepted?;
                    let network = Network::of(from.ip());
                    let number = waiting.admit(Instant::now(), network, (stream, from), &ready);
                    hear(&mut waiting, number, requests);
                }
                ready.add(LISTENER);
            } else {
                hear(&mut waiting, number, requests);
            }
        }
        waiting.expire(Instant::now());
    }
}

/// What one has to say: until its request is complete, it is waited for.
fn hear(waiting: &mut Waiting<Connection>, number: Number, requests: &Requests<Request>) {
    // One that has given way, or whose time was over.
    let Some(client) = waiting.get_mut(number) else { return };
    let heard = take_head(client);
    if heard.is_pending() {
        return;
    }
    let Some(Client { connection: (stream, from), network, head, .. }) = waiting.remove(number) else {
        return;
    };
    if heard == Poll::Ready(true) {
        requests.add(network, Request { stream, from, octets: head });
    }
}

/// Takes what has arrived. Whether there is a request to answer; false: the client has gone.
fn take_head(client: &mut Client<Connection>) -> Poll<bool> {
    let mut piece = [0; 4096];
    loop {
        let (stream, _) = &client.connection;
        let read = stream.poll_read(&mut Context::from_waker(&client.waker), &mut piece);
        let length = match read {
            Poll::Pending => return Poll::Pending,
            // Somebody who has only looked whether a server is here.
            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(false),
            Poll::Ready(Ok(length)) => length,
        };
        client.head.extend_from_slice(&piece[..length]);
        let may_end = piece[..length].contains(&b'\n');
        // A head that is too long is no request, which is what the client is told.
        if may_end && read_head(&mut &client.head[..]).is_ok() || client.head.len() > LONGEST_HEAD {
            return Poll::Ready(true);
        }
    }
}

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    method: String,
    path: String,
    length: Option<Length>,
    expects_continue: bool,
}

fn answer(request: &Request, folder: &Path, writable: bool) -> io::Result<()> {
    let stream = &request.stream;
    stream.set_read_timeout(Some(PATIENCE));
    stream.set_write_timeout(Some(PATIENCE));
    let mut octets = &request.octets[..];
    let Ok(head) = read_head(&mut octets) else {
        return finish(stream, 400, None, true);
    };
    let mut reader = octets.chain(BufReader::with_capacity(1 << 16, stream));
    let Ok(wanted) = parse(&head) else {
        return finish(stream, 400, None, true);
    };
    match wanted.method.as_str() {
        "GET" | "HEAD" => {
            let file = inside(folder, &wanted.path).and_then(|path| open(&path, folder));
            match file {
                Ok(file) => finish(stream, 200, Some(file), wanted.method == "GET"),
                Err(error) => finish(stream, status_of(&error), None, true),
            }
        }
        "PUT" if writable => {
            let Some(length) = wanted.length else { return finish(stream, 411, None, true) };
            if wanted.expects_continue {
                (&mut &*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            match inside(folder, &wanted.path).and_then(|path| store(&mut reader, length, &path, folder)) {
                Ok(()) => finish(stream, 201, None, true),
                Err(error) => finish(stream, status_of(&error), None, true),
            }
        }
        _ => finish(stream, 405, None, true),
    }
}

fn parse(head: &[u8]) -> io::Result<Wanted> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        _ => return Err(broken("no request of HTTP/1.1")),
    }
    let (Some(method), Some(path)) = (request.method, request.path) else { return Err(broken("no request")) };
    let (method, path) = (method.to_owned(), path.to_owned());
    let expects_continue = request.headers.iter().any(|field| {
        field.name.eq_ignore_ascii_case("expect") && field.value.eq_ignore_ascii_case(b"100-continue")
    });
    Ok(Wanted { method, path, length: body_length(request.headers)?, expects_continue })
}

/// The file that a path of a URL names; nothing outside of the folder.
fn inside(folder: &Path, path: &str) -> io::Result<PathBuf> {
    let path = path.split('?').next().unwrap_or_default().trim_start_matches('/');
    let is_plain = |component: Component<'_>| matches!(component, Component::Normal(_));
    let relative = Path::new(path);
    if path.is_empty() || path.contains('%') || !relative.components().all(is_plain) {
        return Err(ErrorKind::NotFound.into());
    }
    Ok(folder.join(relative))
}

fn open(path: &Path, folder: &Path) -> io::Result<File> {
    let real = path.canonicalize()?;
    let metadata = real.metadata()?;
    // Neither what a link leads to outside, nor something that a read could wait for.
    if !real.starts_with(folder) || !metadata.is_file() {
        return Err(ErrorKind::NotFound.into());
    }
    File::open(real)
}

/// Writes a body beside the file, then puts it in its place: nobody sees half of it.
fn store(reader: &mut impl BufRead, length: Length, path: &Path, folder: &Path) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let parent = path.parent().ok_or(ErrorKind::NotFound)?.canonicalize()?;
    if !parent.starts_with(folder) || path.is_dir() {
        return Err(ErrorKind::NotFound.into());
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let part = parent.join(format!(".sidestep-{}-{number}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&part)?;
    let copied = match length {
        Length::Chunked => copy_chunks(reader, &mut file),
        Length::Known(length) => match copy(&mut reader.take(length), &mut file) {
            Ok(got) if got < length => Err(broken("the body ends early")),
            other => other.map(drop),
        },
        Length::ToTheEnd => Err(broken("a request has a length")),
    };
    let placed = copied.and_then(|()| std::fs::rename(&part, path));
    if placed.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    placed
}

fn status_of(error: &io::Error) -> u16 {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => 404,
        ErrorKind::PermissionDenied => 403,
        ErrorKind::InvalidData => 400,
        _ => 500,
    }
}

/// Sends an answer, and waits until the client has it.
fn finish(stream: &TcpStream<Ipsec>, status: u16, file: Option<File>, with_body: bool) -> io::Result<()> {
    let reason = match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        _ => "Internal Server Error",
    };
    let length = match &file {
        Some(file) => file.metadata()?.len(),
        None => 0,
    };
    let mut writer = stream;
    let head = format!("HTTP/1.1 {status} {reason}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    writer.write_all(head.as_bytes())?;
    if let Some(file) = file.filter(|_| with_body) {
        // No more than was said, if it grows meanwhile.
        if copy(&mut file.take(length), &mut writer)? < length {
            return Err(broken("the file has become shorter while it was sent"));
        }
    }
    stream.finish(PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_of_the_folder_has_a_name() {
        let folder = Path::new("/srv");
        assert_eq!(inside(folder, "/a/b.txt?x").unwrap(), Path::new("/srv/a/b.txt"));
        for wrong in ["/", "/../etc/passwd", "/a/../../etc/passwd", "/%2e%2e/etc/passwd", "//", ""] {
            let result = inside(folder, wrong);
            assert!(
                result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound),
                "{wrong} {result:?}"
            );
        }
        assert!(inside(folder, "//etc/passwd").unwrap().starts_with("/srv"));
    }

    #[test]
    fn a_link_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("link")).unwrap();
        std::fs::write(folder.join("file"), "text").unwrap();
        assert!(open(&folder.join("link"), &folder).is_err());
        assert!(open(&folder, &folder).is_err());
        assert!(open(&folder.join("file"), &folder).is_ok());
    }

    #[test]
    fn a_request_says_what_it_wants() {
        let wanted = parse(b"PUT /a HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n").unwrap();
        assert_eq!(
            wanted,
            Wanted {
                method: "PUT".into(),
                path: "/a".into(),
                length: Some(Length::Known(3)),
                expects_continue: true
            }
        );
        assert!(parse(b"nonsense\r\n\r\n").is_err());
    }
}
