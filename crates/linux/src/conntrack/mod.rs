//! Connections that netfilter follows in this network namespace, and what they have carried (ctnetlink).

mod ends;

pub use ends::Ends;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Result;
use crate::nfnetlink::{ASK_FOR_ALL, Client, Message, attribute, attributes};
use crate::sysctl;

// linux/netfilter/nfnetlink_conntrack.h
const GET: u16 = 1 << 8 | 1;
/// IPCTNL_MSG_CT_NEW: a connection in the answer.
const GET_ANSWER: u16 = 1 << 8;
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOINFO: u16 = 4;
const COUNTERS_ORIG: u16 = 9;
const COUNTERS_REPLY: u16 = 10;
const ID: u16 = 12;
const TIMESTAMP: u16 = 20;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const PROTO_NUM: u16 = 1;
const COUNTER_PACKETS: u16 = 1;
const COUNTER_BYTES: u16 = 2;
const TIMESTAMP_START: u16 = 1;
const PROTOINFO_TCP: u16 = 1;
const TCP_STATE: u16 = 1;
/// IPS_OFFLOAD of linux/netfilter/nf_conntrack_common.h.
const OFFLOADED: u32 = 1 << 14;
/// TCP_CONNTRACK_LAST_ACK, _TIME_WAIT and _CLOSE of linux/netfilter/nf_conntrack_tcp.h.
const TCP_CLOSED: [u8; 3] = [6, 7, 8];

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their octets, with the IP header.
    pub bytes: u64,
}

/// How packets of one direction of a connection arrive, before their addresses are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Direction {
    /// Who sends them.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
    /// The sender's port; 0 where the protocol has none.
    pub source_port: u16,
    /// The receiver's.
    pub destination_port: u16,
    /// ICMP's and ICMPv6's type and code; 0 of other protocols.
    pub icmp: [u8; 2],
}

/// A connection: what its packets have in common, and what it has carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The number of the protocol, as in an IP header.
    pub protocol: u8,
    /// Tells it from one that had the same addresses and ports before.
    pub id: u32,
    /// From who began it.
    pub original: Direction,
    /// The answers.
    pub reply: Direction,
    /// What was sent in the original direction; None where it is not [counted](is_counted), or was not when it began.
    pub sent: Option<Count>,
    /// The other way.
    pub received: Option<Count>,
    /// When it began, in milliseconds of Unix time; None where `net.netfilter.nf_conntrack_timestamp` was off.
    pub began_ms: Option<u64>,
    /// Its ends have closed it, or one has reset it, as far as the kernel tells.
    pub is_closed: bool,
    /// A flowtable carries it.
    pub is_offloaded: bool,
}

/// Whether connections that begin now are counted: `net.netfilter.nf_conntrack_acct`. None where the kernel follows none
/// at all.
#[must_use]
pub fn is_counted() -> Option<bool> {
    sysctl::read_global("netfilter/nf_conntrack_acct").ok().map(|value| value != "0")
}

/// Gives all connections, one by one.
///
/// # Errors
/// Where the kernel does not tell them (CONFIG_NF_CT_NETLINK, the module `nf_conntrack_netlink`).
pub fn for_each(mut visit: impl FnMut(Connection)) -> Result<()> {
    let what =
        "ask for the connections that netfilter follows (needs CAP_NET_ADMIN and nf_conntrack_netlink)";
    let mut request = Vec::new();
    Message::begin(&mut request, GET, ASK_FOR_ALL, 1, libc::AF_UNSPEC as u8, 0).end();
    Client::open(what)?.ask(&request, |kind, attributes| {
        if kind == GET_ANSWER
            && let Some(connection) = connection(attributes)
        {
            visit(connection);
        }
    })
}

fn connection(bytes: &[u8]) -> Option<Connection> {
    let find = |wanted| attribute(bytes, wanted);
    let (protocol, original) = direction(find(TUPLE_ORIG)?)?;
    let (_, reply) = direction(find(TUPLE_REPLY)?)?;
    let began = find(TIMESTAMP).and_then(|times| attribute(times, TIMESTAMP_START)).and_then(number);
    let status = find(STATUS).and_then(|status| status.try_into().ok()).map(u32::from_be_bytes);
    let tcp = find(PROTOINFO).and_then(|info| attribute(info, PROTOINFO_TCP));
    let state = tcp.and_then(|tcp| attribute(tcp, TCP_STATE)).and_then(|state| state.first());
    Some(Connection {
        protocol,
        id: find(ID).and_then(|id| id.try_into().ok()).map_or(0, u32::from_be_bytes),
        original,
        reply,
        sent: find(COUNTERS_ORIG).map(count),
        received: find(COUNTERS_REPLY).map(count),
        began_ms: began.map(|nanoseconds| nanoseconds / 1_000_000),
        is_closed: state.is_some_and(|state| TCP_CLOSED.contains(state)),
        is_offloaded: status.is_some_and(|status| status & OFFLOADED != 0),
    })
}

