//! `nf.mirror`: a copy of the packet, as it is then, leaves through another interface.

use super::Lower;
use crate::compile::ir::{Action, Failure};
use crate::compile::slot::{Shape, Slot};
use crate::mirror::interface_name;

impl Lower<'_> {
    /// The interface need not be there yet: it is looked for by its name whenever interfaces come and go.
    pub(super) fn mirror(&mut self, packet: &Slot, interface: &Slot) -> Slot {
        if !matches!(&packet.shape, Shape::View(header) if header.is_whole()) {
            return self.refuse("a copy is made of the packet, as the function gets it");
        }
        let interface = self.unwrap(interface.clone());
        self.each(&interface, |lower, interface| {
            match &interface.shape {
                Shape::Text(name) => lower.mirror_to(&String::from_utf8_lossy(name)),
                Shape::Unclear => drop(lower.refuse_use("the interface")),
                Shape::Address(_) | Shape::PacketText(..) => {
                    lower.refuse("the name of an interface has to be known");
                }
                _ => lower.fail(Failure::WrongValue),
            }
            Slot::nil()
        })
    }

    fn mirror_to(&mut self, name: &str) {
        if let Err(error) = interface_name(name) {
            self.refuse(error.to_string());
            return;
        }
        if !self.may_mirror {
            self.refuse(
                "copies are sent in the kernel at interfaces whose packets have a link header, and not at XDP",
            );
            return;
        }
        let mirrors = &mut self.program.mirrors;
        let place = mirrors.iter().position(|known| known == name).unwrap_or_else(|| {
            mirrors.push(name.to_owned());
            mirrors.len() - 1
        });
        self.emit(Action::Mirror { interface: place });
    }
}
