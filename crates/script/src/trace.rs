//! Traces: which lines of a script a packet goes through, what variables get there, and how it ends.
//!
//! [`points`] puts calls between the statements of a script's functions that say so. The kernel tier compiles that text for
//! as long as a trace lasts. In a Lua state, which must stay as it is, functions get a second form beside the first
//! ([`with_twins`](crate::vm::traced::with_twins)), which is called for the packet that is followed. So both tiers come by
//! the same points, and say the same in words that are made here.

use std::fmt::Write as _;

pub use crate::syntax::points::points;

use crate::logged::Scalar;

/// Octets of a string that are told.
pub const SHOWN: usize = 64;
/// Lines of one packet that are told.
pub const MOST_LINES: usize = 1000;
/// Octets of what is told of one line.
const LONGEST: usize = 400;
/// What stands for what is not told.
pub const UNTOLD: &str = "…";

/// A line of a script that a packet went through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The script, or the module.
    pub path: String,
    /// From 1.
    pub number: usize,
    /// What variables got there, or how a condition came out: empty if there is nothing to tell.
    pub told: String,
}

/// The lines that a packet went through, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines(pub Vec<Line>);

impl Lines {
    /// Whether nothing more can be added, not even to the last line.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST_LINES && self.0.last().is_some_and(|last| last.told.len() >= LONGEST)
    }

    /// It has come by a point. What comes of the same line one after the other is one line.
    pub fn add(&mut self, path: &str, number: usize, told: &str) {
        if let Some(last) = self.0.last_mut().filter(|last| last.number == number && last.path == path) {
            if !told.is_empty() && last.told.len() < LONGEST {
                let comma = if last.told.is_empty() { "" } else { ", " };
                let _ = write!(last.told, "{comma}{told}");
            }
        } else if self.0.len() < MOST_LINES {
            self.0.push(Line { path: path.to_owned(), number, told: told.to_owned() });
        }
    }
}

/// What is told of a point: variables with their values, or a condition.
pub(crate) fn told(names: &[String], values: &[Scalar]) -> String {
    let mut told = String::new();
    for (place, value) in values.iter().enumerate() {
        let comma = if place > 0 { ", " } else { "" };
        let _ = match (names.get(place), value) {
            (Some(name), value) => write!(told, "{comma}{name} = {}", text(value)),
            (None, Scalar::Boolean(holds)) => write!(told, "{comma}{}", if *holds { "yes" } else { "no" }),
            (None, _) => Ok(()),
        };
    }
    told
}

fn text(value: &Scalar) -> String {
    match value {
        Scalar::Text(octets) => quoted(&octets[..octets.len().min(SHOWN)], octets.len()),
        Scalar::Beginning(octets, all) => quoted(octets, *all),
        other => other.to_string(),
    }
}

/// The first octets of a string of so many: as text, where it is text that can be seen.
pub(crate) fn quoted(octets: &[u8], all: usize) -> String {
    let mut text = String::from("\"");
    for chunk in octets.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => text.extend(['\\', character]),
                seen if !seen.is_control() => text.push(seen),
                other => {
                    let mut buffer = [0; 4];
                    other.encode_utf8(&mut buffer).bytes().for_each(|octet| escape(&mut text, octet));
                }
            }
        }
        chunk.invalid().iter().for_each(|octet| escape(&mut text, *octet));
    }
    text.push('"');
    if octets.len() < all {
        let _ = write!(text, "… ({all} octets)");
    }
    text
}

fn escape(text: &mut String, octet: u8) {
    let _ = write!(text, "\\x{octet:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_in_one_line() {
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        let values = [
            Scalar::Text(b"x\"\\\n\xff\xc3\xa9".to_vec()),
            Scalar::Nil,
            Scalar::Text(vec![b'y'; 70]),
            Scalar::Other("view packet_ip6".to_owned()),
        ];
        let long = "y".repeat(SHOWN);
        assert_eq!(
            told(&names, &values),
            format!(
                "a = \"x\\\"\\\\\\x0a\\xffé\", b = nil, c = \"{long}\"… (70 octets), d = view packet_ip6"
            )
        );
        assert_eq!(told(&[], &[Scalar::Boolean(false), Scalar::Boolean(true)]), "no, yes");
        assert_eq!(told(&[], &[]), "");
    }

    #[test]
    fn a_line_is_told_once_and_no_more_than_so_many() {
        let mut lines = Lines::default();
        for told in ["", "a = 1", "", "b = 2"] {
            lines.add("x.lua", 3, told);
        }
        assert_eq!(lines.0, [Line { path: "x.lua".to_owned(), number: 3, told: "a = 1, b = 2".to_owned() }]);
        for number in 0..2 * MOST_LINES {
            lines.add("x.lua", number, &"z".repeat(100));
            lines.add("x.lua", number, &"z".repeat(100));
        }
        assert_eq!(lines.0.len(), MOST_LINES);
        (0..100).for_each(|_| lines.add("x.lua", lines.0[MOST_LINES - 1].number, &"z".repeat(100)));
        assert!(lines.0.last().is_some_and(|last| last.told.len() < LONGEST + 102));
    }
}
