//! What somebody may try who can reach the page, and what it does when a daemon goes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use control::tunnel_status::example;
use serde_json::{Value, json};
use web::{Error, Options, Page};

mod daemon;
use daemon::Daemon;

/// How long something may take that must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// A name as somebody could choose it who wants it to become a part of the page.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&\u{202e}";

/// A tunnel that says each time that it has carried more.
fn tunnel(socket: &Path) -> Daemon {
    let carried = AtomicU64::new(0);
    let answer = move |request: &Value| match request["command"].as_str() {
        Some("show") => {
            let mut status = example();
            status.peers[1].name = HOSTILE.to_owned();
            status.peers[0].rx_bytes += carried.fetch_add(1000, Ordering::Relaxed);
            Ok(serde_json::to_value(status).unwrap())
        }
        Some("events") => Ok(json!({ "run": 1, "events": [] })),
        other => Err(format!("{other:?}")),
    };
    Daemon::start(socket, answer).unwrap()
}

/// A page, and what it is about.
struct Scene {
    folder: tempfile::TempDir,
    address: SocketAddr,
    cookie: String,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(None)
    }

    fn with(tls: Option<(PathBuf, PathBuf)>) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let page = Page::bind(options(folder.path(), tls)).unwrap();
        let (address, url) = (page.address(), page.url_with_token());
        std::thread::spawn(move || drop(page.serve()));
        let mut scene = Scene { folder, address, cookie: String::new() };
        let login = url.split_once(&address.to_string()).unwrap().1;
        if url.starts_with("http:") {
            let answer = scene.get(login);
            let cookie = field(&answer, "set-cookie").expect("a cookie");
            scene.cookie = cookie.split(';').next().unwrap().to_owned();
        }
        scene
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/mt6d0.sock")
    }

    /// The answer to octets.
    fn send(&self, octets: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may be refused before it is read.
        let _ = stream.write_all(octets);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn request(&self, path: &str, fields: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{fields}\r\n").as_bytes())
    }

    /// Without the token.
    fn get(&self, path: &str) -> String {
        self.request(path, &format!("Host: {}\r\n", self.address))
    }

    /// With it.
    fn look(&self, path: &str) -> String {
        self.request(path, &format!("Host: {}\r\nCookie: {}\r\n", self.address, self.cookie))
    }

    /// What the feed says, until it has these words.
    fn follow(&self, words: &str) -> String {
        self.follow_until(|said| said.contains(words))
    }

    /// What the feed says, until it is this.
    fn follow_until(&self, is: impl Fn(&str) -> bool) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (host, cookie) = (self.address, &self.cookie);
        write!(stream, "GET /api/feed HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n").unwrap();
        let (mut said, mut buffer, begun) = (String::new(), [0; 4096], Instant::now());
        while !is(&said) {
            assert!(begun.elapsed() < PATIENCE, "it does not come: {said}");
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "{said}");
            said.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        said
    }
}

fn options(folder: &Path, tls: Option<(PathBuf, PathBuf)>) -> Options {
    let (sockets, state) = (folder.join("run"), folder.join("state"));
    std::fs::create_dir_all(&sockets).unwrap();
    Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        tls,
        names: Vec::new(),
        sockets,
        state,
        history: 1 << 20,
        fleet: None,
    }
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = answer.lines().take_while(|line| !line.is_empty());
    lines.find_map(|line| {
        line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    })
}

#[test]
fn without_the_token_nothing_is_shown() {
    let scene = Scene::new();
    let _daemon = tunnel(&scene.socket());
    scene.follow("site-b");
    let ways = [
        "/",
        "/app.js",
        "/api/feed",
        "/api/peer?tunnel=mt6d0&peer=site-b",
        "/api/history?tunnel=mt6d0",
        "/x",
        "/login",
        "/login?token=",
        "/login?token=0",
    ];
    for path in ways {
        let answer = scene.get(path);
        assert_eq!(status(&answer), 401, "{path}: {answer}");
        assert!(answer.contains("<form action=\"/login\"") && !answer.contains("site-b"), "{path}");
        assert!(field(&answer, "set-cookie").is_none(), "{path}");
    }
    for cookie in
        ["", "sidestep-1=0", &scene.cookie[..scene.cookie.len() - 1], &scene.cookie.replace('=', "=0")]
    {
        let answer = scene.request("/", &format!("Host: {}\r\nCookie: {cookie}\r\n", scene.address));
        assert_eq!(status(&answer), 401, "{cookie}");
    }
    assert_eq!(status(&scene.look("/")), 200);
    assert!(scene.look("/api/peer?tunnel=mt6d0&peer=site-b").contains("\"rtt_ms\":1.25"));
}

