//! The crates `stack` and `stack-runtime` as a contender: a host in a thread of its own at a TUN device with offloads, a
//! thread for each connection, sockets that block.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

use linux::tun::Kind;
use stack_runtime::device::kernel;
use stack_runtime::{Options, Stack, TcpListener};
use wire::ethernet::MacAddress;

use super::load::{SINK, SOURCE};
use super::{scene, server};
use lab::Error;

/// Runs until `stop` is set.
///
/// # Errors
/// When there is no device or no port.
pub(super) fn run(stop: &AtomicBool) -> Result<(), Error> {
    let failed = |source| Error::system("the host stack at a TUN device", source);
    // Packets of IP have no addresses of a link.
    let device = kernel::open(scene::DEVICE, Kind::Ip, MacAddress([0; 6])).map_err(failed)?;
    let device = device.with_offloads().map_err(failed)?;
    let options = Options { routers: false, duplicate_transmits: 0, ..Options::new(scene::DEVICE) };
    let stack = Stack::start(device, options).map_err(failed)?;
    let address: Ipv6Addr = scene::ADDRESS.parse().map_err(|error| Error::output("address", error))?;
    stack.with(|now, host| host.interface_mut().add_address(now, address, 64)).map_err(failed)?;
    for port in [SINK, SOURCE] {
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let listener = TcpListener::bind(&stack, any).map_err(failed)?;
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                std::thread::spawn(move || server::serve(stream, port));
            }
        });
    }
    server::wait(stop);
    Ok(())
}
