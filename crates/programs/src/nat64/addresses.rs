//! Addresses: a server's is in the prefix, a host's is its place in the table.

use router::nat64::UNREACHABLE;

use super::layout::{layout, part, upper};
use super::*;

impl Code<'_> {
    /// The address that a packet of IPv6 goes to.
    pub(super) fn destination_to_four(&mut self) {
        let (from, to) = (V6 + DESTINATION_6, V4 + DESTINATION_4);
        let destination = self.refused(Refusal::Destination);
        match self.role {
            Role::Nat64(_) => self.server_to_four(from, to, destination),
            Role::Clat(_) => self.own_to_four(from, to, destination),
        }
    }

    /// The address that a packet of IPv6 comes from, if it is no error.
    pub(super) fn source_to_four(&mut self) {
        let (from, to) = (V6 + SOURCE_6, V4 + SOURCE_4);
        match self.role {
            Role::Nat64(settings) => self.host_to_four(settings, from, to, true),
            Role::Clat(_) => {
                let source = self.refused(Refusal::Source);
                self.server_to_four(from, to, source);
            }
        }
    }

    /// The address that a packet of IPv4 goes to.
    pub(super) fn destination_to_six(&mut self) {
        let (from, to) = (V4 + DESTINATION_4, V6 + DESTINATION_6);
        match self.role {
            Role::Nat64(settings) => self.host_to_six(settings, from, to),
            Role::Clat(_) => {
                let destination = self.refused(Refusal::Destination);
                self.reachable(from, destination);
                self.server_to_six(from, to);
            }
        }
    }

    /// The address that a packet of IPv4 comes from; of an error of a NAT64, only where it is reachable.
    pub(super) fn source_to_six(&mut self) {
        let (from, to) = (V4 + SOURCE_4, V6 + SOURCE_6);
        let source = self.refused(Refusal::Source);
        match self.role {
            Role::Nat64(_) => {
                self.reachable(from, source);
                self.server_to_six(from, to);
            }
            Role::Clat(_) => self.own_to_six(from, to, source),
        }
    }

    /// A register = a part of the prefix's layout, of [`layout`].
    fn layout(&mut self, register: Register, part: usize) {
        match self.role {
            Role::Nat64(settings) => self.code.set_wide(register, layout(settings.nat64.prefix)[part]),
            Role::Clat(_) => self.code.load(Double, register, R7, clat::at::PLAT + 8 * part as i16),
        }
    }

    /// A server's IPv4 address, from where it is embedded. Whatever else is in the address, it is as in the prefix, and zero
    /// behind that.
    pub(super) fn server_to_four(&mut self, from: i16, to: i16, otherwise: Label) {
        for half in [part::UPPER, part::LOWER] {
            self.code.load(Double, R1, R10, from + 8 * half as i16);
            self.layout(R2, part::MASK + half);
            let code = &mut self.code;
            code.copy(R3, R1);
            code.and(R3, R2);
            code.calculate(Operation::Xor, R1, R3);
            self.layout(R2, part::PREFIX + half);
            let code = &mut self.code;
            code.jump_if(R1, NotEqual, R2, otherwise);
            code.network_order(R3, 64);
            self.layout(R2, part::SHIFT + half);
            let code = &mut self.code;
            if half == part::UPPER {
                code.calculate(Operation::ShiftLeft, R3, R2);
                code.copy(R4, R3);
            } else {
                code.calculate(Operation::ShiftRight, R3, R2);
                code.calculate(Operation::Or, R3, R4);
            }
        }
        let code = &mut self.code;
        code.network_order(R3, 32);
        code.store(Word, R10, to, R3);
        self.reachable(to, otherwise);
    }

    /// The prefix and a server's address.
    pub(super) fn server_to_six(&mut self, from: i16, to: i16) {
        self.code.load(Word, R1, R10, from);
        self.code.network_order(R1, 32);
        for half in [part::UPPER, part::LOWER] {
            let shift = if half == part::UPPER { Operation::ShiftRight } else { Operation::ShiftLeft };
            self.layout(R2, part::SHIFT + half);
            let code = &mut self.code;
            code.copy(R3, R1);
            code.calculate(shift, R3, R2);
            code.network_order(R3, 64);
            self.layout(R2, part::MASK + half);
            self.code.and(R3, R2);
            self.layout(R2, part::PREFIX + half);
            let code = &mut self.code;
            code.calculate(Operation::Or, R3, R2);
            code.store(Double, R10, to + 8 * half as i16, R3);
        }
    }

    /// Goes on at the label where the address there on the stack is none that a translator leads to.
    pub(super) fn reachable(&mut self, place: i16, otherwise: Label) {
        let pool = match self.role {
            Role::Nat64(settings) => Some(settings.nat64.pool),
            Role::Clat(_) => None,
        };
        let code = &mut self.code;
        code.load(Word, R1, R10, place);
        code.network_order(R1, 32);
        for net in UNREACHABLE.into_iter().chain(pool) {
            let bits = 32 - i32::from(net.prefix_len());
            code.copy(R2, R1);
            code.shift_right(R2, bits);
            code.jump_if(R2, Equal, (net.network().to_bits() >> bits).cast_signed(), otherwise);
        }
    }

    /// A host's address of the pool, from that which it has. One that has none gets one, if it `may`.
    pub(super) fn host_to_four(&mut self, settings: &Settings<'_>, from: i16, to: i16, may: bool) {
        let pool = settings.nat64.pool;
        let (no_host, source) = (self.refused(Refusal::NoHost), self.refused(Refusal::Source));
        let found = self.code.label();
        if may {
            self.single_host(from, source);
        }
        // R1 = the number of the set: its group, and its place in that.
        let [one, two] = settings.secret.map(|secret| secret | 1);
        let bits = set_bits(pool).cast_signed();
        let group = (bits / 2).min(4);
        let code = &mut self.code;
        code.load(Double, R8, R10, from);
        code.load(Double, R9, R10, from + 8);
        if may {
            // No translator behind another one.
            let prefix = settings.nat64.prefix.net();
            code.set_wide(R1, upper(prefix.netmask()));
            code.and(R1, R8);
            code.set_wide(R2, upper(prefix.network()));
            code.jump_if(R1, Equal, R2, source);
        }
        let code = &mut self.code;
        code.set_wide(R3, one);
        code.set_wide(R4, two);
        code.copy(R1, R8);
        code.multiply(R1, R3);
        code.copy(R2, R1);
        code.shift_right(R2, 32);
        code.calculate(Operation::Xor, R1, R2);
        code.multiply(R1, R4);
        code.copy(R2, R1);
        code.shift_right(R1, 64 - group);
        code.shift_left(R1, bits - group);
        code.calculate(Operation::Xor, R2, R9);
        code.multiply(R2, R3);
        code.copy(R5, R2);
        code.shift_right(R5, 32);
        code.calculate(Operation::Xor, R2, R5);
        code.multiply(R2, R4);
        code.shift_right(R2, 64 - (bits - group));
        code.calculate(Operation::Or, R1, R2);
        code.store(Word, R10, NUMBER, R1);
        code.look_up(&self.tables.hosts, NUMBER);
        code.jump_if(R0, Equal, 0, no_host);
        code.copy(R7, R0);
        self.now();
        self.find(found);
        if may {
            self.make_place(found);
        } else {
            self.code.jump(no_host);
        }
        // R3 = which of the set.
        let code = &mut self.code;
        code.bind(found);
        code.load(Word, R1, R10, NUMBER);
        code.shift_left(R1, WAYS.ilog2().cast_signed());
        code.add(R1, R3);
        code.add(R1, pool.network().to_bits().cast_signed());
        code.network_order(R1, 32);
        code.store(Word, R10, to, R1);
    }

    /// R3 = the place of the host R8, R9 in the set R7, and on at the label; or goes on here. It was heard now.
    fn find(&mut self, found: Label) {
        for way in 0..WAYS as i16 {
            let code = &mut self.code;
            let [other, heard] = std::array::from_fn(|_| code.label());
            code.load(Double, R1, R7, 16 * way);
            code.jump_if(R1, NotEqual, R8, other);
            code.load(Double, R1, R7, 16 * way + 8);
            code.jump_if(R1, NotEqual, R9, other);
            code.load(Word, R1, R7, at::HEARD + 4 * way);
            code.load(Word, R2, R10, NOW);
            code.jump_if(R1, GreaterOrEqual, R2, heard);
            code.store(Word, R7, at::HEARD + 4 * way, R2);
            code.bind(heard);
            code.set(R3, way.into());
            code.jump(found);
            code.bind(other);
        }
    }

    /// A new host takes the place of the one that was silent longest. R3 = which that is.
    fn make_place(&mut self, found: Label) {
        let (full, unlock_full) = (self.refused(Refusal::Full), self.code.label());
        let [ours, unlock_found] = std::array::from_fn(|_| self.code.label());
        let code = &mut self.code;
        // Where another processor does the same, that a sender tries again costs less than to wait here.
        code.set(R1, 1);
        code.fetch_and_add(Word, R7, at::LOCK, R1);
        code.jump_if_32(R1, Equal, 0, ours);
        code.set(R1, -1);
        code.add_atomically(Word, R7, at::LOCK, R1);
        code.jump(full);
        code.bind(ours);
        // Meanwhile it may have been the same host.
        self.find(unlock_found);
        let code = &mut self.code;
        code.set(R3, 0);
        code.load(Word, R2, R7, at::HEARD);
        for way in 1..WAYS as i16 {
            let later = code.label();
            code.load(Word, R1, R7, at::HEARD + 4 * way);
            code.jump_if(R1, GreaterOrEqual, R2, later);
            code.copy(R2, R1);
            code.set(R3, way.into());
            code.bind(later);
        }
        code.load(Word, R1, R10, NOW);
        code.add(R1, ANSWERED - KEPT);
        code.jump_if(R2, Greater, R1, unlock_full);
        code.store(Word, R10, DIFFERENCE, R2);
        // Nobody is found by a part of an address: zeros are no host's.
        code.copy(R2, R3);
        code.shift_left(R2, 4);
        code.add(R2, R7);
        code.set(R1, 0);
        code.store(Double, R2, 0, R1);
        code.store(Double, R2, 8, R9);
        code.store(Double, R2, 0, R8);
        code.copy(R2, R3);
        code.shift_left(R2, 2);
        code.add(R2, R7);
        code.load(Word, R1, R10, NOW);
        code.store(Word, R2, at::HEARD, R1);
        code.set(R1, -1);
        code.add_atomically(Word, R7, at::LOCK, R1);
        // One more, if nobody had it before.
        code.load(Word, R1, R10, DIFFERENCE);
        code.jump_if(R1, NotEqual, 0, found);
        code.copy(R8, R3);
        code.store_value(Word, R10, DIFFERENCE, HOSTS.cast_signed());
        code.look_up(&self.tables.counters, DIFFERENCE);
        code.copy(R3, R8);
        code.jump_if(R0, Equal, 0, found);
        code.set(R1, 1);
        code.count(0);
        code.jump(found);
        code.bind(unlock_found);
        code.set(R1, -1);
        code.add_atomically(Word, R7, at::LOCK, R1);
        code.jump(found);
        code.bind(unlock_full);
        code.set(R1, -1);
        code.add_atomically(Word, R7, at::LOCK, R1);
        code.jump(full);
    }

    /// The host that has this address of the pool, which has been answered now.
    pub(super) fn host_to_six(&mut self, settings: &Settings<'_>, from: i16, to: i16) {
        let pool = settings.nat64.pool;
        let (no_host, destination) = (self.refused(Refusal::NoHost), self.refused(Refusal::Destination));
        let heard = self.code.label();
        let code = &mut self.code;
        code.load(Word, R1, R10, from);
        code.network_order(R1, 32);
        code.copy(R8, R1);
        let bits = 32 - i32::from(pool.prefix_len());
        code.shift_right(R1, bits);
        code.jump_if(R1, NotEqual, (pool.network().to_bits() >> bits).cast_signed(), destination);
        code.copy(R1, R8);
        code.shift_left(R1, 64 - bits);
        code.shift_right(R1, 64 - bits + WAYS.ilog2().cast_signed());
        code.store(Word, R10, NUMBER, R1);
        code.look_up(&self.tables.hosts, NUMBER);
        code.jump_if(R0, Equal, 0, no_host);
        code.and(R8, WAYS as i32 - 1);
        code.copy(R7, R0);
        code.copy(R9, R8);
        code.shift_left(R9, 4);
        code.add(R9, R7);
        code.load(Double, R1, R9, 0);
        code.jump_if(R1, Equal, 0, no_host);
        code.store(Double, R10, to, R1);
        code.load(Double, R1, R9, 8);
        code.store(Double, R10, to + 8, R1);
        self.now();
        let code = &mut self.code;
        code.copy(R9, R8);
        code.shift_left(R9, 2);
        code.add(R9, R7);
        code.load(Word, R2, R10, NOW);
        code.add(R2, ANSWERED);
        code.load(Word, R1, R9, at::HEARD);
        code.jump_if(R1, GreaterOrEqual, R2, heard);
        code.store(Word, R9, at::HEARD, R2);
        code.bind(heard);
    }

    /// The time, to its place.
    fn now(&mut self) {
        let code = &mut self.code;
        code.call(Helper::KtimeGetCoarseNs);
        code.shift_right(R0, 30);
        code.store(Word, R10, NOW, R0);
    }

    /// Goes on at the label unless the address there on the stack can be that of one host, beyond its link.
    fn single_host(&mut self, place: i16, otherwise: Label) {
        let code = &mut self.code;
        code.load(Double, R1, R10, place);
        code.network_order(R1, 64);
        code.jump_if(R1, Equal, 0, otherwise);
        code.copy(R2, R1);
        code.shift_right(R2, 56);
        code.jump_if(R2, Equal, 0xff, otherwise);
        code.shift_right(R1, 54);
        code.jump_if(R1, Equal, 0xfe80 >> 6, otherwise);
    }
}
