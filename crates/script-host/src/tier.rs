//! In which tier a script comes to run: in the kernel, in Lua, or in both, where the kernel hands over to Lua.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use linux::bpf::attach::Direction;
use linux::bpf::{Map, MapKind, Ring};
use script::compile::account;
use script::vm;
use script::vm::traced::with_twins;
use tracing::{info, warn};

use super::decided::OwnMaps;
use super::error::AttachError;
use super::group::{Group, Key, link_is_enough};
use super::in_kernel::Ready;
use super::order::Place;
use super::runs::{InThreads, Runs};
use super::statistics::Statistics;
use super::{Host, RING, SETTLE, Script, rules};
use crate::attach_point::{AttachPoint, MOST_PUNTS, PUNT_MARK, netfilter_hook, priority};
use crate::kernel::Maps;
use config::attachment::{Attachment, Tier};

impl Host {
    /// Has a script run where it was asked for, with `auto` in the best of the tiers that can have it.
    pub(super) fn attach(
        &mut self,
        id: u32,
        attachment: &Attachment,
        script: &vm::Script,
        key: &Key,
    ) -> Result<Runs, AttachError> {
        let path = attachment.file.display();
        match attachment.tier {
            Tier::Auto | Tier::Kernel if attachment.xdp => self.attach_in_kernel(id, attachment, script, key),
            Tier::Kernel => self
                .attach_in_kernel(id, attachment, script, key)
                .map_err(|error| self.or_in_part(attachment, script, error)),
            Tier::Both => self.attach_in_both(id, attachment, script, key),
            Tier::User => self.attach_in_user_tier(id, attachment, script, key),
            Tier::Auto => self.attach_in_kernel(id, attachment, script, key).or_else(|why| {
                info!("{path}: not all of it runs in the kernel: {why}");
                self.attach_in_both(id, attachment, script, key).or_else(|why| {
                    info!("{path}: runs in the user tier: {why}");
                    self.attach_in_user_tier(id, attachment, script, key)
                })
            }),
        }
    }

    /// A script at the same interface that was loaded before and comes first nevertheless: packets that come in are the
    /// kernel's first, and those that leave are Lua's first.
    pub(super) fn first_nevertheless(&self, id: u32, attachment: &Attachment, runs: &Runs) -> Option<u32> {
        let point = AttachPoint::of(attachment);
        let AttachPoint::Interface { direction, .. } = point else { return None };
        let late = |runs: &Runs| runs.kernel().is_some() == (direction == Direction::Egress);
        let early = |other: &&Script| !late(&other.runs) && AttachPoint::of(&other.attachment) == point;
        self.scripts.iter().filter(|other| other.id < id && late(runs)).find(early).map(|other| other.id)
    }

    /// Why a script does not run in the kernel as a whole, and whether a part of it would.
    fn or_in_part(
        &mut self,
        attachment: &Attachment,
        script: &vm::Script,
        error: AttachError,
    ) -> AttachError {
        let Ok(log) = self.next_log() else { return error };
        match Ready::load(
            attachment,
            script,
            &mut Maps::default(),
            &self.common.links,
            log,
            Some(PUNT_MARK | 1),
        ) {
            Ok(_) => AttachError::InPart(Box::new(error)),
            Err(_) => error,
        }
    }

