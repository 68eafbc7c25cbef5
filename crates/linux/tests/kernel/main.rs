//! The crate against the running kernel. Every test makes network namespaces of its own; all need root.

#![allow(missing_docs, reason = "a test's name says what it is about")]

mod bpf;
mod conntrack;
mod dark_prefix;
mod echo;
mod icmp_tap;
mod neighbor;
mod netfilter;
mod netlink;
mod netns;
mod network;
mod packet;
mod process;
mod queue;
mod raw_host;
mod ruleset;
mod shared;
mod transparent;
mod tun;
mod udp;
mod undo;
mod xdp;
