use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use linux::netlink::{Netlink, Route};
use linux::netns;
use linux::nft::{self, PrefixDelivery};
use linux::outside::{self, Outside, Stray};
use linux::packet::{self, PacketSocket};
use linux::ruleset::{self, Family};
use linux::udp::{EndpointOptions, EndpointSocket, SendOutcome};

use crate::network::{A, B, LINK, Node, Pair, dark, endpoint, eventually, routed_pair};

const TUNNEL: &str = "mt6d0";
const ACTIVE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb1, 0, 0, 0, 0, 0x77);
const ROUTED: &str = "2001:db8:b1::/64";

/// Asks `address` for an echo, for TCP and UDP at two ports, and tells what comes back: IPv6 next headers and
/// first bytes of their content (for ICMPv6 the type). Neighbor and group discovery do not
/// count.
fn answers(node: &Node, address: Ipv6Addr) -> BTreeSet<(u8, u8)> {
    let index = node.link().index;
    let capture = node.run(|| PacketSocket::open(index, &packet::PacketOptions::default()).unwrap());
    node.sh(&format!("ping -6 -c 1 -W 0.3 {address}"));
    node.run(|| {
        for port in [50_000, 50_001] {
            let to = SocketAddr::new(address.into(), port);
            let _ = TcpStream::connect_timeout(&to, Duration::from_millis(200));
            UdpSocket::bind("[::]:0").unwrap().send_to(b"x", to).unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    let mut frame = [0; 2000];
    let mut answers = BTreeSet::new();
    while let Some(length) = capture.recv(&mut frame).unwrap() {
        let (next_header, first) = (frame[20], frame[54]);
        // Reports of group membership have a hop-by-hop header.
        if length > 54 && next_header != 0 && !(next_header == 58 && (133..=136).contains(&first)) {
            answers.insert((next_header, first));
        }
    }
    answers
}

fn open(node: &Node, local: &str, remote: Option<&str>) -> EndpointSocket {
    node.run(|| {
        EndpointSocket::open(endpoint(local), remote.map(endpoint), &EndpointOptions::default()).unwrap()
    })
}

fn crosses(from: &EndpointSocket, to: &EndpointSocket) -> bool {
    assert_eq!(from.send(b"hello", None, Some(to.local()), 0).unwrap(), SendOutcome::Sent);
    std::thread::sleep(Duration::from_millis(100));
    to.recv(&mut [0; 10]).unwrap().is_some()
}

#[test]
fn a_routed_prefix_is_dark_but_for_the_exact_four_tuple() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    // Without the table everything answers, so the probes do find something.
    assert!(answers(&pair.a, ACTIVE).contains(&(58, 129)));
    pair.b.run(|| nft::darken(&dark(TUNNEL, ROUTED, PrefixDelivery::Routed, &[]), "").unwrap());
    assert!(pair.b.must("nft list ruleset").contains("notrack"));

    let at_b = open(&pair.b, "[2001:db8:b1::77]:50000", Some("[2001:db8:a1::1]:4000"));
    let rendezvous = open(&pair.b, "[2001:db8:b1::78]:50000", None);
    for address in ["2001:db8:b1::77", "2001:db8:b1::78", "2001:db8:b1::79"] {
        assert_eq!(answers(&pair.a, address.parse().unwrap()), BTreeSet::new(), "{address}");
    }
    assert!(!crosses(&open(&pair.a, "[2001:db8:a1::1]:4001", None), &at_b), "another port");
    assert!(!crosses(&open(&pair.a, "[2001:db8:a1::2]:4000", None), &at_b), "another address");
    assert!(crosses(&open(&pair.a, "[2001:db8:a1::1]:4000", None), &at_b));
    while rendezvous.recv(&mut [0; 10]).unwrap().is_some() {}
    assert!(crosses(&open(&pair.a, "[2001:db8:a1::3]:1234", None), &rendezvous));

    // What is not in the prefix goes on as ever.
    pair.a.must(&format!("ping -6 -c 1 -W 1 {B}"));
    assert!(pair.b.run(|| nft::remove(TUNNEL).unwrap()));
    assert!(!pair.b.run(|| nft::remove(TUNNEL).unwrap()));
    assert!(answers(&pair.a, ACTIVE).contains(&(58, 129)));
}

/// Its peer may be reached over IPv4, or by another uplink than where the tunnel hops.
#[test]
fn what_another_tunnel_sends_past_this_one_is_dropped_by_whatever_interface_it_goes() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let bind = |node: &Node, address: Ipv6Addr, port: u16| {
        let socket = node.run(|| UdpSocket::bind((address, port)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket
    };
    let (own, other, remote) = (bind(&pair.a, A, 51_820), bind(&pair.a, A, 51_821), bind(&pair.b, B, 7));
    let crosses = |from: &UdpSocket, to: &UdpSocket| {
        // Of what is dropped on its way out the sender hears.
        let _ = from.send_to(b"hello", to.local_addr().unwrap());
        to.recv_from(&mut [0; 10]).is_ok()
    };
    let both_ways = |own: &UdpSocket| [crosses(own, &remote), crosses(&remote, own)];
    let strays = [Stray { port: 51_820, remote: remote.local_addr().unwrap() }];
    // The last is about this interface itself: what goes by the tunnel's own goes through the tunnel.
    for (tunnel, external, passes) in [(TUNNEL, LINK, false), (TUNNEL, "ex", false), (LINK, "ex", true)] {
        let prefix = ROUTED.parse().unwrap();
        let outside = Outside { tunnel, external, prefix, behind: &[], here: &[], strays: &strays };
        pair.a.run(|| nft::apply(&outside.render()).unwrap());
        assert_eq!(both_ways(&own), [passes; 2], "{tunnel} {external}");
        assert_eq!(both_ways(&other), [true; 2], "{tunnel} {external}");
        pair.a.must(&format!("nft delete table inet {}", outside::table_name(tunnel)));
    }
}

#[test]
fn a_socket_on_every_address_does_not_make_the_prefix_light() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    pair.b.run(|| nft::darken(&dark(TUNNEL, ROUTED, PrefixDelivery::Routed, &[]), "").unwrap());
    let wildcard = open(&pair.b, "[::]:50000", None);
    let a = open(&pair.a, "[2001:db8:a1::1]:4000", None);
    a.send(b"hello", None, Some(endpoint("[2001:db8:b1::77]:50000")), 0).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(wildcard.recv(&mut [0; 10]).unwrap(), None);
    a.send(b"hello", None, Some(endpoint("[2001:db8:1::b]:50000")), 0).unwrap();
    eventually(|| wildcard.recv(&mut [0; 10]).unwrap());
}

#[test]
fn a_packet_too_big_still_reaches_an_active_endpoint() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    pair.b.run(|| nft::darken(&dark(TUNNEL, ROUTED, PrefixDelivery::Routed, &[]), "").unwrap());
    pair.a.must("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
    pair.a
        .must("ip link add far type veth peer name end && ip link set far mtu 1400 up && ip link set end up");
    pair.a.must("ip route add 2001:db8:c1::/64 dev far");
    pair.b.must(&format!("ip route add 2001:db8:c1::/64 via {A}"));
    let socket = open(&pair.b, "[2001:db8:b1::77]:50000", Some("[2001:db8:c1::1]:9"));
    assert_eq!(socket.send(&[0; 1452], None, None, 0).unwrap(), SendOutcome::Sent);
    let error = eventually(|| socket.recv_error(&mut [0; 1500]).unwrap());
    assert_eq!((error.icmp_type, error.info), (2, 1400));
}

#[test]
fn on_a_shared_link_only_what_is_ours_is_dark() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let active = "2001:db8:1::77";
    let on_link = |own| dark(TUNNEL, "2001:db8:1::/64", PrefixDelivery::OnLink, own);
    pair.b.must("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
    pair.b.run(|| {
        nft::darken(&on_link(&[B]), "").unwrap();
        Netlink::open().unwrap().add_route(&Route::local("2001:db8:1::77/128".parse().unwrap())).unwrap();
    });
    let mac = pair.b.link().mac.unwrap();
    for address in [active, "2001:db8:1::78"] {
        // As the responder would have it, and for the second as if its endpoint had just closed.
        pair.a.must(&format!("ip neighbor replace {address} lladdr {mac} dev {LINK}"));
    }
    let at_b = open(&pair.b, "[2001:db8:1::77]:50000", Some("[2001:db8:1::a]:4000"));
    assert_eq!(answers(&pair.a, active.parse().unwrap()), BTreeSet::new());
    assert_eq!(answers(&pair.a, "2001:db8:1::78".parse().unwrap()), BTreeSet::new());
    assert!(crosses(&open(&pair.a, "[2001:db8:1::a]:4000", None), &at_b));

    // The real address answers until it is no longer named, and neighbor discovery always does.
    pair.a.must(&format!("ping -6 -c 1 -W 1 {B}"));
    pair.b.run(|| nft::darken(&on_link(&[]), "").unwrap());
    assert!(!pair.a.sh(&format!("ping -6 -c 1 -W 0.3 {B}")).0);
    pair.b.run(|| nft::darken(&on_link(&[B]), "").unwrap());
    pair.a.must(&format!("ip neighbor flush dev {LINK}; ping -6 -c 1 -W 1 {B}"));
    pair.b.must(&format!("ip neighbor flush dev {LINK}; ping -6 -c 1 -W 1 {A}"));
}

/// Packets that the kernel answers before netfilter's usual hooks see them, or some time after, by ICMPv6 errors.
fn odd_packets(from: &Node, to: &Node, address: Ipv6Addr) -> Vec<Vec<u8>> {
    let datagram = [0x10, 0x92, 0xc3, 0x50, 0, 8, 0, 0];
    // Unknown options that ask for an error.
    let options = [17, 0, 0x9e, 4, 0, 0, 0, 0];
    let unknown_routing = [17, 0, 99, 1, 0, 0, 0, 0];
    // More of it will never come.
    let first_fragment = [17, 0, 0, 1, 1, 2, 3, 4];
    let headers = [(60, options), (43, unknown_routing), (44, first_fragment), (0, options)];
    let (from, to) = (from.link().mac.unwrap(), to.link().mac.unwrap());
    let packet = |(next_header, header): (u8, [u8; 8])| {
        let mut frame = [to.0, from.0].concat();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, next_header, 64]);
        frame.extend(A.octets());
        frame.extend(address.octets());
        frame.extend(header);
        frame.extend(datagram);
        frame
    };
    headers.map(packet).into()
}

