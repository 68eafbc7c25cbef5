//! Connections that netfilter follows in this network namespace, and what they have carried (ctnetlink).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Result;
use crate::nfnetlink::{ASK_FOR_ALL, Client, Message, attribute, attributes};
use crate::sysctl;

// linux/netfilter/nfnetlink_conntrack.h
const GET: u16 = 1 << 8 | 1;
/// IPCTNL_MSG_CT_NEW: a connection in the answer.
const GET_ANSWER: u16 = 1 << 8;
const TUPLE_ORIG: u16 = 1;
const COUNTERS_ORIG: u16 = 9;
const COUNTERS_REPLY: u16 = 10;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_SOURCES: [u16; 2] = [1, 3];
const IP_DESTINATIONS: [u16; 2] = [2, 4];
const PROTO_NUM: u16 = 1;
const COUNTER_PACKETS: u16 = 1;
const COUNTER_BYTES: u16 = 2;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their octets, with the IP header.
    pub bytes: u64,
}

/// A connection, as it was before addresses were translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The number of the protocol, as in an IP header.
    pub protocol: u8,
    /// Who began it.
    pub source: IpAddr,
    /// With whom.
    pub destination: IpAddr,
    /// From source to destination; None where it is not [counted](is_counted), or was not when it began.
    pub sent: Option<Count>,
    /// The other way.
    pub received: Option<Count>,
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
    let (mut source, mut destination, mut protocol) = (None, None, None);
    for (kind, value) in attributes(find(TUPLE_ORIG)?) {
        for (part, octets) in attributes(value) {
            match kind {
                TUPLE_IP if IP_SOURCES.contains(&part) => source = address(octets),
                TUPLE_IP if IP_DESTINATIONS.contains(&part) => destination = address(octets),
                TUPLE_PROTO if part == PROTO_NUM => protocol = octets.first().copied(),
                _ => {}
            }
        }
    }
    Some(Connection {
        protocol: protocol?,
        source: source?,
        destination: destination?,
        sent: find(COUNTERS_ORIG).map(count),
        received: find(COUNTERS_REPLY).map(count),
    })
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(octets).map(|octets| Ipv4Addr::from(octets).into());
    four.or_else(|_| <[u8; 16]>::try_from(octets).map(|octets| Ipv6Addr::from(octets).into())).ok()
}

fn count(bytes: &[u8]) -> Count {
    let mut count = Count::default();
    for (kind, value) in attributes(bytes) {
        let number = value.try_into().map(u64::from_be_bytes).unwrap_or(0);
        match kind {
            COUNTER_PACKETS => count.packets = number,
            COUNTER_BYTES => count.bytes = number,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::messages;
    use crate::nfnetlink::{HEADERS, kind_of};
    use proptest::prelude::*;

    /// As the kernel writes it.
    fn message() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut message = Message::begin(&mut bytes, GET_ANSWER, 2, 1, libc::AF_INET6 as u8, 0);
        message.nested(TUPLE_ORIG, |tuple| {
            tuple.nested(TUPLE_IP, |ip| {
                ip.attribute(3, &"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
                ip.attribute(4, &"2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
            });
            tuple.nested(TUPLE_PROTO, |protocol| {
                protocol.attribute(PROTO_NUM, &[17]);
                protocol.attribute(2, &53_u16.to_be_bytes());
            });
        });
        message.nested(COUNTERS_ORIG, |counters| {
            counters.attribute(COUNTER_PACKETS, &2_u64.to_be_bytes());
            counters.attribute(COUNTER_BYTES, &300_u64.to_be_bytes());
        });
        message.end();
        bytes
    }

    #[test]
    fn a_connection_is_read() {
        let bytes = message();
        let found: Vec<_> = messages(&bytes).collect();
        assert_eq!((found.len(), kind_of(found[0])), (1, GET_ANSWER));
        let expected = Connection {
            protocol: 17,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
            sent: Some(Count { packets: 2, bytes: 300 }),
            received: None,
        };
        assert_eq!(connection(&found[0][HEADERS..]), Some(expected));
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(at in 0..200_usize, octet: u8, length in 0..200_usize) {
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
