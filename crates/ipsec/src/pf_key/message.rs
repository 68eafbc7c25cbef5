//! Messages of PF_KEY version 2 (RFC 2367 §2) in the layout of Linux's `linux/pfkeyv2.h`: numbers in the byte order of the
//! machine, SPIs, addresses and ports in that of the network, extensions in any order, each once.

use super::extension::{
    Address, Algorithm, Identity, Lifetime, Policy, Proposal, Reader, Sa, Sa2, SensitivityLevels, SpiRange,
    key_body, port_body, supported_body,
};
use crate::key::Key;

/// The version of the protocol.
pub const VERSION: u8 = 2;
/// The longest message that is taken: far more than one with all extensions has.
pub const MAX_MESSAGE: usize = 16_384;
const HEADER_LEN: usize = 16;
const UNIT: usize = 8;

/// What a message is about: `sadb_msg_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// Reserve an SPI.
    GetSpi = 1,
    /// Complete a reserved one, or change lifetimes.
    Update = 2,
    /// Put in an association.
    Add = 3,
    /// Take one away.
    Delete = 4,
    /// Show one.
    Get = 5,
    /// One is wanted.
    Acquire = 6,
    /// A daemon is there.
    Register = 7,
    /// A lifetime has ended.
    Expire = 8,
    /// Take all away.
    Flush = 9,
    /// Show all.
    Dump = 10,
    /// Hear what others are told, too.
    Promiscuous = 11,
    /// Put in a policy.
    PolicyAdd = 14,
    /// Take one away.
    PolicyDelete = 15,
    /// Show all policies.
    PolicyDump = 18,
    /// Take all policies away.
    PolicyFlush = 19,
}

impl MessageType {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::GetSpi,
            2 => Self::Update,
            3 => Self::Add,
            4 => Self::Delete,
            5 => Self::Get,
            6 => Self::Acquire,
            7 => Self::Register,
            8 => Self::Expire,
            9 => Self::Flush,
            10 => Self::Dump,
            11 => Self::Promiscuous,
            14 => Self::PolicyAdd,
            15 => Self::PolicyDelete,
            18 => Self::PolicyDump,
            19 => Self::PolicyFlush,
            _ => return None,
        })
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What it is about.
    pub message_type: MessageType,
    /// In an answer: 0, or what is wrong.
    pub errno: u8,
    /// Which protocol: `sadb_msg_satype`, one of [`satype`].
    pub satype: u8,
    /// Which question an answer is for.
    pub sequence: u32,
    /// Which process asks; 0 for the engine itself.
    pub pid: u32,
    /// What follows.
    pub extensions: Extensions,
}

/// Values of `sadb_msg_satype`.
pub mod satype {
    /// Both, where that is allowed.
    pub const UNSPECIFIED: u8 = 0;
    /// AH.
    pub const AH: u8 = 2;
    /// ESP.
    pub const ESP: u8 = 3;
}

/// Values of `sadb_sa_state`.
pub mod state {
    /// Its SPI is reserved.
    pub const LARVAL: u8 = 0;
    /// It is used.
    pub const MATURE: u8 = 1;
    /// It is past its soft lifetime.
    pub const DYING: u8 = 2;
}

/// The extensions of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are RFC 2367's, by its names; each type says what it is")]
pub struct Extensions {
    pub sa: Option<Sa>,
    pub lifetime_current: Option<Lifetime>,
    pub lifetime_hard: Option<Lifetime>,
    pub lifetime_soft: Option<Lifetime>,
    pub address_source: Option<Address>,
    pub address_destination: Option<Address>,
    pub address_proxy: Option<Address>,
    pub key_authentication: Option<Key>,
    pub key_encryption: Option<Key>,
    pub identity_source: Option<Identity>,
    pub identity_destination: Option<Identity>,
    pub sensitivity: Option<SensitivityLevels>,
    pub proposal: Option<Proposal>,
    pub supported_authentication: Option<Vec<Algorithm>>,
    pub supported_encryption: Option<Vec<Algorithm>>,
    pub spi_range: Option<SpiRange>,
    pub policy: Option<Policy>,
    pub sa2: Option<Sa2>,
    pub nat_t_type: Option<u8>,
    pub nat_t_source_port: Option<u16>,
    pub nat_t_destination_port: Option<u16>,
    pub nat_t_original_address: Option<Address>,
}

