//! Questions for addresses, and the answers to them (RFC 1035), in the messages of `simple-dns`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Packet, PacketFlag, Question, RCODE, TYPE};

use crate::target::Name;

/// Aliases that are followed.
const MAX_ALIASES: usize = 16;
/// Addresses of a name that are tried.
pub const MAX_ADDRESSES: usize = 4;

/// Which addresses are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Those of IPv4.
    A,
    /// Those of IPv6.
    Aaaa,
}

impl Kind {
    const fn number(self) -> TYPE {
        match self {
            Self::A => TYPE::A,
            Self::Aaaa => TYPE::AAAA,
        }
    }
}

/// A question. `None`: not about this name.
pub fn question(id: u16, name: &Name, kind: Kind) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = simple_dns::Name::new(name.as_str()).ok()?;
    packet.questions.push(Question::new(name, kind.number().into(), CLASS::IN.into(), false));
    packet.build_bytes_vec().ok()
}

/// The addresses of an answer to that question; none, if the name has none. `None`: it is no answer, and another may come.
pub fn answer(bytes: &[u8], id: u16, name: &Name, kind: Kind) -> Option<Vec<IpAddr>> {
    let packet = Packet::parse(bytes).ok()?;
    let asked = simple_dns::Name::new(name.as_str()).ok()?;
    let [question] = &packet.questions[..] else { return None };
    let is_answer = packet.has_flags(PacketFlag::RESPONSE)
        && packet.id() == id
        && is_same(&question.qname, &asked)
        && question.qtype == kind.number().into();
    // A server that has failed may be right the next time; one that knows of no such name is.
    if !is_answer || !matches!(packet.rcode(), RCODE::NoError | RCODE::NameError) {
        return None;
    }
    let mut alias = &asked;
    for _ in 0..MAX_ALIASES {
        let next = packet.answers.iter().find_map(|record| match &record.rdata {
            RData::CNAME(to) if is_same(&record.name, alias) => Some(&to.0),
            _ => None,
        });
        match next {
            Some(next) => alias = next,
            None => break,
        }
    }
    let addresses = packet.answers.iter().filter(|record| is_same(&record.name, alias));
    let addresses = addresses.filter_map(|record| match (&record.rdata, kind) {
        (RData::A(a), Kind::A) => Some(Ipv4Addr::from(a.address).into()),
        (RData::AAAA(aaaa), Kind::Aaaa) => Some(Ipv6Addr::from(aaaa.address).into()),
        _ => None,
    });
    Some(addresses.take(MAX_ADDRESSES).collect())
}

/// Names differ not by the size of their letters (RFC 4343).
fn is_same(a: &simple_dns::Name<'_>, b: &simple_dns::Name<'_>) -> bool {
    a.to_string().eq_ignore_ascii_case(&b.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{A, AAAA, CNAME};

    use super::*;

    /// What a server answers that knows these addresses of a name, by an alias.
    pub(crate) fn reply(question: &[u8], addresses: &[IpAddr]) -> Vec<u8> {
        let mut packet = Packet::parse(question).unwrap().into_reply();
        let asked = packet.questions[0].clone();
        let alias = simple_dns::Name::new_unchecked("alias.example");
        let record = |name, rdata| ResourceRecord::new(name, CLASS::IN, 60, rdata);
        packet.answers.push(record(asked.qname.clone(), RData::CNAME(CNAME(alias.clone()))));
        for address in addresses {
            let (kind, rdata) = match address {
                IpAddr::V4(address) => (TYPE::A, RData::A(A { address: (*address).into() })),
                IpAddr::V6(address) => (TYPE::AAAA, RData::AAAA(AAAA { address: (*address).into() })),
            };
            if asked.qtype == kind.into() {
                packet.answers.push(record(alias.clone(), rdata));
            }
        }
        packet.build_bytes_vec().unwrap()
    }

    #[test]
    fn an_answer_fits_its_question_and_follows_aliases() {
        let name: Name = "www.Example".parse().unwrap();
        let asked = question(7, &name, Kind::Aaaa).unwrap();
        let addresses = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let bytes = reply(&asked, &addresses);
        assert_eq!(answer(&bytes, 7, &name, Kind::Aaaa), Some(vec![addresses[1]]));
        assert_eq!(answer(&bytes, 8, &name, Kind::Aaaa), None, "another question's");
        assert_eq!(answer(&bytes, 7, &name, Kind::A), None, "of another kind");
        assert_eq!(answer(&bytes, 7, &"w.example".parse().unwrap(), Kind::Aaaa), None, "of another name");
        assert_eq!(answer(&asked, 7, &name, Kind::Aaaa), None, "the question is no answer");
    }

    #[test]
    fn a_name_that_is_not_there_has_no_addresses_and_a_failed_server_no_answer() {
        let name: Name = "www.example".parse().unwrap();
        let mut bytes = reply(&question(7, &name, Kind::A).unwrap(), &[]);
        bytes[3] = bytes[3] & 0xf0 | 3;
        assert_eq!(answer(&bytes, 7, &name, Kind::A), Some(Vec::new()));
        bytes[3] = bytes[3] & 0xf0 | 2;
        assert_eq!(answer(&bytes, 7, &name, Kind::A), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..80, value: u8) {
            let name: Name = "www.example".parse().unwrap();
            let _ = answer(&bytes, 7, &name, Kind::A);
            let mut nearly = reply(&question(7, &name, Kind::A).unwrap(), &["192.0.2.1".parse().unwrap()]);
            if let Some(byte) = nearly.get_mut(at) {
                *byte = value;
            }
            let _ = answer(&nearly, 7, &name, Kind::A);
        }
    }
}
