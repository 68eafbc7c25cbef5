//! Builds a chain of payloads, and a message of it.

use super::body::Identity;
use super::configuration::{self, Attribute, ConfigurationType};
use super::proposal::{self, Proposal};
use super::traffic_selector::{self, TrafficSelector};
use super::{HEADER, Header};
use crate::numbers::{NotifyType, PayloadType, ProtocolId, Spi};

/// A chain of payloads in the making.
#[derive(Debug, Clone)]
pub struct Builder {
    first: PayloadType,
    /// Where the type of the next payload is to be written: nowhere before the first one.
    link: Option<usize>,
    bytes: Vec<u8>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// No payload yet.
    pub fn new() -> Self {
        Self { first: PayloadType::NONE, link: None, bytes: Vec::new() }
    }

    /// A chain of these bytes, which may be damaged.
    #[cfg(test)]
    pub(crate) fn of(first: PayloadType, bytes: Vec<u8>) -> Self {
        Self { first, link: None, bytes }
    }

    /// The type of the first payload.
    pub fn first(&self) -> PayloadType {
        self.first
    }

    /// The payloads' bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A message of these payloads, not encrypted.
    pub fn finish(self, header: &Header) -> Vec<u8> {
        let length = HEADER + self.bytes.len();
        let mut message = Vec::with_capacity(length);
        // A message of 4 GiB cannot be built: each payload is at most 64 KiB, and they are few.
        message.extend(header.to_bytes(self.first, u32::try_from(length).unwrap_or(u32::MAX)));
        message.extend(self.bytes);
        message
    }

    /// Appends a payload whose body is what the function appends.
    pub fn raw(&mut self, kind: PayloadType, body: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        match self.link {
            None => self.first = kind,
            Some(at) => self.bytes[at] = kind.0,
        }
        let start = self.bytes.len();
        self.link = Some(start);
        self.bytes.extend([PayloadType::NONE.0, 0, 0, 0]);
        body(&mut self.bytes);
        let length = self.bytes.len() - start;
        debug_assert!(length <= usize::from(u16::MAX), "a payload of {length} bytes");
        self.bytes[start + 2..start + 4].copy_from_slice(&(length as u16).to_be_bytes());
        self
    }

    /// SA.
    pub fn sa(&mut self, proposals: &[Proposal]) -> &mut Self {
        self.raw(PayloadType::SA, |body| proposal::write(body, proposals))
    }

    /// KE: the group, and the public value.
    pub fn key_exchange(&mut self, group: u16, public: &[u8]) -> &mut Self {
        self.raw(PayloadType::KE, |body| {
            body.extend(group.to_be_bytes());
            body.extend([0, 0]);
            body.extend(public);
        })
    }

    /// Ni or Nr.
    pub fn nonce(&mut self, nonce: &[u8]) -> &mut Self {
        self.raw(PayloadType::NONCE, |body| body.extend(nonce))
    }

    /// IDi or IDr.
    pub fn identity(&mut self, kind: PayloadType, identity: &Identity) -> &mut Self {
        self.raw(kind, |body| body.extend(identity.to_body()))
    }

    /// CERT or CERTREQ: an encoding and what is so encoded.
    pub fn certificate(&mut self, kind: PayloadType, encoding: u8, data: &[u8]) -> &mut Self {
        self.raw(kind, |body| {
            body.push(encoding);
            body.extend(data);
        })
    }

    /// AUTH.
    pub fn auth(&mut self, method: u8, data: &[u8]) -> &mut Self {
        self.raw(PayloadType::AUTH, |body| {
            body.extend([method, 0, 0, 0]);
            body.extend(data);
        })
    }

    /// N about the IKE SA, or about nothing in particular.
    pub fn notify(&mut self, kind: NotifyType, data: &[u8]) -> &mut Self {
        self.raw(PayloadType::NOTIFY, |body| {
            body.extend([ProtocolId::NONE.0, 0]);
            body.extend(kind.0.to_be_bytes());
            body.extend(data);
        })
    }

    /// N about a child.
    pub fn child_notify(&mut self, kind: NotifyType, protocol: ProtocolId, spi: Spi) -> &mut Self {
        self.raw(PayloadType::NOTIFY, |body| {
            body.extend([protocol.0, 4]);
            body.extend(kind.0.to_be_bytes());
            body.extend(spi.0.to_be_bytes());
        })
    }

    /// D of the IKE SA that the message belongs to.
    pub fn delete_ike(&mut self) -> &mut Self {
        self.raw(PayloadType::DELETE, |body| body.extend([ProtocolId::IKE.0, 0, 0, 0]))
    }

    /// D of children, by the SPIs that their sender receives with. There are never 16384 of them.
    pub fn delete_children(&mut self, protocol: ProtocolId, spis: &[Spi]) -> &mut Self {
        self.raw(PayloadType::DELETE, |body| {
            body.extend([protocol.0, 4]);
            body.extend((spis.len() as u16).to_be_bytes());
            for spi in spis {
                body.extend(spi.0.to_be_bytes());
            }
        })
    }

    /// TSi or TSr. There are never more than 255 selectors.
    pub fn traffic_selectors(&mut self, kind: PayloadType, selectors: &[TrafficSelector]) -> &mut Self {
        self.raw(kind, |body| traffic_selector::write(body, selectors))
    }

    /// CP.
    pub fn configuration(&mut self, kind: ConfigurationType, attributes: &[Attribute]) -> &mut Self {
        self.raw(PayloadType::CONFIGURATION, |body| configuration::write(body, kind, attributes))
    }

    /// The two notifies of NAT detection, given the hashes.
    pub fn nat_detection(&mut self, source: &[u8; 20], destination: &[u8; 20]) -> &mut Self {
        self.notify(NotifyType::NAT_DETECTION_SOURCE_IP, source)
            .notify(NotifyType::NAT_DETECTION_DESTINATION_IP, destination)
    }
}
