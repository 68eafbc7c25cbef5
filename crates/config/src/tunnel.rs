//! `[tunnel]`: the TUN device.

use std::time::Duration;

use ipnet::IpNet;
use toml::Spanned;

use crate::converter::Converter;
use crate::key::Absent::{Default, Otherwise};
use crate::section::{Period, section};
use crate::value::{self, Problem, parse_duration, problem};

section! {
    /// `[tunnel]`, as it stands in the file.
    TunnelTable = "[tunnel]" {
        /// Name of the device; also of the control socket `/run/sidestep/NAME.sock` and the nftables table
        /// `sidestep-NAME`. It is not `gateway` or `scripts` and begins with neither `gateway-` nor `scripts-`, as the
        /// sockets of those do.
        name: String = Default(r#""mt6d0""#);
        /// Largest inner packet, 1280 to 65535 bytes. Set it only to stay below what the path carries.
        mtu: i64 = Otherwise("follows the path");
        /// Addresses of the device, with prefix length. Give the gateway's own inside address, as `/128`: packets that
        /// the gateway itself sends, such as ICMP errors, then have a source that the peer accepts.
        addresses: Vec<Spanned<String>> = Otherwise("none");
        /// While there is a bulk flow or a `shape`, packet processing takes precedence over ordinary programs (`SCHED_RR`,
        /// lowest priority). On a fully loaded machine this cuts latency to a sixth, and a shape keeps its times; set
        /// `false` if something else on the machine matters more.
        realtime: bool = Default("true");
        /// How long to busy-poll for the next packet before sleeping, up to `"1ms"`; `"0us"` for never. Only
        /// request-response traffic whose packets are no further apart than this is polled for, not streams or bulk
        /// flows. Halves the round trip, at the cost of otherwise idle CPU.
        spin: Period = Default(r#""50us""#);
        /// Threads that process packets, 1 to 16. Each flow is sent by one thread. A peer's datagrams are received by as
        /// many threads as there are lanes alive: give a site with many flows as many `lanes` as there are threads. With
        /// 1, the same thread also runs the protocol, which is fastest on two or three processors; with more, the
        /// protocol has its own thread.
        threads: i64 = Otherwise("half of the processors, 8 at most");
        /// Whether packets for `allowed_ips` may leave in clear while there is no tunnel: before its start, after its end
        /// and after a crash. If not, they are refused ("no route to host") until `sidestep down NAME --open`.
        open_when_down: bool = Default("false");
        /// Processors to pin these threads to, one each in turn, as `[2, 3]`. The scheduler usually does well; use this
        /// where processors are reserved for packets.
        cpus: Vec<Spanned<i64>> = Otherwise("any");
    }
}

/// The TUN device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Name of the device, `mt6d0` unless given.
    pub name: String,
    /// MTU in bytes, 1280 to 65535; it follows the path where none is given.
    pub mtu: Option<u16>,
    /// Addresses of the device, with the prefix length of their network.
    pub addresses: Vec<IpNet>,
    /// Packets go before ordinary programs where processors are short: latency stays low, and a flood is felt by them.
    pub realtime: bool,
    /// How long to look for packets before sleeping, where they go back and forth in quick succession; at most 1 ms.
    pub spin: Duration,
    /// Threads that carry packets, 1 to 16; chosen by the machine where not given.
    pub threads: Option<usize>,
    /// Whether packets for the peers may leave in clear while there is no tunnel.
    pub open_when_down: bool,
    /// Processors that these keep to, one each in turn; any, where there are none.
    pub cpus: Vec<usize>,
}

impl Tunnel {
    /// How many threads carry packets: unless given, half of the processors, since the kernel's share of the work for a
    /// packet is as large as ours. Where it is one, that one runs the protocol, too.
    pub fn packet_threads(&self) -> usize {
        self.threads.unwrap_or_else(|| (linux::process::processors().len() / 2).clamp(1, 8))
    }
}

impl Converter<'_> {
    pub(crate) fn tunnel(&mut self, table: &TunnelTable) -> Option<Tunnel> {
        let name = self.value(&table.name, value::tunnel_name);
        let mtu = self.optional(&table.mtu, value::mtu);
        let addresses = self.each(&table.addresses, value::interface_address);
        let spin = self.value(&table.spin, spin);
        let threads = self.optional(&table.threads, threads);
        let cpus = self.each(&table.cpus, processor);
        Some(Tunnel {
            name: name?,
            mtu: mtu?,
            addresses: addresses?,
            realtime: table.realtime.is_true(),
            spin: spin?,
            threads: threads?,
            open_when_down: table.open_when_down.is_true(),
            cpus: cpus?,
        })
    }
}

/// How long to look for packets before sleeping.
fn spin(text: &str) -> Result<Duration, Problem> {
    const HELP: &str = "write 0us to 1ms; 0us to sleep at once";
    match parse_duration(text) {
        Ok(duration) if duration <= Duration::from_millis(1) => Ok(duration),
        Ok(_) => problem("out of range", HELP),
        Err(_) => problem("not a duration", HELP),
    }
}

/// How many threads carry packets.
fn threads(number: i64) -> Result<usize, Problem> {
    match usize::try_from(number) {
        Ok(threads @ 1..=16) => Ok(threads),
        _ => problem(
            "out of range",
            "1 to 16 threads carry packets; half as many as processors is usually best",
        ),
    }
}

/// A processor that there is.
fn processor(number: i64) -> Result<usize, Problem> {
    match usize::try_from(number) {
        Ok(processor) if linux::process::processors().contains(&processor) => Ok(processor),
        _ => problem(
            "there is no such processor for this program",
            "`nproc` and `taskset -p $$` show which there are",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_those_of_this_machine() {
        let here = linux::process::processors();
        assert!(here.iter().all(|number| processor(*number as i64) == Ok(*number)));
        for number in [-1, 100_000, i64::MAX] {
            assert!(processor(number).is_err() && threads(number).is_err(), "{number}");
        }
        assert_eq!(threads(16), Ok(16));
        assert!(threads(0).is_err());
    }
}
