//! The fleet's part of the page: who may ask it for what, and that nothing comes into force by it that is not signed.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use controller::Role;
use serde_json::{Value, json};
use web::{Options, Page};

mod controllers;
#[path = "../../controller/tests/provider/mod.rs"]
mod provider;
use controllers::Wanted;

const PATIENCE: Duration = Duration::from_secs(60);

/// A page about a fleet.
struct Scene {
    _folder: tempfile::TempDir,
    address: SocketAddr,
    cookie: String,
}

impl Scene {
    fn new(role: Role) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let fleet =
            controllers::start(folder.path(), Wanted { role, more: 0, provider: None, hostile: None })
                .unwrap();
        let scene = Scene::with(folder, Some(fleet));
        // Controllers of a busy machine may not answer in time at first.
        let begin = Instant::now();
        while scene.ask("/api/fleet")["document"].is_null() {
            assert!(begin.elapsed() < PATIENCE, "{}", scene.ask("/api/fleet"));
        }
        scene
    }

    fn with(folder: tempfile::TempDir, fleet: Option<PathBuf>) -> Scene {
        Scene::at("127.0.0.1:0", folder, fleet)
    }

    fn at(listen: &str, folder: tempfile::TempDir, fleet: Option<PathBuf>) -> Scene {
        let (sockets, state) = (folder.path().join("run"), folder.path().join("state"));
        std::fs::create_dir_all(&sockets).unwrap();
        let listen = listen.parse().unwrap();
        let options =
            Options { listen, tls: None, names: Vec::new(), sockets, state, history: 1 << 20, fleet };
        let page = Page::bind(options).unwrap();
        let (address, url) = (page.address(), page.url_with_token());
        std::thread::spawn(move || drop(page.serve()));
        let mut scene = Scene { _folder: folder, address, cookie: String::new() };
        let login = url.split_once(&address.to_string()).unwrap().1;
        let answer = scene.send("GET", login, "", b"");
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
        scene.cookie = cookie.split(';').next().unwrap().to_owned();
        scene
    }

    /// The answer to a request, whatever it is.
    fn send(&self, method: &str, path: &str, fields: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (host, cookie, length) = (self.address, &self.cookie, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // It may be refused before it is read.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn ask(&self, path: &str) -> Value {
        document(&self.send("GET", path, "", b""))
    }

    fn post(&self, path: &str, body: &str) -> Value {
        let ours = format!("Origin: http://{}\r\nContent-Type: application/json\r\n", self.address);
        document(&self.send("POST", path, &ours, body.as_bytes()))
    }

    /// A draft of something, as text.
    fn draft(&self, wanted: &Value) -> (Value, String) {
        let answer = self.post("/api/fleet/draft", &wanted.to_string());
        let text = answer["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (answer, text)
    }
}

fn document(answer: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {head}: {body}"))
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("")
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

#[test]
fn it_shows_where_each_site_stands_and_no_prefix_on_the_map() {
    let scene = Scene::new(Role::Viewer);
    let told = scene.ask("/api/fleet");
    assert_eq!(told["you"]["role"], "viewer");
    assert_eq!(told["document"]["serial"], 2);
    assert_eq!(told["waiting"], 2);
    assert_eq!(told["authority"]["threshold"], 2);
    let sites = told["sites"].as_array().unwrap();
    let state = |name: &str| {
        let site = sites.iter().find(|site| site["name"] == name).unwrap();
        site["heard"]["state"].as_str().map(str::to_owned).unwrap_or_else(|| "out".to_owned())
    };
    let expected = [("oslo", "current"), ("tallinn", "silent"), ("lisboa", "behind"), ("bonn", "out")];
    for (name, is) in expected {
        assert_eq!(state(name), is, "{name}");
    }
    let groups = told["groups"].as_array().unwrap();
    // Hubs, offices and sensors of three regions.
    assert_eq!(groups.len(), 9, "{groups:?}");
    assert_eq!(groups.iter().filter(|group| group["relays"] == true).count(), 3);
    let text = told.to_string();
    assert!(!text.contains("2001:db8") && !text.contains("ed25519"), "{text}");
    let site = scene.ask("/api/fleet/site?name=oslo");
    assert_eq!(site["hops_in"], "2001:db8:7::/64");
    assert_eq!(site["peers"][0]["name"], "hub-north");
    assert!(scene.ask("/api/fleet/site?name=nobody")["error"].as_str().unwrap().contains("no site nobody"));
    let log = scene.ask("/api/fleet/log");
    assert_eq!(log["fault"], Value::Null);
    let head = log["head"].as_str().unwrap().replace('=', "%3D").replace('+', "%2B");
    assert_eq!(scene.ask(&format!("/api/fleet/log?noted={head}"))["noted"], true);
    let other = format!("1:{}", head.split_once(':').unwrap().1);
    assert_eq!(scene.ask(&format!("/api/fleet/log?noted={other}"))["noted"], false);
}

#[test]
fn it_says_who_may_reach_what_and_over_whom() {
    let scene = Scene::new(Role::Viewer);
    let explain = |from: &str, to: &str| scene.ask(&format!("/api/fleet/explain?from={from}&to={to}"));
    let said = explain("oslo", "fd00:e::77");
    assert_eq!(said["to"]["site"], "wien");
    assert_eq!(said["to"]["in"], "fd00:e::/48");
    assert_eq!(said["verdict"]["allowed"]["number"], 1);
    let way: Vec<_> = said["way"].as_array().unwrap().iter().map(|hop| hop["to"].clone()).collect();
    assert_eq!(way, ["hub-north", "hub-south", "wien"]);
    let said = explain("graz", "wien");
    assert_eq!((&said["verdict"], &said["passes"]), (&json!("refused"), &json!(true)));
    let said = explain("graz", "milano");
    assert_eq!(said["passes"], false);
    assert!(explain("2001:db8::1", "wien")["error"].as_str().unwrap().contains("behind no site"));
    assert!(explain("%3Cb%3E", "wien")["error"].as_str().unwrap().contains("neither a site nor an address"));
}

#[test]
fn a_change_is_handed_out_signed_elsewhere_and_handed_in() {
    let scene = Scene::new(Role::Publisher);
    let rules = scene.ask("/api/fleet/rules")["text"].as_str().unwrap().to_owned();
    let wrong =
        scene.post("/api/fleet/draft", &json!({ "rules": format!("{rules}\n[[rich]]\n") }).to_string());
    assert!(wrong["error"].as_str().unwrap().contains("rich"), "{wrong}");
    let wider = rules.replace("\"office\"]", "\"office\", \"plant\"]");
    assert_ne!(wider, rules);
    let (made, text) = scene.draft(&json!({ "rules": wider }));
    assert_eq!(made["difference"]["settings"], true);
    let comes = &made["difference"]["settings_lines"]["added"];
    assert_eq!(comes["count"], 1, "{comes}");
    assert!(comes["some"][0].as_str().unwrap().contains("\"office\", \"plant\""), "{comes}");
    let gateways = made["difference"]["gateways"].as_array().unwrap();
    let graz = gateways.iter().find(|gateway| gateway["name"] == "graz").unwrap();
    assert_eq!(graz["networks"]["added"]["count"], 3, "the other sensors: {graz}");

    let checked = scene.post("/api/fleet/check", &text);
    assert!(checked["lacks"].as_str().unwrap().contains("sign"), "{checked}");
    assert!(scene.post("/api/fleet/publish", &text)["error"].is_string());
    let one = controllers::signed(&text, "ada").unwrap();
    let checked = scene.post("/api/fleet/check", &one);
    assert_eq!(names(&checked["signers"]), ["ada"]);
    assert!(checked["lacks"].is_string(), "{checked}");
    assert!(scene.post("/api/fleet/publish", &one)["error"].is_string());
    let two = controllers::signed(&one, "ben").unwrap();
    // What was signed is what is published: a text that says something else is none of theirs.
    let forged = two.replace("plant", "plund");
    assert_ne!(forged, two);
    assert!(scene.post("/api/fleet/publish", &forged)["error"].is_string());
    assert_eq!(scene.ask("/api/fleet")["document"]["serial"], 2);
    let checked = scene.post("/api/fleet/check", &two);
    assert_eq!((&checked["lacks"], &checked["overtaken"]), (&Value::Null, &Value::Null));
    assert_eq!(scene.post("/api/fleet/publish", &two), json!({}));
    assert_eq!(scene.ask("/api/fleet")["document"]["serial"], 3);
    assert_eq!(scene.ask("/api/fleet/explain?from=graz&to=milano")["passes"], true);
    // A second one that was made from the same is overtaken.
    let late = scene.post("/api/fleet/check", &two);
    assert!(late["overtaken"].as_str().unwrap().contains("document 2"), "{late}");
    assert_eq!(scene.ask("/api/fleet/log")["records"][0]["who"], "vera");
}

#[test]
fn applicants_are_let_in_by_a_draft_and_turned_down_by_who_may_invite() {
    let scene = Scene::new(Role::Inviter);
    let told = scene.ask("/api/fleet/applications");
    let all = told["applications"].as_array().unwrap();
    let malmo = all.iter().find(|one| one["site"]["name"] == "malmo").unwrap();
    assert!(malmo["site"]["identity"].as_str().unwrap().starts_with("ed25519:"));
    let (made, text) = scene.draft(&json!({ "approve": [malmo["id"]] }));
    assert_eq!(names(&made["difference"]["sites"]["added"]["some"]), ["malmo"]);
    assert_eq!(made["file"], "malmo.draft");
    let both = controllers::signed(&controllers::signed(&text, "ada").unwrap(), "cleo").unwrap();
    let no = scene.post("/api/fleet/publish", &both);
    assert!(no["error"].as_str().unwrap().contains("only a inviter"), "{no}");
    assert_eq!(scene.post("/api/fleet/check", &both)["may_publish"], false);
    let turned = scene.post("/api/fleet/refuse", &json!({ "id": malmo["id"], "why": "not now" }).to_string());
    assert_eq!(turned, json!({}));
    assert_eq!(scene.ask("/api/fleet")["waiting"], 1);
    let gone = scene.post("/api/fleet/draft", &json!({ "approve": [malmo["id"]] }).to_string());
    assert!(gone["error"].as_str().unwrap().contains("waits any more"), "{gone}");
    let outside = scene.post("/api/fleet/refuse", &json!({ "id": "../log", "why": "x" }).to_string());
    assert!(outside["error"].as_str().unwrap().contains("hexadecimal"), "{outside}");
}

#[test]
fn nothing_is_changed_by_other_sites_pages_by_strangers_or_by_forms() {
    let scene = Scene::new(Role::Publisher);
    let ours = format!("Origin: http://{}\r\n", scene.address);
    let body = br#"{"revoke":["oslo"]}"#;
    let json = "Content-Type: application/json\r\n";
    for (fields, expected) in [
        (format!("Origin: http://evil.example\r\n{json}"), "403"),
        (format!("{ours}Sec-Fetch-Site: cross-site\r\n{json}"), "403"),
        (json.to_owned(), "405"),
        (format!("{ours}Content-Type: text/plain\r\n"), "405"),
        (format!("{ours}{json}"), "200"),
    ] {
        assert_eq!(status(&scene.send("POST", "/api/fleet/draft", &fields, body)), expected, "{fields}");
    }
    let ours = format!("{ours}{json}");
    assert_eq!(status(&scene.send("POST", "/api/fleet/invite", &ours, b"{}")), "404");
    assert_eq!(status(&scene.send("POST", "/api/peer", &ours, b"{}")), "405");
    assert_eq!(status(&scene.send("DELETE", "/api/fleet/draft", &ours, b"")), "405");
    for nonsense in ["", "[]", "{\"approve\":7}", "{\"revoke\":[\"\"]}", "\u{0}"] {
        assert!(scene.post("/api/fleet/draft", nonsense)["error"].is_string(), "{nonsense}");
        assert!(scene.post("/api/fleet/check", nonsense)["error"].is_string(), "{nonsense}");
    }
    let stranger = Scene { cookie: String::new(), _folder: tempfile::tempdir().unwrap(), ..scene };
    assert_eq!(status(&stranger.send("POST", "/api/fleet/draft", &ours, body)), "405");
    for path in ["/api/fleet", "/api/fleet/site?name=oslo", "/api/fleet/applications", "/fleet/fleet.js"] {
        assert_eq!(status(&stranger.send("GET", path, "", b"")), "401", "{path}");
    }
}

#[test]
fn without_a_fleet_there_is_none_and_without_its_controller_it_is_said() {
    let scene = Scene::with(tempfile::tempdir().unwrap(), None);
    let ours = format!("Origin: http://{}\r\nContent-Type: application/json\r\n", scene.address);
    assert_eq!(status(&scene.send("GET", "/api/fleet", "", b"")), "404");
    assert_eq!(status(&scene.send("POST", "/api/fleet/draft", &ours, b"{}")), "405");

    let folder = tempfile::tempdir().unwrap();
    let wanted = Wanted { role: Role::Viewer, more: 0, provider: None, hostile: None };
    let fleet = controllers::start(folder.path(), wanted).unwrap();
    // Another network's name: what is told is of none that is known.
    let path = fleet.join("network.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("network = \"").unwrap();
    let other = if rest.starts_with('A') { "B" } else { "A" };
    std::fs::write(&path, format!("{before}network = \"{other}{}", &rest[1..])).unwrap();
    let scene = Scene::with(folder, Some(fleet));
    let told = scene.ask("/api/fleet");
    assert!(told["fault"].as_str().unwrap().contains("not right"), "{told}");
    assert_eq!(told["sites"], Value::Null);
    // And one that is not there.
    let port = text.split_once("[::1]:").unwrap().1.split('"').next().unwrap();
    std::fs::write(&path, text.replace(port, "1")).unwrap();
    let scene = Scene::with(tempfile::tempdir().unwrap(), Some(path.parent().unwrap().to_owned()));
    let told = scene.ask("/api/fleet");
    assert!(told["controllers"][0]["fault"].as_str().unwrap().contains("cannot be reached"), "{told}");
    assert!(scene.ask("/api/fleet/site?name=oslo")["error"].is_string());
}

/// Who has logged in asks by himself: with what he may, under his own name, in his browser alone.
#[test]
fn somebody_logs_in_at_the_identity_provider_and_asks_by_himself() {
    static PROVIDER: Mutex<Option<provider::Shared>> = Mutex::new(None);
    static PLACE: Mutex<String> = Mutex::new(String::new());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    PLACE.lock().unwrap().clone_from(&listen);
    let provide = |folder: &Path| {
        let redirect = format!("http://{}/fleet/callback", PLACE.lock().unwrap());
        *PROVIDER.lock().unwrap() = Some(provider::provide(folder, &[redirect]));
    };
    let wanted = Wanted { role: Role::Viewer, more: 0, provider: Some(provide), hostile: None };
    let folder = tempfile::tempdir().unwrap();
    let fleet = controllers::start(folder.path(), wanted).unwrap();
    let scene = Scene::at(&listen, folder, Some(fleet));
    let provider = PROVIDER.lock().unwrap().clone().unwrap();

    // A login: its cookie, its state, and a code that the provider gives for it.
    let begin = || {
        let answer = scene.send("GET", "/fleet/login", "", b"");
        assert_eq!(status(&answer), "303", "{answer}");
        let field = |name: &str| {
            answer
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_else(|| panic!("{answer}"))
                .to_owned()
        };
        let (location, cookie) = (field("location: "), field("set-cookie: "));
        assert!(cookie.contains("; HttpOnly; SameSite=Lax; Max-Age=600"), "{cookie}");
        let query = location.split_once('?').unwrap().1;
        let pairs: HashMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let code = controller::oidc::draw().unwrap();
        let given = (pairs["nonce"].clone(), pairs["code_challenge"].clone());
        provider.lock().unwrap().codes.insert(code.clone(), given);
        (cookie.split(';').next().unwrap().to_owned(), pairs["state"].clone(), code)
    };
    let come_back = |cookie: &str, state: &str, code: &str| {
        // The page's own cookie is strict, and does not come with what another site sends.
        let stranger = Scene {
            cookie: cookie.to_owned(),
            _folder: tempfile::tempdir().unwrap(),
            address: scene.address,
        };
        let fields = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n";
        stranger.send("GET", &format!("/fleet/callback?code={code}&state={state}"), fields, b"")
    };
    let (cookie, state, code) = begin();
    let (other_cookie, other_state, _) = begin();
    for (cookie, state) in
        [("", &state), (&*cookie, &other_state), (&*other_cookie, &state), (&*cookie, &"x".to_owned())]
    {
        assert_eq!(status(&come_back(cookie, state, &code)), "403", "{cookie} {state}");
    }
    let answer = come_back(&cookie, &state, &code);
    assert_eq!(status(&answer), "200", "{answer}");
    assert!(answer.contains("url=/#/fleet"), "{answer}");
    let session = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(session.contains("; Path=/; HttpOnly; SameSite=Strict; Max-Age="), "{session}");
    let session = session.split(';').next().unwrap();
    assert_eq!(status(&come_back(&cookie, &state, &code)), "403", "there is one answer to a login");
    // A code that was stolen from another's login, in one that was begun here.
    let (cookie, state, _) = begin();
    let (_, _, stolen) = begin();
    let refused = come_back(&cookie, &state, &stolen);
    assert!(status(&refused) == "403" && refused.contains("invalid_grant"), "{refused}");

    assert_eq!(scene.ask("/api/fleet")["is_own"], false);
    let both = format!("{}; {session}", scene.cookie);
    let own = Scene { cookie: both, _folder: tempfile::tempdir().unwrap(), address: scene.address };
    let told = own.ask("/api/fleet");
    assert_eq!(told["is_own"], true);
    assert!(told["you"]["name"].as_str().unwrap().starts_with("ada_example.net-"), "{told}");
    let alone =
        Scene { cookie: session.to_owned(), _folder: tempfile::tempdir().unwrap(), address: scene.address };
    assert_eq!(status(&alone.send("GET", "/api/fleet", "", b"")), "401", "the page's token is needed, too");
    assert_eq!(own.post("/api/fleet/log-out", "{}"), json!({}));
    assert_eq!(own.ask("/api/fleet")["is_own"], false);
    assert!(own.post("/api/fleet/log-out", "{}")["error"].is_string());
}
