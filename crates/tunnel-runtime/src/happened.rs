//! What happened to peers, as lines of the log and events ([`events`]).

use std::time::Duration;

use mt6d::{Change, Ending, PeerEvent, Silence};
use tracing::{info, warn};

/// Tells of it.
pub(crate) fn tell(event: &PeerEvent) {
    let peer = event.peer.as_str();
    match event.change {
        Change::Trying => info!(event = "peer_trying", peer, "{peer}: trying to reach it"),
        Change::Established { anew } => {
            let reason = if anew { "anew" } else { "first" };
            let what =
                if anew { "a new session takes the place of the one before" } else { "session established" };
            info!(event = "session_up", peer, reason, "{peer}: {what}");
        }
        Change::Silent { silence, unheard } => {
            let unheard_s = unheard.as_secs_f64();
            let what = says(silence);
            warn!(event = "peer_silent", peer, reason = code(silence), unheard_s, "{peer}: silent: {what}");
        }
        Change::Heard { after } => {
            let silent_s = after.as_secs_f64();
            info!(
                event = "peer_heard",
                peer,
                silent_s,
                "{peer}: heard again, {} after it was called silent",
                shown(after)
            );
        }
        Change::Ended { ending, after } => {
            let (reason, what) = ended(ending);
            let lasted_s = after.as_secs_f64();
            let message = format!("{peer}: the session is over after {}: {what}", shown(after));
            match ending {
                Ending::Idle | Ending::Closed | Ending::Dropped => {
                    info!(event = "session_down", peer, reason, lasted_s, "{message}");
                }
                Ending::Lost | Ending::Expired => {
                    warn!(event = "session_down", peer, reason, lasted_s, "{message}");
                }
            }
        }
        Change::Moved { from, to } => {
            let (from, to) = (from.to_string(), to.to_string());
            info!(event = "peer_moved", peer, from, to, "{peer}: hops in {to} now, before in {from}");
        }
        Change::PathMtu { from, to } => {
            let narrower = if to < from { "narrower" } else { "wider" };
            info!(
                event = "path_mtu",
                peer,
                reason = narrower,
                from,
                to,
                "{peer}: the path MTU is {to} now, before {from}"
            );
        }
    }
}

/// One word for it.
pub(crate) fn code(silence: Silence) -> &'static str {
    match silence {
        Silence::NothingComes => "nothing_comes",
        Silence::NothingArrives => "nothing_arrives",
    }
}

/// One sentence for it.
pub(crate) fn says(silence: Silence) -> &'static str {
    match silence {
        Silence::NothingComes => "nothing comes from it, whatever we send",
        Silence::NothingArrives => {
            "what it sends arrives, and says that nothing of ours does: something between drops what goes to it, such as its firewall"
        }
    }
}

fn ended(ending: Ending) -> (&'static str, &'static str) {
    match ending {
        Ending::Idle => ("idle", "nothing was sent, and no end has a keepalive"),
        Ending::Closed => ("closed", "the peer has ended it"),
        Ending::Lost => ("lost", "the peer was silent, and does not answer tries"),
        Ending::Expired => ("expired", "its keys are too old, and could not be renewed"),
        Ending::Dropped => ("dropped", "this end gave it up, to begin anew or for good"),
    }
}

/// To the second, or better where it is short.
fn shown(time: Duration) -> humantime::FormattedDuration {
    let unit = if time >= Duration::from_secs(10) { 1_000 } else { 100 };
    humantime::format_duration(Duration::from_millis(time.as_millis() as u64 / unit * unit))
}
