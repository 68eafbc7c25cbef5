//! Functions of scripts with a second form, for packets that are followed.

use mlua::{Function, Value};

/// A function of a script, and its second form.
pub(crate) struct Twin {
    pub(super) path: String,
    /// So many lines behind those of the script its own are.
    pub(super) offset: usize,
    pub(super) function: Function,
    pub(super) twin: Function,
    /// What the variable has now in which it is.
    pub(super) get: Function,
    /// Gives it another value.
    pub(super) set: Function,
}

impl Twin {
    /// Puts one of its forms into its variable, if the other one is there.
    pub(super) fn put(&self, followed: bool) {
        let [from, to] = match followed {
            true => [&self.function, &self.twin],
            false => [&self.twin, &self.function],
        };
        // Where it has become something else, it stays that.
        if self.get.call::<Value>(()).is_ok_and(|value| value == Value::Function(from.clone())) {
            let _ = self.set.call::<()>(to.clone());
        }
    }
}
