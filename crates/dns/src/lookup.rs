//! Looking a name up at the machine's servers: a question by UDP, and what comes back. It blocks, so it is for threads that have
//! nothing else to do.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::message::{Answer, Found, Kind, Records, answer, question};

/// Where a machine's servers are written down (resolv.conf(5)).
const FILE: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// Servers that are asked, each so often, and for how long each time: seven seconds in all at the most.
const SERVERS: usize = 3;
const ROUNDS: usize = 2;
const PATIENCE: Duration = Duration::from_millis(1_100);
/// Of an answer; none without EDNS is longer (RFC 1035 section 4.2.1).
const LONGEST: usize = 512;
/// Records that are looked at, where not all of them count.
const RECORDS: usize = 4;
/// Datagrams that fit no question, after which it is asked anew, with another number and port: who guesses these has few tries.
const JUNK: usize = 16;

/// Why a name tells nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// It cannot be a name.
    #[error("it is no name")]
    NoName,
    /// None has answered.
    #[error("no name server answers: {0}")]
    NoAnswer(String),
    /// Those that have cannot tell.
    #[error("the name server cannot tell (code {0})")]
    Failed(u16),
    /// There are records, but a datagram has no room for them.
    #[error("the answer does not fit a datagram: have fewer records under that name")]
    TooLong,
    /// There is no such name.
    #[error("there is no such name")]
    NoSuchName,
    /// The name has no such record.
    #[error("the name has no {} record", .0.name())]
    NoRecord(Kind),
}

/// Asks the machine's servers, one after the other.
///
/// # Errors
/// If none of them has an answer, or that is that there is nothing.
pub fn lookup(name: &str, kind: Kind) -> Result<Vec<Found>, LookupError> {
    lookup_at(name, kind, &servers(Path::new(FILE)))
}

/// Asks these servers, one after the other: three at the most.
///
/// # Errors
/// If none of them has an answer, or that is that there is nothing.
pub fn lookup_at(name: &str, kind: Kind, servers: &[SocketAddr]) -> Result<Vec<Found>, LookupError> {
    let mut found = lookup_by(name, kind, servers, any_port)?.found;
    found.truncate(RECORDS);
    Ok(found)
}

/// Asks these servers, one after the other, three at the most, each from a socket that is `open`ed for it, bound to a port that
/// the kernel draws. All records count.
///
/// # Errors
/// If none of them has an answer, or that is that there is nothing.
pub fn lookup_by(
    name: &str,
    kind: Kind,
    servers: &[SocketAddr],
    open: impl Fn(SocketAddr) -> io::Result<UdpSocket>,
) -> Result<Records, LookupError> {
    let mut failed = None;
    for server in std::iter::repeat_n(&servers[..servers.len().min(SERVERS)], ROUNDS).flatten() {
        match open(*server).and_then(|socket| ask(name, kind, &socket, *server)) {
            Ok(Some(Answer::Found(records))) if records.found.is_empty() => {
                return Err(LookupError::NoRecord(kind));
            }
            Ok(Some(Answer::Found(records))) => return Ok(records),
            Ok(Some(Answer::TooLong)) => return Err(LookupError::TooLong),
            Ok(Some(Answer::NoSuchName)) => return Err(LookupError::NoSuchName),
            Ok(Some(Answer::Failed(code))) => failed = Some(LookupError::Failed(code)),
            Ok(None) => return Err(LookupError::NoName),
            Err(error) => {
                failed.get_or_insert(LookupError::NoAnswer(format!("{}: {error}", server.ip())));
            }
        }
    }
    Err(failed.unwrap_or_else(|| LookupError::NoAnswer("there is none".to_owned())))
}

/// A socket for a server, wherever the kernel sends what is for it.
fn any_port(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if server.is_ipv6() { [0u16; 8].into() } else { [0u8; 4].into() };
    UdpSocket::bind((any, 0))
}

