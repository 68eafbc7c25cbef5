//! Packet scripts at the hooks of a router, with a host on either side of it and real traffic between them.

mod both;
mod caches;
mod configured;
mod examples;
mod flood;
mod hooks;
mod impair;
mod in_kernel;
mod life;
mod logged;
mod measured;
mod mirrored;
mod order;
mod reloaded;
mod resized;
mod scene;
mod speed;
mod streams;
mod tables;
mod tagged;
mod traced;
mod trouble;
mod tunnel;
mod uplinks;
mod xdp;