#[test]
fn extension_headers_and_fragments_are_not_answered() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    pair.b.must("echo 1 > /proc/sys/net/ipv6/ip6frag_time");
    let endpoint = format!("[{ACTIVE}]:50000");
    let _at_b = open(&pair.b, &endpoint, None);
    for is_dark in [false, true] {
        if is_dark {
            // What was sent before is answered by now.
            std::thread::sleep(Duration::from_secs(2));
            pair.b.run(|| nft::darken(&dark(TUNNEL, ROUTED, PrefixDelivery::Routed, &[]), "").unwrap());
        }
        let index = pair.a.link().index;
        let socket = pair.a.run(|| PacketSocket::open(index, &packet::PacketOptions::default()).unwrap());
        for address in [ACTIVE, "2001:db8:b1::99".parse().unwrap()] {
            for frame in odd_packets(&pair.a, &pair.b, address) {
                socket.send(&frame).unwrap();
            }
        }
        let mut errors = 0;
        let mut frame = [0; 2000];
        let mut look = || {
            while let Some(length) = socket.recv(&mut frame).unwrap() {
                errors += usize::from(length > 54 && frame[20] == 58 && (1..=4).contains(&frame[54]));
            }
            errors
        };
        // The last ones come when fragments have not; the kernel limits how many errors it sends.
        if is_dark {
            std::thread::sleep(Duration::from_secs(3));
            assert_eq!(look(), 0);
        } else {
            eventually(|| (look() >= 4).then_some(()));
        }
    }
}

#[test]
fn the_table_is_replaced_and_tables_of_others_stay() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    node.must("nft add table ip6 foreign; nft add table inet sidestep-other");
    node.run(|| {
        for _ in 0..2 {
            nft::darken(&dark(TUNNEL, ROUTED, PrefixDelivery::Routed, &[B, A]), "").unwrap();
        }
        let is_dark = || ruleset::has_table(Family::Ip6, &nft::table_name(TUNNEL)).unwrap();
        assert!(is_dark());
        assert!(nft::remove(TUNNEL).unwrap());
        assert!(!is_dark());
    });
    let left = node.must("nft list tables");
    assert!(left.contains("foreign") && left.contains("sidestep-other"), "{left}");
}
