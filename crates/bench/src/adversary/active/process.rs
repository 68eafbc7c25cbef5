//! The attacker as a process between two interfaces.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use lab::{Error, relay};

use super::attacker::{Attacker, Plan};
use super::kind::Kind;

/// Where it is, and what it is to do.
#[derive(Clone, Debug, Args)]
pub struct ManInTheMiddle {
    /// Interface towards site A
    left: String,
    /// Interface towards site B
    right: String,
    /// Beginnings of the names of the kinds of tries [default: all]
    #[arg(long)]
    kinds: Vec<String>,
    /// Tries of each kind
    #[arg(long)]
    tries: u32,
    /// Moments without a try
    #[arg(long)]
    baseline: u32,
    /// Seconds to look on first
    #[arg(long)]
    settle: u64,
    /// Divides windows and pauses
    #[arg(long)]
    scale: u32,
    /// What is drawn is drawn from this
    #[arg(long)]
    seed: u64,
}

/// The attacker's process: carries the frames of the middle link until `stop` is set, and prints what it saw, as a line
/// of JSON, when all is tried.
///
/// # Errors
/// When an interface is not there.
pub(crate) fn man_in_the_middle(command: &ManInTheMiddle, stop: &Arc<AtomicBool>) -> Result<(), Error> {
    let plan = Plan {
        kinds: Kind::chosen(&command.kinds),
        tries: command.tries,
        baseline: command.baseline,
        settle: Duration::from_secs(command.settle),
        scale: command.scale.max(1),
        seed: command.seed,
    };
    let mut reporting = Reporting { attacker: Attacker::new(plan), reported: false };
    relay::carry(&command.left, &command.right, &mut reporting, stop)
}

/// An attacker that reports once when it is done, and then only carries frames.
struct Reporting {
    attacker: Attacker,
    reported: bool,
}

impl relay::Middle for Reporting {
    fn push(&mut self, now: Duration, from: usize, frame: &[u8]) {
        self.attacker.push(now, from, frame);
    }

    fn pop(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        let leaving = self.attacker.pop(now);
        if !self.reported
            && let Some(outcomes) = self.attacker.outcomes()
        {
            println!("{}", serde_json::json!(outcomes));
            self.reported = true;
        }
        leaving
    }

    fn next_departure(&self) -> Option<Duration> {
        self.attacker.next_departure()
    }
}
