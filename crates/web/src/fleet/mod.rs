//! The fleet's part of the page: what its controllers tell, verified here by the name of the network, and changes of it, which
//! are shown and handed out to be signed elsewhere.
//!
//! The page is not trusted: no key that signs comes here. Who has taken it over knows what the page's token at the controllers
//! lets him know, and can hand in what administrators have signed; and he can show a difference that is none, which is why
//! `sidestep control sign` shows it once more, where the key is.

mod audit;
mod changes;
mod desk;
mod groups;
mod hearing;
mod known;
mod people;
mod shown;

pub(crate) use desk::Desk;
pub(crate) use people::{CALLBACK, People};
