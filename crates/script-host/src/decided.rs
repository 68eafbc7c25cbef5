//! What Lua has decided of streams, told to the kernel's half of a script: it hands no more of their segments over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use script::compile::decided::{is_of, key, of_value, value};
use script::streams::{Decided, StreamKey};

use super::kernel::Maps;

/// The maps of a script that runs in both tiers, which are nobody else's: its program reads them, its threads write them.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnMaps(Arc<Mutex<Maps>>);

impl OwnMaps {
    /// For the program, when it is loaded.
    pub(super) fn lock(&self) -> MutexGuard<'_, Maps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what was decided of a stream of the table `streams`, or that nothing is.
    pub(super) fn note(
        &self,
        streams: &str,
        stream: &StreamKey,
        decided: Option<&Decided>,
    ) -> linux::Result<()> {
        for (_, map) in self.lock().all().iter().filter(|(meaning, _)| is_of(meaning, streams)) {
            match decided {
                Some(decided) => map.set(&key(stream), &value(decided))?,
                None => {
                    map.remove(&key(stream))?;
                }
            }
        }
        Ok(())
    }

    /// What is written down of a stream.
    pub(super) fn known(&self, streams: &str, stream: &StreamKey) -> linux::Result<Option<Decided>> {
        for (_, map) in self.lock().all().iter().filter(|(meaning, _)| is_of(meaning, streams)) {
            if let Some(value) = map.lookup(&key(stream))? {
                return Ok(of_value(&value));
            }
        }
        Ok(None)
    }
}
