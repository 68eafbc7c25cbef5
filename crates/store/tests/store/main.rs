//! Stories that every store tells alike (`suite`), told by each (`memory`, `sqlite`, `etcd`); what is particular of each; and random
//! operations beside a model, and of several clients at once while the store fails.

#[macro_use]
mod suite;
mod clients;
mod crash;
mod etcd;
mod faults;
mod judge;
mod memory;
mod model;
mod sqlite;
