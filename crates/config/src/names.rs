//! Names under which a peer's place is published: `dns` and `dns_record` of `[[peer]]`.

use toml::Spanned;

use crate::converter::Converter;
use crate::document::Document;
use crate::value::{Problem, problem};

/// A name under which a peer's place is published.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerName {
    /// The peer's name in the configuration.
    pub peer: String,
    /// The name.
    pub name: String,
    /// It has a TXT record that is sealed for this node, not an address in the peer's hopping prefix.
    pub is_record: bool,
}

impl Converter<'_> {
    /// All names, in the order of the file; None if one of them cannot be a name.
    pub(crate) fn names(&mut self, document: &Document) -> Option<Vec<PeerName>> {
        let mut names = Some(Vec::new());
        for peer in document.peer.list().iter().map(Spanned::get_ref) {
            let Some(owner) = peer.name.text() else { continue };
            for (given, is_record) in [(&peer.dns, false), (&peer.dns_record, true)] {
                match self.optional(given, name) {
                    Some(Some(name)) => {
                        if let Some(names) = &mut names {
                            names.push(PeerName { peer: owner.to_owned(), name, is_record });
                        }
                    }
                    Some(None) => {}
                    None => names = None,
                }
            }
        }
        names
    }
}

/// A name of DNS (RFC 1035 section 2.3.1), with underscores, which names of records may have.
fn name(text: &str) -> Result<String, Problem> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels: Vec<_> = text.split('.').collect();
    let is_number = labels.last().is_none_or(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    if text.len() > 253 || is_number || !labels.iter().all(|label| is_label(label)) {
        return problem("not a name", "write a name of DNS, like \"site-b.example.net\"");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_dns() {
        for good in ["site-b.example.net", "k7._x.example", "localhost", "a.1b", "xn--bcher-kva.example."] {
            assert!(name(good).is_ok(), "{good}");
        }
        let long = format!("{}.example", "a".repeat(64));
        for wrong in [
            "",
            ".",
            "a..b",
            "-a.example",
            "a b.example",
            "2001:db8::1",
            "192.0.2.1",
            "bücher.example",
            &long,
        ] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(name("b.example.").ok().as_deref(), Some("b.example"));
    }
}
