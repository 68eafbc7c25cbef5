//! What is measured: the parts of the plan, what each compares, and the tests that it makes of them.

use super::rules::{COUNTS, MIXED_COUNTS, Mix, RuleSet};
use super::test::{FRAMES, Family, Test, WINDOWS};

/// Who is a router without Sidestep.
pub(super) const BY_HAND: &str = "by-hand";

/// A part of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Native IPv6 router.
    T1,
    /// Native IPv6 firewall.
    T2,
    /// IPv6-in-IPv4 tunnel.
    T3,
    /// NAT64 and CLAT, which are not in the paper.
    Nat64,
}

impl Part {
    /// The paper's.
    pub(super) const PAPER: [Self; 3] = [Self::T1, Self::T2, Self::T3];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::T1 => "t1",
            Self::T2 => "t2",
            Self::T3 => "t3",
            Self::Nat64 => "nat64",
        }
    }

    /// What it compares, in the order of tables.
    pub(super) fn subjects(self, quick: bool) -> Vec<Subject> {
        match self {
            Self::T1 => [Router::OFFLOADS, Router::SINGLE]
                .into_iter()
                .flat_map(|router| [router, router.by_hand()].map(Subject::Router))
                .collect(),
            Self::T2 => {
                let counts: &[u32] = if quick { &[0, 1_000] } else { &COUNTS };
                let of = |rules: RuleSet| List::ALL.map(|list| Subject::Rules(list, rules));
                let mut subjects: Vec<Subject> =
                    counts.iter().copied().map(RuleSet::from).flat_map(of).collect();
                let mixed: &[u32] = if quick { &[1_000] } else { &MIXED_COUNTS };
                for count in mixed.iter().copied() {
                    subjects.extend(of(RuleSet { mix: Mix::Mixed, count }));
                    // Lists are walked to their end in any case.
                    subjects.push(Subject::Rules(List::Sidestep, RuleSet { mix: Mix::Beside, count }));
                }
                subjects
            }
            Self::T3 => Tunnel::ALL.map(Subject::Tunnel).into(),
            Self::Nat64 => [true, false]
                .into_iter()
                .flat_map(|offloads| Way::ALL.map(|way| Subject::Translation(Translation { way, offloads })))
                .collect(),
        }
    }

    /// The tests that it makes of one.
    pub(super) fn tests(self, subject: Subject, quick: bool) -> Vec<Test> {
        let frames = |frames: &[u32], test: fn(u32) -> Test| frames.iter().copied().map(test).collect();
        let few = [FRAMES[0], 1_024];
        let all: &[u32] = if quick { &few } else { &FRAMES };
        match (self, subject) {
            (Self::T1, Subject::Router(Router { offloads: true, by_hand })) => {
                let windows = if quick || by_hand { &[] } else { &WINDOWS[..] };
                let windows = windows.iter().copied().map(Test::Window);
                std::iter::once(Test::Tcp).chain(windows).collect()
            }
            (Self::T2, _) => {
                let mut tests = vec![Test::Echo(128), Test::Connect];
                tests.extend(few.map(Test::Packets));
                if !quick {
                    tests.push(Test::Tcp);
                }
                tests
            }
            (Self::Nat64, Subject::Translation(Translation { offloads: true, .. })) => vec![Test::Tcp],
            (Self::Nat64, _) => {
                let mut tests = vec![Test::Segments(1_024)];
                tests.extend(few.map(Test::Packets));
                tests.extend([Test::Echo(1_024), Test::Connect]);
                tests
            }
            (Self::T1 | Self::T3, _) => {
                // A tunnel takes 20 bytes of the largest frame.
                let largest = if self == Self::T3 { 1_498 } else { 1_518 };
                let all: Vec<u32> = all.iter().map(|frame| (*frame).min(largest)).collect();
                let mut tests: Vec<Test> = frames(&all, Test::Packets);
                tests.extend::<Vec<Test>>(frames(&all, Test::Echo));
                if self == Self::T1 {
                    tests.extend(all.iter().copied().filter(|frame| *frame >= 256).map(Test::Segments));
                } else {
                    tests.extend([Test::Tcp, Test::Segments(1_024)]);
                }
                if subject == Subject::Router(Router::SINGLE.by_hand()) {
                    return tests;
                }
                let searched: &[u32] = if quick { &all[1..] } else { &all };
                tests.extend::<Vec<Test>>(frames(searched, Test::WithoutLoss));
                tests
            }
        }
    }
}

/// One of those that a part compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Router(Router),
    /// So many rules.
    Rules(List, RuleSet),
    /// A way between two gateways.
    Tunnel(Tunnel),
    /// What becomes of addresses between a host and a server.
    Translation(Translation),
}

/// A router, and how it gets packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Router {
    /// As interfaces are; otherwise each packet by itself, as on a cable.
    pub(super) offloads: bool,
    /// Without Sidestep.
    pub(super) by_hand: bool,
}

impl Router {
    pub(super) const OFFLOADS: Self = Self { offloads: true, by_hand: false };
    pub(super) const SINGLE: Self = Self { offloads: false, by_hand: false };

    /// The same without Sidestep.
    pub(super) const fn by_hand(self) -> Self {
        Self { by_hand: true, ..self }
    }
}

/// Who keeps the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Iptables,
    Nftables,
    Sidestep,
}

impl List {
    pub(super) const ALL: [Self; 3] = [Self::Iptables, Self::Nftables, Self::Sidestep];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Iptables => "ip6tables",
            Self::Nftables => "nftables",
            Self::Sidestep => "sidestep",
        }
    }
}

