//! TCP and UDP with the kernel: files both ways, many connections, levels of security.

use std::process::{Command, Stdio};

use lab::patience::wait_until;
use lab::process::Process;
use lab::scale::scaled;

use super::{KERNEL, OURS, OURS_V4, PATIENCE, StackScene, are_equal, output, succeeds};

const FAULTS: [&str; 6] = ["--loss", "1", "--reorder", "2", "--reorder-by", "2ms"];

/// A server of the kernel's, for the scene's folder.
fn server(scene: &StackScene) -> Process {
    let script = "import http.server, sys\n\
        class Handler(http.server.SimpleHTTPRequestHandler):\n    \
            def do_PUT(self):\n        \
                left = int(self.headers['Content-Length'])\n        \
                with open(self.translate_path(self.path), 'wb') as file:\n            \
                    while left:\n                \
                        data = self.rfile.read(min(left, 1 << 20))\n                \
                        if not data: break\n                \
                        left -= len(data); file.write(data)\n        \
                self.send_response(201); self.send_header('Content-Length', '0'); self.end_headers()\n\
        class Server(http.server.ThreadingHTTPServer):\n    \
            address_family = 10\n\
        Server(('::', 8000), lambda *all: Handler(*all, directory=sys.argv[1])).serve_forever()\n";
    let path = scene.write("server.py", script.as_bytes());
    let mut python = scene.kernel().command("python3").expect("the namespace");
    python.arg(path).arg(scene.folder());
    let server = Process::start(&mut python, &scene.folder().join("python.log")).expect("a server");
    wait_until("a server", || scene.must(&["ss", "-ltn"]).contains(":8000"));
    server
}

fn curl(scene: &StackScene, words: &[&str]) -> Command {
    let mut curl = scene.kernel().command("curl").expect("the namespace");
    curl.args(["-sS", "-f", "-g", "--max-time", "1200"]).args(words);
    curl
}

/// How much is sent each way.
fn size() -> u64 {
    scaled(3_000_000, 1_000_000_000)
}

#[test]
fn our_client_fetches_and_sends_a_file_across_loss_and_reordering() {
    let Some(scene) = StackScene::new(&["python3", "ss"]) else { return };
    let server = server(&scene);
    let file = scene.random_file("file", size());
    let path = file.display().to_string();
    let (got, url) = (scene.folder().join("got").display().to_string(), format!("http://[{KERNEL}]:8000"));
    succeeds(&mut scene.stack("http", &[&FAULTS[..], &["-o", &got, &format!("{url}/file")]].concat()));
    assert!(are_equal(&file, got.as_ref()), "what was fetched is another file");
    std::fs::remove_file(&got).expect("removed");
    succeeds(&mut scene.stack("http", &[&FAULTS[..], &["--put", &path, &format!("{url}/got")]].concat()));
    assert!(are_equal(&file, got.as_ref()), "what was sent is another file");
    server.stop(PATIENCE);
}

#[test]
fn our_server_gives_and_takes_a_file_across_loss_and_reordering() {
    let Some(scene) = StackScene::new(&["curl"]) else { return };
    let file = scene.random_file("file", size());
    let path = file.display().to_string();
    let (got, folder) =
        (scene.folder().join("got").display().to_string(), scene.folder().display().to_string());
    let host = scene.start(scene.stack("http", &[&FAULTS[..], &["--serve", &folder, "--writable"]].concat()));
    succeeds(&mut curl(&scene, &["-o", &got, &format!("http://[{OURS}]/file")]));
    assert!(are_equal(&file, got.as_ref()), "what was fetched is another file");
    std::fs::remove_file(&got).expect("removed");
    succeeds(&mut curl(&scene, &["-T", &path, &format!("http://{OURS_V4}/got")]));
    assert!(are_equal(&file, got.as_ref()), "what was sent is another file");
    let missing = output(&mut curl(&scene, &[&format!("http://[{OURS}]/../etc/passwd")]));
    assert!(!missing.status.success());
    host.stop(PATIENCE);
}

#[test]
fn our_server_serves_many_connections() {
    let Some(scene) = StackScene::new(&["python3"]) else { return };
    let folder = scene.folder().display().to_string();
    scene.write("file", b"a few octets");
    let host = scene.start(scene.stack("http", &["--serve", &folder]));
    let (all, at_once) = scaled((300, 100), (10_000, 1_000));
    // All of a round are open before the first one asks.
    let client = format!(
        "import resource, socket\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n\
         for _ in range({all} // {at_once}):\n    \
             sockets = [socket.create_connection(('{OURS}', 80), 60) for _ in range({at_once})]\n    \
             for s in sockets: s.sendall(b'GET /file HTTP/1.1\\r\\n\\r\\n')\n    \
             for s in sockets:\n        \
                 data = b''\n        \
                 while piece := s.recv(4096): data += piece\n        \
                 assert data.endswith(b'a few octets'), data\n        \
                 s.close()\n"
    );
    scene.must(&["python3", "-c", &client]);
    host.stop(PATIENCE);
}

