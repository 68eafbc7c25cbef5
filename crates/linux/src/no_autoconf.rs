//! An interface that says nothing of its own in IPv6: the kernel gives it no address, asks for no router, and announces
//! no group, so that a link sees only what Sidestep sends.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::sysctl;

/// No link-local address is made (linux/if_link.h).
const IN6_ADDR_GEN_MODE_NONE: &str = "1";

/// What the kernel did by itself at an interface before that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoAutoconf {
    interface: String,
    accept_ra: String,
    autoconf: String,
    addr_gen_mode: String,
}

impl NoAutoconf {
    /// How an interface is now.
    pub fn before(interface: &str) -> Result<Self> {
        let read = |name| sysctl::read(interface, name);
        Ok(NoAutoconf {
            accept_ra: read("accept_ra")?,
            autoconf: read("autoconf")?,
            addr_gen_mode: read("addr_gen_mode")?,
            interface: interface.to_owned(),
        })
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// The kernel does nothing by itself there: the interface's IPv6 addresses go, and with them all IPv6 routes over it.
    pub(crate) fn apply(&self) -> Result<()> {
        self.set("0", "0", IN6_ADDR_GEN_MODE_NONE)
    }

    /// Has the kernel begin anew as it would have at first. An interface that is gone needs nothing.
    pub(crate) fn restore(&self) -> Result<()> {
        match self.set(&self.accept_ra, &self.autoconf, &self.addr_gen_mode) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn set(&self, accept_ra: &str, autoconf: &str, addr_gen_mode: &str) -> Result<()> {
        let write = |name, value| sysctl::write(&self.interface, name, value);
        write("accept_ra", accept_ra)?;
        write("autoconf", autoconf)?;
        write("addr_gen_mode", addr_gen_mode)?;
        // Addresses that are there go with IPv6 itself, and do not come back.
        write("disable_ipv6", "1")?;
        write("disable_ipv6", "0")
    }
}
