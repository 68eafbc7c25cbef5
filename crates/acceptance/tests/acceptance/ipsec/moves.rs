//! A machine that gets another address, or another way out: MOBIKE by `ipsec up` itself, and by `run` and `proxy`, which
//! user nobody has started.

use std::time::Duration;

use lab::patience::wait_until;
use lab::process::Process;

use super::proxy::{serve, start};
use super::scene::{HOPPING, INNER, INNER_V4, OUTER, STRONGSWAN, Scene};

/// Where the first side goes.
const ELSEWHERE: &str = "2001:db8:77::aa";

/// Gives the first side another address, which is preferred to the one that it had, and then takes that one away.
fn moves(scene: &Scene) {
    let a = &scene.namespaces[0];
    a.ip(&format!(
        "addr add {ELSEWHERE}/64 dev ex nodad\naddr change {}/64 dev ex preferred_lft 0 valid_lft forever\n",
        OUTER[0]
    ))
    .expect("another address");
}

fn leaves(scene: &Scene) {
    scene.namespaces[0].ip(&format!("addr del {}/64 dev ex", OUTER[0])).expect("no more of the old one");
}

#[test]
fn a_machine_that_gets_another_address_goes_on_without_losing_a_ping() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    let before = (scene.ike_sas(0), scene.ike_sas(1));
    let is_there = || {
        let status = scene.status(1).unwrap_or_default();
        status["remotes"][0]["children"][0]["remote"].as_str().is_some_and(|at| at.contains(ELSEWHERE))
    };
    let lost = scene.lost_while(0, INNER[1], || {
        moves(&scene);
        wait_until("the other end to know", is_there);
        leaves(&scene);
    });
    assert_eq!((lost, (scene.ike_sas(0), scene.ike_sas(1))), (0, before));
    assert!(scene.pings(1, INNER_V4[0]));
}

#[test]
fn a_machine_that_loses_its_address_before_it_gets_another_one_goes_on_from_there() {
    let Some(scene) = Scene::new(&["ping"]) else { return };
    let _ends = scene.tunnel();
    let before = scene.ike_sas(0);
    leaves(&scene);
    assert!(!scene.pings(0, INNER[1]));
    scene.namespaces[0].ip(&format!("addr add {ELSEWHERE}/64 dev ex nodad")).expect("another address");
    wait_until("an answer", || scene.pings(0, INNER[1]));
    assert_eq!(scene.ike_sas(0), before);
}

#[test]
fn strongswan_follows_a_machine_that_gets_another_address() {
    let Some(scene) = Scene::new(&[&STRONGSWAN[..], &["ping"]].concat()) else { return };
    scene.write_site(0, true);
    let _charon = scene.charon();
    let _a = scene.up(0);
    wait_until("an answer", || scene.pings(0, INNER[1]));
    let before = scene.ike_sas(0);
    moves(&scene);
    leaves(&scene);
    wait_until("an answer there", || scene.pings(0, INNER[1]));
    assert_eq!(scene.ike_sas(0), before);
}

/// An address of the second side that the first one reaches by two links.
const BY_TWO_LINKS: &str = "2001:db8:99::b";

/// A second link between both sides, behind the first one.
fn second_link(scene: &Scene) {
    let [a, b] = &scene.namespaces;
    a.ip(&format!("link add lte type veth peer name lte netns {}", b.name())).expect("a link");
    let routes = format!(
        "route add {BY_TWO_LINKS} via {} dev ex metric 100\nroute add {BY_TWO_LINKS} via 2001:db8:78::b dev lte metric 200",
        OUTER[1]
    );
    a.ip(&format!("addr add 2001:db8:78::a/64 dev lte nodad\nlink set lte up\n{routes}\n")).expect("a way");
    b.ip(&format!(
        "addr add 2001:db8:78::b/64 dev lte nodad\nlink set lte up\naddr add {BY_TWO_LINKS}/128 dev lo\n"
    ))
    .expect("an address");
}

/// Bytes of a page that are read before something is done.
const FIRST: u64 = 64 * 4096;

