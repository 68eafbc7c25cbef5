//! DHCPv6 (RFC 8415), as far as a router needs that asks for prefixes: messages between client and server, and the
//! options of prefix delegation.

use std::fmt;
use std::net::Ipv6Addr;

use crate::ParseError;
use crate::bytes::{ipv6_at, u16_at, u32_at};

/// The port that clients receive at.
pub const CLIENT_PORT: u16 = 546;
/// The port that servers and relays receive at.
pub const SERVER_PORT: u16 = 547;
/// All servers and relays of the link.
pub const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

const HEADER_LEN: usize = 4;
const OPTION_HEADER_LEN: usize = 4;
/// Characters of a server's words that are kept.
const LONGEST_REMARK: usize = 200;

/// Codes of options (RFC 8415 section 21, RFC 3646, RFC 8415 section 21.24).
mod code {
    pub(super) const CLIENT_ID: u16 = 1;
    pub(super) const SERVER_ID: u16 = 2;
    pub(super) const OPTION_REQUEST: u16 = 6;
    pub(super) const PREFERENCE: u16 = 7;
    pub(super) const ELAPSED_TIME: u16 = 8;
    pub(super) const STATUS: u16 = 13;
    pub(super) const RAPID_COMMIT: u16 = 14;
    pub(super) const DNS_SERVERS: u16 = 23;
    pub(super) const IA_PD: u16 = 25;
    pub(super) const IA_PREFIX: u16 = 26;
    pub(super) const SOL_MAX_RT: u16 = 82;
}

/// Types of messages (RFC 8415 section 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum MessageType {
    /// A client looks for servers.
    Solicit = 1,
    /// A server offers itself.
    Advertise = 2,
    /// A client takes an offer.
    Request = 3,
    /// A client extends a lease at its server.
    Renew = 5,
    /// A client extends a lease at any server.
    Rebind = 6,
    /// A server answers.
    Reply = 7,
}

/// What a status option says (RFC 8415 section 21.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    /// All is well, as without the option.
    Success,
    /// No reason given.
    UnspecFail,
    /// The server does not know this lease.
    NoBinding,
    /// What the client has does not fit the link it is on.
    NotOnLink,
    /// The server has no prefixes.
    NoPrefixAvail,
    /// Another one.
    Other(u16),
}

/// A prefix of an IA_PD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegatedPrefix {
    /// The prefix; unspecified in a request that only wishes for a length.
    pub prefix: Ipv6Addr,
    /// Its length in bits, 128 at most.
    pub prefix_length: u8,
    /// Seconds that it stays preferred; all ones: for ever.
    pub preferred_lifetime: u32,
    /// Seconds that it stays valid; all ones: for ever.
    pub valid_lifetime: u32,
}

/// An identity association for prefix delegation (RFC 8415 section 21.21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// The client's name for it.
    pub iaid: u32,
    /// Seconds until the client asks its server again; 0: as it likes.
    pub t1: u32,
    /// Seconds until the client asks any server; 0: as it likes.
    pub t2: u32,
    /// The prefixes. Those whose preferred lifetime is above their valid one are left out (section 21.22).
    pub prefixes: Vec<DelegatedPrefix>,
    /// What the server says of it.
    pub status: StatusCode,
}

/// A message that consists of whole options.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    message_type: MessageType,
    transaction: [u8; 3],
    options: &'a [u8],
}

