//! Attaching scripts in the kernel, so that nothing stays when the host is gone.
//!
//! Links go with the process. A filter of the queueing discipline clsact, which kernels before Linux 6.6 have in their
//! stead, does not: it is written down in a journal, one for a network namespace whatever the host's socket is, and the
//! next host takes back what one that was killed has left.

use std::io::ErrorKind;
use std::path::PathBuf;

use linux::bpf::Program;
use linux::bpf::attach::{Attachment, Filter};
use linux::bpf::netfilter::{Hook, Links};
use linux::bpf::xdp;
use linux::netlink::Netlink;
use linux::undo::Journal;
use tracing::{info, warn};

use super::error::Error;
use crate::attach_point::AttachPoint;
use config::run::Feature;

/// A program that is attached; detached when this is dropped.
#[derive(Debug)]
pub(super) enum Attached {
    Interface(Attachment),
    Xdp(xdp::Link),
    Netfilter(Links, Taken),
}

impl Attached {
    /// Puts another program in the place of the one that runs, between two packets.
    pub(super) fn replace(&mut self, program: &Program) -> linux::Result<()> {
        match self {
            Attached::Interface(attachment) => attachment.replace(program),
            Attached::Xdp(link) => link.replace(program),
            Attached::Netfilter(links, _) => links.replace(program),
        }
    }

    /// Where it runs, if that is at XDP.
    pub(super) const fn xdp_mode(&self) -> Option<xdp::Mode> {
        match self {
            Attached::Xdp(link) => Some(link.mode()),
            _ => None,
        }
    }
}

/// A priority of netfilter that a script has: what was asked for, or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    hook: Hook,
    asked: i32,
    given: i32,
}

/// What attaches and detaches, and remembers what has to be undone.
#[derive(Debug)]
pub(super) struct AttachJournal {
    /// What the kernel has and is not used, for tests.
    without: Vec<Feature>,
    netlink: Netlink,
    path: PathBuf,
    /// There once it is needed.
    journal: Option<Journal>,
    taken: Vec<Taken>,
}

impl AttachJournal {
    /// Takes back what an earlier host has left.
    pub(super) fn open(without: Vec<Feature>) -> Result<Self, Error> {
        let path = control::socket_of_scripts()?.with_extension("undo");
        let mut attached =
            Self { without, netlink: Netlink::open()?, path, journal: None, taken: Vec::new() };
        if attached.path.exists() {
            attached.journal()?;
        }
        Ok(attached)
    }

    /// Attaches a program, to an interface of this number as well as the kernel can.
    pub(super) fn attach(
        &mut self,
        program: &Program,
        point: &AttachPoint,
        index: u32,
    ) -> linux::Result<Attached> {
        let (hook, families, asked) = match point {
            AttachPoint::Interface { direction, .. } => {
                if !self.without.contains(&Feature::Tcx)
                    && let Ok(attachment) = Attachment::tcx(program, index, *direction)
                {
                    return Ok(Attached::Interface(attachment));
                }
                let filter = Filter::new(index, *direction);
                return self.journal()?.attach_filter(program, filter).map(Attached::Interface);
            }
            AttachPoint::Xdp(device) => {
                return xdp::Link::attach(program, index).map(Attached::Xdp).map_err(|mut error| {
                    if matches!(error.kind(), ErrorKind::ResourceBusy | ErrorKind::AlreadyExists) {
                        error.what = format!(
                            "{device} has a program at XDP already, and can have one only: unload that first \
                             (`sidestep script list` shows ours, `ip link show {device}` any)"
                        )
                        .into();
                    }
                    error
                });
            }
            AttachPoint::Netfilter { hook, families, priority, .. } => (*hook, families, *priority),
        };
        // The last one loaded comes first, and the kernel puts none where another is: so before all of ours, and if that is
        // somebody else's, before that.
        let ours = self.taken.iter().filter(|taken| (taken.hook, taken.asked) == (hook, asked));
        let first = ours.map(|taken| taken.given.saturating_sub(1)).min().unwrap_or(asked);
        let links = Links::attach(program, families, hook, &[first, first.saturating_sub(1)])?;
        let taken = Taken { hook, asked, given: links.priority() };
        self.taken.push(taken);
        Ok(Attached::Netfilter(links, taken))
    }

    /// Detaches it.
    pub(super) fn detach(&mut self, attached: Attached) -> linux::Result<()> {
        match (attached, &mut self.journal) {
            (Attached::Interface(attachment), Some(journal)) => journal.detach(&mut self.netlink, attachment),
            (Attached::Interface(_), None) | (Attached::Xdp(_), _) => Ok(()),
            (Attached::Netfilter(_, given_back), _) => {
                self.taken.retain(|taken| *taken != given_back);
                Ok(())
            }
        }
    }

    fn journal(&mut self) -> linux::Result<&mut Journal> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => {
                let (journal, left) = Journal::open(&self.path, &mut self.netlink)?;
                if !left.is_empty() {
                    info!(
                        "took back what an earlier script host left at interfaces: {} filter(s)",
                        left.len()
                    );
                }
                journal
            }
        };
        Ok(self.journal.insert(journal))
    }
}

impl Drop for AttachJournal {
    fn drop(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        if let Err(error) = journal.undo_all(&mut self.netlink) {
            warn!("scripts stay at their interfaces until the next script host takes them away: {error}");
        }
    }
}