#[test]
fn our_server_serves_others_beside_a_client_with_a_thousand_unfinished_requests() {
    let Some(scene) = StackScene::new(&["curl", "python3"]) else { return };
    let folder = scene.folder().display().to_string();
    scene.write("file", b"a few octets");
    let host = scene.start(scene.stack("http", &["--serve", &folder]));
    let client = format!(
        "import resource, socket, sys\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\n\
         sockets = [socket.create_connection(('{OURS}', 80), 60) for _ in range(1100)]\n\
         for s in sockets:\n    \
             try: s.sendall(b'GET /file HTTP/1.1\\r\\nA: ')\n    \
             except OSError: pass\n\
         print('ready', flush=True)\n\
         sys.stdin.read()\n"
    );
    let mut python = scene.kernel().command("python3").expect("the namespace");
    let python = python.args(["-c", &client]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("a client");
    let mut said = String::new();
    let stdout = python.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut said).expect("a line");
    assert_eq!(said, "ready\n");
    let status = std::fs::read_to_string(format!("/proc/{}/status", host.id())).expect("a process");
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).expect("a number");
    assert!(threads.trim().parse::<u32>().expect("a number") < 50, "{threads}");
    // Of the same network, and of another version of IP.
    for address in [format!("[{OURS}]"), OURS_V4.to_owned()] {
        let got = succeeds(&mut curl(&scene, &[&format!("http://{address}/file")]));
        assert_eq!(got, "a few octets");
    }
    drop(python.stdin.take());
    python.wait().expect("it ends");
    host.stop(PATIENCE);
}

/// Ours and the kernel's `nc`-like server in Python, which repeats what it gets, for TCP and UDP.
fn echo(scene: &StackScene, kind: &str) -> Process {
    let script = if kind == "udp" {
        "import socket\ns = socket.socket(10, 2)\ns.bind(('::', 7))\n\
         while True:\n    data, who = s.recvfrom(65535)\n    s.sendto(data, who)\n"
    } else {
        "import socket\ns = socket.create_server(('::', 7), family=10)\n\
         while True:\n    c, who = s.accept()\n    \
         while data := c.recv(65535): c.sendall(data)\n    c.close()\n"
    };
    let path = scene.write("echo.py", script.as_bytes());
    let mut python = scene.kernel().command("python3").expect("the namespace");
    let echo = Process::start(python.arg(path), &scene.folder().join("echo.log")).expect("an echo");
    wait_until("an echo", || scene.must(&["ss", "-ltun"]).contains(":7 "));
    echo
}

/// What `nc` says to a line.
fn line(scene: &StackScene, options: &[&str]) -> (bool, String) {
    let mut nc = scene.stack("nc", options);
    let mut nc = nc.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("nc");
    let mut stdin = nc.stdin.take().expect("a pipe");
    // One that fails at once does not read it.
    let _ = std::io::Write::write_all(&mut stdin, b"a line\n");
    drop(stdin);
    let output = nc.wait_with_output().expect("nc");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn lines_come_back_from_the_kernel_by_tcp_and_udp() {
    let Some(scene) = StackScene::new(&["python3", "ss"]) else { return };
    for (kind, options) in [("tcp", &[][..]), ("udp", &["-u"][..])] {
        let server = echo(&scene, kind);
        assert_eq!(line(&scene, &[options, &[KERNEL, "7"]].concat()), (true, "a line\n".into()), "{kind}");
        server.kill();
    }
    let (good, said) = line(&scene, &[KERNEL, "9"]);
    assert!(!good && said.contains("refused"), "{said}");
}

#[test]
fn security_that_is_not_there_is_an_error_and_nothing_leaves() {
    let Some(scene) = StackScene::new(&["python3", "ss"]) else { return };
    let record = scene.folder().join("record.pcap").display().to_string();
    for (kind, options) in [("tcp", &[][..]), ("udp", &["-u"][..])] {
        let server = echo(&scene, kind);
        let asked = ["--transport-encryption", "2", "--record", &record, KERNEL, "7"];
        let (good, said) = line(&scene, &[options, &asked].concat());
        assert!(!good && said.contains("EIPSEC"), "{kind} {said}");
        let capture = std::fs::read(&record).expect("a capture");
        assert!(!capture.windows(6).any(|octets| octets == b"a line"), "{kind}: it left in clear");
        server.kill();
    }
}

#[test]
fn two_of_ours_speak_with_security_by_setkey() {
    let Some(scene) = StackScene::new(&[]) else { return };
    scene.must(&["ip", "tuntap", "add", "dev", "tap1", "mode", "tap"]);
    scene.must(&["ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"]);
    for device in ["tap0", "tap1"] {
        scene.must(&["ip", "link", "set", "dev", device, "master", "br0"]);
        scene.must(&["ip", "link", "set", "dev", device, "up"]);
    }
    scene.must(&["ip", "link", "set", "dev", "br0", "up"]);
    let keys = "add 2001:db8:1::2 2001:db8:1::3 esp 0x1001 -m transport -E aes-cbc \
                0x000102030405060708090a0b0c0d0e0f -A hmac-sha256 \
                0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f;\n\
                add 2001:db8:1::3 2001:db8:1::2 esp 0x1002 -m transport -E aes-cbc \
                0x100102030405060708090a0b0c0d0e0f -A hmac-sha256 \
                0x100102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f;\n";
    let keys = scene.write("keys.conf", keys.as_bytes()).display().to_string();
    let record = scene.folder().join("record.pcap").display().to_string();
    let mut listening = scene.kernel().command(std::env::var_os("SIDESTEP_BIN").expect("it")).expect("it");
    listening.args(["stack", "nc", "--dev", "tap1", "--address", "2001:db8:1::3/64", "--setkey", &keys]);
    listening.args(["--transport-encryption", "2", "--listen", "7"]);
    let log = scene.folder().join("nc.log");
    let mut listening = Process::start(&mut listening, &log).expect("nc");
    let options =
        ["--setkey", &keys, "--transport-encryption", "2", "--record", &record, "2001:db8:1::3", "7"];
    // Until the other one listens.
    wait_until("a line that arrives", || line(&scene, &options).0);
    assert!(listening.wait(PATIENCE).expect("it ends").success());
    assert!(std::fs::read_to_string(&log).expect("a log").contains("a line"), "the line did not arrive");
    let capture = std::fs::read(&record).expect("a capture");
    assert!(!capture.windows(6).any(|octets| octets == b"a line"), "it left in clear");
}
