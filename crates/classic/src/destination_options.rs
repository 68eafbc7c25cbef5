//! The Destination Options header (RFC 8200 section 4.6) and the two options of MT6D (docs/classic.md section 6).

use crate::drops::DropReason;
use crate::keys::SESSION_KEY_LEN;

const PAD1: u8 = 0;
const PADN: u8 = 1;
const ENCRYPTION: u8 = 219;
/// The option that holds a new session key.
pub(crate) const NEW_KEY: u8 = 204;

/// Bytes of the new-key option's data: cipher, change time, encrypted key.
pub(crate) const NEW_KEY_LEN: usize = 5 + SESSION_KEY_LEN;

/// The options of one packet, not interpreted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DestinationOptions {
    /// Option 219: cipher and padding.
    pub(crate) encryption: Option<u8>,
    /// Option 204: cipher, change time, encrypted key.
    pub(crate) new_key: Option<[u8; NEW_KEY_LEN]>,
}

impl DestinationOptions {
    /// Writes the header, if there is anything to say.
    pub(crate) fn write(&self, next_header: u8, out: &mut Vec<u8>) {
        if *self == DestinationOptions::default() {
            return;
        }
        let start = out.len();
        out.extend([next_header, 0]);
        if let Some(data) = self.encryption {
            out.extend([ENCRYPTION, 1, data]);
        }
        if let Some(data) = &self.new_key {
            out.extend([NEW_KEY, NEW_KEY_LEN as u8]);
            out.extend(data);
        }
        let length = out.len() - start;
        match length.next_multiple_of(8) - length {
            0 => {}
            1 => out.push(PAD1),
            padding => {
                out.extend([PADN, padding as u8 - 2]);
                out.resize(start + length + padding, 0);
            }
        }
        out[start + 1] = ((out.len() - start) / 8 - 1) as u8;
    }

    /// Reads the header at the beginning of `bytes`: the options, the next header, and what follows.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, u8, &[u8]), DropReason> {
        let [next_header, units, ..] = *bytes else { return Err(DropReason::MalformedOption) };
        let length = (usize::from(units) + 1) * 8;
        let (header, rest) = bytes.split_at_checked(length).ok_or(DropReason::MalformedOption)?;
        Ok((Self::read(&header[2..])?, next_header, rest))
    }

    fn read(mut bytes: &[u8]) -> Result<Self, DropReason> {
        let mut options = DestinationOptions::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            if kind == PAD1 {
                bytes = rest;
                continue;
            }
            let (&length, rest) = rest.split_first().ok_or(DropReason::MalformedOption)?;
            let (data, rest) =
                rest.split_at_checked(usize::from(length)).ok_or(DropReason::MalformedOption)?;
            bytes = rest;
            let well_formed = match kind {
                PADN => data.iter().all(|byte| *byte == 0),
                ENCRYPTION => match *data {
                    [value] => options.encryption.replace(value).is_none(),
                    _ => false,
                },
                NEW_KEY => match data.try_into() {
                    Ok(data) => options.new_key.replace(data).is_none(),
                    Err(_) => false,
                },
                _ => return Err(DropReason::UnknownOption),
            };
            if !well_formed {
                return Err(DropReason::MalformedOption);
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(options: &DestinationOptions) -> Vec<u8> {
        let mut bytes = Vec::new();
        options.write(17, &mut bytes);
        bytes
    }

    #[test]
    fn layouts_are_those_of_the_document() {
        let encryption = DestinationOptions { encryption: Some(0x13), new_key: None };
        assert_eq!(written(&encryption), [17, 0, 0xdb, 1, 0x13, 1, 1, 0]);
        let key = DestinationOptions { encryption: None, new_key: Some([9; NEW_KEY_LEN]) };
        let bytes = written(&key);
        assert_eq!(
            (bytes.len(), &bytes[..5], &bytes[73..]),
            (80, &[17, 9, 0xcc, 69, 9][..], &[1, 5, 0, 0, 0, 0, 0][..])
        );
        let both = DestinationOptions { new_key: key.new_key, ..encryption };
        assert_eq!(written(&both).len(), 80);
        assert!(written(&DestinationOptions::default()).is_empty());
    }

    #[test]
    fn what_is_malformed_has_its_reason() {
        for (bytes, reason) in [
            (&[17, 1, 1, 4, 0, 0, 0, 0][..], DropReason::MalformedOption), // longer than the packet
            (&[17, 0, 0xdb, 2, 0x10, 0, 1, 0], DropReason::MalformedOption), // wrong length
            (&[17, 0, 0xdb, 1, 0x10, 0xdb, 1, 0x10], DropReason::MalformedOption), // twice
            (&[17, 0, 0xdb, 1, 0x10, 1, 1, 7], DropReason::MalformedOption), // padding not zero
            (&[17, 0, 1, 3, 0, 0, 0, 0xdb], DropReason::MalformedOption),  // ends within an option
            (&[17, 0, 1, 5, 0, 0, 0, 0], DropReason::MalformedOption),     // option longer than the header
            (&[17, 0, 5, 2, 0, 0, 1, 0], DropReason::UnknownOption),       // router alert
            (&[17], DropReason::MalformedOption),
        ] {
            assert_eq!(DestinationOptions::parse(bytes), Err(reason), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(encryption: Option<u8>, key: Option<[u8; 32]>, next: u8, rest: Vec<u8>) {
            let new_key = key.map(|key| std::array::from_fn(|i| key[i % 32]));
            let options = DestinationOptions { encryption, new_key };
            prop_assume!(options != DestinationOptions::default());
            let mut bytes = Vec::new();
            options.write(next, &mut bytes);
            prop_assert_eq!(bytes.len() % 8, 0);
            bytes.extend(&rest);
            prop_assert_eq!(DestinationOptions::parse(&bytes), Ok((options, next, &rest[..])));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = DestinationOptions::parse(&bytes);
        }

        /// Mostly well-formed options, so that the walk goes far.
        #[test]
        fn no_sequence_of_options_panics(
            parts in prop::collection::vec((prop::sample::select(vec![0u8, 1, 204, 219, 7]), 0u8..72), 0..8),
            units in 0u8..12,
        ) {
            let mut bytes = vec![17, units];
            for (kind, length) in parts {
                bytes.extend([kind, length]);
                bytes.resize(bytes.len() + usize::from(length), 0);
            }
            let _ = DestinationOptions::parse(&bytes);
        }
    }
}
