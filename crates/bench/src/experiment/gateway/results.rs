//! What was measured of what, and how two of them compare.

use crate::comparison::statistics::{Summary, quantile};
use crate::comparison::tables::{multiple, number};
use crate::experiment::store::{Place, Store};
use lab::topology::Topology;

use super::rules::RuleSet;
use super::subject::{List, Part, Subject, Translation, Tunnel, Way};
use super::test::{Family, Test};

/// One place in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) part: Part,
    pub(super) subject: Subject,
    pub(super) family: Family,
    pub(super) test: Test,
}

/// The same test in both IP versions.
pub(super) const fn families(part: Part, subject: Subject, test: Test) -> [Cell; 2] {
    [Cell { part, subject, family: Family::Ipv6, test }, Cell { part, subject, family: Family::Ipv4, test }]
}

pub(super) fn rules_cell(list: List, rules: impl Into<RuleSet>, family: Family, test: Test) -> Cell {
    Cell { part: Part::T2, subject: Subject::Rules(list, rules.into()), family, test }
}

pub(super) const fn tunnel_cell(tunnel: Tunnel, test: Test) -> Cell {
    Cell { part: Part::T3, subject: Subject::Tunnel(tunnel), family: Family::Ipv6, test }
}

pub(super) const fn translation_cell(way: Way, test: Test) -> Cell {
    let subject = Subject::Translation(Translation { way, offloads: matches!(test, Test::Tcp) });
    Cell { part: Part::Nat64, subject, family: way.family(), test }
}

/// Where the store has it. The hosts are on different subnets, and nothing rotates.
pub(super) fn place(cell: &Cell) -> Place<'static> {
    Place {
        topology: Topology::Routed,
        rotation: None,
        contender: format!("{}-{}", cell.part.name(), cell.subject.name()).into(),
        test: format!("{}-{}", cell.family.name(), cell.test.name()),
    }
}

/// Where it has what became of a start.
pub(super) fn start(name: &str) -> Place<'static> {
    let (topology, contender) = (Topology::Routed, name.to_owned().into());
    Place { topology, rotation: None, contender, test: "start".to_owned() }
}

/// What the store says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Results<'a>(pub(super) &'a Store);

impl Results<'_> {
    /// The value of each run that has one.
    fn runs(self, cell: &Cell) -> Vec<(u32, f64)> {
        let (name, _) = cell.test.value();
        let at = place(cell);
        let runs = self.0.at(&at).filter_map(|one| Some((one.run, *one.values.get(name)?)));
        runs.collect()
    }

    pub(super) fn median(self, cell: &Cell) -> Option<f64> {
        let values: Vec<f64> = self.runs(cell).into_iter().map(|(_, value)| value).collect();
        quantile(&values, 0.5)
    }

    /// The first as a multiple of the second, of each run.
    pub(super) fn ratio(self, cell: &Cell, base: &Cell) -> Option<Summary> {
        self.compare(cell, base, |value, base| value / base)
    }

    /// The first without the second, of each run.
    pub(super) fn difference(self, cell: &Cell, base: &Cell) -> Option<Summary> {
        self.compare(cell, base, |value, base| value - base)
    }

    fn compare(self, cell: &Cell, base: &Cell, how: impl Fn(f64, f64) -> f64) -> Option<Summary> {
        let base = self.runs(base);
        let of_base = |run| base.iter().find(|(one, _)| *one == run).map(|(_, value)| *value);
        let compared = self.runs(cell).into_iter().filter_map(|(run, value)| Some(how(value, of_base(run)?)));
        Summary::of(&compared.filter(|value| value.is_finite()).collect::<Vec<_>>())
    }

    /// The median, as tables show it.
    pub(super) fn text(self, cell: &Cell) -> Option<String> {
        let median = self.median(cell)?;
        let limited = !self.0.values(&place(cell), "limited").iter().all(|limited| *limited == 0.0);
        Some(format!("{}{}", if limited { "≥ " } else { "" }, number(median)))
    }

    /// A ratio, as tables show it.
    pub(super) fn ratio_text(self, cell: &Cell, base: &Cell) -> Option<String> {
        self.ratio(cell, base).map(ratio_text)
    }
}

/// Median and range of a ratio.
pub(super) fn ratio_text(Summary { median, min, max }: Summary) -> String {
    if min == max {
        format!("{}×", multiple(median))
    } else {
        format!("{}× ({}–{})", multiple(median), multiple(min), multiple(max))
    }
}
