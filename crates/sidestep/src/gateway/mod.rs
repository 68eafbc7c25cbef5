//! `sidestep up` as a router between networks.

mod describe;

pub(crate) use describe::describe;
