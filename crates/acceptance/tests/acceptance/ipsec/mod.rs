//! `sidestep ipsec` on the kernel: with itself at the other end, and with strongSwan.

mod by_hand;
mod hosts;
mod key;
mod life;
mod moves;
mod proxy;
mod run;
mod scene;
mod table;
mod up;
mod with_others;
