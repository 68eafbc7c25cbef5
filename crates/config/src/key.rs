//! A key of the configuration as it is declared: all that the reading, the messages and the reference know of it.

/// What is declared of a key, beside the type of its value.
#[derive(Debug)]
pub(crate) struct Key {
    /// As it stands in the file.
    pub(crate) name: &'static str,
    /// What is so where it is absent.
    pub(crate) absent: Absent,
    /// The profile or mode that alone has it.
    pub(crate) only: Option<Only>,
    /// What it means and what it trades, in Markdown of `docs/`.
    pub(crate) about: &'static [&'static str],
}

/// What is so where a key is absent.
#[derive(Debug)]
pub(crate) enum Absent {
    /// An error, which this tells what to write.
    Required(&'static str),
    /// The same as with this value, in TOML.
    Default(&'static str),
    /// Something else, in the words of the reference.
    Otherwise(&'static str),
}

/// Who has a key, if not everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    /// Peers of the moving-target profile.
    MovingTarget,
    /// Peers of the classic profile.
    Classic,
    /// Nodes in the transparent mode.
    Transparent,
}

/// The longest name that is compared with those of keys.
const LONGEST: usize = 32;

/// The key that was probably meant by a name that none has.
pub(crate) fn similar<'k>(name: &str, keys: &'k [Key]) -> Option<&'k Key> {
    if name.len() > LONGEST {
        return None;
    }
    let most = (name.len() / 3).max(1);
    let distances = keys.iter().map(|key| (distance(name, key.name), key));
    distances
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, key)| key)
}

/// How many characters are inserted, removed or replaced to get from one text to the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_levenshtein() {
        for (one, other, expected) in
            [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("rotaton", "rotation", 1), ("a", "b", 1)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
            assert_eq!(distance(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn the_nearest_key_is_meant_if_it_is_near() {
        const fn key(name: &'static str) -> Key {
            Key { name, absent: Absent::Otherwise(""), only: None, about: &[] }
        }
        let keys = [key("private_key"), key("private_key_file"), key("external"), key("mac")];
        let meant = |name| similar(name, &keys).map(|key| key.name);
        assert_eq!(meant("privatekey"), Some("private_key"));
        assert_eq!(meant("private_keyfile"), Some("private_key_file"));
        assert_eq!(meant("extrenal"), Some("external"));
        for strange in ["mtu", "x", "", "internal_interface"] {
            assert_eq!(meant(strange), None, "{strange}");
        }
    }
}
