//! The fewest sets that hold many regions and still decide like a list.
//!
//! Regions of one shape (which fields count, and whether each is one value or a range) can stand in one set, which the
//! kernel looks up in one step however many there are. A packet goes through the sets one after the other. So a region
//! may join the first set of its shape that lies behind every set with a region that overlaps it and decides
//! otherwise: regions that do not overlap, or decide the same, may change places. In one set none overlap, which nft
//! does not take.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use super::address::{Address, Family};
use super::region::{Detail, Region};

/// Which fields of a region count, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The family that it is about.
    pub family: Option<Family>,
    /// Whether the protocol counts.
    pub protocol: bool,
    /// How the source counts.
    pub source: Kind,
    /// How the destination counts.
    pub destination: Kind,
    /// How ports or types count.
    pub detail: DetailKind,
}

/// How a field with addresses counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Not at all.
    Any,
    /// One address.
    One,
    /// A range.
    Range,
    /// A suffix, with this mask.
    Suffix(u128),
}

/// How ports and types count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DetailKind {
    /// Not at all.
    Any,
    /// One port.
    Port,
    /// A range of ports.
    Ports,
    /// An ICMP type.
    Type,
    /// An ICMP type and a code.
    TypeAndCode,
}

impl Shape {
    /// That of a region.
    #[must_use]
    pub fn of(region: &Region) -> Self {
        let kind = |address: Option<Address>| match address {
            None => Kind::Any,
            Some(Address::Range(_, first, last)) if first == last => Kind::One,
            Some(Address::Range(..)) => Kind::Range,
            Some(Address::Suffix { mask, .. }) => Kind::Suffix(mask),
        };
        Shape {
            family: region.family,
            protocol: region.protocol.is_some(),
            source: kind(region.source),
            destination: kind(region.destination),
            detail: match region.detail {
                Detail::Any => DetailKind::Any,
                Detail::Ports(first, last) if first == last => DetailKind::Port,
                Detail::Ports(..) => DetailKind::Ports,
                Detail::Icmp(_, None) => DetailKind::Type,
                Detail::Icmp(_, Some(_)) => DetailKind::TypeAndCode,
            },
        }
    }

    /// Whether a region of it has ranges: the set has intervals then.
    #[must_use]
    pub fn has_ranges(&self) -> bool {
        self.source == Kind::Range || self.destination == Kind::Range || self.detail == DetailKind::Ports
    }

    /// Whether no field counts but the family: every packet of that is in the region.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        !self.protocol
            && self.source == Kind::Any
            && self.destination == Kind::Any
            && self.detail == DetailKind::Any
    }

    /// The only region of this shape, which has no ranges, that can overlap `region`. None where there may be several.
    fn project(&self, region: &Region) -> Option<Region> {
        let address = |kind: Kind, address: Option<Address>| match (kind, address?) {
            (Kind::One, Address::Range(family, first, last)) if first == last => {
                Some(Address::Range(family, first, last))
            }
            (Kind::Suffix(mask), Address::Range(Family::V6, first, last)) if first == last => {
                Some(Address::Suffix { value: first & mask, mask })
            }
            (Kind::Suffix(mask), Address::Suffix { value, mask: other }) if mask & !other == 0 => {
                Some(Address::Suffix { value: value & mask, mask })
            }
            _ => None,
        };
        let counted = |kind: Kind, given: Option<Address>| match kind {
            Kind::Any => Some(None),
            Kind::Range => None,
            kind => address(kind, given).map(Some),
        };
        let detail = match (self.detail, region.detail) {
            (DetailKind::Any, _) => Detail::Any,
            (DetailKind::Port, Detail::Ports(first, last)) if first == last => Detail::Ports(first, last),
            (DetailKind::Type, Detail::Icmp(kind, _)) => Detail::Icmp(kind, None),
            (DetailKind::TypeAndCode, Detail::Icmp(kind, Some(code))) => Detail::Icmp(kind, Some(code)),
            _ => return None,
        };
        let protocol = if self.protocol { Some(region.protocol?) } else { None };
        Some(Region {
            family: self.family,
            protocol,
            source: counted(self.source, region.source)?,
            destination: counted(self.destination, region.destination)?,
            detail,
        })
    }
}

/// A region, and the rule that it is of, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The region.
    pub region: Region,
    /// The rule.
    pub rule: usize,
}

/// Regions of one shape.
#[derive(Debug, Clone)]
pub struct Set {
    /// Their shape.
    pub shape: Shape,
    entries: Vec<Entry>,
    /// Where there are no ranges: which entries have a region.
    exact: HashMap<Region, Vec<usize>>,
}

impl Set {
    /// An empty one.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Set { shape, entries: Vec::new(), exact: HashMap::new() }
    }

    /// The regions, in the order in which they came.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds a region of the shape.
    pub fn push(&mut self, entry: Entry) {
        if !self.shape.has_ranges() {
            self.exact.entry(entry.region).or_default().push(self.entries.len());
        }
        self.entries.push(entry);
    }

    /// Calls `visit` with the entries that overlap the region, until it returns false.
    pub fn overlapping(&self, region: &Region, mut visit: impl FnMut(&Entry) -> bool) {
        if !self.shape.has_ranges()
            && let Some(key) = self.shape.project(region)
        {
            let found = self.exact.get(&key).into_iter().flatten().map(|index| &self.entries[*index]);
            found.filter(|entry| entry.region.overlaps(region)).all(visit);
            return;
        }
        self.entries.iter().filter(|entry| entry.region.overlaps(region)).all(&mut visit);
    }
}