/// Why bytes are no message. Their sender gets `EMSGSIZE` for [`Length`](Self::Length), and `EINVAL` for all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Its length is not what it says, or too much.
    #[error("the message has not the length that it says")]
    Length,
    /// It is of another version.
    #[error("not a message of PF_KEY version 2")]
    Version,
    /// It is of a type that is not served.
    #[error("a message type that is not served")]
    Type,
    /// The extensions are not as long as the message.
    #[error("the extensions do not end where the message does")]
    Extensions,
    /// An extension is shorter than its type needs, or has a value that its type has not.
    #[error("an extension of type {0} is malformed")]
    Extension(u16),
    /// An extension comes twice.
    #[error("an extension of type {0} comes twice")]
    Duplicate(u16),
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// [`MessageError`] for what is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let (header, mut rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(MessageError::Length)?;
        let header = Reader(header);
        if header.0[0] != VERSION {
            return Err(MessageError::Version);
        }
        let length = header.u16(4).map(|units| usize::from(units) * UNIT);
        if length != Some(bytes.len()) || bytes.len() > MAX_MESSAGE {
            return Err(MessageError::Length);
        }
        let message_type = MessageType::from_number(header.0[1]).ok_or(MessageError::Type)?;
        let mut extensions = Extensions::default();
        while !rest.is_empty() {
            let reader = Reader(rest);
            let units = reader.u16(0).ok_or(MessageError::Extensions)?;
            let kind = reader.u16(2).ok_or(MessageError::Extensions)?;
            let length = usize::from(units) * UNIT;
            if length == 0 {
                return Err(MessageError::Extensions);
            }
            let (extension, behind) = rest.split_at_checked(length).ok_or(MessageError::Extensions)?;
            extensions.read(kind, Reader(extension))?;
            rest = behind;
        }
        Ok(Self {
            message_type,
            errno: header.0[2],
            satype: header.0[3],
            sequence: header.u32(8).unwrap_or_default(),
            pid: header.u32(12).unwrap_or_default(),
            extensions,
        })
    }

    /// The message as sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, self.message_type as u8, self.errno, self.satype, 0, 0, 0, 0];
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend(self.pid.to_ne_bytes());
        self.extensions.write(&mut bytes);
        let units = (bytes.len() / UNIT) as u16;
        bytes[4..6].copy_from_slice(&units.to_ne_bytes());
        bytes
    }
}

mod kind {
    pub(super) const SA: u16 = 1;
    pub(super) const LIFETIME_CURRENT: u16 = 2;
    pub(super) const LIFETIME_HARD: u16 = 3;
    pub(super) const LIFETIME_SOFT: u16 = 4;
    pub(super) const ADDRESS_SRC: u16 = 5;
    pub(super) const ADDRESS_DST: u16 = 6;
    pub(super) const ADDRESS_PROXY: u16 = 7;
    pub(super) const KEY_AUTH: u16 = 8;
    pub(super) const KEY_ENCRYPT: u16 = 9;
    pub(super) const IDENTITY_SRC: u16 = 10;
    pub(super) const IDENTITY_DST: u16 = 11;
    pub(super) const SENSITIVITY: u16 = 12;
    pub(super) const PROPOSAL: u16 = 13;
    pub(super) const SUPPORTED_AUTH: u16 = 14;
    pub(super) const SUPPORTED_ENCRYPT: u16 = 15;
    pub(super) const SPIRANGE: u16 = 16;
    pub(super) const X_POLICY: u16 = 18;
    pub(super) const X_SA2: u16 = 19;
    pub(super) const X_NAT_T_TYPE: u16 = 20;
    pub(super) const X_NAT_T_SPORT: u16 = 21;
    pub(super) const X_NAT_T_DPORT: u16 = 22;
    pub(super) const X_NAT_T_OA: u16 = 23;
}