/// A script with which user nobody fetches the page by curl, with these options: some of it, and the rest once it may.
fn in_two_parts(scene: &Scene, options: &str) -> String {
    if !scene.path("of-nobody").exists() {
        std::fs::create_dir(scene.path("of-nobody")).expect("a folder");
        scene.give_to_nobody("of-nobody");
    }
    let folder = scene.path("of-nobody").display().to_string();
    format!(
        "curl -sS -m 60 {options} http://{}/page | (dd bs=4096 count=64 iflag=fullblock 2>/dev/null\n\
         while ! [ -e {folder}/go ]; do sleep 0.05; done\ncat) > {folder}/fetched",
        INNER_V4[1]
    )
}

/// Waits until the first part of the page has come, does something, and waits for the whole.
fn in_the_midst_of(scene: &Scene, mut program: Process, log: &str, act: impl FnOnce()) {
    let [page, got, go] = ["page", "of-nobody/fetched", "of-nobody/go"].map(|name| scene.path(name));
    wait_until("a part of the page", || std::fs::metadata(&got).is_ok_and(|file| file.len() == FIRST));
    act();
    std::fs::write(go, "").expect("a file");
    let ended = program.wait(Duration::from_secs(60));
    let told = std::fs::read_to_string(scene.path(log)).unwrap_or_default();
    assert_eq!(ended.and_then(|status| status.code()), Some(0), "{told}");
    let [page, got] = [page, got].map(|path| std::fs::read(path).expect("a file"));
    assert!(page == got, "{} of {} octets: {told}", got.len(), page.len());
}

#[test]
fn a_connection_of_a_program_outlives_the_link_that_it_began_on() {
    let Some(scene) = Scene::new(&["python3", "curl", "setpriv"]) else { return };
    second_link(&scene);
    scene.write_client(BY_TWO_LINKS);
    let _gateway = scene.up_for_client();
    let _servers = serve(&scene);
    let mut command = scene.run_as_nobody(&["sh", "-c", &in_two_parts(&scene, "")]);
    let curl = Process::start(&mut command, &scene.path("run.log")).expect("sidestep");
    in_the_midst_of(&scene, curl, "run.log", || {
        let before = scene.ike_sas(1);
        scene.namespaces[0].ip("link set ex down").expect("the link goes");
        wait_until("the other end to know", || {
            scene.status(1).unwrap_or_default().to_string().contains("2001:db8:78::a")
        });
        assert_eq!(scene.ike_sas(1), before);
    });
}

#[test]
fn a_connection_through_a_proxy_outlives_the_address_that_it_began_at() {
    let Some(scene) = Scene::new(&["python3", "curl", "setpriv"]) else { return };
    scene.write_client(OUTER[1]);
    let _gateway = scene.up_for_client();
    let _servers = serve(&scene);
    let proxy = start(&scene, &[]);
    let script = in_two_parts(&scene, "--proxy socks5h://127.0.0.1:1080");
    let mut command = scene.namespaces[0].command("sh").expect("the namespace");
    command.args(["-c", &script]);
    let curl = Process::start(&mut command, &scene.path("curl.log")).expect("curl");
    in_the_midst_of(&scene, curl, "proxy.log", || {
        let before = scene.ike_sas(1);
        leaves(&scene);
        scene.namespaces[0].ip(&format!("addr add {ELSEWHERE}/64 dev ex nodad")).expect("another address");
        wait_until("the other end to know", || {
            scene.status(1).unwrap_or_default().to_string().contains(ELSEWHERE)
        });
        assert_eq!(scene.ike_sas(1), before);
    });
    assert_eq!(proxy.stop(Duration::from_secs(10)).code(), Some(0));
}

#[test]
fn a_connection_in_a_moving_tunnel_outlives_the_way_that_its_prefix_was_reached_by() {
    let Some(scene) = Scene::new(&["python3", "curl", "setpriv"]) else { return };
    scene.write_moving();
    scene.own_prefix();
    second_link(&scene);
    let _gateway = scene.up_moving();
    let _servers = serve(&scene);
    let mut command = scene.run_as_nobody(&["sh", "-c", &in_two_parts(&scene, "")]);
    let curl = Process::start(&mut command, &scene.path("run.log")).expect("sidestep");
    in_the_midst_of(&scene, curl, "run.log", || {
        // The network delivers the prefix elsewhere now.
        scene.namespaces[1]
            .ip(&format!("route replace {} via 2001:db8:78::a dev lte", HOPPING[0]))
            .expect("another way");
        scene.namespaces[0]
            .ip(&format!("link set ex down\nroute replace {} via 2001:db8:78::b dev lte\n", HOPPING[1]))
            .expect("another way");
    });
}
