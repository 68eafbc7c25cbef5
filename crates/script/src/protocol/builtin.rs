//! The declarations of the built-in protocols, in the form that scripts use.

/// A file of declarations.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Its name in messages.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! sources {
    ($($file:literal),* $(,)?) => {
        /// All files, in the order in which they are read.
        pub const SOURCES: &[Source] = &[$(Source { name: $file, text: include_str!($file) }),*];
    };
}

sources!("ethernet.lua", "ip.lua", "icmp.lua", "transport.lua", "application.lua", "sidestep.lua");
