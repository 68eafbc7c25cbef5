//! The VLAN tag of a packet (IEEE 802.1Q), as the kernel has it: beside the packet, where network cards and the kernel put
//! it as packets come in, or in the frame.

use wire::ethernet;

use crate::packet::Packet;

/// Where tags are in a frame, and their length.
const AT: usize = ethernet::HEADER_LEN - 2;
const TAG: usize = 4;
/// EtherTypes of tags (802.1Q, 802.1ad).
pub(crate) const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// The largest VLAN.
pub(crate) const LARGEST: u16 = 0xfff;

/// Why a tag is not read, put or taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VlanError {
    /// Lua has packets behind their link header.
    #[error(
        "there is no link header here, and no VLAN tag: a script that is compiled has both at an interface"
    )]
    NoLink,
    /// One more would be in the frame.
    #[error("the packet has a VLAN tag already: it gets another one when that is taken")]
    Tagged,
    /// VLANs are 0 to 4095.
    #[error("{0} is no VLAN: 0 to {LARGEST}")]
    OutOfRange(i64),
}

/// Why a frame gets no verdict from any script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unseen {
    /// Scripts are about IP.
    #[error("it is not IP, and passes unseen at every hook")]
    NotIp,
    /// It is that of an interface over an interface.
    #[error("it has two VLAN tags, and passes unseen where it comes in")]
    TwoTags,
    /// The kernel takes one off behind the script.
    #[error("of its two VLAN tags one is of VLAN 0: at an interface in the kernel, that is an error")]
    PriorityTag,
}

impl Packet {
    /// The VLAN of the first tag, if there is one.
    pub(crate) fn vlan_id(&self) -> Result<Option<u16>, VlanError> {
        linked(self)?;
        let tag = self.vlan.or_else(|| in_frame(self.bytes()));
        Ok(tag.map(|tag| tag & LARGEST))
    }

    /// Puts a tag beside it.
    pub(crate) fn push_vlan(&mut self, id: i64) -> Result<(), VlanError> {
        linked(self)?;
        let tag = u16::try_from(id).ok().filter(|id| *id <= LARGEST).ok_or(VlanError::OutOfRange(id))?;
        if self.vlan.is_some() {
            return Err(VlanError::Tagged);
        }
        self.vlan = Some(tag);
        Ok(())
    }

    /// Takes the first tag: which VLAN that was.
    pub(crate) fn pop_vlan(&mut self) -> Result<Option<u16>, VlanError> {
        let id = self.vlan_id()?;
        if self.vlan.take().is_none() {
            self.take_tag();
        }
        if id.is_some() {
            self.vlan = self.take_tag();
        }
        Ok(id)
    }

    /// Takes the first tag that is in the frame.
    fn take_tag(&mut self) -> Option<u16> {
        let tag = in_frame(self.bytes())?;
        self.remove_from_link(AT..AT + TAG);
        Some(tag)
    }
}

const fn linked(packet: &Packet) -> Result<(), VlanError> {
    if packet.has_link() { Ok(()) } else { Err(VlanError::NoLink) }
}

/// Why no script is given a frame, if none is: as programs in the kernel see frames at an interface.
pub fn unseen(frame: &[u8]) -> Option<Unseen> {
    let kind = |at: usize| frame.get(at..at + 2).map(|kind| u16::from_be_bytes([kind[0], kind[1]]));
    let is_ip = |at| matches!(kind(at), Some(ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6));
    let tag = |at| kind(at).filter(|kind| TAGS.contains(kind)).and_then(|_| kind(at + 2));
    match (tag(AT), tag(AT + TAG)) {
        (None, _) if is_ip(AT) => None,
        (Some(_), None) if is_ip(AT + TAG) => None,
        (Some(first), Some(second)) if first & LARGEST == 0 || second & LARGEST == 0 => {
            Some(Unseen::PriorityTag)
        }
        (Some(_), Some(_)) => Some(Unseen::TwoTags),
        _ => Some(Unseen::NotIp),
    }
}

/// A frame without its Ethernet header, and the tags in it.
pub fn behind_link(frame: &[u8]) -> &[u8] {
    let mut at = AT;
    while let Some([high, low]) = frame.get(at..at + 2)
        && TAGS.contains(&u16::from_be_bytes([*high, *low]))
    {
        at += TAG;
    }
    frame.get(at + 2..).unwrap_or_default()
}

