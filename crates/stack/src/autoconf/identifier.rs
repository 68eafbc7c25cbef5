//! Interface identifiers: stable ones that differ between networks (RFC 7217), temporary ones that are random (RFC 8981
//! §3.3.1), none of them reserved (RFC 5453).

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::random::{Key, Random};

/// The stable address in a prefix of 64 bits: it follows from the prefix, the interface's name, how many times it was
/// somebody else's, and a secret (RFC 7217 §5).
pub(super) fn stable(prefix: Ipv6Net, key: &Key, interface: &[u8], duplicates: u8) -> Ipv6Addr {
    let network = prefix.network().octets();
    for counter in 0..=u8::MAX {
        let hash = key.hash128(&[&network[..8], interface, &[duplicates], &[counter]]);
        let address = with_identifier(prefix, hash as u64);
        if !is_reserved(address) {
            return address;
        }
    }
    // 256 reserved identifiers of 256 do not happen: fewer than one in 2^56 are.
    with_identifier(prefix, u64::MAX / 2)
}

/// A random address in a prefix of 64 bits.
pub(super) fn temporary(prefix: Ipv6Net, random: &mut Random) -> Ipv6Addr {
    loop {
        let address = with_identifier(prefix, random.u64());
        if !is_reserved(address) {
            return address;
        }
    }
}

fn with_identifier(prefix: Ipv6Net, identifier: u64) -> Ipv6Addr {
    let network = prefix.network().to_bits() >> 64 << 64;
    Ipv6Addr::from_bits(network | u128::from(identifier))
}

/// The subnet-router anycast address, those of IANA's Ethernet block, and the subnet anycast addresses (RFC 5453).
fn is_reserved(address: Ipv6Addr) -> bool {
    let identifier = address.to_bits() as u64;
    identifier == 0
        || (0x0200_5eff_fe00_0000..=0x0200_5eff_feff_ffff).contains(&identifier)
        || (0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff).contains(&identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_7217_5_the_address_follows_from_prefix_interface_duplicates_and_secret() {
        let (one, two) = ("2001:db8:1::/64".parse().unwrap(), "2001:db8:2::/64".parse().unwrap());
        let key = Key::new([1; 16]);
        let address = stable(one, &key, b"eth0", 0);
        assert!(one.contains(&address));
        assert_eq!(stable(one, &key, b"eth0", 0), address);
        let identifier = |of: Ipv6Addr| of.to_bits() as u64;
        for other in [
            stable(two, &key, b"eth0", 0),
            stable(one, &key, b"eth1", 0),
            stable(one, &key, b"eth0", 1),
            stable(one, &Key::new([2; 16]), b"eth0", 0),
        ] {
            assert_ne!(identifier(other), identifier(address));
        }
    }

    #[test]
    fn rfc_5453_reserved_identifiers_are_known() {
        for reserved in ["2001:db8::", "2001:db8::200:5eff:fe00:5213", "2001:db8::fdff:ffff:ffff:ff80"] {
            assert!(is_reserved(reserved.parse().unwrap()), "{reserved}");
        }
        assert!(!is_reserved("2001:db8::1".parse().unwrap()));
    }
}
