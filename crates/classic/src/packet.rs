//! From inner packets to outer ones and back (thesis sections 2.6 and 3.2.4, docs/classic.md sections 6 to 8).

use std::net::Ipv6Addr;

use wire::checksum::Sum;
use wire::{ipv6, protocol, udp};
use zeroize::Zeroize;

use crate::cipher::{BLOCK, Cipher, CipherKeys};
use crate::destination_options::{DestinationOptions, NEW_KEY_LEN};
use crate::drops::DropReason;
use crate::keys::{SESSION_KEY_LEN, SessionKey};
use crate::routes::Path;

/// What is left of the inner header.
pub const SHORT_HEADER: usize = 8;
/// Bytes that an unencrypted tunnel adds.
pub const OVERHEAD: u16 = 16;
/// Bytes that an encrypted tunnel adds, besides padding.
pub const ENCRYPTED_OVERHEAD: u16 = 24;

const HOP_LIMIT: u8 = 64;
const DESTINATION_OPTIONS: u8 = 60;
const ADDRESSES: u16 = (ipv6::HEADER_LEN - SHORT_HEADER) as u16;

/// A new session key, as option 204 carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// When both ends change to it, in seconds since 1970.
    pub change: u32,
    /// The key.
    pub key: SessionKey,
}

/// The largest inner packet that fits outer ones of `outer_mtu` bytes.
pub fn inner_mtu(cipher: Option<Cipher>, outer_mtu: u16) -> u16 {
    match cipher {
        None => outer_mtu.saturating_sub(OVERHEAD),
        Some(_) => {
            let ciphertext = outer_mtu.saturating_sub(ENCRYPTED_OVERHEAD + ADDRESSES);
            ciphertext - ciphertext % BLOCK as u16 + ADDRESSES
        }
    }
}

/// Bytes of the headers of an outer packet without options.
pub const HEADERS: usize = ipv6::HEADER_LEN + udp::HEADER_LEN;

/// The headers of outer packets without options on `path`; lengths and checksum are zero. For somebody who carries
/// packets of unencrypted streams in the node's place.
pub fn headers(path: &Path, flag: bool) -> [u8; HEADERS] {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: 0,
        next_header: protocol::UDP,
        hop_limit: HOP_LIMIT,
        source: path.source.address,
        destination: path.destination.address,
    };
    let udp = udp::Header {
        source_port: path.source.source_port(flag),
        destination_port: path.destination.port,
        length: 0,
        checksum: 0,
    };
    let mut headers = [0; HEADERS];
    headers[..ipv6::HEADER_LEN].copy_from_slice(&header.to_bytes());
    headers[ipv6::HEADER_LEN..].copy_from_slice(&udp.to_bytes());
    headers
}

/// What goes into an outer packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Content<'a> {
    /// The flag of the key exchange.
    pub flag: bool,
    /// A whole inner IPv6 packet, of at most 65,535 bytes.
    pub inner: Option<&'a [u8]>,
    /// A new session key.
    pub offer: Option<&'a Offer>,
}

