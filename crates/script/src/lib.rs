//! Packet scripts.
mod compile;
mod syntax;
