//! Adversaries of the tunnel, in the lab (docs/unlinkability.md): who follows pairs by what he sees ([`linking`]), what somebody
//! on the path learns by what he does ([`active`]), and whether he can tell that it is Sidestep ([`recognise`]).

pub(crate) mod active;
pub(crate) mod linking;
pub(crate) mod recognise;
