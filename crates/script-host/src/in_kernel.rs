//! Scripts that run in the kernel: compiled, attached, and what they have counted.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use linux::bpf::xdp::Mode;
use linux::bpf::{Map, MapKind, Program, RunTime};
use linux::netlink::Netlink;
use script::compile::account::{self, Accounts};
use script::compile::logging::Said;
use script::compile::{AttachType, CompileError};
use script::logged::Logged;
use script::matching::Rule;
use script::metric::Metric;
use script::vm::{Script, Verdict};

use super::attach_journal::{AttachJournal, Attached};
use super::error::AttachError;
use super::links::Links;
use super::log::unix_ms;
use super::mirrors::MirrorError;
use super::protocol::{Fault, Traces, Verdicts};
use super::statistics::Counts;
use super::traces::{Trace, Wanted};
use crate::attach_point::{AttachPoint, compile_followed, compile_for};
use crate::kernel::{self, Interfaces, Maps, Says};
use config::attachment::Attachment;

/// A script, attached. It is detached when this is dropped.
#[derive(Debug)]
pub(super) struct InKernel {
    /// Or why it is not: its interface has gone, or another one of its name does not take it.
    attached: Result<Attached, String>,
    /// As it was loaded: its file may have become another since.
    script: Script,
    counters: Map,
    fault: Map,
    attach_type: AttachType,
    /// Of packets that it hands over.
    mark: Option<u32>,
    /// The programs that may still log, by their numbers, this one first.
    lines: Vec<(u32, Says)>,
    /// What it counts that metrics export.
    exports: Vec<Arc<Metric>>,
    program: Program,
    /// What the last error was, and when that was seen.
    seen: Cell<(u64, u64)>,
    /// The numbers of the interfaces that it copies packets to.
    mirrors: Option<Mirrors>,
    /// Packets that are followed, or were.
    tracing: Option<Tracing>,
}

/// A program that has made way for one with points.
#[derive(Debug)]
struct Plain {
    program: Program,
    mirrors: Option<Mirrors>,
}

/// A trace, and what comes back when it ends; nothing once it has.
#[derive(Debug)]
struct Tracing {
    /// Of the program with points.
    number: u32,
    trace: Trace,
    plain: Option<Plain>,
    /// How many packets may yet be followed: the program counts them down.
    followed: Map,
}

/// Interfaces that a program copies packets to: their names, and the map that has their numbers.
#[derive(Debug)]
struct Mirrors {
    names: Vec<String>,
    map: Map,
    /// Those that are not there, as far as that was told.
    missing: Vec<String>,
}

/// A script that the kernel has accepted, not yet attached.
#[derive(Debug)]
pub(super) struct Ready {
    loaded: kernel::Loaded,
    number: u32,
    script: Script,
    point: AttachPoint,
    index: u32,
    counters: Map,
    fault: Map,
    attach_type: AttachType,
    mark: Option<u32>,
    mirrors: Option<Mirrors>,
}

/// Another program for a script, not yet in its place.
#[derive(Debug)]
pub(super) struct Prepared {
    number: u32,
    script: Script,
    loaded: kernel::Loaded,
    mirrors: Option<Mirrors>,
}

impl Mirrors {
    fn new(names: &[String]) -> linux::Result<Option<Self>> {
        let Ok(count @ 1..) = u32::try_from(names.len()) else { return Ok(None) };
        Ok(Some(Self {
            names: names.to_vec(),
            map: Map::create(MapKind::Array, 4, account::MIRROR, count)?,
            missing: Vec::new(),
        }))
    }

