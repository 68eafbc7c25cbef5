//! `[uplink.bandwidth]`: what an uplink's link carries, so that queues are kept short here.

use std::time::Duration;

use router::site::{Bandwidth, Overhead};

use crate::converter::Converter;
use crate::key::Absent::{Default, Otherwise};
use crate::report::Finding;
use crate::section::{Period, section};
use crate::value::{Problem, duration, ipv6_address, measure, problem};

section! {
    /// `[uplink.bandwidth]`, as it stands in the file.
    BandwidthTable = "[uplink.bandwidth]" {
        /// What comes in at most, like `"100Mbit/s"`: 85 to 95 % of what the line was measured to carry. Less costs
        /// throughput; more, and the queue is the provider's again.
        down: String = Otherwise("not shaped");
        /// What goes out at most, likewise: 95 % of what was measured, as the queue before the line is the gateway's own.
        up: String = Otherwise("not shaped");
        /// Where the line carries now more, now less (mobile, satellite, cable): what comes in at least. The rate follows how
        /// long a host behind the line takes to answer, between this and `down` ([below](gateway.md#rates-that-follow)).
        down_least: String = Otherwise("the rate is `down`");
        /// What goes out at least, likewise.
        up_least: String = Otherwise("the rate is `up`");
        /// The host that is asked for that by ICMPv6, several times a second: one that is near behind the slowest link.
        reflector: String = Otherwise("the uplink's router");
        /// How much longer than usual its answer takes where a queue grows: more than what the line itself delays at times, as
        /// satellites do.
        delay: Period = Default(r#""30ms""#);
        /// What the line adds to each packet: `"ethernet"` (also fibre; 38 bytes), `"docsis"` (cable; 18), `"ptm"` (VDSL; 34
        /// with PPPoE in a VLAN), `"atm"` (ADSL; 44, in cells of 53), `"none"`. Too much costs 2 % of the rate with large
        /// packets; too little, and the queue is the provider's again while there are many small ones.
        overhead: String = Default(r#""ethernet""#);
    }
}

/// Below, a packet takes longer than people wait; above, CAKE with its one queue is no help.
const LEAST: f64 = 64e3;
const MOST: f64 = 100e9;

impl Converter<'_> {
    pub(crate) fn bandwidth(&mut self, given: &BandwidthTable) -> Option<Bandwidth> {
        let down = self.optional(&given.down, rate);
        let up = self.optional(&given.up, rate);
        let down_least = self.optional(&given.down_least, rate);
        let up_least = self.optional(&given.up_least, rate);
        let reflector = self.optional(&given.reflector, ipv6_address);
        let delay = self.value(&given.delay, |text| {
            duration(text, Duration::from_millis(5)..=Duration::from_secs(2), "write 5ms to 2s")
        });
        let overhead = self.value(&given.overhead, overhead);
        let bandwidth = Bandwidth {
            down: down?,
            up: up?,
            down_least: down_least?,
            up_least: up_least?,
            reflector: reflector?,
            delay: delay?,
            overhead: overhead?,
        };
        if (bandwidth.down, bandwidth.up) == (None, None) {
            let help = r#"write what the line carries, like { down = "100Mbit/s", up = "20Mbit/s" }"#;
            self.report(Finding::error(
                given.overhead.span_or_table(),
                "`bandwidth` says no rate",
                "neither `down` nor `up`",
                help,
            ));
            return None;
        }
        let sides = [
            ("down", bandwidth.down, "down_least", &given.down_least, bandwidth.down_least),
            ("up", bandwidth.up, "up_least", &given.up_least, bandwidth.up_least),
        ];
        for (most_key, most, key, given, least) in sides {
            let Some(least) = least else { continue };
            if most.is_none_or(|most| least >= most) {
                let help =
                    format!("write `{most_key}`, the most that the line carries, and less than that here");
                let label = format!("not less than `{most_key}`");
                self.refuse(given.span_or_table(), key, Problem { label, help });
                return None;
            }
        }
        if bandwidth.reflector.is_some() && bandwidth.limits().is_none() {
            let help = "write `down_least` or `up_least`, or leave it out".to_owned();
            let label = "no rate follows it".to_owned();
            self.refuse(given.reflector.span_or_table(), "reflector", Problem { label, help });
            return None;
        }
        Some(bandwidth)
    }
}

/// A rate of a link in bits per second, like `100Mbit/s`.
fn rate(text: &str) -> Result<u64, Problem> {
    const BITS: [(&str, f64); 4] = [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)];
    match measure(text, &BITS) {
        None => problem("not a rate", r#"write a number and a unit, like "100Mbit/s" or "1.5Gbit/s""#),
        Some(bits) if (LEAST..=MOST).contains(&bits) => Ok(bits as u64),
        Some(_) => problem("out of range", "a link has 64kbit/s to 100Gbit/s"),
    }
}

fn overhead(text: &str) -> Result<Overhead, Problem> {
    match text {
        "ethernet" => Ok(Overhead::Ethernet),
        "docsis" => Ok(Overhead::Docsis),
        "ptm" => Ok(Overhead::Ptm),
        "atm" => Ok(Overhead::Atm),
        "none" => Ok(Overhead::None),
        _ => problem("not a kind of line", r#"write "ethernet", "docsis", "ptm", "atm" or "none""#),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rate_has_a_unit_and_is_in_range() {
        assert_eq!(rate("100Mbit/s").ok(), Some(100_000_000));
        assert_eq!(rate("1.5 Gbit/s").ok(), Some(1_500_000_000));
        assert_eq!(rate("64kbit/s").ok(), Some(64_000));
        for wrong in
            ["100", "100M", "100Mbps", "-5Mbit/s", "1e3Mbit/s", "63kbit/s", "101Gbit/s", "NaNbit/s", ""]
        {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text: String) {
            let _ = (rate(&text), rate(&format!("{text}Mbit/s")), overhead(&text));
        }
    }
}
