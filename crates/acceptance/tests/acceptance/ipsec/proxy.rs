//! Programs of a host that go into the tunnel by a proxy, which user nobody has started.

use std::time::Duration;

use lab::command::text;
use lab::patience::wait_until;
use lab::process::Process;

use super::scene::{GIVEN, INNER_V4, OUTER_V4, STRONGSWAN, Scene};

const PAGE: usize = 3_000_000;

/// Serves a page, and answers each question for a name with its own address, on the second side.
fn serve(scene: &Scene) -> [Process; 2] {
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

fn start(scene: &Scene) -> Process {
    let mut command = scene.as_nobody(0);
    command.args(["ipsec", "proxy"]).arg(scene.path("client.toml"));
    command.args(["--socks", "127.0.0.1:1080", "--http", "127.0.0.1:8080"]);
    command.args(["-L", &format!("8000:{}:80", INNER_V4[1])]);
    let proxy = Process::start(&mut command, &scene.path("proxy.log")).expect("sidestep");
    wait_until("a proxy", || said(scene, "proxy.log").contains("clients come to 127.0.0.1:8000"));
    proxy
}

/// How curl goes into the tunnel.
fn ways() -> [(&'static [&'static str], String); 4] {
    let by_address = format!("http://{}/page", INNER_V4[1]);
    let by_name = "http://intranet.example/page".to_owned();
    [
        (&["--proxy", "socks5h://127.0.0.1:1080"], by_address.clone()),
        (&["--proxy", "socks5h://127.0.0.1:1080"], by_name.clone()),
        (&["--proxytunnel", "--proxy", "http://127.0.0.1:8080"], by_name),
        (&[], "http://127.0.0.1:8000/page".to_owned()),
    ]
}

fn fetches(scene: &Scene, way: &[&str], page: &str) -> bool {
    let words = [&["curl", "-sS", "-m", "20"], way, &[page]].concat();
    let fetched = scene.on(0, &words);
    fetched.status.success() && fetched.stdout == said(scene, "page").as_bytes()
}

fn carries_and_does_not_leak(scene: &Scene, gateway: Process) {
    let _servers = serve(scene);
    let recorder = scene.record();
    let proxy = start(scene);
    // Clients that come before the tunnel wait for it.
    for (way, page) in ways() {
        assert!(fetches(scene, way, &page), "{way:?} {page}\n{}", said(scene, "proxy.log"));
    }
    gateway.kill();
    let [(way, page), ..] = ways();
    let late = scene.on(0, &[&["curl", "-sS", "-m", "3"], way, &[page.as_str()]].concat());
    assert!(!late.status.success(), "{}", text(&late));
    assert_eq!(recorder.in_clear(), []);
    assert_eq!(proxy.stop(Duration::from_secs(10)).code(), Some(0), "{}", said(scene, "proxy.log"));
}

#[test]
fn curl_goes_into_a_tunnel_of_ours_and_nothing_leaves_when_it_dies() {
    let Some(scene) = Scene::new(&["python3", "curl", "setpriv"]) else { return };
    scene.write_client(OUTER_V4[1]);
    let gateway = format!(
        "[ipsec]\nidentity = \"b.example\"\ninterface = \"tunnel-b\"\naddresses = [\"{address}/24\"]\n\n\
         [[remote]]\nname = \"a\"\nidentity = \"a.example\"\nshared_key_file = \"key\"\nassign = [\"{GIVEN}\"]\n\
         dns = [\"{address}\"]\n\n[[remote.child]]\nlocal = [\"0.0.0.0/0\"]\n",
        address = INNER_V4[1]
    );
    scene.write("b.toml", &gateway, 0o600);
    let gateway = scene.up(1);
    carries_and_does_not_leak(&scene, gateway);
}

#[test]
fn curl_goes_through_strongswan_and_nothing_leaves_when_it_dies() {
    let needs = [&STRONGSWAN[..], &["python3", "curl", "setpriv"]].concat();
    let Some(scene) = Scene::new(&needs) else { return };
    scene.write_client(OUTER_V4[1]);
    let charon = scene.charon();
    carries_and_does_not_leak(&scene, charon);
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
