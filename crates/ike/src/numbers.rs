//! Numbers of IKEv2 as types: what is assigned by IANA ("Internet Key Exchange Version 2 Parameters"), and SPIs.
//!
//! An assigned number that nobody here knows stays representable: most of the protocol passes over it.

use std::fmt;

/// Names a number, with those of its values that the crate knows.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty) { $($(#[$value_doc:meta])* $value:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl $name {
            $($(#[$value_doc])* pub const $value: Self = Self($number);)*
        }

        /// Its name, as the RFC has it, or else the number.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$value => f.write_str(stringify!($value)),)*
                    Self(number) => write!(f, "{number}"),
                }
            }
        }
    };
}
pub(crate) use number;

impl NotifyType {
    /// What to compare where the other end has refused something with it, in brackets; nothing where there is nothing.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NO_PROPOSAL_CHOSEN => " (compare the algorithms of both ends)",
            Self::TS_UNACCEPTABLE => " (compare the networks, protocols and ports of both ends)",
            Self::INTERNAL_ADDRESS_FAILURE => " (the other end has no address for this one)",
            _ => "",
        }
    }
}

number! {
    /// What an exchange is for (RFC 7296 §3.1).
    ExchangeType(u8) {
        /// Keys and nonces.
        IKE_SA_INIT = 34,
        /// Identities, and the first child.
        IKE_AUTH = 35,
        /// A child, or an IKE SA in place of this one.
        CREATE_CHILD_SA = 36,
        /// Deletes, notifies, liveness.
        INFORMATIONAL = 37,
    }
}

number! {
    /// What a payload is (RFC 7296 §3.2).
    PayloadType(u8) {
        /// No payload follows.
        NONE = 0,
        /// Security Association.
        SA = 33,
        /// Key Exchange.
        KE = 34,
        /// Identification of the initiator.
        ID_I = 35,
        /// Identification of the responder.
        ID_R = 36,
        /// Certificate.
        CERT = 37,
        /// Certificate Request.
        CERTREQ = 38,
        /// Authentication.
        AUTH = 39,
        /// Nonce.
        NONCE = 40,
        /// Notify.
        NOTIFY = 41,
        /// Delete.
        DELETE = 42,
        /// Vendor ID.
        VENDOR_ID = 43,
        /// Traffic selectors of the initiator.
        TS_I = 44,
        /// Traffic selectors of the responder.
        TS_R = 45,
        /// Encrypted and Authenticated.
        SK = 46,
        /// Configuration.
        CONFIGURATION = 47,
        /// Extensible Authentication, which is refused.
        EAP = 48,
        /// Encrypted and Authenticated Fragment (RFC 7383).
        SKF = 53,
    }
}

impl PayloadType {
    /// Whether the crate knows the payload, so that its critical bit means nothing (RFC 7296 §2.5).
    pub const fn is_known(self) -> bool {
        matches!(self.0, 33..=48 | 53)
    }
}