/// The first tag in a frame.
fn in_frame(frame: &[u8]) -> Option<u16> {
    // Behind it there is another EtherType.
    let [high, low, tag @ .., _, _] = frame.get(AT..AT + TAG + 2)? else { return None };
    let tag = <[u8; 2]>::try_from(tag).ok()?;
    TAGS.contains(&u16::from_be_bytes([*high, *low])).then(|| u16::from_be_bytes(tag))
}

#[cfg(test)]
mod tests {
    use wire::checksum::TransportChecksum::Complete;

    use super::*;

    fn frame(tags: &[&[u8]]) -> Packet {
        Packet::of_frame([&[2; 12][..], &tags.concat(), &[0x86, 0xdd, 0x60, 1]].concat(), Complete)
    }

    #[test]
    fn tags_come_and_go_as_in_the_kernel() {
        let mut packet = frame(&[]);
        assert_eq!((packet.vlan_id(), packet.pop_vlan()), (Ok(None), Ok(None)));
        assert_eq!(packet.push_vlan(4096), Err(VlanError::OutOfRange(4096)));
        assert_eq!(packet.push_vlan(-1), Err(VlanError::OutOfRange(-1)));
        assert_eq!(packet.push_vlan(4095), Ok(()));
        assert_eq!(packet.push_vlan(1), Err(VlanError::Tagged));
        assert_eq!((packet.vlan_id(), packet.bytes().len()), (Ok(Some(4095)), 16));
        assert_eq!(
            (packet.pop_vlan(), packet.vlan_id(), packet.is_changed()),
            (Ok(Some(4095)), Ok(None), false)
        );

        // The second one goes beside the packet when the first is taken.
        let mut packet = frame(&[&[0x88, 0xa8, 0x60, 9], &[0x81, 0, 0, 7]]);
        assert_eq!(packet.vlan_id(), Ok(Some(9)));
        assert_eq!((packet.pop_vlan(), packet.bytes()), (Ok(Some(9)), frame(&[]).bytes()));
        assert_eq!((packet.vlan_id(), packet.push_vlan(1)), (Ok(Some(7)), Err(VlanError::Tagged)));
        assert_eq!((packet.pop_vlan(), packet.vlan_id()), (Ok(Some(7)), Ok(None)));
        assert!(packet.is_changed());
    }

    #[test]
    fn what_no_script_sees_is_told_apart() {
        let frame = |middle: &[u8]| unseen(&[&[2; 12][..], middle].concat());
        let (ip, arp, tag, none) = ([0x86, 0xdd, 0x60], [8, 6, 0], [0x81, 0, 0x60, 7], [0x88, 0xa8, 0xe0, 0]);
        let with = |tags: &[[u8; 4]], rest: [u8; 3]| frame(&[&tags.concat()[..], &rest].concat());
        assert_eq!((with(&[], ip), with(&[tag], ip), with(&[none], ip)), (None, None, None));
        assert_eq!((with(&[], [8, 0, 0x45]), with(&[], arp)), (None, Some(Unseen::NotIp)));
        assert_eq!(with(&[tag], arp), Some(Unseen::NotIp));
        assert_eq!(with(&[tag, tag], ip), Some(Unseen::TwoTags));
        for tags in [[none, tag], [tag, none], [none, none]] {
            assert_eq!(with(&tags, ip), Some(Unseen::PriorityTag));
        }
        assert_eq!(
            (frame(&[]), frame(&[0x81]), frame(&tag)),
            (Some(Unseen::NotIp), Some(Unseen::NotIp), Some(Unseen::NotIp))
        );
    }

    #[test]
    fn tags_are_left_out_with_the_link_header() {
        let frame = |middle: &[u8]| [&[2; 12][..], middle, &[0x60, 1]].concat();
        assert_eq!(behind_link(&frame(&[0x86, 0xdd])), [0x60, 1]);
        assert_eq!(behind_link(&frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x86, 0xdd])), [0x60, 1]);
        assert_eq!(behind_link(&[1; 13]), [0; 0]);
    }

    #[test]
    fn what_is_cut_or_has_no_link_header_has_no_tag() {
        for octets in [&[2; 13][..], &[2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0x81, 0, 0, 7, 8]] {
            let mut packet = Packet::of_frame(octets.to_vec(), Complete);
            assert_eq!((packet.vlan_id(), packet.pop_vlan()), (Ok(None), Ok(None)));
        }
        let mut packet = Packet::of_ip(&[0x60, 1, 2], Complete);
        assert_eq!(packet.vlan_id(), Err(VlanError::NoLink));
        assert_eq!(packet.push_vlan(1), Err(VlanError::NoLink));
        assert_eq!(packet.pop_vlan(), Err(VlanError::NoLink));
    }
}
