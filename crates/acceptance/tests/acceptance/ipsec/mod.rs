//! `sidestep ipsec` on the kernel: with itself at the other end, and with strongSwan.

mod floods;
mod key;
mod proxy;
mod run;
mod scene;
mod strongswan;
mod up;
