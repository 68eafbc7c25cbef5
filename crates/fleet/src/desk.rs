//! Where questions are answered: at a controller, and at each agent for its peers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::document::{Document, Serial};
use crate::exchange::{Answer, Cursor, Question};
use crate::fleet::{Fleet, Notices, Numbers};
use crate::name::Name;
use crate::news::{News, Taken};

/// How many documents are remembered, to tell changes of: an agent that is further behind is told the newest as a whole.
const DOCUMENTS: usize = 64;

/// A fleet, and in which order it was heard what sites say of themselves.
#[derive(Debug, Clone)]
pub struct Desk {
    fleet: Fleet,
    place: u64,
    /// Where each site's last notice is, and whose is where.
    positions: BTreeMap<Name, u64>,
    order: BTreeSet<(u64, Name)>,
    position: u64,
    old: VecDeque<Arc<Document>>,
}

impl Desk {
    /// A desk at a place, whose number is drawn anew whenever its memory is lost. Controllers that follow one store are one place:
    /// they count by the store's revisions ([`Desk::take_at`]).
    #[must_use]
    pub fn new(fleet: Fleet, place: u64) -> Self {
        let mut desk = Desk {
            fleet,
            place,
            positions: BTreeMap::new(),
            order: BTreeSet::new(),
            position: 0,
            old: VecDeque::new(),
        };
        desk.note(&Numbers::new(), 1);
        desk
    }

    /// What is known here.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Takes news.
    pub fn take(&mut self, news: News) -> Taken {
        self.take_at(news, self.position + 1)
    }

    /// Takes news that others at this place take at the same position, which is none before the last one.
    pub fn take_at(&mut self, news: News, position: u64) -> Taken {
        let touches_notices =
            news.document.is_some() || !news.contacts.is_empty() || !news.networks.is_empty();
        let before = if touches_notices { self.fleet.numbers() } else { Numbers::new() };
        let old = self.fleet.document().cloned();
        let taken = self.fleet.take(news);
        if let Some(old) = old.filter(|old| Some(old.head.serial) != self.fleet.serial()) {
            self.old.push_back(old);
            if self.old.len() > DOCUMENTS {
                self.old.pop_front();
            }
        }
        if touches_notices && taken.is_new {
            self.note(&before, position.max(self.position));
        }
        taken
    }

    /// Notes which sites have said something since.
    fn note(&mut self, before: &Numbers, position: u64) {
        for (name, numbers) in self.fleet.numbers() {
            if before.get(&name) == Some(&numbers) {
                continue;
            }
            self.position = position;
            if let Some(last) = self.positions.insert(name.clone(), position) {
                self.order.remove(&(last, name.clone()));
            }
            self.order.insert((position, name));
        }
    }

    /// How far notices were heard here.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The answer to a member, or nothing while there is nothing that it lacks and it may wait. Whoever is no member is answered,
    /// too: with the document that says so, and without how anybody is met.
    #[must_use]
    pub fn answer(&self, who: &Name, question: &Question, is_late: bool) -> Option<Answer> {
        let heard = question.since.filter(|since| since.place == self.place).map(|since| since.position);
        let since = Cursor { place: self.place, position: self.position };
        let later: BTreeSet<Name>;
        let notices = match heard {
            Some(position) => {
                let names = self.order.iter().rev().take_while(|(at, _)| *at > position);
                later = names.map(|(_, name)| name.clone()).collect();
                Notices::Of(&later)
            }
            None => Notices::All,
        };
        let have = &question.have;
        let old = have.serial.and_then(|serial| self.document(serial));
        let news = self.fleet.news_for(who, have, old, notices);
        // What is news to others only wakes nobody; it is passed over the next time.
        (news != News::default() || heard.is_none() || is_late).then_some(Answer { news, since })
    }

    /// A document that is remembered.
    fn document(&self, serial: Serial) -> Option<&Document> {
        self.old.iter().map(|old| &**old).find(|old| old.head.serial == serial)
    }
}
