//! The tests with gateways, hosts and traffic on this machine's kernel: the program runs as a user starts it, in networks
//! made of namespaces. `SIDESTEP_BIN` names the program; without it, and without root, they are skipped.

mod firewall;
mod fixture;
mod gateway_firewall;
mod host;
mod promises;
mod reference;
mod router;
mod scripts;
mod transition;
mod transparent;
mod tunnel;
