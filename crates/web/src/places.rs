//! Places of connections: so many in all, and so many of one host, so that none of them has all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at once; others wait to be accepted.
const CONNECTIONS: usize = 128;
/// Connections of one host at once; others are closed. A browser has six, and one for the feed of each page.
const OF_ONE_HOST: usize = 32;

/// All places.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    hosts: Arc<Hosts>,
}

/// How many connections each host has, where it has any.
#[derive(Debug, Default)]
struct Hosts(Mutex<HashMap<IpAddr, usize>>);

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _free: OwnedSemaphorePermit,
    _share: Option<Share>,
}

#[derive(Debug)]
struct Share {
    hosts: Arc<Hosts>,
    host: IpAddr,
}

impl Default for Places {
    fn default() -> Places {
        Places { free: Arc::new(Semaphore::new(CONNECTIONS)), hosts: Arc::default() }
    }
}

impl Places {
    /// Waits for a place that is free.
    pub(crate) async fn free(&self) -> OwnedSemaphorePermit {
        match Arc::clone(&self.free).acquire_owned().await {
            Ok(free) => free,
            // It is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives it to a connection from an address; none if that host has too many.
    pub(crate) fn take(&self, free: OwnedSemaphorePermit, from: IpAddr) -> Option<Place> {
        // By `ssh -L`, or behind a proxy, everybody comes from there.
        let Some(host) = host(from) else { return Some(Place { _free: free, _share: None }) };
        let mut hosts = self.hosts.counts();
        let count = hosts.entry(host).or_default();
        if *count >= OF_ONE_HOST {
            return None;
        }
        *count += 1;
        Some(Place { _free: free, _share: Some(Share { hosts: Arc::clone(&self.hosts), host }) })
    }
}

/// Which addresses are one host: those of a /64 are one's to choose from. None at loopback.
fn host(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        address if address.is_loopback() => None,
        IpAddr::V6(address) => Some(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => Some(address),
    }
}

impl Hosts {
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut hosts = self.hosts.counts();
        match hosts.get_mut(&self.host) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(hosts.remove(&self.host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Places, from: &str) -> Option<Place> {
        let free = Arc::clone(&places.free).try_acquire_owned().unwrap();
        places.take(free, from.parse().unwrap())
    }

    #[test]
    fn a_host_has_its_share_and_others_have_the_rest() {
        let places = Places::default();
        let mut of_one: Vec<_> =
            (0..OF_ONE_HOST).map(|number| take(&places, &format!("2001:db8::{number:x}")).unwrap()).collect();
        assert!(take(&places, "2001:db8::ffff:1").is_none(), "the same /64");
        let other = take(&places, "2001:db8:0:1::1").unwrap();
        assert_eq!(places.free.available_permits(), CONNECTIONS - OF_ONE_HOST - 1);
        of_one.pop();
        of_one.push(take(&places, "2001:db8::1").unwrap());
        drop((of_one, other));
        assert_eq!(places.free.available_permits(), CONNECTIONS);
        assert!(places.hosts.counts().is_empty());
    }

    #[test]
    fn an_ipv4_address_is_the_same_in_either_form_and_loopback_is_everybody() {
        let places = Places::default();
        let _of_one: Vec<_> = (0..OF_ONE_HOST).map(|_| take(&places, "192.0.2.1").unwrap()).collect();
        assert!(take(&places, "::ffff:192.0.2.1").is_none());
        let local: Vec<_> = (0..CONNECTIONS - OF_ONE_HOST).map(|_| take(&places, "::1").unwrap()).collect();
        assert_eq!(local.len(), CONNECTIONS - OF_ONE_HOST);
    }
}
