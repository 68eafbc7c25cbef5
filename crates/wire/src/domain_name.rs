//! Names of DNS as options carry them (RFC 1035 section 3.1): labels with their lengths, the last of which is zero, without
//! compression.

/// Octets of a name with its lengths, at most (RFC 1035 section 2.3.4).
pub const LONGEST_NAME: usize = 255;
/// Octets of a label, at most; greater numbers are no lengths.
pub const LONGEST_LABEL: u8 = 63;

/// The whole name that bytes begin with, without a dot at its end, and what is behind it. None where it has something else
/// than printable ASCII in a label, or a dot, and where it is too long.
pub(crate) fn read(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut rest = bytes;
    let mut labels = Vec::new();
    loop {
        let (length, behind) = rest.split_first()?;
        let (label, behind) = behind.split_at_checked(usize::from(*length))?;
        rest = behind;
        if bytes.len() - rest.len() > LONGEST_NAME || *length > LONGEST_LABEL {
            return None;
        }
        if label.is_empty() {
            return Some((labels.join("."), rest));
        }
        let plain = label.iter().all(|octet| octet.is_ascii_graphic() && *octet != b'.');
        labels.push(plain.then(|| std::str::from_utf8(label)).and_then(Result::ok)?);
    }
}

/// Appends a name of labels that are no longer than [`LONGEST_LABEL`].
pub(crate) fn write(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.push(0);
}
