//! `ping`.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use linux::event::Signals;
use stack::icmpv6::ErrorKind;
use stack::interface::Event;
use wire::icmpv6::code;

use super::options::{HostOptions, address, reachable_by};
use crate::failure::Failure;
use crate::terminal::print;

/// How long the last answer may take: longer than a neighbor is asked for (RFC 4861 §10: three times, a second apart).
const PATIENCE: Duration = Duration::from_secs(4);
/// How often is looked whether the user has seen enough.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Requests that an answer is expected to.
const MAX_UNANSWERED: usize = 4096;

/// Options of `ping`.
#[derive(Debug, Args)]
pub(crate) struct PingOptions {
    #[command(flatten)]
    host: HostOptions,
    /// Who
    #[arg(value_name = "ADDRESS", value_parser = address)]
    target: IpAddr,
    /// How often; without it until it is interrupted
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Seconds between requests
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Octets of data
    #[arg(short, long, value_name = "OCTETS", default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=65_000))]
    size: u16,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds".to_owned())?;
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err("expected 0.001 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// What has come of it.
#[derive(Default)]
struct Statistics {
    sent: u32,
    received: u32,
    least: Option<Duration>,
    most: Duration,
    sum: Duration,
}

/// Pings.
pub(crate) fn run(options: &PingOptions) -> Result<ExitCode, Failure> {
    reachable_by(options.target, &options.host)?;
    let signals = Signals::new()?;
    let running = options.host.start()?;
    let stack = &running.stack;
    let data: Vec<u8> = (0..options.size).map(|n| n as u8).collect();
    let identifier = std::process::id() as u16;
    print(format_args!("PING {} {} data octets\n", options.target, options.size))?;
    let mut statistics = Statistics::default();
    let mut unanswered: BTreeMap<u16, Instant> = BTreeMap::new();
    let mut next = Instant::now();
    let mut end: Option<Instant> = None;
    while signals.read()?.is_none() && end.is_none_or(|end| Instant::now() < end && !unanswered.is_empty()) {
        let now = Instant::now();
        if end.is_none() && next <= now {
            statistics.sent += 1;
            let sequence = statistics.sent as u16;
            if unanswered.len() >= MAX_UNANSWERED {
                unanswered.pop_first();
            }
            match stack.ping(options.target, identifier, sequence, &data) {
                Ok(()) => drop(unanswered.insert(sequence, now)),
                Err(error) => print(format_args!("icmp_seq={sequence} {error}\n"))?,
            }
            // One that was held up does not hurry afterwards.
            next = (next + options.interval).max(now);
            if options.count == Some(statistics.sent) {
                end = Some(Instant::now() + PATIENCE.max(options.interval));
            }
        }
        let until = end.unwrap_or(next).saturating_duration_since(Instant::now()).min(LOOK_EVERY);
        match stack.next_event(until) {
            Ok((at, Event::EchoReply { from, identifier: of, sequence })) if of == identifier => {
                let Some(sent) = unanswered.remove(&sequence) else { continue };
                let time = at.saturating_duration_since(sent);
                statistics.count(time);
                let (length, from) = (usize::from(options.size) + 8, IpAddr::V6(from).to_canonical());
                print(format_args!(
                    "{length} octets from {from}: icmp_seq={sequence} time={:.3} ms\n",
                    ms(time)
                ))?;
            }
            Ok((_, Event::EchoError { from, kind, identifier: of, sequence })) if of == identifier => {
                // A path that carries less is no failure: the next one is shorter.
                if !matches!(kind, ErrorKind::PacketTooBig(_)) {
                    unanswered.remove(&sequence);
                }
                let from = IpAddr::V6(from).to_canonical();
                print(format_args!("from {from}: icmp_seq={sequence} {}\n", reason(kind)))?;
            }
            Err(error) if error.kind() != io::ErrorKind::TimedOut => return Err(error.into()),
            _ => {}
        }
    }
    print(statistics.text(options.target))?;
    Ok(if statistics.received == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What an error says, in ping's words.
fn reason(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::Unreachable(code::NO_ROUTE) => "no route to destination".to_owned(),
        ErrorKind::Unreachable(code::ADMINISTRATIVELY_PROHIBITED) => "administratively prohibited".to_owned(),
        ErrorKind::Unreachable(code::BEYOND_SCOPE) => "beyond scope of source address".to_owned(),
        ErrorKind::Unreachable(code::ADDRESS_UNREACHABLE) => "address unreachable".to_owned(),
        ErrorKind::Unreachable(code::PORT_UNREACHABLE) => "port unreachable".to_owned(),
        ErrorKind::Unreachable(code) => format!("unreachable, code {code}"),
        ErrorKind::PacketTooBig(mtu) => format!("packet too big: the path carries {mtu} octets"),
        ErrorKind::TimeExceeded(_) => "time exceeded".to_owned(),
        ErrorKind::ParameterProblem(code, pointer) => format!("parameter problem {code} at octet {pointer}"),
        ErrorKind::Unknown(kind, code) => format!("an error of type {kind}, code {code}"),
    }
}

impl Statistics {
    fn count(&mut self, time: Duration) {
        self.received += 1;
        self.least = Some(self.least.map_or(time, |least| least.min(time)));
        self.most = self.most.max(time);
        self.sum += time;
    }

    fn text(&self, address: IpAddr) -> String {
        let (sent, received) = (self.sent, self.received);
        let lost = f64::from(sent.saturating_sub(received)) / f64::from(sent.max(1)) * 100.0;
        let mut text = format!(
            "\n--- {address} ping statistics ---\n\
             {sent} packets transmitted, {received} received, {lost:.0}% packet loss\n"
        );
        if let Some(least) = self.least {
            let mean = self.sum / received;
            text += &format!("rtt min/avg/max = {:.3}/{:.3}/{:.3} ms\n", ms(least), ms(mean), ms(self.most));
        }
        text
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_say_what_was_lost() {
        let mut statistics = Statistics { sent: 4, ..Statistics::default() };
        for milliseconds in [3, 1] {
            statistics.count(Duration::from_millis(milliseconds));
        }
        let text = statistics.text("2001:db8::1".parse().unwrap());
        assert!(text.contains("4 packets transmitted, 2 received, 50% packet loss"), "{text}");
        assert!(text.contains("= 1.000/2.000/3.000 ms"), "{text}");
    }
}
