//! The kernel tier: from a script's tree to eBPF.
mod allocate;
#[cfg(test)]
mod differential;
mod emit;
#[cfg(test)]
mod interpret;
pub mod ir;
mod known;
mod lower;
mod slot;
#[cfg(test)]
mod tests;
