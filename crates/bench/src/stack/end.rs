//! The contenders' end, as a process: it takes at [`SINK`], and gives at [`SOURCE`].

use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::contender::StackContender;
use super::load::{self, Direction, SINK, SOURCE};
use super::{device, ours, runner, smoltcp};
use lab::Error;

/// How often it is looked for a stop.
const IDLE: Duration = Duration::from_millis(200);
const CHUNK: usize = 256 * 1024;

/// Runs a contender until `stop` is set.
///
/// # Errors
/// When it has no device or no port.
pub(crate) fn run(contender: StackContender, stop: &AtomicBool) -> Result<(), Error> {
    match contender {
        StackContender::Kernel => kernel(stop),
        StackContender::Sidestep => runner::run(stop),
        StackContender::SidestepSingle => device::run(&mut ours::Ours::new()?, stop),
        StackContender::Gvisor => Err(Error::Usage("gVisor is a program of its own".into())),
        StackContender::Smoltcp => device::run(&mut smoltcp::Smoltcp::new(), stop),
    }
}

/// What the client does, for `sidestep-lab stack-load`.
///
/// # Errors
/// When there is no connection.
pub(crate) fn load(to: bool, address: std::net::IpAddr, seconds: u64) -> Result<f64, Error> {
    let direction = if to { Direction::To } else { Direction::From };
    load::carry(address, direction, Duration::from_secs(seconds))
}

fn kernel(stop: &AtomicBool) -> Result<(), Error> {
    let failed = |source| Error::system("a port of the kernel's", source);
    for port in [SINK, SOURCE] {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).map_err(failed)?;
        load::use_cubic(&listener)?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, port));
            }
        });
    }
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(IDLE);
    }
    Ok(())
}

/// Until the client ends it.
fn serve(mut stream: TcpStream, port: u16) {
    let mut chunk = vec![0x5a; CHUNK];
    if port == SINK {
        while stream.read(&mut chunk).is_ok_and(|length| length > 0) {}
    } else {
        while stream.write_all(&chunk).is_ok() {}
    }
}
