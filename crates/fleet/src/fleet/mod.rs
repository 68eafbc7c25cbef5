//! What is known of a fleet: the same at a site, at a controller and in an administrator's hands.
//!
//! All of it only grows: authorities by one after the other, documents to higher serials, notices to higher numbers, and what
//! delegates allow until the next document. So it does not matter who tells it, in which order and how often; what is older is
//! passed over, and what is forged is refused. Nothing ever expires.

mod delegates;
mod notices;
mod tell;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::authority::{Authority, AuthorityError, Chain, NetworkId};
use crate::claims::Claims;
use crate::document::{Change, Contents, Document, Head, Serial};
use crate::key::VerifyingKey;
use crate::line::Line;
use crate::name::Name;
use crate::news::{DocumentNews, Have, News, Refusal, Taken};
use crate::notice::{ContactNotice, DelegatedLines, NetworksNotice};
use crate::settings::Settings;
use crate::signed::Signed;
use crate::site::{Contact, Member, Told};
use delegates::Delegations;

pub use tell::{Notices, Numbers, Old};

/// What is known of a fleet.
#[derive(Debug, Clone)]
pub struct Fleet {
    chain: Chain,
    document: Option<Arc<Document>>,
    /// What delegates allow with the document.
    delegated: Delegations,
    contacts: BTreeMap<Name, Held<ContactNotice>>,
    networks: BTreeMap<Name, Held<NetworksNotice>>,
    /// What all of these have to themselves.
    claims: Claims,
}

/// A notice with what was signed.
#[derive(Debug, Clone)]
struct Held<T> {
    signed: Signed<T>,
    notice: T,
    /// Whose signature was verified.
    by: VerifyingKey,
}

/// A site as it is now.
#[derive(Debug, Clone)]
pub struct Current<'f> {
    /// What every member knows, with the networks that it says it has.
    pub member: Cow<'f, Member>,
    /// How it is met, if that is known here.
    pub contact: Option<&'f Contact>,
}

impl Fleet {
    /// A fleet of which its authorities are known.
    #[must_use]
    pub fn new(chain: Chain) -> Self {
        Fleet {
            chain,
            document: None,
            delegated: Delegations::default(),
            contacts: BTreeMap::new(),
            networks: BTreeMap::new(),
            claims: Claims::default(),
        }
    }

    /// What somebody has kept of a fleet ([`Fleet::memory`]). A document that he took is his, whoever may sign
    /// by now. Of the rest he has what does not collide: others tell him that again, and without a start he would hear nothing.
    ///
    /// # Errors
    /// If it is not what can have been kept.
    pub fn restore(
        network: NetworkId,
        authorities: &[Signed<Authority>],
        mut news: News,
    ) -> Result<Self, Refusal> {
        let version = match &news.document {
            Some(document) => usize::try_from(document.head.read()?.authority).unwrap_or(usize::MAX),
            None => authorities.len(),
        };
        let (then, since) = authorities.split_at(version.min(authorities.len()));
        let chain = Chain::of(network, then.iter().cloned()).map_err(Refusal::Authority)?;
        let mut fleet = Fleet::new(chain);
        let document = News { document: news.document.take(), ..News::default() };
        news.authorities = since.to_vec();
        for part in [document, news] {
            let is_of_one = |refusal: &Refusal| {
                matches!(refusal, Refusal::Delegate { .. } | Refusal::NoDelegate | Refusal::Notice { .. })
            };
            let mut refused = fleet.take(part).refused.into_iter();
            if let Some(refusal) = refused.find(|refusal| !is_of_one(refusal)) {
                return Err(refusal);
            }
        }
        Ok(fleet)
    }

    /// Who may sign.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Which network it is.
    #[must_use]
    pub fn network(&self) -> NetworkId {
        self.chain.network()
    }

    /// The newest document.
    #[must_use]
    pub fn document(&self) -> Option<&Arc<Document>> {
        self.document.as_ref()
    }

