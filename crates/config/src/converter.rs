//! From what a key says to what it means: every value by itself, with a finding for each that means nothing.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use zeroize::Zeroizing;

use crate::key::Absent;
use crate::report::{Finding, Report};
use crate::section::{Given, Value};
use crate::value::Problem;

/// Why a key file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFileError {
    /// It is not there.
    Missing,
    /// It cannot be read, or others than its owner can use it; with the remedy.
    Unusable(String),
}

/// What reads a key file.
pub type ReadKey<'a> = dyn Fn(&Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> + 'a;

/// Finds out what values mean. Sections add a method each.
pub(crate) struct Converter<'a> {
    folder: &'a Path,
    read_key: &'a ReadKey<'a>,
    report: &'a mut Report,
}

/// Which secret, how one is made, and what one looks like.
pub(crate) struct SecretKind {
    pub(crate) name: &'static str,
    pub(crate) command: &'static str,
    pub(crate) form: &'static str,
}

impl<'a> Converter<'a> {
    /// Key files have names relative to `folder`, and are had from `read_key`.
    pub(crate) fn new(folder: &'a Path, read_key: &'a ReadKey<'a>, report: &'a mut Report) -> Self {
        Converter { folder, read_key, report }
    }

    /// Something else that was found.
    pub(crate) fn report(&mut self, finding: Finding) {
        self.report.add(finding);
    }

    /// The folder that names of files are relative to.
    pub(crate) fn folder(&self) -> &'a Path {
        self.folder
    }

    /// What a key means that is required or has a default; None if something is wrong with it.
    pub(crate) fn value<V: Value, T>(
        &mut self,
        given: &Given<V>,
        parse: impl for<'v> FnOnce(V::Seen<'v>) -> Result<T, Problem>,
    ) -> Option<T> {
        self.require_if_declared(given);
        self.optional(given, parse)?
    }

    /// What a key means that may be absent: None if it is wrong, Some(None) if absent.
    pub(crate) fn optional<V: Value, T>(
        &mut self,
        given: &Given<V>,
        parse: impl for<'v> FnOnce(V::Seen<'v>) -> Result<T, Problem>,
    ) -> Option<Option<T>> {
        if given.is_wrong() {
            return None;
        }
        let Some(value) = given.get() else { return Some(None) };
        let parsed =
            parse(value.seen()).map_err(|problem| self.refuse(given.span(), given.key.name, problem));
        parsed.ok().map(Some)
    }

    /// What each element of a list means; there is none where a key is absent that is not required.
    pub(crate) fn each<V: Value, T>(
        &mut self,
        given: &Given<Vec<Spanned<V>>>,
        parse: impl for<'v> Fn(V::Seen<'v>) -> Result<T, Problem>,
    ) -> Option<Vec<T>> {
        self.require_if_declared(given);
        if given.is_wrong() || matches!(given.key.absent, Absent::Required(_)) && given.is_absent() {
            return None;
        }
        let name = given.key.name;
        let values = given.list().iter().map(|element| {
            parse(element.get_ref().seen()).map_err(|problem| self.refuse(element.span(), name, problem)).ok()
        });
        // All of them are looked at before one that is wrong counts.
        values.collect::<Vec<_>>().into_iter().collect()
    }

    /// Refuses a list that is there and has nothing in it, where an absent one means something else than nothing.
    pub(crate) fn not_empty<V>(&mut self, given: &Given<Vec<Spanned<V>>>) -> bool {
        let (name, is_empty) = (given.key.name, given.given().is_some_and(|list| list.get_ref().is_empty()));
        if is_empty {
            let help = match given.key.absent {
                Absent::Otherwise(default) => {
                    format!("leave `{name}` out for what holds without it: {default}")
                }
                _ => format!("write something into it, or leave `{name}` out"),
            };
            self.report(Finding::error(given.span(), format!("`{name}` is an empty list"), "nothing", help));
        }
        !is_empty
    }

    fn require_if_declared<V>(&mut self, given: &Given<V>) {
        if let Absent::Required(help) = given.key.absent {
            self.require(given, help);
        }
    }

    /// Reports a key that is required here, if it is absent.
    pub(crate) fn require<V>(&mut self, given: &Given<V>, help: &str) {
        if given.is_absent() {
            self.missing(given, help);
        }
    }

    fn missing<V>(&mut self, given: &Given<V>, help: &str) {
        let name = given.key.name;
        self.report(Finding::error(
            given.table.span.clone(),
            format!("{} has no `{name}`", given.table.owner),
            "in this table",
            format!("add `{name} = …`: {help}"),
        ));
    }

    /// Reports a value that means nothing.
    pub(crate) fn refuse(&mut self, span: std::ops::Range<usize>, name: &str, problem: Problem) {
        let Problem { label, help } = problem;
        self.report(Finding::error(span, format!("`{name}` cannot be used"), label, help));
    }

    /// A secret that is given in the file or in one of its own.
    pub(crate) fn secret<T: FromStr>(
        &mut self,
        kind: &SecretKind,
        inline: &Given<Zeroizing<String>>,
        file: &Given<String>,
    ) -> Option<T> {
        let SecretKind { name, command, .. } = kind;
        let file = match (inline.given(), file.given()) {
            (Some(inline), Some(file)) => {
                let help = format!("remove `{name}` or `{name}_file`");
                self.report(
                    Finding::error(file.span(), format!("{name} is given twice"), "here as a file", help)
                        .related(inline.span(), "here inline"),
                );
                return None;
            }
            (Some(_), None) => return self.value(inline, |text| kind.parse(text)),
            (None, Some(file)) => file,
            (None, None) => return None,
        };
        let path = self.folder.join(file.get_ref());
        let shown = path.display();
        let (label, help) = match (self.read_key)(&path) {
            Ok(bytes) => match std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()) {
                Some(key) => return Some(key),
                None => ("the file holds no key", format!("make one with: umask 077; {command} > {shown}")),
            },
            Err(KeyFileError::Missing) => {
                ("no such file", format!("make one with: umask 077; {command} > {shown}"))
            }
            Err(KeyFileError::Unusable(why)) => ("the file cannot be used", why),
        };
        let title = format!("{name}_file {shown} cannot be used");
        self.report(Finding::error(file.span(), title, label, help));
        None
    }

    /// A secret in a file that may stand beside the one that is given. Err where there is one that cannot be used.
    pub(crate) fn secret_beside<T: FromStr>(
        &mut self,
        file: &Given<String>,
        beside: impl Fn(&Path) -> PathBuf,
    ) -> Result<Option<T>, ()> {
        let Some(file) = file.given() else { return Ok(None) };
        let path = beside(&self.folder.join(file.get_ref()));
        let why = match (self.read_key)(&path) {
            Err(KeyFileError::Missing) => return Ok(None),
            Ok(bytes) => match std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()) {
                Some(key) => return Ok(Some(key)),
                None => "the file holds no key: remove it".to_owned(),
            },
            Err(KeyFileError::Unusable(why)) => why,
        };
        let title = format!("{} beside it cannot be used", path.display());
        self.report(Finding::error(file.span(), title, "the key before this one", why));
        Err(())
    }
}

impl SecretKind {
    /// The secret that the text is.
    pub(crate) fn parse<T: FromStr>(&self, text: &str) -> Result<T, Problem> {
        text.parse().map_err(|_| Problem { label: "not a key".to_owned(), help: self.form.to_owned() })
    }
}
