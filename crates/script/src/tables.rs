//! State that outlives a packet: hash tables with a limit and an expiry, and sets of prefixes.
//!
//! They are shaped so that BPF maps can hold the same: keys and values have fixed sizes, a table has a fixed number of
//! entries, and what happens when it is full is said in advance.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

/// What a full table does with a new key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Leaves it out.
    Refuse,
    /// Forgets the entry that was written longest ago.
    Oldest,
}

/// The measures of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most entries.
    pub limit: usize,
    /// Milliseconds after which an entry that was not written is forgotten.
    pub expires_ms: Option<u64>,
    /// What happens at the limit.
    pub when_full: WhenFull,
}

/// A hash table from encoded keys to values.
///
/// Its hash is keyed at random: keys come from the network, and nobody may choose them so that they collide.
#[derive(Debug)]
pub struct Table<V> {
    shape: Shape,
    entries: HashMap<Box<[u8]>, Entry<V>>,
    /// Keys in the order in which they were last written.
    order: BTreeMap<u64, Box<[u8]>>,
    writes: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    write: u64,
    written_ms: u64,
}

impl<V> Table<V> {
    /// An empty table.
    pub fn new(shape: Shape) -> Self {
        Self { shape, entries: HashMap::new(), order: BTreeMap::new(), writes: 0 }
    }

    /// Its measures.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Takes other measures. What has no room any more is forgotten, first what was written longest ago: how many entries.
    pub fn reshape(&mut self, shape: Shape, now_ms: u64) -> usize {
        self.shape = shape;
        self.forget_expired(now_ms);
        let too_many = self.entries.len().saturating_sub(shape.limit);
        (0..too_many).filter(|_| self.forget_oldest()).count()
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<&V> {
        let entry = self.entries.get(key)?;
        (!self.has_expired(entry, now_ms)).then_some(&entry.value)
    }

    /// The value of `key`, made by `new` if there is none, to be changed: this counts as writing. None if the table
    /// is full.
    pub fn entry(&mut self, key: &[u8], now_ms: u64, new: impl FnOnce() -> V) -> Option<&mut V> {
        self.forget_expired(now_ms);
        if !self.entries.contains_key(key) {
            if self.entries.len() >= self.shape.limit {
                if self.shape.when_full == WhenFull::Refuse {
                    return None;
                }
                self.forget_oldest();
            }
            let entry = Entry { value: new(), write: 0, written_ms: now_ms };
            self.entries.insert(key.into(), entry);
        }
        self.writes += 1;
        let entry = self.entries.get_mut(key)?;
        // The key is moved from its old place rather than made again.
        let owned = self.order.remove(&entry.write).unwrap_or_else(|| key.into());
        entry.write = self.writes;
        entry.written_ms = now_ms;
        self.order.insert(self.writes, owned);
        Some(&mut entry.value)
    }

    /// Forgets `key`; whether it was there.
    pub fn remove(&mut self, key: &[u8], now_ms: u64) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.order.remove(&entry.write);
        !self.has_expired(&entry, now_ms)
    }

    /// Keys and values of all entries that have not expired.
    pub fn iter(&self, now_ms: u64) -> impl Iterator<Item = (&[u8], &V)> {
        let live = self.entries.iter().filter(move |(_, entry)| !self.has_expired(entry, now_ms));
        live.map(|(key, entry)| (&**key, &entry.value))
    }

    /// How many entries there are.
    pub fn count(&mut self, now_ms: u64) -> usize {
        self.forget_expired(now_ms);
        self.entries.len()
    }

    fn has_expired(&self, entry: &Entry<V>, now_ms: u64) -> bool {
        self.shape.expires_ms.is_some_and(|expires| now_ms.saturating_sub(entry.written_ms) >= expires)
    }

    /// Entries expire in the order in which they were written, so only the first are looked at.
    fn forget_expired(&mut self, now_ms: u64) {
        while let Some((_, key)) = self.order.first_key_value() {
            if !self.entries.get(key).is_none_or(|entry| self.has_expired(entry, now_ms)) {
                return;
            }
            self.forget_oldest();
        }
    }

    /// Forgets the entry that was written longest ago; whether there was one.
    pub(crate) fn forget_oldest(&mut self) -> bool {
        let oldest = self.order.pop_first();
        oldest.is_some_and(|(_, key)| self.entries.remove(&key).is_some())
    }
}

/// Prefixes of both IP versions, each with an integer; the longest that holds an address is found.
#[derive(Debug, Default)]
pub struct Prefixes {
    ipv4: PrefixMap<Ipv4Net, i64>,
    ipv6: PrefixMap<Ipv6Net, i64>,
    limit: usize,
}

impl Prefixes {
    /// An empty set of at most `limit` prefixes.
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Its limit.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Takes another limit. Some of those that have no room any more are forgotten: how many.
    pub fn set_limit(&mut self, limit: usize) -> usize {
        self.limit = limit;
        let too_many: Vec<IpNet> = self.iter().skip(limit).map(|(prefix, _)| prefix).collect();
        too_many.into_iter().filter(|prefix| self.remove(*prefix)).count()
    }

    /// Adds a prefix, or changes its value; whether there was room.
    pub fn add(&mut self, prefix: IpNet, value: i64) -> bool {
        let is_new = match prefix {
            IpNet::V4(prefix) => self.ipv4.get(&prefix.trunc()).is_none(),
            IpNet::V6(prefix) => self.ipv6.get(&prefix.trunc()).is_none(),
        };
        if is_new && self.count() >= self.limit {
            return false;
        }
        match prefix {
            IpNet::V4(prefix) => self.ipv4.insert(prefix.trunc(), value),
            IpNet::V6(prefix) => self.ipv6.insert(prefix.trunc(), value),
        };
        true
    }

