//! Which queue of a TUN device a packet waits in: by its flow.

use bpf::{Assembler, Condition, PacketField, Register};
use wire::protocol;

/// Odd, with its bits well spread: the golden ratio's first 31.
const FACTOR: i32 = 0x4f1b_bcdd;

/// A hash over addresses, protocol and, where they are in the usual place, ports; the kernel takes its remainder by the
/// number of queues. A packet that is too short goes to the first queue: a load beyond the end returns 0 at once.
pub fn program() -> Assembler {
    use Condition::{Equal, NotEqual};
    use Register::{R0, R1, R6};
    const HASH: Register = Register::R7;
    const PROTOCOL: Register = Register::R8;
    let mut code = Assembler::default();
    let [ipv4, ipv6_ports, ipv4_ports, end] = std::array::from_fn(|_| code.label());
    let mix = |code: &mut Assembler, field: PacketField| {
        code.load_packet(field);
        code.multiply(HASH, FACTOR);
        code.add(HASH, R0);
    };
    // Where loads of packet fields look for it.
    code.copy(R6, R1);
    code.set(HASH, 0);
    code.load_packet(PacketField::Byte(0));
    code.shift_right(R0, 4);
    code.jump_if(R0, Equal, 4, ipv4);

    for word in (8..40).step_by(4) {
        mix(&mut code, PacketField::Word(word));
    }
    mix(&mut code, PacketField::Byte(6));
    code.copy(PROTOCOL, R0);
    code.jump_if(PROTOCOL, Equal, i32::from(protocol::TCP), ipv6_ports);
    code.jump_if(PROTOCOL, NotEqual, i32::from(protocol::UDP), end);
    code.bind(ipv6_ports);
    mix(&mut code, PacketField::Word(40));
    code.jump(end);

    code.bind(ipv4);
    for word in [12, 16] {
        mix(&mut code, PacketField::Word(word));
    }
    mix(&mut code, PacketField::Byte(9));
    code.copy(PROTOCOL, R0);
    // All fragments of a packet go where those go that have no ports.
    code.load_packet(PacketField::Half(6));
    code.and(R0, 0x3fff);
    code.jump_if(R0, NotEqual, 0, end);
    code.jump_if(PROTOCOL, Equal, i32::from(protocol::TCP), ipv4_ports);
    code.jump_if(PROTOCOL, NotEqual, i32::from(protocol::UDP), end);
    code.bind(ipv4_ports);
    code.load_packet(PacketField::Byte(0));
    code.and(R0, 0xf);
    code.multiply(R0, 4);
    mix(&mut code, PacketField::WordAt(R0));

    code.bind(end);
    // The upper half is the one that all of the input has reached.
    code.multiply(HASH, FACTOR);
    code.shift_right(HASH, 32);
    code.exit_with(HASH);
    code
}
