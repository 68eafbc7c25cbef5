//! Big-endian integers at an offset. The callers have checked the length: views do so when made.

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

pub(crate) fn put_u16(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn ipv6_at(bytes: &[u8], offset: usize) -> std::net::Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&bytes[offset..offset + 16]);
    octets.into()
}

pub(crate) fn ipv4_at(bytes: &[u8], offset: usize) -> std::net::Ipv4Addr {
    u32_at(bytes, offset).into()
}
