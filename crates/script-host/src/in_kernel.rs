//! Scripts that run in the kernel: compiled, attached, and what they have counted.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use linux::bpf::xdp::Mode;
use linux::bpf::{Map, MapKind};
use linux::netlink::Netlink;
use script::compile::account::{self, Accounts};
use script::compile::logging::Line;
use script::compile::{AttachType, CompileError};
use script::vm::{Script, Verdict};

use super::attach_journal::{AttachJournal, Attached};
use super::error::AttachError;
use super::log::unix_ms;
use super::protocol::{Fault, Verdicts};
use super::statistics::Counts;
use crate::attach_point::{AttachPoint, compile_for};
use crate::kernel::{self, Interfaces, Maps};
use config::attachment::Attachment;

/// A script, attached. It is detached when this is dropped.
#[derive(Debug)]
pub(super) struct InKernel {
    attached: Attached,
    counters: Map,
    fault: Map,
    attach_type: AttachType,
    /// Of packets that it hands over.
    mark: Option<u32>,
    /// The programs that may still log, by their numbers: this one and the one before it.
    lines: Vec<(u32, Vec<Line>)>,
    /// What the last error was, and when that was seen.
    seen: Cell<(u64, u64)>,
}

/// A script that the kernel has accepted, not yet attached.
#[derive(Debug)]
pub(super) struct Ready {
    loaded: kernel::Loaded,
    number: u32,
    point: AttachPoint,
    index: u32,
    counters: Map,
    fault: Map,
    attach_type: AttachType,
    mark: Option<u32>,
}

/// Another program for a script, not yet in its place.
#[derive(Debug)]
pub(super) struct Prepared {
    number: u32,
    loaded: kernel::Loaded,
}

impl Ready {
    /// Compiles a script and loads it, with the maps of those that it shares them with: all of it or, with a mark for what
    /// it hands over, what can be.
    ///
    /// # Errors
    /// Why it cannot run in the kernel, or not there.
    pub(super) fn load(
        attachment: &Attachment,
        script: &Script,
        maps: &mut Maps,
        log: account::Log,
        mark: Option<u32>,
    ) -> Result<Self, AttachError> {
        let point = AttachPoint::of(attachment);
        if mark.is_some() {
            point.may_punt()?;
        }
        let (index, has_link) = match &point {
            AttachPoint::Interface { device, .. } | AttachPoint::Xdp(device) => {
                let link = Netlink::open()?.link_by_name(device)?;
                let link = link.ok_or_else(|| AttachError::NoInterface(device.clone()))?;
                (link.index, link.mac.is_some())
            }
            AttachPoint::Netfilter { .. } => (0, false),
        };
        if let AttachPoint::Xdp(device) = &point
            && !has_link
        {
            return Err(AttachError::NoLinkHeader(device.clone()));
        }
        let attach_type = point.attach_type(has_link)?;
        let counters = Map::create(MapKind::PerCpuArray, 4, account::SIZES.0, 1)?;
        let fault = Map::create(MapKind::Array, 4, account::SIZES.1, 1)?;
        let accounts = Accounts { counters: counters.as_raw_fd(), fault: fault.as_raw_fd(), log: Some(log) };
        let loaded = load(attachment, script, maps, attach_type.clone(), accounts, mark)?;
        Ok(Self { loaded, number: log.program, point, index, counters, fault, attach_type, mark })
    }

    /// Attaches it before the others, of which the last loaded are given first.
    pub(super) fn attach<'a>(
        self,
        journal: &mut AttachJournal,
        others: impl IntoIterator<Item = &'a InKernel>,
    ) -> linux::Result<InKernel> {
        let Self { loaded, number, point, index, counters, fault, attach_type, mark } = self;
        let others = others.into_iter().map(|other| &other.attached);
        let attached = journal.attach(&loaded.program, &point, index, others)?;
        let lines = vec![(number, loaded.lines)];
        Ok(InKernel { attached, counters, fault, attach_type, mark, lines, seen: Cell::default() })
    }
}

