//! ICMP errors, and the packets that they quote (RFC 7915 sections 4.2, 4.3, 5.2, 5.3).
//!
//! In NAT64, one about a packet of a host is the host's, whichever router on this side sends it: that has no address of the
//! pool, and the kernel would put the uplink's in its place. One from a router whose address is private, on the other side, comes from
//! the address that RFC 7600 has for routers without one; so does one for a CLAT from a router that has IPv6 alone.

use super::*;

/// RFC 7600 section 4.8.
const NO_ADDRESS: [u8; 4] = [192, 0, 0, 8];
/// Of a header, and of the least that is quoted behind it.
const QUOTED_4: i16 = IPV4 + 8;
const QUOTED_6: i16 = IPV6 + 8;
const LONGER: i32 = (IPV6 - IPV4) as i32;
/// The least MTU of IPv4, and that of IPv6.
const LEAST_4: i32 = 68;
const LEAST_6: i32 = 1280;

impl Code<'_> {
    pub(super) fn error_to_four(&mut self) {
        let refused = self.refused(Refusal::Icmp);
        let code = &mut self.code;
        code.load(Word, R1, R10, UPPER);
        code.jump_if(R1, NotEqual, i32::from(IPV6), refused);
        self.read((IPV6 + 8).into(), QUOTED_V6, IPV6);
        self.read((2 * IPV6 + 8).into(), QUOTED_REST_6, 8);
        let code = &mut self.code;
        code.load(Byte, R1, R10, QUOTED_V6);
        code.shift_right(R1, 4);
        code.jump_if(R1, NotEqual, 6, refused);
        self.type_to_four();
        self.addresses_to_four(refused);

        let code = &mut self.code;
        let [icmp, upper] = std::array::from_fn(|_| code.label());
        code.store_value(Byte, R10, QUOTED_V4, 0x45);
        code.load(Half, R1, R10, QUOTED_V6);
        code.network_order(R1, 16);
        code.shift_right(R1, 4);
        code.store(Byte, R10, QUOTED_V4 + 1, R1);
        code.load(Half, R1, R10, QUOTED_V6 + 4);
        code.network_order(R1, 16);
        code.add(R1, i32::from(IPV4));
        code.network_order(R1, 16);
        code.store(Half, R10, QUOTED_V4 + 2, R1);
        code.store_value(Half, R10, QUOTED_V4 + 4, 0);
        code.store_value(Half, R10, QUOTED_V4 + 6, i32::from(wire::ipv4::DONT_FRAGMENT.to_be()));
        code.load(Byte, R1, R10, QUOTED_V6 + 7);
        code.store(Byte, R10, QUOTED_V4 + 8, R1);
        self.copy_words(QUOTED_REST_6, QUOTED_REST_4, 2);
        let code = &mut self.code;
        code.load(Byte, R1, R10, QUOTED_V6 + 6);
        code.jump_if(R1, Equal, ICMPV6, icmp);
        code.store(Byte, R10, QUOTED_V4 + 9, R1);
        // A fragment's header, or any other, is not looked behind.
        for untold in EXTENSIONS.into_iter().chain([ICMP]) {
            code.jump_if(R1, Equal, untold, refused);
        }
        code.jump(upper);
        code.bind(icmp);
        code.store_value(Byte, R10, QUOTED_V4 + 9, ICMP);
        self.echo_type(QUOTED_REST_6, QUOTED_REST_4, ECHO_TO_FOUR);
        self.code.bind(upper);
        self.sum_of_header(QUOTED_V4);
        self.ipv4_header(LONGER);
        let code = &mut self.code;
        code.load(Word, R1, R10, LENGTH);
        code.add(R1, -i32::from(IPV6));
        self.pseudo_header();
        self.difference((V6 + SOURCE_6, 32 + 8 + 8 + QUOTED_6), (ICMP4, 8 + QUOTED_4));
        self.unmark();
        self.change_version(ETHERTYPE_IPV4);
        self.room(-LONGER);
        self.write(0, V4, IPV4);
        self.write(IPV4.into(), ICMP4, 8 + QUOTED_4);
        self.correct(IPV4, 2, 0);
        self.hand_over(TO_FOUR);
    }

    pub(super) fn error_to_six(&mut self) {
        let refused = self.refused(Refusal::Icmp);
        self.type_to_six();
        let code = &mut self.code;
        code.load(Word, R1, R10, IS_FRAGMENT);
        code.jump_if(R1, NotEqual, 0, refused);
        self.read((IPV4 + 8).into(), QUOTED_V4, IPV4);
        self.read((2 * IPV4 + 8).into(), QUOTED_REST_4, 8);
        let code = &mut self.code;
        let [icmp, upper] = std::array::from_fn(|_| code.label());
        code.load(Byte, R1, R10, QUOTED_V4);
        code.jump_if(R1, NotEqual, 0x45, refused);
        code.load(Half, R1, R10, QUOTED_V4 + 6);
        code.jump_if(R1, AnyBit, i32::from(0x1fff_u16.to_be()), refused);
        self.addresses_to_six(refused);

        let code = &mut self.code;
        code.store_value(Word, R10, QUOTED_V6, 0);
        code.load(Byte, R1, R10, QUOTED_V4 + 1);
        code.shift_left(R1, 4);
        code.calculate(Operation::Or, R1, 0x6000);
        code.network_order(R1, 16);
        code.store(Half, R10, QUOTED_V6, R1);
        code.load(Half, R1, R10, QUOTED_V4 + 2);
        code.network_order(R1, 16);
        code.add(R1, -i32::from(IPV4));
        code.network_order(R1, 16);
        code.store(Half, R10, QUOTED_V6 + 4, R1);
        code.load(Byte, R1, R10, QUOTED_V4 + 8);
        code.store(Byte, R10, QUOTED_V6 + 7, R1);
        self.copy_words(QUOTED_REST_4, QUOTED_REST_6, 2);
        let code = &mut self.code;
        code.load(Byte, R1, R10, QUOTED_V4 + 9);
        code.jump_if(R1, Equal, ICMP, icmp);
        code.store(Byte, R10, QUOTED_V6 + 6, R1);
        code.jump(upper);
        code.bind(icmp);
        code.store_value(Byte, R10, QUOTED_V6 + 6, ICMPV6);
        self.echo_type(QUOTED_REST_4, QUOTED_REST_6, ECHO_TO_SIX);
        self.code.bind(upper);
        self.ipv6_header(LONGER);
        self.code.load(Word, R1, R10, LENGTH);
        self.pseudo_header();
        self.difference((ICMP4, 8 + QUOTED_4), (V6 + SOURCE_6, 32 + 8 + 8 + QUOTED_6));
        self.unmark();
        self.change_version(ETHERTYPE_IPV6);
        self.room(LONGER);
        self.write(0, V6, IPV6);
        self.write(IPV6.into(), ICMP6, 8 + QUOTED_6);
        self.correct(IPV6, 2, 0);
        self.hand_over(TO_SIX);
    }

    /// Whom an error comes from, and the addresses of what it quotes. Whom it goes to is known.
    fn addresses_to_four(&mut self, refused: Label) {
        let (quoted_source, quoted_destination) = (QUOTED_V6 + SOURCE_6, QUOTED_V6 + DESTINATION_6);
        match self.role {
            Role::Nat64(settings) => {
                self.host_to_four(settings, quoted_destination, V4 + SOURCE_4, false);
                self.server_to_four(quoted_source, QUOTED_V4 + SOURCE_4, refused);
                self.copy_words(V4 + SOURCE_4, QUOTED_V4 + DESTINATION_4, 1);
            }
            Role::Clat(_) => {
                self.own_to_four(quoted_source, QUOTED_V4 + SOURCE_4, refused);
                self.server_to_four(quoted_destination, QUOTED_V4 + DESTINATION_4, refused);
                let [known, unknown] = std::array::from_fn(|_| self.code.label());
                self.server_to_four(V6 + SOURCE_6, V4 + SOURCE_4, unknown);
                self.code.jump(known);
                self.code.bind(unknown);
                self.unknown_source();
                self.code.bind(known);
            }
        }
    }

    /// The same of one that is of IPv4 still. It has come back to who sent what it quotes.
    fn addresses_to_six(&mut self, refused: Label) {
        let (quoted_source, quoted_destination) = (QUOTED_V4 + SOURCE_4, QUOTED_V4 + DESTINATION_4);
        let (back, to) = match self.role {
            Role::Nat64(_) => (quoted_source, V4 + DESTINATION_4),
            Role::Clat(_) => (quoted_destination, V4 + SOURCE_4),
        };
        let code = &mut self.code;
        code.load(Word, R1, R10, back);
        code.load(Word, R2, R10, to);
        code.jump_if_32(R1, NotEqual, R2, refused);
        match self.role {
            Role::Nat64(_) => {
                self.server_to_six(quoted_destination, QUOTED_V6 + DESTINATION_6);
                self.copy_words(V6 + DESTINATION_6, QUOTED_V6 + SOURCE_6, 4);
                let [known, private] = std::array::from_fn(|_| self.code.label());
                self.reachable(V4 + SOURCE_4, private);
                self.code.jump(known);
                self.code.bind(private);
                self.unknown_source();
                self.code.bind(known);
                self.server_to_six(V4 + SOURCE_4, V6 + SOURCE_6);
            }
            Role::Clat(_) => {
                self.source_to_six();
                self.server_to_six(quoted_source, QUOTED_V6 + SOURCE_6);
                self.copy_words(V6 + SOURCE_6, QUOTED_V6 + DESTINATION_6, 4);
            }
        }
    }

    fn unknown_source(&mut self) {
        let none = u32::from_ne_bytes(NO_ADDRESS).cast_signed();
        self.code.store_value(Word, R10, V4 + SOURCE_4, none);
    }

    /// The message's header, but for its checksum's change.
    fn type_to_four(&mut self) {
        let refused = self.refused(Refusal::Icmp);
        let code = &mut self.code;
        let [unreachable, too_big, exceeded, problem, made] = std::array::from_fn(|_| code.label());
        code.load(Half, R3, R10, ICMP6 + 2);
        code.store(Half, R10, ICMP4 + 2, R3);
        code.store_value(Word, R10, ICMP4 + 4, 0);
        code.load(Byte, R1, R10, ICMP6);
        code.load(Byte, R2, R10, ICMP6 + 1);
        for (kind, label) in [(1, unreachable), (2, too_big), (3, exceeded), (4, problem)] {
            code.jump_if(R1, Equal, kind, label);
        }
        code.jump(refused);
        code.bind(unreachable);
        for (from, to) in [(0, 1), (1, 10), (2, 1), (3, 1), (4, 3)] {
            let other = code.label();
            code.jump_if(R2, NotEqual, from, other);
            code.set(R2, to);
            code.set(R1, 3);
            code.jump(made);
            code.bind(other);
        }
        code.jump(refused);
        code.bind(too_big);
        code.load(Word, R3, R10, ICMP6 + 4);
        code.network_order(R3, 32);
        self.clamp_mtu(-LONGER, LEAST_4);
        let code = &mut self.code;
        code.network_order(R3, 16);
        code.store(Half, R10, ICMP4 + 6, R3);
        code.set(R1, 3);
        code.set(R2, 4);
        code.jump(made);
        code.bind(exceeded);
        code.set(R1, 11);
        code.jump(made);
        // Of these only what concerns the next header is the same problem in IPv4.
        code.bind(problem);
        code.jump_if(R2, NotEqual, 1, refused);
        code.set(R1, 3);
        code.set(R2, 2);
        code.bind(made);
        code.store(Byte, R10, ICMP4, R1);
        code.store(Byte, R10, ICMP4 + 1, R2);
    }

    /// The same the other way round.
    fn type_to_six(&mut self) {
        let refused = self.refused(Refusal::Icmp);
        let code = &mut self.code;
        let [unreachable, too_big, exceeded, protocol, made] = std::array::from_fn(|_| code.label());
        code.load(Half, R3, R10, ICMP4 + 2);
        code.store(Half, R10, ICMP6 + 2, R3);
        code.store_value(Word, R10, ICMP6 + 4, 0);
        code.load(Byte, R1, R10, ICMP4);
        code.load(Byte, R2, R10, ICMP4 + 1);
        code.jump_if(R1, Equal, 3, unreachable);
        code.jump_if(R1, Equal, 11, exceeded);
        code.jump(refused);
        code.bind(unreachable);
        code.set(R1, 1);
        code.jump_if(R2, Equal, 2, protocol);
        code.jump_if(R2, Equal, 4, too_big);
        for (from, to) in [
            (0, 0),
            (1, 0),
            (3, 4),
            (5, 0),
            (6, 0),
            (7, 0),
            (8, 0),
            (9, 1),
            (10, 1),
            (11, 0),
            (12, 0),
            (13, 1),
            (15, 1),
        ] {
            let other = code.label();
            code.jump_if(R2, NotEqual, from, other);
            code.set(R2, to);
            code.jump(made);
            code.bind(other);
        }
        code.jump(refused);
        // A parameter problem, of the field that names the protocol.
        code.bind(protocol);
        code.store_value(Word, R10, ICMP6 + 4, 6_i32.to_be());
        code.set(R1, 4);
        code.set(R2, 1);
        code.jump(made);
        code.bind(too_big);
        code.load(Half, R3, R10, ICMP4 + 6);
        code.network_order(R3, 16);
        self.clamp_mtu(LONGER, LEAST_6);
        let code = &mut self.code;
        code.network_order(R3, 32);
        code.store(Word, R10, ICMP6 + 4, R3);
        code.set(R1, 2);
        code.set(R2, 0);
        code.jump(made);
        code.bind(exceeded);
        code.set(R1, 3);
        code.bind(made);
        code.store(Byte, R10, ICMP6, R1);
        code.store(Byte, R10, ICMP6 + 1, R2);
    }

    /// R3 = an MTU of the other version.
    fn clamp_mtu(&mut self, more: i32, least: i32) {
        let code = &mut self.code;
        let [enough, fits] = std::array::from_fn(|_| code.label());
        code.add(R3, more);
        code.jump_if(R3, Condition::SignedGreater, least, enough);
        code.set(R3, least);
        code.bind(enough);
        code.jump_if(R3, Less, 0x1_0000, fits);
        code.set(R3, 0xffff);
        code.bind(fits);
    }

    /// The type of an echo message, which has one in both versions; others are refused.
    pub(super) fn echo_type(&mut self, from: i16, to: i16, types: [(i32, i32); 2]) {
        let refused = self.refused(Refusal::Icmp);
        let code = &mut self.code;
        let end = code.label();
        code.load(Byte, R1, R10, from);
        for (old, new) in types {
            let other = code.label();
            code.jump_if(R1, NotEqual, old, other);
            code.store_value(Byte, R10, to, new);
            code.jump(end);
            code.bind(other);
        }
        code.jump(refused);
        code.bind(end);
    }

    fn copy_words(&mut self, from: i16, to: i16, words: i16) {
        for word in 0..words {
            self.code.load(Word, R1, R10, from + 4 * word);
            self.code.store(Word, R10, to + 4 * word, R1);
        }
    }
}
