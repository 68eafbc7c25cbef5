use std::sync::Arc;

use linux::netns;
use linux::udp::{
    EndpointOptions, EndpointSocket, ErrorOrigin, MAX_RECEIVE, Received, Segmentation, SendOutcome,
};
use wire::ecn::Ecn;

use crate::network::{LINK, Pair, endpoint, eventually, routed_pair};

const AT_A: &str = "[2001:db8:a1::1234:5678]:40000";
const AT_B: &str = "[2001:db8:b1::8765:4321]:50000";

fn connected(pair: &Pair, options: &EndpointOptions) -> (EndpointSocket, EndpointSocket) {
    let (a, b) = (endpoint(AT_A), endpoint(AT_B));
    (
        pair.a.run(|| EndpointSocket::open(a, Some(b), options).unwrap()),
        pair.b.run(|| EndpointSocket::open(b, Some(a), options).unwrap()),
    )
}

/// Everything that arrives, datagram by datagram, and by how many receives.
fn receive_all(socket: &EndpointSocket, bytes: usize) -> (Vec<Vec<u8>>, usize) {
    let mut datagrams = Vec::new();
    let mut receives = 0;
    let mut arrived = 0;
    let mut buffer = vec![0; MAX_RECEIVE];
    while arrived < bytes {
        let received = eventually(|| socket.recv(&mut buffer).unwrap());
        receives += 1;
        arrived += received.len;
        datagrams.extend(buffer[..received.len].chunks(received.segment_size).map(<[u8]>::to_vec));
    }
    (datagrams, receives)
}

#[test]
fn a_batch_crosses_whole_between_addresses_that_no_interface_has() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    let (a, b) = connected(&pair, &EndpointOptions::default());
    assert!(b.receives_batches());
    let data: Vec<u8> = (0..45 * 1452 - 100).map(|i: usize| (i / 1452) as u8).collect();
    assert_eq!(a.send(&data, Some(1452), None, 0b01).unwrap(), SendOutcome::Sent);
    let (datagrams, receives) = receive_all(&b, data.len());
    assert_eq!(datagrams.len(), 45);
    assert_eq!(datagrams.concat(), data);
    assert!(receives < 45, "{receives} receives");
    assert_eq!(b.send(b"back", None, None, 0b11).unwrap(), SendOutcome::Sent);
    let received = eventually(|| a.recv(&mut [0; 100]).unwrap());
    assert_eq!(received, Received { len: 4, segment_size: 4, source: endpoint(AT_B), ecn: Ecn::Ce });
}

#[test]
fn with_offloads_forced_off_the_same_datagrams_come_singly() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    let options = EndpointOptions {
        receive_offload: false,
        segmentation: Arc::new(Segmentation::off()),
        ..EndpointOptions::default()
    };
    let (a, b) = connected(&pair, &options);
    let data = vec![7; 20 * 1000 + 1];
    assert_eq!(a.send(&data, Some(1000), None, 0).unwrap(), SendOutcome::Sent);
    let (datagrams, receives) = receive_all(&b, data.len());
    assert_eq!((datagrams.len(), receives), (21, 21));
}

#[test]
fn a_device_that_computes_no_checksums_is_no_obstacle() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    // Older kernels refuse to segment for such a device (EIO), newer ones do it in software.
    pair.a.must(&format!("ethtool -K {LINK} tx off"));
    let (a, b) = connected(&pair, &EndpointOptions::default());
    let data = vec![7; 10 * 1000];
    for _ in 0..2 {
        assert_eq!(a.send(&data, Some(1000), None, 0).unwrap(), SendOutcome::Sent);
        assert_eq!(receive_all(&b, data.len()).0.len(), 10);
    }
}

