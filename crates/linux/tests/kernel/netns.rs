use linux::netlink::Netlink;
use linux::netns::{self, Namespace};

use crate::network::Node;

#[test]
fn a_namespace_is_one_that_ip_netns_knows() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    let name = node.namespace.name().to_owned();
    assert!(netns::list().unwrap().contains(&name));
    let output = std::process::Command::new("ip").args(["-n", &name, "link", "show", "lo"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("LOOPBACK,UP"));

    let error = Namespace::create(&name).unwrap_err();
    assert!(error.already_exists(), "{error}");
    drop(node);
    assert!(!netns::list().unwrap().contains(&name));
    assert!(!netns::delete(&name).unwrap());
}

#[test]
fn work_and_programs_run_inside_and_the_caller_stays_outside() {
    if !netns::available_to_tests() {
        return;
    }
    let node = Node::new();
    let outside = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let inside = node.run(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap());
    assert_ne!(inside, outside);
    assert_eq!(node.must("readlink /proc/self/ns/net").trim(), inside.to_str().unwrap());
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), outside);
    // A name that only a network namespace of one's own has free.
    node.must("ip link add inside type veth peer name other");
    let inside = || Netlink::open().unwrap().link_by_name("inside").unwrap().is_some();
    assert!(node.run(inside) && !inside());
}
