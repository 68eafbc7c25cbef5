//! What both gateways know.

use lab::topology::Site;

pub(super) const KEY: &str = "a key that both gateways know";

/// The networks of a child at a site: the first one's are the lab's own.
pub(super) fn selectors(site: Site, number: u16) -> Vec<String> {
    match number {
        0 => site.inner_prefixes().map(str::to_owned).to_vec(),
        _ => vec![format!("fd00:{}:{number:x}::/64", site.letter())],
    }
}
