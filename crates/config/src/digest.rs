//! What was read, in so few bytes that it can be shown, to be compared with what is there later.

use std::cell::RefCell;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// SHA-256 over a configuration with all that it includes, and the key files that it names: comments count, too.
///
/// It may be shown to whoever may not read them. Each tunnel has a key of full entropy in what is read, its private key or
/// that of a classic stream, so that without it nobody can try whether something else in there is as he supposes.
///
/// On the heap, which the program wipes: the last bytes of a key stay in it.
pub(crate) struct Digest(Box<RefCell<Sha256>>);

impl Digest {
    pub(crate) fn of(text: &str) -> Self {
        let digest = Digest(Box::default());
        digest.add(text.as_bytes());
        digest
    }

    /// One more file.
    pub(crate) fn add(&self, bytes: &[u8]) {
        let mut hash = self.0.borrow_mut();
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }

    /// In hexadecimal digits.
    pub(crate) fn end(self) -> String {
        let mut text = String::new();
        for byte in self.0.borrow_mut().finalize_reset() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    const MAIN: &str = "include = [\"d/*.toml\"]\n[node]\nprivate_key_file = \"key\"\nexternal = \"eth0\"\n\
         hop_prefix = \"2001:db8:a1::/64\"\n";
    const PEER: &str = "[[peer]]\nname = \"site-b\"\npublic_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\n\
         hop_prefix = \"2001:db8:b1::/64\"\nallowed_ips = [\"2001:db8:b::/64\"]\npreshared_key_file = \"psk\"\n";
    const KEYS: [&str; 2] =
        ["yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n", "mGn4LbuqcRyPHFAwrQYdKkNZqPS+XKUJG9Zn8BS2Yl4=\n"];

    fn digest(folder: &Path) -> String {
        crate::load(&folder.join("a.toml")).unwrap().tunnel.unwrap().digest
    }

    #[test]
    fn each_file_that_is_read_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        std::fs::create_dir(folder.path().join("d")).unwrap();
        let all = [("a.toml", MAIN), ("d/b.toml", PEER), ("key", KEYS[0]), ("psk", KEYS[0])];
        all.iter().for_each(|(name, text)| write(name, text));
        let before = digest(folder.path());
        assert_eq!(before.len(), 64);
        for (name, text, other) in [
            ("a.toml", MAIN, MAIN.replace("eth0", "eth1")),
            ("d/b.toml", PEER, PEER.to_owned() + "keepalive = \"10s\"\n"),
            ("key", KEYS[0], KEYS[1].to_owned()),
            ("psk", KEYS[0], KEYS[1].to_owned()),
        ] {
            write(name, &other);
            assert_ne!(digest(folder.path()), before, "{name}");
            write(name, text);
            assert_eq!(digest(folder.path()), before, "{name}");
        }
    }
}
