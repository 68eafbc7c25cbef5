//! Why there are no metrics.

use std::io;
use std::path::PathBuf;

use ipnet::Ipv6Net;

use crate::place::Place;

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No socket was found.
    #[error("no daemon is running here: no socket is in {}", control::FOLDER)]
    Nobody,
    /// None of them answers: why the first does not.
    #[error("{0}")]
    Silent(String),
    /// Two gateways, or two script hosts.
    #[error("{} and {} would have the same metrics: give each a `sidestep metrics` of its own", .0.display(), .1.display())]
    Ambiguous(PathBuf, PathBuf),
    /// It is one that a tunnel hops in.
    #[error(
        "{place} is in {prefix}, which a tunnel hops in: nothing but its peer is to find anything there; listen at [::1]:9469, or at another address of this machine"
    )]
    Hopping {
        /// Where it was to listen.
        place: Place,
        /// The hopping prefix.
        prefix: Ipv6Net,
    },
    /// It cannot be listened there.
    #[error("{place}: {source}")]
    Listen {
        /// Where.
        place: Place,
        /// Why not.
        source: io::Error,
    },
    /// This process cannot be confined.
    #[error(transparent)]
    Confine(#[from] linux::Error),
    /// There is no thread to be had.
    #[error(transparent)]
    Thread(#[from] io::Error),
}

impl Error {
    /// # Errors
    /// Where one of these prefixes, in which tunnels hop, contains the place.
    pub(crate) fn unless_outside(place: &Place, prefixes: &[Ipv6Net]) -> Result<(), Self> {
        match place.inside(prefixes) {
            Some(prefix) => Err(Error::Hopping { place: place.clone(), prefix }),
            None => Ok(()),
        }
    }
}
