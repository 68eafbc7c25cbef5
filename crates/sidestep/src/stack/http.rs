//! `http`: HTTP/1.1 (RFC 9112), as a client; [`super::http_server`] is the server. One request for each connection.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use stack::ipsec::Ipsec;
use stack_runtime::{Stack, TcpOptions, TcpStream};

use super::http_server;
use super::options::{HostOptions, reachable_by};
use crate::failure::Failure;

/// How long a connection may take to come about, and an answer to go on.
const PATIENCE: Duration = Duration::from_secs(60);
/// No head is longer.
const LONGEST_HEAD: u64 = 32 * 1024;
/// No head has more fields.
const MAX_FIELDS: usize = 64;

/// Options of `http`.
#[derive(Debug, Args)]
pub(crate) struct HttpOptions {
    #[command(flatten)]
    host: HostOptions,
    /// What to fetch, or where to send to: http://[ADDRESS]:PORT/PATH
    #[arg(value_parser = Url::parse, required_unless_present = "serve", conflicts_with = "serve")]
    url: Option<Url>,
    /// Write it to a file, not to standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "serve")]
    output: Option<PathBuf>,
    /// Send a file by PUT
    #[arg(long, value_name = "FILE", conflicts_with_all = ["post", "serve"])]
    put: Option<PathBuf>,
    /// Send a file by POST
    #[arg(long, value_name = "FILE", conflicts_with = "serve")]
    post: Option<PathBuf>,
    /// Serve the files of a folder
    #[arg(long, value_name = "DIR")]
    serve: Option<PathBuf>,
    /// The port to serve at
    #[arg(long, value_name = "PORT", default_value_t = 80, requires = "serve", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Let others put files there, too, in place of what is there
    #[arg(long, requires = "serve")]
    writable: bool,
}

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Url {
    to: SocketAddr,
    /// As the Host field has it.
    authority: String,
    path: String,
}

/// Does it.
pub(crate) fn run(options: &HttpOptions) -> Result<ExitCode, Failure> {
    let Some(url) = &options.url else {
        if let Some(folder) = &options.serve {
            let running = options.host.start()?;
            http_server::serve(&running.stack, options.port, folder, options.writable)?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    reachable_by(url.to.ip(), &options.host)?;
    let about = |path: &PathBuf, error: io::Error| Failure::Message(format!("{}: {error}", path.display()));
    let body = match (&options.put, &options.post) {
        (Some(path), _) => Some(("PUT", path)),
        (None, Some(path)) => Some(("POST", path)),
        (None, None) => None,
    };
    let body = match body {
        Some((method, path)) => Some((method, File::open(path).map_err(|error| about(path, error))?)),
        None => None,
    };
    let running = options.host.start()?;
    let mut output: Box<dyn Write> = match &options.output {
        Some(path) => Box::new(File::create(path).map_err(|error| about(path, error))?),
        None => Box::new(io::stdout().lock()),
    };
    let status = exchange(&running.stack, url, body, &mut output)?;
    output.flush()?;
    if (200..300).contains(&status) {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::Message(format!("http://{}{}: the server answers {status}", url.authority, url.path)))
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("http://").ok_or("expected http://[ADDRESS]:PORT/PATH")?;
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let bare = |address: &str| address.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let to =
            authority.parse::<SocketAddr>().or_else(|_| bare(authority).map(|address| (address, 80).into()));
        let to = to.map_err(|_| format!("{authority}: not an address; names are not looked up"))?;
        if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("a space or another character that a URL does not have".to_owned());
        }
        Ok(Url { to, authority: authority.to_owned(), path: path.to_owned() })
    }
}