#[test]
fn another_name_gets_nothing_even_with_the_token() {
    let scene = Scene::new();
    for host in ["Host: evil.example\r\n", "Host: 127.0.0.1.evil.example\r\n", "Host: \r\n", ""] {
        let answer = scene.request("/", &format!("{host}Cookie: {}\r\n", scene.cookie));
        assert!([400, 421].contains(&status(&answer)), "{host}: {answer}");
        assert!(!answer.contains("<main"), "{host}");
    }
    let port = scene.address.port();
    for host in [format!("localhost:{port}"), "localhost:9".to_owned(), format!("[::1]:{port}")] {
        let answer = scene.request("/", &format!("Host: {host}\r\nCookie: {}\r\n", scene.cookie));
        assert_eq!(status(&answer), 200, "{host}");
    }
}

#[test]
fn pages_of_other_sites_get_nothing_even_with_the_cookie() {
    let scene = Scene::new();
    let with = |fields: &str| {
        let ours = format!("Host: {}\r\nCookie: {}\r\n{fields}", scene.address, scene.cookie);
        status(&scene.request("/api/peer?tunnel=a&peer=b", &ours))
    };
    for from_elsewhere in [
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
    ] {
        assert_eq!(with(from_elsewhere), 403, "{from_elsewhere}");
    }
    assert_eq!(with(&format!("Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n", scene.address)), 404);
    let preflight = format!("OPTIONS / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", scene.address);
    let answer = scene.send(preflight.as_bytes());
    assert_eq!(status(&answer), 405);
    assert!(field(&answer, "access-control-allow-origin").is_none());
}

#[test]
fn it_only_shows() {
    let scene = Scene::new();
    for method in ["POST", "PUT", "DELETE", "PATCH", "HEAD", "TRACE", "CONNECT"] {
        let (host, cookie) = (scene.address, &scene.cookie);
        let request =
            format!("{method} / HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
        let answer = scene.send(request.as_bytes());
        assert!([400, 405].contains(&status(&answer)), "{method}: {answer}");
    }
}

#[test]
fn every_answer_says_what_a_browser_may_do_with_it() {
    let scene = Scene::new();
    for path in ["/", "/none", "/style.css", "/api/peer", "/login"] {
        for answer in [scene.get(path), scene.look(path)] {
            let policy = field(&answer, "content-security-policy").unwrap();
            assert!(
                policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"),
                "{path}: {policy}"
            );
            assert_eq!(field(&answer, "x-content-type-options"), Some("nosniff"), "{path}");
            assert_eq!(field(&answer, "x-frame-options"), Some("DENY"), "{path}");
            assert_eq!(field(&answer, "cache-control"), Some("no-store"), "{path}");
        }
    }
}

#[test]
fn no_path_leads_out_of_the_page() {
    let scene = Scene::new();
    let files = scene.folder.path().join("state/token");
    let ways = [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/vendor/../style.css",
        "/style.css%00",
        "/STYLE.CSS",
        files.to_str().unwrap(),
    ];
    for path in ways {
        let answer = scene.look(path);
        assert!([400, 404].contains(&status(&answer)), "{path}: {answer}");
    }
}

/// Slow and idle clients, as many as there are places, hold up the others for no longer than a request may take.
#[test]
fn slow_clients_do_not_keep_others_out() {
    let scene = Scene::new();
    let mut slow: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = TcpStream::connect(scene.address).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ").unwrap();
            }
            stream
        })
        .collect();
    let begun = Instant::now();
    assert_eq!(status(&scene.look("/")), 200);
    assert!(begun.elapsed() < PATIENCE);
    // One that goes on, an octet at a time, gains nothing by it.
    let stream = &mut slow[0];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let is_ended = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        stream.write_all(b"x").is_err()
    });
    assert!(is_ended);
}

