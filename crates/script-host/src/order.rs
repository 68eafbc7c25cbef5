//! The order of scripts at a hook of netfilter: of those of one priority the last loaded comes first, in whichever tier
//! each of them is.
//!
//! nftables puts a chain before what has its priority already. A program gets a priority at which nobody is, so it is
//! before the others if that is less than theirs; and what is loaded after it has to begin there.

use linux::bpf::netfilter::Hook;

/// Where a script is: at a hook, with the priority that was asked for or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    hook: Hook,
    asked: i32,
    given: i32,
}

impl Place {
    /// Its priority.
    pub(super) const fn priority(self) -> i32 {
        self.given
    }
}

/// The places of all scripts.
#[derive(Debug, Default)]
pub(super) struct Order(Vec<Place>);

impl Order {
    /// A place for a chain, before all that asked for this priority.
    pub(super) fn chain(&mut self, hook: Hook, asked: i32) -> Place {
        let given = self.least(hook, asked).unwrap_or(asked);
        self.take(hook, asked, given)
    }

    /// Priorities for a program, the best first: if others than ours are at it, the next.
    pub(super) fn for_program(&self, hook: Hook, asked: i32) -> [i32; 2] {
        let first = self.least(hook, asked).map_or(asked, |least| least.saturating_sub(1));
        [first, first.saturating_sub(1)]
    }

    /// A script has come to be there.
    pub(super) fn take(&mut self, hook: Hook, asked: i32, given: i32) -> Place {
        let place = Place { hook, asked, given };
        self.0.push(place);
        place
    }

    /// It is there no longer.
    pub(super) fn give_back(&mut self, place: Place) {
        if let Some(at) = self.0.iter().position(|taken| *taken == place) {
            self.0.swap_remove(at);
        }
    }

    fn least(&self, hook: Hook, asked: i32) -> Option<i32> {
        let ours = self.0.iter().filter(|place| (place.hook, place.asked) == (hook, asked));
        ours.map(|place| place.given).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As the kernel has them: by priority, and a chain before what has the same one.
        #[test]
        fn the_last_loaded_comes_first(steps in prop::collection::vec((0..3_u8, 0..8_usize), 1..60)) {
            let mut order = Order::default();
            let mut kernel: Vec<(Place, usize)> = Vec::new();
            for (number, (kind, which)) in steps.into_iter().enumerate() {
                let place = match kind {
                    0 => order.chain(Hook::Forward, -150),
                    1 => {
                        let free = |priority: &i32| kernel.iter().all(|(place, _)| place.given != *priority);
                        let [first, _] = order.for_program(Hook::Forward, -150);
                        prop_assert!(free(&first));
                        order.take(Hook::Forward, -150, first)
                    }
                    _ if kernel.is_empty() => continue,
                    _ => {
                        let (place, _) = kernel.remove(which % kernel.len());
                        order.give_back(place);
                        continue;
                    }
                };
                let at = kernel.partition_point(|(other, _)| other.given < place.given);
                kernel.insert(at, (place, number));
                let loaded: Vec<usize> = kernel.iter().map(|(_, number)| *number).collect();
                prop_assert!(loaded.is_sorted_by(|a, b| a > b), "{:?}", kernel);
            }
        }
    }

    #[test]
    fn each_hook_and_priority_has_an_order_of_its_own() {
        let mut order = Order::default();
        order.take(Hook::Forward, -150, -151);
        assert_eq!(order.chain(Hook::Forward, -150).priority(), -151);
        assert_eq!(order.chain(Hook::Input, -150).priority(), -150);
        assert_eq!(order.for_program(Hook::Forward, -149), [-149, -150]);
    }
}
