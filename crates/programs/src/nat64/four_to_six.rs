//! From IPv4 to IPv6 (RFC 7915 section 4).

use super::*;

impl Code<'_> {
    pub(super) fn four_to_six(&mut self) {
        let (malformed, headers, icmp) =
            (self.refused(Refusal::Malformed), self.refused(Refusal::Headers), self.refused(Refusal::Icmp));
        self.begin();
        self.own_end();
        self.read(0, V4, IPV4);
        let [errors, upper, sized, done] = std::array::from_fn(|_| self.code.label());
        let code = &mut self.code;
        code.load(Byte, R1, R10, V4);
        code.copy(R2, R1);
        code.shift_right(R2, 4);
        code.jump_if(R2, NotEqual, 4, malformed);
        code.jump_if(R1, NotEqual, 0x45, headers);
        code.load(Half, R1, R10, V4 + 2);
        code.network_order(R1, 16);
        self.as_long();
        let code = &mut self.code;
        code.load(Half, R1, R10, V4 + 6);
        code.network_order(R1, 16);
        code.copy(R2, R1);
        code.and(R2, 0x1fff);
        code.shift_left(R2, 3);
        code.store(Word, R10, OFFSET, R2);
        code.and(R1, 0x3fff);
        code.store(Word, R10, IS_FRAGMENT, R1);
        code.load(Byte, R1, R10, V4 + 9);
        code.jump_if(R1, Equal, ICMPV6, icmp);
        // These would be taken for extension headers.
        for extension in EXTENSIONS {
            code.jump_if(R1, Equal, extension, headers);
        }
        code.store(Word, R10, PROTOCOL, R1);
        code.store_value(Word, R10, UPPER, IPV4.into());
        self.leave_udp_gso();
        self.destination_to_six();
        let code = &mut self.code;
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, NotEqual, ICMP, upper);
        code.load(Word, R1, R10, OFFSET);
        code.jump_if(R1, NotEqual, 0, upper);
        self.read_upper(ICMP4, 8);
        let code = &mut self.code;
        code.load(Byte, R1, R10, ICMP4);
        code.jump_if(R1, Equal, 0, upper);
        code.jump_if(R1, NotEqual, 8, errors);
        code.bind(upper);
        self.source_to_six();
        self.ipv6_header(0);
        self.upper_of_four(sized);

        self.code.bind(sized);
        self.change_version(ETHERTYPE_IPV6);
        let code = &mut self.code;
        let whole = code.label();
        code.load(Word, R1, R10, IS_FRAGMENT);
        code.jump_if(R1, Equal, 0, whole);
        self.room(FRAGMENT_HEADER.into());
        self.write(0, V6, IPV6);
        self.write(IPV6.into(), FRAGMENT, FRAGMENT_HEADER);
        self.correct_upper(IPV6 + FRAGMENT_HEADER);
        self.code.jump(done);
        self.code.bind(whole);
        self.write(0, V6, IPV6);
        self.correct_upper(IPV6);
        self.code.bind(done);
        self.hand_over(TO_SIX);

        self.code.bind(errors);
        self.error_to_six();
    }

    /// The IPv6 header but for its addresses, and a fragment's, of a packet that gets so much longer beside its headers.
    pub(super) fn ipv6_header(&mut self, longer: i32) {
        let code = &mut self.code;
        let [short, icmp, whole] = std::array::from_fn(|_| code.label());
        code.store_value(Word, R10, V6, 0);
        code.load(Byte, R1, R10, V4 + 1);
        code.shift_left(R1, 4);
        code.calculate(Operation::Or, R1, 0x6000);
        code.network_order(R1, 16);
        code.store(Half, R10, V6, R1);
        code.load(Word, R8, R10, LENGTH);
        code.add(R8, longer - i32::from(IPV4));
        code.load(Byte, R1, R10, V4 + 8);
        code.store(Byte, R10, V6 + 7, R1);
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, NotEqual, ICMP, icmp);
        code.set(R1, ICMPV6);
        code.bind(icmp);
        code.load(Word, R2, R10, IS_FRAGMENT);
        code.jump_if(R2, Equal, 0, whole);
        code.add(R8, i32::from(FRAGMENT_HEADER));
        code.store(Byte, R10, FRAGMENT, R1);
        code.store_value(Byte, R10, FRAGMENT + 1, 0);
        code.load(Word, R3, R10, OFFSET);
        code.shift_right(R2, 13);
        code.calculate(Operation::Or, R2, R3);
        code.network_order(R2, 16);
        code.store(Half, R10, FRAGMENT + 2, R2);
        code.store_value(Half, R10, FRAGMENT + 4, 0);
        code.load(Half, R2, R10, V4 + 4);
        code.store(Half, R10, FRAGMENT + 6, R2);
        code.set(R1, FRAGMENTED);
        code.bind(whole);
        code.store(Byte, R10, V6 + 6, R1);
        code.jump_if(R8, Less, 0x1_0000, short);
        code.set(R8, 0);
        code.bind(short);
        code.network_order(R8, 16);
        code.store(Half, R10, V6 + 4, R8);
    }

    /// How checksums behind the header change.
    fn upper_of_four(&mut self, end: Label) {
        let [icmp, first, udp, other, whole, known] = std::array::from_fn(|_| self.code.label());
        let (leave, no_checksum) = (self.leave, self.refused(Refusal::NoChecksum));
        let code = &mut self.code;
        code.load(Word, R1, R10, OFFSET);
        code.jump_if(R1, Equal, 0, first);
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, NotEqual, ICMP, end);
        self.unmark();
        let code = &mut self.code;
        code.jump(end);
        code.bind(first);
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, Equal, ICMP, icmp);
        code.jump_if(R1, Equal, UDP, udp);
        code.bind(other);
        self.difference((V4 + SOURCE_4, 8), (V6 + SOURCE_6, 32));
        let code = &mut self.code;
        code.jump(end);

        // UDP has to have a checksum now. Of a fragment nobody can tell it; otherwise we do, in the way of the device.
        code.bind(udp);
        self.read_upper(ICMP4, 8);
        let code = &mut self.code;
        code.load(Half, R1, R10, ICMP4 + 6);
        code.jump_if(R1, NotEqual, 0, other);
        code.load(Word, R1, R10, IS_FRAGMENT);
        code.jump_if(R1, Equal, 0, leave);
        code.jump(no_checksum);

        // Echo requests and replies, which alone come to here.
        code.bind(icmp);
        code.load(Double, R1, R10, ICMP4);
        code.store(Double, R10, ICMP6, R1);
        self.echo_type(ICMP4, ICMP6, ECHO_TO_SIX);
        let code = &mut self.code;
        code.load(Word, R1, R10, IS_FRAGMENT);
        code.jump_if(R1, Equal, 0, whole);
        code.load(Word, R1, R6, context::MARK);
        code.add(R1, -i32::from(IPV4));
        code.jump_if(R1, Less, 0x1_0000, known);
        code.jump(no_checksum);
        code.bind(whole);
        code.load(Word, R1, R10, LENGTH);
        code.add(R1, -i32::from(IPV4));
        code.bind(known);
        self.pseudo_header();
        self.difference((ICMP4, 8), (V6 + SOURCE_6, 32 + 8 + 8));
        self.unmark();
    }
}
