//! Scripts over packets, as a program that carries packets would run them.

mod host;
mod listings;
mod views;
