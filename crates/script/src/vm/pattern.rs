//! Lua's patterns, matched in steps that are counted: those of C run outside of the budget, and a packet can be made on
//! which a pattern takes minutes.
//!
//! What matches what is as in Lua 5.4 (`lstrlib.c`), with its errors and its limits of captures and of depth.

/// Most captures of a pattern (`LUA_MAXCAPTURES`).
const MAX_CAPTURES: usize = 32;
/// How deep matching may go (`MAXCCALLS`).
const MAX_DEPTH: usize = 200;
/// Octets that a plain comparison looks at in the time of a step.
const OCTETS_PER_STEP: usize = 16;
const ESCAPE: u8 = b'%';

/// What is left of a budget.
#[derive(Debug)]
pub(crate) struct Steps(pub(crate) u64);

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// The steps are used up.
    Exhausted,
    /// The pattern is wrong, in Lua's words.
    Wrong(String),
}

/// A part of the subject that a pattern has in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capture {
    /// From an offset to another.
    Part(usize, usize),
    /// `()`: an offset.
    Position(usize),
}

/// Where a pattern has matched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) captures: Vec<Capture>,
}

impl Steps {
    fn take(&mut self, count: usize) -> Result<(), PatternError> {
        match self.0.checked_sub(count as u64) {
            Some(left) => self.0 = left,
            None => {
                self.0 = 0;
                return Err(PatternError::Exhausted);
            }
        }
        Ok(())
    }
}

/// The first match that begins at `from` or behind it and does not end at `last`; only at `from` if `anchored`.
pub(crate) fn search(
    subject: &[u8],
    pattern: &[u8],
    from: usize,
    last: Option<usize>,
    anchored: bool,
    steps: &mut Steps,
) -> Result<Option<Match>, PatternError> {
    let mut matcher = Matcher { subject, pattern, captures: Vec::new(), depth: 0, steps };
    for start in from..=subject.len() {
        matcher.captures.clear();
        matcher.depth = 0;
        if let Some(end) = matcher.matches(start, 0)?
            && Some(end) != last
        {
            return Ok(Some(Match { start, end, captures: matcher.finished()? }));
        }
        if anchored {
            break;
        }
    }
    Ok(None)
}

/// Where `needle` stands first, at `from` or behind it.
pub(crate) fn plain(
    subject: &[u8],
    needle: &[u8],
    from: usize,
    steps: &mut Steps,
) -> Result<Option<usize>, PatternError> {
    let Some(&first) = needle.first() else { return Ok(Some(from)) };
    let mut at = from;
    while at + needle.len() <= subject.len() {
        let candidates = &subject[at..=subject.len() - needle.len()];
        let skipped = candidates.iter().position(|&octet| octet == first);
        steps.take(1 + skipped.unwrap_or(candidates.len()) / OCTETS_PER_STEP)?;
        let Some(skipped) = skipped else { break };
        at += skipped;
        let equal = subject[at..].iter().zip(needle).take_while(|(one, other)| one == other).count();
        steps.take(equal / OCTETS_PER_STEP)?;
        if equal == needle.len() {
            return Ok(Some(at));
        }
        at += 1;
    }
    Ok(None)
}

/// Whether a pattern is matched as it stands.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|octet| b"^$*+?.([%-".contains(octet))
}

#[derive(Clone, Copy)]
enum Open {
    /// Its end has not been met.
    Begun(usize),
    Closed(Capture),
}

struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Open>,
    depth: usize,
    steps: &'a mut Steps,
}

fn wrong<T>(what: impl Into<String>) -> Result<T, PatternError> {
    Err(PatternError::Wrong(what.into()))
}

