//! The helpers of labs, as commands: see [`lab::helper`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use lab::impairment::Impairment;
use lab::{Error, capture, queue, relay, sixin4, udp_stream};
use signal_hook::consts::{SIGINT, SIGTERM};
use wire::ethernet::MacAddress;

use crate::adversary::active::process::{ManInTheMiddle, man_in_the_middle};
use crate::adversary::active::traffic;
use crate::adversary::linking::traffic::{self as kinds, Kind};
use crate::scripts::{self, traffic::TrafficCommand};
use crate::stack;
use crate::stack::contender::StackContender;

/// The commands of the helpers.
#[derive(Debug, Subcommand)]
#[command(hide = true)]
pub enum HelperCommand {
    /// Carry frames between two interfaces and impair them
    Relay {
        /// Interface towards site A
        left: String,
        /// Interface towards site B
        right: String,
        /// Impairment from left to right
        #[arg(long)]
        impair: Impairment,
        /// Impairment from right to left
        #[arg(long)]
        impair_back: Impairment,
    },
    /// One end of a 6in4 tunnel
    Sixin4(Sixin4),
    /// Send numbered datagrams at a steady rate
    UdpSend {
        /// Destination
        #[arg(long)]
        to: SocketAddr,
        /// Datagrams per second
        #[arg(long, default_value_t = 1000)]
        rate: u32,
        /// Bytes of payload
        #[arg(long, default_value_t = 500)]
        size: usize,
        /// How long
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Hand datagrams that leave together to the kernel as one packet
        #[arg(long)]
        batched: bool,
    },
    /// Send datagrams of drawn sizes at drawn times, and answer none
    UdpDrawn {
        /// Own address and port
        #[arg(long)]
        listen: SocketAddr,
        /// Destination
        #[arg(long)]
        to: SocketAddr,
        /// Datagrams per second, in the mean
        #[arg(long)]
        rate: f64,
        /// What is drawn is drawn from this
        #[arg(long)]
        seed: u64,
    },
    /// Carry traffic of a kind, drawn from a seed
    TrafficOfKind {
        /// Own address and port
        #[arg(long)]
        listen: SocketAddr,
        /// The other end's
        #[arg(long)]
        to: SocketAddr,
        /// Which kind
        #[arg(long)]
        kind: Kind,
        /// What is drawn is drawn from this
        #[arg(long)]
        seed: u64,
        /// The end that answers
        #[arg(long)]
        server: bool,
    },
    /// Attack the frames between two interfaces
    ManInTheMiddle(ManInTheMiddle),
    /// Receive numbered datagrams, report each second and at the end
    UdpReceive {
        /// Address and port to receive at
        #[arg(long)]
        listen: SocketAddr,
        /// Take packets of several datagrams uncut
        #[arg(long)]
        batched: bool,
        /// Report the latency of every datagram
        #[arg(long)]
        each: bool,
    },
    /// Answer each datagram with an empty one
    UdpAnswer {
        /// Address and port to receive at
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Accept packets from a queue
    QueueAccept {
        /// Where
        #[arg(long)]
        hook: String,
        /// Which, as nft has it
        rules: Vec<String>,
    },
    /// Traffic of `bench scripts`
    ScriptTraffic {
        /// What to do
        #[command(subcommand)]
        command: TrafficCommand,
    },
    /// A contender of `bench stack`: takes and gives by TCP
    StackEnd {
        /// Whose TCP
        contender: StackContender,
    },
    /// The client of `bench stack`: prints Mbit/s
    StackLoad {
        /// `to` the contender, or `from` it
        direction: String,
        /// The contender's address
        address: IpAddr,
        /// How long
        seconds: u64,
    },
    /// Prints what an idle connection of the host stack takes, bytes
    StackIdle,
    /// Write an interface's packets to a pcap file
    Capture {
        /// The interface
        interface: String,
        /// The file
        file: PathBuf,
    },
}

/// One end of a 6in4 tunnel.
#[derive(Clone, Debug, Args)]
pub struct Sixin4 {
    /// Interface of the inner packets
    #[arg(long)]
    inner: String,
    /// Ethernet address of the kernel's end of it
    #[arg(long, value_parser = mac_address)]
    inner_mac: MacAddress,
    /// Interface of the IPv4 network
    #[arg(long)]
    outer: String,
    /// Ethernet address of the peer
    #[arg(long, value_parser = mac_address)]
    outer_mac: MacAddress,
    /// Own IPv4 address
    #[arg(long)]
    local: Ipv4Addr,
    /// The peer's IPv4 address
    #[arg(long)]
    remote: Ipv4Addr,
}

/// Runs a helper.
///
/// # Errors
/// Whatever it could not do.
pub fn run(command: HelperCommand) -> Result<ExitCode, Error> {
    match command {
        HelperCommand::Relay { left, right, impair, impair_back } => {
            relay::run(&left, &right, impair, impair_back, &stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
        HelperCommand::Sixin4(end) => {
            let endpoint = sixin4::Endpoint {
                inner: end.inner,
                inner_mac: end.inner_mac,
                outer: end.outer,
                outer_mac: end.outer_mac,
                local: end.local,
                remote: end.remote,
            };
            sixin4::run(&endpoint, &stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
        HelperCommand::UdpSend { to, rate, size, seconds, batched } => {
            let duration =
                Duration::try_from_secs_f64(seconds).map_err(|error| Error::Usage(error.to_string()))?;
            print_json(&udp_stream::send(to, rate, size, duration, batched, &stop_flag()?)?)
        }
        HelperCommand::UdpReceive { listen, batched, each } => {
            print_json(&udp_stream::receive(listen, batched, each, &stop_flag()?, std::io::stdout())?)
        }
        HelperCommand::UdpAnswer { listen } => {
            udp_stream::answer(listen, &*stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
        HelperCommand::UdpDrawn { listen, to, rate, seed } => {
            traffic::run(listen, to, rate, seed, &*stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
        HelperCommand::TrafficOfKind { listen, to, kind, seed, server } => {
            kinds::run(kind, server, [listen, to], seed, &*stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
        HelperCommand::ManInTheMiddle(command) => {
            man_in_the_middle(&command, &stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
        HelperCommand::QueueAccept { hook, rules } => {
            queue::accept(&hook, &rules, &*stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
        HelperCommand::ScriptTraffic { command } => print_json(&scripts::traffic::run(&command)?),
        HelperCommand::StackEnd { contender } => {
            stack::end::run(contender, &*stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
        HelperCommand::StackLoad { direction, address, seconds } => {
            print_json(&stack::end::load(direction == "to", address, seconds)?)
        }
        HelperCommand::StackIdle => print_json(&stack::idle::run()?),
        HelperCommand::Capture { interface, file } => {
            capture::record(&interface, &file, &stop_flag()?).map(|()| ExitCode::SUCCESS)
        }
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<ExitCode, Error> {
    let line = serde_json::to_string(value).map_err(|error| Error::output("report", error))?;
    println!("{line}");
    Ok(ExitCode::SUCCESS)
}

/// A flag that SIGINT and SIGTERM set.
///
/// # Errors
/// When the handlers cannot be registered.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .map_err(|source| Error::system("signal handler", source))?;
    }
    Ok(flag)
}

/// A text that is no address of Ethernet.
#[derive(Debug, thiserror::Error)]
#[error("`{0}`: expected an Ethernet address")]
struct NoMacAddress(String);

fn mac_address(text: &str) -> Result<MacAddress, NoMacAddress> {
    let bytes: Option<Vec<u8>> = text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    let bytes: Option<[u8; 6]> = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map(MacAddress).ok_or_else(|| NoMacAddress(text.to_owned()))
}
