//! IPFIX (RFC 7011): a message, with the templates of what it tells, and records.
//!
//! A record is one direction of a connection. Its information elements are those of IANA's registry (RFC 7012); addresses
//! and ports behind a translation are RFC 8158's.

use std::net::IpAddr;

/// Fits into 1,280 octets with the headers of IPv6 and UDP, whatever the path (RFC 7011 section 10.3.3).
const LONGEST: usize = 1_280 - 40 - 8;
const VERSION: u16 = 10;
const TEMPLATES: u16 = 2;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
const IPV4_TEMPLATE: u16 = 256;
const IPV6_TEMPLATE: u16 = 257;

/// An information element: its number, and its octets.
type Field = (u16, u16);
const FIELDS: usize = 16;
/// Of both IP versions, in the order in which [`Record::write`] writes them.
const IPV4: [Field; FIELDS] = fields([8, 12, 32, 225, 226], 4);
const IPV6: [Field; FIELDS] = fields([27, 28, 139, 281, 282], 16);

const fn fields(
    [source, destination, icmp, new_source, new_destination]: [u16; 5],
    address: u16,
) -> [Field; FIELDS] {
    [
        (152, 8), // flowStartMilliseconds
        (153, 8), // flowEndMilliseconds
        (source, address),
        (destination, address),
        (7, 2),    // sourceTransportPort
        (11, 2),   // destinationTransportPort
        (4, 1),    // protocolIdentifier
        (icmp, 2), // icmpTypeCodeIPv4, icmpTypeCodeIPv6
        (136, 1),  // flowEndReason
        (239, 1),  // biflowDirection
        (1, 8),    // octetDeltaCount
        (2, 8),    // packetDeltaCount
        (new_source, address),
        (new_destination, address),
        (227, 2), // postNAPTSourceTransportPort
        (228, 2), // postNAPTDestinationTransportPort
    ]
}

/// Why a record is written (flowEndReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The kernel has forgotten the connection.
    Idle = 1,
    /// It goes on.
    Active = 2,
    /// Its ends have closed it.
    Closed = 3,
    /// Nobody watches any more.
    Forced = 4,
}

/// Who sends, to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) source: (IpAddr, u16),
    pub(super) destination: (IpAddr, u16),
}

/// What one direction of a connection has carried from one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) began_ms: u64,
    pub(super) ended_ms: u64,
    pub(super) protocol: u8,
    pub(super) icmp: [u8; 2],
    /// Whether it is the direction of who began the connection.
    pub(super) is_original: bool,
    pub(super) end: End,
    pub(super) octets: u64,
    pub(super) packets: u64,
    /// As the packets come in, and as they leave.
    pub(super) before: Ends,
    pub(super) after: Ends,
}

impl Record {
    fn template(&self) -> u16 {
        if self.before.source.0.is_ipv4() { IPV4_TEMPLATE } else { IPV6_TEMPLATE }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.began_ms.to_be_bytes());
        bytes.extend(self.ended_ms.to_be_bytes());
        let addresses = |bytes: &mut Vec<u8>, ends: &Ends| {
            for address in [ends.source.0, ends.destination.0] {
                match address {
                    IpAddr::V4(address) => bytes.extend(address.octets()),
                    IpAddr::V6(address) => bytes.extend(address.octets()),
                }
            }
        };
        let ports = |bytes: &mut Vec<u8>, ends: &Ends| {
            for port in [ends.source.1, ends.destination.1] {
                bytes.extend(port.to_be_bytes());
            }
        };
        addresses(bytes, &self.before);
        ports(bytes, &self.before);
        bytes.push(self.protocol);
        bytes.extend(self.icmp);
        bytes.push(self.end as u8);
        bytes.push(if self.is_original { 1 } else { 2 });
        bytes.extend(self.octets.to_be_bytes());
        bytes.extend(self.packets.to_be_bytes());
        addresses(bytes, &self.after);
        ports(bytes, &self.after);
    }
}

/// A message that is being written.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    /// The set that the last record is in: its template, and where it begins.
    set: Option<(u16, usize)>,
    pub(super) records: u32,
}

impl Message {
    /// `templates`: with what the records are made of.
    pub(super) fn begin(templates: bool) -> Self {
        let mut message = Self { bytes: vec![0; HEADER], set: None, records: 0 };
        if templates {
            message.open(TEMPLATES);
            for (template, fields) in [(IPV4_TEMPLATE, IPV4), (IPV6_TEMPLATE, IPV6)] {
                let numbers = [(template, FIELDS as u16)].into_iter().chain(fields);
                message
                    .bytes
                    .extend(numbers.flat_map(|(number, length)| [number, length]).flat_map(u16::to_be_bytes));
            }
            message.close();
        }
        message
    }