    /// Writes the numbers that the interfaces have now. The names of those that are not there.
    fn point(&self, links: &Links) -> linux::Result<Vec<String>> {
        let mut missing = Vec::new();
        for (place, name) in (0_u32..).zip(&self.names) {
            let link = links.find(name)?;
            if link.is_none() {
                missing.push(name.clone());
            }
            let number = link.map_or(0, |link| link.index);
            self.map.set(&place.to_ne_bytes(), &number.to_ne_bytes())?;
        }
        Ok(missing)
    }
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
        links: &Links,
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
        let counted = (counters.as_raw_fd(), fault.as_raw_fd(), log);
        let (loaded, mirrors) =
            load(attachment, script, maps, links, attach_type.clone(), counted, mark, None)?;
        let (number, script) = (log.program, script.clone());
        Ok(Self { loaded, number, script, point, index, counters, fault, attach_type, mark, mirrors })
    }

    /// Puts into its maps what they are to have, before it is attached.
    pub(super) fn fill(&self) -> linux::Result<Vec<String>> {
        self.loaded.fill()
    }

    /// Attaches it before the others, of which the last loaded are given first.
    pub(super) fn attach<'a>(
        self,
        journal: &mut AttachJournal,
        others: impl IntoIterator<Item = &'a InKernel>,
    ) -> linux::Result<InKernel> {
        let Self { loaded, number, script, point, index, counters, fault, attach_type, mark, mirrors } = self;
        let others = others.into_iter().filter_map(|other| other.attached.as_ref().ok());
        let kernel::Loaded { program, says, exports, .. } = loaded;
        let attached = Ok(journal.attach(&program, &point, index, others)?);
        let lines = vec![(number, says)];
        let seen = Cell::default();
        let tracing = None;
        Ok(InKernel {
            attached,
            script,
            counters,
            fault,
            attach_type,
            mark,
            lines,
            exports,
            program,
            seen,
            mirrors,
            tracing,
        })
    }
}

impl InKernel {
    /// Where it runs, if that is at XDP.
    pub(super) fn xdp_mode(&self) -> Option<Mode> {
        self.attached.as_ref().ok()?.xdp_mode()
    }

    /// Why it sees no packets, if it is not attached.
    pub(super) fn not_attached(&self) -> Option<&str> {
        self.attached.as_ref().err().map(String::as_str)
    }

    /// The number of the interface that it is attached to, if it is to one.
    pub(super) fn index(&self) -> Option<u32> {
        self.attached.as_ref().ok()?.index()
    }

    /// Notes why it is attached to its interface no more, or still not.
    pub(super) fn detached(&mut self, journal: &mut AttachJournal, why: &str) -> linux::Result<()> {
        let detached = match std::mem::replace(&mut self.attached, Err(why.to_owned())) {
            Ok(attached) => journal.detach(attached),
            Err(_) => Ok(()),
        };
        // It comes back without points.
        self.end_trace().and(detached)
    }

