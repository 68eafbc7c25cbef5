//! One queue of a device of either kind: one that is there already, such as one that an administrator has made for a user
//! (`ip tuntap add dev tap0 mode tap user alice`), or a new one.

use super::{IFF_TUN_EXCL, Offloads, Queue, check_name, open_queue, set_offloads, set_queue_length};
use crate::error::{Context, Error, Result};

/// What a device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IP packets (TUN).
    Ip,
    /// Ethernet frames (TAP).
    Ethernet,
}

impl Kind {
    fn flag(self) -> libc::c_int {
        match self {
            Kind::Ip => libc::IFF_TUN,
            Kind::Ethernet => libc::IFF_TAP,
        }
    }
}

/// A device with one queue.
#[derive(Debug)]
pub struct Attached {
    /// Its interface index.
    pub index: u32,
    /// What it carries.
    pub kind: Kind,
    /// What the kernel took of the offloads that were asked for.
    pub offloads: Offloads,
    /// The queue. A new device goes with it; another one has no carrier from then on.
    pub queue: Queue,
}

/// Takes the device `name`, which exists; `None` if there is no interface of that name. Its owner needs no privileges.
///
/// # Errors
/// When it is no TUN or TAP device, belongs to another user, or is in use.
pub fn attach(name: &str, offloads: Offloads) -> Result<Option<Attached>> {
    check_name(name)?;
    let Ok(index) = nix::net::if_::if_nametoindex(name) else { return Ok(None) };
    // The kernel refuses flags that do not fit the device, and changes nothing.
    let manners =
        [Kind::Ethernet, Kind::Ip].map(|kind| [0, libc::IFF_MULTI_QUEUE].map(|queues| (kind, queues)));
    for &(kind, queues) in manners.as_flattened() {
        match open_queue(name, kind.flag() | queues) {
            Ok(queue) => {
                let offloads = set_offloads(std::slice::from_ref(&queue), offloads, name)?;
                return Ok(Some(Attached { index, kind, offloads, queue }));
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => {
                let remedy = match error.raw_os_error() {
                    Some(libc::EBUSY) => " (another program holds the device: stop that first)",
                    Some(libc::EPERM) => {
                        " (it belongs to another user: `ip tuntap add dev NAME mode tap user USER` makes one for a user)"
                    }
                    _ => "",
                };
                return Err(Error::new(format!("{}{remedy}", error.what), error.source));
            }
        }
    }
    Err(Error::other(format!("interface {name}"), "neither a TAP nor a TUN device"))
}

/// Makes the device `name`, which is down and has no address: see [`crate::netlink`].
///
/// # Errors
/// When there is an interface of that name, or the right to make one is missing.
pub fn create_single(name: &str, kind: Kind, offloads: Offloads) -> Result<Attached> {
    check_name(name)?;
    let queue = open_queue(name, kind.flag() | IFF_TUN_EXCL).map_err(|error| {
        let remedy = match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST | libc::EINVAL) => " (an interface of that name exists already)",
            Some(libc::EPERM) => {
                " (to make a device needs CAP_NET_ADMIN; `ip tuntap add dev NAME mode tap user USER` makes one for a user)"
            }
            _ => "",
        };
        Error::new(format!("{}{remedy}", error.what), error.source)
    })?;
    let offloads = set_offloads(std::slice::from_ref(&queue), offloads, name)?;
    set_queue_length(name)?;
    let index = nix::net::if_::if_nametoindex(name).context(|| format!("if_nametoindex {name}"))?;
    Ok(Attached { index, kind, offloads, queue })
}
