//! Numbers and strings as they are written (Lua 5.4 reference manual, 3.1).

use super::tree::ExpressionKind;

/// What a numeral stands for.
pub(super) fn number(text: &str) -> Option<ExpressionKind> {
    let lower = text.to_ascii_lowercase();
    let Some(digits) = lower.strip_prefix("0x") else {
        // One that does not fit is a float.
        let integer = lower.parse().map(ExpressionKind::Integer);
        return integer.or_else(|_| lower.parse().map(ExpressionKind::Float)).ok();
    };
    if digits.contains(['.', 'p']) {
        return hexadecimal_float(digits).map(ExpressionKind::Float);
    }
    // Modulo 2^64.
    digits
        .chars()
        .try_fold(0_u64, |value, digit| Some(value << 4 | u64::from(digit.to_digit(16)?)))
        .map(|value| ExpressionKind::Integer(value as i64))
}

fn hexadecimal_float(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once('p').unwrap_or((text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let value = whole
        .chars()
        .chain(fraction.chars())
        .try_fold(0.0_f64, |value, digit| Some(value * 16.0 + f64::from(digit.to_digit(16)?)))?;
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(4 * fraction.len() as i32)?;
    Some(value * 2.0_f64.powi(exponent))
}

/// The bytes of a string in quotes, which Lua has accepted.
pub(super) fn string(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&escape, after)) = rest.split_first() else { break };
        rest = after;
        match escape {
            b'a' => bytes.push(0x07),
            b'b' => bytes.push(0x08),
            b'f' => bytes.push(0x0c),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'v' => bytes.push(0x0b),
            b'x' => {
                let (digits, after) = rest.split_at(rest.len().min(2));
                bytes.push(digits.iter().fold(0, |value, digit| value << 4 | hexadecimal(*digit)));
                rest = after;
            }
            b'z' => rest = rest.trim_ascii_start(),
            b'0'..=b'9' => {
                let more = rest.iter().take(2).take_while(|digit| digit.is_ascii_digit()).count();
                let digits = rest[..more]
                    .iter()
                    .fold(u32::from(escape - b'0'), |value, digit| value * 10 + u32::from(digit - b'0'));
                bytes.push(digits as u8);
                rest = &rest[more..];
            }
            b'u' => {
                let end = rest.iter().position(|byte| *byte == b'}').unwrap_or(rest.len());
                let digits = rest[..end].iter().filter(|byte| byte.is_ascii_hexdigit());
                let code = digits.fold(0_u32, |value, digit| value << 4 | u32::from(hexadecimal(*digit)));
                utf8(code, &mut bytes);
                rest = rest.get(end + 1..).unwrap_or_default();
            }
            // A quote, a backslash, the end of a line.
            b'\r' => {
                bytes.push(b'\n');
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
            other => bytes.push(other),
        }
    }
    bytes
}

fn hexadecimal(digit: u8) -> u8 {
    char::from(digit).to_digit(16).unwrap_or(0) as u8
}

/// UTF-8 as it was once meant, for codes up to 2^31.
fn utf8(code: u32, bytes: &mut Vec<u8>) {
    let more = match code {
        0..0x80 => return bytes.push(code as u8),
        0x80..0x800 => 1,
        0x800..0x1_0000 => 2,
        0x1_0000..0x20_0000 => 3,
        0x20_0000..0x400_0000 => 4,
        _ => 5,
    };
    bytes.push((0xff_u32 << (6 - more)) as u8 | (code >> (6 * more)) as u8);
    bytes.extend((0..more).rev().map(|place| 0x80 | (code >> (6 * place)) as u8 & 0x3f));
}

/// The bytes of a string in long brackets: without the first end of line.
pub(super) fn long_string(text: &str) -> Vec<u8> {
    let text = text.replace("\r\n", "\n");
    text.strip_prefix('\n').unwrap_or(&text).as_bytes().to_vec()
}
