//! Parameters of the network (`/proc/sys/net`) in the network namespace of the calling thread, most of them of an
//! interface's IPv6 (`ipv6/conf`). What is changed is changed through the journal:
//! [`crate::undo::Journal::set_parameter`], [`crate::undo::Journal::set_global`].

use crate::error::{Context as _, Result};

/// What it is.
pub fn read(interface: &str, name: &str) -> Result<String> {
    read_global(&path(interface, name))
}

/// What a parameter is that is of no interface: its path below `/proc/sys/net`.
pub fn read_global(name: &str) -> Result<String> {
    let path = format!("/proc/sys/net/{name}");
    let text = std::fs::read_to_string(&path).context(|| format!("read {path}"))?;
    Ok(text.trim().to_owned())
}

/// Changes it.
pub(crate) fn write(interface: &str, name: &str, value: &str) -> Result<()> {
    write_global(&path(interface, name), value)
}

/// Changes one that is of no interface.
pub(crate) fn write_global(name: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/net/{name}");
    std::fs::write(&path, value)
        .context(|| format!("write {value} to {path} (a service with ProtectKernelTunables= cannot)"))
}

/// Whether this can be an interface's name, and so leads to no other folder (dev_valid_name in the kernel).
pub(crate) fn is_interface(name: &str) -> bool {
    let good = |c: char| c != '/' && c != ':' && !c.is_whitespace() && c != '\0';
    !name.is_empty() && ![".", ".."].contains(&name) && name.chars().all(good)
}

/// The path of an interface's IPv6 parameter below `/proc/sys/net`.
pub(crate) fn path(interface: &str, name: &str) -> String {
    // /proc/sys/net is that of the thread's namespace. In it a name with a dot, as of a VLAN, stands as it is.
    format!("ipv6/conf/{interface}/{name}")
}
