//! Views, byte arrays, and what writes do to checksums.

use script::checksum::Layout;
use script::packet::Packet;
use wire::checksum::{Sum, TransportChecksum};

use crate::host::{Bench, checksums_are_right, frame, ipv4, ipv6, tcp, udp};

fn an_ipv4_frame() -> Packet {
    frame(0x0800, &[], &ipv4(17, &udp(1000, 2000, b"hello!")))
}

#[test]
fn what_lies_outside_is_an_error_with_the_place() {
    let mut bench = Bench::body("p:raw(40, 10)");
    assert_eq!(
        bench.fails(&mut an_ipv4_frame()),
        "test.lua:2: offset 40, length 10: the packet has 48 octets"
    );
    let mut bench = Bench::body("p:raw(0, 6):raw(4, 3)");
    assert_eq!(bench.fails(&mut an_ipv4_frame()), "test.lua:2: offset 4, length 3: the view has 6 octets");
    let mut bench = Bench::body("local octet = p:get()[48]");
    assert_eq!(
        bench.fails(&mut an_ipv4_frame()),
        "test.lua:2: offset 48, length 1: the packet has 48 octets"
    );
    for wrong in ["p:raw(-1, 1)", "p:raw(0, -1)", "p:raw(1 << 62, 1 << 62)", "p:raw(0, math.mininteger)"] {
        assert!(Bench::body(wrong).fails(&mut an_ipv4_frame()).contains("the packet has 48"), "{wrong}");
    }
}

#[test]
fn a_view_of_an_earlier_packet_is_refused() {
    let source = "function process_packet(p)
        if old then old:set(255) end
        old = p:data(packet_eth):dmac()
        return NF_ACCEPT
    end";
    let mut bench = Bench::new(source);
    bench.pass(&mut an_ipv4_frame());
    let mut later = an_ipv4_frame();
    assert!(bench.fails(&mut later).starts_with("test.lua:2: this packet is gone"));
    assert_eq!(later, an_ipv4_frame());
}

