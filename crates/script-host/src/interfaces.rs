//! Programs at interfaces that go and come: the kernel detaches a program with its interface, and nobody attaches it to the
//! next one of that name but this. Until then its packets are dropped, or pass, as those of a script that does not run.

use std::time::{Duration, Instant};

use linux::netlink::{Link, Netlink};
use tracing::{info, warn};

use super::error::AttachError;
use super::kernel::Maps;
use super::rules::{self, Hold};
use super::{Host, Script};
use crate::attach_point::AttachPoint;

/// How long until it is tried again where an interface has not taken its program.
const AGAIN: Duration = Duration::from_secs(10);

impl Host {
    /// Has programs at the interfaces that have their names now. `gone`: the numbers of some that have gone, of which another
    /// one may have got one.
    pub(super) fn follow_interfaces(&mut self, gone: &[u32]) {
        self.attach_due = None;
        let is_at_one = |script: &Script| {
            script.runs.kernel().is_some() && AttachPoint::of(&script.attachment).device().is_some()
        };
        if !self.scripts.iter().any(is_at_one) {
            return;
        }
        let links = match Netlink::open().and_then(|mut netlink| netlink.links()) {
            Ok(links) => links,
            Err(error) => {
                warn!("scripts stay at interfaces as they were: {error}");
                self.attach_due = Some(Instant::now() + AGAIN);
                return;
            }
        };
        for at in 0..self.scripts.len() {
            if is_at_one(&self.scripts[at]) {
                self.follow_interface(at, &links, gone);
            }
        }
    }

    fn follow_interface(&mut self, at: usize, links: &[Link], gone: &[u32]) {
        let Script { id, attachment, runs, .. } = &self.scripts[at];
        let (id, file) = (*id, attachment.file.display().to_string());
        let point = AttachPoint::of(attachment);
        let (Some(device), Some(in_kernel)) = (point.device(), runs.kernel()) else { return };
        let link = links.iter().find(|link| link.name == device);
        let index = in_kernel.index();
        if let (Some(index), Some(link)) = (index, link)
            && link.index == index
            && !gone.contains(&index)
        {
            return;
        }
        if index.is_some() {
            self.not_attached(at, &AttachError::NoInterface(device.to_owned()).to_string());
        }
        let Some(link) = link else { return };
        match self.attach_to(at, &point, link) {
            Ok(()) => {
                let what = format!("attached to {device} again");
                info!(event = "script_attached", script = id, "{file}: script {id} is {what}");
                self.common.log.add(id, &what);
                if let Err(error) = rules::let_go(Hold::NotAttached(id)) {
                    warn!("{file}: its packets are still dropped: {error}");
                }
            }
            Err(error) => {
                self.not_attached(at, &error.to_string());
                self.attach_due = Some(Instant::now() + AGAIN);
            }
        }
    }

    /// Detaches a script from an interface that has not its name any more, or notes why it still is not attached.
    fn not_attached(&mut self, at: usize, why: &str) {
        let Script { id, attachment, runs, .. } = &mut self.scripts[at];
        let (id, file) = (*id, attachment.file.display());
        let Some(in_kernel) = runs.kernel_mut() else { return };
        if in_kernel.not_attached() == Some(why) {
            return;
        }
        // First, so that none passes in between.
        if let Err(error) = rules::hold(Hold::NotAttached(id), attachment) {
            warn!("{file}: packets pass without script {id}: {error}");
        }
        if let Err(error) = in_kernel.detached(&mut self.attach_journal, why) {
            warn!("{file}: script {id}: {error}");
        }
        let packets = if attachment.fail_open { "pass" } else { "are dropped" };
        let what = format!("not attached, and its packets {packets}: {why}");
        warn!(event = "script_detached", script = id, "{file}: script {id} is {what}");
        self.common.log.add(id, &what);
    }

    fn attach_to(&mut self, at: usize, point: &AttachPoint, link: &Link) -> Result<(), AttachError> {
        let has_link = link.mac.is_some();
        if let AttachPoint::Xdp(device) = point
            && !has_link
        {
            return Err(AttachError::NoLinkHeader(device.clone()));
        }
        let attach_type = point.attach_type(has_link)?;
        if self.scripts[at].runs.kernel().is_some_and(|in_kernel| !in_kernel.is_for(&attach_type)) {
            let log = self.next_log()?;
            let mut maps = self.maps_of(&self.scripts[at]);
            let Script { attachment, runs, .. } = &mut self.scripts[at];
            if let Some(in_kernel) = runs.kernel_mut() {
                in_kernel.compile_again(attachment, &mut maps, &self.common.links, log, attach_type)?;
            }
        }
        let (before, rest) = self.scripts.split_at_mut(at);
        // Those that were loaded later have their places before it.
        let others = before.iter().rev().filter_map(|script| script.runs.kernel());
        let Some(in_kernel) = rest.first_mut().and_then(|script| script.runs.kernel_mut()) else {
            return Ok(());
        };
        Ok(in_kernel.attach_again(&mut self.attach_journal, point, link.index, others)?)
    }

    /// The maps of a script in the kernel: a copy, for the same text once more.
    pub(super) fn maps_of(&self, script: &Script) -> Maps {
        match script.runs.user() {
            Some(threads) => threads.own.lock().clone(),
            None => {
                let of_state = self.maps.iter().find(|(key, _)| *key == script.key);
                of_state.map_or_else(Maps::default, |(_, maps)| maps.clone())
            }
        }
    }
}
