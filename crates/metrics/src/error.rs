//! Why there are no metrics.

use std::io;
use std::path::PathBuf;

use control::tunnel_status::Status;
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
    /// Where one of these tunnels hops at the place.
    pub(crate) fn unless_outside<'a>(
        place: &Place,
        tunnels: impl IntoIterator<Item = &'a Status>,
    ) -> Result<(), Self> {
        match place.address().and_then(|address| control::place::hopped_in(address, tunnels)) {
            Some((_, prefix)) => Err(Error::Hopping { place: place.clone(), prefix }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_where_a_tunnel_hops() {
        let tunnel = control::tunnel_status::example();
        let is_outside = |place: &str| Error::unless_outside(&place.parse().unwrap(), [&tunnel]).is_ok();
        for inside in ["[2001:db8:a1::5]:9469", "[2001:db8:b1:0:ffff::1]:1"] {
            assert!(!is_outside(inside), "{inside}");
        }
        for outside in ["[2001:db8:a::1]:9469", "[::1]:9469", "192.0.2.1:9469", "unix:/run/x.sock"] {
            assert!(is_outside(outside), "{outside}");
        }
    }
}