/// Writes the outer packet over whatever is in `outer`.
pub fn encapsulate(
    path: &Path,
    ciphers: &CipherKeys,
    cipher: Option<Cipher>,
    content: Content<'_>,
    outer: &mut Vec<u8>,
) {
    let cipher = cipher.filter(|_| content.inner.is_some());
    let payload_len = content.inner.map_or(0, |inner| inner.len() - usize::from(ADDRESSES));
    let padding = if cipher.is_some() { payload_len.next_multiple_of(BLOCK) - payload_len } else { 0 };
    let options = DestinationOptions {
        encryption: cipher.map(|cipher| (cipher as u8) << 4 | padding as u8),
        new_key: content.offer.map(|offer| seal(offer, path, ciphers)),
    };

    outer.clear();
    outer.resize(ipv6::HEADER_LEN, 0);
    options.write(protocol::UDP, outer);
    let next_header = if outer.len() > ipv6::HEADER_LEN { DESTINATION_OPTIONS } else { protocol::UDP };
    let udp_at = outer.len();
    outer.resize(udp_at + udp::HEADER_LEN, 0);
    if let Some(inner) = content.inner {
        outer.extend(&inner[..SHORT_HEADER]);
        outer.extend(&inner[ipv6::HEADER_LEN..]);
        outer.resize(outer.len() + padding, 0);
    }
    if let Some(cipher) = cipher {
        ciphers.encrypt(cipher, &path.iv, &mut outer[udp_at + udp::HEADER_LEN..]);
    }

    let (source, destination) = (path.source.address, path.destination.address);
    let payload_length = (outer.len() - ipv6::HEADER_LEN) as u16;
    outer[0] = 6 << 4;
    outer[4..6].copy_from_slice(&payload_length.to_be_bytes());
    outer[6] = next_header;
    outer[7] = HOP_LIMIT;
    outer[8..24].copy_from_slice(&source.octets());
    outer[24..40].copy_from_slice(&destination.octets());
    let length = outer.len() - udp_at;
    let mut header = udp::Header {
        source_port: path.source.source_port(content.flag),
        destination_port: path.destination.port,
        length: length as u16,
        checksum: 0,
    };
    let pseudo = Sum::pseudo_ipv6(source, destination, length as u32, protocol::UDP);
    let payload = Sum::of(&outer[udp_at + udp::HEADER_LEN..]);
    header.checksum = (pseudo + Sum::of(&header.to_bytes()) + payload).udp_checksum();
    outer[udp_at..udp_at + udp::HEADER_LEN].copy_from_slice(&header.to_bytes());
}

/// What an outer packet held besides the inner packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The flag of the key exchange.
    pub flag: bool,
    /// Whether an inner packet was written.
    pub has_inner: bool,
    /// A new session key.
    pub offer: Option<Offer>,
}

/// Opens an outer packet that came on `path`, and writes its inner packet, from `source` to `destination`, over
/// whatever is in `inner`.
///
/// # Errors
/// Why it is dropped: steps 3 to 9 of docs/classic.md section 8.
pub fn decapsulate(
    path: &Path,
    ciphers: &CipherKeys,
    cipher: Option<Cipher>,
    outer: &ipv6::Packet<'_>,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    inner: &mut Vec<u8>,
) -> Result<Opened, DropReason> {
    inner.clear();
    let (options, rest) = match outer.next_header() {
        protocol::UDP => (DestinationOptions::default(), outer.payload()),
        DESTINATION_OPTIONS => {
            let (options, next_header, rest) = DestinationOptions::parse(outer.payload())?;
            if next_header != protocol::UDP {
                return Err(DropReason::NoUdp);
            }
            (options, rest)
        }
        _ => return Err(DropReason::NoUdp),
    };
    if rest.len() < udp::HEADER_LEN {
        return Err(DropReason::NoUdp);
    }
    let datagram = udp::Datagram::parse(rest).map_err(|_| DropReason::Malformed)?;
    if usize::from(datagram.length()) != rest.len() {
        return Err(DropReason::Malformed);
    }
    let pseudo = Sum::pseudo_ipv6(outer.source(), outer.destination(), rest.len() as u32, protocol::UDP);
    if datagram.checksum() == 0 || !(pseudo + Sum::of(rest)).is_valid() {
        return Err(DropReason::Checksum);
    }
    let flag = datagram.source_port() & 0x8000 != 0;
    let expected = (path.source.source_port(flag), path.destination.port);
    if (datagram.source_port(), datagram.destination_port()) != expected {
        return Err(DropReason::WrongPort);
    }

    let payload = datagram.payload();
    if !payload.is_empty() {
        let addresses = [source.octets(), destination.octets()];
        inner.extend(payload.first_chunk::<SHORT_HEADER>().unwrap_or(&[0; SHORT_HEADER]));
        inner.extend(addresses.as_flattened());
        open_payload(path, ciphers, cipher, options.encryption, payload, inner)?;
    }
    let offer = options.new_key.map(|sealed| open(sealed, path, ciphers)).transpose()?;
    Ok(Opened { flag, has_inner: !payload.is_empty(), offer })
}

