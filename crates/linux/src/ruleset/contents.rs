//! What tables of nftables contain, asked over nfnetlink.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{NFNL_SUBSYS_NFTABLES, NFT_MSG_NEWGEN, TABLE_NAME};
use crate::error::{Error, Result};
use crate::nfnetlink::{ASK_FOR_ALL, ASK_FOR_ONE, Client, Message, attribute, attributes};

// linux/netfilter/nf_tables.h. The first two attributes of what is asked for are the names of its table and its own, but for
// tables.
const GET_TABLE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 1;
const GET_CHAIN: u16 = NFNL_SUBSYS_NFTABLES << 8 | 4;
const GET_RULE: u16 = NFNL_SUBSYS_NFTABLES << 8 | 7;
const GET_SET: u16 = NFNL_SUBSYS_NFTABLES << 8 | 10;
const GET_ELEMENTS: u16 = NFNL_SUBSYS_NFTABLES << 8 | 13;
const GET_GENERATION: u16 = NFNL_SUBSYS_NFTABLES << 8 | 16;
const GET_OBJECT: u16 = NFNL_SUBSYS_NFTABLES << 8 | 19;
const CHAIN_NAME: u16 = 3;
const RULE_CHAIN: u16 = 2;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_IS_ANONYMOUS: u32 = 0x1;
const SET_IS_MAP: u32 = 0x8;
/// Elements have a time, or packets make some.
const SET_CHANGES: u32 = 0x10 | 0x20;
const ELEMENTS_SET: u16 = 2;
const ELEMENTS: u16 = 3;
const GENERATION: u16 = 1;

/// The attributes that somebody has chosen: of a table its flags; of a chain its name, hook, policy, type and flags; of a rule its
/// chain and comment, and its [expressions](add_expressions); of a set its name and what is in it; of an element keys, data, flags
/// and time. Others are handles, counters, or new.
const OF_TABLE: &[u16] = &[2];
const OF_CHAIN: &[u16] = &[CHAIN_NAME, 4, 5, 7, 10];
const OF_RULE: &[u16] = &[2, 7];
const EXPRESSIONS: u16 = 4;
const OF_SET: &[u16] = &[SET_NAME, SET_FLAGS, 4, 5, 6, 7, 11, 15, 17, 18];
const OF_ELEMENT: &[u16] = &[1, 2, 3, 4, 9, 10];

/// How often tables are made, and looked at, while somebody else keeps changing some.
const TRIES: usize = 6;
const LOOKS: usize = 20;

/// Families of tables, by their numbers in linux/netfilter.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Both versions of IP.
    Inet = 1,
    /// IPv4.
    Ip = 2,
    /// What is at an interface, before IP.
    Netdev = 5,
    /// IPv6.
    Ip6 = 10,
}

/// Tables at one moment: to be compared, not to be read. Of each there is a digest of its flags, chains, rules and sets, without
/// handles and counts.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The number of the last transaction of this network namespace.
    generation: u32,
    /// `None` where there is no such table.
    digests: Vec<Option<u64>>,
}

impl Snapshot {
    /// Looks at these tables of this thread's network namespace, all at the same moment.
    ///
    /// # Errors
    /// Where the kernel does not say: it has no nftables, or CAP_NET_ADMIN is missing.
    pub fn of(tables: &[(Family, &str)]) -> Result<Self> {
        let mut client = open()?;
        let mut looks = 0;
        loop {
            let before = generation(&mut client)?;
            let digests: Result<_> =
                tables.iter().map(|(family, table)| digest(&mut client, *family, table)).collect();
            let generation = generation(&mut client)?;
            looks += 1;
            // A transaction in between, and so perhaps some of what was before it, and some of what came after.
            if generation != before && looks < LOOKS {
                continue;
            }
            return Ok(Self { generation, digests: digests? });
        }
    }

    /// Whether the table at this place of those that were asked for is there.
    #[must_use]
    pub fn has(&self, place: usize) -> bool {
        self.digests.get(place).is_some_and(Option::is_some)
    }

    /// Whether the same tables are in both, with the same contents.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.digests == other.digests
    }

    /// Whether there was one transaction since an earlier one.
    fn follows(&self, earlier: u32) -> bool {
        self.generation == earlier.wrapping_add(1)
    }
}

/// A table at one moment: to be compared with the same table later, not to be read.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    rules: usize,
    /// A digest of each part, in the kernel's order.
    parts: Vec<u64>,
}

impl Contents {
    /// Looks at a table of this thread's network namespace; nothing is in one that is not there. What is in sets whose elements
    /// have a time, or are made by packets, comes and goes by itself, and is left out.
    ///
    /// # Errors
    /// Where the kernel does not say.
    pub fn of(family: Family, table: &str) -> Result<Self> {
        Ok(contents(&mut open()?, family, table, |flags| flags & SET_CHANGES == 0)?.unwrap_or_default())
    }

