//! What is to be said about a configuration file: where it is, what is wrong, what to do about it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use toml::Spanned;
use toml::de::DeValue;

use crate::part::Part;

/// Errors and warnings about one configuration file, with its text to show them in. Secrets are blanked out of the
/// text before it is kept.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The files that its text came from, each with where it begins.
    parts: Vec<(usize, PathBuf)>,
    /// The file with its secrets blanked out; as long, in bytes, as the file.
    text: String,
    findings: Vec<Finding>,
}

/// One error or warning.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    severity: Severity,
    title: String,
    /// Byte range of the offending text.
    span: Range<usize>,
    label: String,
    related: Vec<(Range<usize>, String)>,
    help: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Warning,
    Error,
}

impl Finding {
    /// An error: `title` says what is wrong, `label` is written at the offending text, `help` says what to do.
    pub(crate) fn error(
        span: Range<usize>,
        title: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        let (title, label, help) = (title.into(), label.into(), help.into());
        Finding { severity: Severity::Error, title, span, label, related: Vec::new(), help }
    }

    /// A warning, otherwise the same.
    pub(crate) fn warning(
        span: Range<usize>,
        title: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Finding { severity: Severity::Warning, ..Finding::error(span, title, label, help) }
    }

    /// With a note at another place of the file.
    pub(crate) fn related(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.related.push((span, label.into()));
        self
    }
}

impl Report {
    pub(crate) fn new(path: &Path, text: &str) -> Self {
        Report { parts: vec![(0, path.to_owned())], text: without_secrets(text), findings: Vec::new() }
    }

    /// About a text that came from several files.
    pub(crate) fn of_parts(parts: &[Part], text: &str) -> Self {
        let parts = parts.iter().map(|part| (part.start, part.name.clone())).collect();
        Report { parts, text: without_secrets(text), findings: Vec::new() }
    }

    /// The file that a place of the text came from: its name, and which part of the text is its.
    fn part(&self, at: usize) -> (String, Range<usize>) {
        let next = self.parts.partition_point(|(start, _)| *start <= at);
        let (start, path) = match next.checked_sub(1) {
            Some(own) => (self.parts[own].0, self.parts[own].1.as_path()),
            None => (0, Path::new("")),
        };
        let end = self.parts.get(next).map_or(self.text.len(), |(start, _)| *start);
        (path.to_string_lossy().into_owned(), start..end)
    }

