//! Questions and answers of DNS (RFC 1035), in the messages of `simple-dns`: what is read of an answer is bounded, and nothing
//! of it is believed.

use std::net::Ipv6Addr;
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, ResourceRecord, TYPE};

/// Aliases that are followed.
const ALIASES: usize = 8;
/// Of a text; a sealed record is shorter.
const LONGEST_TEXT: usize = 255;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Addresses of IPv6.
    Aaaa,
    /// Texts.
    Txt,
}

impl Kind {
    /// As files of zones have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Aaaa => "AAAA",
            Kind::Txt => "TXT",
        }
    }

    fn number(self) -> TYPE {
        match self {
            Kind::Aaaa => TYPE::AAAA,
            Kind::Txt => TYPE::TXT,
        }
    }
}

/// What a name has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// An address.
    Address(Ipv6Addr),
    /// A text.
    Text(String),
}

/// What a name has of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// As many as the datagram had room for.
    pub found: Vec<Found>,
    /// How long they may be believed to be the same (their TTL); of none, not at all.
    pub ttl: Duration,
}

/// What a server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// What the name has of this kind; nothing, if it has something else only.
    Found(Records),
    /// It has some, but a datagram has no room for any.
    TooLong,
    /// There is no such name.
    NoSuchName,
    /// The server cannot tell: its code (RFC 1035 section 4.1.1).
    Failed(u16),
}

