//! Names for labs that nobody names: no two alike, in this process or another, so that labs can be up side by side.
//!
//! Such a prefix is `t`, the process in hexadecimal, `_`, and a number: short enough for an interface's name to begin with.

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::namespaces::Namespace;

/// Where labs keep their configurations and logs.
const RUN: &str = "/run/sidestep-lab";

/// A prefix that no other lab has. What labs of processes that have ended left behind is removed before the first one.
pub fn unique() -> String {
    static SWEPT: Once = Once::new();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    SWEPT.call_once(sweep);
    format!("t{:x}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Removes the namespaces and directories of processes that are no more.
fn sweep() {
    for name in names("/run/netns").filter(|name| is_abandoned(name)) {
        // Another process may be doing the same.
        let _ = Namespace::named(name).delete();
    }
    for name in names(RUN).filter(|name| is_abandoned(name)) {
        let _ = std::fs::remove_dir_all(directory(&name));
    }
}

pub(crate) fn names(folder: &str) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
}

/// Whether a name begins with a prefix of a process that is no more.
fn is_abandoned(name: &str) -> bool {
    owner(name).is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists())
}

/// The process that a name's prefix is of.
fn owner(name: &str) -> Option<u32> {
    let (id, rest) = name.strip_prefix('t')?.split_once('_')?;
    rest.starts_with(|digit: char| digit.is_ascii_digit()).then(|| u32::from_str_radix(id, 16).ok())?
}

/// The directory of the lab with this prefix.
pub(crate) fn directory(prefix: &str) -> PathBuf {
    Path::new(RUN).join(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_differ_and_say_whose_they_are() {
        let [one, other] = [unique(), unique()];
        assert_ne!(one, other);
        assert_eq!(owner(&format!("{one}-gw")), Some(std::process::id()));
        assert!(!is_abandoned(&one));
        assert!("t3fffff_999".len() <= 13);
    }

    #[test]
    fn names_that_somebody_chose_are_nobodys() {
        for name in ["sidestep-ga", "t_1", "tb_", "test_1", "t12", "tun_x", "0_1"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }
}