    /// Whether there are rules.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.rules > 0
    }

    /// Whether all is still there that was there earlier, as it was and in the same order, whatever has been added.
    #[must_use]
    pub fn has_all_of(&self, earlier: &Self) -> bool {
        let mut now = self.parts.iter();
        earlier.parts.iter().all(|part| now.any(|found| found == part))
    }
}

/// The number of the last transaction of this thread's network namespace: while it is the same, nobody has changed a table.
///
/// # Errors
/// Where the kernel does not say.
pub fn last_transaction() -> Result<u32> {
    generation(&mut open()?)
}

/// Makes tables, by one transaction, and returns how they are then. Somebody may change them before they are looked at, as a
/// firewall does that flushes all tables. What is seen after one transaction only is nobody's but ours; where others never rest, so
/// is what is the same after it was made once more. `None` where that is not so either: they are to be looked at again. `before`
/// is what was there before; `is_whole` is given what `make` has returned, and says whether no table is missing.
///
/// # Errors
/// Those of `make`, and of [`Snapshot::of`].
pub fn make_and_look<T>(
    before: &Snapshot,
    tables: &[(Family, &str)],
    make: impl FnMut() -> Result<T>,
    is_whole: impl Fn(&T, &Snapshot) -> bool,
) -> Result<(T, Option<Snapshot>)> {
    make_until_known(before, || Snapshot::of(tables), make, is_whole)
}

fn make_until_known<T>(
    before: &Snapshot,
    look: impl Fn() -> Result<Snapshot>,
    mut make: impl FnMut() -> Result<T>,
    is_whole: impl Fn(&T, &Snapshot) -> bool,
) -> Result<(T, Option<Snapshot>)> {
    let (mut generation, mut last) = (before.generation, None::<Snapshot>);
    let mut tries = 0;
    loop {
        let made = make()?;
        let now = look()?;
        tries += 1;
        let is_last = tries == TRIES;
        let is_same = || last.is_some_and(|last| last.is_same(&now));
        if (now.follows(generation) || is_last && is_same()) && is_whole(&made, &now) {
            return Ok((made, Some(now)));
        }
        if is_last {
            return Ok((made, None));
        }
        generation = now.generation;
        last = Some(now);
    }
}

/// Whether there is a table of this family and name. Nothing of what is in it is read.
///
/// # Errors
/// Where the kernel does not say.
pub fn has_table(family: Family, table: &str) -> Result<bool> {
    ask(&mut open()?, (GET_TABLE, ASK_FOR_ONE), family, &[(TABLE_NAME, table)], |_| {})
}

/// Whether a table has this chain.
///
/// # Errors
/// Where the kernel does not say.
pub fn has_chain(family: Family, table: &str, chain: &str) -> Result<bool> {
    let chain = [(TABLE_NAME, table), (CHAIN_NAME, chain)];
    ask(&mut open()?, (GET_CHAIN, ASK_FOR_ONE), family, &chain, |_| {})
}

/// How many rules a table has; none where there is no table.
///
/// # Errors
/// Where the kernel does not say.
pub fn count_rules(family: Family, table: &str) -> Result<usize> {
    let mut rules = 0;
    ask(&mut open()?, (GET_RULE, ASK_FOR_ALL), family, &[(TABLE_NAME, table)], |_| rules += 1)?;
    Ok(rules)
}

/// The chain of each rule that a table has; none where there is no table.
///
/// # Errors
/// Where the kernel does not say.
pub fn chains_of_rules(family: Family, table: &str) -> Result<Vec<String>> {
    let mut chains = Vec::new();
    ask(&mut open()?, (GET_RULE, ASK_FOR_ALL), family, &[(TABLE_NAME, table)], |rule| {
        chains.extend(attribute(rule, RULE_CHAIN).map(text));
    })?;
    Ok(chains)
}

/// The names of what is in a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Chains.
    pub chains: Vec<String>,
    /// Maps, but for those that have no name but the kernel's.
    pub maps: Vec<String>,
    /// Sets, but for those that have no name but the kernel's.
    pub sets: Vec<String>,
}

/// The names of what is in a table; none where there is no table.
///
/// # Errors
/// Where the kernel does not say.
pub fn names(family: Family, table: &str) -> Result<Names> {
    let mut client = open()?;
    let mut names = Names::default();
    ask(&mut client, (GET_CHAIN, ASK_FOR_ALL), family, &[(TABLE_NAME, table)], |chain| {
        names.chains.extend(attribute(chain, CHAIN_NAME).map(text));
    })?;
    ask(&mut client, (GET_SET, ASK_FOR_ALL), family, &[(TABLE_NAME, table)], |set| {
        let flags = attribute(set, SET_FLAGS).and_then(number).unwrap_or(0);
        let listed = if flags & SET_IS_MAP == 0 { &mut names.sets } else { &mut names.maps };
        if flags & SET_IS_ANONYMOUS == 0 {
            listed.extend(attribute(set, SET_NAME).map(text));
        }
    })?;
    Ok(names)
}

