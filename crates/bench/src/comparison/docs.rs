//! The tables in a Markdown page, between two marks; what people wrote around them stays.

use std::fmt::Write as _;
use std::path::Path;

use crate::comparison::results::Results;
use crate::comparison::tables;
use lab::Error;

/// Puts the tables of a run between the marks of this name in a page.
///
/// # Errors
/// As [`between`].
pub(crate) fn write(results: &Results, mark: &str, path: &Path) -> Result<(), Error> {
    between(mark, &text(results), path)
}

/// Puts a text between the marks of this name in a page.
///
/// # Errors
/// When the page cannot be read or written, or has no marks.
pub(crate) fn between(name: &str, text: &str, path: &Path) -> Result<(), Error> {
    let failed = |source| Error::file(path, source);
    let page = std::fs::read_to_string(path).map_err(failed)?;
    let page = replace(name, &page, text).ok_or_else(|| {
        let (path, [begin, end]) = (path.display(), marks(name));
        Error::Usage(format!(
            "{path}: the tables go between the lines `{begin}` and `{end}`: please add them"
        ))
    })?;
    std::fs::write(path, page).map_err(failed)
}

fn marks(name: &str) -> [String; 2] {
    ["begin", "end"].map(|which| format!("<!-- {name}:{which} -->"))
}

fn replace(name: &str, page: &str, text: &str) -> Option<String> {
    let [begin, end] = marks(name);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{text}{end}{after}"))
}

/// Who measured what, how far, and who is compared.
pub(crate) fn head(results: &Results) -> String {
    let mut text = format!("Sidestep {}. {}. {}.\n\n", results.version, results.machine, results.settings);
    if let Some(how_far) = &results.interrupted {
        let _ = writeln!(text, "Interrupted: {how_far}.\n");
    }
    text.push_str("| contender | what it is |\n|---|---|\n");
    for entry in &results.contenders {
        let _ = writeln!(text, "| {} | {} |", entry.name, entry.about);
    }
    for absence in &results.left_out {
        let _ = writeln!(text, "| {} | left out: {} |", absence.what, one_line(&absence.why));
    }
    text.push('\n');
    text
}

fn text(results: &Results) -> String {
    let mut text = head(results);
    for table in tables::all(results) {
        text.push_str(&table.markdown());
    }
    if !results.failures.is_empty() {
        text.push_str("### What failed\n\n");
        for failure in &results.failures {
            let _ = writeln!(text, "- {}: {}", failure.what, one_line(&failure.why));
        }
        text.push('\n');
    }
    text
}

/// Without line breaks, which would end a row.
pub(crate) fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::results::tests::example;

    #[test]
    fn what_stands_around_the_tables_stays() {
        let page = "# Title\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nprose\n";
        let new = replace("bench", page, &text(&example())).expect("marks");
        assert!(
            new.starts_with("# Title\n<!-- bench:begin -->\n")
                && new.ends_with("<!-- bench:end -->\nprose\n")
        );
        assert!(new.contains("| sidestep | 3,000") && !new.contains("old"));
        assert_eq!(
            replace("bench", &new, &text(&example())),
            Some(new.clone()),
            "a second run changes nothing"
        );
        assert_eq!(replace("bench", "no marks", ""), None);
    }
}
