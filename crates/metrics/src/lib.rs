//! What the daemons of this machine say about themselves, as metrics for Prometheus and others.
//!
//! It is a process of its own, so that the daemons stay small: it asks their sockets, each time that somebody asks it, as
//! `sidestep show` does, and holds nothing that it could lose. It needs no privilege but to be in the group that may look.
//!
//! - [`catalogue`](mod@catalogue) declares every metric once: what it is, its unit, its labels. `docs/metrics.md` is made from it.
//! - `custom` has the metrics that scripts declare: their names begin with `sidestep_custom_`.
//! - `sources` finds and asks the daemons, `fill` makes samples of their answers, `page` writes them.
//! - `place` says where may be listened, `server` answers HTTP.
//!
//! No label has an address, a port or the name of a flow: how many series there are follows from the configuration. Nobody
//! is answered at an address that a tunnel hops in, where only its peer is to find anything.

pub mod catalogue;
mod custom;
mod error;
mod fill;
mod page;
mod place;
mod server;
mod sources;

pub use error::Error;
pub use page::Format;
pub use place::Place;
pub use sources::Sources;

/// What the daemons say at this moment.
///
/// # Errors
/// Where no daemon is found, or none of them answers.
pub fn once(sources: &Sources, format: Format) -> Result<String, Error> {
    let asked = sources.ask();
    asked.refuse_silence()?;
    Ok(format.of(asked.page().text()))
}

/// Answers whoever asks at this place, until the process is ended. Gives up all capabilities and most files first.
///
/// # Errors
/// Where that place cannot be used, or is one that a tunnel hops in, also if that only shows later.
pub fn serve(place: &Place, sources: Sources) -> Result<std::convert::Infallible, Error> {
    Error::unless_outside(place, sources.ask().tunnels())?;
    let listener = place.listen().map_err(|source| Error::Listen { place: place.clone(), source })?;
    for missing in linux::confine::confine([])? {
        tracing::info!("this kernel has no {missing}: confined without it");
    }
    linux::process::keep_capabilities(&[])?;
    tracing::info!("metrics are at {place}");
    server::run(&listener, place, sources)
}
