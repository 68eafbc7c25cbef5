//! What strangers and those who listen on the link can send by the thousand: a flow through the tunnel keeps its rate, and
//! the program its size.

use std::time::Duration;

use lab::command::text;
use lab::patience::wait_until;
use lab::process::Process;
use lab::scale::scaled;

use super::scene::{INNER, OUTER, OUTER_V4, Scene};

/// Sends frames that are made of those of a record, all of them to the first side: so many a second, for so long. Checksums
/// of UDP in IPv4 may be left out.
const FLOOD: &str = "
import random, socket, struct, sys, time
kind, record, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
data, frames, at = open(record, 'rb').read(), [], 24
while at + 16 <= len(data):
    length = struct.unpack('<I', data[at + 8:at + 12])[0]
    frame = bytearray(data[at + 16:at + 16 + length])
    at += 16 + length
    if frame[12:14] == b'\\x08\\0' and frame[23] == 17 and frame[30:34] == socket.inet_aton('192.0.2.1'):
        frame[40:42] = b'\\0\\0'
        frames.append(frame)
esp = [frame for frame in frames if frame[36:38] == b'\\x11\\x94' and frame[42:46] != bytes(4)]
assert esp, 'no ESP in the record'
# A first message, as anybody may send it.
nonce = bytes([0, 0, 0, 36]) + bytes(32)
def init():
    proposal = bytes.fromhex('0300000c01000014800e0100' '0300000802000005' '00000008' '0400001f')
    sa = struct.pack('>BBHBBHBBBB', 34, 0, 12 + len(proposal), 0, 0, 8 + len(proposal), 1, 1, 0, 3) + proposal
    exchange = bytes([40, 0, 0, 40, 0, 31, 0, 0]) + random.randbytes(32)
    body = sa + exchange + nonce
    message = random.randbytes(8) + bytes(8) + bytes([33, 0x20, 34, 8]) + bytes(4) + struct.pack('>I', 28 + len(body)) + body
    udp = struct.pack('>HHHH', 500, 500, 8 + len(message), 0) + message
    source = bytes([10]) + random.randbytes(3)
    header = bytearray(struct.pack('>BBHHHBBH', 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + source + socket.inet_aton('192.0.2.1'))
    total = sum(struct.unpack('>10H', header))
    total = (total & 0xffff) + (total >> 16)
    header[10:12] = struct.pack('>H', 0xffff & ~((total & 0xffff) + (total >> 16)))
    return bytes(frames[0][:14]) + bytes(header) + udp
def frame():
    if kind == 'first messages':
        return init()
    one = bytearray(random.choice(esp))
    if kind == 'forgeries':
        one[46:50] = random.randbytes(4)
        one[-1] ^= 1
    elif kind == 'unknown SPIs':
        one[42:46] = random.randbytes(4)
    return one
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(('ex', 0))
begin, sent = time.monotonic(), 0
while (passed := time.monotonic() - begin) < seconds:
    while sent < passed * rate:
        link.send(frame())
        sent += 1
    time.sleep(0.001)
print('sent', sent)
";

const KINDS: [&str; 4] = ["first messages", "unknown SPIs", "replays", "forgeries"];

/// How many of so many pings through the tunnel are answered, 200 of them a second.
fn answered(scene: &Scene, pings: u32) -> u32 {
    let count = pings.to_string();
    let said = text(&scene.on(0, &["ping", "-n", "-q", "-i", "0.005", "-W", "2", "-c", &count, INNER[1]]));
    let received = said.split(" received").next().and_then(|before| before.rsplit(' ').next());
    received.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

fn resident_kilobytes(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("its status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its size");
    line.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect("a number")
}

#[test]
fn a_flow_keeps_its_rate_and_the_program_its_size_in_each_flood() {
    let Some(kinds) = scaled(None, Some(KINDS)) else { return };
    let Some(scene) = Scene::new(&["python3", "ping"]) else { return };
    scene.write_site(0, true);
    scene.write_site(1, false);
    let text = std::fs::read_to_string(scene.path("a.toml")).expect("the file");
    scene.write("a.toml", &text.replace(OUTER[1], OUTER_V4[1]), 0o600);
    let recorder = scene.record();
    let _b = scene.up(1);
    let a = scene.up(0);
    wait_until("an answer", || scene.pings(0, INNER[1]));
    assert_eq!(recorder.in_clear(), []);

    let alone = answered(&scene, 400);
    let before = resident_kilobytes(&a);
    for kind in kinds {
        let record = scene.path("link.pcap").display().to_string();
        let mut command = scene.namespaces[1].command("python3").expect("the namespace");
        let log = scene.path(&kind.replace(' ', "-"));
        let flood = command.args(["-c", FLOOD, kind, &record, "5000", "4"]);
        let mut flood = Process::start(flood, &log).expect("python3");
        std::thread::sleep(Duration::from_millis(500));
        let beside = answered(&scene, 400);
        let ended = flood.wait(Duration::from_secs(30));
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        assert!(ended.is_some_and(|status| status.success()) && said.contains("sent"), "{kind}: {said}");
        assert!(beside * 10 >= alone * 9, "{kind}: {beside} answers, {alone} without it");
        let after = resident_kilobytes(&a);
        assert!(after < before + 16_384, "{kind}: from {before} to {after} kB");
        println!("{kind}: {beside} of {alone} answered, {before} to {after} kB, {said}");
    }
    // They did arrive. A replay so old may be of the next two to the 32 numbers, and then it is forged.
    let drops = &scene.status(0).expect("a status")["drops"];
    for reason in ["ike_no_cookie", "no_association", "forged"] {
        assert!(drops[reason].as_u64() > Some(10_000), "{drops}");
    }
}
