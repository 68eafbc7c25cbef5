//! Cookies of IKE_SA_INIT (RFC 7296 §2.6): an initiator shows that it receives where it claims to be, and nothing is kept
//! until it has.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::numbers::IkeSpi;
use crate::random::{Random, bytes};

/// A secret is used for so long, and known for as long again. Initiators answer within seconds.
const ROTATE_AFTER: Duration = Duration::from_secs(60);

/// Makes and checks cookies.
#[derive(Default)]
pub(crate) struct Cookies {
    current: Option<(Instant, Zeroizing<[u8; 32]>)>,
    previous: Option<Zeroizing<[u8; 32]>>,
}

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookies")
    }
}

impl Cookies {
    /// The cookie for an initiator.
    pub(crate) fn make(
        &mut self,
        now: Instant,
        random: &mut dyn Random,
        remote: SocketAddr,
        spi: IkeSpi,
        nonce: &[u8],
    ) -> Vec<u8> {
        self.rotate(now);
        let (_, secret) = self.current.get_or_insert_with(|| (now, Zeroizing::new(bytes(random))));
        cookie(secret, remote, spi, nonce)
    }

    /// Whether this is the cookie for the initiator.
    pub(crate) fn is_valid(
        &mut self,
        now: Instant,
        offered: &[u8],
        remote: SocketAddr,
        spi: IkeSpi,
        nonce: &[u8],
    ) -> bool {
        self.rotate(now);
        let current = self.current.as_ref().map(|(_, secret)| secret);
        let mut secrets = current.into_iter().chain(&self.previous);
        secrets.any(|secret| cookie(secret, remote, spi, nonce).ct_eq(offered).into())
    }

    fn rotate(&mut self, now: Instant) {
        let Some((since, _)) = &self.current else { return };
        let age = now.saturating_duration_since(*since);
        if age >= ROTATE_AFTER {
            let old = self.current.take().map(|(_, secret)| secret);
            self.previous = old.filter(|_| age < 2 * ROTATE_AFTER);
        }
    }
}

fn cookie(secret: &[u8; 32], remote: SocketAddr, spi: IkeSpi, nonce: &[u8]) -> Vec<u8> {
    let address = match remote.ip() {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(v6) => v6.octets(),
    };
    let pieces = [&address[..], &remote.port().to_be_bytes(), &spi.0.to_be_bytes(), nonce];
    crate::crypto::prf::mac::<hmac::Hmac<Sha256>>(secret, &pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Repeatable;

    #[test]
    fn a_cookie_is_of_one_address_port_spi_and_nonce_and_outlives_one_rotation() {
        let (mut cookies, mut random) = (Cookies::default(), Repeatable::new(1));
        let (now, remote) = (Instant::now(), "192.0.2.1:500".parse().unwrap());
        let made = cookies.make(now, &mut random, remote, IkeSpi(1), &[1; 16]);
        assert!(cookies.is_valid(now, &made, remote, IkeSpi(1), &[1; 16]));
        assert!(!cookies.is_valid(now, &made, "192.0.2.1:501".parse().unwrap(), IkeSpi(1), &[1; 16]));
        assert!(!cookies.is_valid(now, &made, "192.0.2.2:500".parse().unwrap(), IkeSpi(1), &[1; 16]));
        assert!(!cookies.is_valid(now, &made, remote, IkeSpi(2), &[1; 16]));
        assert!(!cookies.is_valid(now, &made, remote, IkeSpi(1), &[2; 16]));

        let later = now + ROTATE_AFTER;
        assert_ne!(cookies.make(later, &mut random, remote, IkeSpi(1), &[1; 16]), made);
        assert!(cookies.is_valid(later, &made, remote, IkeSpi(1), &[1; 16]));
        let later = later + ROTATE_AFTER;
        cookies.make(later, &mut random, remote, IkeSpi(1), &[1; 16]);
        assert!(!cookies.is_valid(later, &made, remote, IkeSpi(1), &[1; 16]));
    }
}
