//! `http --serve`: the files of a folder (RFC 9110, RFC 9112): GET and HEAD, and PUT where that is allowed. One request for
//! each connection, one thread for each.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::Ipv6Addr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use stack::ipsec::Ipsec;
use stack_runtime::{Stack, TcpListener, TcpOptions, TcpStream};

use super::http::{Length, body_length, broken, copy, copy_chunks, read_head};

/// Clients at once; others wait to be accepted, or try again.
const MAX_CLIENTS: usize = 1024;
/// Connections that wait to be accepted.
const BACKLOG: usize = 1024;
/// A client that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(30);
const MAX_FIELDS: usize = 64;

/// Serves until the stack ends.
pub(super) fn serve(stack: &Stack<Ipsec>, port: u16, folder: &Path, writable: bool) -> io::Result<()> {
    let about = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    let folder: Arc<Path> = folder.canonicalize().map_err(about)?.into();
    let local = (Ipv6Addr::UNSPECIFIED, port).into();
    let listener = TcpListener::bind_with(stack, local, &TcpOptions::default(), BACKLOG)?;
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        while clients.load(Ordering::Acquire) >= MAX_CLIENTS {
            std::thread::sleep(Duration::from_millis(10));
        }
        let (stream, from) = listener.accept()?;
        clients.fetch_add(1, Ordering::AcqRel);
        let (folder, client) = (Arc::clone(&folder), Client(Arc::clone(&clients)));
        let started = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            let _client = client;
            if let Err(error) = answer(&stream, &folder, writable) {
                let _ = writeln!(io::stderr(), "{from}: {error}");
            }
        });
        if let Err(error) = started {
            // This one is closed; later ones may find room.
            let _ = writeln!(io::stderr(), "{from}: {error}");
        }
    }
}

/// Counts a client as long as it is there.
struct Client(Arc<AtomicUsize>);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
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

fn answer(stream: &TcpStream<Ipsec>, folder: &Path, writable: bool) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE));
    stream.set_write_timeout(Some(PATIENCE));
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    let head = match read_head(&mut reader) {
        // Somebody who has only looked whether a server is here.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
        head => head?,
    };
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
fn store(
    reader: &mut BufReader<&TcpStream<Ipsec>>,
    length: Length,
    path: &Path,
    folder: &Path,
) -> io::Result<()> {
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
