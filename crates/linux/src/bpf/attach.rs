//! Where programs run: at an interface, or for a network namespace.
//!
//! At an interface a program is attached by a link of the kind tcx (Linux 6.6), which goes with the process, also when it
//! crashes. Older kernels have the classifier of the queueing discipline `clsact` for it. That stays when the process is
//! gone, so it goes through the journal: [`crate::undo::Journal::attach`]. There it has the priority
//! [`PROTOCOL`](crate::netlink::PROTOCOL), and only what has that, and the handle that was written down, is ever removed;
//! the discipline itself stays, as others may have come to use it.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::AsRawFd as _;

use serde::{Deserialize, Serialize};

use super::attach_type::AttachType;
use super::link::Link;
use super::program::Program;
use crate::error::{Context as _, Result};
use crate::netlink::Netlink;

/// Which packets of an interface a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Those that come in by it, before all else.
    Ingress,
    /// Those that leave by it, GSO packets whole, after all else.
    Egress,
}

/// How a program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// A link: Linux 6.6.
    Tcx,
    /// A filter of the queueing discipline clsact.
    Clsact,
}

/// A filter of ours at an interface, by what it takes to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The interface.
    pub index: u32,
    /// Which packets it sees.
    pub direction: Direction,
    /// Drawn at random, so that nobody else's is taken for it.
    pub handle: u32,
}

impl Filter {
    /// One that is not there yet.
    #[must_use]
    pub fn new(index: u32, direction: Direction) -> Self {
        let handle = RandomState::new().hash_one((index, std::process::id())) as u32 & 0x7fff_ffff;
        Self { index, direction, handle: handle.max(1) }
    }
}

// Flags of LINK_CREATE, from linux/bpf.h.
const BEFORE: u32 = 1 << 3;
const RELATIVE_TO_LINK: u32 = 1 << 13;

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct Attachment {
    attached: Attached,
    index: u32,
    direction: Direction,
}

#[derive(Debug)]
enum Attached {
    /// The kernel detaches it with its last descriptor.
    Link(Link),
    Filter {
        filter: Filter,
        netlink: Netlink,
    },
}

impl Attachment {
    /// Attaches a program of type `sched_cls` to an interface of this thread's network namespace by a link, behind those
    /// that are there.
    ///
    /// `EINVAL`: the kernel is older than Linux 6.6.
    pub fn tcx(program: &Program, index: u32, direction: Direction) -> Result<Self> {
        Self::link(program, index, direction, 0, 0)
    }

    /// The same, before those that are there, and before what they decide.
    pub(crate) fn tcx_before(program: &Program, index: u32, direction: Direction) -> Result<Self> {
        Self::link(program, index, direction, BEFORE, 0)
    }

    /// The same, directly before another one, at its interface.
    ///
    /// `EINVAL`: that one is attached by a filter. `ENOENT`: it is no longer there.
    pub fn tcx_before_other(program: &Program, other: &Self) -> Result<Self> {
        // Without a link the kernel refuses the flag.
        let number = match &other.attached {
            Attached::Link(link) => link.number(),
            Attached::Filter { .. } => 0,
        };
        Self::link(program, other.index, other.direction, BEFORE | RELATIVE_TO_LINK, number)
    }

    fn link(
        program: &Program,
        index: u32,
        direction: Direction,
        flags: u32,
        relative_to: u32,
    ) -> Result<Self> {
        let attach_type = match direction {
            Direction::Ingress => AttachType::TcxIngress,
            Direction::Egress => AttachType::TcxEgress,
        };
        let link = Link::create(program, index, attach_type, flags, [relative_to, 0, 0, 0]);
        let what = || format!("bpf LINK_CREATE tcx at interface {index} (needs CAP_NET_ADMIN and Linux 6.6)");
        Ok(Self { attached: Attached::Link(link.context(what)?), index, direction })
    }

    /// Attaches a program of type `sched_cls` to an interface of this thread's network namespace by a filter. It stays if
    /// the process crashes: use [`crate::undo::Journal::attach`], unless the interface goes with the process too. The
    /// kernel puts it before other filters of ours.
    pub fn clsact(program: &Program, filter: Filter) -> Result<Self> {
        let mut netlink = Netlink::open()?;
        netlink.add_clsact(filter.index)?;
        netlink.put_filter(&filter, program.fd.as_raw_fd())?;
        let (index, direction) = (filter.index, filter.direction);
        Ok(Self { attached: Attached::Filter { filter, netlink }, index, direction })
    }

    /// The interface, which may have gone since.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Whether it is at this interface, and sees these packets.
    #[must_use]
    pub fn is_at(&self, index: u32, direction: Direction) -> bool {
        (self.index, self.direction) == (index, direction)
    }

    /// Puts another program in the place of the one that runs, between two packets. A filter that somebody has removed is
    /// there again.
    pub fn replace(&mut self, program: &Program) -> Result<()> {
        match &mut self.attached {
            Attached::Link(link) => link.replace(program).context(|| "bpf LINK_UPDATE"),
            Attached::Filter { filter, netlink } => {
                netlink.add_clsact(filter.index)?;
                netlink.put_filter(filter, program.fd.as_raw_fd())
            }
        }
    }

    /// Attaches it again where somebody has removed the filter, or the discipline that it was in; a link nobody can remove
    /// so. Returns whether it was gone.
    pub fn put_back(&mut self, program: &Program) -> Result<bool> {
        let Attached::Filter { filter, netlink } = &mut self.attached else { return Ok(false) };
        if netlink.has_filter(filter)? {
            return Ok(false);
        }
        self.replace(program).map(|()| true)
    }

    /// The filter, if it is attached by one.
    pub(crate) fn filter(&self) -> Option<Filter> {
        match &self.attached {
            Attached::Link(_) => None,
            Attached::Filter { filter, .. } => Some(*filter),
        }
    }

    /// How it is attached.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        match self.attached {
            Attached::Link(_) => Mechanism::Tcx,
            Attached::Filter { .. } => Mechanism::Clsact,
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Attached::Filter { filter, netlink } = &mut self.attached {
            // The interface may be gone. What else can fail here the journal tries again.
            let _ = netlink.delete_filter(filter);
        }
    }
}

/// Attaches a program of type `sched_cls` to an interface that goes with this process, as a TUN device of its own does:
/// as well as the kernel can, and with nothing to undo. To other interfaces: [`crate::undo::Journal::attach`].
pub fn attach_to_own_device(program: &Program, index: u32, direction: Direction) -> Result<Attachment> {
    match Attachment::tcx(program, index, direction) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Attachment::clsact(program, Filter::new(index, direction))
        }
        result => result,
    }
}

/// Attaches a program of type `sk_lookup` to the network namespace of this thread. It runs for each packet that no
/// connected socket takes, after the programs that others have attached.
pub(crate) fn attach_sk_lookup(program: &Program) -> Result<Link> {
    let namespace =
        std::fs::File::open("/proc/thread-self/ns/net").context(|| "open /proc/thread-self/ns/net")?;
    let target = namespace.as_raw_fd() as u32;
    Link::create(program, target, AttachType::SkLookup, 0, [0; 4])
        .context(|| "bpf LINK_CREATE sk_lookup (needs CAP_NET_ADMIN and Linux 5.9)")
}
