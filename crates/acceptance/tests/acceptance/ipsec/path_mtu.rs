//! What the way carries, and what is claimed of it.

use lab::patience::wait_until;

use super::scene::{INNER, OUTER, Scene};

/// Packet Too Big of a stranger, who knows addresses and ports, but no packet (RFC 4443 §3.2).
const FORGED: &str = "import socket,struct,sys\n\
    s=socket.socket(socket.AF_INET6,socket.SOCK_RAW,socket.IPPROTO_ICMPV6)\n\
    here,there=[socket.inet_pton(socket.AF_INET6,a) for a in sys.argv[1:]]\n\
    ip=struct.pack('!IHBB',0x60000000,1400,17,64)+here+there\n\
    udp=struct.pack('!HHHH',4500,4500,1400,0x1234)\n\
    s.sendto(struct.pack('!BBHI',2,0,0,1280)+ip+udp+bytes(1100),(sys.argv[1],0))";

fn is_carried(scene: &Scene, length: usize) -> bool {
    let payload = (length - 48).to_string();
    scene
        .on(0, &["ping", "-n", "-c", "3", "-i", "0.1", "-W", "1", "-M", "do", "-s", &payload, INNER[1]])
        .status
        .success()
}

fn mtu(scene: &Scene) -> Option<u64> {
    scene.status(0)?["mtu"].as_u64()
}

#[test]
fn packets_of_1280_bytes_cross_a_link_that_carries_no_more() {
    for encapsulate in ["always", "auto"] {
        let Some(scene) = Scene::new(&["ping"]) else { return };
        for (side, namespace) in scene.namespaces.iter().enumerate() {
            namespace.ip("link set ex mtu 1280\n").expect("an MTU");
            scene.write_site(side, true);
            let file = scene.path(["a.toml", "b.toml"][side]);
            let text = std::fs::read_to_string(&file).expect("a configuration");
            let child = "\n[[remote.child]]";
            let text = text.replacen(child, &format!("encapsulate = \"{encapsulate}\"\n{child}"), 1);
            std::fs::write(&file, text).expect("a configuration");
        }
        let _ends = [scene.up(0), scene.up(1)];
        wait_until("an answer", || scene.pings(0, INNER[1]));
        assert_eq!(mtu(&scene), Some(1280));
        assert!(is_carried(&scene, 1280), "{encapsulate}");
        assert!(!is_carried(&scene, 1281), "{encapsulate}");
    }
}

#[test]
fn a_narrow_path_that_a_stranger_claims_is_not_believed() {
    let Some(scene) = Scene::new(&["ping", "python3"]) else { return };
    let ends = scene.tunnel();
    let before = mtu(&scene).expect("an MTU");
    let forge = || {
        let forged = scene.on(1, &["python3", "-c", FORGED, OUTER[0], OUTER[1]]);
        assert!(forged.status.success(), "{}", String::from_utf8_lossy(&forged.stderr));
        scene.status(0).is_some_and(|status| status["drops"]["strange_too_big"].as_u64() >= Some(1))
    };
    wait_until("it to be counted", forge);
    assert_eq!(mtu(&scene), Some(before));
    assert!(is_carried(&scene, before as usize));
    // The kernel believes it; who begins anew does not ask the kernel.
    let [a, _b] = ends;
    a.kill();
    let _a = scene.up(0);
    wait_until("an answer", || scene.pings(0, INNER[1]));
    assert_eq!(mtu(&scene), Some(before));
    assert!(is_carried(&scene, before as usize));
}
