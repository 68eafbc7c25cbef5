//! Everything that Sidestep asks of the Linux kernel, and every `unsafe` of the program.
//!
//! The other crates are given time and bytes and hand back bytes and wishes; this one carries the wishes out.
//! It is synchronous, keeps no threads of its own, and decides nothing about the protocol.
//!
//! | module | what it is |
//! |---|---|
//! | [`tun`] | the TUN device, with virtio-net headers and segmentation offloads |
//! | [`udp`] | endpoint sockets: freebound, connected, segmentation and receive offload, the error queue; one for many |
//! | [`bpf`] | small programs that run in the kernel: written, loaded, attached |
//! | [`netlink`] | links, addresses, routes, neighbor entries, and news of their changes |
//! | [`features`] | what interfaces do with packets by themselves, as `ethtool -k` shows it |
//! | [`inner`] | the networks behind this machine |
//! | [`ruleset`] | tables of nftables, as the kernel has them, and news of their changes |
//! | [`conntrack`] | connections that netfilter follows, and what they carry |
//! | [`nft`] | the table that keeps a hopping prefix dark |
//! | [`outside`], [`inside`] | the table that keeps what is behind a tunnel off other interfaces: moving-target, IPsec |
//! | [`port`] | whether another program listens at a port, and one of a single interface |
//! | [`packet`] | whole frames, received from and sent to an interface |
//! | [`icmp_tap`] | ICMP messages as they come in by an interface, before any firewall |
//! | [`neighbor`] | answers neighbor solicitations for active endpoints of an on-link prefix |
//! | [`queue`] | packets of netfilter, given to this process and handed back with a verdict |
//! | [`no_autoconf`] | an interface at which the kernel says nothing of its own |
//! | [`transparent`] | a gateway between hosts and their router that neither sees: programs that cross over |
//! | [`echo`] | echo requests out of one interface |
//! | [`raw`], [`raw_host`] | packets of one protocol of IP, with their headers: at an interface; at this host's addresses |
//! | [`mark`] | marks of sockets, for rules |
//! | [`hosts`] | the table that keeps what goes to protected hosts off every way but a tunnel's device |
//! | [`seqpacket`] | Unix sockets that keep messages apart |
//! | [`sysctl`] | parameters of interfaces and of the network |
//! | [`forwarding`] | the switch that makes a router of the machine, and what changes along with it |
//! | [`tcp`] | connections that end with a reset |
//! | [`owner`] | whose the other end of a connection within this host is |
//! | [`event`] | epoll, a waker, signals |
//! | [`clock`] | the two clocks |
//! | [`confine`] | a process without what it does not need: files, system calls, core dumps |
//! | [`priority`] | when a thread that carries packets goes before ordinary programs |
//! | [`memory`] | memory that a process has no use for any more |
//! | [`process`] | open files, capabilities, private files |
//! | [`vm_generation`] | news that this virtual machine was restored or cloned |
//! | [`jail`] | a program in namespaces of its own, whose only way out is a TUN device of ours |
//! | [`netns`] | network namespaces, for the lab and the tests |
//! | [`undo`] | the journal of what was set up, so that it can be taken down after a crash |
//!
//! Invariants:
//! - What Sidestep puts into the kernel is marked as its own (the route protocol number [`netlink::PROTOCOL`],
//!   the table name of [`nft`]) and only what carries the mark is ever removed.
//! - What is to outlive a call is written to the journal of [`undo`] before it is done, never after.
//! - Nothing on the packet path ([`tun`], [`udp`]) allocates, except to report an error.
//! - An error names the system call and its object; where a kernel is too old, it says which one is not.

pub mod bpf;
pub mod clock;
pub mod confine;
pub mod conntrack;
pub mod echo;
mod error;
pub mod event;
pub mod features;
pub mod file;
pub mod forwarding;
pub mod hosts;
pub mod icmp_tap;
pub mod inner;
pub mod inside;
pub mod jail;
pub mod mark;
pub mod memory;
pub mod neighbor;
pub mod netlink;
pub mod netns;
mod nfnetlink;
pub mod nft;
pub mod no_autoconf;
pub mod outside;
pub mod owner;
pub mod packet;
pub mod port;
pub mod priority;
pub mod process;
pub mod queue;
pub mod raw;
pub mod raw_host;
pub mod ruleset;
pub mod seqpacket;
mod sockopt;
pub mod sysctl;
pub mod tcp;
pub mod transparent;
pub mod tun;
pub mod udp;
pub mod undo;
pub mod vm_generation;
pub mod witness;

pub use error::{Error, Result};
