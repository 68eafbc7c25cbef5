//! strongSwan at the other end of `ipsec up`, with its own IPsec or a kernel's: long transfers while keys are replaced, either end
//! beginning, over IPv6 and IPv4.

use lab::patience::wait_until;
use lab::process::Process;
use lab::scale::scaled;

use super::scene::{INNER, INNER_V4, OUTER, OUTER_V4, STRONGSWAN, Scene};
use crate::charon::Charon;

/// Serves so many blocks of a mebibyte, no two of them the same, and says how many have left and what their hash is.
const SERVE: &str = "
import hashlib, random, socket, sys
address, blocks = sys.argv[1], int(sys.argv[2])
noise = random.randbytes((1 << 20) - 8)
listener = socket.create_server((address, 8080), family=socket.AF_INET6)
print('ready', flush=True)
client, _ = listener.accept()
client.recv(1 << 16)
client.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n' % (blocks << 20))
digest = hashlib.sha256()
for number in range(blocks):
    block = number.to_bytes(8, 'big') + noise
    client.sendall(block)
    digest.update(block)
    print('sent', number + 1, flush=True)
client.close()
print(digest.hexdigest(), flush=True)
";

/// What strongSwan replaces while the transfer is under way.
const REKEYS: [&[&str]; 4] = [
    &["--rekey", "--child", "c", "--ike", "sites"],
    &["--rekey", "--ike", "sites"],
    &["--rekey", "--child", "c", "--ike", "sites"],
    &["--rekey", "--child", "c", "--ike", "sites"],
];

/// strongSwan's own IPsec.
const USER_SPACE: &str = "kernel-libipsec";

/// The program and strongSwan, with a tunnel between the two that this end or the other one has begun.
fn tunnel(scene: &Scene, outer: [&str; 2], ipsec: &str, we_begin: bool) -> (Charon, Process) {
    scene.write_site(0, we_begin);
    let file = scene.path("a.toml");
    let text = std::fs::read_to_string(&file).expect("the file");
    std::fs::write(&file, text.replace(OUTER[1], outer[1])).expect("the file");
    let charon = scene.charon_at(outer, ipsec);
    let process = scene.up(0);
    if !we_begin {
        assert!(scene.swanctl(&["--initiate", "--child", "c", "--ike", "sites", "--timeout", "20"]));
    }
    wait_until("a child", || scene.children(0) == 1);
    (charon, process)
}

#[test]
fn a_gigabyte_by_curl_over_rekeys_of_children_and_ike_sa_is_whole() {
    let Some(scene) = Scene::new(&[&STRONGSWAN[..], &["python3", "curl", "sha256sum"]].concat()) else {
        return;
    };
    let _ends = tunnel(&scene, OUTER, USER_SPACE, true);
    let log = scene.path("web.log");
    let mut command = scene.namespaces[1].command("python3").expect("the namespace");
    let blocks: usize = scaled(16, 1024);
    command.args(["-c", SERVE, INNER[1], &blocks.to_string()]);
    let _server = Process::start(&mut command, &log).expect("python3");
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("the server", || told().contains("ready"));

    // Few bytes take as long as the rekeys do.
    let limit = scaled("--limit-rate 8M", "");
    let fetch = format!("curl --silent --show-error {limit} 'http://[{}]:8080/' | sha256sum", INNER[1]);
    let mut command = scene.namespaces[0].command("bash").expect("the namespace");
    let fetched = scene.path("fetched");
    let mut curl = Process::start(command.args(["-o", "pipefail", "-c", &fetch]), &fetched).expect("curl");
    for (number, rekey) in (1..).zip(REKEYS) {
        let far = format!("sent {}\n", blocks * number / (REKEYS.len() + 2));
        wait_until(&far, || told().contains(&far));
        assert!(scene.swanctl(rekey), "{rekey:?}");
    }
    assert!(curl.ended().is_none(), "the transfer was over before the last rekey");
    let patience = std::time::Duration::from_secs(scaled(60, 900));
    assert!(curl.wait(patience).is_some_and(|status| status.success()), "{}", told());
    let fetched = std::fs::read_to_string(fetched).expect("a hash");
    wait_until("the hash", || told().lines().last() == fetched.split_whitespace().next());
    wait_until("one child", || scene.children(0) == 1);
    // No packet was without its keys. IKE may have said something twice.
    let status = scene.status(0).expect("a status");
    let drops = status["drops"].as_object().expect("drops");
    assert!(drops.keys().all(|reason| reason.starts_with("ike_")), "{drops:?}");
}

#[test]
fn either_end_begins_over_ipv4() {
    for we_begin in [true, false] {
        let Some(scene) = Scene::new(&[&STRONGSWAN[..], &["ping"]].concat()) else { return };
        let recorder = scene.record();
        let _ends = tunnel(&scene, OUTER_V4, USER_SPACE, we_begin);
        for from in [0, 1] {
            wait_until("an answer", || scene.pings(from, INNER[1 - from]));
        }
        assert!(scene.swanctl(&["--rekey", "--child", "c", "--ike", "sites"]));
        assert!(scene.swanctl(&["--rekey", "--ike", "sites"]));
        assert!(scene.pings(0, INNER[1]));
        assert_eq!(recorder.in_clear(), []);
    }
}

#[test]
fn a_kernel_with_ipsec_is_at_the_other_end() {
    if !crate::xfrm::is_there() {
        return;
    }
    for we_begin in [true, false] {
        let Some(scene) = Scene::new(&[&STRONGSWAN[..], &["python3", "ping"]].concat()) else { return };
        let recorder = scene.record();
        let _ends = tunnel(&scene, OUTER, "", we_begin);
        for (from, inner) in [(0, INNER), (1, INNER_V4)] {
            wait_until("an answer", || scene.pings(from, inner[1 - from]));
            assert!(scene.sends(from, inner[1 - from], 100_000));
        }
        assert!(scene.swanctl(&["--rekey", "--child", "c", "--ike", "sites"]));
        assert!(scene.swanctl(&["--rekey", "--ike", "sites"]));
        wait_until("an answer", || scene.pings(0, INNER[1]));
        assert_eq!(recorder.in_clear(), []);
        let states = scene.on(1, &["ip", "xfrm", "state"]);
        assert!(String::from_utf8_lossy(&states.stdout).contains("espinudp"), "it is the kernel's");
    }
}
