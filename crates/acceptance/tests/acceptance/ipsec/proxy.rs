//! Programs of a host that go into the tunnel by a proxy, which user nobody has started.

use std::time::Duration;

use lab::command::text;
use lab::patience::wait_until;
use lab::process::Process;

use super::scene::{INNER_V4, OUTER_V4, STRONGSWAN, Scene};

const PAGE: usize = 3_000_000;

/// Serves a page, and answers each question for a name with its own address, on the second side.
pub(super) fn serve(scene: &Scene) -> [Process; 2] {
    const NAMES: &str = "import socket,sys\n\
        s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind((sys.argv[1],53))\nprint('ready',flush=True)\n\
        while True:\n q,f=s.recvfrom(512)\n a=q[-3]==1\n \
        s.sendto(q[:2]+b'\\x81\\x80'+q[4:6]+bytes([0,a,0,0,0,0])+q[12:]\
        +(b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4'+socket.inet_aton(sys.argv[1]) if a else b''),f)";
    scene.write("page", &"what is behind the tunnel\n".repeat(PAGE / 26), 0o644);
    let folder = scene.path("").display().to_string();
    let python = |name: &str, arguments: &[&str]| {
        let mut command = scene.namespaces[1].command("python3").expect("the namespace");
        Process::start(command.args(arguments), &scene.path(name)).expect("python3")
    };
    let web = python("web.log", &["-m", "http.server", "80", "--bind", INNER_V4[1], "--directory", &folder]);
    let names = python("names.log", &["-c", NAMES, INNER_V4[1]]);
    wait_until("a server of names", || said(scene, "names.log").contains("ready"));
    wait_until("a server of pages", || {
        scene.on(1, &["curl", "-s", "-o", "/dev/null", &format!("http://{}/", INNER_V4[1])]).status.success()
    });
    [web, names]
}

fn said(scene: &Scene, log: &str) -> String {
    std::fs::read_to_string(scene.path(log)).unwrap_or_default()
}

/// A socket of the proxy, in a folder of its user's.
fn socket(scene: &Scene) -> String {
    scene.path("of-nobody/proxy.sock").display().to_string()
}

pub(super) fn start(scene: &Scene, options: &[&str]) -> Process {
    if !scene.path("of-nobody").exists() {
        std::fs::create_dir(scene.path("of-nobody")).expect("a folder");
        scene.give_to_nobody("of-nobody");
    }
    let mut command = scene.as_nobody(0);
    command.args(["ipsec", "proxy"]).arg(scene.path("client.toml")).args(options);
    command.args(["--socks", "127.0.0.1:1080", "--http", "127.0.0.1:8080"]);
    command.args(["-L", &format!("8000:{}:80", INNER_V4[1]), "--socks", &socket(scene)]);
    let proxy = Process::start(&mut command, &scene.path("proxy.log")).expect("sidestep");
    wait_until("a proxy", || said(scene, "proxy.log").contains("clients come to 127.0.0.1:8000"));
    proxy
}

/// How curl goes into the tunnel.
fn ways(scene: &Scene) -> [(Vec<String>, String); 5] {
    let by_address = format!("http://{}/page", INNER_V4[1]);
    let by_name = "http://intranet.example/page".to_owned();
    let by_proxy = |proxy: &str| vec!["--proxy".to_owned(), proxy.to_owned()];
    let http = [by_proxy("http://127.0.0.1:8080"), vec!["--proxytunnel".to_owned()]].concat();
    [
        (by_proxy("socks5h://127.0.0.1:1080"), by_address.clone()),
        (by_proxy("socks5h://127.0.0.1:1080"), by_name.clone()),
        (by_proxy(&format!("socks5h://localhost{}", socket(scene))), by_name.clone()),
        (http, by_name),
        (Vec::new(), "http://127.0.0.1:8000/page".to_owned()),
    ]
}

fn curl(scene: &Scene, patience: &str, way: &[String], page: &str) -> std::process::Output {
    let way: Vec<&str> = way.iter().map(String::as_str).collect();
    scene.on(0, &[&["curl", "-sS", "-m", patience], &way[..], &[page]].concat())
}

fn fetches(scene: &Scene, way: &[String], page: &str) -> bool {
    let fetched = curl(scene, "20", way, page);
    fetched.status.success() && fetched.stdout == said(scene, "page").as_bytes()
}

