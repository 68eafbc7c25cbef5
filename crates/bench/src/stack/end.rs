//! The contenders' end, as a process: it takes at [`SINK`], and gives at [`SOURCE`].

use std::net::{Ipv6Addr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::contender::StackContender;
use super::load::{self, Direction, SINK, SOURCE};
use super::{device, ours, runner, server, smoltcp};
use lab::Error;

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
                std::thread::spawn(move || server::serve(stream, port));
            }
        });
    }
    server::wait(stop);
    Ok(())
}
