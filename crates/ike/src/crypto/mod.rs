//! Algorithms, each behind an enum of those that are known: nothing else of the crate knows one by name.
//!
//! | module | subject |
//! |---|---|
//! | [`group`] | Diffie-Hellman |
//! | [`prf`] | pseudorandom functions and prf+ |
//! | [`encryption`] | what encrypts and authenticates a message, and the names of what does so for a child |
//! | [`secret`] | bytes that are wiped, and never printed |

pub mod encryption;
pub mod group;
pub mod prf;
pub mod secret;
