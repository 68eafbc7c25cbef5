use std::collections::{HashMap, HashSet};
use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

use linux::netlink::Netlink;
use linux::netns;
use linux::tun::{self, Kind, Offloads, VNET_HEADER};

use crate::network::{Node, eventually};

/// An echo request from `source` to `destination`, with a correct checksum.
fn echo_request(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 58, 64];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend([128, 0, 0, 0, 0x12, 0x34, 0, 1]);
    let sum =
        wire::checksum::Sum::pseudo_ipv6(source, destination, 8, 58) + wire::checksum::Sum::of(&packet[40..]);
    packet[42..44].copy_from_slice(&sum.checksum().to_be_bytes());
    packet
}

#[test]
fn a_packet_written_is_received_and_the_answer_read() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    node.run(|| {
        let device = tun::create("t0", 1, Offloads::TcpAndUdp).unwrap();
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(netlink.link_by_name("t0").unwrap().unwrap().index, device.index);
        netlink.set_link_mtu(device.index, 1400).unwrap();
        netlink.set_link_up(device.index, true).unwrap();
        netlink.add_address(device.index, "2001:db8::1/64".parse().unwrap(), false).unwrap();
        assert_eq!(netlink.link_by_index(device.index).unwrap().unwrap().mtu, 1400);

        let queue = &device.queues[0];
        let (us, them) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let request = echo_request(them, us);
        let mut buffer = vec![0; tun::MAX_READ];
        let length = eventually(|| {
            // The kernel loses what it sends in the first moments of an interface.
            queue.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&request)]).unwrap();
            let length = queue.read(&mut buffer).unwrap()?;
            (buffer[VNET_HEADER + 6] == 58 && buffer[VNET_HEADER + 40] == 129).then_some(length)
        });
        assert_eq!(length, VNET_HEADER + 48);
        assert_eq!(buffer[VNET_HEADER + 8..][..16], us.octets());
        // What the kernel sends of its own, such as router solicitations, may be there too.
        while queue.read(&mut buffer).unwrap().is_some() {}

        let mut packet = vec![7; 100];
        let header = eventually(|| {
            queue.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&request)]).unwrap();
            let header = queue.read_packet(&mut packet).unwrap()?;
            (packet[6] == 58 && packet[40] == 129).then_some(header)
        });
        assert_eq!((packet.len(), wire::virtio_net::Header::from_bytes(&header).is_gso()), (48, false));
        assert_eq!(packet, buffer[VNET_HEADER..length]);
        while queue.read_packet(&mut packet).unwrap().is_some() {}
        assert!(packet.is_empty());
    });
}

#[test]
fn several_queues_are_one_device() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    node.run(|| {
        // Where the kernel has tunnel modules, each namespace has a device of theirs from its beginning.
        let links = || Netlink::open().unwrap().links().unwrap().len();
        let before = links();
        let device = tun::create("t0", 3, Offloads::Tcp).unwrap();
        assert_eq!((device.queues.len(), device.offloads), (3, Offloads::Tcp));
        assert!(device.unsteered.is_none(), "{:?}", device.unsteered);
        assert_eq!(links(), before + 1);
        drop(device);
        assert_eq!(links(), before);
    });
}

#[test]
fn a_flow_stays_in_its_queue_and_flows_have_many() {
    if !netns::available_to_tests() {
        return;
    }
    const FLOWS: u16 = 200;
    let node = Node::new();
    node.run(|| {
        let device = tun::create("t0", 8, Offloads::TcpAndUdp).unwrap();
        node.must(
            "ip address add fd00::1/64 dev t0 nodad; ip address add 10.9.0.1/24 dev t0; ip link set t0 up",
        );
        for (to, ports_at) in [("[fd00::2]:0", 40), ("10.9.0.2:0", 20)] {
            let to: SocketAddr = to.parse().unwrap();
            let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(any).unwrap();
            let mut queues_of: HashMap<u16, HashSet<usize>> = HashMap::new();
            for round in 0..3 {
                for port in 1000..1000 + FLOWS {
                    socket.send_to(&[round; 10], SocketAddr::new(to.ip(), port)).unwrap();
                }
                let mut buffer = vec![0; tun::MAX_READ];
                for (number, queue) in device.queues.iter().enumerate() {
                    while let Some(length) = queue.read(&mut buffer).unwrap() {
                        let packet = &mut buffer[..length];
                        let port = packet.get(VNET_HEADER + ports_at + 2..VNET_HEADER + ports_at + 4);
                        let Some(port) = port.map(|p| u16::from_be_bytes([p[0], p[1]])) else { continue };
                        if (1000..1000 + FLOWS).contains(&port) {
                            queues_of.entry(port).or_default().insert(number);
                            // What is written of a flow changes nothing.
                            let _ = device.queues[0].write(&[IoSlice::new(packet)]);
                        }
                    }
                }
            }
            assert_eq!(queues_of.len(), usize::from(FLOWS));
            assert!(queues_of.values().all(|queues| queues.len() == 1), "{queues_of:?}");
            for queue in 0..device.queues.len() {
                let flows = queues_of.values().filter(|queues| queues.contains(&queue)).count();
                assert!((8..60).contains(&flows), "queue {queue} has {flows} of {FLOWS} flows");
            }
        }
    });
}

#[test]
fn a_device_that_exists_is_not_taken_over() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    node.must("ip link add foreign type veth peer name other; ip tuntap add persistent mode tun");
    node.run(|| {
        let _mine = tun::create("t0", 1, Offloads::None).unwrap();
        for name in ["t0", "foreign", "persistent"] {
            let error = tun::create(name, 1, Offloads::None).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("exists already"), "{error}");
        }
    });
}

#[test]
fn a_device_that_was_there_is_taken_and_stays() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    node.must("ip tuntap add dev tap9 mode tap");
    node.must("ip tuntap add dev tun9 mode tun multi_queue");
    node.run(|| {
        let there = |name| Netlink::open().unwrap().link_by_name(name).unwrap().is_some();
        assert!(tun::attach("none", Offloads::None).unwrap().is_none());
        for (name, kind) in [("tap9", Kind::Ethernet), ("tun9", Kind::Ip)] {
            let device = tun::attach(name, Offloads::None).unwrap().unwrap();
            assert_eq!((device.kind, device.offloads), (kind, Offloads::None));
            drop(device);
            assert!(there(name));
        }
        let held = tun::attach("tap9", Offloads::None).unwrap().unwrap();
        let error = tun::attach("tap9", Offloads::None).unwrap_err().to_string();
        assert!(error.contains("another program holds"), "{error}");
        drop(held);
        let error = tun::attach("lo", Offloads::None).unwrap_err().to_string();
        assert!(error.contains("neither a TAP nor a TUN"), "{error}");
        let made = tun::create_single("tap8", Kind::Ethernet, Offloads::Tcp).unwrap();
        assert_eq!(made.offloads, Offloads::Tcp);
        let error = tun::create_single("tap8", Kind::Ethernet, Offloads::None).unwrap_err().to_string();
        assert!(error.contains("exists already"), "{error}");
        drop(made);
        assert!(!there("tap8"));
    });
}
