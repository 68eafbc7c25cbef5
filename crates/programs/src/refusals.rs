//! Where programs refuse packets: each reason has a label, a counter, and an end of its own.

use std::cell::Cell;
use std::os::fd::AsRawFd;

use bpf::Condition::Equal;
use bpf::Register::{R0, R1, R7, R10};
use bpf::{Assembler, Label, Size};

use crate::snippet::Snippets as _;

/// The labels of `N` reasons, by their numbers.
pub(crate) struct Refusals<const N: usize> {
    labels: [Label; N],
    /// Which of them something leads to: the verifier wants no others.
    used: Cell<[bool; N]>,
}

impl<const N: usize> Refusals<N> {
    pub(crate) fn new(code: &mut Assembler) -> Self {
        Refusals { labels: std::array::from_fn(|_| code.label()), used: Cell::new([false; N]) }
    }

    /// Where a packet goes that is refused for the reason of this number.
    pub(crate) fn label(&self, reason: usize) -> Label {
        let mut used = self.used.get();
        used[reason] = true;
        self.used.set(used);
        self.labels[reason]
    }

    /// All of these come to here, counted: that of `reason` in the value `first + reason` of the counters, whose number is in
    /// R7 then. `place`: four bytes of the stack for it.
    pub(crate) fn counted(&self, code: &mut Assembler, counters: &impl AsRawFd, first: u32, place: i16) {
        let [count, uncounted] = std::array::from_fn(|_| code.label());
        let used = (first..).zip(self.labels).zip(self.used.get()).filter(|(_, used)| *used);
        for ((number, label), _) in used {
            code.bind(label);
            code.set(R7, number.cast_signed());
            code.jump(count);
        }
        code.bind(count);
        code.store(Size::Word, R10, place, R7);
        code.look_up(counters, place);
        code.jump_if(R0, Equal, 0, uncounted);
        code.set(R1, 1);
        code.count(0);
        code.bind(uncounted);
    }
}