    /// Removes a prefix; whether it was there.
    pub fn remove(&mut self, prefix: IpNet) -> bool {
        match prefix {
            IpNet::V4(prefix) => self.ipv4.remove(&prefix.trunc()).is_some(),
            IpNet::V6(prefix) => self.ipv6.remove(&prefix.trunc()).is_some(),
        }
    }

    /// The value of just this prefix.
    pub fn get(&self, prefix: IpNet) -> Option<i64> {
        match prefix {
            IpNet::V4(prefix) => self.ipv4.get(&prefix.trunc()).copied(),
            IpNet::V6(prefix) => self.ipv6.get(&prefix.trunc()).copied(),
        }
    }

    /// The value of the longest prefix that holds `address`.
    pub fn find(&self, address: IpAddr) -> Option<i64> {
        match address {
            IpAddr::V4(address) => self.ipv4.get_lpm(&address.into()).map(|(_, value)| *value),
            IpAddr::V6(address) => self.ipv6.get_lpm(&address.into()).map(|(_, value)| *value),
        }
    }

    /// All of them, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (IpNet, i64)> {
        let ipv4 = self.ipv4.iter().map(|(prefix, value)| (IpNet::V4(prefix), *value));
        ipv4.chain(self.ipv6.iter().map(|(prefix, value)| (IpNet::V6(prefix), *value)))
    }

    /// How many prefixes there are.
    pub fn count(&self) -> usize {
        self.ipv4.len() + self.ipv6.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(limit: usize, expires_ms: Option<u64>, when_full: WhenFull) -> Table<i64> {
        Table::new(Shape { limit, expires_ms, when_full })
    }

    fn set(table: &mut Table<i64>, key: &[u8], value: i64, now: u64) -> bool {
        table.entry(key, now, || 0).map(|entry| *entry = value).is_some()
    }

    #[test]
    fn a_full_table_refuses_what_is_new() {
        let mut table = table(2, None, WhenFull::Refuse);
        assert!(set(&mut table, b"a", 1, 0) && set(&mut table, b"b", 2, 0));
        assert!(!set(&mut table, b"c", 3, 0));
        assert!(set(&mut table, b"a", 4, 0), "what is there may be written");
        assert!(table.remove(b"b", 0));
        assert!(set(&mut table, b"c", 3, 0));
    }

    #[test]
    fn or_forgets_what_was_written_longest_ago() {
        let mut table = table(2, None, WhenFull::Oldest);
        set(&mut table, b"a", 1, 0);
        set(&mut table, b"b", 2, 1);
        set(&mut table, b"a", 3, 2);
        set(&mut table, b"c", 4, 3);
        assert_eq!([b"a", b"b", b"c"].map(|key| table.get(key, 3).copied()), [Some(3), None, Some(4)]);
    }

    #[test]
    fn an_entry_that_is_not_written_expires() {
        let mut table = table(2, Some(100), WhenFull::Refuse);
        set(&mut table, b"a", 1, 0);
        set(&mut table, b"b", 2, 50);
        assert_eq!(table.get(b"a", 99), Some(&1));
        assert_eq!(table.get(b"a", 100), None);
        assert!(set(&mut table, b"c", 3, 100), "it makes room");
        assert_eq!(table.count(100), 2);
        assert!(!table.remove(b"b", 150));
    }

    #[test]
    fn other_measures_leave_what_fits() {
        let mut table = table(3, None, WhenFull::Refuse);
        for (at, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
            set(&mut table, key, 1, at as u64);
        }
        let measures = |limit, expires_ms| Shape { limit, expires_ms, when_full: WhenFull::Oldest };
        assert_eq!(table.reshape(measures(9, Some(100)), 50), 0);
        assert_eq!([b"a", b"b", b"c"].map(|key| table.get(key, 101).is_some()), [false, false, true]);
        assert_eq!(table.reshape(measures(1, None), 60), 2);
        assert_eq!(table.count(1000), 1);
        let mut prefixes = Prefixes::new(3);
        for prefix in ["10.0.0.0/8", "2001:db8::/32", "2001:db8:1::/48"] {
            prefixes.add(prefix.parse().unwrap(), 1);
        }
        assert_eq!((prefixes.set_limit(5), prefixes.count()), (0, 3));
        assert_eq!((prefixes.set_limit(2), prefixes.count()), (1, 2));
    }

    #[test]
    fn the_longest_prefix_decides() {
        let mut prefixes = Prefixes::new(3);
        for (prefix, value) in [("2001:db8::/32", 1), ("2001:db8:1::/48", 2), ("10.0.0.0/8", 3)] {
            assert!(prefixes.add(prefix.parse().unwrap(), value));
        }
        let find = |address: &str| prefixes.find(address.parse().unwrap());
        assert_eq!(find("2001:db8:1::1"), Some(2));
        assert_eq!(find("2001:db8:2::1"), Some(1));
        assert_eq!(find("10.1.2.3"), Some(3));
        assert_eq!(find("192.0.2.1"), None);
        assert!(!prefixes.add("192.0.2.0/24".parse().unwrap(), 4));
        assert!(prefixes.add("10.0.0.0/8".parse().unwrap(), 5));
    }
}
