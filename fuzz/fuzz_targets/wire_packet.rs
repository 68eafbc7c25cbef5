//! Every view, walk and builder on any bytes, as a frame and as a packet.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use wire::checksum::TransportChecksum;
use wire::icmp_error::{self, Reason};
use wire::{
    arp, dhcpv6, ecn, ethernet, flow, icmpv4, icmpv6, ipv4, ipv6, mld, mss, ndp, pcap, pcapng, tcp, udp,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = ethernet::Frame::parse(bytes) {
        packet(frame.payload());
    }
    packet(bytes);
});

fn packet(bytes: &[u8]) {
    let _ = arp::Message::parse(bytes);
    let _ = flow::addresses(bytes);
    let _ = flow::hash(bytes);
    if let Ok(view) = ipv6::Packet::parse(bytes) {
        if let Ok(upper) = view.upper_layer() {
            transport(&bytes[upper.offset..]);
        }
        let _ = icmpv6::Message::of_packet(&view);
        if let Ok(query) = mld::Query::parse(&view, view.payload()) {
            query.sources().count();
        }
        if let Ok(ndp::Message::RouterAdvertisement(advertisement)) = ndp::parse(&view) {
            advertisement.prefixes().count();
            let _ = ndp::RouterAdvertisement::from(advertisement);
        }
    }
    if let Ok(view) = ipv4::Packet::parse(bytes) {
        view.has_valid_checksum();
        transport(view.payload());
    }
    if let Ok(message) = dhcpv6::Message::parse(bytes) {
        let _ = (message.client_id(), message.server_id(), message.status(), message.delegation(1));
        message.dns_servers().count();
    }
    if let Ok(capture) = pcap::Capture::parse(bytes) {
        capture.records().count();
    }
    if let Ok(capture) = pcapng::Capture::parse(bytes) {
        capture.records().count();
    }
    errors(bytes);

    let mut changed = bytes.to_vec();
    mss::clamp(&mut changed, 1000, TransportChecksum::Complete);
    if ecn::set(&mut changed, ecn::Ecn::Ce) {
        assert_eq!(ecn::get(&changed), Some(ecn::Ecn::Ce));
    }
    assert_eq!(changed.len(), bytes.len());
}

fn transport(bytes: &[u8]) {
    if let Ok(segment) = tcp::Segment::parse(bytes) {
        for option in segment.options() {
            assert_eq!(option.data, &segment.header()[option.data_offset..][..option.data.len()]);
        }
        let _ = tcp::SegmentOptions::of(&segment);
    }
    let _ = udp::Datagram::parse(bytes);
    let _ = icmpv6::Message::parse(bytes);
    let _ = icmpv4::Message::parse(bytes);
}

/// An error that is sent is well-formed, and nothing is ever said about it in turn.
fn errors(invoking: &[u8]) {
    for source in [IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))] {
        for reason in [Reason::PacketTooBig { mtu: 1280 }, Reason::AddressUnreachable] {
            let mut out = [0; icmp_error::MAX_LEN];
            let Ok(length) = icmp_error::build(reason, source, invoking, &mut out) else { continue };
            let error = &out[..length];
            match source {
                IpAddr::V6(_) => {
                    let view = ipv6::Packet::parse(error).expect("well-formed");
                    icmpv6::Message::of_packet(&view).expect("with its checksum");
                }
                IpAddr::V4(_) => {
                    let view = ipv4::Packet::parse(error).expect("well-formed");
                    assert!(view.has_valid_checksum());
                }
            }
            let mut again = [0; icmp_error::MAX_LEN];
            assert!(icmp_error::build(reason, source, error, &mut again).is_err());
        }
    }
}
