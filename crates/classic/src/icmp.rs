//! ICMPv6 errors about outer packets, made into errors about inner ones (thesis sections 2.6.3 and 3.2.3,
//! docs/classic.md section 10).

use std::net::Ipv6Addr;

use wire::checksum::Sum;
use wire::{icmpv6, ipv6, protocol, udp};

use crate::cipher::{BLOCK, Cipher, CipherKeys};
use crate::packet::{SHORT_HEADER, inner_mtu};
use crate::rewrite;
use crate::routes::Path;

const HOP_LIMIT: u8 = 64;
const DESTINATION_OPTIONS: u8 = 60;

/// An error message: type, code, the 4 bytes that follow, and the packet that caused it, as far as it is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Error<'a> {
    message_type: u8,
    code: u8,
    body: u32,
    invoking: &'a [u8],
}

impl<'a> Error<'a> {
    /// Reads an outer packet as an error of the four types of RFC 4443 whose checksum is right.
    pub(crate) fn parse(outer: &ipv6::Packet<'a>) -> Option<Self> {
        let message = outer.payload();
        if outer.next_header() != protocol::ICMPV6 {
            return None;
        }
        let (&[message_type, code, _, _, a, b, c, d], invoking) =
            message.split_first_chunk::<{ icmpv6::HEADER_LEN }>()?;
        let pseudo =
            Sum::pseudo_ipv6(outer.source(), outer.destination(), message.len() as u32, protocol::ICMPV6);
        let known = (icmpv6::DESTINATION_UNREACHABLE..=icmpv6::PARAMETER_PROBLEM).contains(&message_type);
        if !known || !(pseudo + Sum::of(message)).is_valid() {
            return None;
        }
        Some(Error { message_type, code, body: u32::from_be_bytes([a, b, c, d]), invoking })
    }

