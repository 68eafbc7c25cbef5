//! What was measured, beside what was published: cells, rows, tables and plots, and all of them as text.

use maud::Markup;

use crate::chart::Scale;
use crate::chart::dots::{Row, figure};
use crate::comparison::statistics::Mean;
use crate::comparison::tables::{Table, number, time};
use crate::experiment::papers::{self, ALL_FILES, LOST, Published, PublishedSystem};
use crate::experiment::plan::{HASTE, USUAL, name_of};
use crate::experiment::store::{Place, Store};
use lab::topology::Topology;

/// Where and how all of it was measured.
pub(crate) fn setting(store: &Store) -> String {
    let settings = &store.settings;
    let scale = if settings.full {
        "The published lengths and rotation intervals.".to_owned()
    } else {
        format!(
            "Scaled down: time runs {HASTE} times as fast, so that a rotation interval called 10 s is {} s, and pings \
             that the papers send every second leave every {} ms; transfers and floods end after some seconds.",
            10 / HASTE,
            1000 / HASTE
        )
    };
    let seconds = store.all().map(|one| one.took_s).sum::<f64>();
    format!(
        "Sidestep {}. {}. {scale} {} measurements, {} of measuring.",
        settings.version,
        settings.machine,
        store.all().count(),
        time(seconds)
    )
}

/// What could not be measured, and why.
pub(crate) fn failures(store: &Store) -> Vec<String> {
    let failed = store.all().filter_map(|one| {
        let why = one.failed.as_ref()?;
        let lab = name_of(one.topology);
        Some(format!("{}, {}, run {}, {lab}: {why}", one.contender, one.test, one.run))
    });
    failed.collect()
}

/// Every published value, with the table, figure or section that it comes from.
pub(crate) fn published() -> Table {
    let rows = papers::PUBLISHED.iter().map(|one| {
        let interval = one.rotation.map_or("none".into(), |seconds| format!("{seconds} s"));
        let test = if one.test == ALL_FILES { "all files" } else { one.test };
        let cells =
            [one.source, one.system.name(), &name_of(one.topology), &interval, test, one.value, &theirs(one)];
        cells.map(str::to_owned).to_vec()
    });
    let header = ["source", "whose", "lab", "rotation", "test", "value", "number"];
    table("What was published", "", &header, rows.collect())
}

/// What the documents had and their text has lost.
pub(crate) fn lost() -> Table {
    let rows = LOST.map(|(what, why)| vec![what.to_owned(), why.to_owned()]);
    table("What the documents' text has lost", "", &["what", "what is missing"], rows.to_vec())
}

/// Whose values a line has.
#[derive(Clone, Copy)]
pub(crate) enum Series<'a> {
    Ours(&'a str),
    /// And between which gateways.
    Theirs(PublishedSystem, Topology),
}

/// Where a column's values come from.
#[derive(Clone)]
pub(crate) struct Column {
    pub(crate) title: String,
    test: String,
    value: &'static str,
}

/// A column.
pub(crate) fn column(title: impl Into<String>, test: impl Into<String>, value: &'static str) -> Column {
    Column { title: title.into(), test: test.into(), value }
}

/// A setting: what a table is about.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) store: &'a Store,
    pub(crate) topology: Topology,
    pub(crate) rotation: Option<u32>,
}

impl<'a> Setting<'a> {
    /// Everybody at the usual rotation interval.
    pub(crate) fn usual(store: &'a Store, topology: Topology) -> Self {
        Self { store, topology, rotation: USUAL }
    }

