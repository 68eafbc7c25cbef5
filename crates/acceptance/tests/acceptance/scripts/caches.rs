//! The caches of TFTP and HTTP, after section 4.2 of the thesis: files from 1 octet to 32 MB, each fetched twice; the second
//! time the server does not hear of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::scene::{SERVER, SERVER_IPV4, ScriptScene, example_path};
use lab::scale::{emulated, scaled};

/// As the thesis has them, 26: of TFTP the largest needs more blocks than there are numbers. Fewer in a quick run, and fewer
/// still where the machine is emulated.
fn sizes() -> impl Iterator<Item = usize> {
    let last = if emulated() { 16 } else { scaled(20, 25) };
    (0..=last).map(|power| 1 << power)
}

/// Octets of which each part tells where it is.
fn content(size: usize) -> Vec<u8> {
    let mut octets: Vec<u8> = (0..=size / 4).flat_map(|number| (number as u32).to_be_bytes()).collect();
    octets.truncate(size);
    octets
}

/// A folder with a file of each size, its name.
fn files(scene: &ScriptScene) -> PathBuf {
    let folder = scene.folder.path().join("files");
    fs::create_dir(&folder).expect("a folder");
    for size in sizes() {
        fs::write(folder.join(size.to_string()), content(size)).expect("a file");
    }
    folder
}

/// Fetches a file on the client; it must arrive as it is.
fn fetch(scene: &ScriptScene, more: &[&str], url: &str, wanted: &Path) {
    let got = scene.folder.path().join("got");
    let path = got.display().to_string();
    let words = [&["curl", "--silent", "--show-error", "--max-time", "120", "--output", &path], more, &[url]];
    let (fetched, said) = scene.run(&scene.client, &words.concat());
    assert!(fetched, "{url}: {said}\n{}", scene.sidestep(&["list"]));
    // A comparison that fails would print 32 MB.
    let same = fs::read(&got).expect("a file") == fs::read(wanted).expect("a file");
    assert!(same, "{url} arrived as something else");
    fs::remove_file(&got).expect("no file");
}

/// Each file twice: after the first time the server says something of it, `hears`, after the second not again.
fn twice(
    scene: &ScriptScene,
    more: &[&str],
    url: &str,
    folder: &Path,
    log: &str,
    hears: impl Fn(usize) -> String,
) {
    for size in sizes() {
        let wanted = folder.join(size.to_string());
        for _ in 0..2 {
            fetch(scene, more, &format!("{url}/{size}"), &wanted);
        }
        let requests = heard(scene, log, &hears(size), 1);
        assert_eq!(requests, 1, "{url}/{size}: {}", scene.sidestep(&["list"]));
    }
}

/// How often a server has said something. It writes that after the client has its file, so it is waited for.
fn heard(scene: &ScriptScene, log: &str, what: &str, expected: usize) -> usize {
    let limit = Instant::now() + Duration::from_secs(5);
    loop {
        let times = scene.said(log).matches(what).count();
        if times >= expected || Instant::now() > limit {
            return times;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many requests the script has answered itself: another one, of its state, tells.
fn answered(scene: &ScriptScene, counter: &str) -> u64 {
    let text = format!(
        "nf.log('answered', nf.counter('{counter}'):get())\nfunction process_packet() return NF_ACCEPT end\n"
    );
    let tell = scene.script("tell.lua", &text);
    scene.load(&tell, "--hook forward --match", &["icmp type 200", "--state", "7"]);
    scene.sidestep(&["unload", &tell]);
    let logs = scene.sidestep(&["logs"]);
    let told = logs.lines().rev().find_map(|line| line.split("answered ").nth(1));
    told.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| panic!("{logs}"))
}

#[test]
fn tftp_is_answered_by_the_cache() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let folder = files(&scene);
    let root = format!("--tftp-root={}", folder.display());
    let mut words =
        vec!["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file"];
    words.extend(["--port=0", "--log-facility=-", "--enable-tftp", &root]);
    let _server = scene.start(&scene.server, &words, "tftp", || scene.listens("udp", 69));
    let file = example_path("tftp_cache.lua");
    scene.load(&file, "--hook forward --match", &["meta l4proto udp", "--state", "7"]);
    let hears = |size| format!("/files/{size} to ");
    let curl = &["--tftp-no-options"];
    twice(&scene, curl, &format!("tftp://[{SERVER}]"), &folder, "tftp", hears);
    // IPv4 is another server. What a client asks for with options passes.
    let url = format!("tftp://{SERVER_IPV4}/1024");
    let before = scene.said("tftp").matches(&hears(1024)).count();
    for more in [&curl[..], curl, &[], &[]] {
        fetch(&scene, more, &url, &folder.join("1024"));
    }
    assert_eq!(heard(&scene, "tftp", &hears(1024), before + 3), before + 3);
    assert_eq!(answered(&scene, "tftp_cache answered"), sizes().count() as u64 + 1);
    scene.has_served(&["user"]);
}

#[test]
fn http_is_answered_by_the_cache() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let folder = files(&scene);
    let path = folder.display().to_string();
    let words = ["python3", "-u", "-m", "http.server", "80", "--bind", "::", "--directory", &path];
    let _server = scene.start(&scene.server, &words, "http", || scene.listens("tcp", 80));
    let file = example_path("http_cache.lua");
    scene.load(&file, "--hook forward --match", &["meta l4proto tcp", "--state", "7"]);
    let hears = |size| format!("\"GET /{size} HTTP");
    twice(&scene, &[], &format!("http://[{SERVER}]"), &folder, "http", hears);
    // What the client asks for in a way of its own passes.
    let url = format!("http://[{SERVER}]/1024");
    fetch(&scene, &["--header", "Cookie: a=b"], &url, &folder.join("1024"));
    assert_eq!(heard(&scene, "http", &hears(1024), 2), 2);
    assert_eq!(answered(&scene, "http_cache answered"), sizes().count() as u64);
    scene.has_served(&["user"]);
}