    /// Adds a record, where there is room.
    pub(super) fn add(&mut self, record: &Record) -> bool {
        let template = record.template();
        let fields = if template == IPV4_TEMPLATE { IPV4 } else { IPV6 };
        let length: usize = fields.iter().map(|(_, octets)| usize::from(*octets)).sum();
        if self.bytes.len() + SET_HEADER + length > LONGEST {
            return false;
        }
        if self.set.is_none_or(|(open, _)| open != template) {
            self.close();
            self.open(template);
        }
        record.write(&mut self.bytes);
        self.records += 1;
        true
    }

    /// The message as it is now. `sequence`: the records before it (RFC 7011 section 3.1).
    pub(super) fn written(&mut self, seconds: u32, sequence: u32, domain: u32) -> &[u8] {
        self.close();
        let length = self.bytes.len() as u16;
        let header = [VERSION, length].into_iter().flat_map(u16::to_be_bytes);
        let header = header.chain([seconds, sequence, domain].into_iter().flat_map(u32::to_be_bytes));
        self.bytes.splice(..HEADER, header);
        &self.bytes
    }

    fn open(&mut self, id: u16) {
        self.set = Some((id, self.bytes.len()));
        self.bytes.extend(id.to_be_bytes());
        self.bytes.extend([0; 2]);
    }

    fn close(&mut self) {
        let Some((_, start)) = self.set.take() else { return };
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start + 2..start + SET_HEADER].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(in crate::flows) fn record(source: &str, destination: &str) -> Record {
        let ends = Ends {
            source: (source.parse().unwrap(), 4_000),
            destination: (destination.parse().unwrap(), 443),
        };
        Record {
            began_ms: 1_000,
            ended_ms: 2_500,
            protocol: 6,
            icmp: [0; 2],
            is_original: true,
            end: End::Closed,
            octets: 1_234,
            packets: 12,
            before: ends,
            after: Ends { source: ("2001:db8::9".parse().unwrap(), 5_000), ..ends },
        }
    }

    #[test]
    fn a_message_is_laid_out_as_rfc_7011_has_it() {
        let mut message = Message::begin(false);
        assert!(message.add(&record("2001:db8::1", "2001:db8:2::2")));
        let bytes = message.written(0x0102_0304, 5, 6);
        let set = 4 + 109;
        assert_eq!(bytes.len(), 16 + set);
        assert_eq!(bytes[..16], [0, 10, 0, 16 + set as u8, 1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 6]);
        assert_eq!(bytes[16..20], [1, 1, 0, set as u8]);
        assert_eq!(bytes[20..36], [0, 0, 0, 0, 0, 0, 0x03, 0xe8, 0, 0, 0, 0, 0, 0, 0x09, 0xc4]);
        // Ports, protocol, ICMP, the end, the direction.
        assert_eq!(bytes[68..77], [0x0f, 0xa0, 1, 0xbb, 6, 0, 0, 3, 1]);
        assert_eq!(bytes[77..93], [0, 0, 0, 0, 0, 0, 4, 0xd2, 0, 0, 0, 0, 0, 0, 0, 12]);
        assert_eq!(bytes[125..], [0x13, 0x88, 1, 0xbb]);
    }

    #[test]
    fn templates_say_how_long_records_are() {
        let mut message = Message::begin(true);
        let bytes = message.written(0, 0, 0);
        let number = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        assert_eq!((number(16), number(18) + 16), (2, bytes.len()));
        for (at, template, octets) in [(20, 256, 61), (20 + 4 + 16 * 4, 257, 109)] {
            assert_eq!((number(at), number(at + 2)), (template, 16));
            assert_eq!((0..16).map(|field| number(at + 4 + 4 * field + 2)).sum::<usize>(), octets);
        }
    }

    #[test]
    fn no_message_is_longer_than_every_path_takes() {
        for templates in [false, true] {
            let mut message = Message::begin(templates);
            let six = record("2001:db8::1", "2001:db8:2::2");
            let before = Ends {
                source: ("192.0.2.1".parse().unwrap(), 1),
                destination: ("192.0.2.2".parse().unwrap(), 2),
            };
            let four = Record { before, after: before, ..six };
            while message.add(&four) && message.add(&six) {}
            let records = message.records;
            let bytes = message.written(0, 0, 0);
            assert!(bytes.len() <= LONGEST && records > 10, "{} {records}", bytes.len());
        }
    }
}
