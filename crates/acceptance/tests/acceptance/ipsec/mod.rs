//! `sidestep ipsec` on the kernel: with itself at the other end, and with strongSwan.

mod run;
mod scene;
mod up;
