//! What all commands have, and the host that it describes.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use ipnet::{Ipv4Net, Ipv6Net};
use ipsec::key_engine::KeyEngine;
use ipsec::policy::PolicyDatabase;
use ipsec::setkey;
use linux::event::Signals;
use linux::tun::Kind;
use stack::autoconf::Phase;
use stack::faults::Faults;
use stack::interface::Interface;
use stack::ipsec::Ipsec;
use stack::ipv4::Ipv4;
use stack::random::Key;
use stack::route::Lifetime;
use stack_runtime::device::{Captured, Device, Faulty, Recorded, kernel};
use stack_runtime::{Options, Stack, TcpOptions, TcpStream};
use wire::ethernet::MacAddress;

use super::ending::Held;
use super::key_socket::Keys;
use super::status::answer;
use crate::failure::Failure;

/// How long a router may take to advertise an address.
const AUTOCONFIGURATION: Duration = Duration::from_secs(5);
/// How long the search for a duplicate may take.
const DUPLICATES: Duration = Duration::from_secs(10);

/// The host.
#[derive(Debug, Clone, Args)]
pub(crate) struct HostOptions {
    /// The TAP or TUN device: one that exists, or one that is made
    #[arg(long, value_name = "NAME")]
    pub(crate) dev: String,
    /// Make a TUN device, if one has to be made
    #[arg(long)]
    tun: bool,
    /// An address beside those that routers advertise; may be repeated
    #[arg(long, value_name = "ADDR/LEN", value_parser = address_v6)]
    address: Vec<Ipv6Net>,
    /// The only router; no other is asked for
    #[arg(long, value_name = "ADDR")]
    gateway: Option<Ipv6Addr>,
    /// An address of IPv4
    #[arg(long, value_name = "ADDR/LEN", value_parser = address_v4)]
    ipv4: Option<Ipv4Net>,
    /// The router of IPv4
    #[arg(long, value_name = "ADDR", requires = "ipv4")]
    ipv4_gateway: Option<Ipv4Addr>,
    /// Have temporary addresses, too (RFC 8981)
    #[arg(long)]
    temporary: bool,
    /// The largest packet, if less than the device carries
    #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u16).range(1280..))]
    mtu: Option<u16>,
    /// Associations and policies, in setkey's language
    #[arg(long, value_name = "FILE")]
    setkey: Option<PathBuf>,
    /// Open a PF_KEY socket here, for key management daemons and `sidestep key --socket PATH`
    #[arg(long, value_name = "PATH")]
    key_socket: Option<PathBuf>,
    /// Record all packets to a pcap file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    faults: FaultOptions,
}

/// Faults between host and device, both ways.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Faults, both ways")]
struct FaultOptions {
    /// Lose this share of the packets
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "0")]
    loss: f64,
    /// Deliver this share twice
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "0")]
    duplicate: f64,
    /// Change a bit of this share
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "0")]
    corrupt: f64,
    /// Deliver this share late, so that others overtake it
    #[arg(long, value_name = "PERCENT", value_parser = share, default_value = "0")]
    reorder: f64,
    /// How late
    #[arg(long, value_name = "DURATION", value_parser = config::parse_duration, default_value = "5ms")]
    reorder_by: Duration,
    /// Deliver everything later
    #[arg(long, value_name = "DURATION", value_parser = config::parse_duration, default_value = "0s")]
    delay: Duration,
    /// Carry no more than that, with a queue of 100 ms
    #[arg(long, value_name = "MBIT/S", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Lose longer frames, silently
    #[arg(long, value_name = "OCTETS")]
    longest_frame: Option<usize>,
    /// What befalls which packet follows from this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

/// A percentage as a share.
fn share(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| "expected a percentage".to_owned())?;
    if (0.0..=100.0).contains(&number) { Ok(number / 100.0) } else { Err("expected 0 to 100".to_owned()) }
}

