//! Adversaries of the tunnel, in the lab.

pub(crate) mod active;
