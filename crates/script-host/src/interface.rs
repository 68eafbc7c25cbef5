//! Interfaces by their names, for packets that scripts redirect.

use linux::netlink::Netlink;
use script::host::InterfaceError;

/// The number of an interface.
///
/// # Errors
/// There is none of this name: which there are.
pub(crate) fn number(name: &str) -> Result<u32, InterfaceError> {
    let links = Netlink::open().and_then(|mut netlink| netlink.links());
    let links = links.map_err(|error| InterfaceError::Host(error.into()))?;
    if let Some(link) = links.iter().find(|link| link.name == name) {
        return Ok(link.index);
    }
    let known = links.into_iter().map(|link| link.name).collect();
    Err(InterfaceError::Unknown { name: name.to_owned(), known })
}