/// Completes `inner`, which holds a header with the payload's first 8 bytes.
fn open_payload(
    path: &Path,
    ciphers: &CipherKeys,
    cipher: Option<Cipher>,
    encryption: Option<u8>,
    payload: &[u8],
    inner: &mut Vec<u8>,
) -> Result<(), DropReason> {
    let Some(cipher) = cipher else {
        if encryption.is_some() {
            return Err(DropReason::CipherMismatch);
        }
        let body = payload.get(SHORT_HEADER..).ok_or(DropReason::MalformedInner)?;
        inner.extend(body);
        if inner[0] >> 4 != 6 || stated_length(inner) != body.len() {
            return Err(DropReason::MalformedInner);
        }
        return Ok(());
    };
    let encryption = encryption.filter(|e| e >> 4 == cipher as u8).ok_or(DropReason::CipherMismatch)?;
    if !payload.len().is_multiple_of(BLOCK) {
        return Err(DropReason::WrongLength);
    }
    // The ciphertext is put where its plaintext goes: 8 bytes too early, which are the addresses' last, and so in one
    // piece. The addresses come back afterwards.
    let start = ipv6::HEADER_LEN - SHORT_HEADER;
    let overwritten: [u8; SHORT_HEADER] = std::array::from_fn(|i| inner[start + i]);
    inner.truncate(start);
    inner.extend(payload);
    ciphers.decrypt(cipher, &path.iv, &mut inner[start..]);
    inner.copy_within(start..ipv6::HEADER_LEN, 0);
    inner[start..ipv6::HEADER_LEN].copy_from_slice(&overwritten);
    if inner[0] >> 4 != 6 {
        return Err(DropReason::WrongKey);
    }
    let end = ipv6::HEADER_LEN + stated_length(inner);
    let padding = usize::from(encryption & 0x0f);
    if end + padding != inner.len() || inner[end..].iter().any(|byte| *byte != 0) {
        return Err(DropReason::WrongPadding);
    }
    inner.truncate(end);
    Ok(())
}

/// The payload length of an IPv6 header.
fn stated_length(header: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([header[4], header[5]]))
}

/// Option 204's data: cipher, change time, encrypted key.
fn seal(offer: &Offer, path: &Path, ciphers: &CipherKeys) -> [u8; NEW_KEY_LEN] {
    let mut data = [0; NEW_KEY_LEN];
    data[0] = Cipher::Aes256Cbc as u8;
    data[1..5].copy_from_slice(&offer.change.to_be_bytes());
    data[5..].copy_from_slice(offer.key.as_bytes());
    ciphers.encrypt(Cipher::Aes256Cbc, &path.iv, &mut data[5..]);
    data
}