number! {
    /// What a Notify payload says (RFC 7296 §3.10.1). Below 16384 it is an error.
    NotifyType(u16) {
        /// A payload with its critical bit set is not known.
        UNSUPPORTED_CRITICAL_PAYLOAD = 1,
        /// No IKE SA has these SPIs.
        INVALID_IKE_SPI = 4,
        /// The major version is not known.
        INVALID_MAJOR_VERSION = 5,
        /// The message is malformed.
        INVALID_SYNTAX = 7,
        /// A message ID outside of the window.
        INVALID_MESSAGE_ID = 9,
        /// ESP or AH came with an unknown SPI.
        INVALID_SPI = 11,
        /// None of the proposals will do.
        NO_PROPOSAL_CHOSEN = 14,
        /// The KE payload is not of the chosen group, which is named.
        INVALID_KE_PAYLOAD = 17,
        /// The other end is not who it should be.
        AUTHENTICATION_FAILED = 24,
        /// The traffic selectors must be a single pair.
        SINGLE_PAIR_REQUIRED = 34,
        /// No more children on this IKE SA.
        NO_ADDITIONAL_SAS = 35,
        /// No address for the client.
        INTERNAL_ADDRESS_FAILURE = 36,
        /// The configuration request is missing.
        FAILED_CP_REQUIRED = 37,
        /// Nothing of the traffic selectors is allowed.
        TS_UNACCEPTABLE = 38,
        /// The selectors do not match those of the packets.
        INVALID_SELECTORS = 39,
        /// The addresses cannot be used (RFC 4555).
        UNACCEPTABLE_ADDRESSES = 40,
        /// A NAT where none is allowed (RFC 4555).
        UNEXPECTED_NAT_DETECTED = 41,
        /// Something else goes on: try again later.
        TEMPORARY_FAILURE = 43,
        /// The child to be rekeyed does not exist.
        CHILD_SA_NOT_FOUND = 44,
        /// Forget earlier IKE SAs of this identity.
        INITIAL_CONTACT = 16384,
        /// The window of requests.
        SET_WINDOW_SIZE = 16385,
        /// Hash of where the sender thinks that the message comes from.
        NAT_DETECTION_SOURCE_IP = 16388,
        /// Hash of where the sender thinks that the message goes to.
        NAT_DETECTION_DESTINATION_IP = 16389,
        /// The cookie that the initiator is to repeat.
        COOKIE = 16390,
        /// Transport mode instead of tunnel mode.
        USE_TRANSPORT_MODE = 16391,
        /// Names the child that is replaced.
        REKEY_SA = 16393,
        /// No padding for traffic flow confidentiality, please.
        ESP_TFC_PADDING_NOT_SUPPORTED = 16394,
        /// MOBIKE (RFC 4555).
        MOBIKE_SUPPORTED = 16396,
        /// A further IPv4 address (RFC 4555).
        ADDITIONAL_IP4_ADDRESS = 16397,
        /// A further IPv6 address (RFC 4555).
        ADDITIONAL_IP6_ADDRESS = 16398,
        /// No further addresses (RFC 4555).
        NO_ADDITIONAL_ADDRESSES = 16399,
        /// Children go between the addresses of this message from now on (RFC 4555).
        UPDATE_SA_ADDRESSES = 16400,
        /// What the responder is to repeat (RFC 4555).
        COOKIE2 = 16401,
        /// A NAT is not wanted (RFC 4555).
        NO_NATS_ALLOWED = 16402,
        /// IKE fragmentation (RFC 7383).
        IKEV2_FRAGMENTATION_SUPPORTED = 16430,
        /// Hash algorithms of digital signatures (RFC 7427).
        SIGNATURE_HASH_ALGORITHMS = 16431,
    }
}

impl NotifyType {
    /// Whether it reports an error rather than a status (RFC 7296 §3.10.1).
    pub const fn is_error(self) -> bool {
        self.0 < 16384
    }
}

number! {
    /// What a proposal, delete or notify is about (RFC 7296 §3.3.1).
    ProtocolId(u8) {
        /// Nothing in particular.
        NONE = 0,
        /// The IKE SA.
        IKE = 1,
        /// Authentication Header.
        AH = 2,
        /// Encapsulating Security Payload.
        ESP = 3,
    }
}

number! {
    /// Identifier of a request and its response, counted in each direction (RFC 7296 §2.2).
    MessageId(u32) {
        /// That of IKE_SA_INIT.
        ZERO = 0,
    }
}

impl MessageId {
    /// The next one; none after the last, where an IKE SA ends (RFC 7296 §2.2).
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

/// One end's SPI of an IKE SA. It also names the IKE SA to the host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IkeSpi(pub u64);

impl IkeSpi {
    /// That of the responder before it has answered.
    pub const ZERO: Self = Self(0);
}

impl fmt::Debug for IkeSpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IkeSpi({:016x})", self.0)
    }
}

/// SPI of ESP or AH, chosen by the end that receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spi(pub u32);

impl Spi {
    /// Lower ones are reserved by IANA (RFC 4303 §2.1).
    pub const FIRST: Self = Self(256);
}

impl fmt::Debug for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spi({:08x})", self.0)
    }
}
