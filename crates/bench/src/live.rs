//! The live view of a demonstration: redrawn in place on a terminal, a plain line every few seconds elsewhere.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

use serde::Serialize;

use lab::udp_stream::Latency;

/// Seconds between two lines where there is no terminal.
const PLAIN_INTERVAL: f64 = 5.0;

/// The state of a demonstration at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// Seconds since the traffic began.
    pub time: f64,
    /// Current outer endpoint of gateway A and of gateway B, as gateway A says.
    pub endpoints: [String; 2],
    /// Rotations since the session began.
    pub rotations: u64,
    /// Milliseconds until the next.
    pub next_rotation_ms: Option<u64>,
    /// What host A and host B received in the last second.
    pub bits_per_second: [f64; 2],
    /// One-way latency of the UDP stream in its last full second.
    pub latency_ms: Latency,
    /// Datagrams lost so far.
    pub missing: u64,
    /// Datagrams that came twice so far.
    pub duplicated: u64,
}

/// Writes the view.
#[derive(Debug)]
pub(crate) struct Live {
    seconds: u32,
    terminal: bool,
    /// Lines of the last drawing, to draw over.
    drawn: usize,
    last_plain: f64,
}

impl Live {
    pub(crate) fn new(seconds: u32) -> Self {
        Self { seconds, terminal: std::io::stdout().is_terminal(), drawn: 0, last_plain: 0.0 }
    }

    /// A line about what happens.
    pub(crate) fn print_line(&mut self, text: &str) {
        println!("- {text}");
    }

    /// Shows a moment.
    pub(crate) fn show(&mut self, moment: &Moment) {
        if self.terminal {
            let picture = picture(moment, self.seconds);
            // Up over the last drawing, then erase to the end of the screen.
            let over = if self.drawn == 0 { String::new() } else { format!("\x1b[{}A\x1b[J", self.drawn) };
            print!("{over}{picture}");
            self.drawn = picture.lines().count();
            let _ = std::io::stdout().flush();
        } else if moment.time - self.last_plain >= PLAIN_INTERVAL - 0.5 {
            self.last_plain = moment.time;
            println!("{}", line(moment, self.seconds));
        }
    }

    /// Leaves the last drawing on the screen.
    pub(crate) fn end(&mut self) {
        self.drawn = 0;
    }
}

fn picture(moment: &Moment, seconds: u32) -> String {
    const BAR: usize = 40;
    let done = ((moment.time / f64::from(seconds)).min(1.0) * BAR as f64) as usize;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\n  [{}{}] {:.0} of {seconds} s\n",
        "#".repeat(done),
        ".".repeat(BAR - done),
        moment.time
    );
    if moment.endpoints[0] != "-" {
        let _ = writeln!(text, "  gateway A   {}", moment.endpoints[0]);
        let _ = writeln!(text, "  gateway B   {}", moment.endpoints[1]);
        let next =
            moment.next_rotation_ms.map_or(String::new(), |ms| format!(", next in {:.1} s", ms as f64 / 1e3));
        let _ = writeln!(text, "  rotations   {}{next}", moment.rotations);
    }
    let [a, b] = moment.bits_per_second;
    let _ = writeln!(text, "  throughput  A to B {:6.1} Mbit/s, B to A {:6.1} Mbit/s", b / 1e6, a / 1e6);
    let latency = moment.latency_ms;
    let _ = writeln!(text, "  latency     {:.2} ms median, {:.2} ms at 99 %", latency.p50, latency.p99);
    let _ = writeln!(text, "  datagrams   {} lost, {} duplicated", moment.missing, moment.duplicated);
    text
}

fn line(moment: &Moment, seconds: u32) -> String {
    let [a, b] = moment.bits_per_second;
    let mut text = format!("  {:3.0} of {seconds} s  ", moment.time);
    if moment.endpoints[0] != "-" {
        let [a, b] = &moment.endpoints;
        let _ = write!(text, "rotations {}  A {a}  B {b}  ", moment.rotations);
    }
    let _ = write!(
        text,
        "A to B {:.1} Mbit/s, B to A {:.1} Mbit/s  latency {:.2} ms  lost {}",
        b / 1e6,
        a / 1e6,
        moment.latency_ms.p50,
        moment.missing
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_with_and_without_endpoints() {
        let mut moment = Moment {
            time: 12.0,
            endpoints: ["[2001:db8:a1::1]:4000".into(), "[2001:db8:b1::1]:5000".into()],
            rotations: 6,
            next_rotation_ms: Some(800),
            bits_per_second: [20e6, 4e6],
            latency_ms: Latency::default(),
            missing: 0,
            duplicated: 0,
        };
        assert!(picture(&moment, 30).contains("rotations   6, next in 0.8 s"));
        assert!(!line(&moment, 30).contains('\x1b'));
        moment.endpoints = ["-".into(), "-".into()];
        assert!(!picture(&moment, 30).contains("gateway"));
        moment.time = 99.0;
        assert!(picture(&moment, 30).contains("99 of 30"));
    }
}
