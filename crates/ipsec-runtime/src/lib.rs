//! `ike` and `ipsec` over `linux`: the gateway and the client of an IPsec tunnel.
