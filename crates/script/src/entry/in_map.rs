//! Entries as maps of the kernel have them: what is written there of one, and read back.

use ipnet::IpNet;

use super::{Entry, WORD, integer, key_place, place_key, prefix_key, split};
use crate::compile::shared::{Form, Map, MapPart, Part, seal, words};

impl Part {
    /// Appends what a map has for these octets: numbers of 64 bits in the order of the machine.
    fn write_map(self, octets: &[u8], to: &mut Vec<u8>) {
        let mut put = |piece: &[u8]| {
            let number = piece.iter().fold(0_u64, |number, octet| number << 8 | u64::from(*octet));
            to.extend(number.to_ne_bytes());
        };
        match self {
            Self::Kind(_) => octets.chunks(WORD).for_each(put),
            Self::Text(_) => {
                let (length, text) = octets.split_at(2);
                put(length);
                for piece in text.chunks(WORD) {
                    let mut whole = [0; WORD];
                    whole[..piece.len()].copy_from_slice(piece);
                    put(&whole);
                }
            }
        }
    }

    /// The octets of what a map has.
    fn read_map(self, numbers: &[u8], to: &mut Vec<u8>) {
        let mut left = self.octets();
        for (at, number) in numbers.as_chunks::<WORD>().0.iter().enumerate() {
            let octets = u64::from_ne_bytes(*number).to_be_bytes();
            let piece = match self {
                Self::Text(_) if at == 0 => &octets[WORD - 2..],
                Self::Text(_) => &octets[..left.min(WORD)],
                Self::Kind(_) => &octets[WORD - left.min(WORD)..],
            };
            to.extend_from_slice(piece);
            left -= piece.len();
        }
    }
}

impl Map {
    /// Keys and values that are in it from the beginning.
    #[must_use]
    pub fn initial(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Form::Prefixes { entries, .. } = &self.shared.form else { return Vec::new() };
        let is_ipv6 = self.part == MapPart::Ipv6;
        let own = entries.iter().filter(|(prefix, _)| matches!(prefix, IpNet::V6(_)) == is_ipv6);
        own.map(|(prefix, value)| (self.key(&prefix_key(*prefix)), value.to_ne_bytes().to_vec())).collect()
    }

    /// Whether a key is one of this map: a set of prefixes has two.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        !matches!(self.shared.form, Form::Prefixes { .. }) || (self.part == MapPart::Ipv6) == (key.len() > 5)
    }

    /// A key as the map has it.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Vec<u8> {
        match &self.shared.form {
            Form::Table { key: parts, .. } => {
                let mut to = Vec::new();
                split(parts, key).for_each(|(part, own)| part.write_map(own, &mut to));
                to
            }
            Form::Prefixes { .. } => {
                let (length, address) = key.split_at_checked(1).unwrap_or_default();
                let length = length.first().map_or(0, |length| u32::from(*length));
                [&length.to_ne_bytes()[..], address].concat()
            }
            Form::Counter => 0_u32.to_ne_bytes().to_vec(),
            Form::Histogram { .. } => (key_place(key).unwrap_or(0) as u32).to_ne_bytes().to_vec(),
            Form::Flows { .. } => key.to_vec(),
        }
    }

    /// An entry as the map has it, written at this time (`CLOCK_MONOTONIC`).
    #[must_use]
    pub fn pair(&self, Entry { key, value }: &Entry, now_ms: u64) -> (Vec<u8>, Vec<u8>) {
        let key = self.key(key);
        let Form::Table { value: parts, shape, .. } = &self.shared.form else {
            return (key, integer(value).to_ne_bytes().to_vec());
        };
        let written = shape.expires_ms.map_or(0, |_| now_ms);
        let mut to = written.to_ne_bytes().to_vec();
        split(parts, value).for_each(|(part, own)| part.write_map(own, &mut to));
        if let Some(place) = self.seal_place() {
            to.resize(place + WORD, 0);
            self.write_seal(&key, &mut to);
        }
        (key, to)
    }

    /// Writes the seal behind what a map has as a record; there is none behind other values.
    pub fn write_seal(&self, key: &[u8], value: &mut [u8]) {
        let Some(place) = self.seal_place() else { return };
        let seal = seal_of(key, &value[..place]);
        value[place..].copy_from_slice(&seal.to_ne_bytes());
    }

    /// Whether what was read from the map was written by one: a record was not written to meanwhile.
    #[must_use]
    pub fn is_whole(&self, key: &[u8], value: &[u8]) -> bool {
        self.seal_place().is_none_or(|place| seal_of(key, &value[..place]).to_ne_bytes() == value[place..])
    }

    /// Whether an entry with this value counts no more, by the time when it was written.
    #[must_use]
    pub fn has_expired(&self, value: &[u8], now_ms: u64) -> bool {
        let (Form::Table { shape, .. } | Form::Flows { shape, .. }) = &self.shared.form else { return false };
        let written = value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        shape.expires_ms.is_some_and(|expires| now_ms.saturating_sub(written) >= expires)
    }

    /// What the map has as an entry; none if it has expired. That of a flow has no value, and the key as it is.
    #[must_use]
    pub fn entry(&self, key: &[u8], value: &[u8], now_ms: u64) -> Option<Entry> {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        if self.has_expired(value, now_ms) {
            return None;
        }
        Some(match &self.shared.form {
            Form::Table { key: keys, value: values, .. } => {
                let read = |parts: &[Part], mut left: &[u8]| {
                    let mut octets = Vec::new();
                    for part in parts {
                        let (own, rest) = left.split_at_checked(words(*part) * WORD).unwrap_or_default();
                        part.read_map(own, &mut octets);
                        left = rest;
                    }
                    octets
                };
                Entry { key: read(keys, key), value: read(values, value.get(WORD..).unwrap_or_default()) }
            }
            Form::Prefixes { .. } => {
                let (length, address) = key.split_at_checked(4).unwrap_or_default();
                // A prefix has 128 bits at most.
                let length = length.first_chunk().map_or(0, |length| u32::from_ne_bytes(*length)) as u8;
                Entry { key: [&[length][..], address].concat(), value: number(value).to_be_bytes().to_vec() }
            }
            Form::Counter => Entry { key: Vec::new(), value: number(value).to_be_bytes().to_vec() },
            Form::Histogram { .. } => {
                let place = key.first_chunk().map_or(0, |place| u32::from_ne_bytes(*place));
                Entry { key: place_key(place as usize), value: number(value).to_be_bytes().to_vec() }
            }
            Form::Flows { .. } => Entry { key: key.to_vec(), value: Vec::new() },
        })
    }
}

fn seal_of(key: &[u8], value: &[u8]) -> u64 {
    let numbers = [key, value].map(|octets| octets.as_chunks::<WORD>().0);
    seal(numbers.into_iter().flatten().map(|number| u64::from_ne_bytes(*number)))
}
