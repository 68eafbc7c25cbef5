//! Sets of regions as tables of the kernel, and the rules that look a packet up in them.
//!
//! The regions of one set do not overlap, so that they may be spread over several tables, in any order. What that costs a
//! packet which is in none of them, of 10,000 prefixes of 20 lengths, with a port each (x86-64 with AVX2, Linux 6.18):
//!
//! | table | µs |
//! |---|--:|
//! | hash table of one length | 0.3 |
//! | one hash table for each length | 7 |
//! | intervals (`nft_set_pipapo`), the protocol first, which they all have | 140 |
//! | intervals, the field with the most values first | 5 |
//!
//! So fields that have one value in all regions are compared, not looked up, and those with many values come first. Few
//! lengths and port ranges are a hash table each, many are intervals. In front of what takes more than one hash table stands
//! one that knows the first bits of all its addresses: only packets that have such an address go further.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use crate::firewall::address::{Address, Family};
use crate::firewall::lookup::Set;
use crate::firewall::policy::Policy;

use super::field::{Field, Form};
use super::rule::{element_comment, verdict};

/// Hash tables that a set is spread over, at most: as many take as long as intervals of some thousand regions.
const MOST_TABLES: usize = 8;

/// What begins the name of a set of first bits.
pub(super) const NEAR: &str = "near-";

/// What the sets of one chain of rules come to.
#[derive(Default)]
pub(super) struct Tables {
    /// Declarations of maps and sets.
    pub(super) maps: String,
    /// Chains that the rules jump to.
    pub(super) chains: String,
    /// Rules, in the order of the sets.
    pub(super) rules: String,
    /// Tables that a packet is looked up in, at most.
    pub(super) lookups: usize,
}

/// Writes the tables of sets, which a packet goes through in this order. `number` is that of their chain.
pub(super) fn tables(policy: &Policy, sets: &[Set], number: usize) -> Tables {
    let mut all = Tables::default();
    let written: Vec<Written> = sets
        .iter()
        .enumerate()
        .map(|(index, set)| write_set(policy, set, &format!("{number}-{}", index + 1)))
        .collect();
    let mut begin = 0;
    while begin < sets.len() {
        let near = Near::from(sets, begin);
        let end = near.as_ref().map_or(begin + 1, |near| near.sets.end);
        let lookups: usize = written[begin..end].iter().map(|one| one.lookups).sum();
        let slow = lookups > 2 || written[begin..end].iter().any(|one| one.has_intervals);
        let rules: String = written[begin..end].iter().map(|one| one.rules.as_str()).collect();
        all.lookups += lookups;
        match near {
            Some(near) if slow => {
                let name = format!("{NEAR}{number}-{}", begin + 1);
                all.maps += &near.declaration(&name);
                let _ = writeln!(all.rules, "\t\t{} @{name} jump {name}", near.asked());
                let _ = write!(all.chains, "\tchain {name} {{\n{rules}\t}}\n");
                all.lookups += 1;
            }
            _ => all.rules += &rules,
        }
        begin = end;
    }
    for one in written {
        all.maps += &one.maps;
    }
    all
}

/// One set.
#[derive(Default)]
struct Written {
    maps: String,
    rules: String,
    lookups: usize,
    has_intervals: bool,
}

fn write_set(policy: &Policy, set: &Set, name: &str) -> Written {
    let fields = Field::of(set);
    let mut parts: BTreeMap<Vec<Form>, Vec<usize>> = BTreeMap::new();
    for entry in 0..set.entries().len() {
        parts.entry(fields.iter().map(|field| field.form(entry)).collect()).or_default().push(entry);
    }
    let mut written = Written::default();
    if parts.len() > MOST_TABLES {
        let entries: Vec<usize> = (0..set.entries().len()).collect();
        write_table(policy, set, &fields, &entries, None, &format!("map-{name}"), &mut written);
        return written;
    }
    let alone = parts.len() == 1;
    for (index, (forms, entries)) in parts.into_iter().enumerate() {
        let name = if alone { format!("map-{name}") } else { format!("map-{name}-{}", index + 1) };
        write_table(policy, set, &fields, &entries, Some(&forms), &name, &mut written);
    }
    written
}

