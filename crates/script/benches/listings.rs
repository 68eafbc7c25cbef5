//! What a packet costs in the user tier. The thesis's translation (listing 4.1) is the measure: one address written.

use std::hint::black_box;

use divan::Bencher;
use script::host::NoHost;
use script::packet::Packet;
use script::vm::{Limits, Machine, Script};
use wire::checksum::TransportChecksum;

fn main() {
    divan::main();
}

fn packet() -> Packet {
    let mut bytes = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 192, 168, 0, 2, 192, 0, 2, 1];
    bytes.extend([3, 232, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 16, 0, 0, 0, 0, 0]);
    Packet::of_ip(&bytes, TransportChecksum::Complete)
}

fn each_packet(bencher: Bencher<'_, '_>, source: &str, function: &str) {
    let mut machine = Machine::new(NoHost, Limits::default());
    let script = Script { function: function.into(), ..Script::new("bench.lua", source) };
    let rule = machine.load(script).expect("the script is right");
    let mut packet = packet();
    bencher.bench_local(|| {
        let (verdict, error) = machine.run(rule, black_box(&mut packet));
        assert_eq!(error, None);
        verdict
    });
}

const NAT: &str = include_str!("../../../examples/scripts/seed/listing_4_1.lua");

#[divan::bench(sample_count = 200, sample_size = 1000)]
fn source_address_of_listing_4_1(bencher: Bencher<'_, '_>) {
    each_packet(bencher, NAT, "process_packet_snat");
}

#[divan::bench(sample_count = 200, sample_size = 1000)]
fn empty(bencher: Bencher<'_, '_>) {
    each_packet(bencher, "function process_packet(p) return XT_CONTINUE end", "process_packet");
}

#[divan::bench(sample_count = 200, sample_size = 1000)]
fn ten_octets_of_a_byte_array(bencher: Bencher<'_, '_>) {
    let source = "function process_packet(p)
        local octets, sum = p:get(), 0
        for at = 14, 23 do sum = sum + octets[at] end
        return XT_CONTINUE
    end";
    each_packet(bencher, source, "process_packet");
}

#[divan::bench(sample_count = 200, sample_size = 1000)]
fn ports_by_data(bencher: Bencher<'_, '_>) {
    let source = "function process_packet(p)
        local tcp = p:data(packet_eth):data(packet_ip):data(packet_tcp)
        if tcp:dport():get() == 22 then return NF_DROP end
        return XT_CONTINUE
    end";
    each_packet(bencher, source, "process_packet");
}
