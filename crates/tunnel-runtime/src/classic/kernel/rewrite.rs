//! The part of the program for streams whose packets are not encapsulated: only addresses are replaced
//! (docs/classic.md section 18).

use linux::bpf::Label;
use wire::protocol;

use super::program::{
    Byte, Code, Equal, HOP_LIMIT, Less, NEXT_HEADER, NotEqual, PACKET, R1, R2, R7, R8, R10, Tables, Word, at,
};

impl Code {
    /// Replaces the addresses of a packet from outside.
    pub(super) fn rewrite_incoming(&mut self, tables: &Tables, leave: Label) {
        let code = &mut self.code;
        // One without payload may belong to the key exchange.
        let [data, here] = std::array::from_fn(|_| code.label());
        code.load(Byte, R1, R10, PACKET + NEXT_HEADER);
        code.jump_if(R1, NotEqual, i32::from(protocol::UDP), data);
        code.jump_if(R7, Equal, 8, leave);
        code.bind(data);
        self.checksum_place(leave);
        let code = &mut self.code;
        code.load(Byte, R1, R10, PACKET + HOP_LIMIT);
        code.load(Word, R2, R8, at::INTERFACE);
        code.jump_if(R2, Equal, 0, here);
        code.jump_if(R1, Less, 2, leave);
        code.add(R1, -1);
        code.bind(here);
        self.replace(tables, at::ADDRESSES, at::DIFFERENCE, 16, leave);
        self.send();
    }
}