impl<'a> Message<'a> {
    /// Views the payload of a datagram as a message.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] where an option ends behind the message; [`ParseError::Type`] for messages that no
    /// client sends or gets here.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, options) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(ParseError::Truncated)?;
        let [kind, transaction @ ..] = *header;
        let message_type = MessageType::of(kind).ok_or(ParseError::Type)?;
        check(options)?;
        Ok(Message { message_type, transaction, options })
    }

    /// What it is.
    pub fn message_type(&self) -> MessageType {
        self.message_type
    }

    /// What ties an answer to its question.
    pub fn transaction(&self) -> [u8; 3] {
        self.transaction
    }

    /// The client's DUID.
    pub fn client_id(&self) -> Option<&'a [u8]> {
        self.option(code::CLIENT_ID)
    }

    /// The server's DUID.
    pub fn server_id(&self) -> Option<&'a [u8]> {
        self.option(code::SERVER_ID)
    }

    /// How much the server wants to be chosen; 0 if it does not say.
    pub fn preference(&self) -> u8 {
        self.option(code::PREFERENCE).and_then(|option| option.first().copied()).unwrap_or(0)
    }

    /// Whether it shortens the exchange to two messages.
    pub fn rapid_commit(&self) -> bool {
        self.option(code::RAPID_COMMIT).is_some()
    }

    /// What the message as a whole says.
    pub fn status(&self) -> StatusCode {
        status(self.options)
    }

    /// The longest time between two Solicits, in seconds (RFC 8415 section 21.24).
    pub fn longest_solicit_interval(&self) -> Option<u32> {
        let option = self.option(code::SOL_MAX_RT)?;
        (option.len() == 4).then(|| u32_at(option, 0)).filter(|seconds| (60..=86_400).contains(seconds))
    }

    /// DNS servers (RFC 3646).
    pub fn dns_servers(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        self.option(code::DNS_SERVERS).unwrap_or(&[]).chunks_exact(16).map(|server| ipv6_at(server, 0))
    }

    /// The IA_PD of that name.
    pub fn delegation(&self, iaid: u32) -> Option<Delegation> {
        let (option, inner) = self.ia_pd(iaid)?;
        let prefixes =
            Options(inner).filter(|(found, option)| *found == code::IA_PREFIX && option.len() >= 25);
        let prefixes = prefixes.map(|(_, option)| DelegatedPrefix {
            preferred_lifetime: u32_at(option, 0),
            valid_lifetime: u32_at(option, 4),
            prefix_length: option[8],
            prefix: ipv6_at(option, 9),
        });
        let sound = |prefix: &DelegatedPrefix| {
            prefix.prefix_length <= 128 && prefix.preferred_lifetime <= prefix.valid_lifetime
        };
        Some(Delegation {
            iaid,
            t1: u32_at(option, 4),
            t2: u32_at(option, 8),
            prefixes: prefixes.filter(sound).collect(),
            status: status(inner),
        })
    }

    /// What the server says of the IA_PD of that name, or else of the message as a whole, with its words for people.
    pub fn remark(&self, iaid: u32) -> (StatusCode, String) {
        let inner = self.ia_pd(iaid).and_then(|(_, inner)| status_option(inner));
        let Some(option) = inner.or_else(|| status_option(self.options)) else {
            return (StatusCode::Success, String::new());
        };
        // It ends in logs and on terminals.
        let words = String::from_utf8_lossy(&option[2..]);
        let words: String = words.chars().filter(|char| !char.is_control()).take(LONGEST_REMARK).collect();
        (StatusCode::of(u16_at(option, 0)), words.trim().to_owned())
    }

    /// The IA_PD of that name: all of it, and its options.
    fn ia_pd(&self, iaid: u32) -> Option<(&'a [u8], &'a [u8])> {
        let found = Options(self.options)
            .find(|(found, option)| *found == code::IA_PD && option.len() >= 12 && u32_at(option, 0) == iaid);
        let (_, option) = found?;
        let inner = &option[12..];
        check(inner).ok()?;
        Some((option, inner))
    }

    fn option(&self, code: u16) -> Option<&'a [u8]> {
        Options(self.options).find(|(found, _)| *found == code).map(|(_, option)| option)
    }
}

impl MessageType {
    fn of(octet: u8) -> Option<Self> {
        use MessageType::{Advertise, Rebind, Renew, Reply, Request, Solicit};
        [Solicit, Advertise, Request, Renew, Rebind, Reply].into_iter().find(|kind| *kind as u8 == octet)
    }
}

impl StatusCode {
    fn of(code: u16) -> Self {
        match code {
            0 => StatusCode::Success,
            1 => StatusCode::UnspecFail,
            3 => StatusCode::NoBinding,
            4 => StatusCode::NotOnLink,
            6 => StatusCode::NoPrefixAvail,
            other => StatusCode::Other(other),
        }
    }
}

