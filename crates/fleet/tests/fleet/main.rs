//! Stories of a fleet: what its members take, and from whom.

mod agents;
mod compromised;
mod convergence;
mod delegates;
mod documents;
mod enrolment;
mod notices;
mod plans;
mod refused;
mod scene;
mod signposts;
mod standby;
mod views;
mod world;
