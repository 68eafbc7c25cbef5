//! Scripts over packets, as a program that carries packets would run them.

mod budget;
mod fields;
mod guide;
mod host;
mod library;
mod listings;
mod properties;
mod reloaded;
mod streams;
mod views;
