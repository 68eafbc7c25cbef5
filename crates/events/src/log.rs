//! Where records of the log go.

use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;

use control::event::Event;
use tracing::{Level, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::{hook, record, ring};

/// Begins to log, to standard error or the journal behind it. To be called once, before anything is confined.
pub fn start() {
    // Times are the journal's or the terminal's business; RUST_LOG asks for more or less.
    let filter = EnvFilter::builder().with_default_directive(Level::INFO.into()).from_env_lossy();
    let journal = is_journal().then(|| tracing_journald::layer().ok()).flatten();
    let journal = journal.map(|layer| {
        layer.with_field_prefix(Some("SIDESTEP".to_owned())).with_priority_mappings(PriorityMappings {
            info: Priority::Informational,
            debug: Priority::Debug,
            ..PriorityMappings::new()
        })
    });
    let text = journal.is_none().then(|| {
        fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .without_time()
            .fmt_fields(fmt::format::debug_fn(|writer, field, value| match field.name() {
                // What the fields say the message says, too.
                "message" => write!(writer, "{value:?}"),
                _ => Ok(()),
            }))
    });
    let _ = tracing_subscriber::registry().with(filter).with(journal).with(text).with(Keep).try_init();
}

/// Whether standard error is the journal's (systemd.exec(5), JOURNAL_STREAM).
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(error) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream == format!("{}:{}", error.dev(), error.ino())
}

thread_local! {
    /// The event that is being released, as it was when it was held.
    static RELEASED: RefCell<Option<Event>> = const { RefCell::new(None) };
}

/// Tells what is held, however much that is: for the end of a daemon.
pub fn tell_held() {
    ring::take_held().into_iter().for_each(|(event, left_out)| release(event, left_out));
}

/// Logs an event that was held, with all that it had, as if it happened now.
fn release(mut event: Event, left_out: u64) {
    if left_out > 0 {
        event.fields.insert("left_out".to_owned(), left_out.into());
        event.message += &format!(" (events left out before it: {left_out})");
    }
    RELEASED.set(Some(event.clone()));
    let Event { event, peer, reason, message, priority, .. } = event;
    // A record's level is written where it is made.
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(event, peer, reason, left_out, "{message}")
        };
    }
    match priority.as_str() {
        "error" => log!(error),
        "warning" => log!(warn),
        _ => log!(info),
    }
    RELEASED.set(None);
}

fn is_released() -> bool {
    RELEASED.with_borrow(Option::is_some)
}

/// The event that a record is, if it is one.
fn read(record: &tracing::Event<'_>) -> Option<Event> {
    RELEASED.with_borrow(Clone::clone).or_else(|| record::read(record))
}

/// Keeps what has a name, and holds what is too much.
struct Keep;

impl<S: Subscriber> Layer<S> for Keep {
    fn event_enabled(&self, record: &tracing::Event<'_>, _: Context<'_, S>) -> bool {
        is_released() || record::read(record).is_none_or(|event| ring::may_pass(&event, release))
    }

    fn on_event(&self, record: &tracing::Event<'_>, _: Context<'_, S>) {
        if let Some(event) = read(record) {
            hook::run(ring::keep(event));
        }
    }
}
