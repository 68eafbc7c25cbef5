//! Stories that every store tells alike, written once.

mod commits;
mod leases;
mod watches;

use std::future::Future;
use std::time::Duration;

pub(crate) use commits::*;
pub(crate) use leases::*;
use store::{Change, Changes, Commit, Entry, Key, Prefix, Revision, Store, Watch};
pub(crate) use watches::*;

/// Long for anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a story takes place: an empty store.
pub(crate) trait Place {
    type Store: Store;

    /// Another client of it.
    fn client(&self) -> Self::Store;

    /// Lets the store forget what was before now.
    fn forget(&self) -> impl Future<Output = ()>;

    /// Lets time pass, for the store's leases.
    fn pass(&self, time: Duration) -> impl Future<Output = ()>;

    /// The shortest lease.
    fn lease(&self) -> Duration;
}

/// Gives the names of all stories to a macro.
macro_rules! for_each_story {
    ($then:ident) => {
        $then! {
            what_was_put_is_read_back,
            only_what_was_read_is_replaced,
            only_what_is_not_there_is_made,
            a_commit_happens_as_a_whole_or_not_at_all,
            revisions_rise_and_what_changes_nothing_has_none,
            conditions_alone_are_judged_by_what_was_committed_before,
            a_list_is_ordered_and_ends_where_its_prefix_ends,
            a_list_is_one_moment_while_others_write,
            of_many_who_replace_the_same_one_is_first,
            what_is_too_large_is_refused_before_it_is_sent,
            large_values_come_back_whole,
            a_commit_with_a_witness_happens_once,
            a_watch_hands_out_whole_commits_in_order,
            a_watch_goes_on_after_any_revision,
            a_watch_misses_nothing_while_others_write,
            a_watch_that_is_not_waited_for_takes_nothing_with_it,
            a_watch_of_what_is_forgotten_says_so,
            a_watch_of_a_revision_that_never_was_says_so,
            keys_vanish_when_their_lease_ends,
            a_lease_that_is_kept_alive_does_not_end,
            a_revoked_lease_takes_its_keys_along,
            a_key_is_bound_to_its_last_lease_only,
            an_ended_lease_is_not_kept_alive_and_binds_nothing,
            who_held_the_lock_before_is_fenced_off,
        }
    };
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn below(name: &str) -> Prefix {
    Prefix::new(name).unwrap()
}

async fn put<S: Store>(store: &S, name: &str, value: &str) -> Revision {
    store.commit(&Commit::new().put(key(name), value)).await.unwrap()
}

async fn read<S: Store>(store: &S, name: &str) -> Option<Entry> {
    store.get(&key(name)).await.unwrap()
}

/// The store's revision.
async fn now<S: Store>(store: &S) -> Revision {
    store.list(&below("nothing")).await.unwrap().revision
}

async fn next(watch: &mut impl Watch) -> Changes {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("nothing was handed out").unwrap()
}

/// What was handed out, short: `a=1` for a put, `-a` for a removal.
fn words(changes: &Changes) -> String {
    let word = |change: &Change| match change {
        Change::Put(entry) => format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value)),
        Change::Deleted(key) => format!("-{key}"),
    };
    changes.changes.iter().map(word).collect::<Vec<_>>().join(" ")
}
