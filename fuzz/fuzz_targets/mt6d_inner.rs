//! Any inner packets and GSO packets from a TUN device: what arrives at the other end, or comes back as an error, is
//! an IP packet of its stated length.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::virtio_net::{self, Header};
use wire::{ipv4, ipv6};

use sidestep_fuzz::Pair;

fuzz_target!(|packets: Vec<(u8, [u8; virtio_net::LEN], Vec<u8>)>| {
    let mut pair = Pair::established();
    for (how, header, mut packet) in packets {
        // Most go to a host of the peer's.
        if let Some(start) = packet.first_chunk_mut::<40>().filter(|_| how & 1 == 0) {
            start[0] = 0x60 | start[0] & 15;
            start[8..16].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0]);
            start[24..32].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 1]);
        }
        let header = if how & 2 == 0 { Header::NONE } else { Header::from_bytes(&header) };
        pair.send(0, &header, &mut packet);
        if how & 4 != 0 {
            pair.run(200_000);
        }
        for packet in pair.delivered() {
            let stated = match packet[0] >> 4 {
                6 => ipv6::Packet::parse(&packet).map(|p| usize::from(p.payload_length()) + ipv6::HEADER_LEN),
                _ => ipv4::Packet::parse(&packet).map(|p| usize::from(p.total_length())),
            };
            assert_eq!(stated, Ok(packet.len()));
        }
    }
});
