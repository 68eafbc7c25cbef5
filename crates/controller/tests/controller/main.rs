//! Stories of controllers: what they keep, what they refuse, and what they cannot do.

mod attacks;
mod backups;
mod cluster;
mod drafts;
mod enrolling;
mod faults;
mod http;
mod judge;
mod oidc;
mod publishing;
mod scene;
mod turns;
mod waiting;

#[path = "../provider/mod.rs"]
mod provider;
