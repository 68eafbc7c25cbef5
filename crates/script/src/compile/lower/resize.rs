//! `p:grow` and `p:shrink` directly behind the fixed header of IP, where the kernel can do it as [`crate::checksum::resize`]
//! has it: elsewhere it would have to move what it does not know.

use super::field::pieces;
use super::layout::FLOW;
use super::write::Piece;
use super::{Key, LINK, Link, Lower, State};
use crate::compile::ir::{Action, Condition, Failure, Operand, Operation};
use crate::compile::slot::{Resized, Shape, Slot};
use wire::{ipv4, ipv6};

/// Octets that come or go at once.
const MOST: i64 = 64;
const TOO_LONG: i64 = 0x1_0000;

impl Lower<'_> {
    /// Whether what a value says of the packet's places still holds.
    pub(super) fn is_present(&mut self, value: &Slot) -> bool {
        let made = match &value.shape {
            Shape::View(header) | Shape::Field(header, _) => header.since,
            Shape::Bytes(since) => *since,
            _ => return true,
        };
        let is_present = self.state.as_ref().is_none_or(|state| state.resized == made);
        if !is_present {
            let name = value.shape.name();
            self.refuse(format!("{name} from before the packet grew or shrank"));
        }
        is_present
    }

    /// How the packet came to be as long as it is here.
    pub(super) fn resized(&self) -> Resized {
        self.state.as_ref().map_or(Resized(0), |state| state.resized)
    }

    /// Ends what is known of places: views are gone but that of the whole packet.
    pub(super) fn has_resized(&mut self, length: Operand) {
        self.has_written();
        let since = Resized(self.writes);
        if let Some(state) = &mut self.state {
            state.variables.insert(Key::Length, Slot::integer(length));
            state.keep_whole(since);
            for key in [Key::Layout, Key::Intact] {
                state.variables.remove(&key);
            }
        }
    }

    /// Where ways meet on which the packet has another length.
    pub(super) fn meet_resized(&mut self, states: &mut [State]) {
        if states.iter().any(|state| state.resized != states[0].resized) {
            self.writes += 1;
            for state in states {
                state.keep_whole(Resized(self.writes));
            }
        }
    }

    /// The length of the packet, its link header included.
    pub(super) fn packet_length(&self) -> Operand {
        let length = self.state.as_ref().and_then(|state| state.variables.get(&Key::Length));
        length.map_or(Operand::Constant(0), |slot| slot.parts[0])
    }

    /// `p:grow(at, count)`, or with a negative count `p:shrink`.
    pub(super) fn resize(&mut self, view: &Slot, at: &Slot, count: &Slot, sign: i64) -> Slot {
        let whole = matches!(view.shape, Shape::View(header) if header.is_whole());
        let [at, count] = [at, count].map(|slot| self.integer(slot.clone(), "the place, or the number,"));
        let (true, Operand::Constant(at), Operand::Constant(count)) = (whole, at, count) else {
            return self.refuse("only the packet itself grows and shrinks, by numbers that are known");
        };
        let Some((header, version, start)) = self.network_header().filter(|(header, ..)| LINK + header == at)
        else {
            let places = LINK + ipv4::HEADER_LEN as i64;
            return self.refuse(format!(
                "the packet grows and shrinks in the kernel at {places} behind an IPv4 header, or {} behind an IPv6 \
                 header, of which a variable has the view",
                LINK + ipv6::HEADER_LEN as i64
            ));
        };
        if matches!(self.link, Link::MadeUp(_)) {
            return self.refuse("the packet grows and shrinks without a link header");
        }
        if !(1..=MOST).contains(&count) || count % 2 != 0 {
            return self.refuse(format!("the packet grows and shrinks by an even number from 2 to {MOST}"));
        }
        let removed_to = if sign < 0 { at + count } else { at };
        // Behind tags it is within the header.
        self.fail_if(Condition::NotEqual, start, LINK, Failure::Resize);
        let length = self.packet_length();
        self.fail_if(Condition::Below, length, removed_to, Failure::Resize);
        let layout = self.layout();
        // Without a header that could be relied on, octets come and go and nothing else.
        let (counted, plain) = self.branch(Condition::NotEqual, layout[FLOW], 0.into());
        self.state = counted;
        let mut ways: Vec<_> = plain.into_iter().collect();
        if version == 4 {
            self.fail_if(Condition::Below, at, layout[1], Failure::Resize);
        }
        let (field, before) = if version == 4 { (LINK + 2, 0) } else { (LINK + 4, header) };
        let said = self.load(field, 2);
        let end = self.calculate(Operation::Add, said, LINK + before);
        let end = self.select(Condition::Less, end, at, [at.into(), end]);
        let end = self.select(Condition::Equal, said, 0, [length, end]);
        let end = self.select(Condition::Less, length, end, [length, end]);
        // What is not within what the header counts is padding.
        self.leave_if(Condition::Below, end, removed_to, &mut ways);
        // Zero says nothing, in packets that are too large for it.
        let new = self.calculate(Operation::Add, said, sign * count);
        let (silent, says) = self.branch(Condition::Equal, said, 0.into());
        self.state = says;
        self.fail_if(Condition::LessOrEqual, TOO_LONG, new, Failure::Resize);
        let says = self.state.take();
        let mut both = Vec::new();
        for (state, says) in [(silent, false), (says, true)] {
            self.state = state;
            if sign < 0 {
                // A transport header is not taken away.
                let transport = layout[4];
                let (there, none) = self.branch(Condition::NotEqual, transport, 0.into());
                self.state = there;
                self.fail_if(Condition::Less, transport, removed_to, Failure::Resize);
                let there = self.state.take();
                self.join(there.into_iter().chain(none));
            }
            if says {
                self.write(field.into(), &[Piece { bytes: 2, value: new }], true);
                if version == 6 {
                    // No checksum of a header makes up for it.
                    let less = self.calculate(Operation::Xor, said, 0xffff);
                    let difference = self.calculate(Operation::Add, less, new);
                    self.emit(Action::PacketSum { difference });
                }
            }
            both.extend(self.state.take());
        }
        self.join(ways.into_iter().chain(both));
        if sign < 0 {
            let mut sum = Operand::Constant(0);
            for (from, bytes) in pieces(count) {
                let gone = self.load(at + from, bytes);
                let words = self.words(gone, bytes);
                sum = self.calculate(Operation::Add, sum, words);
            }
            let sum = self.folded(sum);
            let difference = self.calculate(Operation::Xor, sum, 0xffff);
            self.emit(Action::PacketSum { difference });
        }
        self.emit(Action::Resize { at, count: sign * count });
        if sign > 0 {
            for (from, bytes) in pieces(count) {
                self.emit(Action::Store { offset: (at + from).into(), bytes, value: 0.into() });
            }
        }
        let length = self.calculate(Operation::Add, length, sign * count);
        self.has_resized(length);
        Slot::nil()
    }

    /// The length of the fixed header of IP, the version and where it begins, where a view of it shows that it is there.
    fn network_header(&self) -> Option<(i64, u8, Operand)> {
        let state = self.state.as_ref()?;
        state.variables.get(&Key::Intact)?;
        let mut views = state.variables.values().filter_map(|slot| match slot.shape {
            Shape::View(header) if header.outermost && header.since == state.resized => {
                Some((header.protocol, slot.parts[0]))
            }
            _ => None,
        });
        views.find_map(|(id, start)| match self.protocols.name(id) {
            "packet_ip" => Some((ipv4::HEADER_LEN as i64, 4, start)),
            "packet_ip6" => Some((ipv6::HEADER_LEN as i64, 6, start)),
            _ => None,
        })
    }
}

impl State {
    /// Views are gone but those of the whole packet.
    fn keep_whole(&mut self, since: Resized) {
        let length = self.variables.get(&Key::Length).map_or(Operand::Constant(0), |slot| slot.parts[0]);
        for slot in self.variables.values_mut() {
            if let Shape::View(header) = &mut slot.shape
                && header.is_whole()
                && header.since == self.resized
            {
                header.since = since;
                slot.parts[1] = length;
            }
        }
        self.resized = since;
    }
}
