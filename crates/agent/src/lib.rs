//! A site's agent: a process beside the gateway, without privileges, that keeps it a member of its fleet.
//!
//! What it decides is in [`fleet::agent`], which knows no socket. This crate asks controllers over TLS and peers inside of the
//! tunnels, answers peers, keeps what is known in a folder, writes the file of the gateway's peers, and has the daemon take it,
//! by a socket that looks, reloads, and says whose turn it is of two gateways, and does nothing else. The daemon knows nothing of
//! it: where the agent is not there, the gateway goes on with the peers that it has.
//!
//! | module | what it is |
//! |---|---|
//! | `run` | the loop |
//! | `enrol` | how a site becomes a member |
//! | `controller`, `peers` | asking and answering |
//! | `http`, `tls` | what these speak |
//! | `gateway` | the daemon beside it |
//! | `standby` | the other gateway of the site, if it has two |
//! | `folder` | what is kept |

mod controller;
mod enrol;
mod event;
mod folder;
mod gateway;
mod http;
mod peers;
mod run;
mod standby;
mod tls;

pub use enrol::{EnrolError, Enrolment};
pub use folder::{Folder, FolderError, Identity};
pub use http::HttpError;
pub use run::{Options, RunError, run};
