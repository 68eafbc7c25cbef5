//! Two hosts of the stack, each at a TAP device of its own, and a bridge of the kernel's between them:
//!
//! ```text
//!   host a ── TAP a ── bridge ── TAP b ── host b
//! ```
//!
//! Devices have no offloads: each frame is one packet of up to 1500 bytes. Where there are two processors, each host has
//! one, for its runner, its programs and its half of the bridge.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use ipnet::{Ipv4Net, Ipv6Net};
use ipsec::key_engine::KeyEngine;
use ipsec::policy::PolicyDatabase;
use lab::Error;
use lab::namespaces::Namespace;
use linux::netns;
use linux::process::{pin_to_processor, processors};
use linux::tun::Kind;
use stack::ipsec::Ipsec;
use stack::ipv4::Ipv4;
use stack::route::Lifetime;
use stack_runtime::device::kernel::{self, Kernel};
use stack_runtime::{Options, Stack};
use wire::ethernet::MacAddress;

/// That of Ethernet.
const MTU: usize = 1500;
/// The hosts' devices.
const DEVICES: [&str; 2] = ["a", "b"];
const IPV4: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const IPV6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)];

/// The devices and the bridge, gone when dropped.
pub(super) struct Link {
    namespace: Namespace,
}

impl Link {
    pub(super) fn new(prefix: &str) -> Result<Self, Error> {
        let namespace = Namespace::named(format!("{prefix}-section7"));
        namespace.delete()?;
        namespace.create()?;
        let link = Self { namespace };
        // The kernel carries frames, and is not a host of that link itself.
        link.namespace.sysctl(&[("ipv6/conf/default/disable_ipv6", 1)])?;
        // A kernel without filters for bridges has no such parameter.
        for filter in ["bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"] {
            let _ = link.namespace.sysctl(&[(filter, 0)]);
        }
        let mut lines =
            "link add name bridge type bridge mcast_snooping 0\nlink set dev bridge up\n".to_owned();
        for device in DEVICES {
            // Room for all that a connection's window allows: what is lost there would be measured, too.
            lines += &format!(
                "tuntap add dev {device} mode tap\n\
                 link set dev {device} mtu {MTU} txqueuelen 4000 master bridge up\n"
            );
        }
        link.namespace.ip(&lines)?;
        Ok(link)
    }

    /// Takes a device.
    fn open(&self, number: usize) -> Result<Kernel, Error> {
        let mac = MacAddress([2, 0, 0, 0, 0, number as u8 + 1]);
        let open = || kernel::open(DEVICES[number], Kind::Ethernet, mac);
        netns::Namespace::open(self.namespace.name())?
            .run(open)?
            .map_err(|source| Error::system(format!("device {}", DEVICES[number]), source))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Err(error) = self.namespace.delete() {
            eprintln!("{error}");
        }
    }
}

/// Whose programs run.
#[derive(Clone, Copy)]
pub(super) enum Side {
    A = 0,
    B = 1,
}

impl Side {
    /// Moves this thread, and those that it starts, to the host's processor.
    pub(super) fn pin(self) {
        let all = processors();
        if let Some(processor) = all.get(self as usize).filter(|_| all.len() > 1) {
            // Where that is refused, the system decides.
            let _ = pin_to_processor(*processor);
        }
    }
}

/// The hosts, running.
pub(super) struct Hosts {
    pub(super) a: Stack<Ipsec>,
    pub(super) b: Stack<Ipsec>,
}

impl Hosts {
    pub(super) fn start(link: &Link) -> Result<Self, Error> {
        Ok(Self { a: start(link, Side::A)?, b: start(link, Side::B)? })
    }

    /// Where a port of the second host is.
    pub(super) fn b_at(is_ipv6: bool, port: u16) -> SocketAddr {
        let address: IpAddr = if is_ipv6 { IPV6[1].into() } else { IPV4[1].into() };
        SocketAddr::new(address, port)
    }
}

fn start(link: &Link, side: Side) -> Result<Stack<Ipsec>, Error> {
    let number = side as usize;
    let device = link.open(number)?;
    let failed = |source: io::Error| Error::system(format!("host {}", DEVICES[number]), source);
    let options = Options { routers: false, duplicate_transmits: 0, ..Options::new(DEVICES[number]) };
    let security = security().map_err(|detail| Error::output("keys", detail))?;
    // The host's thread is where the one is that starts it.
    let stack = std::thread::scope(|scope| {
        let start = || {
            side.pin();
            Stack::start_with(device, options, security)
        };
        scope.spawn(start).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let stack = stack.map_err(failed)?;
    let address = Ipv4Net::new_assert(IPV4[number], 24);
    let on_link = Ipv6Net::new_assert(IPV6[number], 64).trunc();
    stack
        .with(|now, host| {
            let interface = host.interface_mut();
            interface.add_address(now, IPV6[number], on_link.prefix_len());
            interface.set_on_link(now, on_link, Lifetime::Infinite);
            interface.set_ipv4(Some(Ipv4 { address, gateway: None }));
        })
        .map_err(failed)?;
    Ok(stack)
}

/// Keys by hand, for all that sockets may ask for.
fn security() -> Result<Ipsec, String> {
    const KEY: &str = "0x000102030405060708090a0b0c0d0e0f10111213";
    let now = Instant::now();
    let mut file = String::new();
    let ends = [IPV4.map(IpAddr::from), IPV6.map(IpAddr::from)];
    let ways = ends.iter().flat_map(|[a, b]| [(a, b), (b, a)]);
    for ((from, to), spi) in ways.zip(0x1000..) {
        file += &format!(
            "add {from} {to} esp {spi} -r 64 -E aes-gcm-16 {KEY};\nadd {from} {to} ah {spi} -r 64 -A aes-gmac {KEY};\n"
        );
    }
    let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
    let commands = ipsec::setkey::parse(&file).map_err(|error| error.to_string())?;
    ipsec::setkey::apply(commands, &mut engine, &mut policies, now).map_err(|error| error.to_string())?;
    Ok(Ipsec::new(now, engine, policies))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken() {
        security().unwrap();
    }
}
