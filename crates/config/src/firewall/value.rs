//! Values of the firewall: from text to what it means, or to what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};

use router::firewall::address::{Address, AddressError};
use router::firewall::policy::Per;
use router::firewall::schedule::{DAYS, minute_of_day};
use router::firewall::service::{Service, ServiceError, WELL_KNOWN, well_known};
use router::firewall::{Rate, Trust, Verdict};
use toml::Spanned;

use super::table::OneOrMany;
use crate::value::{Problem, problem};

pub(super) fn trust(text: &str) -> Result<Trust, Problem> {
    match text {
        "inside" => Ok(Trust::Inside),
        "guest" => Ok(Trust::Guest),
        "outside" => Ok(Trust::Outside),
        _ => problem("not a kind of trust", r#"write "inside", "guest" or "outside""#),
    }
}

pub(super) fn action(text: &str) -> Result<Verdict, Problem> {
    match text {
        "accept" => Ok(Verdict::Accept),
        "drop" => Ok(Verdict::Drop),
        "reject" => Ok(Verdict::Reject),
        _ => problem("not an action", r#"write "accept", "drop" or "reject""#),
    }
}

pub(super) fn refuse(text: &str) -> Result<Verdict, Problem> {
    match action(text) {
        Ok(verdict) if verdict != Verdict::Accept => Ok(verdict),
        _ => problem("not a way to refuse", r#"write "reject" or "drop""#),
    }
}

/// `10/s`, `5/m burst 20`.
pub(super) fn rate(text: &str) -> Result<Rate, Problem> {
    const HELP: &str =
        "write packets per second, minute, hour or day, and how many may come at once: 10/s burst 20";
    const BURST: u32 = 5;
    let words: Vec<&str> = text.split_whitespace().collect();
    let (rate, burst) = match words[..] {
        [rate] => (rate, Some(BURST)),
        [rate, "burst", burst] => (rate, burst.parse().ok()),
        _ => return problem("not a rate", HELP),
    };
    let (packets, per) = rate.split_once('/').unwrap_or(("", ""));
    let per = match per {
        "s" | "second" => Per::Second,
        "m" | "minute" => Per::Minute,
        "h" | "hour" => Per::Hour,
        "d" | "day" => Per::Day,
        _ => return problem("not a rate", HELP),
    };
    // As large as nft takes them.
    let fits = |number: &u32| (1..=1_000_000).contains(number);
    match (packets.parse().ok().filter(fits), burst.filter(fits)) {
        (Some(packets), Some(burst)) => Ok(Rate { packets, per, burst }),
        _ => problem("out of range", "the number of packets is 1 to 1000000"),
    }
}

pub(super) fn time(text: &str) -> Result<u16, Problem> {
    minute_of_day(text).map_or_else(|| problem("not a time", "write hours and minutes, 00:00 to 24:00"), Ok)
}

/// `mon`, `mon-fri`.
pub(super) fn days(words: &OneOrMany) -> Result<Vec<u8>, Problem> {
    let index = |name: &str| DAYS.iter().position(|day| *day == name);
    let mut days = Vec::new();
    for word in words.iter() {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (Some(first), Some(last)) = (index(first), index(last)) else {
            return problem(
                format!("`{word}` is not a day"),
                format!("write {}, or mon-fri", DAYS.join(", ")),
            );
        };
        // From Saturday to Monday goes over the end of the week.
        let count = (last + 7 - first) % 7;
        days.extend((0..=count).filter_map(|day| u8::try_from((first + day) % 7).ok()));
    }
    Ok(days)
}

/// Why a word means nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum WordError {
    /// It looks like an address.
    #[error("{0}")]
    Address(#[from] AddressError),
    /// It looks like a service.
    #[error("{0}")]
    Service(#[from] ServiceError),
}

/// What a word means by itself, or why it means nothing.
type Read<T> = Result<Vec<T>, WordError>;

/// Sets with a name, and what a word that names none of them may be.
pub(super) struct Names<'t, T> {
    pub(super) named: &'t BTreeMap<String, Spanned<OneOrMany>>,
    /// Hosts, by names that are not among these.
    pub(super) hosts: &'t BTreeMap<String, Vec<T>>,
    /// Names that hosts of several networks have, with these networks.
    pub(super) of_several: &'t BTreeMap<String, BTreeMap<String, String>>,
    pub(super) literal: fn(&str) -> Option<Read<T>>,
    /// What a word may be.
    pub(super) help: &'static str,
}

impl<T: Clone> Names<'_, T> {
    /// What the words mean.
    pub(super) fn resolve(&self, words: &OneOrMany) -> Result<Vec<T>, Problem> {
        let mut found = Vec::new();
        self.collect(words, &mut Vec::new(), &mut found)?;
        if found.is_empty() {
            return problem("an empty list", "leave the key out to match anything");
        }
        Ok(found)
    }

    /// The first of the names that the words have, themselves or in a set. They have a [meaning](Self::resolve).
    pub(super) fn named_in<'w>(&'w self, words: &'w OneOrMany, names: &BTreeSet<String>) -> Option<&'w str> {
        words.iter().find_map(|word| match self.named.get(word) {
            Some(set) => self.named_in(set.get_ref(), names),
            None => names.contains(word).then_some(word),
        })
    }

    fn collect<'w>(
        &'w self,
        words: &'w OneOrMany,
        within: &mut Vec<&'w str>,
        found: &mut Vec<T>,
    ) -> Result<(), Problem> {
        for word in words.iter() {
            if let Some(set) = self.named.get(word) {
                if within.contains(&word) {
                    return problem(format!("`{word}` contains itself"), "remove it from one of the lists");
                }
                within.push(word);
                self.collect(set.get_ref(), within, found)?;
                within.pop();
                continue;
            }
            if let Some(values) = self.hosts.get(word) {
                found.extend_from_slice(values);
                continue;
            }
            if let Some(networks) = self.of_several.get(word) {
                let each: Vec<_> = networks.keys().map(|network| format!("\"{word}.{network}\"")).collect();
                return problem(
                    format!("hosts of several networks are called `{word}`"),
                    format!("write {}, or several of them in a list", each.join(" or ")),
                );
            }
            match (self.literal)(word) {
                Some(Ok(values)) => found.extend(values),
                Some(Err(why)) => return problem(format!("`{word}`: {why}"), self.help),
                None => return problem(format!("`{word}` is not known"), self.help),
            }
        }
        Ok(())
    }
}

/// A word in a list of addresses.
pub(super) fn addresses(word: &str) -> Option<Read<Address>> {
    let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic()) && !word.contains(':');
    (!is_name).then(|| Ok(vec![word.parse()?]))
}

/// A word in a list of services.
pub(super) fn services(word: &str) -> Option<Read<Service>> {
    if let Some(services) = well_known(word) {
        return Some(Ok(services));
    }
    match word.parse() {
        Ok(service) => Some(Ok(vec![service])),
        Err(ServiceError::Protocol) if !word.contains('/') => None,
        Err(why) => Some(Err(why.into())),
    }
}

/// Names that a user could have meant by one of the firewall's services.
pub(super) fn is_built_in(name: &str) -> bool {
    WELL_KNOWN.iter().any(|(known, _)| *known == name) || name.parse::<Service>().is_ok()
}