    /// Blanks a value, whatever it is: the texts and numbers in it, and what follows them on their lines. Those under keys
    /// that nobody knows may be secrets, under whatever name.
    pub(crate) fn hide(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Array(elements) => elements.iter().for_each(|element| self.hide(element)),
            DeValue::Table(entries) => entries.values().for_each(|entry| self.hide(entry)),
            _ => {
                let Range { start, end } = value.span();
                let Some(after) = self.text.get(end..) else { return };
                let end = after.find('\n').map_or(self.text.len(), |at| end + at);
                let Some(shown) = self.text.get(start..end) else { return };
                self.text.replace_range(start..end, &blank(shown));
            }
        }
    }

    /// Blanks the tables in a value, which are not read, so that nobody knows which of their keys are secrets.
    pub(crate) fn hide_tables(&mut self, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Array(elements) => elements.iter().for_each(|element| self.hide_tables(element)),
            DeValue::Table(_) => self.hide(value),
            _ => {}
        }
    }

    /// Blanks every value but those of keys that `is_key` knows, if their names are not those of secrets: for a text that is no TOML, so that nobody knows where its
    /// values end.
    pub(crate) fn show_only(&mut self, is_key: &dyn Fn(&str) -> bool) {
        let known = |name: &str| is_key(name) && !is_secret(name);
        let mut is_shown = true;
        let mut text = String::with_capacity(self.text.len());
        for line in self.text.split_inclusive('\n') {
            let (from, next) = hidden_from(line, is_shown, &known);
            text.push_str(&line[..from]);
            text.push_str(&blank(&line[from..]));
            is_shown = next;
        }
        self.text = text;
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// How many errors it holds.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The report as text, with colours if `styled`; ends without a newline.
    pub fn render(&self, styled: bool) -> String {
        let renderer = if styled { Renderer::styled() } else { Renderer::plain() };
        let shown = self.findings.iter().map(|finding| {
            let (path, part) = self.part(finding.span.start);
            renderer.render(&[self.group(finding, &path, part)])
        });
        shown.collect::<Vec<String>>().join("\n\n")
    }

    fn group<'a>(&'a self, finding: &'a Finding, path: &'a str, part: Range<usize>) -> Group<'a> {
        let level = match finding.severity {
            Severity::Warning => Level::WARNING,
            Severity::Error => Level::ERROR,
        };
        let shift = |span: Range<usize>| span.start - part.start..span.end - part.start;
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            finding.related.iter().partition(|(span, _)| part.contains(&span.start) || part.is_empty());
        let related = here.into_iter().map(|(span, label)| {
            AnnotationKind::Context.span(shift(self.within(span))).label(label.as_str())
        });
        let snippet = Snippet::source(&self.text[part.clone()])
            .path(path.to_owned())
            .annotation(
                AnnotationKind::Primary.span(shift(self.within(&finding.span))).label(finding.label.as_str()),
            )
            .annotations(related);
        let mut group = level.primary_title(finding.title.as_str()).element(snippet);
        for (span, label) in elsewhere {
            let (path, of) = self.part(span.start);
            let place = self.within(span);
            let place = place.start - of.start..place.end - of.start;
            let annotation = AnnotationKind::Context.span(place).label(label.as_str());
            group = group.element(Snippet::source(&self.text[of]).path(path).annotation(annotation));
        }
        if finding.help.is_empty() {
            group
        } else {
            group.element(Level::HELP.message(finding.help.as_str()))
        }
    }

    /// `span` inside the text, on character boundaries and within one line: a span of several lines (a table, an
    /// array) is shown by its first.
    fn within(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(span.start.min(self.text.len()));
        let line_end = self.text[start..].find(['\n', '\r']).map_or(self.text.len(), |at| start + at);
        let end = self.text.floor_char_boundary(span.end.clamp(start, line_end));
        start..end
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// Shortest run of base64 characters that is taken for a key.
const KEY_LIKE: usize = 40;

/// What names of secrets contain (`preshared_key`, too), and what others call them: what somebody writes here by habit is a
/// secret all the same. In small letters, with `_` for `-`.
const SECRET_NAMES: [&str; 10] = [
    "private_key",
    "shared_key",
    "session_key",
    "sharedkey",
    "secret",
    "psk",
    "password",
    "passphrase",
    "passwd",
    "pre_shared",
];

/// `text` with everything blanked that may be a secret: what follows one of [`SECRET_NAMES`], and whatever looks like a key on
/// a line that does not speak of a public one (a misspelt name must not give a key away).
pub(crate) fn without_secrets(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut inside: Option<&str> = None;
    for line in text.split_inclusive('\n') {
        if let Some(quotes) = inside {
            shown.push_str(&blank(line));
            if line.contains(quotes) {
                inside = None;
            }
        } else if let Some(at) = secret_value(line) {
            shown.push_str(&line[..at]);
            shown.push_str(&blank(&line[at..]));
            inside = ["\"\"\"", "'''"].into_iter().find(|quotes| line[at..].matches(quotes).count() == 1);
        } else if line.contains("public") {
            shown.push_str(line);
        } else {
            shown.push_str(&blank_keys(line));
        }
    }
    shown
}

fn is_secret(name: &str) -> bool {
    !name.ends_with("_file") && SECRET_NAMES.into_iter().any(|secret| name.contains(secret))
}

/// Where the value of a secret begins in a line that gives one.
fn secret_value(line: &str) -> Option<usize> {
    let small = line.to_ascii_lowercase().replace('-', "_");
    let name_end = SECRET_NAMES
        .into_iter()
        .filter_map(|name| {
            small
                .match_indices(name)
                .map(|(at, _)| at + name.len())
                .find(|&end| !small[end..].starts_with("_file"))
        })
        .min()?;
    line[name_end..].find('=').map(|at| name_end + at + 1)
}

/// From where a line is not to be shown, and whether what follows it is. A line without a name goes on as the one before it
/// ended: it is a part of a list or of a text.
fn hidden_from(line: &str, is_shown: bool, known: &dyn Fn(&str) -> bool) -> (usize, bool) {
    let code = line.trim_start();
    let indent = line.len() - code.len();
    let first_name = |text: &str| text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    if code.starts_with('[') && !code.contains('=') {
        let header = code.trim_start_matches('[');
        if known(&header[..first_name(header)]) {
            return (line.len(), true);
        }
    }
    let first = first_name(code);
    if first > 0 && !known(&code[..first]) {
        let is_key = is_shown && code[first..].trim_start().starts_with('=');
        return (if is_key { indent + first } else { indent }, false);
    }
    if first == 0 && !is_shown {
        return (indent, false);
    }
    let unknown = line.match_indices('=').map(|(at, _)| at).find(|&at| {
        let before = line[..at].trim_end();
        !known(before.rsplit(|c| !is_of_name(c)).next().unwrap_or_default())
    });
    unknown.map_or((line.len(), true), |at| (at, false))
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// As long as `text`, in bytes; spaces and quotes stay.
fn blank(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        match c {
            '"' | '\'' => shown.push(c),
            _ if c.is_ascii() && !c.is_ascii_graphic() => shown.push(c),
            _ => shown.extend(std::iter::repeat_n('*', c.len_utf8())),
        }
        shown
    })
}

