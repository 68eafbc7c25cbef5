//! Stories that every store tells alike (`suite`), told by each (`memory`, `sqlite`); what is particular of each; and random
//! operations beside a model.

#[macro_use]
mod suite;
mod crash;
mod memory;
mod model;
mod sqlite;