/// Whom each packet is shown to.
pub(crate) type Show = Box<dyn FnMut(Captured<'_>) -> io::Result<()> + Send>;

/// A host that runs, and answers who asks it for its status.
pub(crate) struct Running {
    pub(crate) stack: Stack<Ipsec>,
    held: Held,
}

impl HostOptions {
    /// Starts the host, and waits until it has an address.
    pub(crate) fn start(&self) -> Result<Running, Failure> {
        let running = self.start_at_once(None)?;
        self.wait(&running.stack)?;
        Ok(running)
    }

    /// The same for a command that does not ask for signals: they end it, with this status.
    pub(crate) fn start_until_signal(&self, status: i32) -> Result<Running, Failure> {
        let signals = Signals::new()?;
        let running = self.start_at_once(None)?;
        running.held.end_at(signals, status)?;
        self.wait(&running.stack)?;
        Ok(running)
    }

    /// Starts the host. Each packet is shown to somebody.
    pub(crate) fn start_at_once(&self, show: Option<Show>) -> Result<Running, Failure> {
        let security = self.security()?;
        let key = self.key()?;
        let device =
            kernel::open(&self.dev, if self.tun { Kind::Ip } else { Kind::Ethernet }, mac(&key, &self.dev))?;
        let device = self.decorated(device, show)?;
        let options = Options {
            stable_key: Some(key),
            routers: self.gateway.is_none(),
            temporary: self.temporary,
            mtu: self.mtu.map(usize::from),
            ..Options::new(self.dev.clone())
        };
        let stack = Stack::start_with(device, options, security)?;
        stack.with(|now, host| self.configure(now, host.interface_mut()))?;
        let answering = answer(&stack, &self.dev)?;
        let keys = self.key_socket.as_deref().map(|path| Keys::open(&stack, path)).transpose()?;
        Ok(Running { stack, held: Held::new(answering, keys) })
    }

    fn decorated(&self, device: kernel::Kernel, show: Option<Show>) -> Result<Box<dyn Device>, Failure> {
        let medium = device.medium();
        let faults = self.faults.faults();
        if !faults.any() && self.record.is_none() && show.is_none() {
            return Ok(Box::new(device.with_offloads()?));
        }
        let mut device: Box<dyn Device> = Box::new(device);
        if faults.any() {
            device = Box::new(Faulty::new(device, faults, self.faults.seed));
        }
        if let Some(path) = &self.record {
            let file = File::create(path)
                .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
            device = Box::new(Recorded::new(device, Recorded::to_pcap(BufWriter::new(file), medium)?));
        }
        if let Some(show) = show {
            device = Box::new(Recorded::new(device, show));
        }
        Ok(device)
    }

    fn configure(&self, now: Instant, interface: &mut Interface<Ipsec>) {
        for address in &self.address {
            interface.set_on_link(now, address.trunc(), Lifetime::Infinite);
            interface.add_address(now, address.addr(), address.prefix_len());
        }
        if let Some(gateway) = self.gateway {
            interface.set_route(now, Ipv6Net::default(), gateway, Lifetime::Infinite);
        }
        if let Some(address) = self.ipv4 {
            interface.set_ipv4(Some(Ipv4 { address, gateway: self.ipv4_gateway }));
        }
    }

    /// Waits for the addresses that were asked for, or, if none was, for one that a router advertises. There need be none.
    fn wait(&self, stack: &Stack<Ipsec>) -> Result<(), Failure> {
        if self.address.is_empty() {
            if self.ipv4.is_some() {
                return Ok(());
            }
            let global = stack.wait_until(AUTOCONFIGURATION, |now, host| {
                let mut all = host.interface().addresses().iter();
                all.any(|known| {
                    !known.address.is_unicast_link_local() && known.phase(now) != Phase::Tentative
                })
                .then_some(())
            });
            return match global {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let nobody =
                        |_| Failure::Message(format!("{}: no address within {DUPLICATES:?}", self.dev));
                    stack.wait_for_address(DUPLICATES).map(drop).map_err(nobody)
                }
                other => Ok(other?),
            };
        }
        for wanted in &self.address {
            let taken =
                format!("{}: somebody else on the link has it: choose another address", wanted.addr());
            let assigned = stack.wait_until(DUPLICATES, |now, host| {
                match host.interface().addresses().get(wanted.addr()) {
                    None => Some(false),
                    Some(known) if known.phase(now) == Phase::Tentative => None,
                    Some(_) => Some(true),
                }
            })?;
            if !assigned {
                return Err(Failure::Message(taken));
            }
        }
        Ok(())
    }

    fn security(&self) -> Result<Ipsec, Failure> {
        let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
        let now = Instant::now();
        if let Some(path) = &self.setkey {
            let about =
                |error: &dyn std::fmt::Display| Failure::Message(format!("{}: {error}", path.display()));
            let text = zeroize::Zeroizing::new(std::fs::read_to_string(path).map_err(|error| about(&error))?);
            let commands = setkey::parse(&text).map_err(|error| about(&error))?;
            setkey::apply(commands, &mut engine, &mut policies, now).map_err(|error| about(&error))?;
        }
        Ok(Ipsec::new(now, engine, policies))
    }

    /// What addresses are made of: the same on this machine each time, and nobody else's.
    fn key(&self) -> Result<Key, Failure> {
        let text = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let secret = match u128::from_str_radix(text.trim(), 16) {
            Ok(id) => id.to_be_bytes(),
            Err(_) => {
                let mut octets = [0; 16];
                getrandom::fill(&mut octets).map_err(io::Error::other)?;
                octets
            }
        };
        // The machine's id is not to be used itself (machine-id(5)).
        Ok(Key::new(Key::new(secret).hash128(&[b"sidestep stack"]).to_be_bytes()))
    }
}

