//! Adversaries of the tunnel, in the lab: what somebody on the path learns by what he does ([`active`]), and whether he
//! can tell that it is Sidestep ([`recognise`]).

pub(crate) mod active;
pub(crate) mod recognise;
