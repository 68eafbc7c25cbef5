//! `sidestep ipsec` on the kernel: with itself at the other end, and with strongSwan.

mod by_hand;
mod floods;
mod hosts;
mod key;
mod life;
mod moves;
mod path_mtu;
mod proxy;
mod run;
mod scene;
mod strongswan;
mod table;
mod up;
mod with_others;
