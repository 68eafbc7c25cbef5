//! The tables of nftables that a tunnel has: which these are, and how they were when they were made last.

use linux::nft;
use linux::ruleset::{self, Family, Snapshot};

/// Places in [`Tables::all`].
const DARK: usize = 0;
const EARLY: usize = 1;
const OUTSIDE: usize = 2;

/// Those that keep the prefix dark, at its hooks and at the interface's, and the one that keeps the inner networks off the external
/// interface.
pub(super) struct Tables {
    names: [String; 2],
    /// The rules that they were made with, and how the kernel had them then, if that is known.
    made: Option<(String, Snapshot)>,
}

impl Tables {
    /// Those of a tunnel; nothing is made.
    pub(super) fn of(tunnel: &str) -> Self {
        Self { names: [nft::table_name(tunnel), linux::outside::table_name(tunnel)], made: None }
    }

    /// Their names, of any family.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// How the kernel has them now.
    pub(super) fn look(&self) -> linux::Result<Snapshot> {
        Snapshot::of(&self.all())
    }

    /// Whether they were made, and it is known how the kernel had them then.
    pub(super) fn are_known(&self) -> bool {
        self.made.is_some()
    }

    /// Whether nobody has changed them since they were made.
    pub(super) fn are(&self, now: &Snapshot) -> bool {
        self.made.as_ref().is_some_and(|(_, made)| made.is_same(now))
    }

    /// Whether they were made with these rules, and nobody has changed them since.
    pub(super) fn have(&self, rules: &str, now: &Snapshot) -> bool {
        self.are(now) && self.made.as_ref().is_some_and(|(made, _)| made == rules)
    }

    /// Has them made, which says whether there is one at the interface's hook, too; `before` is how they were before.
    pub(super) fn make(
        &mut self,
        rules: String,
        has_outside: bool,
        before: &Snapshot,
        make: impl FnMut() -> linux::Result<bool>,
    ) -> linux::Result<bool> {
        // Half way there nobody knows.
        self.made = None;
        let is_whole = |at_ingress: &bool, now: &Snapshot| {
            now.has(DARK) && now.has(EARLY) == *at_ingress && now.has(OUTSIDE) == has_outside
        };
        let (at_ingress, now) = ruleset::make_and_look(before, &self.all(), make, is_whole)?;
        self.made = now.map(|now| (rules, now));
        Ok(at_ingress)
    }

    fn all(&self) -> [(Family, &str); 3] {
        let [dark, outside] = &self.names;
        [(Family::Ip6, dark), (Family::Netdev, dark), (Family::Inet, outside)]
    }
}