    /// The settings of the newest document.
    #[must_use]
    pub fn settings(&self) -> Option<&Settings> {
        self.document.as_ref().map(|document| document.contents.settings())
    }

    /// The serial of the newest document.
    #[must_use]
    pub fn serial(&self) -> Option<Serial> {
        self.document.as_ref().map(|document| document.head.serial)
    }

    /// What is known here.
    #[must_use]
    pub fn have(&self) -> Have {
        let (authority, delegated) = (self.chain.current().version, self.delegated.digest());
        Have { authority, serial: self.serial(), delegated }
    }

    /// Takes what is new in news. What is refused leaves everything as it was, and does not keep the rest from being taken.
    pub fn take(&mut self, news: News) -> Taken {
        let mut taken = Taken::default();
        for authority in news.authorities {
            taken.note(self.take_authority(authority));
        }
        if let Some(document) = news.document {
            taken.note(self.take_document(document));
        }
        // A site that comes and goes under one document comes first, whatever the order that it is told in.
        let (adds, others): (Vec<_>, Vec<_>) = news.delegated.into_iter().partition(DelegatedLines::adds);
        for lines in adds.into_iter().chain(others) {
            taken.note(self.take_delegated(lines));
        }
        self.take_notices(news.networks, news.contacts, &mut taken);
        taken
    }

    /// Where a site takes what another gives up, and a third what that one does, all may be told at once, in any order.
    fn take_notices(
        &mut self,
        mut networks: Vec<Signed<NetworksNotice>>,
        mut contacts: Vec<Signed<ContactNotice>>,
        taken: &mut Taken,
    ) {
        for is_last in [false, false, true] {
            let (mut later_networks, mut later_contacts) = (Vec::new(), Vec::new());
            for notice in networks {
                match self.take_networks(notice.clone()) {
                    Err(Refusal::Notice { .. }) if !is_last => later_networks.push(notice),
                    result => taken.note_said(result),
                }
            }
            for notice in contacts {
                match self.take_contact(notice.clone()) {
                    Err(Refusal::Notice { .. }) if !is_last => later_contacts.push(notice),
                    result => taken.note_said(result),
                }
            }
            (networks, contacts) = (later_networks, later_contacts);
        }
    }

    fn take_authority(&mut self, signed: Signed<Authority>) -> Result<bool, Refusal> {
        match self.chain.extend(signed) {
            Ok(()) => {
                // Until the next document stays what delegates allowed who, and whose limits, are what they were.
                self.judge_delegated_again();
                Ok(true)
            }
            Err(AuthorityError::Sequence { found, known }) if found <= known => Ok(false),
            Err(error) => Err(Refusal::Authority(error)),
        }
    }

    fn take_document(&mut self, news: DocumentNews) -> Result<bool, Refusal> {
        let DocumentNews { head: mut signed, change } = news;
        let head = signed.read()?;
        let serial = head.serial;
        if head.network != self.network() {
            return Err(Refusal::Foreign);
        }
        match &self.document {
            Some(known) if known.head.serial > serial => return Ok(false),
            Some(known) if known.head.serial == serial => {
                if known.signed.digest() != signed.digest() {
                    self.chain.current().verify(&signed).map_err(Refusal::Document)?;
                    return Err(Refusal::Fork(serial));
                }
                // With the signatures that were verified: who tells more of it may have left them out.
                signed = known.signed.clone();
            }
            _ => self.check_signatures(&signed, &head)?,
        }
        self.put_document(signed, head, change)
    }

    /// What would be known if this was signed by who has to, and nothing of it refused: to show what it would do, and for that
    /// alone.
    ///
    /// # Errors
    /// If it could not be taken whoever had signed it.
    pub fn supposing(&self, news: &News) -> Result<Fleet, Refusal> {
        let mut supposed = self.clone();
        for authority in &news.authorities {
            supposed.chain.suppose(authority.clone()).map_err(Refusal::Authority)?;
        }
        if let Some(DocumentNews { head: signed, change }) = news.document.clone() {
            let head = signed.read()?;
            supposed.put_document(signed, head, change)?;
        }
        for lines in &news.delegated {
            supposed.take_delegated(lines.clone())?;
        }
        Ok(supposed)
    }