    /// Source and destination of the packet that caused it.
    pub(crate) fn addresses(&self) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let header = self.invoking.first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let address = |at: usize| {
            let octets: [u8; 16] = std::array::from_fn(|i| header[at + i]);
            Ipv6Addr::from(octets)
        };
        (header[0] >> 4 == 6).then(|| (address(8), address(24)))
    }

    /// The largest outer packet that the path carries, if that is what it says.
    pub(crate) fn path_mtu(&self) -> Option<u16> {
        let mtu = u16::try_from(self.body).unwrap_or(u16::MAX);
        (self.message_type == icmpv6::PACKET_TOO_BIG).then_some(mtu.max(ipv6::MIN_MTU as u16))
    }

    /// Writes the error for the local host, about the packet that it sent to the remote one, over whatever is in
    /// `inner`. `None` if too little of it is there.
    pub(crate) fn translate(
        &self,
        path: &Path,
        ciphers: &CipherKeys,
        cipher: Option<Cipher>,
        (local, remote): (Ipv6Addr, Ipv6Addr),
        inner: &mut Vec<u8>,
    ) -> Option<()> {
        let payload = payload(self.invoking)?;
        inner.clear();
        inner.resize(ipv6::HEADER_LEN, 0);
        inner.extend([self.message_type, self.code, 0, 0]);
        inner.extend(match self.message_type {
            icmpv6::PACKET_TOO_BIG => {
                let outer_mtu = u16::try_from(self.body).unwrap_or(u16::MAX);
                u32::from(inner_mtu(cipher, outer_mtu)).max(ipv6::MIN_MTU as u32).to_be_bytes()
            }
            _ => [0; 4],
        });
        let quote = inner.len();
        match cipher {
            None => inner.extend(payload),
            Some(cipher) => {
                inner.extend(&payload[..payload.len() - payload.len() % BLOCK]);
                ciphers.decrypt(cipher, &path.iv, &mut inner[quote..]);
            }
        }
        if inner.len() < quote + SHORT_HEADER || inner[quote] >> 4 != 6 {
            return None;
        }
        let addresses = [local.octets(), remote.octets()];
        let at = quote + SHORT_HEADER;
        inner.splice(at..at, addresses.as_flattened().iter().copied());
        Self::complete((local, remote), inner);
        Some(())
    }

    /// The same where packets have their addresses replaced: the invoking packet is the local host's own, but for these.
    pub(crate) fn translate_rewritten(
        &self,
        (local, remote): (Ipv6Addr, Ipv6Addr),
        inner: &mut Vec<u8>,
    ) -> Option<()> {
        self.invoking.get(..ipv6::HEADER_LEN)?;
        inner.clear();
        inner.resize(ipv6::HEADER_LEN, 0);
        inner.extend([self.message_type, self.code, 0, 0]);
        let body = match self.message_type {
            icmpv6::PACKET_TOO_BIG => self.body.max(ipv6::MIN_MTU as u32),
            _ => self.body,
        };
        inner.extend(body.to_be_bytes());
        let quote = inner.len();
        inner.extend(self.invoking);
        rewrite::replace(&mut inner[quote..], (local, remote));
        Self::complete((local, remote), inner);
        Some(())
    }

    /// Gives a message its header and checksum, and the length that errors have at most.
    fn complete((local, remote): (Ipv6Addr, Ipv6Addr), inner: &mut Vec<u8>) {
        inner.truncate(ipv6::MIN_MTU);
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: (inner.len() - ipv6::HEADER_LEN) as u16,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source: remote,
            destination: local,
        };
        inner[..ipv6::HEADER_LEN].copy_from_slice(&header.to_bytes());
        let message = &inner[ipv6::HEADER_LEN..];
        let pseudo = Sum::pseudo_ipv6(remote, local, message.len() as u32, protocol::ICMPV6);
        let checksum = (pseudo + Sum::of(message)).checksum();
        let at = ipv6::HEADER_LEN + icmpv6::CHECKSUM_OFFSET;
        inner[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// The UDP payload of an outer packet of which only the beginning may be there.
fn payload(outer: &[u8]) -> Option<&[u8]> {
    let (header, rest) = outer.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
    let rest = match header[6] {
        protocol::UDP => rest,
        DESTINATION_OPTIONS => {
            let [protocol::UDP, units, ..] = *rest else { return None };
            rest.get((usize::from(units) + 1) * 8..)?
        }
        _ => return None,
    };
    rest.get(udp::HEADER_LEN..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashed::{Host, Salt};
    use crate::keys::{SESSION_KEY_LEN, SessionKey};
    use crate::packet::{Content, encapsulate};
    use proptest::prelude::*;

    const CIPHERS: [Option<Cipher>; 3] = [None, Some(Cipher::Aes256Cbc), Some(Cipher::Aes128Cbc)];

    struct Scene {
        ciphers: CipherKeys,
        path: Path,
        local: Ipv6Addr,
        remote: Ipv6Addr,
    }

    fn scene() -> Scene {
        let key = SessionKey::from_bytes([1; SESSION_KEY_LEN]);
        let (local, remote) = ("2001:db8:a::1".parse().unwrap(), "2001:db8:b::1".parse().unwrap());
        let hashed = |address| Host { address, mac: None }.hashed(&key, Salt(1));
        let path = Path::new(&key, hashed(local), hashed(remote));
        Scene { ciphers: CipherKeys::new(&key), path, local, remote }
    }

    impl Scene {
        fn inner(&self, length: usize) -> Vec<u8> {
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 7,
                payload_length: length as u16,
                next_header: 59,
                hop_limit: 63,
                source: self.local,
                destination: self.remote,
            };
            [&header.to_bytes()[..], &vec![9; length]].concat()
        }

        fn outer(&self, cipher: Option<Cipher>, length: usize) -> Vec<u8> {
            let (inner, mut outer) = (self.inner(length), Vec::new());
            let content = Content { inner: Some(&inner), ..Content::default() };
            encapsulate(&self.path, &self.ciphers, cipher, content, &mut outer);
            outer
        }

        /// What a router says to the hashed address about `invoking`.
        fn error(&self, message_type: u8, body: u32, invoking: &[u8]) -> Vec<u8> {
            let router: Ipv6Addr = "2001:db8:ff::1".parse().unwrap();
            let to = self.path.source.address;
            let mut message = vec![message_type, 1, 0, 0];
            message.extend(body.to_be_bytes());
            message.extend(invoking);
            let sum = Sum::pseudo_ipv6(router, to, message.len() as u32, 58) + Sum::of(&message);
            message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_length: message.len() as u16,
                next_header: 58,
                hop_limit: 60,
                source: router,
                destination: to,
            };
            [&header.to_bytes()[..], &message].concat()
        }

        fn translate(&self, cipher: Option<Cipher>, packet: &[u8]) -> Option<Vec<u8>> {
            let packet = ipv6::Packet::parse(packet).ok()?;
            let error = Error::parse(&packet)?;
            let mut inner = vec![0xee; 3];
            error.translate(&self.path, &self.ciphers, cipher, (self.local, self.remote), &mut inner)?;
            Some(inner)
        }
    }

    #[test]
    fn an_error_has_true_addresses_and_a_lower_mtu() {
        let scene = scene();
        for (cipher, mtu) in CIPHERS.into_iter().zip([1464u32, 1456, 1456]) {
            let outer = scene.outer(cipher, 1400);
            let error = scene.error(icmpv6::PACKET_TOO_BIG, 1480, &outer[..1232]);
            let inner = scene.translate(cipher, &error).unwrap();
            assert_eq!(inner[44..48], mtu.to_be_bytes());
            let packet = ipv6::Packet::parse(&inner).unwrap();
            assert_eq!((packet.source(), packet.destination()), (scene.remote, scene.local));
            assert!(inner.len() <= ipv6::MIN_MTU);
            assert_eq!(inner[48..1200], scene.inner(1400)[..1152]);
            let message = packet.payload();
            let pseudo = Sum::pseudo_ipv6(scene.remote, scene.local, message.len() as u32, 58);
            assert!((pseudo + Sum::of(message)).is_valid());
            let quote = ipv6::Packet::parse(&error).unwrap();
            let error = Error::parse(&quote).unwrap();
            assert_eq!(error.addresses(), Some((scene.path.source.address, scene.path.destination.address)));
        }
    }

    #[test]
    fn what_quotes_too_little_or_is_no_error_is_none() {
        let scene = scene();
        let outer = scene.outer(Some(Cipher::Aes256Cbc), 100);
        let translate = |packet: Vec<u8>| scene.translate(Some(Cipher::Aes256Cbc), &packet);
        assert!(translate(scene.error(1, 0, &outer[..72])).is_some());
        assert!(translate(scene.error(1, 0, &outer[..71])).is_none());
        assert!(translate(scene.error(128, 0, &outer)).is_none());
        assert!(translate(scene.error(5, 0, &outer)).is_none());
        let mut damaged = scene.error(1, 0, &outer);
        damaged[60] ^= 1;
        assert!(translate(damaged).is_none());
    }

    proptest! {
        #[test]
        fn nothing_panics(
            cipher in prop::sample::select(CIPHERS.to_vec()),
            message_type in 0u8..6,
            body: u32,
            cut in 0usize..200,
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let scene = scene();
            let mut invoking = scene.outer(cipher, 100);
            for (at, byte) in edits {
                let at = at.index(invoking.len());
                invoking[at] = byte;
            }
            invoking.truncate(cut);
            if let Some(inner) = scene.translate(cipher, &scene.error(message_type, body, &invoking)) {
                prop_assert!(ipv6::Packet::parse(&inner).is_ok());
            }
        }
    }
}