impl fmt::Display for StatusCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusCode::Other(code) => write!(f, "status {code}"),
            // Their names are those of the RFC.
            named => write!(f, "{named:?}"),
        }
    }
}

fn status(options: &[u8]) -> StatusCode {
    status_option(options).map_or(StatusCode::Success, |option| StatusCode::of(u16_at(option, 0)))
}

/// The contents of a status option: a code, and text in UTF-8.
fn status_option(options: &[u8]) -> Option<&[u8]> {
    Options(options)
        .find(|(found, option)| *found == code::STATUS && option.len() >= 2)
        .map(|(_, option)| option)
}

/// Whether the bytes are whole options.
fn check(mut bytes: &[u8]) -> Result<(), ParseError> {
    while !bytes.is_empty() {
        let (_, rest) = split_option(bytes).ok_or(ParseError::Truncated)?;
        bytes = rest;
    }
    Ok(())
}

/// Code and contents.
type CodedOption<'a> = (u16, &'a [u8]);

/// The first option, and what follows it.
fn split_option(bytes: &[u8]) -> Option<(CodedOption<'_>, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<OPTION_HEADER_LEN>()?;
    let (option, rest) = rest.split_at_checked(usize::from(u16_at(header, 2)))?;
    Some(((u16_at(header, 0), option), rest))
}

struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = CodedOption<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (option, rest) = split_option(self.0)?;
        self.0 = rest;
        Some(option)
    }
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct Builder(Vec<u8>);

impl Builder {
    /// A message without options.
    pub fn new(message_type: MessageType, transaction: [u8; 3]) -> Self {
        let [a, b, c] = transaction;
        Builder(vec![message_type as u8, a, b, c])
    }

    /// The client's DUID.
    pub fn client_id(self, duid: &[u8]) -> Self {
        self.option(code::CLIENT_ID, duid)
    }

    /// The server's DUID.
    pub fn server_id(self, duid: &[u8]) -> Self {
        self.option(code::SERVER_ID, duid)
    }

    /// Hundredths of a second since the exchange began.
    pub fn elapsed_time(self, hundredths: u16) -> Self {
        self.option(code::ELAPSED_TIME, &hundredths.to_be_bytes())
    }

    /// How much the server wants to be chosen.
    pub fn preference(self, preference: u8) -> Self {
        self.option(code::PREFERENCE, &[preference])
    }

    /// An exchange of two messages will do.
    pub fn rapid_commit(self) -> Self {
        self.option(code::RAPID_COMMIT, &[])
    }

    /// Asks for DNS servers, and for the longest time between two Solicits, which every client has to ask for.
    pub fn option_request(self) -> Self {
        let wanted = [code::DNS_SERVERS, code::SOL_MAX_RT].map(u16::to_be_bytes);
        self.option(code::OPTION_REQUEST, wanted.as_flattened())
    }

    /// DNS servers.
    pub fn dns_servers(self, servers: &[Ipv6Addr]) -> Self {
        let octets: Vec<u8> = servers.iter().flat_map(Ipv6Addr::octets).collect();
        self.option(code::DNS_SERVERS, &octets)
    }

    /// An IA_PD with its prefixes; a status only if it is not success.
    pub fn delegation(self, delegation: &Delegation) -> Self {
        let mut inner = Builder(Vec::new());
        for prefix in &delegation.prefixes {
            let mut option = [prefix.preferred_lifetime, prefix.valid_lifetime]
                .map(u32::to_be_bytes)
                .as_flattened()
                .to_vec();
            option.push(prefix.prefix_length);
            option.extend(prefix.prefix.octets());
            inner = inner.option(code::IA_PREFIX, &option);
        }
        if delegation.status != StatusCode::Success {
            inner = inner.status(delegation.status, "");
        }
        let mut option =
            [delegation.iaid, delegation.t1, delegation.t2].map(u32::to_be_bytes).as_flattened().to_vec();
        option.extend(inner.0);
        self.option(code::IA_PD, &option)
    }

