//! `p:redirect`: a note of where the packet goes, which holds if the verdict is that it is stolen.

use super::{Key, Lower};
use crate::compile::ir::{Condition, End, Failure, Operand};
use crate::compile::slot::{Shape, Slot};
use crate::vm::Verdict;

impl Lower<'_> {
    /// `view:redirect(name)`
    pub(super) fn redirect(&mut self, name: &Slot) -> Slot {
        let name = self.unwrap(name.clone());
        self.each(&name, |lower, name| {
            let number = match &name.shape {
                Shape::Text(name) => {
                    lower.top.interface(&String::from_utf8_lossy(name)).map_err(|error| error.to_string())
                }
                Shape::Unclear => {
                    lower.refuse_use("the interface");
                    return Slot::unclear();
                }
                Shape::Address(_) => Err("the name of an interface has to be known".to_owned()),
                _ => {
                    lower.fail(Failure::WrongValue);
                    return Slot::unclear();
                }
            };
            match number {
                Ok(number) => {
                    lower.program.redirects.push(lower.line);
                    lower.set(Key::Redirect, Slot::integer(i64::from(number)));
                }
                Err(why) => drop(lower.refuse(why)),
            }
            Slot::integer(Verdict::Stolen.value())
        })
    }

    /// Ends the ways on which the packet leaves through another interface.
    pub(super) fn redirected(&mut self, verdict: Operand) {
        let noted = self.state.as_ref().and_then(|state| state.variables.get(&Key::Redirect));
        let Some(interface) = noted.and_then(|slot| slot.parts.first().copied()) else { return };
        if interface == Operand::Constant(0) {
            return;
        }
        let (stolen, others) = self.branch(Condition::Equal, verdict, Verdict::Stolen.value().into());
        self.state = stolen;
        let (redirected, kept) = self.branch(Condition::NotEqual, interface, 0.into());
        self.state = redirected;
        self.end(End::Redirect(interface));
        self.join(others.into_iter().chain(kept));
    }
}
