//! The recipes of `docs/recipes.md`, with the examples that they show. That of a site with IPv4 only is in `transition`.

mod mdns;
mod mobile;
mod multicast;
mod pppoe;
pub(crate) mod scene;
mod standby;
mod wifi;
