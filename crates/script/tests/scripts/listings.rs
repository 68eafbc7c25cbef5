//! The listings of the thesis, as printed.

use script::packet::Packet;
use script::vm::{ErrorKind, Limits, Script, Verdict};
use wire::checksum::TransportChecksum;

use crate::host::{Bench, checksums_are_right, frame, ipv4, tcp, udp};

macro_rules! listing {
    ($file:literal) => {
        include_str!(concat!("../../../../examples/scripts/seed/listing_", $file, ".lua"))
    };
}

/// Runs a listing whose function returns nothing, the ellipsis being where it would.
fn changed_by(listing: &str, more: &str) -> (Vec<u8>, Vec<String>) {
    // What a listing leaves in global variables is told by a function around its own.
    let source = format!(
        "{listing}\nlocal original = process_packet\nfunction process_packet(p) original(p) {more} end"
    );
    let mut bench = Bench::new(&source);
    let mut packet = frame(0x0800, &[], &ipv4(17, &udp(1000, 2000, b"hello")));
    let (verdict, error) = bench.run(&mut packet);
    let error = error.expect("it returns nothing");
    assert_eq!((verdict, error.kind), (Verdict::Drop, ErrorKind::Verdict), "{error}");
    (packet.bytes().to_vec(), bench.log())
}

#[test]
fn listing_3_1_divides_a_frame() {
    let (_, log) = changed_by(listing!("3_1"), "nf.log(#dmac, #smac, #type, type:get()[0], type:get()[1])");
    assert_eq!(log, ["6 6 2 8 0"]);
}

#[test]
fn listing_3_2_reads_octets() {
    let (_, log) = changed_by(listing!("3_2"), "nf.log(byte1, byte2, byte3, byte4, byte5, byte6)");
    assert_eq!(log, ["2 0 0 0 0 2"]);
}

#[test]
fn listing_3_3_fills_an_address() {
    let (bytes, _) = changed_by(listing!("3_3"), "");
    assert_eq!(bytes[..7], [255, 255, 255, 255, 255, 255, 1]);
}

#[test]
fn listing_3_4_writes_single_octets() {
    let (bytes, _) = changed_by(listing!("3_4"), "");
    assert_eq!(bytes[..7], [255, 0, 255, 255, 255, 255, 1]);
}

#[test]
fn listing_3_5_makes_an_ethernet_object() {
    let (_, log) = changed_by(listing!("3_5"), "nf.log(eth, eth:type():get())");
    assert_eq!(log, ["view packet_eth 2048"]);
}

#[test]
fn listing_3_6_writes_the_octets_that_are_given() {
    let (bytes, _) = changed_by(listing!("3_6"), "");
    assert_eq!(bytes[..7], [255, 255, 255, 255, 255, 2, 1], "five octets, as printed");
}

#[test]
fn listing_3_7_reads_addresses() {
    let (_, log) = changed_by(listing!("3_7"), "nf.log(saddr, daddr)");
    assert_eq!(log, ["192.168.0.2 192.0.2.1"]);
}

#[test]
fn listing_3_8_declares_a_protocol() {
    let source = concat!(
        listing!("3_8"),
        "function process_packet(p)
            local eth = p:data(packet_eth_dyn)
            nf.log(#eth:vlan(), #eth:type(), #eth:data(), eth:dmac():get()[0])
            nf.log(eth:data(packet_ip) ~= nil)
            return NF_ACCEPT
        end"
    );
    let mut bench = Bench::new(source);
    let ip = ipv4(17, &udp(1000, 2000, &[0; 40]));
    assert_eq!(bench.pass(&mut frame(0x0800, &[], &ip)), Verdict::Accept);
    assert_eq!(bench.log(), ["0 2 68 2".to_owned(), "true".into()]);
    // Offsets are added: 96 + 128 and 112 + 144 bits, as printed.
    assert_eq!(bench.pass(&mut frame(0x0800, &[5], &ip)), Verdict::Accept);
    assert_eq!(bench.log(), [format!("4 2 {} 2", 14 + 4 + 68 - 32), "false".into()]);
}

#[test]
fn listing_4_1_translates_addresses() {
    for function in ["process_packet_snat", "process_packet_dnat"] {
        for (protocol, transport) in [
            (6, tcp(1000, 80, 2, &[], b"request")),
            (17, udp(1000, 53, b"query")),
            (1, vec![8, 0, 0, 0, 0, 1, 0, 1]),
        ] {
            for made_up in [false, true] {
                let script = Script { function: function.into(), ..Script::new("nat.lua", listing!("4_1")) };
                let mut bench = Bench::with(script, Limits::default());
                let ip = ipv4(protocol, &transport);
                let mut packet = if made_up {
                    Packet::of_ip(&ip, TransportChecksum::Complete)
                } else {
                    frame(0x0800, &[], &ip)
                };
                assert_eq!(bench.pass(&mut packet), Verdict::Continue);
                let parsed = wire::ipv4::Packet::parse(&packet.bytes()[14..]).unwrap();
                let addresses = [parsed.source().to_string(), parsed.destination().to_string()];
                match function {
                    "process_packet_snat" => assert_eq!(addresses, ["10.0.0.1", "192.0.2.1"]),
                    _ => assert_eq!(addresses, ["192.168.0.2", "192.168.0.2"]),
                }
                assert!(checksums_are_right(packet.bytes()), "{function}, protocol {protocol}");
            }
        }
    }
}

#[test]
fn listing_4_1_drops_what_is_not_ipv4() {
    let script = Script { function: "process_packet_snat".into(), ..Script::new("nat.lua", listing!("4_1")) };
    let mut bench = Bench::with(script, Limits::default());
    assert_eq!(bench.pass(&mut frame(0x0806, &[], &[0; 28])), Verdict::Drop);
}
