//! DHCPv6 (RFC 8415), as far as a router needs that asks for prefixes, and gives hosts addresses and other routers prefixes:
//! messages between client and server, and their options.

use std::fmt;
use std::net::Ipv6Addr;

use crate::ParseError;
use crate::bytes::{ipv6_at, u16_at, u32_at};
use crate::domain_name;

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

/// Codes of options (RFC 8415 section 21, RFC 3646, RFC 6334, RFC 8415 section 21.24).
mod code {
    pub(super) const CLIENT_ID: u16 = 1;
    pub(super) const SERVER_ID: u16 = 2;
    pub(super) const IA_NA: u16 = 3;
    pub(super) const IA_ADDRESS: u16 = 5;
    pub(super) const OPTION_REQUEST: u16 = 6;
    pub(super) const PREFERENCE: u16 = 7;
    pub(super) const ELAPSED_TIME: u16 = 8;
    pub(super) const STATUS: u16 = 13;
    pub(super) const RAPID_COMMIT: u16 = 14;
    pub(super) const DNS_SERVERS: u16 = 23;
    pub(super) const IA_PD: u16 = 25;
    pub(super) const IA_PREFIX: u16 = 26;
    pub(super) const AFTR_NAME: u16 = 64;
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
    /// A client that has moved asks whether its addresses are of this link.
    Confirm = 4,
    /// A client extends a lease at its server.
    Renew = 5,
    /// A client extends a lease at any server.
    Rebind = 6,
    /// A server answers.
    Reply = 7,
    /// A client gives back what it has.
    Release = 8,
    /// A client has found that others have its addresses.
    Decline = 9,
    /// A client asks for settings alone.
    InformationRequest = 11,
}

/// What a status option says (RFC 8415 section 21.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCode {
    /// All is well, as without the option.
    Success,
    /// No reason given.
    UnspecFail,
    /// The server has no addresses.
    NoAddrsAvail,
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

/// An address of an IA_NA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedAddress {
    /// The address.
    pub address: Ipv6Addr,
    /// Seconds that it stays preferred; all ones: for ever.
    pub preferred_lifetime: u32,
    /// Seconds that it stays valid; all ones: for ever.
    pub valid_lifetime: u32,
}

/// An identity association for addresses that are not temporary (RFC 8415 section 21.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The client's name for it.
    pub iaid: u32,
    /// Seconds until the client asks its server again; 0: as it likes.
    pub t1: u32,
    /// Seconds until the client asks any server; 0: as it likes.
    pub t2: u32,
    /// The addresses. Those whose preferred lifetime is above their valid one are left out (section 21.6).
    pub addresses: Vec<AssignedAddress>,
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

    /// Whether the client asks for DNS servers (RFC 3646).
    pub fn requests_dns_servers(&self) -> bool {
        let wanted = self.option(code::OPTION_REQUEST).unwrap_or(&[]);
        wanted.chunks_exact(2).any(|wanted| u16_at(wanted, 0) == code::DNS_SERVERS)
    }

    /// DNS servers (RFC 3646).
    pub fn dns_servers(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        self.option(code::DNS_SERVERS).unwrap_or(&[]).chunks_exact(16).map(|server| ipv6_at(server, 0))
    }

    /// The name of the provider's AFTR (RFC 6334 section 3), without a dot at its end. None where it is not one whole name of
    /// letters, digits, `-` and `_`.
    pub fn aftr_name(&self) -> Option<String> {
        let (name, rest) = domain_name::read(self.option(code::AFTR_NAME)?)?;
        let is_plain = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.');
        Some(name).filter(|name| rest.is_empty() && !name.is_empty() && name.bytes().all(is_plain))
    }

    /// The IA_NAs, in their order.
    pub fn assignments(&self) -> impl Iterator<Item = Assignment> + use<'a> {
        ias(self.options, code::IA_NA).map(|(option, inner)| {
            let addresses =
                Options(inner).filter(|(found, option)| *found == code::IA_ADDRESS && option.len() >= 24);
            let addresses = addresses.map(|(_, option)| AssignedAddress {
                address: ipv6_at(option, 0),
                preferred_lifetime: u32_at(option, 16),
                valid_lifetime: u32_at(option, 20),
            });
            Assignment {
                iaid: u32_at(option, 0),
                t1: u32_at(option, 4),
                t2: u32_at(option, 8),
                addresses: addresses
                    .filter(|assigned| assigned.preferred_lifetime <= assigned.valid_lifetime)
                    .collect(),
                status: status(inner),
            }
        })
    }

    /// The IA_PDs, in their order.
    pub fn delegations(&self) -> impl Iterator<Item = Delegation> + use<'a> {
        ias(self.options, code::IA_PD).map(Delegation::of)
    }

    /// The IA_PD of that name.
    pub fn delegation(&self, iaid: u32) -> Option<Delegation> {
        self.ia_pd(iaid).map(Delegation::of)
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
        ias(self.options, code::IA_PD).find(|(option, _)| u32_at(option, 0) == iaid)
    }

    fn option(&self, code: u16) -> Option<&'a [u8]> {
        Options(self.options).find(|(found, _)| *found == code).map(|(_, option)| option)
    }
}

