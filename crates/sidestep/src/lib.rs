//! The program: command line, configuration, daemon, control socket, status.
//!
//! It joins the protocol (`mt6d`, which is given time and bytes) to the kernel (`linux`, which carries its wishes
//! out), and tells the user what goes on. How it is put together:
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the commands and their options, each declared once; help, manual and completions come from it |
//! | [`config`] | the configuration file: text in, valid values or a report of what is wrong out |
//! | `import_classic` | the files of the published MT6D, made a configuration |
//! | [`plan`] | what a configuration leads to, in plain words |
//! | [`daemon`] | `up`: the protocol over the kernel |
//! | [`control`] | the control socket: requests to the running daemon, and its answers |
//! | [`status`] | what the daemon says about itself; the field names are a contract |
//! | `firewall` | the firewall: checked, explained, tested, applied |
//! | `gateway` | `up` as a router between networks |
//! | `script` | packet scripts: their tests, and the process that they run in |
//! | [`show`] | the status as text, JSON, and a screen that follows it |
//!
//! Invariants:
//! - A secret is never printed, except by the commands whose purpose it is (`genkey`, `genpsk`).
//! - The daemon is asked over its socket, never by parsing its log.
//! - There is one exit path, in `main`.
#![forbid(unsafe_code)]

mod check;
pub mod cli;
mod failure;
mod feature;
mod firewall;
mod import_classic;
mod keys;
mod load;
mod manual;
mod rendezvous;
mod script;
mod show;
mod status;
mod terminal;
