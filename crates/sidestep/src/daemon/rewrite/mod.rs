//! Addresses of packets replaced in the kernel: what the profiles have in common.

mod replace;