    /// Attaches it to the interface that has its name now, before others as when it [came](Ready::attach).
    pub(super) fn attach_again<'a>(
        &mut self,
        journal: &mut AttachJournal,
        point: &AttachPoint,
        index: u32,
        others: impl IntoIterator<Item = &'a InKernel>,
    ) -> linux::Result<()> {
        let others = others.into_iter().filter_map(|other| other.attached.as_ref().ok());
        self.attached = Ok(journal.attach(&self.program, point, index, others)?);
        Ok(())
    }

    /// Whether it was compiled for such a place.
    pub(super) fn is_for(&self, attach_type: &AttachType) -> bool {
        self.attach_type == *attach_type
    }

    /// Compiles it once more, for another place, with its tables as they are.
    pub(super) fn compile_again(
        &mut self,
        attachment: &Attachment,
        maps: &mut Maps,
        links: &Links,
        log: account::Log,
        attach_type: AttachType,
    ) -> Result<(), AttachError> {
        let counted = (self.counters.as_raw_fd(), self.fault.as_raw_fd(), log);
        let (loaded, mirrors) =
            load(attachment, &self.script, maps, links, attach_type.clone(), counted, self.mark, None)?;
        self.says_now(log.program, loaded.says);
        (self.program, self.mirrors, self.attach_type) = (loaded.program, mirrors, attach_type);
        Ok(())
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
        links: &Links,
        log: account::Log,
    ) -> Result<Prepared, AttachError> {
        let counted = (self.counters.as_raw_fd(), self.fault.as_raw_fd(), log);
        let (loaded, mirrors) =
            load(attachment, script, maps, links, self.attach_type.clone(), counted, self.mark, None)?;
        Ok(Prepared { number: log.program, script: script.clone(), loaded, mirrors })
    }

    /// Puts the same script with points in its place, between two packets, until the trace is over. Its tables are those
    /// that there are, as they are.
    pub(super) fn trace(
        &mut self,
        attachment: &Attachment,
        maps: &mut Maps,
        links: &Links,
        mut log: account::Log,
        wanted: &Wanted,
    ) -> Result<(), AttachError> {
        if let Err(why) = &self.attached {
            return Err(AttachError::NotAttached(why.clone()));
        }
        let followed = Map::create(MapKind::Array, 4, account::FOLLOWED, 1)?;
        followed.set(&[0; 4], &u64::from(wanted.count).to_ne_bytes())?;
        log.followed = followed.as_raw_fd();
        let counted = (self.counters.as_raw_fd(), self.fault.as_raw_fd(), log);
        let attach_type = self.attach_type.clone();
        let (script, which) = (&self.script, Some(&wanted.rule));
        let (loaded, mirrors) =
            load(attachment, script, maps, links, attach_type, counted, self.mark, which)?;
        self.end_trace()?;
        put(&mut self.attached, &loaded.program)?;
        self.says_now(log.program, loaded.says);
        let plain = Plain {
            program: std::mem::replace(&mut self.program, loaded.program),
            mirrors: std::mem::replace(&mut self.mirrors, mirrors),
        };
        let failure = attachment.failure.verdict();
        let trace = Trace::new(wanted, &self.script, failure, self.lost());
        self.tracing = Some(Tracing { number: log.program, trace, plain: Some(plain), followed });
        Ok(())
    }

    /// Ends a trace, if there is one: the program without points comes back, between two packets. What it has told stays.
    pub(super) fn end_trace(&mut self) -> linux::Result<()> {
        let Some(tracing) = &mut self.tracing else { return Ok(()) };
        let Some(plain) = &tracing.plain else { return Ok(()) };
        // Nothing more is told, even if the other program does not come back yet: that is tried again.
        tracing.followed.set(&[0; 4], &0_u64.to_ne_bytes())?;
        put(&mut self.attached, &plain.program)?;
        let Some(plain) = tracing.plain.take() else { return Ok(()) };
        (self.program, self.mirrors) = (plain.program, plain.mirrors);
        // It was the one before.
        self.lines.swap(0, 1);
        Ok(())
    }

    /// What a program says that has just been attached. Of those before it two may have told what nobody has read yet: the
    /// last one, and the one with points that was between them.
    fn says_now(&mut self, number: u32, says: Says) {
        self.lines.insert(0, (number, says));
        self.lines.truncate(3);
    }

    /// Whether packets are followed.
    pub(super) fn is_traced(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.plain.is_some())
    }

    /// Whether a trace has to end.
    pub(super) fn is_trace_over(&self, now: Instant) -> bool {
        self.is_traced() && self.tracing.as_ref().is_some_and(|tracing| tracing.trace.is_over(now))
    }

    /// What packets were followed since it was asked last.
    pub(super) fn take_traced(&mut self) -> Traces {
        let (lost, goes_on) = (self.lost(), self.is_traced());
        self.tracing.as_mut().map(|tracing| tracing.trace.take(lost, goes_on)).unwrap_or_default()
    }

    /// Records that found the ring full.
    fn lost(&self) -> u64 {
        self.counters.sum(&[0; 4]).ok().and_then(|counted| counted.get(account::LOST).copied()).unwrap_or(0)
    }

    /// Puts another program in its place, between two packets. What there is to say of its tables.
    pub(super) fn replace(
        &mut self,
        Prepared { number, script, loaded, mirrors }: Prepared,
    ) -> linux::Result<Vec<String>> {
        let told = loaded.fill()?;
        put(&mut self.attached, &loaded.program)?;
        self.says_now(number, loaded.says);
        // What comes now is another text.
        self.tracing = None;
        (self.program, self.exports, self.mirrors) = (loaded.program, loaded.exports, mirrors);
        self.script = script;
        Ok(told)
    }

    /// Tells the program which numbers the interfaces have now that it copies packets to. What there is to say: which are not
    /// there any more, and which are there again.
    pub(super) fn point_mirrors(&mut self, links: &Links) -> linux::Result<Vec<String>> {
        let Some(mirrors) = &mut self.mirrors else { return Ok(Vec::new()) };
        let missing = mirrors.point(links)?;
        let before = std::mem::replace(&mut mirrors.missing, missing);
        let gone = mirrors.missing.iter().filter(|name| !before.contains(name));
        let gone = gone.map(|name| MirrorError::Missing(name.clone()).to_string());
        let back = before.iter().filter(|name| !mirrors.missing.contains(name));
        let back = back.map(|name| format!("copies go to {name} again"));
        Ok(gone.chain(back).collect())
    }

    /// Whether it counts in what is exported so.
    pub(super) fn exports(&self, metric: &Arc<Metric>) -> bool {
        self.exports.contains(metric)
    }

    /// How often the kernel has run it, and for how long, while it has counted that.
    pub(super) fn run_time(&self) -> linux::Result<RunTime> {
        self.program.run_time()
    }

    /// Detaches it.
    pub(super) fn detach(self, journal: &mut AttachJournal) -> linux::Result<()> {
        self.attached.map_or(Ok(()), |attached| journal.detach(attached))
    }

    /// What a program of this number says with a line of its text and these numbers; nothing if it is another's. What
    /// belongs to a trace is put there.
    pub(super) fn said(&mut self, number: u32, line: usize, numbers: &[i64]) -> Option<Option<Logged>> {
        let (_, says) = self.lines.iter().find(|(known, _)| *known == number)?;
        match says.lines.get(line)?.said(numbers) {
            Said::Log(logged) => Some(Some(logged)),
            of_trace => {
                if let Some(tracing) = self.tracing.as_mut().filter(|tracing| tracing.number == number) {
                    tracing.trace.add(of_trace);
                }
                Some(None)
            }
        }
    }

    /// The capture that a program of this number means; nothing if it is another's.
    pub(super) fn capture(&self, number: u32, name: usize) -> Option<&str> {
        let (_, says) = self.lines.iter().find(|(known, _)| *known == number)?;
        says.captures.get(name).map(String::as_str)
    }

    /// Whether its packets have a link header.
    pub(super) const fn has_link(&self) -> bool {
        matches!(self.attach_type, AttachType::Interface { has_link: true } | AttachType::Xdp)
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
            lost: count(account::LOST),
        }
    }
}