/// The packets of a named counter of a table.
///
/// # Errors
/// Where there is none, or the kernel does not say.
pub(crate) fn counted_packets(family: Family, table: &str, name: &str) -> Result<u64> {
    const OBJECT_COUNTER: u32 = 1;
    let (object_type, object_data, counter_packets) = (3, 4, 2);
    let mut request = Vec::new();
    let mut message = begin(&mut request, GET_OBJECT, ASK_FOR_ONE, family, &[(TABLE_NAME, table), (2, name)]);
    message.attribute(object_type, &OBJECT_COUNTER.to_be_bytes());
    message.end();
    let mut packets = None;
    open()?.ask(&request, |_, object| {
        let counter = attribute(object, object_data).and_then(|data| attribute(data, counter_packets));
        packets = counter.and_then(|value| Some(u64::from_be_bytes(value.try_into().ok()?)));
    })?;
    packets.ok_or_else(|| Error::other("NFT_MSG_GETOBJ", "no such counter"))
}

fn open() -> Result<Client> {
    Client::open("ask for tables of nftables (needs CAP_NET_ADMIN and nf_tables)")
}

fn generation(client: &mut Client) -> Result<u32> {
    let mut found = None;
    let mut request = Vec::new();
    Message::begin(&mut request, GET_GENERATION, ASK_FOR_ONE, 1, libc::AF_UNSPEC as u8, 0).end();
    client.ask(&request, |kind, attributes| {
        if kind & 0xff == NFT_MSG_NEWGEN {
            found = attribute(attributes, GENERATION).and_then(number);
        }
    })?;
    found.ok_or_else(|| Error::other("NFT_MSG_GETGEN", "no number"))
}

fn digest(client: &mut Client, family: Family, table: &str) -> Result<Option<u64>> {
    let found = contents(client, family, table, |_| true)?;
    Ok(found.map(|found| {
        let mut hasher = DefaultHasher::new();
        found.parts.hash(&mut hasher);
        hasher.finish()
    }))
}

/// What is in a table; elements are those of sets with such flags. None where there is no table.
fn contents(
    client: &mut Client,
    family: Family,
    table: &str,
    has_elements: impl Fn(u32) -> bool,
) -> Result<Option<Contents>> {
    let of_table = [(TABLE_NAME, table)];
    let (mut found, mut sets) = (Contents::default(), Vec::new());
    for (what, flags, kept) in [
        (GET_TABLE, ASK_FOR_ONE, OF_TABLE),
        (GET_CHAIN, ASK_FOR_ALL, OF_CHAIN),
        (GET_RULE, ASK_FOR_ALL, OF_RULE),
        (GET_SET, ASK_FOR_ALL, OF_SET),
    ] {
        let is_there = ask(client, (what, flags), family, &of_table, |part| {
            let mut hasher = DefaultHasher::new();
            what.hash(&mut hasher);
            add(&mut hasher, part, kept);
            if what == GET_RULE {
                found.rules += 1;
                add_expressions(&mut hasher, attribute(part, EXPRESSIONS).unwrap_or_default());
            }
            found.parts.push(hasher.finish());
            let flags = attribute(part, SET_FLAGS).and_then(number).unwrap_or(0);
            if what == GET_SET && has_elements(flags) {
                sets.extend(attribute(part, SET_NAME).map(text));
            }
        })?;
        if !is_there {
            return Ok(None);
        }
    }
    for set in sets {
        let mut elements = Vec::new();
        let of_set = [(TABLE_NAME, table), (ELEMENTS_SET, set.as_str())];
        ask(client, (GET_ELEMENTS, ASK_FOR_ALL), family, &of_set, |some| {
            for (_, element) in attributes(attribute(some, ELEMENTS).unwrap_or_default()) {
                let mut hasher = DefaultHasher::new();
                set.hash(&mut hasher);
                add(&mut hasher, element, OF_ELEMENT);
                elements.push(hasher.finish());
            }
        })?;
        // The kernel has some in the order of a table that grows.
        elements.sort_unstable();
        found.parts.append(&mut elements);
    }
    Ok(Some(found))
}

fn add(hasher: &mut DefaultHasher, bytes: &[u8], kept: &[u16]) {
    attributes(bytes).filter(|(kind, _)| kept.contains(kind)).for_each(|attribute| attribute.hash(hasher));
    // What has fewer attributes is not what has those of the next, too.
    hasher.write_u16(u16::MAX);
}

