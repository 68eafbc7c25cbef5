//! `ike` and `ipsec` over `linux`: the gateway and the client of an IPsec tunnel.
#![forbid(unsafe_code)]

pub mod key_socket;