/// What carries IPv6 between the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tunnel {
    /// The link itself.
    Native,
    /// `[uplink.tunnel]`.
    Sidestep,
    /// A process.
    UserSpace,
    /// The kernel's own.
    Sit,
    /// `[uplink.tunnel]`, with packets of known connections past the rest.
    Flowtable,
}

impl Tunnel {
    pub(super) const ALL: [Self; 5] =
        [Self::Native, Self::Sidestep, Self::UserSpace, Self::Sit, Self::Flowtable];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Sidestep => "sidestep",
            Self::UserSpace => "user-space",
            Self::Sit => "sit",
            Self::Flowtable => "sidestep-flowtable",
        }
    }
}

/// What translators are compared with, and how they get packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Translation {
    pub(super) way: Way,
    /// As [`Router::offloads`].
    pub(super) offloads: bool,
}

/// What our gateway makes of addresses, with its firewall as it is by default but for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// IPv6 is forwarded, with no firewall and no connection tracking.
    Stateless,
    /// IPv6 is forwarded.
    Forwarded,
    /// The same with `flow_offload`.
    ForwardedFlowtable,
    /// IPv4 leaves with the uplink's address.
    Masqueraded,
    /// IPv6 reaches a server of IPv4: `[nat64]`.
    Nat64,
    /// The same with `flow_offload`.
    Nat64Flowtable,
    /// IPv4 leaves as IPv6, for a translator elsewhere: `kind = "464xlat"`.
    Clat,
    /// The same with `flow_offload`.
    ClatFlowtable,
}

impl Way {
    pub(super) const ALL: [Self; 8] = [
        Self::Stateless,
        Self::Forwarded,
        Self::ForwardedFlowtable,
        Self::Masqueraded,
        Self::Nat64,
        Self::Nat64Flowtable,
        Self::Clat,
        Self::ClatFlowtable,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
            Self::Forwarded => "forwarded",
            Self::ForwardedFlowtable => "forwarded-flowtable",
            Self::Masqueraded => "masqueraded",
            Self::Nat64 => "nat64",
            Self::Nat64Flowtable => "nat64-flowtable",
            Self::Clat => "clat",
            Self::ClatFlowtable => "clat-flowtable",
        }
    }

    /// The IP version of the host.
    pub(super) const fn family(self) -> Family {
        match self {
            Self::Masqueraded | Self::Clat | Self::ClatFlowtable => Family::Ipv4,
            Self::Stateless
            | Self::Forwarded
            | Self::ForwardedFlowtable
            | Self::Nat64
            | Self::Nat64Flowtable => Family::Ipv6,
        }
    }
}

impl Subject {
    /// Its name, unique within its part.
    pub(super) fn name(self) -> String {
        match self {
            Self::Router(Router { offloads, by_hand }) => {
                let packets = if offloads { "offloads" } else { "single" };
                if by_hand { format!("{BY_HAND}-{packets}") } else { packets.to_owned() }
            }
            Self::Rules(list, rules) => format!("{}-{}", list.name(), rules.name()),
            Self::Tunnel(tunnel) => tunnel.name().to_owned(),
            Self::Translation(Translation { way, offloads }) => {
                format!("{}-{}", way.name(), if offloads { "offloads" } else { "single" })
            }
        }
    }

    /// What `--against` calls it.
    pub(super) const fn contender(self) -> &'static str {
        match self {
            Self::Router(Router { by_hand: true, .. }) => BY_HAND,
            Self::Router(_) => List::Sidestep.name(),
            Self::Rules(list, _) => list.name(),
            Self::Tunnel(tunnel) => tunnel.name(),
            Self::Translation(Translation { way, .. }) => way.name(),
        }
    }

    /// Whether interfaces are as they come; otherwise each packet is by itself.
    pub(super) const fn has_offloads(self) -> bool {
        match self {
            Self::Router(Router { offloads, .. }) | Self::Translation(Translation { offloads, .. }) => {
                offloads
            }
            Self::Rules(..) => false,
            Self::Tunnel(_) => true,
        }
    }

    /// The IP versions of its tests.
    pub(super) const fn families(self) -> &'static [Family] {
        match self {
            Self::Router(_) | Self::Rules(..) => &[Family::Ipv6, Family::Ipv4],
            Self::Translation(Translation { way, .. }) => match way.family() {
                Family::Ipv4 => &[Family::Ipv4],
                Family::Ipv6 => &[Family::Ipv6],
            },
            // A tunnel carries IPv6 only.
            Self::Tunnel(_) => &[Family::Ipv6],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_so_are_tests() {
        for part in Part::PAPER.into_iter().chain([Part::Nat64]) {
            for quick in [false, true] {
                let subjects = part.subjects(quick);
                let names: BTreeSet<String> = subjects.iter().map(|subject| subject.name()).collect();
                assert_eq!(names.len(), subjects.len());
                for subject in subjects {
                    let tests = part.tests(subject, quick);
                    let names: BTreeSet<String> = tests.iter().map(|test| test.name()).collect();
                    assert!(names.len() == tests.len() && !tests.is_empty(), "{subject:?}");
                }
            }
        }
    }

    #[test]
    fn what_a_quick_run_measures_a_usual_one_does_too() {
        for part in Part::PAPER.into_iter().chain([Part::Nat64]) {
            for subject in part.subjects(true) {
                assert!(part.subjects(false).contains(&subject));
                let usual = part.tests(subject, false);
                assert!(part.tests(subject, true).iter().all(|test| usual.contains(test)), "{subject:?}");
            }
        }
    }
}