fn open(mut data: [u8; NEW_KEY_LEN], path: &Path, ciphers: &CipherKeys) -> Result<Offer, DropReason> {
    if data[0] != Cipher::Aes256Cbc as u8 {
        return Err(DropReason::OfferRefused);
    }
    ciphers.decrypt(Cipher::Aes256Cbc, &path.iv, &mut data[5..]);
    let change = u32::from_be_bytes([data[1], data[2], data[3], data[4]]);
    let key = data.last_chunk::<SESSION_KEY_LEN>().map_or([0; SESSION_KEY_LEN], |key| *key);
    data.zeroize();
    Ok(Offer { change, key: SessionKey::from_bytes(key) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashed::{Host, Salt};
    use proptest::prelude::*;

    const CIPHERS: [Option<Cipher>; 3] = [None, Some(Cipher::Aes256Cbc), Some(Cipher::Aes128Cbc)];

    struct Scene {
        key: SessionKey,
        ciphers: CipherKeys,
        path: Path,
        hosts: (Ipv6Addr, Ipv6Addr),
    }

    fn scene(byte: u8) -> Scene {
        let key = SessionKey::from_bytes([byte; SESSION_KEY_LEN]);
        let hosts = ("2001:db8:a::1".parse().unwrap(), "2001:db8:b::1".parse().unwrap());
        let hashed = |address| Host { address, mac: None }.hashed(&key, Salt(1));
        let path = Path::new(&key, hashed(hosts.0), hashed(hosts.1));
        Scene { ciphers: CipherKeys::new(&key), path, key, hosts }
    }

    impl Scene {
        fn inner(&self, body: &[u8]) -> Vec<u8> {
            let mut packet = vec![0x6f, 1, 2, 3];
            packet.extend((body.len() as u16).to_be_bytes());
            packet.extend([17, 63]);
            packet.extend(self.hosts.0.octets());
            packet.extend(self.hosts.1.octets());
            packet.extend(body);
            packet
        }

        fn encapsulate(&self, cipher: Option<Cipher>, content: Content<'_>) -> Vec<u8> {
            let mut outer = vec![0xee; 7];
            encapsulate(&self.path, &self.ciphers, cipher, content, &mut outer);
            outer
        }

        fn decapsulate(&self, cipher: Option<Cipher>, outer: &[u8]) -> Result<(Opened, Vec<u8>), DropReason> {
            let mut inner = vec![0xee; 7];
            let packet = ipv6::Packet::parse(outer).map_err(|_| DropReason::Malformed)?;
            let opened = decapsulate(&self.path, &self.ciphers, cipher, &packet, self.hosts, &mut inner)?;
            Ok((opened, inner))
        }
    }

    /// The UDP checksum made right again after a change.
    fn mend(outer: &mut [u8]) {
        let udp_at = if outer[6] == 60 { 40 + (usize::from(outer[41]) + 1) * 8 } else { 40 };
        outer[udp_at + 6..udp_at + 8].fill(0);
        let packet = ipv6::Packet::parse(outer).unwrap();
        let length = (outer.len() - udp_at) as u32;
        let sum =
            Sum::pseudo_ipv6(packet.source(), packet.destination(), length, 17) + Sum::of(&outer[udp_at..]);
        outer[udp_at + 6..udp_at + 8].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    }

    #[test]
    fn overheads_are_those_of_the_thesis() {
        let scene = scene(1);
        let inner = scene.inner(&[7; 56]); // with the 8 bytes 64, whole blocks
        let length =
            |cipher| scene.encapsulate(cipher, Content { inner: Some(&inner), ..Content::default() }).len();
        assert_eq!(length(None), inner.len() + 16);
        assert_eq!(length(Some(Cipher::Aes256Cbc)), inner.len() + 24);
    }

    #[test]
    fn the_largest_inner_packet_fits_and_the_next_does_not() {
        let scene = scene(1);
        for cipher in CIPHERS {
            for outer_mtu in [1280, 1480, 1499, 1500] {
                let mtu = usize::from(inner_mtu(cipher, outer_mtu));
                let sizes = [mtu, mtu + 1].map(|size| {
                    let inner = scene.inner(&vec![0; size - 40]);
                    scene.encapsulate(cipher, Content { inner: Some(&inner), ..Content::default() }).len()
                });
                assert!(sizes[0] <= usize::from(outer_mtu) && sizes[1] > usize::from(outer_mtu));
            }
        }
        assert_eq!((inner_mtu(None, 1500), inner_mtu(Some(Cipher::Aes256Cbc), 1500)), (1484, 1472));
    }

    #[test]
    fn each_fault_has_its_reason() {
        let scene = scene(1);
        let plain = |cipher, change: &dyn Fn(&mut Vec<u8>)| {
            let inner = scene.inner(&[5; 50]);
            let mut outer = scene.encapsulate(cipher, Content { inner: Some(&inner), ..Content::default() });
            change(&mut outer);
            scene.decapsulate(cipher, &outer).err()
        };
        let aes = Some(Cipher::Aes256Cbc);
        assert_eq!(plain(None, &|_| ()), None);
        assert_eq!(plain(aes, &|_| ()), None);
        assert_eq!(plain(None, &|p| p[6] = 6), Some(DropReason::NoUdp));
        assert_eq!(plain(aes, &|p| p[40] = 58), Some(DropReason::NoUdp));
        assert_eq!(plain(aes, &|p| p[45] = 9), Some(DropReason::UnknownOption));
        assert_eq!(plain(aes, &|p| p[47] = 1), Some(DropReason::MalformedOption));
        assert_eq!(plain(None, &|p| p[44] += 1), Some(DropReason::Malformed));
        assert_eq!(plain(None, &|p| p[60] ^= 1), Some(DropReason::Checksum));
        assert_eq!(plain(None, &|p| p[46..48].fill(0)), Some(DropReason::Checksum));
        let mended = |cipher, change: &dyn Fn(&mut Vec<u8>)| {
            plain(cipher, &|p| {
                change(p);
                mend(p);
            })
        };
        assert_eq!(mended(None, &|p| p[43] ^= 1), Some(DropReason::WrongPort));
        assert_eq!(mended(None, &|p| p[41] ^= 1), Some(DropReason::WrongPort));
        assert_eq!(mended(None, &|p| p[48] = 0x40), Some(DropReason::MalformedInner));
        assert_eq!(mended(None, &|p| p[53] ^= 1), Some(DropReason::MalformedInner));
        assert_eq!(mended(aes, &|p| p[44] ^= 0x30), Some(DropReason::CipherMismatch));
        assert_eq!(mended(aes, &|p| p[44] ^= 1), Some(DropReason::WrongPadding));
        assert_eq!(mended(aes, &|p| *p.last_mut().unwrap() ^= 1), Some(DropReason::WrongPadding));
        assert_eq!(
            mended(aes, &|p| {
                p.pop();
                p[5] -= 1;
                p[53] -= 1;
            }),
            Some(DropReason::WrongLength)
        );
        // An encrypted stream takes nothing unencrypted, and the other way round.
        let inner = scene.inner(&[5; 50]);
        let content = Content { inner: Some(&inner), ..Content::default() };
        let outer = scene.encapsulate(None, content);
        assert_eq!(scene.decapsulate(aes, &outer).err(), Some(DropReason::CipherMismatch));
        let outer = scene.encapsulate(aes, content);
        assert_eq!(scene.decapsulate(None, &outer).err(), Some(DropReason::CipherMismatch));
        // The right addresses, another key.
        let other =
            Scene { ciphers: CipherKeys::new(&SessionKey::from_bytes([9; SESSION_KEY_LEN])), ..scene };
        assert!(matches!(
            other.decapsulate(aes, &outer),
            Err(DropReason::WrongKey | DropReason::WrongPadding)
        ));
    }

    fn cipher() -> impl Strategy<Value = Option<Cipher>> {
        prop::sample::select(CIPHERS.to_vec())
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(
            cipher in cipher(),
            body in prop::option::of(prop::collection::vec(any::<u8>(), 0..1500)),
            offer in prop::option::of((any::<u32>(), any::<u8>())),
            flag: bool,
        ) {
            let scene = scene(3);
            let packet = body.map(|body| scene.inner(&body));
            let offer = offer.map(|(change, byte)| Offer {
                change,
                key: SessionKey::from_bytes([byte; SESSION_KEY_LEN]),
            });
            let content = Content { flag, inner: packet.as_deref(), offer: offer.as_ref() };
            let outer = scene.encapsulate(cipher, content);
            let (opened, inner) = scene.decapsulate(cipher, &outer).unwrap();
            prop_assert_eq!(opened, Opened { flag, has_inner: packet.is_some(), offer });
            prop_assert_eq!(inner, packet.unwrap_or_default());
            prop_assert_eq!(ipv6::Packet::parse(&outer).unwrap().payload().len() + 40, outer.len());
        }

        #[test]
        fn nothing_panics(
            cipher in cipher(),
            next in prop::sample::select(vec![17u8, 60, 58]),
            mut bytes in prop::collection::vec(any::<u8>(), 40..200),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            units in 0u8..4,
        ) {
            let scene = scene(3);
            // Anything at all, and something that was right once.
            let payload = (bytes.len() - 40) as u16;
            bytes[0] = 0x60;
            bytes[4..6].copy_from_slice(&payload.to_be_bytes());
            bytes[6] = next;
            if let Some(length) = bytes.get_mut(41) {
                *length = units;
            }
            let _ = scene.decapsulate(cipher, &bytes);
            let inner = scene.inner(&bytes);
            let offer = Offer { change: 1, key: scene.key.clone() };
            let content = Content { flag: true, inner: Some(&inner), offer: Some(&offer) };
            let mut outer = scene.encapsulate(cipher, content);
            for (at, byte) in edits {
                let at = at.index(outer.len());
                outer[at] = byte;
            }
            let _ = scene.decapsulate(cipher, &outer);
        }
    }
}