#[test]
fn segments_longer_than_the_mtu_are_too_long_and_segmentation_stays_on() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    let options = EndpointOptions::default();
    let (a, b) = connected(&pair, &options);
    assert_eq!(a.send(&[0; 4500], Some(1460), None, 0).unwrap(), SendOutcome::TooLong);
    assert_eq!(a.send(&[0; 1453], None, None, 0).unwrap(), SendOutcome::TooLong);
    assert!(options.segmentation.is_on());
    let mut buffer = [0; 2000];
    let error = a.recv_error(&mut buffer).unwrap().unwrap();
    assert_eq!((error.origin, error.info), (ErrorOrigin::Local, 1500));
    while a.recv_error(&mut buffer).unwrap().is_some() {}
    assert_eq!(a.send(&[0; 1452], None, None, 0).unwrap(), SendOutcome::Sent);
    assert_eq!(receive_all(&b, 1452).0.len(), 1);
}

#[test]
fn no_route_and_a_link_that_is_down_are_unreachable_and_no_error() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    let (a, b) = connected(&pair, &EndpointOptions::default());
    pair.a.must(&format!("ip link set {LINK} down"));
    assert!(matches!(a.send(b"x", None, None, 0).unwrap(), SendOutcome::Unreachable(_)));
    pair.a.must(&format!("ip link set {LINK} up; ip address add 2001:db8:1::a/64 dev {LINK} nodad"));
    pair.a.must("ip route replace 2001:db8:b1::/64 via 2001:db8:1::b");
    eventually(|| {
        let sent = a.send(b"x", None, None, 0).unwrap() == SendOutcome::Sent;
        (sent && b.recv(&mut [0; 10]).unwrap().is_some()).then_some(())
    });
}

#[test]
fn a_packet_too_big_from_the_path_is_told_with_what_it_quotes_and_limits_nothing() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = routed_pair();
    // B hands on what is for a prefix behind a link of MTU 1400: a datagram of 1500 bytes does not fit there.
    pair.b.must("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
    pair.b
        .must("ip link add far type veth peer name end && ip link set far mtu 1400 up && ip link set end up");
    pair.b.must("ip route add 2001:db8:c1::/64 dev far");
    pair.a.must("ip route add 2001:db8:c1::/64 via 2001:db8:1::b");
    let far = endpoint("[2001:db8:c1::1]:9");
    let socket =
        pair.a.run(|| EndpointSocket::open(endpoint(AT_A), Some(far), &EndpointOptions::default()).unwrap());
    let data: Vec<u8> = (0..1452u32).map(|i| i as u8).collect();
    assert_eq!(socket.send(&data, None, None, 0).unwrap(), SendOutcome::Sent);
    let mut buffer = [0; 2000];
    let error = eventually(|| socket.recv_error(&mut buffer).unwrap());
    assert_eq!((error.origin, error.icmp_type, error.icmp_code), (ErrorOrigin::Icmpv6, 2, 0));
    assert_eq!((error.info, error.destination), (1400, far));
    assert_eq!(error.offender, Some("2001:db8:1::b".parse().unwrap()));
    assert!(error.len >= 1000 && buffer[..error.len] == data[..error.len]);
    // Nobody vouches for that message, so the next long datagram leaves all the same.
    assert_eq!(socket.send(&data, None, None, 0).unwrap(), SendOutcome::Sent);
}

/// Sockets are opened and closed by one thread, and a thousand peers that move every second want a thousand of them in
/// each. How many there are in a second is printed.
#[test]
fn thousands_of_sockets_are_opened_and_closed() {
    if !netns::available_to_tests() {
        return;
    }
    const MANY: u16 = 3000;
    assert!(linux::process::raise_open_files().unwrap() > u64::from(MANY) + 100, "the limit of open files");
    let pair = routed_pair();
    let began = std::time::Instant::now();
    pair.a.run(|| {
        let nth = |n: u16| format!("[2001:db8:a1::{n:x}]:{}", 1024 + n);
        let open =
            |n| EndpointSocket::open(endpoint(&nth(n)), Some(endpoint(AT_B)), &EndpointOptions::default());
        let sockets: Vec<_> = (0..MANY).map(|n| open(n).unwrap()).collect();
        drop(sockets);
    });
    let rate = f64::from(MANY) / began.elapsed().as_secs_f64();
    println!("{rate:.0} sockets opened and closed per second");
}
