//! From IPv6 to IPv4 (RFC 7915 section 5).

use super::*;

/// Packets as short as this may be fragmented on their way: who sent them hears of no smaller MTU.
const LEAST_MTU: i32 = 1260;
impl Code<'_> {
    pub(super) fn six_to_four(&mut self) {
        let (malformed, headers, icmp) =
            (self.refused(Refusal::Malformed), self.refused(Refusal::Headers), self.refused(Refusal::Icmp));
        self.begin();
        self.own_end();
        self.read(0, V6, IPV6);
        let [errors, whole, sized, upper, done] = std::array::from_fn(|_| self.code.label());
        let code = &mut self.code;
        code.load(Byte, R1, R10, V6);
        code.shift_right(R1, 4);
        code.jump_if(R1, NotEqual, 6, malformed);
        code.load(Half, R1, R10, V6 + 4);
        code.network_order(R1, 16);
        code.add(R1, i32::from(IPV6));
        self.as_long();
        let code = &mut self.code;
        code.load(Byte, R8, R10, V6 + 6);
        code.store_value(Word, R10, UPPER, IPV6.into());
        code.jump_if(R8, NotEqual, FRAGMENTED, whole);
        self.read(IPV6.into(), FRAGMENT, FRAGMENT_HEADER);
        let code = &mut self.code;
        code.load(Byte, R8, R10, FRAGMENT);
        code.load(Half, R1, R10, FRAGMENT + 2);
        code.network_order(R1, 16);
        code.copy(R2, R1);
        code.and(R2, 0xfff8);
        code.store(Word, R10, OFFSET, R2);
        code.and(R1, 0xfff9);
        code.store(Word, R10, IS_FRAGMENT, R1);
        code.store_value(Word, R10, UPPER, (IPV6 + FRAGMENT_HEADER).into());
        code.bind(whole);
        for extension in EXTENSIONS {
            code.jump_if(R8, Equal, extension, headers);
        }
        code.jump_if(R8, Equal, ICMP, icmp);
        code.store(Word, R10, PROTOCOL, R8);
        self.leave_udp_gso();
        self.destination_to_four();

        // Errors have addresses of their own.
        let code = &mut self.code;
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, NotEqual, ICMPV6, upper);
        code.load(Word, R1, R10, OFFSET);
        code.jump_if(R1, NotEqual, 0, upper);
        self.read_upper(ICMP6, 8);
        self.code.load(Byte, R1, R10, ICMP6);
        self.code.jump_if(R1, Less, 128, errors);
        self.code.bind(upper);
        self.source_to_four();
        self.ipv4_header(0);
        self.upper_of_six(sized);

        // A header and that of a fragment less.
        self.code.bind(sized);
        self.change_version(ETHERTYPE_IPV4);
        let code = &mut self.code;
        code.load(Word, R1, R10, UPPER);
        code.jump_if(R1, Equal, i32::from(IPV6), done);
        self.room(-i32::from(FRAGMENT_HEADER));
        self.code.bind(done);
        self.write(0, V4, IPV4);
        self.correct_upper(IPV4);
        self.hand_over(TO_FOUR);

        self.code.bind(errors);
        self.error_to_four();
    }

    /// The IPv4 header but for its addresses, of a packet that gets so much shorter beside its headers.
    pub(super) fn ipv4_header(&mut self, shorter: i32) {
        let code = &mut self.code;
        let [short, fragment, may_be_cut, single, icmp, made] = std::array::from_fn(|_| code.label());
        code.store_value(Byte, R10, V4, 0x45);
        code.load(Half, R1, R10, V6);
        code.network_order(R1, 16);
        code.shift_right(R1, 4);
        code.store(Byte, R10, V4 + 1, R1);
        code.load(Word, R1, R10, LENGTH);
        code.load(Word, R2, R10, UPPER);
        code.calculate(Operation::Subtract, R1, R2);
        code.add(R1, i32::from(IPV4) - shorter);
        // R8 = how long the packets are that it is cut into, of a GSO packet with headers of IPv4 and TCP.
        code.copy(R8, R1);
        code.load(Word, R2, R6, context::GSO_SIZE);
        code.jump_if(R2, Equal, 0, single);
        code.copy(R8, R2);
        code.add(R8, 40);
        code.bind(single);
        // Longer than the field can say: what it is cut into gets lengths of its own.
        code.jump_if(R1, Less, 0x1_0000, short);
        code.set(R1, 0);
        code.bind(short);
        code.network_order(R1, 16);
        code.store(Half, R10, V4 + 2, R1);
        code.load(Byte, R1, R10, V6 + 7);
        code.store(Byte, R10, V4 + 8, R1);
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, Equal, ICMPV6, icmp);
        code.store(Byte, R10, V4 + 9, R1);
        let numbered = code.label();
        code.jump(numbered);
        code.bind(icmp);
        code.store_value(Byte, R10, V4 + 9, ICMP);
        code.bind(numbered);
        code.load(Word, R1, R10, UPPER);
        code.jump_if(R1, NotEqual, i32::from(IPV6), fragment);
        code.call(Helper::GetPrandomU32);
        code.store(Half, R10, V4 + 4, R0);
        code.store_value(Half, R10, V4 + 6, 0);
        code.jump_if(R8, Less, LEAST_MTU + 1, may_be_cut);
        code.store_value(Half, R10, V4 + 6, i32::from(wire::ipv4::DONT_FRAGMENT.to_be()));
        code.bind(may_be_cut);
        code.jump(made);
        code.bind(fragment);
        code.load(Half, R1, R10, FRAGMENT + 6);
        code.store(Half, R10, V4 + 4, R1);
        code.load(Word, R1, R10, OFFSET);
        code.shift_right(R1, 3);
        code.load(Word, R2, R10, IS_FRAGMENT);
        code.and(R2, 1);
        code.shift_left(R2, 13);
        code.calculate(Operation::Or, R1, R2);
        code.network_order(R1, 16);
        code.store(Half, R10, V4 + 6, R1);
        code.bind(made);
        self.sum_of_header(V4);
    }

    /// How checksums behind the header change.
    fn upper_of_six(&mut self, end: Label) {
        let [icmp, first, whole, known] = std::array::from_fn(|_| self.code.label());
        let no_checksum = self.refused(Refusal::NoChecksum);
        let code = &mut self.code;
        code.load(Word, R1, R10, OFFSET);
        code.jump_if(R1, Equal, 0, first);
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, NotEqual, ICMPV6, end);
        self.unmark();
        let code = &mut self.code;
        code.jump(end);
        code.bind(first);
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, Equal, ICMPV6, icmp);
        self.difference((V6 + SOURCE_6, 32), (V4 + SOURCE_4, 8));
        self.code.jump(end);

        // Of echo requests and replies: the pseudo-header goes, and another type comes.
        let code = &mut self.code;
        code.bind(icmp);
        code.load(Double, R1, R10, ICMP6);
        code.store(Double, R10, ICMP4, R1);
        self.echo_type(ICMP6, ICMP4, ECHO_TO_FOUR);
        let code = &mut self.code;
        code.load(Word, R1, R10, IS_FRAGMENT);
        code.jump_if(R1, Equal, 0, whole);
        code.load(Word, R1, R6, context::MARK);
        code.add(R1, -i32::from(IPV6));
        code.jump_if(R1, Less, 0x1_0000, known);
        code.jump(no_checksum);
        code.bind(whole);
        code.load(Word, R1, R10, LENGTH);
        code.load(Word, R2, R10, UPPER);
        code.calculate(Operation::Subtract, R1, R2);
        code.bind(known);
        self.pseudo_header();
        self.difference((V6 + SOURCE_6, 32 + 8 + 8), (ICMP4, 8));
        self.unmark();
    }

    /// What checksums of ICMPv6 cover beside addresses, for a message of R1 bytes.
    pub(super) fn pseudo_header(&mut self) {
        let code = &mut self.code;
        code.network_order(R1, 32);
        code.store(Word, R10, PSEUDO, R1);
        code.store_value(Word, R10, PSEUDO + 4, ICMPV6.to_be());
    }

    /// Checksums behind a header that ends there; and the new type, where there is one.
    pub(super) fn correct_upper(&mut self, upper: i16) {
        let [tcp, udp, icmp, end] = std::array::from_fn(|_| self.code.label());
        let code = &mut self.code;
        code.load(Word, R1, R10, OFFSET);
        code.jump_if(R1, NotEqual, 0, end);
        code.load(Word, R1, R10, PROTOCOL);
        code.jump_if(R1, Equal, TCP, tcp);
        code.jump_if(R1, Equal, UDP, udp);
        code.jump_if(R1, Equal, if upper == IPV4 { ICMPV6 } else { ICMP }, icmp);
        code.jump(end);
        code.bind(tcp);
        self.correct(upper, 16, 0);
        self.code.jump(end);
        self.code.bind(udp);
        self.correct(upper, 6, MAY_BE_ABSENT);
        self.code.jump(end);
        self.code.bind(icmp);
        self.correct(upper, 2, 0);
        self.write(upper.into(), if upper == IPV4 { ICMP4 } else { ICMP6 }, 1);
        self.code.bind(end);
    }
}
