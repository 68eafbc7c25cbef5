//! Where packets leave by the tunnel's device: the outer header on, and out by the interface that carries the tunnel.

use super::*;

impl Code<'_> {
    pub(super) fn out_four(&mut self, remote: Option<Ipv4Addr>, domain: Option<&Domain>) {
        self.begin_outgoing(ETHERTYPE_IPV6, IPV6.into());
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER);
        code.shift_right(R1, 4);
        code.jump_if(R1, NotEqual, 6, malformed);
        code.load(Half, R1, R10, INNER + 4);
        code.network_order(R1, 16);
        code.add(R1, i32::from(IPV6));
        self.as_long();
        // R9 = whom it goes to, in network byte order.
        if let Some(remote) = remote {
            self.code.set_wide(R9, u32::from_ne_bytes(remote.octets()).into());
        }
        if let Some(domain) = domain {
            self.next_end(domain);
        }
        let code = &mut self.code;
        code.load(Half, R1, R10, INNER);
        code.network_order(R1, 16);
        code.shift_right(R1, 4);
        code.store_value(Byte, R10, OUTER, 0x45);
        code.store(Byte, R10, OUTER + 1, R1);
        // A GSO packet may be longer than the field can say: what it is cut into gets lengths of its own.
        let [short, single, may_be_cut] = std::array::from_fn(|_| code.label());
        code.load(Word, R8, R6, context::LEN);
        code.add(R8, -i32::from(self.settings.device.1));
        code.copy(R1, R8);
        code.add(R1, i32::from(IPV4));
        code.jump_if(R1, Less, 0x1_0000, short);
        code.set(R1, 0);
        code.bind(short);
        code.network_order(R1, 16);
        code.store(Half, R10, OUTER + 2, R1);
        code.store_value(Half, R10, OUTER + 6, 0);
        // Of a GSO packet that counts which it is cut into, with headers of IPv6 and TCP.
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, Equal, 0, single);
        code.copy(R8, R1);
        code.add(R8, 60);
        code.bind(single);
        code.jump_if(R8, Less, LEAST_MTU as i32 + 1, may_be_cut);
        code.store_value(Half, R10, OUTER + 6, i32::from(wire::ipv4::DONT_FRAGMENT.to_be()));
        code.bind(may_be_cut);
        code.store_value(Byte, R10, OUTER + 8, self.settings.hop_limit.into());
        code.store_value(Byte, R10, OUTER + 9, protocol::IPV6.into());
        code.store_value(Half, R10, OUTER + 10, 0);
        code.load(Word, R1, R7, at::LOCAL);
        code.store(Word, R10, OUTER + 12, R1);
        code.store(Word, R10, OUTER + 16, R9);
        code.call(Helper::GetPrandomU32);
        code.store(Half, R10, OUTER + 4, R0);
        self.code.sum_ipv4_header(OUTER);
        self.code.calculate(Operation::Xor, R1, 0xffff);
        self.code.store(Half, R10, OUTER + 10, R1);
        self.send_out(IPV4.into(), ENCAP_IPV4);
    }

    pub(super) fn out_six(&mut self) {
        self.begin_outgoing(ETHERTYPE_IPV4, IPV4.into());
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER);
        code.jump_if(R1, Less, 0x45, malformed);
        code.jump_if(R1, Greater, 0x4f, malformed);
        code.and(R1, 0xf);
        code.shift_left(R1, 2);
        code.copy(R2, R1);
        code.load(Half, R1, R10, INNER + 2);
        code.network_order(R1, 16);
        code.jump_if(R1, Less, R2, malformed);
        self.as_long();
        self.single_host_ipv4(INNER + 12, self.refused(Refusal::Source));
        let code = &mut self.code;
        code.store_value(Word, R10, OUTER, 0);
        code.load(Byte, R1, R10, INNER + 1);
        code.shift_left(R1, 4);
        code.calculate(Operation::Or, R1, 0x6000);
        code.network_order(R1, 16);
        code.store(Half, R10, OUTER, R1);
        code.load(Half, R1, R10, INNER + 2);
        code.store(Half, R10, OUTER + 4, R1);
        code.store_value(Byte, R10, OUTER + 6, PROTOCOL_IPV4.into());
        code.store_value(Byte, R10, OUTER + 7, self.settings.hop_limit.into());
        for part in [0, 8] {
            code.load(Double, R1, R7, at::LOCAL + part);
            code.store(Double, R10, OUTER + SOURCE + part, R1);
            code.load(Double, R1, R7, at::REMOTE + part);
            code.store(Double, R10, OUTER + DESTINATION + part, R1);
        }
        self.send_out(IPV6.into(), ENCAP_IPV6);
    }

    pub(super) fn begin_outgoing(&mut self, ethertype: u16, header: i32) {
        let (no_way, malformed) = (self.refused(Refusal::NoWay), self.refused(Refusal::Malformed));
        self.code.copy(R6, R1);
        self.code.load(Word, R1, R6, context::PROTOCOL);
        self.code.jump_if(R1, NotEqual, i32::from(ethertype.to_be()), no_way);
        self.this_end(no_way);
        self.read(self.settings.device.1.into(), INNER, header, malformed);
    }

    /// Refuses a packet that is not of R1 bytes, unless it is a GSO packet.
    pub(super) fn as_long(&mut self) {
        let malformed = self.refused(Refusal::Malformed);
        let code = &mut self.code;
        let gso_packet = code.label();
        code.load(Word, R2, R6, context::GSO_SIZE);
        code.jump_if(R2, NotEqual, 0, gso_packet);
        code.add(R1, i32::from(self.settings.device.1));
        code.load(Word, R2, R6, context::LEN);
        code.jump_if(R1, NotEqual, R2, malformed);
        code.bind(gso_packet);
    }

    /// R9 = whose address is in the destination, or the relay's, in network byte order.
    pub(super) fn next_end(&mut self, domain: &Domain) {
        let [multicast, source, destination, no_way] =
            [Refusal::Multicast, Refusal::Source, Refusal::Destination, Refusal::NoWay]
                .map(|refusal| self.refused(refusal));
        let [from_us, beyond, found] = std::array::from_fn(|_| self.code.label());
        self.code.load(Byte, R1, R10, INNER + DESTINATION);
        self.code.jump_if(R1, Equal, 0xff, multicast);
        let relay = domain.relay.map(|relay| u64::from(u32::from_ne_bytes(relay.octets())));
        if let Some(relay) = relay {
            self.code.load(Word, R1, R7, at::LOCAL);
            self.code.set_wide(R2, relay);
            self.code.jump_if(R1, Equal, R2, from_us);
        }
        self.leading(INNER + SOURCE);
        self.own(from_us);
        self.code.jump(source);
        self.code.bind(from_us);
        self.leading(INNER + DESTINATION);
        self.embedded(domain, beyond);
        self.usable(domain, destination);
        self.code.network_order(R9, 32);
        self.code.jump(found);
        self.code.bind(beyond);
        match relay {
            Some(relay) => {
                self.code.set_wide(R9, relay);
                self.code.load(Word, R1, R7, at::LOCAL);
                self.code.jump_if(R1, Equal, R9, no_way);
            }
            None => self.code.jump(no_way),
        }
        self.code.bind(found);
    }

    /// Sends the packet behind the outer header on the stack. What the kernel does not encapsulate we do.
    pub(super) fn send_out(&mut self, header: i32, flag: i32) {
        let leave = self.leave;
        self.packets();
        self.code.adjust_room(header, ROOM_MAC, flag | FIXED_GSO);
        self.code.jump_if(R0, NotEqual, 0, leave);
        let link = self.settings.device.1;
        self.write(link.into(), OUTER, header);
        self.count(16, header + i32::from(link));
        if link == 0 {
            self.code.change_head(LINK_HEADER);
            self.code.or_drop();
        }
        self.code.set(R1, self.settings.over.0.cast_signed());
        self.code.redirect_to_known_neighbor(R7, at::NEXT_HOP);
    }
}
