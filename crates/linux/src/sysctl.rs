//! Parameters of an interface's IPv6 (`/proc/sys/net/ipv6/conf`), in the network namespace of the calling thread.
//! What is changed is changed through the journal: [`crate::undo::Journal::set_parameter`].

use crate::error::{Context as _, Result};

/// What it is.
pub fn read(interface: &str, name: &str) -> Result<String> {
    let path = path(interface, name);
    let text = std::fs::read_to_string(&path).context(|| format!("read {path}"))?;
    Ok(text.trim().to_owned())
}

/// Changes it.
pub(crate) fn write(interface: &str, name: &str, value: &str) -> Result<()> {
    let path = path(interface, name);
    std::fs::write(&path, value)
        .context(|| format!("write {value} to {path} (a service with ProtectKernelTunables= cannot)"))
}

fn path(interface: &str, name: &str) -> String {
    // /proc/sys/net is that of the thread's namespace. In it a name with a dot, as of a VLAN, stands as it is.
    format!("/proc/sys/net/ipv6/conf/{interface}/{name}")
}
