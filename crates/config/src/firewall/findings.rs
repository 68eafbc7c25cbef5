//! What concerns several zones or rules, at its places in the file.

use std::ops::Range;

use router::firewall::policy::PolicyError;
use router::firewall::{self, Policy, Zone, ZoneRef, ZoneSet};
use toml::Spanned;

use crate::converter::Converter;
use crate::document::Document;
use crate::report::Finding;

/// Why zones do not fit together.
pub(super) fn of_zones(error: &PolicyError, document: &Document) -> Finding {
    let at = |zone: usize| span(document.zone.list(), zone);
    let title = error.to_string();
    match error {
        PolicyError::ZoneName(zone) | PolicyError::NoZone(zone) => Finding::error(at(*zone), title, "", ""),
        PolicyError::InterfaceName(zone, _) => {
            Finding::error(at(*zone), title, "in this zone", "name each interface, without \", \\ and *")
        }
        PolicyError::SameName(first, second) => {
            Finding::error(at(*second), title, "the second", "give each zone a name of its own")
                .related(at(*first), "the first")
        }
        PolicyError::SameInterface(first, second, _) => Finding::error(
            at(*second),
            title,
            "the second",
            "an interface belongs to one zone; another may have some of its addresses, with networks = [\"…\"]",
        )
        .related(at(*first), "the first"),
        PolicyError::SameNetwork(first, second, _) => {
            Finding::error(at(*second), title, "the second", "zones on one interface need different networks")
                .related(at(*first), "the first")
        }
    }
}

impl Converter<'_> {
    /// Reports rules without effect. `rules`: where they are.
    pub(super) fn findings(&mut self, document: &Document, policy: &Policy, rules: &[Range<usize>]) {
        let at = |rule: usize| rules.get(rule).cloned().unwrap_or_default();
        let of_file = policy.rules().len() - policy.settings().forwards.len();
        for finding in firewall::analyze(&forwarding_from_outside(policy)) {
            match finding {
                firewall::Finding::Contradicted { rule, earlier } if rule >= of_file => {
                    let title = "a rule refuses what is forwarded";
                    let help = "rules decide before forwards: narrow the rule, or remove one of the two";
                    let found = Finding::warning(at(rule), title, "this forward has no effect", help);
                    self.report(found.related(at(earlier), "decides before it"));
                    continue;
                }
                // What a rule lets in need not be let in once more; it is translated all the same.
                firewall::Finding::Shadowed { rule, .. } if rule >= of_file => continue,
                _ => {}
            }
            let (title, rule, earlier, help) = match finding {
                firewall::Finding::Identical { rule, earlier } => {
                    ("a rule is repeated", rule, Some(earlier), "remove one of them")
                }
                firewall::Finding::Shadowed { rule, earlier } => {
                    ("a rule never decides", rule, Some(earlier), "remove it: the earlier one does the same")
                }
                firewall::Finding::Contradicted { rule, earlier } => (
                    "a rule never decides, and the one that does has another action",
                    rule,
                    Some(earlier),
                    "the first rule that matches decides: move this one up, or remove it",
                ),
                firewall::Finding::Nothing(rule) => (
                    "no packet matches a rule",
                    rule,
                    None,
                    "its addresses and services are of different families, IPv4 and IPv6",
                ),
                firewall::Finding::OwnTraffic(rule) => (
                    "a rule is about packets from the gateway to itself",
                    rule,
                    None,
                    "they always pass; name a zone in `from` or `to`",
                ),
                firewall::Finding::NoInterface(zone) => {
                    self.report(Finding::warning(
                        span(document.zone.list(), zone),
                        "a zone has no interface",
                        "no packet belongs to it",
                        "add `interfaces = [\"eth1\"]`",
                    ));
                    continue;
                }
            };
            let found = Finding::warning(at(rule), title, "this rule", help);
            self.report(match earlier {
                Some(earlier) => found.related(at(earlier), "decides before it"),
                None => found,
            });
        }
    }
}

/// The same with forwards for what comes in by their uplinks alone: a rule that refuses that leaves them without effect,
/// although hosts inside may use them.
fn forwarding_from_outside(policy: &Policy) -> Policy {
    let mut rules = policy.rules().to_vec();
    let forwards = &policy.settings().forwards;
    let first = rules.len() - forwards.len();
    for (rule, forward) in rules[first..].iter_mut().zip(forwards) {
        let is_outside =
            |zone: &Zone| forward.uplinks.iter().any(|through| zone.interfaces.contains(&through.interface));
        let zones = policy.zones().iter().enumerate().filter(|(_, zone)| is_outside(zone));
        rule.from = ZoneSet::Of(zones.map(|(index, _)| ZoneRef::Zone(index)).collect());
    }
    let changed = Policy::new(policy.zones().to_vec(), rules, policy.settings().clone());
    changed.unwrap_or_else(|_| policy.clone())
}

/// Where a table is.
fn span<T>(tables: &[Spanned<T>], index: usize) -> Range<usize> {
    tables.get(index).map_or(0..0, Spanned::span)
}