/// A question. None if that cannot be a name.
#[must_use]
pub fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).ok().filter(|_| !name.trim_end_matches('.').split('.').any(str::is_empty))?;
    packet.questions.push(Question::new(name, kind.number().into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().ok()
}

/// What a datagram answers to that question. None if it is no answer to it, and another may come.
#[must_use]
pub fn answer(bytes: &[u8], id: u16, name: &str, kind: Kind) -> Option<Answer> {
    let packet = Packet::parse(bytes).ok()?;
    let asked = Name::new(name).ok()?;
    let [question] = &packet.questions[..] else { return None };
    let is_answer = packet.has_flags(PacketFlag::RESPONSE)
        && packet.id() == id
        && is_same(&question.qname, &asked)
        && question.qtype == kind.number().into()
        && question.qclass == CLASS::IN.into();
    if !is_answer {
        return None;
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Some(Answer::NoSuchName),
        other => return Some(Answer::Failed(other as u16)),
    }
    let (mut owner, mut ttl) = (&asked, u32::MAX);
    for _ in 0..ALIASES {
        let next = packet.answers.iter().find_map(|record| match &record.rdata {
            RData::CNAME(to) if is_same(&record.name, owner) => Some((&to.0, lasts(record))),
            _ => None,
        });
        let Some((next, of_alias)) = next else { break };
        (owner, ttl) = (next, ttl.min(of_alias));
    }
    let records = packet.answers.iter().filter(|record| is_same(&record.name, owner));
    let found = records.filter_map(|record| {
        let found = match (&record.rdata, kind) {
            (RData::AAAA(aaaa), Kind::Aaaa) => Found::Address(aaaa.address.into()),
            (RData::TXT(txt), Kind::Txt) => {
                let text = String::try_from(txt.clone()).ok()?;
                (text.len() <= LONGEST_TEXT).then_some(Found::Text(text))?
            }
            _ => return None,
        };
        ttl = ttl.min(lasts(record));
        Some(found)
    });
    let found: Vec<_> = found.collect();
    let ttl = if found.is_empty() { 0 } else { ttl };
    // What has come of it serves.
    if found.is_empty() && packet.has_flags(PacketFlag::TRUNCATION) {
        return Some(Answer::TooLong);
    }
    Some(Answer::Found(Records { found, ttl: Duration::from_secs(ttl.into()) }))
}

/// How many seconds a record may be believed: none if the highest bit is set (RFC 2181 section 8).
fn lasts(record: &ResourceRecord<'_>) -> u32 {
    if record.ttl > i32::MAX as u32 { 0 } else { record.ttl }
}

/// Names differ not by the size of their letters (RFC 4343).
fn is_same(a: &Name<'_>, b: &Name<'_>) -> bool {
    a.to_string().eq_ignore_ascii_case(&b.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use simple_dns::rdata::{AAAA, CNAME, TXT};

    use super::*;

    fn answered(found: &[Found]) -> Option<Answer> {
        let ttl = Duration::from_secs(if found.is_empty() { 0 } else { 60 });
        Some(Answer::Found(Records { found: found.to_vec(), ttl }))
    }

    /// What a server answers that knows this of a name, by an alias.
    pub(crate) fn reply(question: &[u8], found: &[Found]) -> Vec<u8> {
        reply_for(question, found, [600, 60])
    }

    /// The alias and what it has last so many seconds.
    fn reply_for(question: &[u8], found: &[Found], [of_alias, of_found]: [u32; 2]) -> Vec<u8> {
        let mut packet = Packet::parse(question).unwrap().into_reply();
        let asked = packet.questions[0].qname.clone();
        let alias = Name::new_unchecked("alias.example");
        let record = |name, rdata, ttl| ResourceRecord::new(name, CLASS::IN, ttl, rdata);
        packet.answers.push(record(asked, RData::CNAME(CNAME(alias.clone())), of_alias));
        for found in found {
            let rdata = match found {
                Found::Address(address) => RData::AAAA(AAAA { address: (*address).into() }),
                Found::Text(text) => RData::TXT(TXT::new().with_string(text).unwrap()),
            };
            packet.answers.push(record(alias.clone(), rdata, of_found));
        }
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn an_answer_fits_its_question_and_follows_aliases() {
        let asked = question(7, "site-b.Example", Kind::Aaaa).unwrap();
        let (address, text) = (Found::Address("2001:db8::1".parse().unwrap()), Found::Text("x=y z".into()));
        let bytes = reply(&asked, &[text.clone(), address.clone()]);
        let read = |id, name, kind| answer(&bytes, id, name, kind);
        assert_eq!(read(7, "site-b.example", Kind::Aaaa), answered(&[address]));
        assert_eq!(read(8, "site-b.example", Kind::Aaaa), None, "another question's");
        assert_eq!(read(7, "site-b.example", Kind::Txt), None, "of another kind");
        assert_eq!(read(7, "site-c.example", Kind::Aaaa), None, "of another name");
        assert_eq!(answer(&asked, 7, "site-b.example", Kind::Aaaa), None, "the question is no answer");
        let asked = question(7, "site-b.example", Kind::Txt).unwrap();
        let bytes = reply(&asked, std::slice::from_ref(&text));
        assert_eq!(answer(&bytes, 7, "site-b.example", Kind::Txt), answered(&[text]));
        // Of another class.
        let place = asked.len() - 1;
        let mut other = bytes;
        other[place] = 3;
        assert_eq!(answer(&other, 7, "site-b.example", Kind::Txt), None);
    }

    #[test]
    fn what_a_server_cannot_tell_is_told_from_what_is_not_there() {
        let mut bytes = reply(&question(7, "site-b.example", Kind::Txt).unwrap(), &[]);
        for (code, expected) in [
            (0, answered(&[])),
            (3, Some(Answer::NoSuchName)),
            (2, Some(Answer::Failed(2))),
            (5, Some(Answer::Failed(5))),
        ] {
            bytes[3] = bytes[3] & 0xf0 | code;
            assert_eq!(answer(&bytes, 7, "site-b.example", Kind::Txt), expected);
        }
        // Truncated (TC).
        (bytes[2], bytes[3]) = (bytes[2] | 0x02, bytes[3] & 0xf0);
        assert_eq!(answer(&bytes, 7, "site-b.example", Kind::Txt), Some(Answer::TooLong));
        let some = [Found::Text("one of many".into())];
        let mut bytes = reply(&question(7, "site-b.example", Kind::Txt).unwrap(), &some);
        bytes[2] |= 0x02;
        assert_eq!(answer(&bytes, 7, "site-b.example", Kind::Txt), answered(&some));
    }

    #[test]
    fn an_answer_lasts_as_long_as_what_lasts_shortest_in_it() {
        let asked = question(7, "b.example", Kind::Txt).unwrap();
        for (ttls, expected) in
            [([600, 60], 60), ([5, 60], 5), ([0, 60], 0), ([600, 1 << 31], 0), ([u32::MAX, 1], 0)]
        {
            let bytes = reply_for(&asked, &[Found::Text("text".into())], ttls);
            let Some(Answer::Found(Records { ttl, .. })) = answer(&bytes, 7, "b.example", Kind::Txt) else {
                panic!("no answer")
            };
            assert_eq!(ttl, Duration::from_secs(expected), "{ttls:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..80, value: u8) {
            let mut nearly = reply(&question(7, "b.example", Kind::Txt).unwrap(), &[Found::Text("text".into())]);
            if let Some(byte) = nearly.get_mut(at) {
                *byte = value;
            }
            for bytes in [bytes, nearly] {
                let _ = (answer(&bytes, 7, "b.example", Kind::Txt), answer(&bytes, 7, "b.example", Kind::Aaaa));
            }
        }
    }
}
