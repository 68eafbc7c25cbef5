//! Programs at hooks of netfilter (Linux 6.4), beside its chains: they look at packets and judge them, and change nothing.
//!
//! A link goes with the process, also when it crashes. The kernel puts no other program into such a link, and two links
//! would show a packet to both, or to none for a moment. So what is attached is a program that goes on with the one in a
//! map, which is replaced there between two packets.

use std::os::fd::AsRawFd as _;

pub use bpf::netfilter::{Layout, verdict};
use bpf::{Assembler, Helper, Register};

use super::attach_type::AttachType;
use super::btf::Types;
use super::link::Link;
use ::bpf::MapKind;

use super::map::Map;
use super::program::{Program, ProgramKind};
use crate::error::{Context as _, Error, Result};

/// IP version of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Where on their way through the host packets are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "netfilter's names")]
pub enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

/// What programs need to know of this kernel.
///
/// # Errors
/// If it has no such programs (Linux 6.4, CONFIG_NETFILTER_BPF_LINK), or does not tell its types
/// (CONFIG_DEBUG_INFO_BTF).
pub fn layout() -> Result<Layout> {
    let types = Types::of_kernel()?;
    let lacks = |what: &str| {
        Error::other(
            "ask the kernel for programs at hooks of netfilter (Linux 6.4)",
            format!("it has no {what}"),
        )
    };
    types.function("bpf_nf_link_attach").ok_or_else(|| lacks("CONFIG_NETFILTER_BPF_LINK"))?;
    let member = |structure: &str, member: &str| {
        let offset = types.member(structure, member).and_then(|offset| i16::try_from(offset).ok());
        offset.ok_or_else(|| lacks(&format!("{structure}.{member}")))
    };
    const DYNPTR: &str = "bpf_dynptr_from_skb";
    Ok(Layout {
        length: member("sk_buff", "len")?,
        mark: member("sk_buff", "mark")?,
        incoming: member("nf_hook_state", "in")?,
        outgoing: member("nf_hook_state", "out")?,
        name: member("net_device", "name")?,
        dynptr_from_skb: types.function(DYNPTR).ok_or_else(|| lacks(DYNPTR))?,
    })
}

/// A program at a hook. It runs until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Links {
    // These go first: without its map the program lets all pass.
    _links: Vec<Link>,
    programs: Map,
    priority: i32,
}

impl Links {
    /// Attaches a program to a hook of this thread's network namespace, for each family, at the first of the priorities at
    /// which nothing is yet: the kernel puts programs where nobody is. They are those of nftables' chains.
    ///
    /// `ERANGE`: the least and the greatest are netfilter's own. `EBUSY`: all are taken.
    pub fn attach(program: &Program, families: &[Family], hook: Hook, priorities: &[i32]) -> Result<Self> {
        let programs = Map::create(MapKind::Programs, 4, 4, 1)?;
        let entrance = entrance(&programs)?;
        put(&programs, program)?;
        let mut result = Err(Error::other("attach to netfilter", "no priority is given"));
        for priority in priorities {
            let links = families.iter().map(|family| link(&entrance, *family, hook, *priority)).collect();
            match links {
                Ok(links) => return Ok(Self { _links: links, programs, priority: *priority }),
                Err(error) => result = Err(error),
            }
            if !matches!(&result, Err(error) if error.raw_os_error() == Some(libc::EBUSY)) {
                break;
            }
        }
        result
    }

    /// Puts another program in the place of the one that runs, between two packets.
    pub fn replace(&self, program: &Program) -> Result<()> {
        put(&self.programs, program)
    }

    /// Where it is.
    #[must_use]
    pub const fn priority(&self) -> i32 {
        self.priority
    }
}

fn put(programs: &Map, program: &Program) -> Result<()> {
    programs.set(&[0; 4], &program.fd.as_raw_fd().to_ne_bytes())
}

/// Goes on with the program in the map.
fn entrance(programs: &Map) -> Result<Program> {
    let mut code = Assembler::default();
    code.load_map(Register::R2, programs);
    code.set(Register::R3, 0);
    code.call(Helper::TailCall);
    code.exit_with(verdict::ACCEPT);
    Program::load(ProgramKind::Netfilter, &code)
}

fn link(program: &Program, family: Family, hook: Hook, priority: i32) -> Result<Link> {
    // NFPROTO_IPV4 and NFPROTO_IPV6, from linux/netfilter.h.
    let protocol = match family {
        Family::Ipv4 => 2,
        Family::Ipv6 => 10,
    };
    // No flag: fragments come as they do to a chain of this priority, whole where connections are tracked.
    let more = [protocol, hook as u32, priority.cast_unsigned(), 0];
    Link::create(program, 0, AttachType::Netfilter, 0, more).context(|| {
        format!("bpf LINK_CREATE netfilter {hook:?} {family:?} priority {priority} (needs CAP_NET_ADMIN and Linux 6.4)")
    })
}
