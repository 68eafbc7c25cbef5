//! Whether what clients were told can have happened:
//! - each register's history is linearizable (`lab::history`);
//! - each acknowledged append is in the list once, in the order of revisions; none that was refused is;
//! - each entry that was acknowledged is there, with the revision that was told;
//! - revisions never go back, from one answer to any request after it;
//! - a watch that was there all the time has told every acknowledged commit, once, and in order, and what it told adds up to
//!   what is there;
//! - who wrote behind a fence held the lock at that moment.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use lab::history::{Register, check};
use store::{Change, Entry, Key, Revision};

use crate::clients::{End, Record, key};

pub(crate) fn judge(record: &Record, End { told, listing }: &End) {
    let operations: usize = record.registers.values().map(Vec::len).sum();
    eprintln!(
        "{operations} on {} registers, {} appended, {} entries, {} commits acknowledged, {} unknown, {} unreachable",
        record.registers.len(),
        record.appended.len(),
        record.entries.len(),
        record.acknowledged.len(),
        record.unknown,
        record.unreachable
    );

    for (register, history) in &record.registers {
        if let Err(best) = check::<Register>(None, history) {
            let best: Vec<_> = best.iter().map(|place| &history[*place]).collect();
            panic!("{register} is not linearizable.\n{history:#?}\nbest order: {best:#?}");
        }
    }

    let there: HashMap<&Key, &Entry> = listing.entries.iter().map(|entry| (&entry.key, entry)).collect();
    let list = there
        .get(&key("list"))
        .map_or(String::new(), |entry| String::from_utf8(entry.value.clone()).unwrap());
    let list: Vec<u64> = list.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let mut last = None;
    for (place, number) in list.iter().enumerate() {
        assert!(!list[..place].contains(number), "{number} was appended twice");
        assert!(
            !record.refused.contains(number),
            "{number} was appended, and its writer was told that it was not"
        );
        let revision = record.appended.get(number).unwrap_or_else(|| panic!("{number} came from nowhere"));
        if revision.is_some() {
            assert!(*revision > last, "{number} is not where it was appended");
            last = *revision;
        }
    }
    for (number, revision) in &record.appended {
        assert!(revision.is_none() || list.contains(number), "{number} was acknowledged, and is lost");
    }

    for (entry, revision) in &record.entries {
        assert_eq!(there.get(entry).map(|entry| entry.revision), Some(*revision), "{entry}");
    }

    let mut by_return = record.revisions.clone();
    by_return.sort_by_key(|(_, returned, _)| *returned);
    let mut highest = Vec::new();
    for (_, returned, revision) in &by_return {
        let before = highest.last().map_or(*revision, |(_, highest): &(Instant, Revision)| *highest);
        highest.push((*returned, before.max(*revision)));
    }
    for (called, _, revision) in &by_return {
        let before = highest.partition_point(|(returned, _)| returned < called);
        if let Some((_, highest)) = before.checked_sub(1).map(|before| highest[before]) {
            assert!(*revision > highest, "{revision} was told after {highest}");
        }
    }

    assert!(told.is_sorted_by(|one, other| one.revision < other.revision), "a watch went back");
    let mut watched: HashMap<(Revision, Key), Vec<u8>> = HashMap::new();
    let mut state = BTreeMap::new();
    let mut held = None;
    for change in told.iter().flat_map(|changes| &changes.changes) {
        match change {
            Change::Put(entry) if entry.key.as_str() == "lock" => held = Some(entry.revision),
            Change::Deleted(_) => held = None,
            Change::Put(entry) if entry.key.as_str() == "guarded" => {
                let fence = held.map(|held| held.to_string().into_bytes());
                assert_eq!(
                    Some(&entry.value),
                    fence.as_ref(),
                    "who wrote at {} held no lock",
                    entry.revision
                );
            }
            Change::Put(_) => {}
        }
        match change {
            Change::Put(entry) => {
                watched.insert((entry.revision, entry.key.clone()), entry.value.clone());
                state.insert(entry.key.clone(), entry.value.clone());
            }
            Change::Deleted(key) => {
                assert_eq!(key.as_str(), "lock", "that was never deleted");
                state.remove(key);
            }
        }
    }
    for (revision, key, value) in &record.acknowledged {
        assert_eq!(
            watched.get(&(*revision, key.clone())),
            Some(value),
            "the watch did not tell of {key} at {revision}"
        );
    }
    // The lock may have ended since.
    state.remove(&key("lock"));
    let there = listing.entries.iter().filter(|entry| !["begin", "lock"].contains(&entry.key.as_str()));
    assert_eq!(
        there.map(|entry| (entry.key.clone(), entry.value.clone())).collect::<BTreeMap<_, _>>(),
        state
    );
}
