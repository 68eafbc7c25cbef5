//! `nf.counter` and `nf.histogram`: numbers of scripts, and which of them metrics export.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mlua::{Lua, MultiValue, Table as LuaTable, UserData, UserDataMethods, Value};

use super::core::Core;
use super::error::fail;
use super::named::lock;
use super::options::{name, persistent};
use crate::compile::shared::{Form, Shared};
use crate::metric::{Histogram, Metric, MetricError, MetricKind};

/// What a counter may be told, and a histogram.
const OF_COUNTER: [&str; 6] = ["name", "persistent", "help", "unit", "labels", "metric"];
const OF_HISTOGRAM: [&str; 7] = ["name", "persistent", "help", "unit", "labels", "metric", "buckets"];

/// A counter, as a script holds it.
pub(super) struct CounterHandle {
    counter: Arc<AtomicI64>,
    name: String,
    persistent: bool,
    metric: Option<Arc<Metric>>,
}

/// A histogram, as a script holds it.
pub(super) struct HistogramHandle {
    histogram: Arc<Histogram>,
    name: String,
    persistent: bool,
    metric: Arc<Metric>,
}

/// Puts them into the library.
pub(super) fn install(lua: &Lua, core: &Rc<Core>, nf: &LuaTable) -> mlua::Result<()> {
    let shared = Rc::clone(core);
    let make = move |lua: &Lua, options: Value| {
        let options = match options {
            Value::Table(options) => options,
            name => lua.create_table_from([("name", lua.unpack::<String>(name)?)])?,
        };
        only(lua, &options, "nf.counter", &OF_COUNTER)?;
        let (name, persistent) = (name(lua, &options)?, persistent(lua, &options)?);
        let metric = metric(lua, &options, &name)?;
        let metric =
            metric.map(|metric| declare(lua, &shared, &name, MetricKind::Counter, metric)).transpose()?;
        let named = shared.shared.borrow().tables.clone();
        let mut named = lock(&named.0);
        if !named.counters.contains_key(&name) {
            shared.may_name(lua, &mut named)?;
        }
        named.keep(&name, persistent);
        if let Some(metric) = &metric {
            named.export(&name, MetricKind::Counter, metric);
        }
        let counter = Arc::clone(named.counters.entry(name.clone()).or_default());
        Ok(CounterHandle { counter, name, persistent, metric })
    };
    nf.set("counter", lua.create_function(make)?)?;
    let shared = Rc::clone(core);
    let make = move |lua: &Lua, options: LuaTable| {
        only(lua, &options, "nf.histogram", &OF_HISTOGRAM)?;
        let (name, persistent) = (name(lua, &options)?, persistent(lua, &options)?);
        let bounds = options.get::<Option<Vec<i64>>>("buckets");
        let bounds = bounds.ok().flatten().ok_or_else(|| fail(lua, MetricError::Buckets))?;
        let new = Histogram::new(&bounds).map_err(|error| fail(lua, error))?;
        let metric = metric(lua, &options, &name)?;
        let metric = metric.ok_or_else(|| fail(lua, MetricError::Help(name.clone())))?;
        let metric = declare(lua, &shared, &name, MetricKind::Histogram, metric)?;
        let named = shared.shared.borrow().tables.clone();
        let mut named = lock(&named.0);
        if !named.histograms.contains_key(&name) {
            shared.may_name(lua, &mut named)?;
        }
        named.keep(&name, persistent);
        named.export(&name, MetricKind::Histogram, &metric);
        let known = named.histograms.get(&name).filter(|known| known.bounds() == bounds);
        let histogram = known.map_or_else(|| Arc::new(new), Arc::clone);
        named.histograms.insert(name.clone(), Arc::clone(&histogram));
        Ok(HistogramHandle { histogram, name, persistent, metric })
    };
    nf.set("histogram", lua.create_function(make)?)
}

impl CounterHandle {
    /// What it stands for, as plain data.
    pub(super) fn shared(&self) -> Shared {
        let (name, metric) = (self.name.clone(), self.metric.clone());
        Shared { name, form: Form::Counter, persistent: self.persistent, metric }
    }
}

