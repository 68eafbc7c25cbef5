//! Sections: tables of the file, each declared with its keys, and read by what is declared.
//!
//! [`section!`] makes a table's type and the list of its [`Key`]s from one declaration. Reading goes over the whole
//! document once and reports whatever is not as declared: unknown keys, with the one that was probably meant, and values
//! of another type. What was reported is [`State::Wrong`] from then on, so that nothing is said of it twice.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use crate::key::{Absent, Key, Only, similar};
use crate::report::{Finding, Report, blank_keys};

/// What the value of a key can be, as TOML has it.
pub(crate) trait Value: Sized {
    /// What those see that find out what it means.
    type Seen<'v>
    where
        Self: 'v;

    /// What is expected, as messages say it.
    const EXPECTED: &'static str;
    /// The header of the table that it is, if it is one.
    const HEADER: Option<&'static str> = None;

    /// Reads it, or reports why it cannot be.
    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self>;

    /// What there is to see.
    fn seen(&self) -> Self::Seen<'_>;
}

/// A table of the file, with its keys.
pub(crate) trait Section: Sized {
    /// As it stands in the file.
    const HEADER: &'static str;
    /// What messages call one that has a `name`.
    const KIND: Option<&'static str>;
    /// All keys, as they are declared.
    const KEYS: &'static [Key];
    /// Keys that there were, each with what to write instead.
    const GONE: &'static [(&'static str, &'static str)];