/// Puts a program in the place of the one that runs, between two packets, if one does.
fn put(attached: &mut Result<Attached, String>, program: &Program) -> linux::Result<()> {
    attached.as_mut().map_or(Ok(()), |attached| attached.replace(program))
}

#[allow(clippy::too_many_arguments, reason = "each program is made of all of these")]
fn load(
    attachment: &Attachment,
    script: &Script,
    maps: &mut Maps,
    links: &Links,
    attach_type: AttachType,
    (counters, fault, log): (RawFd, RawFd, account::Log),
    mark: Option<u32>,
    which: Option<&Rule>,
) -> Result<(kernel::Loaded, Option<Mirrors>), AttachError> {
    let compiled = match which {
        None => compile_for(attachment, script, attach_type, mark, Interfaces::Here),
        Some(which) => compile_followed(attachment, script, attach_type, mark, which),
    };
    let compiled = compiled.map_err(|error| match error {
        refused @ CompileError::Refused(_) if attachment.xdp => AttachError::CompileForXdp(refused),
        other => AttachError::Compile(other),
    })?;
    let mirrors = Mirrors::new(compiled.mirrors())?;
    // Before it is attached: its first packet is copied, too.
    mirrors.as_ref().map_or(Ok(Vec::new()), |mirrors| mirrors.point(links))?;
    let to = account::Mirrors::Sent(mirrors.as_ref().map_or(0, |mirrors| mirrors.map.as_raw_fd()));
    let accounts = Accounts { mirrors: to, counters, fault, log: Some(log) };
    Ok((kernel::load(&compiled, &script.path, maps, Some(accounts))?, mirrors))
}