    /// Puts a document in the place of the one that is known: its signatures have been verified.
    fn put_document(&mut self, signed: Signed<Head>, head: Head, change: Change) -> Result<bool, Refusal> {
        let serial = head.serial;
        let known = self.document.as_deref();
        let before = match change.from {
            Some(from) => {
                let known = known.filter(|known| known.head.serial == from);
                Some((&known.ok_or(Refusal::Gap(serial))?.contents, &**self.claims.members()))
            }
            None => None,
        };
        let refused = |why| Refusal::Contents { serial, why };
        let (mut contents, members) = Contents::after(before, change).map_err(refused)?;
        if contents.digest() != head.contents {
            return Err(Refusal::NotSigned(serial));
        }
        let is_same = known.is_some_and(|known| known.head.serial == serial);
        if let Some(known) = known {
            contents.learn_from(&known.contents);
            // More may be told of the same document.
            if is_same && known.contents.knows_all_of(&contents) {
                return Ok(false);
            }
        }
        let mut claims = Claims::of(Arc::new(members));
        contents.claim_contacts(&mut claims).map_err(refused)?;
        self.claims = claims;
        self.document = Some(Arc::new(Document { signed, head, contents }));
        if !is_same {
            self.delegated.clear();
        }
        self.judge_notices_again();
        Ok(true)
    }

    fn check_signatures(&self, signed: &Signed<Head>, head: &Head) -> Result<(), Refusal> {
        let (found, known) = (head.authority, self.chain.current().version);
        if found != known {
            return Err(Refusal::Authorship { serial: head.serial, found, known });
        }
        self.chain.current().verify(signed).map_err(Refusal::Document)
    }

    /// The sites as they are now, by their names: as administrators and delegates have signed them, with what each says of
    /// itself.
    #[must_use]
    pub fn sites(&self) -> BTreeMap<&Name, Current<'_>> {
        let in_document = self.document.iter().flat_map(|document| document.contents.all());
        // Of two of one name the later one counts.
        let granted = self.delegated.sites().chain(in_document);
        granted.map(|site| (site.name(), self.current(site))).collect()
    }

    /// One of them.
    #[must_use]
    pub fn site(&self, name: &Name) -> Option<Current<'_>> {
        self.granted(name).map(|granted| self.current(granted))
    }

    fn current<'f>(&'f self, granted: Told<'f>) -> Current<'f> {
        let name = granted.name();
        let mut member = Cow::Borrowed(granted.member.value());
        if let Some(since) = self.delegated.revoked(name) {
            member.to_mut().revoked = Some(since);
        }
        if let Some(held) = self.networks.get(name) {
            let member = member.to_mut();
            member.networks.clone_from(&held.notice.networks);
            member.address = held.notice.address;
        }
        let said = self.contacts.get(name).map(|held| &held.notice.contact);
        Current { member, contact: said.or(granted.contact.map(Line::value)) }
    }

    /// A site as administrators or a delegate have signed it.
    fn granted(&self, name: &Name) -> Option<Told<'_>> {
        let in_document = self.document.as_ref().and_then(|document| document.contents.told_of(name));
        in_document.or_else(|| self.delegated.site(name))
    }

    /// Shares in memory what is the same in what another knows: for who has many in one process.
    pub fn share(&mut self, other: &Fleet) {
        let (Some(own), Some(others)) = (&mut self.document, &other.document) else { return };
        if own.signed.digest() == others.signed.digest() {
            Arc::make_mut(own).contents.share(&others.contents);
            self.claims.share(other.claims.members());
        }
    }
}