    /// The keys that are given, and where.
    fn given(&self) -> Vec<(&'static Key, Range<usize>)>;

    /// Reads each key.
    fn fields(table: &mut Table<'_, '_>) -> Self;
}

/// Declares a section:
///
/// ```text
/// section! {
///     /// What it is.
///     Name = "[header]", named "peer" {
///         /// What the key means.
///         key: Value = Default("\"10s\""), only MovingTarget;
///     } without {
///         old = "write `key` instead",
///     }
/// }
/// ```
///
/// `without` names keys that there were. `named` is for tables of which there are many, `only` for keys that one profile or mode has; a key whose name is none
/// in Rust is declared as `rule as "match": …`.
macro_rules! section {
    (
        $(#[doc = $what:literal])*
        $name:ident = $header:literal $(, named $kind:literal)? {
            $(
                $(#[doc = $about:literal])+
                $field:ident $(as $written:literal)?: $value:ty = $absent:expr $(, only $only:ident)?;
            )+
        } $(without { $($gone:ident = $instead:literal),+ $(,)? })?
    ) => {
        $(#[doc = $what])*
        #[derive(Debug)]
        pub(crate) struct $name {
            $($(#[doc = $about])+ pub(crate) $field: $crate::section::Given<$value>,)+
        }

        impl $crate::section::Section for $name {
            const HEADER: &'static str = $header;
            const KIND: Option<&'static str> = $crate::section::section!(@option $($kind)?);
            const KEYS: &'static [$crate::key::Key] = &[$(
                $crate::section::section!(@key $field ($($written)?) $absent, ($($only)?), [$($about),+])
            ),+];

            const GONE: &'static [(&'static str, &'static str)] = &[$($((stringify!($gone), $instead)),+)?];

            fn given(&self) -> Vec<(&'static $crate::key::Key, std::ops::Range<usize>)> {
                [$(self.$field.place()),+].into_iter().flatten().collect()
            }

            fn fields(table: &mut $crate::section::Table<'_, '_>) -> Self {
                $name {
                    $($field: {
                        const KEY: &$crate::key::Key = &$crate::section::section!(
                            @key $field ($($written)?) $absent, ($($only)?), [$($about),+]
                        );
                        table.key(KEY)
                    },)+
                }
            }
        }

        impl $crate::section::Value for $name {
            type Seen<'v> = &'v Self;
            const EXPECTED: &'static str = "a table";
            const HEADER: Option<&'static str> = Some($header);

            fn read(
                value: &toml::Spanned<toml::de::DeValue<'_>>,
                report: &mut $crate::report::Report,
            ) -> Option<Self> {
                $crate::section::read_table(value, report)
            }

            fn seen(&self) -> &Self {
                self
            }
        }
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    (@only) => { None };
    (@only $only:ident) => { Some($crate::key::Only::$only) };
    (@name $field:ident ()) => { stringify!($field) };
    (@name $field:ident ($written:literal)) => { $written };
    (@key $field:ident $written:tt $absent:expr, ($($only:ident)?), [$($about:literal),+]) => {
        $crate::key::Key {
            name: $crate::section::section!(@name $field $written),
            absent: $absent,
            only: $crate::section::section!(@only $($only)?),
            about: &[$($about),+],
        }
    };
}
pub(crate) use section;

/// A key of a table of the file, and what was given for it.
#[derive(Debug)]
pub(crate) struct Given<V> {
    pub(crate) key: &'static Key,
    /// The table that it is of, or would be.
    pub(crate) table: Rc<Place>,
    state: State<V>,
}

/// A table of the file.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) span: Range<usize>,
    /// What messages call it.
    pub(crate) owner: String,
}

#[derive(Debug)]
enum State<V> {
    /// It is in the file.
    Given(Spanned<V>),
    /// It is not, and this is what holds.
    Default(V),
    Absent,
    /// It is in the file and cannot be read, or its name is misspelt; that was reported.
    Wrong,
}

impl<V> Given<V> {
    /// The value that holds: the one of the file, or else the default.
    pub(crate) fn get(&self) -> Option<&V> {
        match &self.state {
            State::Given(value) => Some(value.get_ref()),
            State::Default(value) => Some(value),
            State::Absent | State::Wrong => None,
        }
    }

    /// The value of the file.
    pub(crate) fn given(&self) -> Option<&Spanned<V>> {
        match &self.state {
            State::Given(value) => Some(value),
            _ => None,
        }
    }

    /// Where the value is; the beginning of the file if it is nowhere.
    pub(crate) fn span(&self) -> Range<usize> {
        self.given().map_or(0..0, Spanned::span)
    }

    /// Where the value is, or else the table.
    pub(crate) fn span_or_table(&self) -> Range<usize> {
        self.given().map_or_else(|| self.table.span.clone(), Spanned::span)
    }

    /// The key and its place, if the file has it.
    pub(crate) fn place(&self) -> Option<(&'static Key, Range<usize>)> {
        self.given().map(|value| (self.key, value.span()))
    }

    /// Whether nobody has tried to give it.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.state, State::Default(_) | State::Absent)
    }

    /// Whether something was given that was reported.
    pub(crate) fn is_wrong(&self) -> bool {
        matches!(self.state, State::Wrong)
    }
}

impl Given<bool> {
    pub(crate) fn is_true(&self) -> bool {
        self.get() == Some(&true)
    }
}

impl Given<String> {
    /// The text of the file.
    pub(crate) fn text(&self) -> Option<&str> {
        self.get().map(String::as_str)
    }
}

impl<V> Given<Vec<Spanned<V>>> {
    /// What the list holds; nothing if there is none.
    pub(crate) fn list(&self) -> &[Spanned<V>] {
        self.get().map_or(&[], Vec::as_slice)
    }
}

/// A table that is being read.
pub(crate) struct Table<'t, 'r> {
    entries: &'t DeTable<'t>,
    place: Rc<Place>,
    /// Keys that unknown ones were probably meant to be.
    misspelt: Vec<&'static str>,
    report: &'r mut Report,
}

impl Table<'_, '_> {
    pub(crate) fn key<V: Value>(&mut self, key: &'static Key) -> Given<V> {
        let state = match self.entries.get(key.name) {
            Some(value) => V::read(value, self.report)
                .map_or(State::Wrong, |read| State::Given(Spanned::new(value.span(), read))),
            None if self.misspelt.contains(&key.name) => State::Wrong,
            None => match key.absent {
                Absent::Default(toml) => State::Default(default(toml)),
                Absent::Required(_) | Absent::Otherwise(_) => State::Absent,
            },
        };
        Given { key, table: Rc::clone(&self.place), state }
    }
}

/// What a declared default says.
fn default<V: Value>(toml: &str) -> V {
    let value = DeValue::parse(toml).ok();
    value.and_then(|value| V::read(&value, &mut Report::default())).expect("a declared default can be read")
}

/// Reads a section.
pub(crate) fn read_table<S: Section + Value>(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<S> {
    let DeValue::Table(entries) = value.get_ref() else { return mismatch(value, report) };
    Some(read_entries(entries, value.span(), report))
}

/// Reads a section whose entries these are.
pub(crate) fn read_entries<S: Section>(entries: &DeTable<'_>, span: Range<usize>, report: &mut Report) -> S {
    let name = entries.get("name").and_then(|name| name.get_ref().as_str());
    let owner = match (S::KIND, name) {
        (Some(kind), Some(name)) => format!("{kind} {name:?}"),
        _ => S::HEADER.to_owned(),
    };
    let is_key = |name: &str| S::KEYS.iter().any(|key| key.name == name);
    let mut unknown: Vec<_> = entries.keys().filter(|name| !is_key(name.get_ref())).collect();
    unknown.sort_by_key(|name| name.span().start);
    let mut misspelt = Vec::new();
    for name in unknown {
        let gone = S::GONE.iter().find(|(gone, _)| gone == name.get_ref());
        let meant = similar(name.get_ref(), S::KEYS).filter(|_| gone.is_none());
        let help = match meant {
            _ if gone.is_some() => gone.map_or_else(String::new, |(_, instead)| (*instead).to_owned()),
            Some(key) => format!("did you mean `{}`?", key.name),
            None => {
                format!("known here: {}", known(entries, S::KEYS))
            }
        };
        let title = blank_keys(&format!("unknown key `{}`", name.get_ref()));
        if let Some(value) = entries.get(name.get_ref().as_ref()) {
            report.hide(value);
        }
        report.add(Finding::error(name.span(), title, "not known here", help));
        misspelt.extend(meant.map(|key| key.name));
    }
    let place = Rc::new(Place { span, owner });
    S::fields(&mut Table { entries, place, misspelt, report })
}

/// The keys that such a table has: those of the classic profile where it says that it is of that, the others where not.
fn known(entries: &DeTable<'_>, keys: &[Key]) -> String {
    let profile = entries.get("profile").and_then(|profile| profile.get_ref().as_str());
    let other = if profile == Some("classic") { Only::MovingTarget } else { Only::Classic };
    let known: Vec<_> = keys.iter().filter(|key| key.only != Some(other)).map(|key| key.name).collect();
    known.join(", ")
}

/// Reports that a value is of another type.
pub(crate) fn mismatch<V: Value>(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<V> {
    let help = match V::HEADER {
        Some(header) if header.starts_with("[[") => format!("there may be several: write {header}"),
        Some(header) => format!("write it as a table of its own: {header}"),
        None => "text is in quotes, numbers and true or false are not, lists are in brackets".to_owned(),
    };
    mismatch_with(value, &found(value.get_ref()), help, report)
}

fn mismatch_with<V: Value>(
    value: &Spanned<DeValue<'_>>,
    found: &dyn Display,
    help: impl Into<String>,
    report: &mut Report,
) -> Option<V> {
    report.hide_tables(value);
    let title = format!("invalid type: {found}, expected {}", V::EXPECTED);
    report.add(Finding::error(value.span(), title, "", help));
    None
}

/// What a value is; a message may show it, so that what looks like a key is blanked.
fn found(value: &DeValue<'_>) -> String {
    blank_keys(&match value {
        DeValue::String(text) => format!("string {text:?}"),
        DeValue::Integer(number) => format!("integer `{number}`"),
        DeValue::Float(number) => format!("floating point `{}`", number.as_str()),
        DeValue::Boolean(value) => format!("boolean `{value}`"),
        DeValue::Datetime(_) => "date".to_owned(),
        DeValue::Array(_) => "list".to_owned(),
        DeValue::Table(_) => "table".to_owned(),
    })
}

/// A duration in words, like `10s`.
#[derive(Debug)]
pub(crate) struct Period(String);

impl Value for String {
    type Seen<'v> = &'v str;
    const EXPECTED: &'static str = "a string";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        value.get_ref().as_str().map(str::to_owned).or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &str {
        self
    }
}

impl Value for Period {
    type Seen<'v> = &'v str;
    const EXPECTED: &'static str = "a string";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(text) => Some(Period(text.to_string())),
            DeValue::Integer(number) => {
                let help = format!("a duration has a unit and is in quotes: write \"{number}s\"");
                mismatch_with(value, &found(value.get_ref()), help, report)
            }
            _ => mismatch(value, report),
        }
    }

    fn seen(&self) -> &str {
        &self.0
    }
}

/// A secret: no message shows what stands in its place.
impl Value for Zeroizing<String> {
    type Seen<'v> = &'v str;
    const EXPECTED: &'static str = "a string";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let text = value.get_ref().as_str().map(|text| Zeroizing::new(text.to_owned()));
        text.or_else(|| mismatch_with(value, &value.get_ref().type_str(), "a key is in quotes", report))
    }

    fn seen(&self) -> &str {
        self
    }
}

impl Value for bool {
    type Seen<'v> = bool;
    const EXPECTED: &'static str = "true or false";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        value.get_ref().as_bool().or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> bool {
        *self
    }
}

