//! How an IKE SA and its first child come about.
//!
//! | file | stories |
//! |---|---|
//! | `both_ends` | keys, identities, modes, selectors |
//! | `init` | cookies, groups, forged answers, strangers |
//! | `nat` | NAT and ports |
//! | `clients` | addresses for clients |

mod both_ends;
mod clients;
mod init;
mod nat;
#[path = "../world/mod.rs"]
mod world;

use std::time::Duration;

use ike::event::{EndReason, Event};
use world::{Side, World};

const SOON: Duration = Duration::from_secs(2);

fn failed(world: &World, side: Side, reason: EndReason) -> bool {
    world.count(side, |event| matches!(event, Event::InitiationFailed { reason: r, .. } if *r == reason)) == 1
}
