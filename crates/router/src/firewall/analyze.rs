//! What is strange about a policy: rules that can never decide, that contradict each other, that no packet fits.

use super::lookup::{Entry, Index};
use super::policy::{Policy, Rule, ZoneSet};
use super::region::{Region, regions};

/// Something that works, but deserves a second look. Rules are given by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The rule is the same as an earlier one, which decides all its packets.
    Identical {
        /// The one that can go.
        rule: usize,
        /// The one that decides.
        earlier: usize,
    },
    /// Everything that the rule is about an earlier one decides, in the same way.
    Shadowed {
        /// The one that can go.
        rule: usize,
        /// One that decides in its place.
        earlier: usize,
    },
    /// The same, and the earlier one decides otherwise.
    Contradicted {
        /// The one that has no effect.
        rule: usize,
        /// One that decides in its place.
        earlier: usize,
    },
    /// Its addresses and services are of different families: no packet fits.
    Nothing(usize),
    /// It is about what the gateway sends to itself, which is always let through.
    OwnTraffic(usize),
    /// The zone of this index has no interface.
    NoInterface(usize),
}

/// Looks a policy through. The time taken grows with the number of rules that overlap.
#[must_use]
pub fn analyze(policy: &Policy) -> Vec<Finding> {
    let rules = policy.rules();
    let mut findings: Vec<Finding> = policy
        .zones()
        .iter()
        .enumerate()
        .filter(|(_, zone)| zone.interfaces.is_empty())
        .map(|(index, _)| Finding::NoInterface(index))
        .collect();
    let mut index = Index::default();
    for (number, rule) in rules.iter().enumerate() {
        let regions = regions(rule);
        if regions.is_empty() {
            findings.push(Finding::Nothing(number));
            continue;
        }
        let gateway = ZoneSet::Of(vec![super::policy::ZoneRef::Gateway]);
        if gateway.contains_all(&rule.from) && gateway.contains_all(&rule.to) {
            findings.push(Finding::OwnTraffic(number));
            continue;
        }
        findings.extend(shadow(rules, number, &regions, &index));
        // Only what decides all its packets can leave later ones nothing.
        if rule.is_final() {
            for region in regions {
                index.push(Entry { region, rule: number });
            }
        }
    }
    findings
}

/// Whether earlier rules leave the rule nothing: each of its regions lies in one of theirs, for all its zones.
fn shadow(rules: &[Rule], number: usize, regions: &[Region], index: &Index) -> Option<Finding> {
    let rule = &rules[number];
    let mut decides: Vec<usize> = Vec::new();
    for region in regions {
        let mut first: Option<usize> = None;
        index.overlapping(region, |entry| {
            let earlier = &rules[entry.rule];
            let covers = entry.region.contains(region)
                && earlier.from.contains_all(&rule.from)
                && earlier.to.contains_all(&rule.to);
            if covers {
                first = Some(first.map_or(entry.rule, |other| other.min(entry.rule)));
            }
            true
        });
        decides.push(first?);
    }
    let otherwise = decides.iter().find(|earlier| rules[**earlier].action != rule.action);
    if let Some(earlier) = otherwise {
        return Some(Finding::Contradicted { rule: number, earlier: *earlier });
    }
    let earlier = *decides.first()?;
    let same = Rule { comment: rules[earlier].comment.clone(), ..rule.clone() } == rules[earlier];
    Some(if same {
        Finding::Identical { rule: number, earlier }
    } else {
        Finding::Shadowed { rule: number, earlier }
    })
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Settings, Trust, Verdict, Zone, ZoneRef};
    use super::*;

    fn rule(service: &str, source: &str, action: Verdict) -> Rule {
        Rule {
            from: ZoneSet::Any,
            to: ZoneSet::Any,
            source: source.parse().ok().map(|address| vec![address]),
            destination: None,
            service: service.parse().ok().map(|service| vec![service]),
            rate: None,
            schedule: None,
            forwarded: false,
            log: false,
            comment: String::new(),
            action,
        }
    }

    fn findings(rules: Vec<Rule>) -> Vec<Finding> {
        let lan = Zone {
            name: "lan".to_owned(),
            trust: Trust::Inside,
            interfaces: vec!["eth1".to_owned()],
            networks: Vec::new(),
        };
        analyze(&Policy::new(vec![lan], rules, Settings::default()).unwrap())
    }

    #[test]
    fn rules_that_never_decide_are_found_with_those_that_do() {
        use Verdict::{Accept, Drop};
        let found = findings(vec![
            rule("tcp/0-1023", "2001:db8::/32", Drop),
            rule("tcp/22", "2001:db8::1", Accept),
            rule("tcp/23", "2001:db8::1", Drop),
            rule("tcp/0-1023", "2001:db8::/32", Drop),
            rule("tcp/22", "2001:db9::1", Accept),
            rule("icmpv6", "10.0.0.0/8", Drop),
        ]);
        assert_eq!(
            found,
            [
                Finding::Contradicted { rule: 1, earlier: 0 },
                Finding::Shadowed { rule: 2, earlier: 0 },
                Finding::Identical { rule: 3, earlier: 0 },
                Finding::Nothing(5),
            ]
        );
    }

    #[test]
    fn a_rule_for_some_zones_or_some_packets_shadows_none_for_more() {
        let mut of_lan = rule("tcp/22", "", Verdict::Drop);
        of_lan.from = ZoneSet::Of(vec![ZoneRef::Zone(0)]);
        let mut rated = rule("tcp/22", "", Verdict::Drop);
        rated.rate =
            Some(super::super::policy::Rate { packets: 1, per: super::super::policy::Per::Second, burst: 1 });
        assert_eq!(findings(vec![of_lan, rated, rule("tcp/22", "", Verdict::Accept)]), []);
    }
}