/// Asks the server of names behind the tunnel by a datagram through SOCKS (RFC 1928 §7), and says what it answers.
const ASK_BY_DATAGRAM: &str = "import socket,sys\n\
    t=socket.create_connection(('127.0.0.1',1080))\nt.sendall(bytes([5,1,0]))\nassert t.recv(2)==bytes([5,0])\n\
    t.sendall(bytes([5,3,0,1,0,0,0,0,0,0]))\na=t.recv(10)\nassert a[:4]==bytes([5,0,0,1]),a\n\
    u=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\nu.settimeout(1)\n\
    h=bytes([0,0,0,1])+socket.inet_aton(sys.argv[1])+bytes([0,53])\n\
    q=bytes([0,7,1,0,0,1,0,0,0,0,0,0,3])+b'www'+bytes([7])+b'example'+bytes([0,0,1,0,1])\n\
    for i in range(10):\n u.sendto(h+q,(socket.inet_ntoa(a[4:8]),int.from_bytes(a[8:])))\n \
    try: d=u.recv(2048)\n except TimeoutError: continue\n \
    assert d[:10]==h,d\n print(socket.inet_ntoa(d[-4:]))\n break";

fn carries_and_does_not_leak(scene: &Scene, gateway: Process, options: &[&str]) {
    let _servers = serve(scene);
    let recorder = scene.record();
    let proxy = start(scene, options);
    // Clients that come before the tunnel wait for it.
    for (way, page) in ways(scene) {
        assert!(fetches(scene, &way, &page), "{way:?} {page}\n{}", said(scene, "proxy.log"));
    }
    let asked = scene.on(0, &["python3", "-c", ASK_BY_DATAGRAM, INNER_V4[1]]);
    assert_eq!(text(&asked).trim(), INNER_V4[1], "{}", String::from_utf8_lossy(&asked.stderr));
    gateway.kill();
    let [(way, page), ..] = ways(scene);
    let late = curl(scene, "3", &way, &page);
    assert!(!late.status.success(), "{}", text(&late));
    assert_eq!(recorder.in_clear(), []);
    assert_eq!(proxy.stop(Duration::from_secs(10)).code(), Some(0), "{}", said(scene, "proxy.log"));
}

#[test]
fn curl_goes_into_a_tunnel_of_ours_and_nothing_leaves_when_it_dies() {
    let Some(scene) = Scene::new(&["python3", "curl", "setpriv"]) else { return };
    scene.write_client(OUTER_V4[1]);
    let gateway = scene.up_for_client();
    carries_and_does_not_leak(&scene, gateway, &[]);
}

#[test]
fn curl_goes_through_strongswan_and_nothing_leaves_when_it_dies() {
    let needs = [&STRONGSWAN[..], &["python3", "curl", "setpriv"]].concat();
    let Some(scene) = Scene::new(&needs) else { return };
    scene.write_client(OUTER_V4[1]);
    let charon = scene.charon();
    carries_and_does_not_leak(&scene, charon, &[]);
}

#[test]
fn a_proxy_for_other_hosts_has_to_be_asked_for() {
    let Some(scene) = Scene::new(&["setpriv"]) else { return };
    scene.write_client(OUTER_V4[1]);
    let mut command = scene.as_nobody(0);
    command.args(["ipsec", "proxy"]).arg(scene.path("client.toml")).args(["--socks", "0.0.0.0:1080"]);
    let refused = command.output().expect("sidestep");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        told.contains("0.0.0.0:1080 is no loopback address") && told.contains("--allow-other-hosts"),
        "{told}"
    );
}

#[test]
fn curl_goes_through_a_moving_tunnel_and_nothing_leaves_when_it_dies() {
    let Some(scene) = Scene::new(&["python3", "curl", "setpriv", "ping", "nft"]) else { return };
    scene.write_moving();
    let refused = scene.run_as_nobody(&["true"]).output().expect("sidestep");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("`ip -6 route add local 2001:db8:a1::/64 dev lo`"), "{told}");
    scene.own_prefix();
    // As the manual has it.
    const DARK: &str = "table ip6 dark {\n chain input {\n  type filter hook input priority -300\n  \
        ip6 daddr 2001:db8:a1::/64 meta l4proto udp socket wildcard 0 accept\n  \
        ip6 daddr 2001:db8:a1::/64 drop\n }\n}\n";
    let unused = |scene: &Scene| scene.pings(1, "2001:db8:a1::5");
    assert!(unused(&scene), "the whole prefix is the host's own");
    scene.write("dark", DARK, 0o644);
    let darkened = scene.on(0, &["nft", "-f", &scene.path("dark").display().to_string()]);
    assert!(darkened.status.success(), "{}", String::from_utf8_lossy(&darkened.stderr));
    assert!(!unused(&scene), "it is not dark");
    let gateway = scene.up_moving();
    carries_and_does_not_leak(&scene, gateway, &["--dns", INNER_V4[1]]);
}

