//! Stories that every store tells alike (`suite`), told by each (`memory`, `sqlite`, `etcd`); what is particular of each; and random
//! operations beside a model.

#[macro_use]
mod suite;
mod crash;
mod etcd;
mod faults;
mod memory;
mod model;
mod sqlite;