/// Adds the expressions of a rule: of those that count, only that they are there.
fn add_expressions(hasher: &mut DefaultHasher, bytes: &[u8]) {
    const NAME: u16 = 1;
    for (_, expression) in attributes(bytes) {
        match attribute(expression, NAME) {
            Some(name @ (b"counter\0" | b"quota\0" | b"last\0")) => name.hash(hasher),
            _ => expression.hash(hasher),
        }
    }
}

/// Asks for what a table has, or for the table itself; whether it, and what is asked for by name, is there.
fn ask(
    client: &mut Client,
    (what, flags): (u16, u16),
    family: Family,
    names: &[(u16, &str)],
    mut visit: impl FnMut(&[u8]),
) -> Result<bool> {
    let mut request = Vec::new();
    begin(&mut request, what, flags, family, names).end();
    let asked = client.ask(&request, |_, attributes| {
        let table = attribute(attributes, TABLE_NAME).map(text);
        // Of chains the kernel gives those of all tables.
        if names.contains(&(TABLE_NAME, &table.unwrap_or_default())) {
            visit(attributes);
        }
    });
    match asked {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

fn begin<'a>(
    request: &'a mut Vec<u8>,
    what: u16,
    flags: u16,
    family: Family,
    names: &[(u16, &str)],
) -> Message<'a> {
    let mut message = Message::begin(request, what, flags, 1, family as u8, 0);
    for (kind, name) in names {
        message.attribute(*kind, &[name.as_bytes(), &[0]].concat());
    }
    message
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name.strip_suffix(&[0]).unwrap_or(name)).into_owned()
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(value.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Makes a table while somebody else flushes it after it was made so many times; or does something else before that.
    fn made_beside(flushed_after: &[u32], busy_before: &[u32]) -> (u32, Option<Snapshot>) {
        let (is_there, generation, made) = (Cell::new(false), Cell::new(u32::MAX), Cell::new(0));
        let transaction = || generation.set(generation.get().wrapping_add(1));
        let look = || {
            let digests = vec![Some(u64::from(is_there.get()))];
            Ok(Snapshot { generation: generation.get(), digests })
        };
        let make = || {
            made.set(made.get() + 1);
            if busy_before.contains(&made.get()) {
                transaction();
            }
            is_there.set(true);
            transaction();
            if flushed_after.contains(&made.get()) {
                is_there.set(false);
                transaction();
            }
            Ok(())
        };
        let before = look().unwrap();
        let found = make_until_known(&before, look, make, |(), _| true).unwrap().1;
        (made.get(), found)
    }

    #[test]
    fn what_is_flushed_before_it_is_looked_at_is_made_once_more() {
        for (flushed_after, busy_before, times) in [
            (&[][..], &[][..], 1),
            (&[1], &[], 2),
            (&[1, 2], &[], 3),
            (&[1], &[2], 3),
            (&[1, 3], &[2], 4),
            // Who changes other tables all the time, as hosts of containers do, hinders nobody.
            (&[], &[1, 2, 3, 4, 5, 6], 6),
        ] {
            let (made, found) = made_beside(flushed_after, busy_before);
            let found = found.expect("a table that is known").digests;
            assert_eq!((made, found), (times, vec![Some(1)]), "{flushed_after:?} {busy_before:?}");
        }
    }

    #[test]
    fn a_table_that_is_missing_is_never_taken_for_ours() {
        let look = || Ok(Snapshot { generation: 0, digests: vec![None] });
        let made = make_until_known(&look().unwrap(), look, || Ok(()), |(), now| now.has(0)).unwrap().1;
        assert!(made.is_none());
    }

    #[test]
    fn handles_and_counts_are_no_difference_and_what_somebody_has_chosen_is() {
        let digest = |attributes: &[(u16, &[u8])]| {
            let mut bytes = Vec::new();
            let mut message = Message::begin(&mut bytes, 0, 0, 1, 10, 0);
            attributes.iter().for_each(|(kind, value)| message.attribute(*kind, value));
            message.end();
            let mut hasher = DefaultHasher::new();
            add(&mut hasher, &bytes[crate::nfnetlink::HEADERS..], OF_CHAIN);
            hasher.finish()
        };
        let chain = digest(&[(CHAIN_NAME, b"dark\0"), (2, &[0, 0, 0, 1]), (6, &[0, 0, 0, 9])]);
        assert_eq!(chain, digest(&[(CHAIN_NAME, b"dark\0"), (2, &[0, 0, 0, 7]), (8, &[1; 12])]));
        for other in
            [&[(CHAIN_NAME, &b"dork\0"[..])][..], &[(CHAIN_NAME, b"dark\0"), (5, &[0, 0, 0, 1])], &[]]
        {
            assert_ne!(chain, digest(other));
        }
    }
}
