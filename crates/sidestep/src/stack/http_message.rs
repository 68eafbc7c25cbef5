//! What requests and answers of HTTP/1.1 have in common (RFC 9112): a head, and a body whose length it tells.

use std::io::{self, BufRead, ErrorKind, Read, Write};

/// No head is longer.
const LONGEST_HEAD: u64 = 32 * 1024;
/// No head has more fields.
pub(super) const MAX_FIELDS: usize = 64;

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Known(u64),
    Chunked,
    ToTheEnd,
}

/// Up to the empty line after the fields.
pub(super) fn read_head(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        let before = head.len();
        let left = LONGEST_HEAD - before as u64;
        let length = reader.take(left).read_until(b'\n', &mut head)?;
        if length == 0 {
            return Err(if left == 0 {
                broken("a head that is too long")
            } else {
                ErrorKind::UnexpectedEof.into()
            });
        }
        if matches!(&head[before..], b"\n" | b"\r\n") && before > 0 {
            return Ok(head);
        }
    }
}

/// What the fields say of the body's length (RFC 9112 §6.3).
pub(super) fn body_length(fields: &[httparse::Header<'_>]) -> io::Result<Option<Length>> {
    let mut length = None;
    for field in fields {
        let value = std::str::from_utf8(field.value).unwrap_or_default().trim();
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(broken("a transfer coding other than chunked"));
            }
            // It overrides a length.
            return Ok(Some(Length::Chunked));
        }
        if field.name.eq_ignore_ascii_case("content-length") {
            let said = value.parse().map_err(|_| broken("a length that is no number"))?;
            if length.is_some_and(|before| before != Length::Known(said)) {
                return Err(broken("two lengths"));
            }
            length = Some(Length::Known(said));
        }
    }
    Ok(length)
}

/// Copies a body in chunks (RFC 9112 §7.1).
pub(super) fn copy_chunks(reader: &mut impl BufRead, output: &mut dyn Write) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut *reader).take(1024).read_until(b'\n', &mut line)?;
        let Ok(httparse::Status::Complete((_, size))) = httparse::parse_chunk_size(&line) else {
            return Err(broken("a chunk without a size"));
        };
        if size == 0 {
            // What trails is of no use here.
            return Ok(());
        }
        if copy(&mut (&mut *reader).take(size), output)? < size {
            return Err(broken("the body ends early"));
        }
        line.clear();
        (&mut *reader).take(2).read_until(b'\n', &mut line)?;
        if line != b"\r\n" {
            return Err(broken("a chunk that does not end"));
        }
    }
}

/// As [`io::copy`], in larger pieces.
pub(super) fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(total),
            length => {
                to.write_all(&buffer[..length])?;
                total += length as u64;
            }
        }
    }
}

pub(super) fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chunks_become_a_body() {
        let body = |text: &str| {
            let mut body = Vec::new();
            copy_chunks(&mut text.as_bytes(), &mut body).map(|()| body)
        };
        assert_eq!(body("3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n").unwrap(), b"abcde");
        for wrong in ["3\r\nab", "x\r\n", "3\r\nabcd\r\n0\r\n\r\n", ""] {
            assert!(body(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_head(&mut &octets[..]);
            let _ = copy_chunks(&mut &octets[..], &mut io::sink());
        }
    }
}
