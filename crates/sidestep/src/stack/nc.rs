//! `nc`: standard input and output, connected with a port. The seed's telnet (section 6.3) had its options for security.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ipsec::policy::{Level, Levels};
use stack::ipsec::Ipsec;
use stack_runtime::{Stack, TcpListener, TcpOptions, UdpSocket};

use super::options::{HostOptions, connect, reachable_by};
use crate::failure::Failure;

/// How long the other end may take to acknowledge the last octets.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may take to come about.
const CONNECTING: Duration = Duration::from_secs(60);
/// A datagram of standard input is as much as one read gives, at most.
const LONGEST_DATAGRAM: usize = 8192;

/// Options of `nc`.
#[derive(Debug, Args)]
pub(crate) struct NcOptions {
    #[command(flatten)]
    host: HostOptions,
    /// Who, and which port
    #[arg(
        value_names = ["ADDRESS", "PORT"],
        num_args = 2,
        required_unless_present = "listen",
        conflicts_with = "listen"
    )]
    to: Vec<String>,
    /// Take one connection at this port, or datagrams
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    listen: Option<u16>,
    /// Datagrams in place of a connection
    #[arg(short, long)]
    udp: bool,
    /// Level of AH
    #[arg(long, value_name = "0..3", value_parser = level, default_value = "0")]
    authentication: Level,
    /// Level of ESP in transport mode
    #[arg(long, value_name = "0..3", value_parser = level, default_value = "0")]
    transport_encryption: Level,
    /// Level of ESP in tunnel mode
    #[arg(long, value_name = "0..3", value_parser = level, default_value = "0")]
    tunnel_encryption: Level,
}

fn level(text: &str) -> Result<Level, String> {
    text.parse().ok().and_then(Level::from_number).ok_or_else(|| "expected 0, 1, 2 or 3".to_owned())
}

/// Connects.
pub(crate) fn run(options: &NcOptions) -> Result<(), Failure> {
    let to = match options.to.as_slice() {
        [address, port] => Some(destination(address, port)?),
        _ => None,
    };
    if let Some(to) = to {
        reachable_by(to.ip(), &options.host)?;
    }
    let running = options.host.start_until_signal(1)?;
    let local = SocketAddr::from((Ipv6Addr::UNSPECIFIED, options.listen.unwrap_or(0)));
    if options.udp {
        datagrams(&running.stack, local, to, options.levels())
    } else {
        stream(&running.stack, local, to, options.levels())
    }
    .map_err(Failure::from)
}

fn destination(address: &str, port: &str) -> Result<SocketAddr, Failure> {
    let address: IpAddr = address
        .parse()
        .map_err(|_| Failure::Message(format!("{address}: not an address; names are not looked up")))?;
    match port.parse() {
        Ok(0) | Err(_) => Err(Failure::Message(format!("{port}: not a port: expected 1 to 65535"))),
        Ok(port) => Ok((address, port).into()),
    }
}

impl NcOptions {
    fn levels(&self) -> Levels {
        Levels {
            authentication: self.authentication,
            transport_encryption: self.transport_encryption,
            tunnel_encryption: self.tunnel_encryption,
        }
    }
}

fn stream(stack: &Stack<Ipsec>, local: SocketAddr, to: Option<SocketAddr>, levels: Levels) -> io::Result<()> {
    let options = TcpOptions { levels, ..TcpOptions::default() };
    let stream = match to {
        Some(to) => connect(stack, to, &options, CONNECTING)?,
        None => {
            let (stream, from) = TcpListener::bind_with(stack, local, &options, 1)?.accept()?;
            let _ = writeln!(io::stderr(), "connection from {from}");
            stream
        }
    };
    let sending = stream.clone();
    let sender = std::thread::spawn(move || -> io::Result<()> {
        io::copy(&mut io::stdin().lock(), &mut &sending)?;
        sending.shutdown(Shutdown::Write)
    });
    let mut stdout = io::stdout().lock();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match (&stream).read(&mut buffer)? {
            0 => break,
            length => stdout.write_all(&buffer[..length])?,
        }
        stdout.flush()?;
    }
    // The other end says no more, and may still listen.
    sender.join().unwrap_or(Ok(()))?;
    stream.finish(PATIENCE)
}

fn datagrams(
    stack: &Stack<Ipsec>,
    local: SocketAddr,
    to: Option<SocketAddr>,
    levels: Levels,
) -> io::Result<()> {
    let socket = Arc::new(UdpSocket::bind(stack, local)?);
    socket.set_levels(levels)?;
    let mut data = Vec::new();
    let mut stdout = io::stdout().lock();
    match to {
        Some(to) => socket.connect(to)?,
        None => {
            // Who speaks first is who is spoken to.
            let from = socket.receive(&mut data)?;
            socket.connect(from)?;
            stdout.write_all(&data)?;
            stdout.flush()?;
        }
    }
    let sending = Arc::clone(&socket);
    let sender = std::thread::spawn(move || -> io::Result<()> {
        let mut buffer = vec![0; LONGEST_DATAGRAM];
        loop {
            match io::stdin().lock().read(&mut buffer)? {
                0 => return Ok(()),
                length => sending.send(&buffer[..length])?,
            }
        }
    });
    // What is on its way when standard input ends may still be answered.
    socket.set_read_timeout(Some(Duration::from_secs(1)));
    loop {
        match socket.receive(&mut data) {
            Ok(_) => {
                stdout.write_all(&data)?;
                stdout.flush()?;
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                if sender.is_finished() {
                    return sender.join().unwrap_or(Ok(()));
                }
            }
            Err(error) => return Err(error),
        }
    }
}