    /// What the message as a whole says, and words for people.
    pub fn status(self, status: StatusCode, words: &str) -> Self {
        let code: u16 = match status {
            StatusCode::Success => 0,
            StatusCode::UnspecFail => 1,
            StatusCode::NoBinding => 3,
            StatusCode::NotOnLink => 4,
            StatusCode::NoPrefixAvail => 6,
            StatusCode::Other(other) => other,
        };
        self.option(code::STATUS, &[&code.to_be_bytes(), words.as_bytes()].concat())
    }

    /// The payload of the datagram.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// An option longer than 65,535 octets is left away.
    fn option(mut self, code: u16, contents: &[u8]) -> Self {
        if let Ok(length) = u16::try_from(contents.len()) {
            self.0.extend(code.to_be_bytes());
            self.0.extend(length.to_be_bytes());
            self.0.extend(contents);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_advertise_is_read_as_it_was_written() {
        let delegation = Delegation {
            iaid: 7,
            t1: 300,
            t2: 480,
            prefixes: vec![DelegatedPrefix {
                prefix: "2001:db8:100::".parse().unwrap(),
                prefix_length: 56,
                preferred_lifetime: 600,
                valid_lifetime: 1_200,
            }],
            status: StatusCode::Success,
        };
        let servers = ["2001:db8::53".parse().unwrap()];
        let bytes = Builder::new(MessageType::Advertise, [1, 2, 3])
            .client_id(&[0, 3, 0, 1])
            .server_id(&[0, 4])
            .preference(9)
            .delegation(&delegation)
            .dns_servers(&servers)
            .finish();
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.message_type(), MessageType::Advertise);
        assert_eq!(message.transaction(), [1, 2, 3]);
        assert_eq!((message.client_id(), message.server_id()), (Some(&[0, 3, 0, 1][..]), Some(&[0, 4][..])));
        assert_eq!((message.preference(), message.rapid_commit()), (9, false));
        assert_eq!(message.delegation(7), Some(delegation));
        assert_eq!(message.delegation(8), None);
        assert_eq!(message.dns_servers().collect::<Vec<_>>(), servers);
        assert_eq!(message.status(), StatusCode::Success);
    }

    #[test]
    fn a_refusal_is_in_the_delegation() {
        let refused =
            Delegation { iaid: 1, t1: 0, t2: 0, prefixes: Vec::new(), status: StatusCode::NoPrefixAvail };
        let bytes = Builder::new(MessageType::Reply, [0; 3]).delegation(&refused).finish();
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.delegation(1), Some(refused));
        assert_eq!(message.status(), StatusCode::Success);
    }

    #[test]
    fn a_remark_is_that_of_the_ia_or_of_the_message_and_fit_for_a_terminal() {
        let refused =
            Delegation { iaid: 1, t1: 0, t2: 0, prefixes: Vec::new(), status: StatusCode::NoPrefixAvail };
        let words = "no\u{1b}[31m contract\n";
        let bytes = Builder::new(MessageType::Reply, [0; 3])
            .delegation(&refused)
            .status(StatusCode::UnspecFail, words)
            .finish();
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.remark(1), (StatusCode::NoPrefixAvail, String::new()));
        assert_eq!(message.remark(2), (StatusCode::UnspecFail, "no[31m contract".to_owned()));
        let bytes = Builder::new(MessageType::Reply, [0; 3]).status(StatusCode::Success, &"ä".repeat(500));
        let (status, words) = Message::parse(&bytes.finish()).unwrap().remark(1);
        assert_eq!((status, words.chars().count()), (StatusCode::Success, LONGEST_REMARK));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..12u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok(message) = Message::parse(&bytes) {
                let _ = (message.client_id(), message.preference(), message.status(), message.dns_servers().count());
                let _ = (message.delegation(0), message.remark(0), message.longest_solicit_interval());
            }
        }

        #[test]
        fn any_ia_is_read_or_left_out(contents in proptest::collection::vec(any::<u8>(), 12..120)) {
            let bytes = Builder::new(MessageType::Reply, [0; 3]).option(code::IA_PD, &contents).finish();
            let _ = Message::parse(&bytes).unwrap().delegation(u32_at(&contents, 0));
        }
    }
}
