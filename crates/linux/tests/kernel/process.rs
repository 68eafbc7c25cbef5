use linux::neighbor::Responder;
use linux::netlink::{Netlink, Route};
use linux::netns;
use linux::nft::{self, PrefixDelivery};
use linux::process::{Capability, keep_capabilities};
use linux::tun::{self, Offloads};
use linux::udp::{EndpointOptions, EndpointSocket};

use crate::network::{Pair, dark, endpoint};

#[test]
fn two_capabilities_are_enough_for_all_that_a_tunnel_needs() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let link = pair.a.link();
    let prefix = "2001:db8:a1::/64";
    // The work runs on a thread of its own, and only that thread gives up the others.
    pair.a.run(|| {
        keep_capabilities(&[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]).unwrap();
        let mut netlink = Netlink::open().unwrap();
        let device = tun::create("t0", 1, Offloads::TcpAndUdp).unwrap();
        netlink.set_link_up(device.index, true).unwrap();
        netlink.add_route(&Route::local(prefix.parse().unwrap())).unwrap();
        Responder::open(link.index, link.mac.unwrap()).unwrap();
        EndpointSocket::open(endpoint("[2001:db8:a1::1]:500"), None, &EndpointOptions::default())
            .unwrap_err();
        EndpointSocket::open(endpoint("[2001:db8:a1::1]:5000"), None, &EndpointOptions::default()).unwrap();
        nft::darken(&dark("t0", prefix, PrefixDelivery::Routed, &[]), "").unwrap();
        assert!(nft::remove("t0").unwrap());
        // What is not kept is refused.
        assert_eq!(netns::enter_new().unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    });
}
