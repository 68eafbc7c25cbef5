//! Where questions are answered: at a controller, and at each agent for its peers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use crate::document::{Document, Serial};
use crate::exchange::{Answer, Cursor, Question};
use crate::fleet::{Fleet, Notices, Old};
use crate::name::Name;
use crate::news::{News, Taken};

/// How many documents are remembered, to tell changes of: who is further behind is told the newest as a whole.
const DOCUMENTS: usize = 64;
/// How many of them an agent remembers: its peers are told the same by others, and each may be as large as the fleet.
const OF_AGENT: usize = 8;

/// A fleet, and in which order it was heard what sites say of themselves.
#[derive(Debug, Clone)]
pub struct Desk {
    fleet: Fleet,
    place: u64,
    /// Where each site's last notice is, and whose is where.
    positions: BTreeMap<Name, u64>,
    order: BTreeSet<(u64, Name)>,
    position: u64,
    old: VecDeque<Remembered>,
    /// How many of them are kept.
    kept: usize,
}

/// A document that was the newest.
#[derive(Debug, Clone)]
struct Remembered {
    document: Arc<Document>,
    /// The sites that are different in the newest: they are looked for among all when the first asks who has this one.
    different: OnceLock<BTreeSet<Name>>,
}

impl Desk {
    /// A desk at a place, whose number is drawn anew whenever its memory is lost. Controllers that follow one store are one place:
    /// they count by the store's revisions ([`Desk::take_at`]).
    #[must_use]
    pub fn new(fleet: Fleet, place: u64) -> Self {
        let names: Vec<Name> = fleet.numbers().into_keys().collect();
        let mut desk = Desk {
            fleet,
            place,
            positions: BTreeMap::new(),
            order: BTreeSet::new(),
            position: 0,
            old: VecDeque::new(),
            kept: DOCUMENTS,
        };
        desk.note(names, 1);
        desk
    }

    /// An agent's.
    #[must_use]
    pub fn of_agent(fleet: Fleet, place: u64) -> Self {
        Desk { kept: OF_AGENT, ..Desk::new(fleet, place) }
    }

    /// What is known here.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Shares in memory what is the same in what another knows ([`Fleet::share`]).
    pub fn share(&mut self, other: &Fleet) {
        self.fleet.share(other);
    }

    /// Takes news.
    pub fn take(&mut self, news: News) -> Taken {
        self.take_at(news, self.position + 1)
    }

    /// Takes news that others at this place take at the same position, which is none before the last one.
    pub fn take_at(&mut self, news: News, position: u64) -> Taken {
        let old = self.fleet.document().cloned();
        let mut taken = self.fleet.take(news);
        if let Some(old) = old.filter(|old| Some(old.head.serial) != self.fleet.serial()) {
            self.remember(old);
        }
        let said = std::mem::take(&mut taken.said);
        if !said.is_empty() {
            self.note(said, position.max(self.position));
        }
        taken
    }

    fn remember(&mut self, document: Arc<Document>) {
        for old in &mut self.old {
            old.different.take();
        }
        self.old.push_back(Remembered { document, different: OnceLock::new() });
        if self.old.len() > self.kept {
            self.old.pop_front();
        }
    }

    /// Notes which sites have said something since.
    fn note(&mut self, names: Vec<Name>, position: u64) {
        for name in names {
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
        // Who was told that he has heard what was never said here was lied to, or this controller is behind another.
        let is_here = |since: &Cursor| since.place == self.place && since.position <= self.position;
        let heard = question.since.filter(is_here).map(|since| since.position);
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
    fn document(&self, serial: Serial) -> Option<Old<'_>> {
        let Remembered { document, different } =
            self.old.iter().find(|old| old.document.head.serial == serial)?;
        let newest = &self.fleet.document()?.contents;
        let different = different.get_or_init(|| newest.different_from(&document.contents));
        Some(Old { document, different: Some(different) })
    }
}
