//! Two nodes on one link, each in a namespace of its own.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use linux::netlink::{Link, Netlink};
use linux::netns::{self, Namespace};
use linux::nft::{DarkPrefix, PrefixDelivery};

/// The name of the interface in either namespace.
pub(crate) const LINK: &str = "veth0";

/// A namespace that is deleted at the end of the test.
pub(crate) struct Node {
    pub(crate) namespace: Namespace,
}

impl Node {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("linux-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        Self { namespace: Namespace::create(&name).unwrap() }
    }

    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).unwrap()
    }

    /// Runs a command line in the namespace, and returns whether it succeeded and what it wrote.
    pub(crate) fn sh(&self, line: &str) -> (bool, String) {
        let output = self.namespace.command("sh").unwrap().args(["-c", line]).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs a command line that must succeed.
    pub(crate) fn must(&self, line: &str) -> String {
        let (success, text) = self.sh(line);
        assert!(success, "{line}: {text}");
        text
    }

    pub(crate) fn link(&self) -> Link {
        self.run(|| Netlink::open().unwrap().link_by_name(LINK).unwrap().unwrap())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        netns::delete(self.namespace.name()).unwrap();
    }
}

/// Two nodes joined by a veth pair: `2001:db8:1::a/64` and `2001:db8:1::b/64`, without duplicate address detection.
pub(crate) struct Pair {
    pub(crate) a: Node,
    pub(crate) b: Node,
}

pub(crate) const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0xa);
pub(crate) const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0xb);

impl Pair {
    pub(crate) fn new() -> Self {
        let (a, b) = (Node::new(), Node::new());
        let create = Command::new("ip")
            .args(["link", "add", "name", LINK, "netns", a.namespace.name(), "type", "veth"])
            .args(["peer", "name", LINK, "netns", b.namespace.name()])
            .output()
            .unwrap();
        assert!(create.status.success(), "{}", String::from_utf8_lossy(&create.stderr));
        for (node, address) in [(&a, A), (&b, B)] {
            // Link-local addresses come with duplicate address detection unless the interface is told otherwise.
            node.must(&format!("echo 0 > /proc/sys/net/ipv6/conf/{LINK}/accept_dad"));
            node.must(&format!("ip address add {address}/64 dev {LINK} nodad && ip link set {LINK} up"));
        }
        let pair = Self { a, b };
        // The kernel notes a carrier a moment after both ends are up, and loses what is sent before.
        eventually(|| (pair.a.link().running && pair.b.link().running).then_some(()));
        // And the addresses have their routes a moment after that.
        for (node, address) in [(&pair.a, A), (&pair.b, B)] {
            let route = format!("local {address} ");
            eventually(|| node.must("ip -6 route show table local").contains(&route).then_some(()));
        }
        pair
    }
}

/// Two nodes with a prefix each routed to them: `2001:db8:a1::/64` and `2001:db8:b1::/64`.
pub(crate) fn routed_pair() -> Pair {
    let pair = Pair::new();
    pair.a
        .must(&format!("ip route add local 2001:db8:a1::/64 dev lo; ip route add 2001:db8:b1::/64 via {B}"));
    pair.b
        .must(&format!("ip route add local 2001:db8:b1::/64 dev lo; ip route add 2001:db8:a1::/64 via {A}"));
    pair
}

pub(crate) fn endpoint(text: &str) -> SocketAddrV6 {
    text.parse().unwrap()
}

/// Tries until there is something, for at most two seconds.
pub(crate) fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(start.elapsed() < Duration::from_secs(2), "nothing came within two seconds");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A prefix that is to be dark, behind [`LINK`].
pub(crate) fn dark<'a>(
    tunnel: &'a str,
    prefix: &str,
    delivery: PrefixDelivery,
    own: &'a [Ipv6Addr],
) -> DarkPrefix<'a> {
    let prefix = prefix.parse().unwrap();
    DarkPrefix { tunnel, external: LINK, prefix, delivery, own, behind: &[] }
}
