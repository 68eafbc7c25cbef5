//! What was to be reached, beside what was measured.

use super::contender::StackContender as One;
use super::load::Direction;
use super::results::Results;
use super::scene::Link;
use super::tunnels::{AFTER, ASSOCIATION, IPSEC_UP, LIBIPSEC, MOVING, PROCESSOR, TCP};
use crate::comparison::tables::{Table, multiple, thousands};

/// Bytes of an association, and of an idle connection.
const ASSOCIATION_BYTES: f64 = 4096.0;
const IDLE_BYTES: f64 = 2048.0;

/// How a value is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    Times,
    Bytes,
}

impl Unit {
    pub(super) fn say(self, value: f64) -> String {
        match self {
            Self::Times => format!("{}×", multiple(value)),
            Self::Bytes => format!("{} bytes", thousands(value.round() as u64)),
        }
    }
}

/// One value that was to be reached.
#[derive(Clone, Debug)]
pub(super) struct Aim {
    pub(super) what: String,
    pub(super) wanted: Wanted,
    pub(super) unit: Unit,
    pub(super) measured: f64,
}

impl Aim {
    pub(super) fn is_met(&self) -> bool {
        match self.wanted {
            Wanted::AtLeast(least) => self.measured >= least,
            Wanted::AtMost(most) => self.measured <= most,
        }
    }

    pub(super) fn wanted(&self) -> String {
        match self.wanted {
            Wanted::AtLeast(least) => format!("at least {}", self.unit.say(least)),
            Wanted::AtMost(most) => format!("at most {}", self.unit.say(most)),
        }
    }
}

/// Those of which there is a value.
pub(super) fn all(results: &Results) -> Vec<Aim> {
    let mut all = tunnels(results);
    all.extend(tcp(results));
    all.extend(results.idle.map(|bytes| Aim {
        what: "memory of an idle connection of the stack".into(),
        wanted: Wanted::AtMost(IDLE_BYTES),
        unit: Unit::Bytes,
        measured: bytes,
    }));
    let section7 = results.section7.iter().flat_map(|section7| {
        let shares = section7.shares().into_iter();
        let shares =
            shares.map(|(name, share, least)| (format!("TCP with {name}, of plain TCP"), share, least));
        let versions = section7.versions().into_iter();
        let versions =
            versions.map(|(name, ratio)| (format!("IPv6, of IPv4: {name}, worst row"), ratio, 0.97));
        shares.chain(versions).collect::<Vec<_>>()
    });
    all.extend(section7.map(|(what, measured, least)| Aim {
        what,
        wanted: Wanted::AtLeast(least),
        unit: Unit::Times,
        measured,
    }));
    all
}

fn tunnels(results: &Results) -> Vec<Aim> {
    let Some(tunnels) = &results.tunnels else { return Vec::new() };
    let mut all = Vec::new();
    let mut ratio = |what: &str, metric, base, wanted| {
        all.extend(tunnels.ratio(metric, IPSEC_UP, base).map(|measured| Aim {
            what: what.to_owned(),
            wanted,
            unit: Unit::Times,
            measured,
        }));
    };
    for (metric, way) in TCP.into_iter().zip(["A to B", "B to A"]) {
        ratio(&format!("TCP through `ipsec up`, of libipsec, {way}"), metric, LIBIPSEC, Wanted::AtLeast(8.0));
        ratio(
            &format!("TCP through `ipsec up`, of the moving tunnel, {way}"),
            metric,
            MOVING,
            Wanted::AtLeast(0.9),
        );
    }
    ratio("processor time for a gigabyte, of charon's", PROCESSOR, LIBIPSEC, Wanted::AtMost(0.25));
    ratio("memory of `ipsec up`, of charon's", AFTER, LIBIPSEC, Wanted::AtMost(1.0));
    all.extend(tunnels.median(IPSEC_UP, ASSOCIATION).map(|bytes| Aim {
        what: "memory of an association more".into(),
        wanted: Wanted::AtMost(ASSOCIATION_BYTES),
        unit: Unit::Bytes,
        measured: bytes,
    }));
    all
}

fn tcp(results: &Results) -> Vec<Aim> {
    let mut all = Vec::new();
    let mut ratio = |base: One, link: Link, direction: Direction, least| {
        all.extend(results.ratio(One::Sidestep, base, link, direction).map(|measured| Aim {
            what: format!("TCP of the stack, of {}'s: {}, {}", base.name(), link.title(), direction.title()),
            wanted: Wanted::AtLeast(least),
            unit: Unit::Times,
            measured,
        }));
    };
    for (base, least) in [(One::Kernel, 0.5), (One::Smoltcp, 3.0), (One::Gvisor, 5.0)] {
        for direction in Direction::ALL {
            ratio(base, Link::Direct, direction, least);
        }
    }
    for link in Link::ALL.into_iter().filter(|link| *link != Link::Direct) {
        for direction in Direction::ALL {
            ratio(One::Kernel, link, direction, 0.8);
        }
    }
    all
}

/// As a table.
pub(super) fn table(aims: &[Aim]) -> Table {
    let row = |aim: &Aim| {
        let is_met = if aim.is_met() { "yes" } else { "no" };
        vec![aim.what.clone(), aim.wanted(), aim.unit.say(aim.measured), is_met.to_owned()]
    };
    Table {
        title: "What was to be reached".into(),
        how: "Medians of the ratios within each repetition.".into(),
        header: ["what", "wanted", "measured", "met"].map(str::to_owned).to_vec(),
        rows: aims.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::results::tests::example;

    #[test]
    fn an_aim_is_met_or_not_and_what_was_not_measured_is_no_aim() {
        let aims = all(&example());
        let said = table(&aims).rows;
        assert_eq!(
            said,
            [
                [
                    "TCP of the stack, of kernel's: no link between, receiving",
                    "at least 0.50×",
                    "0.75×",
                    "yes"
                ],
                ["memory of an idle connection of the stack", "at most 2,048 bytes", "3,000 bytes", "no"],
            ]
        );
    }
}