    /// In the kernel, if it can be compiled and what it shares is there, too.
    fn attach_in_kernel(
        &mut self,
        id: u32,
        attachment: &Attachment,
        script: &vm::Script,
        key: &Key,
    ) -> Result<Runs, AttachError> {
        let in_user_tier = |other: &&Script| other.key == *key && other.runs.user().is_some();
        if let Some(other) = self.scripts.iter().find(in_user_tier) {
            return Err(AttachError::StateInUserTier(other.id));
        }
        let log = self.next_log()?;
        let at = self.maps.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
            self.maps.push((key.clone(), Maps::default()));
            self.maps.len() - 1
        });
        let mut maps = self.maps[at].1.clone();
        let ready = Ready::load(attachment, script, &mut maps, &self.common.links, log, None)?;
        let told = ready.fill()?;
        self.maps[at].1 = maps;
        self.tell(id, &told);
        self.restore(key, false);
        let others = self.scripts.iter().rev().filter_map(|script| script.runs.kernel());
        Ok(Runs::Kernel(ready.attach(&mut self.attach_journal, others)?))
    }

    /// In the kernel as far as that goes, and in the user tier with the packets that are handed over. It is in the user
    /// tier that its tables are; what its rule takes of maps is nobody else's, and the program keeps it.
    fn attach_in_both(
        &mut self,
        id: u32,
        attachment: &Attachment,
        script: &vm::Script,
        key: &Key,
    ) -> Result<Runs, AttachError> {
        let taken = |mark| self.scripts.iter().any(|script| script.runs.mark() == Some(mark));
        let mark = (0..MOST_PUNTS).map(|bit| PUNT_MARK | 1 << bit).find(|mark| !taken(*mark));
        let mark = mark.ok_or(AttachError::MarksTaken(MOST_PUNTS))?;
        let log = self.next_log()?;
        let own = OwnMaps::default();
        let ready = Ready::load(attachment, script, &mut own.lock(), &self.common.links, log, Some(mark))?;
        ready.fill()?;
        let threads = self.attach_to_queues(id, attachment, script, key, Some((mark, own)))?;
        let others = self.scripts.iter().rev().filter_map(|script| script.runs.kernel());
        match ready.attach(&mut self.attach_journal, others) {
            Ok(in_kernel) => Ok(Runs::Both(in_kernel, threads)),
            Err(error) => {
                // The first error is the one to tell.
                let _ = self.leave_queues(id, key, &threads);
                Err(error.into())
            }
        }
    }

    fn attach_in_user_tier(
        &mut self,
        id: u32,
        attachment: &Attachment,
        script: &vm::Script,
        key: &Key,
    ) -> Result<Runs, AttachError> {
        self.attach_to_queues(id, attachment, script, key, None).map(Runs::User)
    }

    /// Where the next program in the kernel logs.
    pub(super) fn next_log(&mut self) -> linux::Result<account::Log> {
        let ring = match self.ring.take() {
            Some(ring) => ring,
            None => Ring::create(RING)?,
        };
        let scratch = match self.scratch.take() {
            Some(scratch) => scratch,
            None => Map::create(MapKind::PerCpuArray, 4, account::SCRATCH, 1)?,
        };
        self.last_program += 1;
        let (ring_fd, scratch_fd) = (ring.as_raw_fd(), scratch.as_raw_fd());
        let log =
            account::Log { ring: ring_fd, program: self.last_program, scratch: scratch_fd, followed: 0 };
        self.scratch = Some(scratch);
        self.ring = Some(ring);
        Ok(log)
    }

    fn attach_to_queues(
        &mut self,
        id: u32,
        attachment: &Attachment,
        script: &vm::Script,
        key: &Key,
        handed_over: Option<(u32, OwnMaps)>,
    ) -> Result<InThreads, AttachError> {
        link_is_enough(attachment, &script.source)?;
        let shares = |other: &&Script| other.key == *key && other.runs.user().is_none();
        if let Some(other) = self.scripts.iter().find(shares)
            && self.maps.iter().any(|(known, maps)| known == key && !maps.is_empty())
        {
            return Err(AttachError::TablesInKernel(other.id));
        }
        if self.group(key).is_none() {
            self.groups.push(Group::start(key.clone(), self.threads, &self.common)?);
        }
        let slot = self.slots.take();
        let place = self.attach_journal.order.chain(netfilter_hook(attachment), priority(attachment));
        let (mark, own) = handed_over.unzip();
        let own = own.unwrap_or_default();
        let listening = self.listen(id, (slot, place), attachment, script, key, (mark, &own));
        if listening.is_err() {
            self.slots.free(slot);
            self.attach_journal.order.give_back(place);
        }
        listening.map(|statistics| InThreads { statistics, slot, place, own })
    }

    fn listen(
        &self,
        id: u32,
        (slot, place): (usize, Place),
        attachment: &Attachment,
        script: &vm::Script,
        key: &Key,
        (mark, own): (Option<u32>, &OwnMaps),
    ) -> Result<Arc<Statistics>, AttachError> {
        let Some(group) = self.group(key) else { return Err(AttachError::ThreadsEnded) };
        let statistics = Arc::new(Statistics::new(id, self.common.log.clone()));
        let script = &vm::Script { source: with_twins(&script.source), ..script.clone() };
        group.load(id, script, attachment, &statistics, own)?;
        self.restore(key, true);
        let attached = self.slots.listen(slot, attachment.fail_open).and_then(|sockets| {
            group.listen(id, sockets);
            rules::add(id, attachment, &self.slots.queues(slot), place, mark)
        });
        attached.inspect_err(|_| {
            group.remove(id);
        })?;
        Ok(statistics)
    }

    /// Gives a script no more packets, and forgets it when what waits for it is done.
    pub(super) fn leave_queues(&mut self, id: u32, key: &Key, threads: &InThreads) -> linux::Result<()> {
        rules::stop(id)?;
        std::thread::sleep(SETTLE);
        if self.group(key).is_none_or(|group| group.remove(id)) {
            self.slots.free(threads.slot);
        }
        if let Err(error) = rules::remove(id) {
            // They give nothing to anybody any more, and go with the host's table.
            warn!("script {id}: {error}");
        }
        self.attach_journal.order.give_back(threads.place);
        Ok(())
    }
}