/// Those who have not shown the token get one answer, and their place is another's. Whoever asks on and on for what all may have
/// would keep it otherwise.
#[test]
fn strangers_keep_no_place() {
    let scene = Scene::new();
    for path in ["/", "/style.css", "/none", "/login?token=0"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", scene.address).repeat(3);
        let answers = scene.send(request.as_bytes());
        assert_eq!((answers.matches("HTTP/1.1 ").count(), field(&answers, "connection")), (1, Some("close")));
    }
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n", scene.address, scene.cookie);
    let answers = scene.send(format!("{request}\r\n{request}Connection: close\r\n\r\n").as_bytes());
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2);
}

#[test]
fn a_head_of_ten_megabytes_is_refused_and_the_page_goes_on() {
    let scene = Scene::new();
    let long =
        format!("GET / HTTP/1.1\r\nHost: {}\r\nX-Long: {}\r\n\r\n", scene.address, "x".repeat(10 << 20));
    let answer = scene.send(long.as_bytes());
    assert!(answer.is_empty() || status(&answer) == 431, "{answer}");
    let many: String = (0..5000).map(|number| format!("X-{number}: y\r\n")).collect();
    let answer = scene.send(format!("GET / HTTP/1.1\r\nHost: {}\r\n{many}\r\n", scene.address).as_bytes());
    assert!(answer.is_empty() || status(&answer) == 431, "{answer}");
    let answer = scene.look(&format!("/api/peer?peer={}", "y".repeat(12_000)));
    assert_eq!(status(&answer), 404);
    for nonsense in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(scene.address).unwrap();
        stream.write_all(nonsense).unwrap();
    }
    assert_eq!(status(&scene.look("/")), 200);
}

/// It is data, in a document that no browser takes for a page; `page.mjs` looks at what a browser makes of it.
#[test]
fn a_name_that_is_markup_is_data() {
    let scene = Scene::new();
    let _daemon = tunnel(&scene.socket());
    scene.follow("onerror");
    let query: String = form_urlencoded::Serializer::new(String::new())
        .append_pair("tunnel", "mt6d0")
        .append_pair("peer", HOSTILE)
        .finish();
    let answer = scene.look(&format!("/api/peer?{query}"));
    assert_eq!((status(&answer), field(&answer, "content-type")), (200, Some("application/json")));
}

#[test]
fn a_daemon_that_dies_is_told_and_one_that_comes_back_too() {
    let scene = Scene::new();
    scene.follow("event: snapshot");
    let daemon = tunnel(&scene.socket());
    scene.follow("\"state\":\"established\"");
    drop(daemon);
    // It keeps what was known, and says since when it is not known to be so.
    let said = scene.follow("mt6d0 is not running");
    assert!(said.contains("site-b") && said.contains("since_ms"), "{said}");
    // One that was killed leaves its socket.
    drop(UnixListener::bind(scene.socket()).unwrap());
    scene.follow("it was killed");
    let _daemon = tunnel(&scene.socket());
    let begun = Instant::now();
    while scene.follow("event: patch").contains("it was killed") {
        assert!(begun.elapsed() < PATIENCE);
    }
}

#[test]
fn a_script_host_that_is_gone_and_a_tunnel_of_another_kind_are_no_faults() {
    let scene = Scene::new();
    let run = scene.folder.path().join("run");
    let scripts = |request: &Value| match request["command"].as_str() {
        Some("list") => Ok(json!({ "scripts": [] })),
        _ => Ok(json!({ "run": 1, "events": [] })),
    };
    let host = Daemon::start(&run.join("scripts-1.sock"), scripts).unwrap();
    let _ipsec = Daemon::start(&run.join("office.sock"), |_| Ok(json!({ "remotes": [] }))).unwrap();
    scene.follow("\"scripts\":[]");
    drop(host);
    let begun = Instant::now();
    while scene.follow("event: patch").contains("\"scripts-1\":{") {
        assert!(begun.elapsed() < PATIENCE);
    }
    let said = scene.follow("event: patch");
    assert!(!said.contains("\"fault\"") && !said.contains("office"), "{said}");
}