/// How two rules stand to each other.
pub trait Relation {
    /// Whether the rule decides all packets of its regions.
    fn is_final(&self, rule: usize) -> bool;
    /// Whether nothing changes for a packet if the two change places.
    fn commute(&self, rule: usize, other: usize) -> bool;
}

/// Sets in the order in which a packet goes through them.
#[derive(Debug, Clone, Default)]
pub struct Lookups(Vec<Set>);

impl Lookups {
    /// The sets.
    #[must_use]
    pub fn sets(&self) -> &[Set] {
        &self.0
    }

    /// Adds a region of a rule behind those of earlier rules. Nothing, where an earlier rule leaves it no packet.
    pub fn push(&mut self, entry: Entry, relation: &impl Relation) {
        let Entry { region, rule } = entry;
        let (mut from, mut taken, mut dead) = (0, Vec::new(), false);
        for (index, set) in self.0.iter().enumerate() {
            set.overlapping(&region, |earlier| {
                let same = earlier.rule == rule;
                dead = (same || relation.is_final(earlier.rule)) && earlier.region.contains(&region);
                if same || relation.commute(earlier.rule, rule) {
                    taken.push(index);
                } else {
                    from = index + 1;
                }
                !dead
            });
            if dead {
                return;
            }
        }
        let shape = Shape::of(&region);
        let fits = |index: &usize| self.0[*index].shape == shape && !taken.contains(index);
        let index = (from..self.0.len()).find(fits).unwrap_or_else(|| {
            self.0.push(Set::new(shape));
            self.0.len() - 1
        });
        self.0[index].push(entry);
    }
}

/// Regions of many rules, without order, to be asked which overlap one.
#[derive(Debug, Clone, Default)]
pub struct Index(HashMap<Shape, Set>);

impl Index {
    /// Adds a region of a rule.
    pub fn push(&mut self, entry: Entry) {
        match self.0.entry(Shape::of(&entry.region)) {
            Slot::Occupied(mut set) => set.get_mut().push(entry),
            Slot::Vacant(slot) => {
                let mut set = Set::new(*slot.key());
                set.push(entry);
                slot.insert(set);
            }
        }
    }

    /// Calls `visit` with the entries that overlap the region, until it returns false.
    pub fn overlapping(&self, region: &Region, mut visit: impl FnMut(&Entry) -> bool) {
        let mut go_on = true;
        for set in self.0.values() {
            set.overlapping(region, |entry| {
                go_on = visit(entry);
                go_on
            });
            if !go_on {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rules decide everything, and commute where their numbers are both even or both odd.
    struct Parity;

    impl Relation for Parity {
        fn is_final(&self, _: usize) -> bool {
            true
        }

        fn commute(&self, rule: usize, other: usize) -> bool {
            rule % 2 == other % 2
        }
    }

    fn region(protocol: Option<u8>, source: Option<(u128, u128)>, ports: Option<(u16, u16)>) -> Region {
        Region {
            family: source.map(|_| Family::V6),
            protocol,
            source: source.map(|(first, more)| Address::Range(Family::V6, first, first + more)),
            destination: None,
            detail: ports.map_or(Detail::Any, |(first, more)| Detail::Ports(first, first + more)),
        }
    }

    #[test]
    fn many_rules_of_one_shape_are_one_set() {
        let mut lookups = Lookups::default();
        for rule in 0..1000 {
            let region = region(Some(6), Some((rule as u128, 0)), Some((80, 0)));
            lookups.push(Entry { region, rule }, &Parity);
        }
        assert_eq!(lookups.sets().len(), 1);
        // Everything else of one protocol, decided the other way by turns: no set can hold two of them.
        for rule in 1000..1003 {
            let region = region(Some(6), None, Some((80, 0)));
            lookups.push(Entry { region, rule }, &Parity);
        }
        assert_eq!(lookups.sets().len(), 2, "the first leaves the others nothing");
    }

    proptest! {
        /// The sets decide every packet as the list does: the parity of the first rule that it fits.
        #[test]
        fn sets_decide_like_the_list(
            regions in prop::collection::vec(
                (prop::option::of(6u8..8), prop::option::of((0u128..6, 0u128..3)), prop::option::of((0u16..6, 0u16..3))),
                0..20,
            ),
        ) {
            let regions: Vec<Region> = regions.into_iter().map(|(p, s, d)| region(p, s, d)).collect();
            let mut lookups = Lookups::default();
            for (rule, region) in regions.iter().enumerate() {
                lookups.push(Entry { region: *region, rule }, &Parity);
            }
            for set in lookups.sets() {
                for (index, entry) in set.entries().iter().enumerate() {
                    prop_assert!(!set.entries()[..index].iter().any(|other| other.region.overlaps(&entry.region)));
                }
            }
            for (protocol, source, port) in
                (6u8..8).flat_map(|p| (0u128..9).flat_map(move |s| (0u16..9).map(move |d| (p, s, d))))
            {
                let packet = region(Some(protocol), Some((source, 0)), Some((port, 0)));
                let listed = regions.iter().position(|region| region.contains(&packet));
                let mut found = lookups.sets().iter().flat_map(Set::entries).filter(|e| e.region.contains(&packet));
                prop_assert_eq!(listed.map(|rule| rule % 2), found.next().map(|entry| entry.rule % 2));
            }
        }
    }
}