/// The protocol, and the rest of a tuple.
fn direction(bytes: &[u8]) -> Option<(u8, Direction)> {
    let (mut source, mut destination, mut protocol) = (None, None, None);
    let (mut source_port, mut destination_port, mut icmp) = (0, 0, [0; 2]);
    for (kind, value) in attributes(bytes) {
        for (part, octets) in attributes(value) {
            let port = || octets.try_into().map_or(0, u16::from_be_bytes);
            let octet = || octets.first().copied();
            match (kind, part) {
                (TUPLE_IP, 1 | 3) => source = address(octets),
                (TUPLE_IP, 2 | 4) => destination = address(octets),
                (TUPLE_PROTO, PROTO_NUM) => protocol = octet(),
                (TUPLE_PROTO, 2) => source_port = port(),
                (TUPLE_PROTO, 3) => destination_port = port(),
                (TUPLE_PROTO, 5 | 8) => icmp[0] = octet()?,
                (TUPLE_PROTO, 6 | 9) => icmp[1] = octet()?,
                _ => {}
            }
        }
    }
    let direction =
        Direction { source: source?, destination: destination?, source_port, destination_port, icmp };
    Some((protocol?, direction))
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(|octets| Ipv4Addr::from(octets).into());
    four.or_else(|_| <[u8; 16]>::try_from(octets).map(|octets| Ipv6Addr::from(octets).into())).ok()
}

fn count(bytes: &[u8]) -> Count {
    let mut count = Count::default();
    for (kind, value) in attributes(bytes) {
        let number = || number(value).unwrap_or(0);
        match kind {
            COUNTER_PACKETS => count.packets = number(),
            COUNTER_BYTES => count.bytes = number(),
            _ => {}
        }
    }
    count
}

fn number(octets: &[u8]) -> Option<u64> {
    octets.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::messages;
    use crate::nfnetlink::{HEADERS, kind_of};
    use proptest::prelude::*;

    /// As the kernel writes it.
    fn message() -> Vec<u8> {
        let (client, server): (Ipv6Addr, Ipv6Addr) =
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut bytes = Vec::new();
        let mut message = Message::begin(&mut bytes, GET_ANSWER, 2, 1, libc::AF_INET6 as u8, 0);
        for (tuple, from, to, ports) in
            [(TUPLE_ORIG, client, server, [4_000_u16, 53]), (TUPLE_REPLY, server, client, [53, 4_000])]
        {
            message.nested(tuple, |tuple| {
                tuple.nested(TUPLE_IP, |ip| {
                    ip.attribute(3, &from.octets());
                    ip.attribute(4, &to.octets());
                });
                tuple.nested(TUPLE_PROTO, |protocol| {
                    protocol.attribute(PROTO_NUM, &[6]);
                    protocol.attribute(2, &ports[0].to_be_bytes());
                    protocol.attribute(3, &ports[1].to_be_bytes());
                });
            });
        }
        message.nested(COUNTERS_ORIG, |counters| {
            counters.attribute(COUNTER_PACKETS, &2_u64.to_be_bytes());
            counters.attribute(COUNTER_BYTES, &300_u64.to_be_bytes());
        });
        message.attribute(STATUS, &(OFFLOADED | 0xe).to_be_bytes());
        message.attribute(ID, &7_u32.to_be_bytes());
        message.nested(TIMESTAMP, |times| times.attribute(TIMESTAMP_START, &5_000_000_u64.to_be_bytes()));
        message.nested(PROTOINFO, |info| info.nested(PROTOINFO_TCP, |tcp| tcp.attribute(TCP_STATE, &[7])));
        message.end();
        bytes
    }

    #[test]
    fn a_connection_is_read() {
        let bytes = message();
        let found: Vec<_> = messages(&bytes).collect();
        assert_eq!((found.len(), kind_of(found[0])), (1, GET_ANSWER));
        let original = Direction {
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
            source_port: 4_000,
            destination_port: 53,
            icmp: [0; 2],
        };
        let reply = Direction {
            source: original.destination,
            destination: original.source,
            source_port: 53,
            destination_port: 4_000,
            icmp: [0; 2],
        };
        let expected = Connection {
            protocol: 6,
            id: 7,
            original,
            reply,
            sent: Some(Count { packets: 2, bytes: 300 }),
            received: None,
            began_ms: Some(5),
            is_closed: true,
            is_offloaded: true,
        };
        assert_eq!(connection(&found[0][HEADERS..]), Some(expected));
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(at in 0..400_usize, octet: u8, length in 0..400_usize) {
            let mut bytes = message();
            let place = at % bytes.len();
            bytes[place] = octet;
            bytes.truncate(length);
            for message in messages(&bytes) {
                let _ = message.get(HEADERS..).and_then(connection);
            }
        }
    }
}
