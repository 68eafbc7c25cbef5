//! The associations that there are: by what they were given for, by name, by the packets that they are for, by the time at
//! which something is due for them. Nothing here takes longer for there being many.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::association::{Age, Association, AssociationId, Name, Parameters};
use crate::offers::Offers;
use crate::request::{Request, SocketId};

/// An association with what the key engine keeps of it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) association: Association,
    /// The socket whose own it is.
    pub(crate) owner: Option<SocketId>,
    /// The age that daemons have been told.
    pub(crate) told: Age,
    is_offered: bool,
    /// As it is in the table's agenda.
    due: Option<Instant>,
    was_used: bool,
}

/// Associations that are found by name without the hash of it.
const RECENT: usize = 16;

/// All associations.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Option<(u64, Box<Entry>)>>,
    free: Vec<u32>,
    by_name: HashMap<Name, AssociationId>,
    offers: Offers,
    agenda: BTreeSet<(Instant, AssociationId)>,
    owned: HashMap<SocketId, Vec<AssociationId>>,
    /// Those that were asked for by name lately, by their SPI.
    recent: [Option<AssociationId>; RECENT],
    last_number: u64,
    generation: u64,
}

impl Table {
    /// Puts one in, whose name nobody has.
    pub(crate) fn insert(&mut self, association: Association) -> AssociationId {
        self.last_number += 1;
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        let id = AssociationId { number: self.last_number, slot };
        self.by_name.insert(Name::of(&association), id);
        let entry = Entry {
            association,
            owner: None,
            told: Age::Fresh,
            is_offered: false,
            due: None,
            was_used: false,
        };
        let entry = Some((id.number, Box::new(entry)));
        match self.slots.get_mut(slot as usize) {
            Some(free) => *free = entry,
            None => self.slots.push(entry),
        }
        self.reschedule(id);
        id
    }

    /// It may be used for packets that leave: those of this socket, or of all.
    pub(crate) fn offer(&mut self, id: AssociationId, owner: Option<SocketId>) {
        let Some(entry) = self.get_mut(id) else { return };
        (entry.owner, entry.is_offered) = (owner, true);
        let Some((_, entry)) = self.slots.get(id.slot as usize).and_then(Option::as_ref) else { return };
        self.offers.add(id, &entry.association, owner);
        if let Some(owner) = owner {
            self.owned.entry(owner).or_default().push(id);
        }
        self.generation += 1;
    }

    pub(crate) fn remove(&mut self, id: AssociationId) -> Option<Box<Entry>> {
        self.get(id)?;
        let (_, entry) = self.slots.get_mut(id.slot as usize)?.take()?;
        self.free.push(id.slot);
        self.by_name.remove(&Name::of(&entry.association));
        if entry.is_offered {
            self.offers.remove(id, &entry.association, entry.owner);
        }
        if let Some(due) = entry.due {
            self.agenda.remove(&(due, id));
        }
        if let Some(owner) = entry.owner
            && let Some(owned) = self.owned.get_mut(&owner)
        {
            owned.retain(|other| *other != id);
            if owned.is_empty() {
                self.owned.remove(&owner);
            }
        }
        self.generation += 1;
        Some(entry)
    }

    /// Changes what one is made of: its name, its lifetime and what it is for may be others then.
    pub(crate) fn change(&mut self, id: AssociationId, change: impl FnOnce(&mut Parameters)) {
        let Some(Some((number, entry))) = self.slots.get_mut(id.slot as usize) else { return };
        if *number != id.number {
            return;
        }
        self.by_name.remove(&Name::of(&entry.association));
        if entry.is_offered {
            self.offers.remove(id, &entry.association, entry.owner);
        }
        change(&mut entry.association.parameters);
        self.by_name.insert(Name::of(&entry.association), id);
        if entry.is_offered {
            self.offers.add(id, &entry.association, entry.owner);
        }
        self.generation += 1;
        self.reschedule(id);
    }

    pub(crate) fn get(&self, id: AssociationId) -> Option<&Entry> {
        let (number, entry) = self.slots.get(id.slot as usize)?.as_ref()?;
        (*number == id.number).then_some(entry)
    }

    pub(crate) fn get_mut(&mut self, id: AssociationId) -> Option<&mut Entry> {
        let (number, entry) = self.slots.get_mut(id.slot as usize)?.as_mut()?;
        (*number == id.number).then_some(entry)
    }

    pub(crate) fn by_name(&self, name: &Name) -> Option<AssociationId> {
        self.by_name.get(name).copied()
    }

    /// A socket's own, the oldest first.
    pub(crate) fn owned(&self, owner: SocketId) -> Vec<AssociationId> {
        self.owned.get(&owner).cloned().unwrap_or_default()
    }

    pub(crate) fn recent_by_name(&mut self, name: &Name) -> Option<AssociationId> {
        let place = name.spi.0 as usize % RECENT;
        if let Some(id) = self.recent[place]
            && self.get(id).is_some_and(|entry| Name::of(&entry.association) == *name)
        {
            return Some(id);
        }
        let id = self.by_name(name)?;
        self.recent[place] = Some(id);
        Some(id)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&Name, AssociationId)> {
        self.by_name.iter().map(|(name, id)| (name, *id))
    }

    /// All, in no order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (AssociationId, &Entry)> {
        self.slots.iter().zip(0..).filter_map(|(slot, at)| {
            let (number, entry) = slot.as_ref()?;
            Some((AssociationId { number: *number, slot: at }, &**entry))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Another number whenever an association has come, gone or changed, or may have become unable to seal in another way
    /// than by the time: what was found before may be found no more.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The newest association that is offered for such packets and can still seal.
    pub(crate) fn newest(&self, request: &Request, now: Instant) -> Option<AssociationId> {
        self.offers.newest(request, |id| {
            self.get(id).is_some_and(|entry| {
                entry.association.can_send(now) && request.is_met_by(&entry.association, entry.owner)
            })
        })
    }

    /// When something is due for one of them.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.agenda.first().map(|(due, _)| *due)
    }

    /// Takes one from the agenda for which something is due. [`reschedule`](Self::reschedule) is to be called for it.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<AssociationId> {
        self.agenda.first().filter(|(due, _)| *due <= now)?;
        let (_, id) = self.agenda.pop_first()?;
        self.get_mut(id)?.due = None;
        Some(id)
    }

    /// After its first packet, the lifetime of one counts that was not used before; after its last, it is found no more.
    pub(crate) fn was_used(&mut self, id: AssociationId) {
        let Some(entry) = self.get_mut(id) else { return };
        if !entry.was_used && entry.association.first_used().is_some() {
            entry.was_used = true;
            self.generation += 1;
            self.reschedule(id);
        } else if entry.association.counter.is_used_up() {
            self.generation += 1;
        }
    }

    /// Writes into the agenda when something is due for one, which may be another time than before.
    pub(crate) fn reschedule(&mut self, id: AssociationId) {
        let Some(entry) = self.get_mut(id) else { return };
        let due = entry.association.deadline(entry.told);
        let before = std::mem::replace(&mut entry.due, due);
        if before == due {
            return;
        }
        if let Some(before) = before {
            self.agenda.remove(&(before, id));
        }
        if let Some(due) = due {
            self.agenda.insert((due, id));
        }
    }
}
