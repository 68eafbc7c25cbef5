use linux::bpf::attach::{Attachment, Direction};
use linux::bpf::verdict;
use linux::icmp_tap::{IcmpTap, Messages};
use linux::netns;
use linux::packet::{PacketOptions, PacketSocket};

use crate::bpf::{counter, counting};
use crate::network::{B, Pair, eventually};

/// A frame of IPv6 with this next header, and this byte first behind it.
fn ipv6(next_header: u8, kind: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..12].fill(2);
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[18..20].copy_from_slice(&(length as u16 - 54).to_be_bytes());
    (frame[20], frame[54]) = (next_header, kind);
    frame
}

/// The same of IPv4; `first` is the header's first byte, `fragment` what says where a fragment belongs.
fn ipv4(first: u8, fragment: u16, protocol: u8, kind: u8) -> Vec<u8> {
    let mut frame = vec![0; 70];
    frame[..12].fill(2);
    frame[12..15].copy_from_slice(&[0x08, 0x00, first]);
    frame[16..18].copy_from_slice(&56u16.to_be_bytes());
    frame[20..22].copy_from_slice(&fragment.to_be_bytes());
    (frame[23], frame[34]) = (protocol, kind);
    frame
}

/// The frame with a tag of this VLAN and some priority; 0 is none.
fn tagged(mut frame: Vec<u8>, vlan: u8) -> Vec<u8> {
    frame.splice(12..12, [0x81, 0x00, 0x60, vlan]);
    frame
}

/// A message of each kind that matters, and others that look like them.
fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = [0, 1, 4, 127, 128, 132, 133, 134, 135].map(|kind| ipv6(58, kind, 70)).into();
    frames.extend([17, 44, 0].map(|next_header| ipv6(next_header, 134, 70)));
    frames.extend([0, 3, 4, 5, 8, 11, 12].map(|kind| ipv4(0x45, 0, 1, kind)));
    frames.extend([
        ipv4(0x45, 0x2000, 1, 3),
        ipv4(0x45, 0x2001, 1, 3),
        ipv4(0x45, 0, 17, 3),
        ipv4(0x46, 0, 1, 8),
    ]);
    // Those with a priority belong to the interface itself, those of a VLAN do not.
    for vlan in [0, 10] {
        frames.extend([ipv6(58, 134, 71), ipv6(58, 4, 71), ipv4(0x45, 0, 1, 3)].map(|f| tagged(f, vlan)));
    }
    // The longest that an interface carries as it is.
    frames.push(ipv6(58, 134, 1514));
    frames
}

/// What it hears of these, up to a frame that it hears in any case.
fn heard(tap: &mut IcmpTap, sender: &PacketSocket, last: &[u8]) -> Vec<Vec<u8>> {
    for frame in frames().iter().map(Vec::as_slice).chain([last]) {
        assert!(sender.send(frame).unwrap());
    }
    let (mut buffer, mut all) = ([0; 4096], Vec::new());
    loop {
        let length = eventually(|| tap.recv(&mut buffer).unwrap());
        if buffer[..length] == *last {
            return all;
        }
        // The kernels of the two nodes solicit, too.
        if buffer[..12] == [2; 12] {
            all.push(buffer[..length].to_vec());
        }
    }
}

#[test]
fn it_hears_the_same_by_a_program_as_by_a_socket() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let (here, there) = (pair.a.link().index, pair.b.link().index);
    let sender = pair.b.run(|| PacketSocket::open(there, &PacketOptions::default()).unwrap());
    let kinds = |all: &[Vec<u8>], at: usize| all.iter().map(|frame| frame[at]).collect::<Vec<_>>();
    for (messages, last, at, expected) in [
        (Messages::RouterAdvertisements, ipv6(58, 134, 99), 54, &[134, 134, 134][..]),
        (Messages::RouterDiscovery, ipv6(58, 134, 99), 54, &[133, 134, 134, 134]),
        (Messages::Icmpv6Errors, ipv6(58, 1, 99), 54, &[0, 1, 4, 127, 4]),
        // The first fragment has the message's header.
        (Messages::Icmpv4Errors, ipv4(0x45, 0x4000, 1, 11), 34, &[3, 11, 3, 3]),
    ] {
        let mut socket = pair.a.run(|| IcmpTap::with_socket(here, messages).unwrap());
        let by_socket = heard(&mut socket, &sender, &last);
        assert_eq!(kinds(&by_socket, at), expected, "{messages:?}");
        // As it is on this kernel: by one of the two.
        let mut either = pair.a.run(|| IcmpTap::open(here, 14, messages).unwrap());
        assert!(heard(&mut either, &sender, &last) == by_socket, "{messages:?}");
        let program = pair.a.run(|| IcmpTap::with_program(here, 14, messages));
        let mut program = match program {
            Err(error) if error.raw_os_error() == Some(22) => {
                eprintln!("this kernel has no tcx: {error}");
                continue;
            }
            result => result.unwrap(),
        };
        assert!(heard(&mut program, &sender, &last) == by_socket, "{messages:?}");
        let (_, text) = pair.a.sh(&format!("ping -6 -c 1 -W 1 {B}"));
        assert!(text.contains("1 received"), "what it hears goes on, and all else: {text}");
    }
}

#[test]
fn it_hears_before_others_decide_and_more_at_once_than_it_reads_is_lost() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let (here, there) = (pair.a.link().index, pair.b.link().index);
    let sender = pair.b.run(|| PacketSocket::open(there, &PacketOptions::default()).unwrap());
    let count = counter();
    let drops = pair.a.run(|| Attachment::tcx(&counting(&count, verdict::DROP), here, Direction::Ingress));
    if drops.as_ref().is_err_and(|error| error.raw_os_error() == Some(22)) {
        eprintln!("this kernel has no tcx");
        return;
    }
    let mut tap = pair.a.run(|| IcmpTap::with_program(here, 14, Messages::RouterDiscovery).unwrap());
    for _ in 0..1000 {
        assert!(sender.send(&ipv6(58, 134, 70)).unwrap());
    }
    eventually(|| (count.sum(&[0; 4]).unwrap()[0] >= 1000).then_some(()));
    let mut buffer = [0; 4096];
    // Without what the other node's kernel solicits.
    let mut read = || {
        let mut ours = 0;
        while tap.recv(&mut buffer).unwrap().is_some() {
            ours += usize::from(buffer[..12] == [2; 12]);
        }
        ours
    };
    let first = read();
    assert!((20..1000).contains(&first), "{first}");
    // And there is room again.
    assert!(sender.send(&ipv6(58, 133, 70)).unwrap());
    eventually(|| (read() == 1).then_some(()));
}
