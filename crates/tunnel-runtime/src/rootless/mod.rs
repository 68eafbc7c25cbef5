//! A moving tunnel without privileges: for one program ([`run`]), or below a proxy ([`Carrier`]).
//!
//! Nothing of the host is changed. Endpoints are sockets bound to addresses of the hopping prefix by IPV6_FREEBIND, which
//! anybody may do; that packets for the prefix come to this host, and are the host's own, somebody with privileges has seen
//! to before ([`claim`]). So nothing keeps the prefix dark either: unused addresses answer as the host does.
//!
//! | file | subject |
//! |---|---|
//! | `claim` | what of a configuration can be had so, and that nobody else has it |
//! | `carrier` | the node and its sockets |
//! | `run` | a program whose only way out is the tunnel |

mod carrier;
mod claim;
mod error;
mod run;

pub use carrier::Carrier;
pub use claim::Claim;
pub use error::Error;
pub use run::run;
