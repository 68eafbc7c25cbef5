//! All that was measured, and its tables.

use serde::Serialize;

use super::contender::StackContender;
use super::load::Direction;
use super::scene::Link;
use super::section7::Section7;
use super::tunnels::Tunnels;
use crate::comparison::quantile;
use crate::comparison::statistics::Summary;
use crate::comparison::tables::Table;

/// One value.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measured {
    pub(super) contender: &'static str,
    pub(super) link: &'static str,
    pub(super) direction: &'static str,
    pub(super) repetition: u32,
    /// Megabits per second.
    pub(super) mbit: f64,
}

/// All of them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Results {
    pub(super) machine: String,
    pub(super) settings: String,
    pub(super) tcp: Vec<Measured>,
    /// Bytes of an idle connection.
    pub(super) idle: Option<f64>,
    pub(super) tunnels: Option<Tunnels>,
    pub(super) section7: Option<Section7>,
    /// Of all but the tunnels and section 7, which have their own.
    pub(super) failures: Vec<String>,
}

impl Results {
    /// Of each repetition, in order.
    fn values(&self, contender: StackContender, link: Link, direction: Direction) -> Vec<(u32, f64)> {
        let name = (contender.name(), link.title(), direction.title());
        let is_it = |one: &&Measured| (one.contender, one.link, one.direction) == name;
        self.tcp.iter().filter(is_it).map(|one| (one.repetition, one.mbit)).collect()
    }

    /// What the repetitions say together.
    pub(super) fn summary(
        &self,
        contender: StackContender,
        link: Link,
        direction: Direction,
    ) -> Option<Summary> {
        let values = self.values(contender, link, direction).into_iter().map(|(_, mbit)| mbit);
        Summary::of(&values.collect::<Vec<_>>())
    }

    /// The median of the ratios to another contender within a repetition.
    pub(super) fn ratio(
        &self,
        contender: StackContender,
        base: StackContender,
        link: Link,
        direction: Direction,
    ) -> Option<f64> {
        let bases = self.values(base, link, direction);
        let ratios: Vec<f64> = self
            .values(contender, link, direction)
            .into_iter()
            .filter_map(|(repetition, mbit)| {
                let (_, base) = bases.iter().find(|(other, _)| *other == repetition)?;
                (*base > 0.0).then(|| mbit / base)
            })
            .collect();
        quantile(&ratios, 0.5)
    }

    /// Who took part in the comparison of TCP.
    pub(super) fn contenders(&self) -> impl Iterator<Item = StackContender> {
        let took_part = |one: &StackContender| self.tcp.iter().any(|other| other.contender == one.name());
        StackContender::ALL.into_iter().filter(took_part)
    }

    /// Whatever could not be measured, and why.
    pub(super) fn failures(&self) -> Vec<String> {
        let tunnels = self.tunnels.iter().flat_map(Tunnels::failures);
        let section7 = self.section7.iter().flat_map(|section7| section7.failures.iter().cloned());
        self.failures.iter().cloned().chain(tunnels).chain(section7).collect()
    }

    pub(super) fn tables(&self) -> Vec<Table> {
        let tunnels = self.tunnels.iter().flat_map(Tunnels::tables);
        let section7 = self.section7.iter().flat_map(Section7::tables);
        std::iter::once(self.tcp())
            .chain(tunnels)
            .chain(section7)
            .filter(|table| !table.rows.is_empty())
            .collect()
    }

    fn tcp(&self) -> Table {
        let rows = Link::ALL.into_iter().flat_map(|link| {
            Direction::ALL.map(|direction| {
                let cells = self.contenders().map(|one| self.cell(one, link, direction));
                let name = format!("{}, {}", link.title(), direction.title());
                std::iter::once(name).chain(cells).collect::<Vec<_>>()
            })
        });
        let header = std::iter::once("link").chain(self.contenders().map(StackContender::name));
        Table {
            title: "TCP, one connection, Mbit/s".to_owned(),
            how: "The client is the kernel's. In brackets: of the kernel's, the median of the ratios within each \
                  repetition."
                .to_owned(),
            header: header.map(str::to_owned).collect(),
            rows: rows.filter(|row| row.iter().skip(1).any(|cell| cell != "–")).collect(),
        }
    }

    fn cell(&self, one: StackContender, link: Link, direction: Direction) -> String {
        let ratio = self.ratio(one, StackContender::Kernel, link, direction);
        match (self.summary(one, link, direction), ratio) {
            (Some(summary), Some(ratio)) => format!("{:.1} ({ratio:.2}×)", summary.median),
            _ => "–".into(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two repetitions of two contenders; in the second one the machine is half as fast.
    pub(in crate::stack) fn example() -> Results {
        let one = |contender: StackContender, repetition, mbit| Measured {
            contender: contender.name(),
            link: Link::Direct.title(),
            direction: Direction::To.title(),
            repetition,
            mbit,
        };
        Results {
            machine: "<machine>".into(),
            tcp: vec![
                one(StackContender::Kernel, 1, 8_000.0),
                one(StackContender::Sidestep, 1, 6_000.0),
                one(StackContender::Kernel, 2, 4_000.0),
                one(StackContender::Sidestep, 2, 3_000.0),
            ],
            idle: Some(3_000.0),
            ..Results::default()
        }
    }

    #[test]
    fn ratios_are_taken_within_a_repetition_and_the_absent_have_no_column() {
        let table = example().tcp();
        assert_eq!(table.header, ["link", "kernel", "sidestep"]);
        assert_eq!(table.rows, [["no link between, receiving", "6000.0 (1.00×)", "4500.0 (0.75×)"]]);
    }
}