/// Whatever looks like a key blanked out of `text`.
pub(crate) fn blank_keys(text: &str) -> String {
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '-' | '_');
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let run = rest.find(|c| !is_key(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(run);
        if word.len() >= KEY_LIKE {
            shown.push_str(&blank(word));
        } else {
            shown.push_str(word);
        }
        let other = after.find(is_key).unwrap_or(after.len());
        shown.push_str(&after[..other]);
        rest = &after[other..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";

    #[test]
    fn secrets_are_blanked_wherever_they_stand() {
        for line in [
            format!("private_key = \"{KEY}\""),
            format!("node.private_key=\"{KEY}\" # a comment"),
            format!("node = {{ private_key_file = 'a', private_key = '{KEY}' }}"),
            format!("privat_key = \"{KEY}\""),
            format!("\"{KEY}\""),
            format!("preshared_key = \"\"\"\n{KEY}\n\"\"\""),
            "private_key = \"too short\"".to_owned(),
            format!("private_key = \"{KEY}"),
            format!("session_key = \"{KEY}\""),
            "session_key = \"too short\"".to_owned(),
            "sharedkey = \"too short\"".to_owned(),
            "secret = \"too short\"".to_owned(),
        ] {
            let shown = without_secrets(&line);
            assert!(!shown.contains(&KEY[..8]) && !shown.contains("short"), "{shown}");
            assert_eq!(shown.len(), line.len());
        }
    }

    #[test]
    fn public_keys_and_file_names_are_shown() {
        for line in [
            format!("public_key = \"{KEY}\""),
            "private_key_file = \"site-a.key\"".to_owned(),
            "shared_key_file = \"a.psk\"".to_owned(),
        ] {
            assert_eq!(without_secrets(&line), line);
        }
    }

    proptest! {
        #[test]
        fn blanking_keeps_every_offset(text in "(private_key ?= ?\"|'''|[a-zé=\\n\"]|[A-Za-z0-9+/]{44}){0,20}") {
            let shown = without_secrets(&text);
            prop_assert_eq!(shown.len(), text.len());
            prop_assert!(text.char_indices().all(|(at, _)| shown.is_char_boundary(at)));
        }
    }
}
