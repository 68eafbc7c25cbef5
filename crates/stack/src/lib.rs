//! An IPv6 host stack, sans-IO: IPv6, neighbor discovery, autoconfiguration, ICMPv6, UDP, TCP.

#![forbid(unsafe_code)]

pub mod tcp;