impl FaultOptions {
    fn faults(&self) -> Faults {
        let none = Faults::default();
        let rate = self.rate.map_or(0, |mbits| u64::from(mbits) * 125_000);
        Faults {
            loss: self.loss,
            reorder: if self.reorder > 0.0 { (self.reorder, self.reorder_by) } else { none.reorder },
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            delay: self.delay,
            rate,
            queue: if rate > 0 { (rate / 10).max(15_000) as usize } else { none.queue },
            mtu: self.longest_frame.unwrap_or(none.mtu),
        }
    }
}

/// Our end's Ethernet address: locally administered, and the same each time.
fn mac(key: &Key, device: &str) -> MacAddress {
    let [a, b, c, d, e, ..] = key.hash(&[b"mac", device.as_bytes()]).to_be_bytes();
    MacAddress([2, a, b, c, d, e])
}

/// Whether an address is of the other version than the host has.
pub(crate) fn reachable_by(address: IpAddr, options: &HostOptions) -> Result<(), Failure> {
    if address.is_ipv4() && options.ipv4.is_none() {
        return Err(Failure::Message(format!(
            "{address}: the host has no IPv4 address: give it one with --ipv4"
        )));
    }
    Ok(())
}

/// A connection. Why there is none is told with whom it was to be.
pub(crate) fn connect(
    stack: &Stack<Ipsec>,
    to: SocketAddr,
    options: &TcpOptions,
    patience: Duration,
) -> io::Result<TcpStream<Ipsec>> {
    TcpStream::connect_with(stack, to, options, Some(patience)).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                " (`sidestep stack ping` says why; without a router, --address or --gateway gives a way)"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("{to}: {error}{hint}"))
    })
}

/// An address alone.
pub(crate) fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        "not an address; names are not looked up, and an address needs no %INTERFACE here".to_owned()
    })
}

fn address_v6(text: &str) -> Result<Ipv6Net, String> {
    text.parse()
        .map_err(|_| "expected an IPv6 address with its prefix length, like 2001:db8::2/64".to_owned())
}

fn address_v4(text: &str) -> Result<Ipv4Net, String> {
    text.parse().map_err(|_| "expected an IPv4 address with its prefix length, like 192.0.2.2/24".to_owned())
}