/// Some regions of a set as one map, a hash table if they are of one form, and the rule that looks a packet up in it. A rule
/// alone where no field differs.
fn write_table(
    policy: &Policy,
    set: &Set,
    fields: &[Field],
    entries: &[usize],
    forms: Option<&[Form]>,
    name: &str,
    written: &mut Written,
) {
    let mut compared = family_guard(set.shape.family).to_owned();
    let mut keys: Vec<(usize, &Field, u128)> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let distinct = field.distinct(entries);
        if distinct == 1 {
            let _ = write!(compared, "{} {} ", field.expression, field.text(field.value(entries[0])));
            continue;
        }
        // A form that is a range has one value.
        let hosts = match forms {
            Some(forms) => {
                if let Form::Masked(hosts) = forms[index] {
                    hosts
                } else {
                    0
                }
            }
            None => 0,
        };
        keys.push((distinct, field, hosts));
    }
    written.lookups += 1;
    if keys.is_empty() {
        for entry in entries {
            let rule = set.entries()[*entry].rule;
            let (comment, verdict) = (element_comment(policy, rule), verdict(policy, rule));
            let _ = writeln!(written.rules, "\t\t{compared}counter {verdict}{comment}");
        }
        return;
    }
    // Intervals go through all regions that a packet is in as far as it was looked at.
    keys.sort_by_key(|(distinct, ..)| std::cmp::Reverse(*distinct));
    let join = |texts: Vec<String>| texts.join(" . ");
    let types = join(keys.iter().map(|(_, field, _)| field.kind.to_owned()).collect());
    let _ = write!(written.maps, "\tmap {name} {{\n\t\ttype {types} : verdict\n");
    if forms.is_none() {
        written.maps += "\t\tflags interval\n";
        written.has_intervals = true;
    }
    written.maps += "\t\tcounter\n\t\telements = {";
    for (index, entry) in entries.iter().enumerate() {
        let text = |(_, field, _): &(usize, &Field, u128)| {
            let (first, last) = field.value(*entry);
            field.text((first, if forms.is_some() { first } else { last }))
        };
        let rule = set.entries()[*entry].rule;
        let _ = write!(
            written.maps,
            "{}\n\t\t\t{}{} : {}",
            if index == 0 { "" } else { "," },
            join(keys.iter().map(text).collect()),
            element_comment(policy, rule),
            verdict(policy, rule)
        );
    }
    written.maps += "\n\t\t}\n\t}\n";
    let asked = join(keys.iter().map(|(_, field, hosts)| field.masked(*hosts)).collect());
    let _ = writeln!(written.rules, "\t\t{compared}{asked} vmap @{name}");
}

fn family_guard(family: Option<Family>) -> &'static str {
    match family {
        None => "",
        Some(Family::V4) => "meta nfproto ipv4 ",
        Some(Family::V6) => "meta nfproto ipv6 ",
    }
}

/// The first bits of an address that all regions of some sets behind each other have.
struct Near {
    sets: Range<usize>,
    family: Family,
    /// `ip6 saddr & ffff:ffff::`, and its type.
    expression: String,
    kind: &'static str,
    /// As many bits as there may be without more than two elements for each region.
    hosts: u128,
    values: BTreeSet<u128>,
}

impl Near {
    /// That of the most sets from this one on; of what is alike, that which lets fewer packets go further.
    fn from(sets: &[Set], begin: usize) -> Option<Self> {
        let candidates = ["saddr", "daddr"].map(|name| Self::of_field(sets, begin, name));
        let [source, destination] = candidates;
        match (source, destination) {
            (Some(source), Some(destination)) => {
                let worth = |near: &Self| (near.sets.len(), -near.part());
                Some(if worth(&destination) > worth(&source) { destination } else { source })
            }
            (source, destination) => source.or(destination),
        }
    }

    fn of_field(sets: &[Set], begin: usize, name: &str) -> Option<Self> {
        let family = sets[begin].shape.family?;
        let width = if family == Family::V4 { 32 } else { 128 };
        let field_of = |set: &Set| {
            let is_it = |field: &Field| field.prefixes == Some(family) && field.expression.ends_with(name);
            let field = Field::of(set).into_iter().find(is_it)?;
            // One that is wider, such as 2000::/3, would let everything go further.
            let is_narrow = |entry: usize| {
                let (first, last) = field.value(entry);
                last - first < 1 << (width - 8)
            };
            (0..set.entries().len()).all(is_narrow).then_some(field)
        };
        let first = field_of(&sets[begin])?;
        let mut values: Vec<(u128, u128)> = Vec::new();
        let mut end = begin;
        while let Some(field) = sets.get(end).and_then(field_of) {
            values.extend((0..sets[end].entries().len()).map(|entry| field.value(entry)));
            end += 1;
        }
        let at = |host_bits: u32, value: u128| value.checked_shr(host_bits).unwrap_or(0);
        let size = |host_bits| {
            let of_one = |(first, last): &(u128, u128)| at(host_bits, *last) - at(host_bits, *first);
            values.iter().map(of_one).fold(values.len() as u128, u128::saturating_add)
        };
        let host_bits = (0..width).find(|host_bits| size(*host_bits) <= 2 * values.len() as u128)?;
        let found = values.iter().flat_map(|(first, last)| at(host_bits, *first)..=at(host_bits, *last));
        let values: BTreeSet<u128> = found.map(|value| value << host_bits).collect();
        let hosts = (1 << host_bits) - 1;
        let near = Near {
            sets: begin..end,
            family,
            expression: first.masked(hosts),
            kind: first.kind,
            hosts,
            values,
        };
        // One that lets most packets go further saves nothing.
        (near.part() < 0.5).then_some(near)
    }

    /// The part of all addresses that go further.
    fn part(&self) -> f64 {
        let width: i32 = if self.family == Family::V4 { 32 } else { 128 };
        let bits = width - i32::try_from(self.hosts.count_ones()).unwrap_or(0);
        self.values.len() as f64 / 2f64.powi(bits)
    }

    fn asked(&self) -> String {
        format!("{}{}", family_guard(Some(self.family)), self.expression)
    }

    fn declaration(&self, name: &str) -> String {
        let texts = self.values.iter().map(|value| Address::Range(self.family, *value, *value).to_string());
        let elements: Vec<String> = texts.collect();
        format!(
            "\tset {name} {{\n\t\ttype {}\n\t\telements = {{ {} }}\n\t}}\n",
            self.kind,
            elements.join(", ")
        )
    }
}