impl Matcher<'_> {
    /// An octet of the pattern; C has a zero behind the end, and some rules read it.
    fn item(&self, p: usize) -> u8 {
        self.pattern.get(p).copied().unwrap_or(0)
    }

    fn octet(&self, s: usize) -> u8 {
        self.subject.get(s).copied().unwrap_or(0)
    }

    /// Where a match that begins at `s` with the pattern from `p` on ends.
    fn matches(&mut self, s: usize, p: usize) -> Result<Option<usize>, PatternError> {
        if self.depth == MAX_DEPTH {
            return wrong("pattern too complex");
        }
        self.depth += 1;
        let end = self.items(s, p)?;
        self.depth -= 1;
        Ok(end)
    }

    fn items(&mut self, mut s: usize, mut p: usize) -> Result<Option<usize>, PatternError> {
        while p < self.pattern.len() {
            self.steps.take(1)?;
            match (self.item(p), self.item(p + 1)) {
                (b'(', b')') => return self.begin(s, p + 2, Open::Closed(Capture::Position(s))),
                (b'(', _) => return self.begin(s, p + 1, Open::Begun(s)),
                (b')', _) => return self.close(s, p + 1),
                (b'$', _) if p + 1 == self.pattern.len() => return Ok((s == self.subject.len()).then_some(s)),
                (ESCAPE, b'b') => {
                    let Some(end) = self.balanced(s, p + 2)? else { return Ok(None) };
                    (s, p) = (end, p + 4);
                }
                (ESCAPE, b'f') => {
                    p += 2;
                    if self.item(p) != b'[' {
                        return wrong("missing '[' after '%f' in pattern");
                    }
                    let behind = self.item_end(p)?;
                    self.steps.take(2 * (behind - p))?;
                    let previous = if s == 0 { 0 } else { self.octet(s - 1) };
                    if self.is_in_set(previous, p, behind - 1)
                        || !self.is_in_set(self.octet(s), p, behind - 1)
                    {
                        return Ok(None);
                    }
                    p = behind;
                }
                (ESCAPE, digit @ b'0'..=b'9') => {
                    let Some(end) = self.again(s, digit)? else { return Ok(None) };
                    (s, p) = (end, p + 2);
                }
                _ => {
                    let behind = self.item_end(p)?;
                    let one = self.one(s, p, behind)?;
                    match self.item(behind) {
                        b'?' => {
                            if one && let Some(end) = self.matches(s + 1, behind + 1)? {
                                return Ok(Some(end));
                            }
                            p = behind + 1;
                        }
                        b'*' | b'-' if !one => p = behind + 1,
                        b'+' if one => return self.most(s + 1, p, behind),
                        b'*' => return self.most(s, p, behind),
                        b'-' => return self.least(s, p, behind),
                        _ if one => (s, p) = (s + 1, behind),
                        _ => return Ok(None),
                    }
                }
            }
        }
        Ok(Some(s))
    }

    /// Where the item of one octet that begins at `p` ends, without its repetition.
    fn item_end(&mut self, p: usize) -> Result<usize, PatternError> {
        let end = self.pattern.len();
        let mut at = p + 1;
        match self.item(p) {
            ESCAPE if at == end => return wrong("malformed pattern (ends with '%')"),
            ESCAPE => at += 1,
            b'[' => {
                if self.item(at) == b'^' {
                    at += 1;
                }
                // A `]` that comes first is one of the set.
                loop {
                    if at >= end {
                        return wrong("malformed pattern (missing ']')");
                    }
                    at += if self.item(at) == ESCAPE && at + 1 < end { 2 } else { 1 };
                    if self.item(at) == b']' {
                        break;
                    }
                }
                at += 1;
                self.steps.take(at - p)?;
            }
            _ => {}
        }
        Ok(at)
    }

    /// Whether the octet at `s` is what the item from `p` to `behind` wants.
    fn one(&mut self, s: usize, p: usize, behind: usize) -> Result<bool, PatternError> {
        self.steps.take(1)?;
        let Some(&octet) = self.subject.get(s) else { return Ok(false) };
        Ok(match self.item(p) {
            b'.' => true,
            ESCAPE => is_of_class(octet, self.item(p + 1)),
            b'[' => {
                self.steps.take(behind - p)?;
                self.is_in_set(octet, p, behind - 1)
            }
            literal => literal == octet,
        })
    }

    /// Whether an octet is of the set between `[` at `p` and `]` at `end`.
    fn is_in_set(&self, octet: u8, p: usize, end: usize) -> bool {
        let is_positive = self.item(p + 1) != b'^';
        let mut at = if is_positive { p + 1 } else { p + 2 };
        while at < end {
            if self.item(at) == ESCAPE {
                if is_of_class(octet, self.item(at + 1)) {
                    return is_positive;
                }
                at += 2;
            } else if self.item(at + 1) == b'-' && at + 2 < end {
                if (self.item(at)..=self.item(at + 2)).contains(&octet) {
                    return is_positive;
                }
                at += 3;
            } else {
                if self.item(at) == octet {
                    return is_positive;
                }
                at += 1;
            }
        }
        !is_positive
    }

    /// As often as possible, then less often.
    fn most(&mut self, s: usize, p: usize, behind: usize) -> Result<Option<usize>, PatternError> {
        let mut at = s;
        while self.one(at, p, behind)? {
            at += 1;
        }
        for at in (s..=at).rev() {
            self.steps.take(1)?;
            if let Some(end) = self.matches(at, behind + 1)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// As rarely as possible, then more often.
    fn least(&mut self, mut s: usize, p: usize, behind: usize) -> Result<Option<usize>, PatternError> {
        loop {
            if let Some(end) = self.matches(s, behind + 1)? {
                return Ok(Some(end));
            }
            if !self.one(s, p, behind)? {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn begin(&mut self, s: usize, p: usize, capture: Open) -> Result<Option<usize>, PatternError> {
        if self.captures.len() == MAX_CAPTURES {
            return wrong("too many captures");
        }
        self.captures.push(capture);
        let end = self.matches(s, p)?;
        if end.is_none() {
            self.captures.pop();
        }
        Ok(end)
    }

    fn close(&mut self, s: usize, p: usize) -> Result<Option<usize>, PatternError> {
        let open = self.captures.iter().enumerate().rev().find_map(|(at, capture)| match capture {
            Open::Begun(start) => Some((at, *start)),
            Open::Closed(_) => None,
        });
        let Some((at, start)) = open else { return wrong("invalid pattern capture") };
        self.captures[at] = Open::Closed(Capture::Part(start, s));
        let end = self.matches(s, p)?;
        if end.is_none() {
            self.captures[at] = Open::Begun(start);
        }
        Ok(end)
    }

    /// `%b()`: from an opening octet to the closing one that belongs to it.
    fn balanced(&mut self, s: usize, p: usize) -> Result<Option<usize>, PatternError> {
        if p + 1 >= self.pattern.len() {
            return wrong("malformed pattern (missing arguments to '%b')");
        }
        let (opening, closing) = (self.item(p), self.item(p + 1));
        if self.octet(s) != opening {
            return Ok(None);
        }
        let mut open = 1_usize;
        for at in s + 1..self.subject.len() {
            self.steps.take(1)?;
            let octet = self.octet(at);
            if octet == closing {
                open -= 1;
                if open == 0 {
                    return Ok(Some(at + 1));
                }
            } else if octet == opening {
                open += 1;
            }
        }
        Ok(None)
    }

    /// `%1`: what a capture has matched, once more.
    fn again(&mut self, s: usize, digit: u8) -> Result<Option<usize>, PatternError> {
        let known = usize::from(digit).checked_sub(usize::from(b'1')).and_then(|at| self.captures.get(at));
        match known {
            Some(&Open::Closed(Capture::Part(start, end))) => {
                self.steps.take((end - start) / OCTETS_PER_STEP)?;
                let is_again = self.subject[s..].starts_with(&self.subject[start..end]);
                Ok(is_again.then_some(s + (end - start)))
            }
            // In C its length is a huge number, which never fits.
            Some(Open::Closed(Capture::Position(_))) => Ok(None),
            Some(Open::Begun(_)) | None => {
                wrong(format!("invalid capture index %{}", i32::from(digit) - i32::from(b'0')))
            }
        }
    }

    fn finished(&self) -> Result<Vec<Capture>, PatternError> {
        let finished = |capture: &Open| match capture {
            Open::Closed(capture) => Ok(*capture),
            Open::Begun(_) => wrong("unfinished capture"),
        };
        self.captures.iter().map(finished).collect()
    }
}

/// Whether an octet is of a class such as `%a`; a capital letter means all others, what is no letter itself.
fn is_of_class(octet: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => octet.is_ascii_alphabetic(),
        b'c' => octet.is_ascii_control(),
        b'd' => octet.is_ascii_digit(),
        b'g' => octet.is_ascii_graphic(),
        b'l' => octet.is_ascii_lowercase(),
        b'p' => octet.is_ascii_punctuation(),
        b's' => matches!(octet, b' ' | 9..=13),
        b'u' => octet.is_ascii_uppercase(),
        b'w' => octet.is_ascii_alphanumeric(),
        b'x' => octet.is_ascii_hexdigit(),
        b'z' => octet == 0,
        _ => return class == octet,
    };
    is == class.is_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use mlua::{Function, Lua};
    use proptest::prelude::*;

    use super::super::core::{Core, Limits, Shared};
    use super::super::named::Tables;
    use super::super::strings;
    use crate::host::NoHost;

    /// Compares our functions with Lua's own: `compare(subject, pattern, init)` is what differs, or nil.
    fn comparison() -> (Lua, Function) {
        let lua = Lua::new();
        lua.load("theirs = {} for name, f in pairs(string) do theirs[name] = f end").exec().expect("Lua");
        let shared =
            Shared { host: Box::new(NoHost), jobs: BTreeMap::new(), deferred: 0, tables: Tables::default() };
        let limits = Limits { instructions: u64::MAX, ..Limits::default() };
        let core = Rc::new(Core::new(Rc::new(RefCell::new(shared)), 0, limits));
        strings::install(&lua, &core).expect("functions");
        let compare = lua.load(include_str!("compare_patterns.lua")).eval().expect("Lua");
        (lua, compare)
    }

    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            "a", "b", ".", "%a", "%d", "%S", "%W", "%x", "%p", "%c", "%.", "[ab]", "[^a]", "[%d-]", "[a-c]",
            "[]a]", "[^]b]", "*", "+", "-", "?", "(", ")", "()", "(a)", "(.-)", "(%w*)", "%1", "%2", "%b()",
            "%bab", "%f[%w]", "%f[^a]", "^", "$", "%", "[", "=", "\0",
        ]);
        prop::collection::vec(piece, 0..7).prop_map(|pieces| pieces.concat().into_bytes())
    }

    fn subjects() -> impl Strategy<Value = Vec<u8>> {
        let octets = prop::sample::select(b"aabbc1(). =-]\0\x0b\xff".to_vec());
        prop::collection::vec(octets, 0..12)
    }

    #[test]
    fn patterns_match_as_in_lua() {
        let (lua, compare) = comparison();
        let config = ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(subject in subjects(), pattern in pieces(), init in -14_i64..15)| {
            let text = |bytes: &[u8]| lua.create_string(bytes).expect("memory");
            let differs: Option<String> =
                compare.call((text(&subject), text(&pattern), init)).expect("compares");
            prop_assert_eq!(differs, None);
        });
    }
}