#[test]
fn those_that_are_gone_make_room_for_others() {
    let scene = Scene::new();
    let daemons: Vec<_> =
        (0..64).map(|number| tunnel(&scene.folder.path().join(format!("run/t{number}.sock")))).collect();
    scene.follow_until(|said| (0..64).all(|number| said.contains(&format!("\"t{number}\":{{\"version\""))));
    drop(daemons);
    let _daemon = tunnel(&scene.socket());
    scene.follow("\"mt6d0\":{\"version\"");
}

/// What is asked on behalf of a browser goes to the socket that it is for, and its refusals are data.
#[test]
fn a_gateway_explains_and_a_script_host_shows_a_source() {
    let scene = Scene::new();
    let gateway = |request: &Value| match request["command"].as_str() {
        Some("explain") => Err(format!("{} is no packet <b>", request["packet"])),
        Some("show") => Ok(json!({ "uplinks": [] })),
        _ => Ok(json!({ "run": 1, "events": [] })),
    };
    let scripts = |request: &Value| match request["command"].as_str() {
        Some("source") if request["id"] == 3 => Ok(json!({ "file": "/a.lua", "text": "return 1" })),
        Some("list") => Ok(json!({ "scripts": [] })),
        Some("events") => Ok(json!({ "run": 1, "events": [] })),
        other => Err(format!("{other:?}")),
    };
    let run = scene.folder.path().join("run");
    let _daemons = [
        Daemon::start(&run.join("gateway-1.sock"), gateway).unwrap(),
        Daemon::start(&run.join("scripts-1.sock"), scripts).unwrap(),
    ];
    scene.follow("\"scripts\":[]");
    let said = scene.look("/api/explain?gateway=gateway-1&packet=tcp+from");
    assert!(said.ends_with("{\"error\":\"\\\"tcp from\\\" is no packet <b>\"}"), "{said}");
    assert!(scene.look("/api/script?host=scripts-1&id=3").ends_with("\"text\":\"return 1\"}"));
    for nobody in [
        "/api/explain?gateway=scripts-1&packet=x",
        "/api/explain?gateway=../x&packet=x",
        "/api/script?host=gateway-1&id=3",
        "/api/script",
    ] {
        assert!(scene.look(nobody).ends_with("{\"error\":\"there is none of this name\"}"), "{nobody}");
    }
}

/// A socket that accepts and never answers, and one that answers with nonsense.
#[test]
fn a_daemon_that_hangs_does_not_hold_up_what_is_said_of_others() {
    let scene = Scene::new();
    let _stuck = UnixListener::bind(scene.folder.path().join("run/stuck.sock")).unwrap();
    let nonsense = scene.folder.path().join("run/nonsense.sock");
    let _nonsense = Daemon::start(&nonsense, |_| Ok(json!({ "peers": 5 }))).unwrap();
    let _daemon = tunnel(&scene.socket());
    scene.follow("\"state\":\"established\"");
    scene.follow("cannot understand the answer");
}

#[test]
fn the_page_is_not_where_a_tunnel_or_its_peer_hops() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), Some(certificate(folder.path())));
    let _daemon = tunnel(&options.sockets.join("mt6d0.sock"));
    for hops in ["[2001:db8:a1::5]:0", "[2001:db8:b1::5]:0"] {
        options.listen = hops.parse().unwrap();
        let refused = Page::bind(options.clone()).err().unwrap();
        assert!(matches!(refused, Error::Hopping { .. }), "{refused}");
    }
}

/// A certificate and its key.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (certificate, key)
}

#[test]
fn tls_is_1_3_and_in_the_clear_nothing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(folder.path());
    let scene = Scene::with(Some((certificate.clone(), key.clone())));
    assert!(!scene.get("/").contains("HTTP/1.1 "));
    let client = |version: &str| {
        let request = format!(
            "printf 'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client -quiet -no_ign_eof -ign_eof {version} -CAfile {} -verify_return_error -connect {}",
            certificate.display(),
            scene.address
        );
        let output = Command::new("sh").args(["-c", &request]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(status(&client("-tls1_3")), 401);
    assert_eq!(status(&client("-tls1_2")), 0);

    for (certificate, key) in [(&key, &certificate), (&certificate, &certificate)] {
        let refused =
            Page::bind(options(folder.path(), Some((certificate.clone(), key.clone())))).err().unwrap();
        assert!(matches!(refused, Error::Certificate { .. }), "{refused}");
    }
}
