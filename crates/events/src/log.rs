//! Where records of the log go.

use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;

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

/// Keeps what has a name, and lets through no more of a kind than may be.
struct Keep;

impl<S: Subscriber> Layer<S> for Keep {
    fn event_enabled(&self, record: &tracing::Event<'_>, _: Context<'_, S>) -> bool {
        record::read(record).is_none_or(|event| ring::may_pass(&event))
    }

    fn on_event(&self, record: &tracing::Event<'_>, _: Context<'_, S>) {
        if let Some(event) = record::read(record) {
            hook::run(ring::keep(event));
        }
    }
}
