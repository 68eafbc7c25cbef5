//! What the gateway paper says, in our words, beside what was measured here.
//!
//! W.P. Lai, *An IPv6 SOHO/SME gateway* (SnapGear Linux 2.4.31 on an IXP-425 network processor), 2006. Its charts are not in
//! the text that we have, so that only what it says of them can be compared.

use super::results::{Cell, Results, families, rules_cell, tunnel_cell};
use super::rules::RuleSet;
use super::subject::{List, Part, Router, Subject, Tunnel};
use super::test::{Family, Test, WINDOWS};
use crate::comparison::tables::number;

/// The gateway as a router.
pub(super) fn router(results: Results) -> Vec<[String; 2]> {
    let [window, _] = families(Part::T1, Subject::Router(Router::OFFLOADS), Test::Tcp);
    let plateau = results.median(&window).and_then(|most| {
        let at = |bytes: &&u32| {
            let cell = Cell { test: Test::Window(**bytes), ..window };
            results.median(&cell).is_some_and(|value| value >= 0.8 * most)
        };
        let first = WINDOWS.iter().find(at)?;
        Some(format!("four fifths of it with {} kB of buffer", first >> 10))
    });
    let least = families(Part::T1, Subject::Router(Router::OFFLOADS), Test::Window(WINDOWS[0]))
        .map(|cell| results.median(&cell));
    let window = match (least, plateau) {
        ([Some(v6), Some(v4)], Some(plateau)) => Some(format!(
            "with 8 kB of buffer {} Mbit/s over IPv6, {} over IPv4; {plateau}",
            number(v6),
            number(v4)
        )),
        _ => None,
    };
    let [v6, v4] = families(Part::T1, Subject::Router(Router::SINGLE), Test::Echo(1_518));
    let latency = results.median(&v6).zip(results.median(&v4)).map(|(v6, v4)| {
        format!("there and back {} µs over IPv6, {} µs over IPv4, frames of 1518", number(v6), number(v4))
    });
    said([
        (
            "Throughput rises with TCP's window up to a plateau; a window beyond its threshold is taken for all else \
          (section 4.1.1, figure 6).",
            window,
        ),
        ("One way takes less than 1.2 ms (conclusion).", latency),
    ])
}

/// The gateway as a firewall.
pub(super) fn firewall(results: Results) -> Vec<[String; 2]> {
    let times = |list, count, family, test| {
        let ratio =
            results.ratio(&rules_cell(list, count, family, test), &rules_cell(list, 0, family, test))?;
        Some(ratio.median)
    };
    let of_lists = |count, family, test| -> Option<String> {
        let [list, ours] = [List::Iptables, List::Sidestep].map(|list| times(list, count, family, test));
        Some(format!("ip6tables {:.2}× of none, Sidestep {:.2}×", list?, ours?))
    };
    let throughput = of_lists(1_000, Family::Ipv6, Test::Packets(1_024))
        .zip(of_lists(1_000, Family::Ipv6, Test::Packets(86)))
        .map(|(large, small)| format!("1,000 rules, frames of 1024: {large}; of 86: {small}"));
    let latency = of_lists(1_000, Family::Ipv6, Test::Connect)
        .zip(of_lists(10_000, Family::Ipv6, Test::Connect))
        .map(|(some, many)| {
            format!("a first packet's round trip with 1,000 rules: {some}; with 10,000: {many}")
        });
    let both = |family| of_lists(1_000, family, Test::Packets(1_024));
    let vulnerable = both(Family::Ipv6)
        .zip(both(Family::Ipv4))
        .map(|(v6, v4)| format!("1,000 rules, frames of 1024, IPv6: {v6}; IPv4: {v4}"));
    let parity = |list, count| {
        let [v6, v4] = families(Part::T2, Subject::Rules(list, RuleSet::from(count)), Test::Echo(128));
        results.ratio(&v6, &v4).map(|ratio| ratio.median)
    };
    let apart = |count| Some((parity(List::Iptables, count)?, parity(List::Sidestep, count)?));
    let apart = apart(100).zip(apart(1_000)).map(|(hundred, thousand)| {
        format!(
            "echoes over IPv6 as a multiple of IPv4: with 100 rules {:.2}× (ip6tables), {:.2}× (Sidestep); with 1,000 \
             {:.2}× and {:.2}×",
            hundred.0, hundred.1, thousand.0, thousand.1
        )
    });
    said([
        (
            "Throughput falls with the number of rules, faster for frames of 512 bytes and more (section 4.2.1, figures 9 \
          and 10).",
            throughput,
        ),
        (
            "For frames of 1024 and 1400 bytes IPv6 suffers more from rules than IPv4 (section 4.2.1).",
            vulnerable,
        ),
        (
            "Latency grows with the number of rules, about linearly, up to 1,000 (section 4.2.2, figure 11).",
            latency,
        ),
        (
            "IPv6 and IPv4 take equally long up to 80 rules, and differ from 100 on (section 4.2.2, figure 12).",
            apart,
        ),
    ])
}

/// The gateway as a tunnel's end.
pub(super) fn tunnel(results: Results) -> Vec<[String; 2]> {
    let part = |frame| {
        let [ours, native] =
            [Tunnel::Sidestep, Tunnel::Native].map(|tunnel| tunnel_cell(tunnel, Test::Packets(frame)));
        results.ratio(&ours, &native).map(|ratio| ratio.median)
    };
    let throughput = part(1_024)
        .zip(part(128))
        .map(|(large, small)| format!("{large:.2}× of native for frames of 1024, {small:.2}× for 128"));
    let [ours, native] =
        [Tunnel::Sidestep, Tunnel::Native].map(|tunnel| tunnel_cell(tunnel, Test::Echo(1_024)));
    let latency = results
        .difference(&ours, &native)
        .map(|more| format!("{:+.1} µs there and back, two tunnel ends, frames of 1024", more.median));
    said([
        (
            "The tunnel costs little throughput for frames of 1024 and 1400 bytes, much more for 512 and less \
          (conclusion).",
            throughput,
        ),
        ("The tunnel adds less than about 1 ms of latency (conclusion, figures 8 and 14).", latency),
    ])
}

/// Those that have something beside them.
fn said<const N: usize>(statements: [(&str, Option<String>); N]) -> Vec<[String; 2]> {
    let both = |(theirs, ours): (&str, Option<String>)| Some([theirs.to_owned(), ours?]);
    statements.into_iter().filter_map(both).collect()
}