#[test]
fn the_whole_packet_stays_when_it_grows_and_its_parts_do_not() {
    let grow = "local ip, octets, part = p:data(packet_eth):data(packet_ip), p:get(), p:raw(0, #p)
        p:grow(#p, 2)
        assert(#p == 50 and p:data(packet_eth):data(packet_ip):tot_len():get() == 36)\n";
    Bench::body(grow).pass(&mut an_ipv4_frame());
    for part in ["ip:ttl():get()", "local octet = octets[0]", "part:get()"] {
        let message = Bench::body(&format!("{grow}{part}")).fails(&mut an_ipv4_frame());
        assert!(message.starts_with("test.lua:5: this packet is gone"), "{part}: {message}");
    }
    let source = "function process_packet(p)
        if old then old:grow(#old, 2) end
        old = p
        return NF_ACCEPT
    end";
    let mut bench = Bench::new(source);
    bench.pass(&mut an_ipv4_frame());
    assert!(bench.fails(&mut an_ipv4_frame()).starts_with("test.lua:2: this packet is gone"));
}

#[test]
fn what_is_no_view_or_has_no_such_field_is_told() {
    for (body, message) in [
        ("ip:sport()", "a view packet_ip has no sport"),
        ("ip:ttl():ttl()", "a field packet_ip:ttl has no ttl"),
        ("p.data(packet_eth)", "a view is wanted, not a protocol: view:data(protocol), with a colon"),
        ("packet_ip.ttl = 1", "packet_ip: nothing can be written to it; fields have set()"),
        ("ip.ttl = 1", "view packet_ip: nothing can be written to it; fields have set()"),
        (
            "p:data(ip)",
            "data: view packet_ip is not a protocol: is its name written correctly, and registered?",
        ),
        ("p:data()", "a view packet_raw has no payload field, which data() is"),
        ("ip:grow(20, 2)", "only the whole packet can grow and shrink"),
    ] {
        let body = format!("local ip = p:data(packet_eth):data(packet_ip)\n{body}");
        assert_eq!(Bench::body(&body).fails(&mut an_ipv4_frame()), format!("test.lua:3: {message}"));
    }
    Bench::body("assert(tostring(packet_ip) == 'packet_ip' and tostring(p) == 'view packet_raw')")
        .pass(&mut an_ipv4_frame());
}

#[test]
fn what_lies_behind_too_many_extension_headers_is_not_taken_for_another_packet() {
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let with = |count: usize| {
        let mut headers = vec![options(60); count - 1].concat();
        headers.extend(options(17));
        let mut ip = ipv6(59, &[]);
        (ip[5], ip[6]) = (8 * count as u8 + 8, 60);
        frame(0x86dd, &[], &[ip, headers, udp(1000, 2000, b"")].concat())
    };
    let mut bench = Bench::body("nf.log(p:data(packet_eth):data(packet_ip6):data(packet_tcp))");
    bench.pass(&mut with(8));
    assert_eq!(bench.log(), ["nil"]);
    assert_eq!(
        bench.fails(&mut with(9)),
        "test.lua:2: more than eight headers lie between: what is behind them is not looked for"
    );
}

#[test]
fn a_misspelt_protocol_is_told() {
    let message = Bench::body("p:data(packet_ethernet)").fails(&mut an_ipv4_frame());
    assert!(message.starts_with("test.lua:2: data: nil is not a protocol"), "{message}");
}

#[test]
fn byte_arrays_are_views_and_know_tostring_length_and_concat() {
    let mut bench = Bench::body(
        "local ip = p:data(packet_eth):data(packet_ip)
        local payload = ip:data(packet_udp):data():get()
        payload[0] = 0x48
        local zero = bytes.new_from_string('x')
        local all = payload .. zero
        nf.log(#payload, tostring(payload), #zero, #all, all[6], all == payload .. bytes.new_from_string('x'))
        nf.log(tostring(bytes.many_to_one { payload, bytes.copy '-', payload }), payload .. '!')
        all[0] = 0x4a
        nf.log(tostring(payload), tostring(all):sub(1, 2))",
    );
    let mut packet = an_ipv4_frame();
    bench.pass(&mut packet);
    assert_eq!(bench.log(), ["6 Hello! 2 8 120 true", "Hello!-Hello! Hello!!", "Hello! Je"]);
    assert!(checksums_are_right(packet.bytes()));
}

#[test]
fn a_byte_array_becomes_a_packet_and_the_other_way_round() {
    let mut bench = Bench::body(
        "local ip = p:data(packet_eth):data(packet_ip)
        local copy = bytes.copy(bytes.to_bytes(ip, packet_ip))
        local other = bytes.to_packet(copy, packet_ip)
        other:daddr():set('10.9.8.7')
        other:data(packet_udp):dport():set(53)
        nf.fix_checksums(copy, packet_ip)
        nf.create_packet(p, copy)
        nf.log(ip:daddr():get(), other:daddr():get(), bytes.to_packet(bytes.new(19), packet_ip))",
    );
    let mut packet = an_ipv4_frame();
    bench.pass(&mut packet);
    assert_eq!(packet, an_ipv4_frame());
    assert_eq!(bench.log(), ["192.0.2.1 10.9.8.7 nil"]);
    let sent = bench.world.borrow().sent[0].clone();
    assert_eq!(sent[16..20], [10, 9, 8, 7]);
    let mut whole = packet.bytes()[..14].to_vec();
    whole.extend(sent);
    assert!(checksums_are_right(&whole));
}

#[test]
fn values_that_do_not_fit_are_told() {
    for (body, message) in [
        ("ip:ttl():set(256)", "256 does not fit into 8 bits"),
        ("ip:ttl():set(-1)", "-1 does not fit into 8 bits"),
        ("ip:ttl():set('64')", "int takes an integer of 0 or more, not \"64\""),
        ("ip:saddr():set('10.0.0')", "ipv4 takes \"192.0.2.1\", not \"10.0.0\""),
        ("ip:df():set(1)", "bool takes true or false, not 1"),
        ("p:raw(0, 6):set('12345')", "the field has 6 octets, the value 5"),
        ("p:raw(0, 6):set(256)", "raw takes a number from 0 to 255"),
    ] {
        let mut bench = Bench::body(&format!("local ip = p:data(packet_eth):data(packet_ip) {body}"));
        let said = bench.fails(&mut an_ipv4_frame());
        assert!(said.starts_with(&format!("test.lua:2: {message}")), "{said}");
    }
}

#[test]
fn what_there_is_not_of_a_link_header_is_an_error() {
    let ip = ipv4(17, &udp(1, 2, b""));
    let without = || Packet::of_ip(&ip, TransportChecksum::Complete);
    let with_source = || {
        let mut packet = without();
        packet.put_source([2, 0, 0, 0, 0, 7]);
        packet
    };
    for body in ["eth:smac():get()", "p:raw(6, 6):get()[5]", "p:get()[11]", "tostring(p:raw(6, 6):get())"] {
        let mut bench = Bench::body(&format!("local eth = p:data(packet_eth) nf.log({body})"));
        assert!(bench.fails(&mut without()).contains("no link header here to read"), "{body}");
        bench.pass(&mut with_source());
        assert!(bench.log()[0].ends_with(['7', '\u{7}']), "{body}");
    }
    for (body, error) in [
        ("local x = p:data(packet_eth):dmac():get()", "read"),
        ("local x = p:raw(5, 1):get()[0]", "read"),
        ("p:data(packet_eth):dmac():set('01:02:03:04:05:06')", "write"),
        ("p:data(packet_eth):smac():set('01:02:03:04:05:06')", "write"),
        ("p:raw(12, 4):set(0x45)", "write"),
        ("p:get()[0] = 1", "write"),
    ] {
        let said = Bench::body(body).fails(&mut with_source());
        assert!(said.contains(&format!("no link header here to {error}")), "{body}: {said}");
    }
    // Of the whole packet it is zeros, and the EtherType is there.
    let body = "assert(#tostring(p:get()) == #p and p:data(packet_eth):type():get() == 0x800)
        p:raw(14, 2):set(0x45)";
    let mut packet = without();
    Bench::body(body).pass(&mut packet);
    assert_eq!(packet.real()[..2], [0x45, 0x45]);
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut ip = ipv4(17, &udp(1000, 2000, b"hello"));
    ip[10] ^= 0xff;
    ip[26] ^= 0xff;
    let wrong = |bytes: &[u8]| {
        let layout = Layout::of_frame(bytes).unwrap();
        let transport = script::checksum::transport_sum(bytes, &layout, &layout.transport.unwrap());
        !Sum::of(&bytes[14..34]).is_valid() && !transport.is_valid()
    };
    let mut packet = frame(0x0800, &[], &ip);
    Bench::body("p:data(packet_eth):data(packet_ip):daddr():set('10.0.0.1')").pass(&mut packet);
    assert!(wrong(packet.bytes()));
}

#[test]
fn a_udp_checksum_of_zero_stays_and_one_never_becomes_zero() {
    let mut ip = ipv4(17, &udp(1000, 2000, b"hello!"));
    ip[26..28].fill(0);
    let mut packet = frame(0x0800, &[], &ip);
    Bench::body("p:data(packet_eth):data(packet_ip):daddr():set('10.0.0.1')").pass(&mut packet);
    assert_eq!(packet.bytes()[40..42], [0, 0]);

    let mut bench = Bench::new(
        "at = 0
        function process_packet(p) p:raw(42, 2):set(string.pack('>I2', at)) at = at + 1 return NF_ACCEPT end",
    );
    let mut packet = an_ipv4_frame();
    for _ in 0..=0xffff {
        bench.pass(&mut packet);
        assert_ne!(packet.bytes()[40..42], [0, 0]);
    }
}

#[test]
fn a_partial_checksum_follows_addresses_alone() {
    let mut ip = ipv6(6, &tcp(1000, 80, 0x10, &[], b"payload"));
    let pseudo = |ip: &[u8]| {
        let packet = wire::ipv6::Packet::parse(ip).unwrap();
        packet.pseudo_header(packet.payload().len() as u32, 6).value()
    };
    let sum = pseudo(&ip);
    ip[56..58].copy_from_slice(&sum.to_be_bytes());
    let mut packet = Packet::of_ip(&ip, TransportChecksum::Partial);
    Bench::body(
        "local ip = p:data(packet_eth):data(packet_ip6)
        ip:saddr():set('2001:db8:ffff::99')
        ip:data(packet_tcp):dport():set(443)
        ip:data(packet_tcp):data():set('changed')
        p:grow(#p, 2)",
    )
    .pass(&mut packet);
    let now = pseudo(packet.real());
    assert_eq!(packet.real()[56..58], now.to_be_bytes());
    assert_ne!(now, sum);
}

#[test]
fn a_checksum_field_is_written_as_it_is_given() {
    let mut packet = an_ipv4_frame();
    Bench::body("p:data(packet_eth):data(packet_ip):check():set(0x1234)").pass(&mut packet);
    assert_eq!(packet.bytes()[24..26], [0x12, 0x34]);
    let mut back = packet.bytes().to_vec();
    back[24..26].copy_from_slice(&an_ipv4_frame().bytes()[24..26]);
    assert_eq!(back, an_ipv4_frame().bytes());
}

#[test]
fn packets_grow_and_shrink_with_lengths_and_checksums() {
    for (ethertype, ip) in [
        (0x0800, ipv4(17, &udp(1000, 2000, b"hello!"))),
        (0x0800, ipv4(6, &tcp(1000, 2000, 0x18, &[], b"hello!"))),
        (0x86dd, ipv6(17, &udp(1000, 2000, b"hello!"))),
        (0x86dd, ipv6(60, &[&[6, 0, 1, 4, 0, 0, 0, 0][..], &tcp(1000, 2000, 0x18, &[], b"hello!")].concat())),
    ] {
        let original = frame(ethertype, &[3], &ip);
        let mut packet = original.clone();
        let mut bench = Bench::body(
            "local length = #p
            local before = p:raw(0, 4)
            p:grow(length - 3, 4)
            assert(#p == length + 4)
            assert(not pcall(function() return before:get() end), 'earlier views are gone')
            p:raw(length - 3, 4):set('abcd')
            p:shrink(length - 6, 4)",
        );
        bench.pass(&mut packet);
        assert!(packet.bytes().ends_with(b"bcdlo!"), "{:?}", packet.bytes());
        assert_eq!(packet.bytes().len(), original.bytes().len());
        assert!(checksums_are_right(packet.bytes()));
        let mut packet = original.clone();
        Bench::body("p:grow(#p, 100)").pass(&mut packet);
        let layout = Layout::of_frame(packet.bytes()).unwrap();
        assert_eq!(layout.end, packet.bytes().len(), "the IP length follows");
        assert!(checksums_are_right(packet.bytes()));
    }
}

#[test]
fn growing_where_it_cannot_be_is_refused_and_changes_nothing() {
    for body in [
        "p:grow(#p, 3)",
        "p:grow(20, 2)",
        "p:grow(36, 2)",
        "p:shrink(#p - 2, 4)",
        "p:grow(#p, 65536)",
        "p:grow(1000, 2)",
        "p:shrink(30, 8)",
        "p:raw(0, 20):grow(0, 2)",
        "p:grow(#p, -2)",
    ] {
        let mut packet = an_ipv4_frame();
        let message = Bench::body(body).fails(&mut packet);
        assert_eq!(packet, an_ipv4_frame(), "{body}: {message}");
    }
}