/// Asks one server. None if that is no name.
fn ask(name: &str, kind: Kind, socket: &UdpSocket, server: SocketAddr) -> io::Result<Option<Answer>> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
    let id = u16::from_be_bytes(id);
    let Some(question) = question(id, name, kind) else { return Ok(None) };
    // Only what this server sends comes to the port.
    socket.connect(server)?;
    socket.send(&question)?;
    let end = Instant::now() + PATIENCE;
    let mut buffer = [0; LONGEST];
    for _ in 0..=JUNK {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(length) => {
                if let Some(answer) = answer(&buffer[..length], id, name, kind) {
                    return Ok(Some(answer));
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("what comes from there fits no question"))
}

/// The servers in a file; the machine itself, where it names none (resolv.conf(5)).
fn servers(file: &Path) -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let named: Vec<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|server| address(server.trim()))
        .take(SERVERS)
        .collect();
    if named.is_empty() { vec![([127, 0, 0, 1], PORT).into()] } else { named }
}

/// An address, which may have a scope.
fn address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address, PORT).into());
    }
    format!("[{text}]:{PORT}").parse::<SocketAddrV6>().ok().map(SocketAddr::V6)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::thread;

    use super::*;
    use crate::message::tests::reply;

    /// A server that says this to each question, and where it is.
    fn server(say: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                for answer in say(&buffer[..length]) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        address
    }

    #[test]
    fn the_second_server_is_asked_where_the_first_has_no_answer_and_junk_is_passed_over() {
        let found = vec![Found::Address("2001:db8:b1::1".parse().unwrap())];
        let silent = server(|_| vec![]);
        let failing = server(|question| {
            let mut failed = reply(question, &[]);
            failed[3] = failed[3] & 0xf0 | 2;
            vec![failed]
        });
        let good = {
            let found = found.clone();
            server(move |question| {
                let mut foreign = reply(question, &[]);
                foreign[0] ^= 1;
                vec![b"junk".to_vec(), foreign, reply(question, &found)]
            })
        };
        let ask = |servers: &[SocketAddr]| lookup_at("b.example", Kind::Aaaa, servers);
        assert_eq!(ask(&[silent, good]), Ok(found.clone()));
        assert_eq!(ask(&[failing, good]), Ok(found));
        assert_eq!(ask(&[failing]), Err(LookupError::Failed(2)));
        assert!(matches!(ask(&[silent]), Err(LookupError::NoAnswer(_))));
        assert_eq!(lookup_at("b..example", Kind::Aaaa, &[good]), Err(LookupError::NoName));
        let nothing = server(|question| vec![reply(question, &[])]);
        assert_eq!(ask(&[nothing]), Err(LookupError::NoRecord(Kind::Aaaa)));
    }

    /// Who guesses the number of a question has few tries for each, and the right one behind them is not heard.
    #[test]
    fn a_flood_of_guesses_ends_a_question() {
        let found = vec![Found::Address("2001:db8:bad::1".parse().unwrap())];
        let flooding = {
            let found = found.clone();
            server(move |question| {
                let guess = |number: u16| {
                    let mut guess = reply(question, &found);
                    for (byte, wrong) in guess.iter_mut().zip(number.to_be_bytes()) {
                        *byte ^= wrong;
                    }
                    guess
                };
                (1..100).map(guess).chain([reply(question, &found)]).collect()
            })
        };
        let asked = lookup_at("b.example", Kind::Aaaa, &[flooding]);
        assert!(matches!(asked, Err(LookupError::NoAnswer(_))), "{asked:?}");
    }

    #[test]
    fn a_server_that_says_much_is_heard_for_a_little_unless_all_counts() {
        let many: Vec<_> = (0..8).map(|number| Found::Address(Ipv6Addr::from_bits(number))).collect();
        let talking = {
            let many = many.clone();
            server(move |question| vec![reply(question, &many)])
        };
        assert_eq!(lookup_at("b.example", Kind::Aaaa, &[talking]), Ok(many[..RECORDS].to_vec()));
        let all = lookup_by("b.example", Kind::Aaaa, &[talking], any_port).map(|records| records.found);
        assert_eq!(all, Ok(many));
    }

    #[test]
    fn servers_are_those_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("resolv.conf");
        assert_eq!(servers(&file), [([127, 0, 0, 1], 53).into()]);
        std::fs::write(&file, "# none\nsearch example\nnameserver 192.0.2.53\n nameserver\t2001:db8::53\nnameserver x\nnameserver ::1\nnameserver ::2\n").unwrap();
        let expected: Vec<SocketAddr> = ["192.0.2.53:53", "[2001:db8::53]:53", "[::1]:53"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        assert_eq!(servers(&file), expected);
    }
}
