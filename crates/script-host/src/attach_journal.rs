//! Attaching scripts in the kernel, so that nothing stays when the host is gone.
//!
//! Links go with the process. A filter of the queueing discipline clsact, which kernels before Linux 6.6 have in their
//! stead, does not: it is written down in a journal, one for a network namespace whatever the host's socket is, and the
//! next host takes back what one that was killed has left.

use std::io::ErrorKind;
use std::path::PathBuf;

use linux::bpf::Program;
use linux::bpf::attach::{Attachment, Direction, Filter, Mechanism};
use linux::bpf::netfilter::Links;
use linux::bpf::xdp;
use linux::netlink::Netlink;
use linux::undo::Journal;
use tracing::{info, warn};

use super::error::Error;
use super::order::{Order, Place};
use crate::attach_point::AttachPoint;
use config::run::Feature;

/// A program that is attached; detached when this is dropped.
#[derive(Debug)]
pub(super) enum Attached {
    Interface(Attachment),
    Xdp(xdp::Link),
    Netfilter(Links, Place),
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

    /// What it is attached by, if that is at this interface.
    fn interface(&self, index: u32, direction: Direction) -> Option<&Attachment> {
        match self {
            Attached::Interface(attachment) => Some(attachment).filter(|one| one.is_at(index, direction)),
            _ => None,
        }
    }

    /// The number of its interface, if it is at one.
    pub(super) const fn index(&self) -> Option<u32> {
        match self {
            Attached::Interface(attachment) => Some(attachment.index()),
            Attached::Xdp(link) => Some(link.index()),
            Attached::Netfilter(..) => None,
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

/// What attaches and detaches, and remembers what has to be undone.
#[derive(Debug)]
pub(super) struct AttachJournal {
    /// What the kernel has and is not used, for tests.
    without: Vec<Feature>,
    netlink: Netlink,
    path: PathBuf,
    /// There once it is needed.
    journal: Option<Journal>,
    /// Of scripts in either tier.
    pub(super) order: Order,
}

impl AttachJournal {
    /// Takes back what an earlier host has left.
    pub(super) fn open(without: Vec<Feature>) -> Result<Self, Error> {
        let path = control::socket_of_scripts()?.with_extension("undo");
        let mut attached =
            Self { without, netlink: Netlink::open()?, path, journal: None, order: Order::default() };
        if attached.path.exists() {
            attached.journal()?;
        }
        Ok(attached)
    }

    /// Attaches a program, to an interface of this number as well as the kernel can: before the others of ours, of which
    /// the last loaded are given first.
    pub(super) fn attach<'a>(
        &mut self,
        program: &Program,
        point: &AttachPoint,
        index: u32,
        others: impl IntoIterator<Item = &'a Attached>,
    ) -> linux::Result<Attached> {
        let (hook, families, asked) = match point {
            AttachPoint::Interface { direction, .. } => {
                let first = others.into_iter().find_map(|other| other.interface(index, *direction));
                match first {
                    Some(first) if first.mechanism() == Mechanism::Tcx => {
                        return Attachment::tcx_before_other(program, first).map(Attached::Interface);
                    }
                    None if !self.without.contains(&Feature::Tcx) => {
                        if let Ok(attachment) = Attachment::tcx(program, index, *direction) {
                            return Ok(Attached::Interface(attachment));
                        }
                    }
                    // The kernel puts a filter before the others.
                    _ => {}
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
        let links = Links::attach(program, families, hook, &self.order.for_program(hook, asked))?;
        let place = self.order.take(hook, asked, links.priority());
        Ok(Attached::Netfilter(links, place))
    }

    /// Detaches it.
    pub(super) fn detach(&mut self, attached: Attached) -> linux::Result<()> {
        match (attached, &mut self.journal) {
            (Attached::Interface(attachment), Some(journal)) => journal.detach(&mut self.netlink, attachment),
            (Attached::Interface(_), None) | (Attached::Xdp(_), _) => Ok(()),
            (Attached::Netfilter(_, place), _) => {
                self.order.give_back(place);
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
