//! Files that nobody else may read, and files that are replaced as a whole.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};

/// The longest that a file with a secret may be.
const MAX_PRIVATE: u64 = 64 * 1024;

/// Replaces a file, or makes it, with its folder: all or nothing, also where the machine loses its power. It is for its owner
/// alone, and neither it nor `PATH.new`, where it is written first, is followed where it is a link. What is written to the
/// file that is returned comes behind the content.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let (new, file) = write_beside(path, ".new", content, 0o600)?;
    std::fs::rename(&new, path)?;
    Ok(file)
}

/// The same, for its owner and its group, who may read it. By a thread with an umask of its own, so that no file that another
/// thread makes meanwhile is open to others; a confined process may not change modes.
pub fn replace_for_group(path: &Path, content: &[u8]) -> io::Result<()> {
    let write = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
        nix::sys::stat::umask(nix::sys::stat::Mode::S_IWGRP | nix::sys::stat::Mode::S_IRWXO);
        let (new, _) = write_beside(path, ".new", content, 0o640)?;
        std::fs::rename(&new, path)
    };
    std::thread::scope(|scope| scope.spawn(write).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that was to write it has failed")))
}

/// Makes a file that is not there yet, for its owner alone: all or nothing, and never in the place of another, nor of a link.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] where something has its name, also if that came at the same moment.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    create_with(path, content, 0o600)
}

/// The same for one that everybody may read, whatever the umask.
///
/// # Errors
/// As [`create`].
pub fn create_for_all(path: &Path, content: &[u8]) -> io::Result<()> {
    create_with(path, content, 0o644)
}

fn create_with(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    // Two processes that make it at once do not write to the same file: the first to give its own that name has it.
    let (new, file) = write_beside(path, &format!(".{}.new", std::process::id()), content, mode)?;
    let made = file.set_permissions(Permissions::from_mode(mode));
    let made = made.and_then(|()| std::fs::hard_link(&new, path));
    let _ = std::fs::remove_file(&new);
    made
}

/// Writes a file with this end of its name, and of this mode, beside the one that it is to become.
fn write_beside(path: &Path, end: &str, content: &[u8], mode: u32) -> io::Result<(PathBuf, File)> {
    let mut new = path.as_os_str().to_owned();
    new.push(end);
    // One that a crash left, or that somebody else has put there: it is not written to.
    let _ = std::fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    if let Err(error) = file.write_all(content).and_then(|()| file.sync_all()) {
        let _ = std::fs::remove_file(&new);
        return Err(error);
    }
    Ok((new.into(), file))
}

/// Reads a file that holds a secret. A file that others than its owner may read, or that belongs to somebody else
/// than root and the user of this process, is refused. Erasing what was read is the caller's business.
pub fn read_private(path: &Path) -> Result<Vec<u8>> {
    let file = open_private(path, MAX_PRIVATE)?;
    let mut content = Vec::new();
    file.take(MAX_PRIVATE).read_to_end(&mut content).context(|| format!("read {}", path.display()))?;
    Ok(content)
}

/// Opens such a file, of at most so many bytes.
pub fn open_private(path: &Path, longest: u64) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        // A pipe in place of the file must not hold us up.
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .context(|| format!("open {}", path.display()))?;
    check_private(&file, path, longest)?;
    Ok(file)
}

/// Opens a file that somebody else writes: the file itself, not what a link leads to.
///
/// # Errors
/// If it is a link, or no regular file: a pipe or a device would hold the reader up.
pub fn open_of_another(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

/// Gives a folder and the files in it to a user, and to the group of root; files that are made in it later are of that group, too.
/// False where there is no such user.
pub fn give_away(folder: &Path, user: &str) -> io::Result<bool> {
    let Some(user) = nix::unistd::User::from_name(user)? else { return Ok(false) };
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(user.uid.as_raw()), Some(0));
    for entry in std::fs::read_dir(folder)? {
        give(&entry?.path())?;
    }
    give(folder)?;
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o2750))?;
    Ok(true)
}

