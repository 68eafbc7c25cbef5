//! The program: command line, screens, texts.
//!
//! What it starts and asks is in crates of its own: `config` reads the file, `tunnel-runtime` is the daemon, `script-host`
//! the process of packet scripts, `control` the socket. Here is what a user sees of them:
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the commands and their options, each declared once; help, manual and completions come from it |
//! | `check` | what a configuration leads to, in plain words, or a report of what is wrong |
//! | `load` | a file, read for a command that needs it |
//! | `tunnel_keys`, `import_classic`, `rendezvous` | keys; the files of the published MT6D, made a configuration; where peers meet |
//! | `key` | associations and policies of IPsec, in setkey's language |
//! | `place` | where this end hops, if its file does not say so |
//! | `rotate_key` | another key for this gateway |
//! | `wrap` | a WireGuard device that travels with a peer |
//! | `seal` | where this end hops, sealed for a peer |
//! | `setup` | a gateway set up by commands: init, invite, join |
//! | `show`, `status`, `watch` | what tunnel and gateway say about themselves: text, JSON; the screen that follows both |
//! | `doctor` | what keeps a tunnel from working |
//! | `event_lines` | what has happened, as lines |
//! | `page` | the page in a browser, served |
//! | `firewall` | the firewall: checked, explained, tested, applied |
//! | `ssh` | the connection that a command came by, which a firewall must not close |
//! | `ipsec` | tunnels of IPsec: run, shown, ended |
//! | `peer` | peers added, removed and listed |
//! | `script` | packet scripts: their tests, and commands for the process that they run in |
//! | `stack` | programs on a host of our own, on a TAP or TUN device |
//! | `failure`, `terminal`, `fit` | how a command fails; width and colours; text in so many columns |
//! | `manual`, `completion` | the manual page; what completes the command line |
//!
//! Invariants:
//! - A secret is never printed, except by the commands whose purpose it is (`genkey`, `genpsk`).
//! - The daemon is asked over its socket, never by parsing its log.
//! - There is one exit path, in `main`.
#![forbid(unsafe_code)]

mod agent;
mod check;
pub mod cli;
mod completion;
mod doctor;
mod down;
mod event_lines;
mod failure;
mod firewall;
mod fit;
mod fleet_control;
mod import_classic;
mod ipsec;
mod key;
mod load;
mod manual;
mod metrics;
mod new_socket;
mod page;
mod peer;
mod place;
mod rendezvous;
mod rotate_key;
mod running;
mod script;
mod seal;
mod setup;
mod show;
mod ssh;
mod stack;
mod status;
mod syslog;
mod terminal;
mod tunnel_keys;
mod watch;
mod wrap;
