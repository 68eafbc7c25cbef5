//! What the client does: one connection of the kernel's, in one direction, for so long.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lab::Error;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;

/// Where the contender takes and forgets.
pub(crate) const SINK: u16 = 9000;
/// Where the contender gives without end.
pub(crate) const SOURCE: u16 = 9001;
/// Silence after which a connection is given up.
const PATIENCE: Duration = Duration::from_secs(20);
/// A send buffer of the kernel's may hold megabytes when the time is over, and a link that loses carry few of them.
const DRAIN: Duration = Duration::from_secs(120);
const CHUNK: usize = 256 * 1024;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the client to the contender.
    To,
    /// From the contender to the client.
    From,
}

impl Direction {
    pub(crate) const ALL: [Self; 2] = [Self::To, Self::From];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::To => "receiving",
            Self::From => "sending",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::To => SINK,
            Self::From => SOURCE,
        }
    }
}

/// Carries data for so long, and returns Mbit/s.
///
/// # Errors
/// When there is no connection, or it stands still.
pub(crate) fn carry(address: std::net::IpAddr, direction: Direction, length: Duration) -> Result<f64, Error> {
    let failed = |source| Error::system("a connection to the contender", source);
    let to = SocketAddr::new(address, direction.port());
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).map_err(failed)?;
    use_cubic(&stream)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut chunk = vec![0x5a; CHUNK];
    let begun = Instant::now();
    let mut carried = 0;
    while begun.elapsed() < length {
        carried += match direction {
            Direction::To => stream.write(&chunk).map_err(failed)?,
            Direction::From => stream.read(&mut chunk).map_err(failed)?,
        };
    }
    if direction == Direction::To {
        // What was written may not have arrived: the contender ends the connection when it has read all of it.
        stream.shutdown(std::net::Shutdown::Write).map_err(failed)?;
        stream.set_read_timeout(Some(DRAIN)).map_err(failed)?;
        while stream.read(&mut chunk).map_err(failed)? > 0 {}
    }
    Ok(carried as f64 * 8.0 / 1e6 / begun.elapsed().as_secs_f64())
}

/// As all contenders do; some systems have another by default, and do not let a namespace change it.
///
/// # Errors
/// When the kernel has none.
pub(super) fn use_cubic(socket: &impl AsFd) -> Result<(), Error> {
    setsockopt(socket, TcpCongestion, &OsString::from("cubic"))
        .map_err(|errno| Error::system("congestion control cubic", errno))
}