impl Value for i64 {
    type Seen<'v> = i64;
    const EXPECTED: &'static str = "a whole number";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        integer(value.get_ref()).or_else(|| match value.get_ref() {
            DeValue::Integer(number) => {
                let title = format!("the number {number} is too large");
                report.add(Finding::error(value.span(), title, "", "numbers have 64 bits"));
                None
            }
            _ => mismatch(value, report),
        })
    }

    fn seen(&self) -> i64 {
        *self
    }
}

pub(crate) fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

impl<V: Value> Value for Vec<Spanned<V>> {
    type Seen<'v>
        = &'v [Spanned<V>]
    where
        Self: 'v;
    const EXPECTED: &'static str = "a list";
    const HEADER: Option<&'static str> = V::HEADER;

    /// Without the elements that cannot be read, which are reported.
    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let DeValue::Array(elements) = value.get_ref() else { return mismatch(value, report) };
        let mut read = |element| Some(Spanned::new(Spanned::span(element), V::read(element, report)?));
        Some(elements.iter().filter_map(&mut read).collect())
    }

    fn seen(&self) -> &[Spanned<V>] {
        self
    }
}

/// A table whose keys are names that the user gives.
impl<V: Value> Value for BTreeMap<String, Spanned<V>> {
    type Seen<'v>
        = &'v Self
    where
        Self: 'v;
    const EXPECTED: &'static str = "a table";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let DeValue::Table(entries) = value.get_ref() else { return mismatch(value, report) };
        let mut read = |value| Some(Spanned::new(Spanned::span(value), V::read(value, report)?));
        Some(
            entries
                .iter()
                .filter_map(|(name, value)| Some((name.get_ref().to_string(), read(value)?)))
                .collect(),
        )
    }

    fn seen(&self) -> &Self {
        self
    }
}
