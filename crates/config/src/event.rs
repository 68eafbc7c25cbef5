//! `[events]`: what is done when something happens.

use std::path::PathBuf;

use crate::converter::Converter;
use crate::key::Absent::Otherwise;
use crate::section::section;
use crate::value::{Problem, problem};

section! {
    /// `[events]`, as it stands in the file.
    EventsTable = "[events]" {
        /// A program, as an absolute path, that is run at each event (`sidestep events`), one at a time, with the event as a JSON
        /// document on its standard input and in its environment. It has no capabilities, and may write no files but those
        /// that the daemon may. Read at the start.
        on_event: String = Otherwise("none");
    }
}

impl Converter<'_> {
    /// The program that is run at each event.
    pub(crate) fn on_event(&mut self, table: &EventsTable) -> Option<Option<PathBuf>> {
        self.optional(&table.on_event, program)
    }
}

fn program(text: &str) -> Result<PathBuf, Problem> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        Ok(path)
    } else {
        problem("not an absolute path", "give the path of a program, such as \"/usr/local/sbin/tell-me\"")
    }
}
