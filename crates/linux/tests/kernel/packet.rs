use linux::netns;
use linux::packet::{NEIGHBOR_SOLICITATIONS, PacketOptions, PacketSocket};

use crate::network::{B, Pair, eventually};

#[test]
fn the_filter_lets_neighbor_solicitations_through_and_nothing_else() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let index = pair.b.link().index;
    let options = PacketOptions { filter: Some(NEIGHBOR_SOLICITATIONS), ..PacketOptions::default() };
    let socket = pair.b.run(|| PacketSocket::open(index, &options).unwrap());
    pair.a.must(&format!("ping -6 -c 2 -i 0.1 {B}"));
    let mut buffer = [0; 2000];
    let length = eventually(|| socket.recv(&mut buffer).unwrap());
    assert_eq!((length, buffer[20], buffer[54]), (86, 58, 135));
    while let Some(length) = socket.recv(&mut buffer).unwrap() {
        assert_eq!((length, buffer[54]), (86, 135));
    }
}

#[test]
fn frames_go_out_and_come_in_and_outgoing_ones_on_request() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let open = |node: &crate::network::Node, outgoing| {
        let options = PacketOptions { promiscuous: true, outgoing, ..PacketOptions::default() };
        let index = node.link().index;
        node.run(|| PacketSocket::open(index, &options).unwrap())
    };
    let (sender, all, incoming) = (open(&pair.a, false), open(&pair.a, true), open(&pair.a, false));
    let peer = open(&pair.b, false);
    let frame = |mark| {
        let mut frame = [mark; 60];
        frame[..12].fill(2);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]); // for local experiments (IEEE 802)
        frame
    };
    let receives = |socket: &PacketSocket, wanted: &[u8]| {
        let mut buffer = [0; 2000];
        eventually(|| socket.recv(&mut buffer).unwrap().filter(|&length| buffer[..length] == *wanted));
    };
    assert!(sender.send(&frame(1)).unwrap());
    receives(&peer, &frame(1));
    receives(&all, &frame(1));
    assert!(peer.send(&frame(2)).unwrap());
    receives(&all, &frame(2));
    let mut buffer = [0; 2000];
    eventually(|| {
        let length = incoming.recv(&mut buffer).unwrap()?;
        assert_ne!(buffer[..length], frame(1), "an outgoing frame");
        (buffer[..length] == frame(2)).then_some(())
    });
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    if !netns::available_to_tests() {
        return;
    }
    let error =
        crate::network::Node::new().run(|| PacketSocket::open(77, &PacketOptions::default()).unwrap_err());
    assert!(error.to_string().contains("link 77"), "{error}");
}