impl Extensions {
    /// What is of no type that is known is passed over (RFC 2367 §2.3).
    fn read(&mut self, kind: u16, reader: Reader<'_>) -> Result<(), MessageError> {
        match kind {
            kind::SA => set(&mut self.sa, kind, reader.sa()),
            kind::LIFETIME_CURRENT => set(&mut self.lifetime_current, kind, reader.lifetime()),
            kind::LIFETIME_HARD => set(&mut self.lifetime_hard, kind, reader.lifetime()),
            kind::LIFETIME_SOFT => set(&mut self.lifetime_soft, kind, reader.lifetime()),
            kind::ADDRESS_SRC => set(&mut self.address_source, kind, reader.address()),
            kind::ADDRESS_DST => set(&mut self.address_destination, kind, reader.address()),
            kind::ADDRESS_PROXY => set(&mut self.address_proxy, kind, reader.address()),
            kind::KEY_AUTH => set(&mut self.key_authentication, kind, reader.key()),
            kind::KEY_ENCRYPT => set(&mut self.key_encryption, kind, reader.key()),
            kind::IDENTITY_SRC => set(&mut self.identity_source, kind, reader.identity()),
            kind::IDENTITY_DST => set(&mut self.identity_destination, kind, reader.identity()),
            kind::SENSITIVITY => set(&mut self.sensitivity, kind, reader.sensitivity()),
            kind::PROPOSAL => set(&mut self.proposal, kind, reader.proposal()),
            kind::SUPPORTED_AUTH => set(&mut self.supported_authentication, kind, reader.supported()),
            kind::SUPPORTED_ENCRYPT => set(&mut self.supported_encryption, kind, reader.supported()),
            kind::SPIRANGE => set(&mut self.spi_range, kind, reader.spi_range()),
            kind::X_POLICY => set(&mut self.policy, kind, reader.policy()),
            kind::X_SA2 => set(&mut self.sa2, kind, reader.sa2()),
            kind::X_NAT_T_TYPE => set(&mut self.nat_t_type, kind, reader.byte(4)),
            kind::X_NAT_T_SPORT => set(&mut self.nat_t_source_port, kind, reader.be16(4)),
            kind::X_NAT_T_DPORT => set(&mut self.nat_t_destination_port, kind, reader.be16(4)),
            kind::X_NAT_T_OA => set(&mut self.nat_t_original_address, kind, reader.address()),
            _ => Ok(()),
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        let mut put = |kind: u16, body: Option<Vec<u8>>| {
            let Some(mut body) = body else { return };
            body.resize((body.len() + 4).next_multiple_of(UNIT) - 4, 0);
            bytes.extend((((body.len() + 4) / UNIT) as u16).to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(body);
        };
        put(kind::SA, self.sa.map(Sa::body));
        put(kind::LIFETIME_CURRENT, self.lifetime_current.map(Lifetime::body));
        put(kind::LIFETIME_HARD, self.lifetime_hard.map(Lifetime::body));
        put(kind::LIFETIME_SOFT, self.lifetime_soft.map(Lifetime::body));
        put(kind::ADDRESS_SRC, self.address_source.map(Address::body));
        put(kind::ADDRESS_DST, self.address_destination.map(Address::body));
        put(kind::ADDRESS_PROXY, self.address_proxy.map(Address::body));
        put(kind::KEY_AUTH, self.key_authentication.as_ref().map(key_body));
        put(kind::KEY_ENCRYPT, self.key_encryption.as_ref().map(key_body));
        put(kind::IDENTITY_SRC, self.identity_source.as_ref().map(Identity::body));
        put(kind::IDENTITY_DST, self.identity_destination.as_ref().map(Identity::body));
        put(kind::SENSITIVITY, self.sensitivity.map(SensitivityLevels::body));
        put(kind::PROPOSAL, self.proposal.as_ref().map(Proposal::body));
        put(kind::SUPPORTED_AUTH, self.supported_authentication.as_deref().map(supported_body));
        put(kind::SUPPORTED_ENCRYPT, self.supported_encryption.as_deref().map(supported_body));
        put(kind::SPIRANGE, self.spi_range.map(SpiRange::body));
        put(kind::X_POLICY, self.policy.as_ref().map(Policy::body));
        put(kind::X_SA2, self.sa2.map(Sa2::body));
        put(kind::X_NAT_T_TYPE, self.nat_t_type.map(|kind| vec![kind, 0, 0, 0]));
        put(kind::X_NAT_T_SPORT, self.nat_t_source_port.map(port_body));
        put(kind::X_NAT_T_DPORT, self.nat_t_destination_port.map(port_body));
        put(kind::X_NAT_T_OA, self.nat_t_original_address.map(Address::body));
    }
}

fn set<T>(field: &mut Option<T>, kind: u16, value: Option<T>) -> Result<(), MessageError> {
    if field.is_some() {
        return Err(MessageError::Duplicate(kind));
    }
    *field = Some(value.ok_or(MessageError::Extension(kind))?);
    Ok(())
}
