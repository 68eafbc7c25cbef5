//! Octets of a packet in keys and values, as text for a terminal and for files.

/// Octets of a packet as text that is read again as the same, and does nothing to a terminal: what is no text, or none that
/// can be seen, is `\xff`, and a backslash two.
pub(super) fn shown(octets: &[u8]) -> String {
    let mut text = String::new();
    let escape = |text: &mut String, octets: &[u8]| {
        for octet in octets {
            text.push_str(&format!("\\x{octet:02x}"));
        }
    };
    for chunk in octets.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                control if control.is_control() => escape(&mut text, control.to_string().as_bytes()),
                other => text.push(other),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// The octets that [`shown`] was given; none if it has said no such text.
pub(super) fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    let mut left = text;
    while let Some((first, rest)) = left.split_first() {
        left = rest;
        if *first != b'\\' {
            octets.push(*first);
            continue;
        }
        match rest {
            [b'\\', rest @ ..] => {
                octets.push(b'\\');
                left = rest;
            }
            [b'x', high, low, rest @ ..] => {
                let digit = |digit: u8| char::from(digit).to_digit(16);
                // Two digits of four bits.
                octets.push((digit(*high)? << 4 | digit(*low)?) as u8);
                left = rest;
            }
            _ => return None,
        }
    }
    Some(octets)
}
