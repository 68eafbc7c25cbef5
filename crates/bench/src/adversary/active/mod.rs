//! The active adversary: on the path between two gateways, he injects, drops, delays and changes, and asks whether
//! what both ends send afterwards differs from what they send when he does nothing.
//!
//! | module | what it is |
//! |---|---|
//! | `kind` | what is tried |
//! | `attacker` | the one on the path: a state machine over frames |
//! | `packet`, `tamper`, `probe` | datagrams as they come, changed, and made |
//! | `process` | the attacker as a process between two interfaces |
//! | `draw` | what is drawn |
//! | `window` | what both ends send after a moment, as numbers |
//! | `scene`, `traffic` | pairs in labs, each with its attacker, and traffic that does not react |
//! | `judge` | whether two samples of such moments differ |
//! | `options`, `command` | `sidestep-lab adversary attack` |
//!
//! Tries of all kinds and moments without one come in drawn order, so that whatever else changes with time is the same
//! for all. A reaction later than the next moment makes tries and baseline alike, and is not found.

mod attacker;
pub(crate) mod command;
mod draw;
mod judge;
mod kind;
mod options;
mod packet;
mod probe;
pub(crate) mod process;
mod scene;
mod tamper;
pub(crate) mod traffic;
mod window;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use lab::Error;
use serde::Serialize;

use attacker::Outcome;
use kind::Kind;
pub(crate) use options::ActiveOptions;

/// Moments without a try, at least.
const BASELINE: u32 = 100;

/// A kind reacts if chance alone would say so of any of all kinds this rarely.
const SIGNIFICANT: f64 = 0.05;

/// What came of one kind of try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Judged {
    /// Its name.
    pub(crate) kind: String,
    /// How many, and moments without one.
    pub(crate) tries: usize,
    pub(crate) baseline: usize,
    /// The number that differs most, the AUC of that number (0.5 is chance) and its 95 % confidence interval.
    pub(crate) feature: &'static str,
    pub(crate) auc: f64,
    pub(crate) interval: [f64; 2],
    /// How often chance alone makes any number differ as much (permutation test).
    pub(crate) p: f64,
    /// How often a packet of 1280 bytes or more came within 200 ms: after tries, and after none.
    pub(crate) large_at_once: [usize; 2],
    /// Whether it can be told from none: `p` after Bonferroni's correction for all kinds is below 0.05.
    pub(crate) reaction: bool,
}

/// Attacks pairs in labs, and judges.
///
/// # Errors
/// When no kind is named so, or a lab cannot be built.
pub(crate) fn run(options: &ActiveOptions, program: &Path, stop: &AtomicBool) -> Result<Vec<Judged>, Error> {
    let kinds = Kind::chosen(&options.kinds);
    if kinds.is_empty() {
        let known: Vec<_> = Kind::all().iter().map(ToString::to_string).collect();
        let (asked, known) = (options.kinds.join(", "), known.join(", "));
        return Err(Error::Usage(format!("no kind of try begins with {asked}; there are {known}")));
    }
    let outcomes = scene::run(options, &kinds, &shares(options), program, stop)?.concat();
    Ok(judged(&kinds, &outcomes, options.seed))
}

/// Divides tries and baseline among the pairs; the first have what is left over.
fn shares(options: &ActiveOptions) -> Vec<scene::Share> {
    let part = |all: u32, pair| all / options.pairs + u32::from(pair < all % options.pairs);
    let baseline = if options.scale > 1 { options.tries } else { options.tries.max(BASELINE) };
    let share =
        |pair| scene::Share { pair, tries: part(options.tries, pair), baseline: part(baseline, pair) };
    (0..options.pairs).map(share).collect()
}

fn judged(kinds: &[Kind], outcomes: &[Outcome], seed: u64) -> Vec<Judged> {
    let of = |kind: Kind| {
        let name = kind.to_string();
        outcomes.iter().filter(|outcome| outcome.kind == name).collect::<Vec<_>>()
    };
    let numbers =
        |sample: &[&Outcome]| sample.iter().map(|outcome| outcome.features.clone()).collect::<Vec<_>>();
    let large = |sample: &[&Outcome]| sample.iter().filter(|outcome| outcome.large_at_once).count();
    let nothing = of(Kind::Nothing);
    let baseline = numbers(&nothing);
    let baseline: Vec<&[f64]> = baseline.iter().map(Vec::as_slice).collect();
    let mut all = Vec::new();
    for kind in kinds {
        let tried = of(*kind);
        let tries = numbers(&tried);
        let tries: Vec<&[f64]> = tries.iter().map(Vec::as_slice).collect();
        let Some(verdict) = judge::judge(&tries, &baseline, seed) else { continue };
        all.push(Judged {
            kind: kind.to_string(),
            tries: tries.len(),
            baseline: baseline.len(),
            feature: window::FEATURES[verdict.feature],
            auc: verdict.auc,
            interval: verdict.interval,
            p: verdict.p,
            large_at_once: [large(&tried), large(&nothing)],
            reaction: verdict.p * (kinds.len() as f64) < SIGNIFICANT,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: u32, tries: u32) -> ActiveOptions {
        let (rotation, padding) = ("10s".into(), "none".into());
        ActiveOptions { pairs, tries, kinds: Vec::new(), rotation, lanes: 3, padding, seed: 1, scale: 1 }
    }

    #[test]
    fn all_tries_are_shared_out() {
        for (pairs, tries) in [(1, 1), (4, 10), (6, 1_000), (8, 3)] {
            let shares = shares(&options(pairs, tries));
            assert_eq!(shares.iter().map(|share| share.tries).sum::<u32>(), tries);
            assert_eq!(shares.iter().map(|share| share.baseline).sum::<u32>(), tries.max(BASELINE));
        }
    }

    #[test]
    fn a_kind_that_shows_is_named_and_one_that_does_not_is_not() {
        let outcome = |kind: Kind, number: usize, shows: bool| {
            let mut features: Vec<f64> =
                (0..window::FEATURES.len()).map(|feature| (number * (feature + 3) % 7) as f64).collect();
            if shows {
                features[18] = -1.0;
            }
            Outcome { kind: kind.to_string(), features, large_at_once: shows }
        };
        let kinds = Kind::chosen(&["error.2.old".into(), "drop".into()]);
        let outcomes: Vec<_> = (0..60)
            .flat_map(|number| {
                [
                    outcome(Kind::Nothing, number, false),
                    outcome(kinds[0], number, false),
                    outcome(kinds[1], number, true),
                ]
            })
            .collect();
        let judged = judged(&kinds, &outcomes, 1);
        assert_eq!([judged[0].reaction, judged[1].reaction], [false, true]);
        assert_eq!(judged[1].feature, "time to the first of 1280 bytes or more");
        assert_eq!((judged[1].large_at_once, judged[1].tries), ([60, 0], 60));
    }
}
