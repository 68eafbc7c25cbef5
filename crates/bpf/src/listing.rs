//! Instructions as text, for people: `r0 = *(u32 *)(r1 + 16)`, in the words of the verifier's own reports.

/// Each instruction as text, jumps with the number of the instruction that they lead to. The second half of a wide one is
/// an empty line.
#[must_use]
pub fn listing(code: &[[u8; 8]]) -> Vec<String> {
    let mut lines = Vec::with_capacity(code.len());
    let mut at = 0;
    while at < code.len() {
        lines.push(instruction(code[at], code.get(at + 1).copied(), at));
        at += 1;
        if code[at - 1][0] == WIDE {
            lines.push(String::new());
            at += 1;
        }
    }
    lines
}

const WIDE: u8 = 0x18;

fn instruction(code: [u8; 8], next: Option<[u8; 8]>, at: usize) -> String {
    let [operation, registers, offset0, offset1, ..] = code;
    let (to, from) = if cfg!(target_endian = "little") {
        (registers & 15, registers >> 4)
    } else {
        (registers >> 4, registers & 15)
    };
    let offset = i16::from_ne_bytes([offset0, offset1]);
    let value = i32::from_ne_bytes([code[4], code[5], code[6], code[7]]);
    let target = at as i64 + 1 + i64::from(offset);
    let second = if operation & 0x08 == 0 { value.to_string() } else { format!("r{from}") };
    let size = match operation & 0x18 {
        0x10 => "u8",
        0x08 => "u16",
        0x00 => "u32",
        _ => "u64",
    };
    match operation {
        WIDE if from == 1 => format!("r{to} = map {value}"),
        WIDE if from == 4 => format!("r{to} = function {}", at as i64 + 1 + i64::from(value)),
        WIDE => {
            let high = next.map_or(0, |next| i32::from_ne_bytes([next[4], next[5], next[6], next[7]]));
            format!("r{to} = {:#x}", u64::from(high as u32) << 32 | u64::from(value as u32))
        }
        0x20 | 0x28 | 0x30 => format!("r0 = packet {size} at {value}"),
        0x40 => format!("r0 = packet {size} at r{from}"),
        0x05 => format!("goto {target}"),
        0x85 if from == 1 => format!("call function {}", at as i64 + 1 + i64::from(value)),
        0x85 if from == 2 => format!("call kernel#{value}"),
        0x85 => format!("call {value}"),
        0x95 => "exit".to_owned(),
        0xdc => format!("r{to} = be{value} r{to}"),
        0x87 => format!("r{to} = -r{to}"),
        _ => match operation & 0x07 {
            0x01 => format!("r{to} = *({size} *)(r{from} {offset:+})"),
            0x02 => format!("*({size} *)(r{to} {offset:+}) = {value}"),
            0x03 if operation & 0xe0 == 0xc0 => format!("lock *({size} *)(r{to} {offset:+}) += r{from}"),
            0x03 => format!("*({size} *)(r{to} {offset:+}) = r{from}"),
            0x05 | 0x06 => {
                let register = if operation & 0x07 == 0x05 { 'r' } else { 'w' };
                let condition = match operation & 0xf0 {
                    0x10 => "==",
                    0x20 => ">",
                    0x30 => ">=",
                    0x40 => "&",
                    0x50 => "!=",
                    0x60 => "s>",
                    0x70 => "s>=",
                    0xa0 => "<",
                    0xb0 => "<=",
                    0xc0 => "s<",
                    _ => "s<=",
                };
                format!("if {register}{to} {condition} {second} goto {target}")
            }
            class => {
                let register = if class == 0x07 { 'r' } else { 'w' };
                let sign = match operation & 0xf0 {
                    0x00 => "+",
                    0x10 => "-",
                    0x20 => "*",
                    0x30 => "/",
                    0x40 => "|",
                    0x50 => "&",
                    0x60 => "<<",
                    0x70 => ">>",
                    0x90 => "%",
                    0xa0 => "^",
                    0xb0 => "",
                    _ => "s>>",
                };
                format!("{register}{to} {sign}= {second}")
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::listing;
    use crate::{Assembler, Condition, Helper, Register, Size};

    #[test]
    fn instructions_are_written_as_the_verifier_does() {
        let mut code = Assembler::default();
        let end = code.label();
        code.load(Size::Word, Register::R2, Register::R1, 16);
        code.set_wide(Register::R3, 0x1_0000_0002);
        code.add(Register::R2, Register::R3);
        code.set(Register::R0, -1);
        code.jump_if(Register::R2, Condition::SignedLess, 5, end);
        code.store(Size::Double, Register::R10, -8, Register::R2);
        code.call(Helper::KtimeGetNs);
        code.call_kernel(77);
        code.bind(end);
        code.exit();
        let text = listing(&code.instructions().unwrap());
        assert_eq!(
            text,
            [
                "r2 = *(u32 *)(r1 +16)",
                "r3 = 0x100000002",
                "",
                "r2 += r3",
                "r0 = -1",
                "if r2 s< 5 goto 9",
                "*(u64 *)(r10 -8) = r2",
                "call 5",
                "call kernel#77",
                "exit"
            ]
        );
    }
}