/// Comes to the proxy as a user, and says whether it waits for the tunnel, which there is none of: who is not let in does not
/// wait.
fn waits(scene: &Scene, user: &str, to: &str, patience: &str) -> bool {
    const TIMED_OUT: i32 = 28;
    let user = [format!("--reuid={user}"), format!("--regid={user}")];
    let to = if to.starts_with('/') { format!("localhost{to}") } else { format!("{to}:1080") };
    let (proxy, page) = (format!("socks5h://{to}"), format!("http://{}/", INNER_V4[1]));
    let curl = ["--clear-groups", "curl", "-sS", "-m", patience, "--proxy", &proxy, &page];
    let came = scene.on(0, &[&["setpriv", &user[0], &user[1]][..], &curl].concat());
    came.status.code() == Some(TIMED_OUT)
}

#[test]
fn a_user_lets_nobody_else_in_unless_that_is_said() {
    let Some(scene) = Scene::new(&["curl", "setpriv"]) else { return };
    scene.write_client(OUTER_V4[1]);
    let socket = socket(&scene);
    let proxy = start(&scene, &["--socks", "[::1]:1080"]);
    let (nobody, other, root) = ("65534", "2", "0");
    for (user, is_let_in, patience) in [(nobody, true, "0.5"), (other, false, "20"), (root, true, "0.5")] {
        for to in ["127.0.0.1", "[::1]", &socket] {
            assert_eq!(waits(&scene, user, to, patience), is_let_in, "user {user} at {to}");
        }
    }
    assert!(
        said(&scene, "proxy.log").contains("of user 2: it is another user"),
        "{}",
        said(&scene, "proxy.log")
    );
    assert_eq!(proxy.stop(Duration::from_secs(10)).code(), Some(0));
    assert!(!std::path::Path::new(&socket).exists());
    let open = start(&scene, &["--any-user"]);
    wait_until("all to be let in", || waits(&scene, other, "127.0.0.1", "0.5"));
    drop(open);
}

#[test]
fn a_thousand_clients_go_through_at_once() {
    const ECHO: &str = "import selectors,socket,sys\n\
        s=socket.create_server((sys.argv[1],7),backlog=1024)\nk=selectors.DefaultSelector()\n\
        k.register(s,1)\nprint('ready',flush=True)\n\
        while True:\n for e,_ in k.select():\n  if e.fileobj is s: k.register(s.accept()[0],1)\n  else:\n   \
        b=e.fileobj.recv(4096)\n   e.fileobj.sendall(b) if b else (k.unregister(e.fileobj),e.fileobj.close())";
    const COME: &str = "import resource,socket,sys,time\nresource.setrlimit(resource.RLIMIT_NOFILE,(4096,4096))\n\
        all=[]\nfor i in range(int(sys.argv[2])):\n s=socket.create_connection(('127.0.0.1',1080))\n \
        s.settimeout(60)\n s.sendall(bytes([5,1,0]))\n all.append(s)\n\
        r=bytes([5,1,0,1])+socket.inet_aton(sys.argv[1])+bytes([0,7])\n\
        for s in all: assert s.recv(2)==bytes([5,0]); s.sendall(r)\n\
        for s in all: assert s.recv(10)[1]==0\n\
        for i,s in enumerate(all): s.sendall(b'%06d'%i)\n\
        for i,s in enumerate(all): assert s.recv(6)==b'%06d'%i\n\
        print('all',flush=True)\ntime.sleep(600)";
    let Some(scene) = Scene::new(&["python3", "setpriv"]) else { return };
    scene.write_moving();
    scene.own_prefix();
    let _gateway = scene.up_moving();
    let python = |side: usize, script: &str, words: &[&str], log: &str| {
        let mut command = scene.namespaces[side].command("python3").expect("the namespace");
        command.args(["-c", script]).args(words);
        Process::start(&mut command, &scene.path(log)).expect("python3")
    };
    let _echo = python(1, ECHO, &[INNER_V4[1]], "echo.log");
    wait_until("an echo", || said(&scene, "echo.log").contains("ready"));
    let proxy = start(&scene, &[]);
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.id())).expect("its status");
        let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("its memory");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number")
    };
    let count: u64 = lab::scale::scaled(100, 1000);
    let one = python(0, COME, &[INNER_V4[1], "1"], "one.log");
    wait_until("a client", || said(&scene, "one.log").contains("all"));
    let before = memory();
    let clients = python(0, COME, &[INNER_V4[1], &count.to_string()], "clients.log");
    wait_until("clients", || said(&scene, "clients.log").contains("all"));
    let each = memory().saturating_sub(before) / count;
    println!("{count} clients: {before} KB before, {each} KB each");
    assert!(each <= 64, "{each} KB for a client that says little");
    drop((one, clients));
}