/// Sends a request, writes what the answer holds, and returns its status.
fn exchange(
    stack: &Stack<Ipsec>,
    url: &Url,
    body: Option<(&str, File)>,
    output: &mut dyn Write,
) -> io::Result<u16> {
    let stream = TcpStream::connect_with(stack, url.to, &TcpOptions::default(), Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE));
    stream.set_write_timeout(Some(PATIENCE));
    let method = body.as_ref().map_or("GET", |(method, _)| method);
    let mut head = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: sidestep\r\nAccept: */*\r\nConnection: close\r\n",
        url.path, url.authority
    );
    if let Some((_, file)) = &body {
        head += &format!("Content-Length: {}\r\n", file.metadata()?.len());
    }
    head += "\r\n";
    let mut writer = &stream;
    writer.write_all(head.as_bytes())?;
    if let Some((_, mut file)) = body {
        copy(&mut file, &mut writer)?;
    }
    let mut reader = BufReader::with_capacity(1 << 16, &stream);
    let answer = loop {
        let answer = read_answer(&mut reader)?;
        if answer.status >= 200 {
            break answer;
        }
    };
    match answer.length {
        _ if answer.status == 204 || answer.status == 304 => {}
        Length::Chunked => copy_chunks(&mut reader, output)?,
        Length::Known(length) => {
            let got = copy(&mut (&mut reader).take(length), output)?;
            if got < length {
                return Err(broken("the answer ends early"));
            }
        }
        Length::ToTheEnd => drop(copy(&mut reader, output)?),
    }
    Ok(answer.status)
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Known(u64),
    Chunked,
    ToTheEnd,
}

/// The head of an answer.
struct Answer {
    status: u16,
    length: Length,
}

fn read_answer(reader: &mut impl BufRead) -> io::Result<Answer> {
    let head = read_head(reader)?;
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut answer = httparse::Response::new(&mut fields);
    match answer.parse(&head) {
        Ok(httparse::Status::Complete(_)) => {}
        _ => return Err(broken("the server does not answer in HTTP/1.1")),
    }
    let status = answer.code.ok_or_else(|| broken("an answer without a status"))?;
    let length = body_length(answer.headers)?.unwrap_or(Length::ToTheEnd);
    Ok(Answer { status, length })
}

/// Up to the empty line after the fields.
pub(super) fn read_head(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        let before = head.len();
        let left = LONGEST_HEAD - before as u64;
        let length = reader.take(left).read_until(b'\n', &mut head)?;
        if length == 0 {
            return Err(if left == 0 {
                broken("a head that is too long")
            } else {
                ErrorKind::UnexpectedEof.into()
            });
        }
        if matches!(&head[before..], b"\n" | b"\r\n") && before > 0 {
            return Ok(head);
        }
    }
}

/// What the fields say of the body's length (RFC 9112 §6.3).
pub(super) fn body_length(fields: &[httparse::Header<'_>]) -> io::Result<Option<Length>> {
    let mut length = None;
    for field in fields {
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(broken("a transfer coding other than chunked"));
            }
            // It overrides a length.
            return Ok(Some(Length::Chunked));
        }
        if field.name.eq_ignore_ascii_case("content-length") {
            let said = value.parse().map_err(|_| broken("a length that is no number"))?;
            if length.is_some_and(|before| before != Length::Known(said)) {
                return Err(broken("two lengths"));
            }
            length = Some(Length::Known(said));
        }
    }
    Ok(length)
}

/// Copies a body in chunks (RFC 9112 §7.1).
pub(super) fn copy_chunks(reader: &mut impl BufRead, output: &mut dyn Write) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut *reader).take(1024).read_until(b'\n', &mut line)?;
        let size = match httparse::parse_chunk_size(&line) {
            Ok(httparse::Status::Complete((_, size))) => size,
            _ => return Err(broken("a chunk without a size")),
        };
        if size == 0 {
            // What trails is of no use here.
            return Ok(());
        }
        if copy(&mut (&mut *reader).take(size), output)? < size {
            return Err(broken("the body ends early"));
        }
        line.clear();
        (&mut *reader).take(2).read_until(b'\n', &mut line)?;
        if line != b"\r\n" {
            return Err(broken("a chunk that does not end"));
        }
    }
}

/// As [`io::copy`], in larger pieces.
pub(super) fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(total),
            length => {
                to.write_all(&buffer[..length])?;
                total += length as u64;
            }
        }
    }
}

pub(super) fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_url_is_an_address_a_port_and_a_path() {
        let url = Url::parse("http://[2001:db8::1]:8000/a/b?c").unwrap();
        assert_eq!(url.to, "[2001:db8::1]:8000".parse().unwrap());
        assert_eq!((&url.authority[..], &url.path[..]), ("[2001:db8::1]:8000", "/a/b?c"));
        assert_eq!(Url::parse("http://192.0.2.1").unwrap().to, "192.0.2.1:80".parse().unwrap());
        for wrong in ["https://[::1]/", "http://example.com/", "http://[::1]/a b", "[::1]", "http://[::1]:x/"]
        {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let length = |text: &str| read_answer(&mut text.as_bytes()).map(|answer| answer.length);
        let known = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(length(known).unwrap(), Length::Known(5));
        let chunked = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(length(chunked).unwrap(), Length::Chunked);
        assert_eq!(length("HTTP/1.0 200 OK\r\n\r\n").unwrap(), Length::ToTheEnd);
        for wrong in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "hello\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
        ] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
        assert!(length(&format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(40_000))).is_err());
    }

    #[test]
    fn chunks_become_a_body() {
        let body = |text: &str| {
            let mut body = Vec::new();
            copy_chunks(&mut text.as_bytes(), &mut body).map(|()| body)
        };
        assert_eq!(body("3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n").unwrap(), b"abcde");
        for wrong in ["3\r\nab", "x\r\n", "3\r\nabcd\r\n0\r\n\r\n", ""] {
            assert!(body(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_answer(&mut &octets[..]);
            let _ = copy_chunks(&mut &octets[..], &mut io::sink());
        }
    }
}
