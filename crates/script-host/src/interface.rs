//! Interfaces by their names, for packets that scripts redirect.

use linux::netlink::Netlink;

/// The number of an interface.
///
/// # Errors
/// There is none of this name: which there are.
pub(crate) fn number(name: &str) -> Result<u32, String> {
    let links = Netlink::open().and_then(|mut netlink| netlink.links()).map_err(|error| error.to_string())?;
    if let Some(link) = links.iter().find(|link| link.name == name) {
        return Ok(link.index);
    }
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    Err(format!("there is no interface {name}: there are {}", names.join(", ")))
}
