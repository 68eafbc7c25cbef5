//! `check`: what a configuration leads to, in plain words.

pub(crate) mod ipsec;
pub(crate) mod router;
pub(crate) mod tunnel;