/// The identity associations of that kind whose options are whole: all of each, and its options.
fn ias(options: &[u8], code: u16) -> impl Iterator<Item = (&[u8], &[u8])> {
    let of_kind = Options(options).filter(move |(found, _)| *found == code);
    of_kind.filter_map(|(_, option)| {
        let inner = option.get(12..)?;
        check(inner).ok()?;
        Some((option, inner))
    })
}

impl Delegation {
    fn of((option, inner): (&[u8], &[u8])) -> Self {
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
        Delegation {
            iaid: u32_at(option, 0),
            t1: u32_at(option, 4),
            t2: u32_at(option, 8),
            prefixes: prefixes.filter(sound).collect(),
            status: status(inner),
        }
    }
}

impl MessageType {
    fn of(octet: u8) -> Option<Self> {
        use MessageType::{
            Advertise, Confirm, Decline, InformationRequest, Rebind, Release, Renew, Reply, Request, Solicit,
        };
        [Solicit, Advertise, Request, Confirm, Renew, Rebind, Reply, Release, Decline, InformationRequest]
            .into_iter()
            .find(|kind| *kind as u8 == octet)
    }
}

impl StatusCode {
    fn of(code: u16) -> Self {
        match code {
            0 => StatusCode::Success,
            1 => StatusCode::UnspecFail,
            2 => StatusCode::NoAddrsAvail,
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

    /// Asks for DNS servers, and for the longest time between two Solicits, which every client has to ask for; for the name
    /// of an AFTR only if that is wanted.
    pub fn option_request(self, aftr: bool) -> Self {
        let wanted = [code::DNS_SERVERS, code::SOL_MAX_RT, code::AFTR_NAME].map(u16::to_be_bytes);
        self.option(code::OPTION_REQUEST, wanted[..if aftr { 3 } else { 2 }].as_flattened())
    }

    /// The name of an AFTR, of labels of up to 63 octets.
    pub fn aftr_name(self, name: &str) -> Self {
        let mut octets = Vec::new();
        domain_name::write(&mut octets, name);
        self.option(code::AFTR_NAME, &octets)
    }

    /// DNS servers.
    pub fn dns_servers(self, servers: &[Ipv6Addr]) -> Self {
        let octets: Vec<u8> = servers.iter().flat_map(Ipv6Addr::octets).collect();
        self.option(code::DNS_SERVERS, &octets)
    }

    /// An IA_NA with its addresses; a status only if it is not success.
    pub fn assignment(self, assignment: &Assignment) -> Self {
        let mut inner = Builder(Vec::new());
        for assigned in &assignment.addresses {
            let mut option = assigned.address.octets().to_vec();
            option.extend(
                [assigned.preferred_lifetime, assigned.valid_lifetime].map(u32::to_be_bytes).as_flattened(),
            );
            inner = inner.option(code::IA_ADDRESS, &option);
        }
        self.ia(code::IA_NA, [assignment.iaid, assignment.t1, assignment.t2], assignment.status, inner)
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
        self.ia(code::IA_PD, [delegation.iaid, delegation.t1, delegation.t2], delegation.status, inner)
    }

    fn ia(self, code: u16, numbers: [u32; 3], status: StatusCode, mut inner: Builder) -> Self {
        if status != StatusCode::Success {
            inner = inner.status(status, "");
        }
        self.option(code, &[numbers.map(u32::to_be_bytes).as_flattened(), &inner.0].concat())
    }

    /// What the message as a whole says, and words for people.
    pub fn status(self, status: StatusCode, words: &str) -> Self {
        let code: u16 = match status {
            StatusCode::Success => 0,
            StatusCode::UnspecFail => 1,
            StatusCode::NoAddrsAvail => 2,
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
mod tests;
