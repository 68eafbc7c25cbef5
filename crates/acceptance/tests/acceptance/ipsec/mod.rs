//! `sidestep ipsec` on the kernel: with itself at the other end, and with strongSwan.

mod by_hand;
mod floods;
mod hosts;
mod key;
mod proxy;
mod run;
mod scene;
mod strongswan;
mod up;
mod with_others;
