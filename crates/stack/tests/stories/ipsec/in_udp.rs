//! ESP in UDP (RFC 3948): what port 4500 carries, and for whom.

use ipsec::udp_encapsulation::{self, NON_ESP_MARKER};
use stack::udp::Metadata;
use wire::icmp_error::{self, Reason};

use super::*;
use crate::link::mac;

/// Associations in UDP between the two.
fn in_udp(spi: u32, mode: &str, a: &str, b: &str) -> String {
    let port = udp_encapsulation::PORT;
    let one =
        |from, to, spi| format!("add {from}[{port}] {to}[{port}] esp-udp {spi} -m {mode} -r 64 {GCM};\n");
    one(a, b, spi) + &one(b, a, spi + 1)
}

fn between_a_and_b(mode: &str) -> String {
    in_udp(0x4000, mode, &A.to_string(), &B.to_string())
}

/// The daemon's socket of a host.
fn daemon(link: &mut Link<Ipsec>, host: usize) -> SocketId {
    let id = link.hosts[host].udp_bind(at(ANY, udp_encapsulation::PORT)).unwrap();
    link.hosts[host].permit_bypass();
    link.hosts[host].udp_bypass_security(id).unwrap();
    id
}

fn receive(link: &mut Link<Ipsec>, host: usize, id: SocketId) -> Option<(Metadata, Vec<u8>)> {
    let mut data = Vec::new();
    link.hosts[host].udp_receive(id, &mut data).map(|metadata| (metadata, data))
}

#[test]
fn rfc_3948_2_1_esp_travels_in_udp_both_ways_whole_and_in_fragments() {
    for (mode, levels) in [("transport", ESP), ("tunnel", TUNNEL)] {
        let mut link = pair(&between_a_and_b(mode));
        require(&mut link, levels);
        let (from, to) = (socket(&mut link, 0, Levels::NONE), socket(&mut link, 1, Levels::NONE));
        for length in [100, 5000] {
            let data = vec![7; length];
            send(&mut link, from, &data);
            assert_eq!(received(&mut link, 1, to), [&data[..]], "{mode}");
        }
        assert!(link.ping(1, A), "{mode}");
        let sent = between(link.sent());
        assert_eq!(&sent[0][40..44], [0x11, 0x94, 0x11, 0x94], "from port 4500 to port 4500");
        assert!(sent.iter().all(|packet| matches!(packet[6], protocol::UDP | protocol::FRAGMENT)));
        for host in &mut link.hosts {
            assert_eq!(host.security().drops().nonzero().count(), 0, "{mode}");
        }
    }
}

#[test]
fn rfc_3948_2_1_esp_travels_in_udp_over_ipv4() {
    let address = |host: u8| std::net::Ipv4Addr::new(192, 0, 2, host).to_ipv6_mapped();
    let mut link = pair(&in_udp(0x4000, "transport", "192.0.2.1", "192.0.2.2"));
    for (index, host) in link.hosts.iter_mut().enumerate() {
        let net = format!("192.0.2.{}/24", index + 1).parse().unwrap();
        host.set_ipv4(Some(stack::ipv4::Ipv4 { address: net, gateway: None }));
    }
    require(&mut link, ESP);
    let (from, to) = (socket(&mut link, 0, Levels::NONE), socket(&mut link, 1, Levels::NONE));
    link.hosts[0].udp_send(link.now, from, Some(at(address(2), PORT)), &[4; 3000]).unwrap();
    link.run(SECOND);
    assert_eq!(received(&mut link, 1, to), [[4; 3000]]);
    let packets: Vec<_> = link.others.iter().filter(|frame| frame[12..14] == [8, 0]).collect();
    assert!(packets.len() == 3 && packets.iter().all(|frame| frame[14 + 9] == protocol::UDP));
}

#[test]
fn rfc_3948_2_2_what_is_of_ike_reaches_the_daemons_socket() {
    let mut link = pair(&between_a_and_b("transport"));
    require(&mut link, ESP);
    let (ours, theirs) = (daemon(&mut link, 0), daemon(&mut link, 1));
    let message = [&NON_ESP_MARKER[..], b"IKE_SA_INIT"].concat();
    let to = at(B, udp_encapsulation::PORT);
    link.hosts[0].udp_send(link.now, ours, Some(to), &message).unwrap();
    link.run(SECOND);
    let (metadata, data) = receive(&mut link, 1, theirs).expect("it arrives");
    assert_eq!((metadata.from, data), (at(A, udp_encapsulation::PORT), message));
}

#[test]
fn rfc_3948_2_3_a_keepalive_reaches_nobody_and_is_not_answered() {
    let mut link = pair(&between_a_and_b("transport"));
    let ours = daemon(&mut link, 0);
    let to = at(B, udp_encapsulation::PORT);
    let theirs = daemon(&mut link, 1);
    for open in [true, false] {
        if !open {
            link.hosts[1].udp_close(theirs);
        }
        link.sent();
        link.hosts[0].udp_send(link.now, ours, Some(to), &udp_encapsulation::KEEPALIVE).unwrap();
        link.run(SECOND);
        assert_eq!(receive(&mut link, 1, theirs), None);
        assert_eq!(between(link.sent()).len(), 1, "no error comes back");
    }
}

#[test]
fn what_names_no_association_or_is_forged_is_dropped_in_silence() {
    let mut link = pair(&between_a_and_b("transport"));
    let ours = daemon(&mut link, 0);
    let theirs = daemon(&mut link, 1);
    let to = at(B, udp_encapsulation::PORT);
    link.sent();
    for (spi, reason) in [(0x9999_u32, DropReason::NoAssociation), (0x4000, DropReason::Forged)] {
        let datagram = [&spi.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 56]].concat();
        link.hosts[0].udp_send(link.now, ours, Some(to), &datagram).unwrap();
        link.run(SECOND);
        assert_eq!(dropped(&mut link, 1, reason), 1, "{spi:x}");
    }
    assert_eq!(receive(&mut link, 1, theirs), None);
    assert_eq!(between(link.sent()).len(), 2, "nobody is told");
}

#[test]
fn rfc_7296_2_23_esp_is_taken_in_udp_or_not_whatever_was_agreed_on() {
    let mut link = pair("");
    apply(link.now, &mut link.hosts[0], &esp(GCM));
    apply(link.now, &mut link.hosts[1], &in_udp(0x1000, "transport", &A.to_string(), &B.to_string()));
    let from = socket(&mut link, 0, ESP);
    let to = socket(&mut link, 1, Levels::NONE);
    send(&mut link, from, b"beside the NAT");
    assert_eq!(received(&mut link, 1, to), [b"beside the NAT"]);
}

#[test]
fn a_path_mtu_is_believed_of_what_was_sent_in_udp() {
    let mut link = pair(&between_a_and_b("transport"));
    let from = socket(&mut link, 0, ESP);
    send(&mut link, from, &[1; 1000]);
    let mut packet = between(link.sent()).remove(0);
    let mut error = vec![0; icmp_error::MAX_LEN];
    for (spi, expected) in [(0x4001_u32, 1500), (0x4000, 1300)] {
        packet[48..52].copy_from_slice(&spi.to_be_bytes());
        error.resize(icmp_error::MAX_LEN, 0);
        let reason = Reason::PacketTooBig { mtu: 1300 };
        let length = icmp_error::build(reason, B.into(), &packet, &mut error).unwrap();
        link.inject(mac(1), mac(0), &error[..length]);
        assert_eq!(link.hosts[0].path_mtu(link.now, B), expected);
    }
}
