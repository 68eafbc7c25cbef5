//! What scripts have metrics export: counters and histograms, as they are now.

use std::sync::Arc;

use script::compile::shared::{Form, Shared};
use script::contents::Contents as _;
use script::metric::{Metric, Unit};
use tracing::warn;

use super::Host;
use super::error::RequestError;
use super::metric_protocol::{Bucket, Exported, Value};
use super::tables::{Table, Tiered};

impl Host {
    /// All that scripts have metrics export. In the kernel there is what the functions that are loaded use.
    pub(super) fn exported(&self) -> Result<Vec<Exported>, RequestError> {
        let mut all = Vec::new();
        for table in self.tables() {
            let shared = table.contents.shared();
            let Some(metric) = &shared.metric else { continue };
            let is_used = |id: &u32| {
                let script = self.scripts.iter().find(|script| script.id == *id);
                script.and_then(|script| script.runs.kernel()).is_some_and(|one| one.exports(metric))
            };
            // An earlier text of a script has left others in the kernel.
            if matches!(table.contents, Tiered::Kernel(_)) && !table.scripts.iter().any(is_used) {
                continue;
            }
            all.push(exported(&table, shared, metric)?);
        }
        Ok(all)
    }

    /// Says so where metrics of a script that was just loaded are not like those of others: they are left out.
    pub(super) fn compare_exported(&self, id: u32) {
        let Ok(all) = self.exported() else { return };
        let is_own = |one: &&Exported| one.scripts.contains(&id);
        for own in all.iter().filter(is_own) {
            let mut others = all.iter().filter(|other| !is_own(other));
            let Some(other) = others.find(|other| !own.goes_with(other)) else { continue };
            let what = format!(
                "metric {:?} is one of script {}, too, with another kind or help: it is not exported",
                own.name,
                other.scripts.first().copied().unwrap_or(0)
            );
            warn!("script {id}: {what}");
            self.common.log.add(id, &what);
        }
    }
}

fn exported(table: &Table<'_>, shared: &Shared, metric: &Arc<Metric>) -> Result<Exported, RequestError> {
    let entries = table.contents.entries()?;
    let number = |place: usize| {
        let octets = entries.get(place).and_then(|entry| entry.value.first_chunk());
        octets.map_or(0, |octets| i64::from_be_bytes(*octets))
    };
    // One that has come to the end of its numbers begins anew.
    let in_unit = |number: i64| Unit::in_base(metric.unit, number.max(0));
    let value = match &shared.form {
        Form::Histogram { bounds } => {
            let ends = bounds.iter().map(|end| Some(in_unit(*end))).chain([None]);
            let bucket = |(at, up_to)| Bucket { up_to, count: number(1 + at).max(0) as u64 };
            Value::Histogram { sum: in_unit(number(0)), buckets: ends.enumerate().map(bucket).collect() }
        }
        _ => Value::Counter { value: in_unit(number(0)) },
    };
    Ok(Exported {
        scripts: table.scripts.clone(),
        name: metric.name.clone(),
        help: metric.help.clone(),
        unit: metric.unit.map(|unit| unit.base().to_owned()),
        labels: metric.labels.clone(),
        value,
    })
}
