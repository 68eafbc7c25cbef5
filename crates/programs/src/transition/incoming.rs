//! Where packets come in by the interface that carries the tunnel: checks, and the outer header off.

use super::*;

impl Code<'_> {
    /// A packet of IPv4 that is the tunnel's.
    pub(super) fn in_four(&mut self, remote: Option<Ipv4Addr>, domain: Option<&Domain>) {
        let link = i32::from(self.settings.over.1);
        self.begin_incoming(ETHERTYPE_IPV4);
        self.read(link, OUTER, IPV4.into(), self.leave);
        let (leave, malformed) = (self.leave, self.refused(Refusal::Malformed));
        self.code.load(Byte, R1, R10, OUTER);
        self.code.jump_if(R1, NotEqual, 0x45, leave);
        self.code.load(Byte, R1, R10, OUTER + 9);
        self.code.jump_if(R1, NotEqual, i32::from(protocol::IPV6), leave);
        self.code.load(Half, R1, R10, OUTER + 6);
        self.code.jump_if(R1, AnyBit, i32::from(0x3fff_u16.to_be()), leave);
        self.code.load(Word, R1, R10, OUTER + 16);
        self.code.load(Word, R2, R7, at::LOCAL);
        self.code.jump_if(R1, NotEqual, R2, leave);
        self.length_of_outer(OUTER + 2, 0);
        if let Some(remote) = remote {
            self.code.load(Word, R1, R10, OUTER + 12);
            let stranger = self.refused(Refusal::Stranger);
            self.code.set_wide(R2, u32::from_ne_bytes(remote.octets()).into());
            self.code.jump_if(R1, NotEqual, R2, stranger);
        }
        self.code.sum_ipv4_header(OUTER);
        self.code.jump_if(R1, NotEqual, 0xffff, malformed);
        self.read(link + i32::from(IPV4), INNER, IPV6.into(), malformed);
        self.code.load(Byte, R1, R10, INNER);
        self.code.shift_right(R1, 4);
        self.code.jump_if(R1, NotEqual, 6, malformed);
        self.length_of_inner(IPV4.into());
        match domain {
            Some(domain) => self.check_domain(domain),
            None => self.check_broker(),
        }
        self.code.load(Byte, R2, R10, OUTER + 1);
        self.code.load(Byte, R3, R10, INNER + 1);
        self.code.shift_right(R3, 4);
        self.merge_ecn();
        // R8: the inner byte as it should be, or as it was.
        let code = &mut self.code;
        code.load(Byte, R8, R10, INNER + 1);
        code.and(R8, 0xcf);
        code.shift_left(R3, 4);
        code.and(R3, 0x30);
        code.calculate(Operation::Or, R8, R3);
        let unchanged = code.label();
        self.take_off(IPV4.into(), DECAP_IPV6, ETHERTYPE_IPV6);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER + 1);
        code.jump_if(R1, Equal, R8, unchanged);
        code.store(Byte, R10, INNER + 1, R8);
        self.write(link + 1, INNER + 1, 1);
        self.code.bind(unchanged);
        self.hand_in();
    }

    /// A packet of IPv6 that is the tunnel's.
    pub(super) fn in_six(&mut self) {
        let link = i32::from(self.settings.over.1);
        self.begin_incoming(ETHERTYPE_IPV6);
        self.read(link, OUTER, IPV6.into(), self.leave);
        let (leave, malformed, stranger) =
            (self.leave, self.refused(Refusal::Malformed), self.refused(Refusal::Stranger));
        let code = &mut self.code;
        // With an encapsulation limit, and with any other header: by the kernel and our socket.
        code.load(Byte, R1, R10, OUTER + 6);
        code.jump_if(R1, NotEqual, i32::from(PROTOCOL_IPV4), leave);
        for part in [0, 8] {
            code.load(Double, R1, R10, OUTER + DESTINATION + part);
            code.load(Double, R2, R7, at::LOCAL + part);
            code.jump_if(R1, NotEqual, R2, leave);
        }
        self.length_of_outer(OUTER + 4, IPV6.into());
        for part in [0, 8] {
            self.code.load(Double, R1, R10, OUTER + SOURCE + part);
            self.code.load(Double, R2, R7, at::REMOTE + part);
            self.code.jump_if(R1, NotEqual, R2, stranger);
        }
        self.read(link + i32::from(IPV6), INNER, IPV4.into(), malformed);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER);
        code.jump_if(R1, Less, 0x45, malformed);
        code.jump_if(R1, Greater, 0x4f, malformed);
        // Its own header fits, and it is as long as what carries it.
        code.and(R1, 0xf);
        code.shift_left(R1, 2);
        code.load(Half, R2, R10, INNER + 2);
        code.network_order(R2, 16);
        code.jump_if(R2, Less, R1, malformed);
        let whole = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, NotEqual, 0, whole);
        code.load(Half, R1, R10, OUTER + 4);
        code.network_order(R1, 16);
        code.jump_if(R1, NotEqual, R2, malformed);
        code.bind(whole);
        self.single_host_ipv4(INNER + 12, self.refused(Refusal::Source));
        self.single_host_ipv4(INNER + 16, self.refused(Refusal::Destination));
        self.code.load(Half, R2, R10, OUTER);
        self.code.network_order(R2, 16);
        self.code.shift_right(R2, 4);
        self.code.load(Byte, R3, R10, INNER + 1);
        self.merge_ecn();
        let code = &mut self.code;
        code.load(Byte, R8, R10, INNER + 1);
        code.and(R8, 0xfc);
        code.and(R3, ECN);
        code.calculate(Operation::Or, R8, R3);
        let unchanged = code.label();
        self.take_off(IPV6.into(), DECAP_IPV4, ETHERTYPE_IPV4);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER + 1);
        code.jump_if(R1, Equal, R8, unchanged);
        // The header's checksum covers the byte; the other one of its word stays.
        code.load(Half, R3, R10, INNER);
        code.store(Byte, R10, INNER + 1, R8);
        code.load(Half, R4, R10, INNER);
        code.copy(R1, R6);
        code.set(R2, link + 10);
        code.set(R5, 2);
        code.call(Helper::L3ChecksumReplace);
        self.code.or_drop();
        self.write(link + 1, INNER + 1, 1);
        self.code.bind(unchanged);
        self.hand_in();
    }

    /// R7 = this end, for a packet of that type that is for this host and in no VLAN.
    pub(super) fn begin_incoming(&mut self, ethertype: u16) {
        let leave = self.leave;
        let code = &mut self.code;
        code.copy(R6, R1);
        for (field, expected) in [
            (context::PACKET_TYPE, 0),
            (context::VLAN_PRESENT, 0),
            (context::PROTOCOL, ethertype.to_be().into()),
        ] {
            code.load(Word, R1, R6, field);
            code.jump_if(R1, NotEqual, expected, leave);
        }
        self.this_end(leave);
    }

    /// R7 = this end; where there is none, goes on at the label.
    pub(super) fn this_end(&mut self, without: Label) {
        let leave = self.leave;
        let code = &mut self.code;
        code.store_value(Word, R10, NUMBER, 0);
        code.look_up(&self.tables.end, NUMBER);
        code.jump_if(R0, Equal, 0, leave);
        code.copy(R7, R0);
        code.load(Word, R1, R7, at::VALID);
        code.jump_if(R1, Equal, 0, without);
    }

    /// Leaves a packet that is shorter than its outer header says, which counts from behind so many bytes.
    pub(super) fn length_of_outer(&mut self, field: i16, from: i32) {
        let leave = self.leave;
        let code = &mut self.code;
        let gso_packet = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, NotEqual, 0, gso_packet);
        code.load(Half, R1, R10, field);
        code.network_order(R1, 16);
        if from == 0 {
            code.jump_if(R1, Less, i32::from(IPV4), leave);
        }
        code.add(R1, from + i32::from(self.settings.over.1));
        code.load(Word, R2, R6, context::LEN);
        code.jump_if(R2, Less, R1, leave);
        code.bind(gso_packet);
    }

    /// Refuses an inner packet that is not as long as the outer one, of so many bytes of header, leaves. A GSO packet
    /// is as long as the kernel says.
    pub(super) fn length_of_inner(&mut self, header: i32) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        let gso_packet = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, NotEqual, 0, gso_packet);
        code.load(Half, R1, R10, INNER + 4);
        code.network_order(R1, 16);
        code.add(R1, header + i32::from(IPV6));
        code.load(Half, R2, R10, OUTER + 2);
        code.network_order(R2, 16);
        code.jump_if(R1, NotEqual, R2, malformed);
        code.bind(gso_packet);
    }

    /// R3 = the codepoint inside, from R2 outside and R3 inside (RFC 6040 section 4.2).
    pub(super) fn merge_ecn(&mut self) {
        let congestion = self.refused(Refusal::Congestion);
        let code = &mut self.code;
        let [marked, done] = std::array::from_fn(|_| code.label());
        code.and(R2, ECN);
        code.and(R3, ECN);
        code.jump_if(R2, Equal, ECN, marked);
        // ECT(1) outside, ECT(0) inside.
        code.jump_if(R2, NotEqual, 1, done);
        code.jump_if(R3, NotEqual, 2, done);
        code.set(R3, 1);
        code.jump(done);
        code.bind(marked);
        code.jump_if(R3, Equal, 0, congestion);
        code.set(R3, ECN);
        code.bind(done);
    }

    /// R8 = the leading 64 bits of an address on the stack, as a number.
    pub(super) fn leading(&mut self, place: i16) {
        self.code.load(Double, R8, R10, place);
        self.code.network_order(R8, 64);
    }

    /// Goes on at the label unless the address, whose leading bits are in R8, can be that of one host.
    pub(super) fn single_host(&mut self, otherwise: Label) {
        self.code.jump_if(R8, Equal, 0, otherwise);
        self.code.copy(R1, R8);
        self.code.shift_right(R1, 56);
        self.code.jump_if(R1, Equal, 0xff, otherwise);
    }

    /// The same of IPv4, at a place of the stack.
    pub(super) fn single_host_ipv4(&mut self, place: i16, otherwise: Label) {
        self.code.load(Byte, R1, R10, place);
        self.code.jump_if(R1, Equal, 0, otherwise);
        self.code.jump_if(R1, Equal, 127, otherwise);
        self.code.jump_if(R1, Greater, 223, otherwise);
    }

    /// Goes on at the label if the address whose leading bits are in R8 is link-local.
    pub(super) fn link_local(&mut self, then: Label) {
        self.code.copy(R1, R8);
        self.code.shift_right(R1, 54);
        self.code.jump_if(R1, Equal, 0xfe80 >> 6, then);
    }

    /// Goes on at the label if the address whose leading bits are in R8 is of this side.
    pub(super) fn own(&mut self, then: Label) {
        let code = &mut self.code;
        let end = code.label();
        code.load(Word, R3, R7, at::PREFIXES);
        for number in 0..OWN as i16 {
            code.jump_if(R3, Equal, i32::from(number), end);
            code.load(Double, R1, R7, at::OWN + 16 * number);
            code.and(R1, R8);
            code.load(Double, R2, R7, at::OWN + 16 * number + 8);
            code.jump_if(R1, Equal, R2, then);
        }
        code.bind(end);
    }

    pub(super) fn check_broker(&mut self) {
        let (source, spoofed) = (self.refused(Refusal::Source), self.refused(Refusal::Spoofed));
        let [on_link, known] = std::array::from_fn(|_| self.code.label());
        self.leading(INNER + SOURCE);
        self.single_host(source);
        self.link_local(on_link);
        self.own(spoofed);
        self.code.jump(known);
        self.code.bind(on_link);
        self.leading(INNER + DESTINATION);
        self.link_local(known);
        self.code.copy(R1, R8);
        self.code.shift_right(R1, 56);
        self.code.jump_if(R1, NotEqual, 0xff, source);
        self.code.bind(known);
        self.leading(INNER + DESTINATION);
        let destination = self.refused(Refusal::Destination);
        self.code.jump_if(R8, Equal, 0, destination);
    }

    pub(super) fn check_domain(&mut self, domain: &Domain) {
        let [spoofed, stranger, destination] =
            [Refusal::Spoofed, Refusal::Stranger, Refusal::Destination].map(|refusal| self.refused(refusal));
        let [beyond, known, arrived] = std::array::from_fn(|_| self.code.label());
        self.leading(INNER + SOURCE);
        self.embedded(domain, beyond);
        self.code.load(Word, R1, R10, OUTER + 12);
        self.code.network_order(R1, 32);
        self.code.jump_if(R9, NotEqual, R1, spoofed);
        self.usable(domain, spoofed);
        self.code.jump(known);

        self.code.bind(beyond);
        let Some(relay) = domain.relay else {
            self.code.jump(stranger);
            self.code.bind(known);
            return self.addressed_here(destination);
        };
        self.code.load(Word, R1, R10, OUTER + 12);
        self.code.set_wide(R2, u32::from_ne_bytes(relay.octets()).into());
        self.code.jump_if(R1, NotEqual, R2, stranger);
        self.code.load(Word, R2, R7, at::LOCAL);
        self.code.jump_if(R1, Equal, R2, stranger);
        let source = self.refused(Refusal::Source);
        self.single_host(source);
        self.link_local(source);

        self.code.bind(known);
        // The relay itself takes what goes on to anybody.
        let customer = self.code.label();
        self.code.load(Word, R1, R7, at::LOCAL);
        self.code.set_wide(R2, u32::from_ne_bytes(relay.octets()).into());
        self.code.jump_if(R1, NotEqual, R2, customer);
        self.leading(INNER + DESTINATION);
        self.single_host(destination);
        self.link_local(destination);
        self.code.jump(arrived);
        self.code.bind(customer);
        self.addressed_here(destination);
        self.code.bind(arrived);
    }

    pub(super) fn addressed_here(&mut self, otherwise: Label) {
        let own = self.code.label();
        self.leading(INNER + DESTINATION);
        self.own(own);
        self.code.jump(otherwise);
        self.code.bind(own);
    }

    /// R9 = the IPv4 address in the one whose leading bits are in R8; goes on at the label where it is not of the domain.
    pub(super) fn embedded(&mut self, domain: &Domain, beyond: Label) {
        let prefix = domain.prefix;
        let leading = (prefix.network().to_bits() >> 64) as u64;
        let mask = (prefix.netmask().to_bits() >> 64) as u64;
        let low = (1u64 << domain.ipv4_bits()) - 1;
        let code = &mut self.code;
        code.set_wide(R1, mask);
        code.and(R1, R8);
        code.set_wide(R2, leading);
        code.jump_if(R1, NotEqual, R2, beyond);
        code.copy(R9, R8);
        code.shift_right(R9, i32::from(64 - domain.delegated_length()));
        code.set_wide(R1, low);
        code.and(R9, R1);
        code.load(Word, R2, R7, at::LOCAL);
        code.network_order(R2, 32);
        code.set_wide(R1, u64::from(u32::MAX) & !low);
        code.and(R2, R1);
        code.calculate(Operation::Or, R9, R2);
    }

    /// Goes on at the label where no other end has the address in R9, as a number.
    pub(super) fn usable(&mut self, domain: &Domain, otherwise: Label) {
        let code = &mut self.code;
        code.load(Word, R1, R7, at::LOCAL);
        code.network_order(R1, 32);
        code.jump_if(R9, Equal, R1, otherwise);
        code.copy(R1, R9);
        code.shift_right(R1, 24);
        code.jump_if(R1, Equal, 0, otherwise);
        code.jump_if(R1, Equal, 127, otherwise);
        code.jump_if(R1, Greater, 223, otherwise);
        for net in domain.unusable() {
            let bits = 32 - i32::from(net.prefix_len());
            code.copy(R1, R9);
            code.shift_right(R1, bits);
            code.set_wide(R2, (net.network().to_bits() >> bits).into());
            code.jump_if(R1, Equal, R2, otherwise);
        }
    }

    /// The outer header goes.
    pub(super) fn take_off(&mut self, header: i32, flag: i32, ethertype: u16) {
        self.packets();
        if self.settings.decapsulates {
            self.code.adjust_room(-header, ROOM_MAC, flag | FIXED_GSO);
            self.code.or_drop();
        } else {
            // It has no more than a way to change the version, for translation: that makes the header 20 bytes longer, or
            // shorter, and all of it goes.
            let code = &mut self.code;
            code.copy(R1, R6);
            code.set(R2, ethertype.to_be().into());
            code.set(R3, 0);
            code.call(Helper::SkbChangeProto);
            self.code.or_drop();
            let changed = if ethertype == ETHERTYPE_IPV6 { header + 20 } else { header - 20 };
            self.code.adjust_room(-changed, ROOM_MAC, FIXED_GSO);
            self.code.or_drop();
        }
    }

    /// Gives the inner packet to the tunnel's device, as if it had come in there.
    pub(super) fn hand_in(&mut self) {
        self.count(0, i32::from(self.settings.over.1));
        self.code.set(R1, self.settings.device.0.cast_signed());
        self.code.redirect_into_host();
    }
}
