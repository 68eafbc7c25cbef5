//! Lines of code, counted in the same way in all languages: those that are neither empty nor a comment alone.

use super::job::{LOADER, Text};

/// Of what was written for the job, and of what loads it, if somebody has to write that as well. The tests of a script,
/// which the others do not have, are not counted.
pub(super) fn of(texts: &[Text]) -> (usize, Option<usize>) {
    let (loader, own): (Vec<&Text>, Vec<&Text>) = texts.iter().partition(|(name, _)| *name == LOADER);
    let sum = |texts: &[&Text]| texts.iter().map(|(name, text)| count(name, text)).sum();
    (sum(&own), (!loader.is_empty()).then(|| sum(&loader)))
}

fn count(name: &str, text: &str) -> usize {
    let comment = match name.rsplit_once('.') {
        Some((_, "lua")) => "--",
        Some((_, "c")) => "//",
        _ => "#",
    };
    let code = text.split_once("\nlocal test = require \"test\"").map_or(text, |(code, _)| code);
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(comment)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_tests_and_empty_lines_do_not_count() {
        let script =
            "-- what it is\nlocal a = 1 -- one\n\nlocal test = require \"test\"\nfunction test_it() end\n";
        assert_eq!(of(&[("one.lua", script)]), (1, None));
        assert_eq!(
            of(&[("one.c", "// what\n#include <x.h>\n\nint x; // y\n"), (LOADER, "int main;\n")]),
            (2, Some(1))
        );
        assert_eq!(of(&[("one.rules", "# what\ndrop\n")]), (1, None));
    }
}
