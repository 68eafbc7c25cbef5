//! `http`: HTTP/1.1 (RFC 9112), as a client; [`super::http_server`] is the server. One request for each connection.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use stack::ipsec::Ipsec;
use stack_runtime::{TcpOptions, TcpStream};

use super::http_message::{Length, MAX_FIELDS, body_length, broken, copy, copy_chunks, read_head};
use super::http_server;
use super::options::{HostOptions, connect, reachable_by};
use crate::failure::Failure;

/// How long a connection may take to come about, and an answer to go on.
const PATIENCE: Duration = Duration::from_secs(60);

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
            // A signal is how a server ends.
            let running = options.host.start_until_signal(0)?;
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
    let running = options.host.start_until_signal(1)?;
    let stream = connect(&running.stack, url.to, &TcpOptions::default(), PATIENCE)?;
    let is_good = |status: &u16| (200..300).contains(status);
    let status = match &options.output {
        Some(path) => {
            let receive = |file: &mut File| exchange(&stream, url, body, file);
            fill(path, receive, is_good).map_err(|error| about(path, error))?
        }
        None => {
            let mut stdout = io::stdout().lock();
            let status = exchange(&stream, url, body, &mut stdout)?;
            stdout.flush()?;
            status
        }
    };
    if is_good(&status) {
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
        if to.port() == 0 {
            return Err(format!("{authority}: not a port: expected 1 to 65535"));
        }
        if path.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err("a space or another character that a URL does not have".to_owned());
        }
        Ok(Url { to, authority: authority.to_owned(), path: path.to_owned() })
    }
}

/// Fills a file that takes its name when it is whole and good: what was there stays until then. What is no file, such as a
/// pipe, is written to at once.
fn fill(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<u16>,
    is_good: impl FnOnce(&u16) -> bool,
) -> io::Result<u16> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return fill(&mut OpenOptions::new().write(true).open(path)?);
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".part-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&part)?;
    let filled = fill(&mut file).and_then(|status| {
        if is_good(&status) {
            std::fs::rename(&part, path)?;
        } else {
            std::fs::remove_file(&part)?;
        }
        Ok(status)
    });
    if filled.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    filled
}

/// Sends a request, writes what the answer holds, and returns its status.
fn exchange(
    stream: &TcpStream<Ipsec>,
    url: &Url,
    body: Option<(&str, File)>,
    output: &mut dyn Write,
) -> io::Result<u16> {
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
    let mut writer = stream;
    writer.write_all(head.as_bytes())?;
    if let Some((_, mut file)) = body {
        copy(&mut file, &mut writer)?;
    }
    let mut reader = BufReader::with_capacity(1 << 16, stream);
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
    fn a_file_is_replaced_by_a_whole_one_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "before").unwrap();
        let fill = |result: io::Result<u16>| {
            let write = |file: &mut File| file.write_all(b"half").and(result);
            super::fill(&path, write, |status| *status == 200)
        };
        assert!(fill(Err(broken("it ends early"))).is_err());
        assert_eq!(fill(Ok(404)).unwrap(), 404);
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        assert_eq!(fill(Ok(200)).unwrap(), 200);
        assert_eq!(std::fs::read(&path).unwrap(), b"half");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
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

    proptest! {
        #[test]
        fn never_panics(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_answer(&mut &octets[..]);
        }
    }
}