impl InKernel {
    /// Where it runs, if that is at XDP.
    pub(super) const fn xdp_mode(&self) -> Option<Mode> {
        self.attached.xdp_mode()
    }

    /// Of packets that it hands over.
    pub(super) const fn mark(&self) -> Option<u32> {
        self.mark
    }

    /// Prepares another text of the script, to be [put](Self::replace) in its place.
    pub(super) fn prepare(
        &self,
        attachment: &Attachment,
        script: &Script,
        maps: &mut Maps,
        log: account::Log,
    ) -> Result<Prepared, AttachError> {
        let (counters, fault) = (self.counters.as_raw_fd(), self.fault.as_raw_fd());
        let accounts = Accounts { counters, fault, log: Some(log) };
        let loaded = load(attachment, script, maps, self.attach_type.clone(), accounts, self.mark)?;
        Ok(Prepared { number: log.program, loaded })
    }

    /// Puts another program in its place, between two packets.
    pub(super) fn replace(&mut self, Prepared { number, loaded }: Prepared) -> linux::Result<()> {
        self.lines.insert(0, (number, loaded.lines));
        self.lines.truncate(2);
        self.attached.replace(&loaded.program)
    }

    /// Detaches it.
    pub(super) fn detach(self, journal: &mut AttachJournal) -> linux::Result<()> {
        journal.detach(self.attached)
    }

    /// What a program of this number says with a line of its text and these numbers; nothing if it is another's.
    pub(super) fn said(&self, number: u32, line: usize, numbers: &[i64]) -> Option<String> {
        let (_, lines) = self.lines.iter().find(|(known, _)| *known == number)?;
        Some(lines.get(line)?.text(numbers))
    }

    /// What it has counted.
    pub(super) fn read(&self, path: &Path) -> Counts {
        let counted = self.counters.sum(&[0; 4]).unwrap_or_default();
        let count = |index: usize| counted.get(index).copied().unwrap_or(0);
        let of = |verdict: Verdict| Verdict::ALL.iter().position(|one| *one == verdict).map_or(0, count);
        let value = self.fault.lookup(&[0; 4]).ok().flatten().and_then(|value| value.try_into().ok());
        let value = value.map_or(0, u64::from_ne_bytes);
        if self.seen.get().0 != value {
            self.seen.set((value, unix_ms()));
        }
        let last_error = account::fault(value).map(|(line, failure)| Fault {
            message: format!("{}:{line}: {failure}", path.display()),
            traceback: Vec::new(),
            unix_ms: self.seen.get().1,
        });
        Counts {
            packets: counted.iter().take(account::ERRORS + 1).sum(),
            verdicts: Verdicts {
                nf_drop: of(Verdict::Drop),
                nf_accept: of(Verdict::Accept),
                nf_stolen: of(Verdict::Stolen),
                nf_queue: of(Verdict::Queue),
                nf_repeat: of(Verdict::Repeat),
                xt_continue: of(Verdict::Continue),
            },
            errors: count(account::ERRORS),
            error_lines: BTreeMap::new(),
            last_error,
            ns_per_packet: count(account::SAMPLES + 1).checked_div(count(account::SAMPLES)),
            sent: 0,
            handed_over: count(account::PUNTED),
        }
    }
}

fn load(
    attachment: &Attachment,
    script: &Script,
    maps: &mut Maps,
    attach_type: AttachType,
    accounts: Accounts,
    mark: Option<u32>,
) -> Result<kernel::Loaded, AttachError> {
    let compiled = compile_for(attachment, script, attach_type, mark, Interfaces::Here);
    let compiled = compiled.map_err(|error| match error {
        refused @ CompileError::Refused(_) if attachment.xdp => AttachError::CompileForXdp(refused),
        other => AttachError::Compile(other),
    })?;
    Ok(kernel::load(&compiled, &script.path, maps, Some(accounts))?)
}
