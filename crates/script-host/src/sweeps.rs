//! Entries that have expired, taken out of tables in the kernel that refuse others when they are full: in Lua each write
//! does that, and a program cannot.
//!
//! Each such table is gone through some times within the time that its entries have, in steps of some thousand entries.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use linux::bpf::{Map, Place};
use linux::clock::monotonic_ms;
use script::compile::shared::{self, Form};
use script::tables::WhenFull;
use tracing::warn;

/// How often a table is gone through within the time of its entries.
const TIMES: u32 = 4;
/// How long it rests in between, at least and at most.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));
/// How long between two steps.
const STEP: Duration = Duration::from_millis(50);

/// How far each table has been gone through.
#[derive(Debug, Default)]
pub(super) struct Sweeps(Vec<Sweep>);

#[derive(Debug)]
struct Sweep {
    map: Weak<Map>,
    from: Option<Place>,
    due: Instant,
}

impl Sweeps {
    /// Does what is due in these maps, a step in each table; how long until there is more to do.
    pub(super) fn step<'m>(
        &mut self,
        maps: impl Iterator<Item = &'m (shared::Map, Arc<Map>)>,
    ) -> Option<Duration> {
        let Self(sweeps) = self;
        sweeps.retain(|sweep| sweep.map.strong_count() > 0);
        let now = Instant::now();
        for (meaning, map) in maps {
            let Some(rest) = rest(meaning) else { continue };
            let known = sweeps.iter().position(|sweep| sweep.map.as_ptr() == Arc::as_ptr(map));
            let at = known.unwrap_or_else(|| {
                sweeps.push(Sweep { map: Arc::downgrade(map), from: None, due: now + rest });
                sweeps.len() - 1
            });
            let sweep = &mut sweeps[at];
            if sweep.due > now {
                continue;
            }
            sweep.from = step(meaning, map, sweep.from.take()).unwrap_or_else(|error| {
                warn!("table {:?} keeps entries that have expired: {error}", meaning.shared.name);
                None
            });
            sweep.due = now + if sweep.from.is_some() { STEP } else { rest };
        }
        sweeps.iter().map(|sweep| sweep.due.saturating_duration_since(now)).min()
    }
}

/// How long a table may rest that could be full of what has expired.
fn rest(meaning: &shared::Map) -> Option<Duration> {
    let (Form::Table { shape, .. } | Form::Flows { shape, .. }) = &meaning.shared.form else { return None };
    let expires = shape.expires_ms.filter(|_| shape.when_full == WhenFull::Refuse)?;
    (meaning.part == shared::MapPart::Entries)
        .then(|| (Duration::from_millis(expires) / TIMES).clamp(REST.0, REST.1))
}

/// Takes what has expired out of the next entries: where to go on, if that was not the end.
fn step(meaning: &shared::Map, map: &Map, from: Option<Place>) -> linux::Result<Option<Place>> {
    let (entries, next) = map.entries_from(from)?;
    let now_ms = monotonic_ms();
    for (key, _) in entries.iter().filter(|(_, value)| meaning.has_expired(value, now_ms)) {
        // A packet may have written it since.
        if map.lookup(key)?.is_some_and(|value| meaning.has_expired(&value, now_ms)) {
            map.remove(key)?;
        }
    }
    Ok(next)
}