    fn place<'b>(&self, contender: &'b str, test: &str) -> Place<'b> {
        let contender = contender.into();
        Place { topology: self.topology, rotation: self.rotation, contender, test: test.to_owned() }
    }

    /// What the runs say of a mean.
    pub(crate) fn mean(&self, contender: &str, column: &Column) -> Option<Mean> {
        self.store.mean(&self.place(contender, &column.test), column.value)
    }

    /// A published value at this rotation, if there is one.
    fn published(
        &self,
        system: PublishedSystem,
        topology: Topology,
        column: &Column,
    ) -> Option<&'static Published> {
        papers::find(system, topology, self.rotation, &column.test, column.value)
    }

    /// Whose published values stand beside ours: those of the same topology, and for different subnets, where the documents
    /// have lost most, those of one subnet too.
    pub(crate) fn theirs(&self) -> Vec<(PublishedSystem, Topology)> {
        let more = (self.topology == Topology::Routed).then_some(Topology::Switched);
        let topologies = std::iter::once(self.topology).chain(more);
        topologies.flat_map(|topology| PublishedSystem::ALL.map(|system| (system, topology))).collect()
    }

    /// Ours, then theirs.
    fn all_series(&self) -> Vec<Series<'a>> {
        let ours = self.store.settings.contenders.iter().map(|entry| Series::Ours(entry.name.as_str()));
        ours.chain(self.theirs().into_iter().map(|(system, topology)| Series::Theirs(system, topology)))
            .collect()
    }

    /// Its name in a table.
    pub(crate) fn name(&self, series: Series) -> String {
        match series {
            Series::Ours(name) => name.to_owned(),
            Series::Theirs(system, topology) if topology == self.topology => system.name().to_owned(),
            Series::Theirs(system, topology) => format!("{}, {}", system.name(), name_of(topology)),
        }
    }

    /// What a table says; nothing, if there is no value.
    pub(crate) fn cell(&self, series: Series, column: &Column) -> Option<String> {
        match series {
            Series::Ours(name) => {
                let mean = self.mean(name, column)?;
                let place = self.place(name, &column.test);
                let cut = column.value == "mb_per_s"
                    && self.store.at(&place).any(|one| one.values.get("complete") == Some(&0.0));
                Some(format!("{}{}", said(mean), if cut { " *" } else { "" }))
            }
            Series::Theirs(system, topology) => self.published(system, topology, column).map(theirs),
        }
    }

    /// A table of everybody who has a value in it. One of theirs alone is not shown: there is nothing to compare.
    pub(crate) fn table(&self, title: &str, how: &str, columns: &[Column]) -> Option<Table> {
        // A column that nobody of ours has was not measured.
        let measured = |column: &&Column| {
            self.store.settings.contenders.iter().any(|entry| self.mean(&entry.name, column).is_some())
        };
        let columns: Vec<&Column> = columns.iter().filter(measured).collect();
        if columns.is_empty() {
            return None;
        }
        let rows = self.all_series().into_iter().filter_map(|series| {
            let cells: Vec<Option<String>> = columns.iter().map(|column| self.cell(series, column)).collect();
            cells.iter().any(Option::is_some).then(|| {
                let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".into()));
                std::iter::once(self.name(series)).chain(cells).collect()
            })
        });
        let header: Vec<&str> =
            std::iter::once("").chain(columns.iter().map(|column| column.title.as_str())).collect();
        Some(table(title, how, &header, rows.collect()))
    }

    /// A plot of one column. `range`: the values that a line reaches from and to.
    pub(crate) fn plot(
        &self,
        caption: &str,
        column: &Column,
        scale: Scale,
        range: Option<[&'static str; 2]>,
    ) -> Option<Markup> {
        let rows = self.all_series().into_iter().filter_map(|series| self.row(series, column, range));
        let rows: Vec<Row> = rows.collect();
        if rows.iter().all(|row| row.theirs) { None } else { figure(caption, &rows, scale) }
    }

    /// A line of a plot; nothing, if there is no value.
    pub(crate) fn row(
        &self,
        series: Series,
        column: &Column,
        range: Option<[&'static str; 2]>,
    ) -> Option<Row> {
        let ends = |of: &dyn Fn(&'static str) -> Option<f64>| {
            range.and_then(|[low, high]| Some((of(low)?, of(high)?)))
        };
        match series {
            Series::Ours(contender) => {
                let Mean { value, margin, .. } = self.mean(contender, column)?;
                let place = self.place(contender, &column.test);
                let range = ends(&|name| self.store.mean(&place, name).map(|mean| mean.value));
                Some(Row {
                    name: self.name(series),
                    theirs: false,
                    value,
                    margin,
                    range,
                    said: self.cell(series, column)?,
                })
            }
            Series::Theirs(system, topology) => {
                let published = self.published(system, topology, column)?;
                let other = |value| Column { value, ..column.clone() };
                let range =
                    ends(&|name| self.published(system, topology, &other(name)).map(|one| one.number));
                let said = theirs(published);
                Some(Row {
                    name: self.name(series),
                    theirs: true,
                    value: published.number,
                    margin: None,
                    range,
                    said,
                })
            }
        }
    }
}

/// A mean with its margin.
pub(crate) fn said(Mean { value, margin, .. }: Mean) -> String {
    match margin {
        Some(margin) if margin > 0.0 => format!("{} ± {}", plain(value), plain(margin)),
        _ => plain(value),
    }
}

/// A published number as the text has it.
fn theirs(published: &Published) -> String {
    format!("{} {}", published.more_or_less, plain(published.number)).trim().to_owned()
}

/// Nothing is just nothing.
pub(crate) fn plain(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        negative if negative < 0.0 => format!("-{}", number(-negative)),
        small if small < 0.0095 => format!("{small:.4}"),
        usual => number(usual),
    }
}

/// A table with a heading for each column.
pub(crate) fn table(title: &str, how: &str, header: &[&str], rows: Vec<Vec<String>>) -> Table {
    let header = header.iter().map(|cell| (*cell).to_owned()).collect();
    Table { title: title.to_owned(), how: how.to_owned(), header, rows }
}

/// A row.
pub(crate) fn line(name: String, cells: Vec<Option<String>>) -> Vec<String> {
    std::iter::once(name).chain(cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".into()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_negative_numbers_can_be_read() {
        assert_eq!([0.0, 0.0012, -0.5, 12.345].map(plain), ["0", "0.0012", "-0.500", "12.3"]);
    }
}