/// Opens a file to write secrets behind what it has, or makes it, for its owner alone. One that others may read is refused,
/// as is a link, and a folder in which others may put something else in its place.
pub fn append_private(path: &Path) -> Result<File> {
    let shown = path.display();
    let refuse = |reason: String| Err(Error::other(format!("{shown} is to hold secrets"), reason));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let of_folder = std::fs::metadata(folder).context(|| format!("stat {}", folder.display()))?;
    let user = nix::unistd::geteuid().as_raw();
    let is_ours = |owner: u32| owner == 0 || owner == user;
    if of_folder.mode() & 0o022 != 0 || !is_ours(of_folder.uid()) {
        return refuse(format!(
            "others may put files into {}: choose a folder that is yours alone, such as one that `mkdir -m 700` makes",
            folder.display()
        ));
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .context(|| format!("open {shown}"))?;
    check_private(&file, path, u64::MAX)?;
    if file.metadata().context(|| format!("fstat {shown}"))?.nlink() != 1 {
        return refuse("it has another name, too (a hard link)".to_owned());
    }
    Ok(file)
}

fn check_private(file: &File, path: &Path, longest: u64) -> Result<()> {
    let shown = path.display();
    let metadata = file.metadata().context(|| format!("fstat {shown}"))?;
    let refuse = |reason: String| Err(Error::other(format!("{shown} is to hold a secret"), reason));
    if !metadata.is_file() || metadata.len() > longest {
        return refuse(format!("not a plain file of at most {longest} bytes"));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return refuse(format!("others may read or write it (mode {mode:04o}): `chmod 600 {shown}`"));
    }
    let user = nix::unistd::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != user {
        return refuse(format!("it belongs to user {}: `chown {user} {shown}`", metadata.uid()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn what_a_group_reads_is_for_it_alone_whatever_the_mode_of_new_files_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers.toml");
        for content in ["one", "two"] {
            replace_for_group(&path, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn secrets_are_appended_to_a_file_that_nobody_else_reads_or_replaces() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(directory.path(), 0o755);
        let [path, link, hard] = ["keys", "link", "hard"].map(|name| directory.path().join(name));
        append_private(&path).unwrap().write_all(b"one ").unwrap();
        append_private(&path).unwrap().write_all(b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one two");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);

        let refused = |path: &Path, why: &str| {
            let error = append_private(path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        std::os::unix::fs::symlink(&path, &link).unwrap();
        refused(&link, "open");
        std::fs::hard_link(&path, &hard).unwrap();
        refused(&path, "another name");
        std::fs::remove_file(&hard).unwrap();
        mode(&path, 0o640);
        refused(&path, "chmod 600");
        mode(&path, 0o600);
        for shared in [0o777, 0o1777, 0o775] {
            mode(directory.path(), shared);
            refused(&path, "others may put files into");
        }
        refused(&directory.path().join("missing").join("keys"), "missing");
    }

    #[test]
    fn what_somebody_has_put_in_the_way_is_replaced_and_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let [path, way, other] =
            ["state.json", "state.json.new", "other"].map(|name| directory.path().join(name));
        std::fs::write(&other, "precious").unwrap();
        for link in [&path, &way] {
            std::os::unix::fs::symlink(&other, link).unwrap();
        }
        for content in ["one", "another"] {
            replace(&path, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
        assert!(!way.exists());
    }

    #[test]
    fn a_new_file_takes_no_other_ones_place_and_nothing_that_was_left() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["key", "there", "link", "nowhere"];
        let [path, there, link, nowhere] = names.map(|name| directory.path().join(name));
        // What a crash has left, open to others.
        let left = directory.path().join(format!("key.{}.new", std::process::id()));
        std::fs::write(&left, "old").unwrap();
        std::fs::set_permissions(&left, Permissions::from_mode(0o644)).unwrap();
        create(&path, b"secret").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);

        std::fs::write(&there, "precious").unwrap();
        std::os::unix::fs::symlink(&nowhere, &link).unwrap();
        for taken in [&there, &link] {
            assert_eq!(create(taken, b"secret").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read(&there).unwrap(), b"precious");
        assert!(!nowhere.exists());
        let entries = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(entries, 3, "nothing is left beside them");
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "secret").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = read_private(&path).unwrap_err().to_string();
        assert!(error.contains("mode 0640") && error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_private(&path).unwrap(), b"secret");
    }

    #[test]
    fn a_secret_that_is_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read_private(directory.path()).is_err());
        assert!(read_private(&directory.path().join("nothing")).is_err());
    }
}
