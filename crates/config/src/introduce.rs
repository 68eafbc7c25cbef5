//! What a peer says of others: `meet_through` and `introduce` of `[[peer]]`.

use mt6d::config::Introduce;
use toml::Spanned;
use toml::de::DeValue;

use crate::converter::Converter;
use crate::report::Report;
use crate::section::{Given, Value, mismatch};
use crate::value;

/// To whom a peer is introduced: all or nobody, or these.
#[derive(Debug)]
pub(crate) enum IntroduceValue {
    Any(bool),
    Only(Vec<Spanned<String>>),
}

impl Value for IntroduceValue {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "true, false, or a list of peers, like [\"site-b\"]";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        match value.get_ref() {
            DeValue::Boolean(any) => Some(IntroduceValue::Any(*any)),
            DeValue::Array(_) => Vec::read(value, report).map(IntroduceValue::Only),
            _ => mismatch(value, report),
        }
    }

    fn seen(&self) -> &Self {
        self
    }
}

impl Converter<'_> {
    /// Through whom a peer is met, and to whom it is introduced.
    pub(crate) fn meeting(
        &mut self,
        meet_through: &Given<Vec<Spanned<String>>>,
        introduce: &Given<IntroduceValue>,
    ) -> Option<(Vec<String>, Introduce)> {
        let through = self.each(meet_through, value::peer_name);
        let introduce = match introduce.given().map(Spanned::get_ref) {
            Some(IntroduceValue::Any(true)) => Introduce::Everybody,
            Some(IntroduceValue::Only(names)) => {
                Introduce::Only(names.iter().map(|name| name.get_ref().clone()).collect())
            }
            Some(IntroduceValue::Any(false)) | None => Introduce::Nobody,
        };
        Some((through?, introduce))
    }
}