impl HistogramHandle {
    /// What it stands for, as plain data.
    pub(super) fn shared(&self) -> Shared {
        let form = Form::Histogram { bounds: self.histogram.bounds().into() };
        let (name, metric) = (self.name.clone(), Some(Arc::clone(&self.metric)));
        Shared { name, form, persistent: self.persistent, metric }
    }
}

impl UserData for CounterHandle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("add", |lua, this, amount: MultiValue| {
            // What is given and is nil is a mistake, such as a table's entry that is not there.
            let amount = match amount.front() {
                None => 1,
                Some(Value::Nil) => {
                    return Err(fail(lua, format_args!("counter {:?}: add(nil)", this.name)));
                }
                Some(amount) => lua.unpack(amount.clone())?,
            };
            if this.metric.is_some() && amount < 0 {
                return Err(fail(
                    lua,
                    format_args!("counter {:?} is exported, and only grows: add({amount})", this.name),
                ));
            }
            Ok(this.counter.fetch_add(amount, Ordering::Relaxed).wrapping_add(amount))
        });
        methods.add_method("get", |_, this, ()| Ok(this.counter.load(Ordering::Relaxed)));
    }
}

impl UserData for HistogramHandle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("observe", |lua, this, value: i64| {
            if value < 0 {
                return Err(fail(
                    lua,
                    format_args!("histogram {:?} takes 0 or more: observe({value})", this.name),
                ));
            }
            this.histogram.observe(value);
            Ok(())
        });
        methods.add_method("count", |_, this, ()| Ok(this.histogram.count()));
        methods.add_method("sum", |_, this, ()| Ok(this.histogram.sum()));
    }
}

/// Refuses words that mean nothing: a unit that is not written correctly would never be seen.
fn only(lua: &Lua, options: &LuaTable, function: &str, known: &[&str]) -> mlua::Result<()> {
    for pair in options.pairs::<Value, Value>() {
        let key = pair?.0.to_string()?;
        if !known.contains(&&*key) {
            let known = known.join(", ");
            return Err(fail(lua, format_args!("{function} knows no `{key}`: there are {known}")));
        }
    }
    Ok(())
}

/// What metrics are to export, if anything: what has a text.
fn metric(lua: &Lua, options: &LuaTable, name: &str) -> mlua::Result<Option<Metric>> {
    let text = |key: &str| -> mlua::Result<Option<String>> {
        match options.get::<Value>(key)? {
            Value::Nil => Ok(None),
            Value::String(text) => Ok(Some(text.to_string_lossy())),
            other => Err(fail(lua, format_args!("`{key}` must be a string, not a {}", other.type_name()))),
        }
    };
    let (help, unit, metric) = (text("help")?, text("unit")?, text("metric")?);
    let labels = match options.get::<Value>("labels")? {
        Value::Nil => None,
        Value::Table(labels) => Some(labels.pairs().collect::<mlua::Result<BTreeMap<String, String>>>()?),
        other => {
            let what =
                format_args!("`labels` must be a table of names and values, not a {}", other.type_name());
            return Err(fail(lua, what));
        }
    };
    let Some(help) = help else {
        return match unit.is_some() || metric.is_some() || labels.is_some() {
            true => Err(fail(lua, MetricError::Help(name.to_owned()))),
            false => Ok(None),
        };
    };
    let metric =
        Metric::new(metric.as_deref().unwrap_or(name), unit.as_deref(), &help, labels.unwrap_or_default());
    metric.map(Some).map_err(|error| fail(lua, error))
}

/// Notes a metric of this state, if it goes with the others.
fn declare(
    lua: &Lua,
    core: &Core,
    name: &str,
    kind: MetricKind,
    metric: Metric,
) -> mlua::Result<Arc<Metric>> {
    core.metrics.borrow_mut().add(name, kind, metric).map_err(|error| fail(lua, error))
}
