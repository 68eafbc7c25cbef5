//! One socket for all rendezvous endpoints: which datagrams are for it.

use std::os::fd::AsRawFd;

use bpf::{Assembler, Condition, Helper, Register, Size};
use wire::protocol;

use crate::snippet::Snippets as _;

/// Bytes of a key of the table: an address, and a port as an integer of four bytes.
pub const KEY: usize = 20;

/// The program: `struct bpf_sk_lookup` of linux/bpf.h in, a socket or none out.
pub fn program(table: &impl AsRawFd, sockets: &impl AsRawFd) -> Assembler {
    use Condition::{Equal, NotEqual};
    use Register::{R0, R1, R2, R3, R6, R7, R10};
    use Size::Word;
    const AF_INET6: i32 = 10;
    // Offsets in the structure. The address is in network byte order, the port in that of the host.
    const FAMILY: i16 = 8;
    const PROTOCOL: i16 = 12;
    const LOCAL_IP6: i16 = 44;
    const LOCAL_PORT: i16 = 60;
    // The result: as the kernel would have it, or as was assigned.
    const SK_PASS: i32 = 1;
    let on_stack = -(KEY as i16);
    let mut code = Assembler::default();
    let end = code.label();
    code.copy(R6, R1);
    code.load(Word, R2, R6, FAMILY);
    code.jump_if(R2, NotEqual, AF_INET6, end);
    code.load(Word, R2, R6, PROTOCOL);
    code.jump_if(R2, NotEqual, i32::from(protocol::UDP), end);
    for word in 0..4 {
        code.load(Word, R2, R6, LOCAL_IP6 + 4 * word);
        code.store(Word, R10, on_stack + 4 * word, R2);
    }
    code.load(Word, R2, R6, LOCAL_PORT);
    code.store(Word, R10, on_stack + 16, R2);
    code.look_up(table, on_stack);
    code.jump_if(R0, Equal, 0, end);
    code.store_value(Word, R10, -4, 0);
    code.look_up(sockets, -4);
    code.jump_if(R0, Equal, 0, end);
    code.copy(R7, R0);
    code.copy(R1, R6);
    code.copy(R2, R7);
    code.set(R3, 0);
    code.call(Helper::SkAssign);
    code.copy(R1, R7);
    code.call(Helper::SkRelease);
    code.bind(end);
    code.exit_with(SK_PASS);
    code
}
