//! All of it as text: for a terminal, and as Markdown.

use std::fmt::Write as _;

use crate::comparison::docs::one_line;
use crate::comparison::tables::Table;
use crate::experiment::store::Store;
use crate::experiment::tables::{failures, setting};
use crate::experiment::topics::topics;

/// All tables, for a terminal.
pub(crate) fn tables(store: &Store) -> Vec<Table> {
    topics(store).into_iter().flat_map(|topic| topic.tables).collect()
}

/// Everything as Markdown.
pub(crate) fn page(store: &Store) -> String {
    let mut text = format!("{}\n\n| contender | what it is |\n|---|---|\n", setting(store));
    for entry in &store.settings.contenders {
        let _ = writeln!(text, "| {} | {} |", entry.name, entry.about);
    }
    for absence in &store.settings.left_out {
        let _ = writeln!(text, "| {} | left out: {} |", absence.what, one_line(&absence.why));
    }
    text.push('\n');
    for topic in topics(store) {
        let _ = writeln!(text, "### {}\n\n{}\n", topic.title, topic.about);
        for table in &topic.tables {
            let _ = write!(text, "**{}.** ", table.title);
            // The table's own heading would be one of the topic's level.
            let table = table.markdown();
            let body = table.split_once("\n\n").map_or("", |(_, body)| body);
            text.push_str(body);
        }
    }
    for failure in failures(store) {
        let _ = writeln!(text, "- failed: {}", one_line(&failure));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Test;
    use crate::experiment::store::tests::{measurement, settings, task};

    /// Two runs of a ping, and one of a download that did not end in time.
    pub(crate) fn example(directory: &std::path::Path) -> Store {
        let mut store = Store::open(directory, settings()).expect("a store");
        for (run, avg) in [(1, 1.0), (2, 3.0)] {
            let task = task("sidestep", Test::PingStd, run);
            let values = [("avg_ms", avg), ("min_ms", 0.5), ("max_ms", 9.0), ("loss_percent", 0.0)];
            store.keep(task.key(), measurement(&task, &values)).expect("kept");
        }
        let task = task("sidestep", Test::Http(500_000_000), 1);
        let values = [("mb_per_s", 12.0), ("complete", 0.0)];
        store.keep(task.key(), measurement(&task, &values)).expect("kept");
        store
    }

    #[test]
    fn ours_and_theirs_stand_side_by_side() {
        let directory = tempfile::tempdir().expect("a directory");
        let tables = tables(&example(directory.path()));
        let text: String = tables.iter().map(Table::text).collect();
        assert!(text.contains("2.00 ± 12.7") && text.contains("4.99"), "{text}");
        assert!(text.contains("paper: Python, encrypted"), "{text}");
        assert!(text.contains("12.0 *") && text.contains("all files: about 11.0"), "{text}");
        assert!(!text.contains("flood"), "what was not measured has no table: {text}");
    }

    #[test]
    fn markdown_names_who_was_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = page(&example(directory.path()));
        assert!(text.contains("| wireguard-go | left out: not installed |"), "{text}");
        assert!(text.contains("**standard ping (ping_std_1k): round trips in ms.**"), "{text}");
    }
}
