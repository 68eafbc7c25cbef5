//! Messages of nfnetlink, written and read: a header, nfgenmsg, attributes (linux/netlink.h, nfnetlink.h).

/// The protocol of the socket.
pub(crate) const NETLINK_NETFILTER: i32 = 12;
/// An error, or that all went well; the end of what was asked for.
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
/// Header of netlink, then nfgenmsg.
pub(crate) const HEADERS: usize = 16 + 4;

const ATTRIBUTE_HEADER: usize = 4;
/// Of an attribute's type; the two upper bits say how its content is to be read.
const TYPE_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// A message that is being written at the end of a buffer. [`end`](Self::end) it.
pub(crate) struct Message<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Message<'a> {
    pub(crate) fn begin(
        bytes: &'a mut Vec<u8>,
        kind: u16,
        flags: u16,
        sequence: u32,
        family: u8,
        resource: u16,
    ) -> Self {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        // Version 0.
        bytes.extend_from_slice(&[family, 0]);
        bytes.extend_from_slice(&resource.to_be_bytes());
        Self { bytes, start }
    }

    /// An attribute; `value` has at most 65,531 octets.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (ATTRIBUTE_HEADER + value.len()) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
    }

    /// An attribute that holds others, which `fill` writes.
    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let at = self.bytes.len();
        self.attribute(kind | NESTED, &[]);
        fill(self);
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
    }

    pub(crate) fn end(self) {
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn pad(&mut self) {
        let length = (self.bytes.len() - self.start).next_multiple_of(4);
        self.bytes.resize(self.start + length, 0);
    }
}

/// Types and values of attributes, as far as they are whole.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_first_chunk::<ATTRIBUTE_HEADER>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}
