//! Machines for the sites of a fleet: each behind a link of its own at one router, with the folders that a machine of its own has.
//!
//! ```text
//!   site N   inside: fd00:N::1/64   eth0: 2001:db8:f:N::2 ── 2001:db8:f:N::1 router   (2001:db8:a:N::/64 leads to it)
//! ```
//!
//! `N` is written in decimal digits. What runs on a machine has its own `/etc/sidestep`, `/var/lib` and sockets, so that commands
//! need no option for that, as on machines that are apart.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::namespaces::{Namespace, check_neighbors};
use crate::prefix::directory;

/// The folders of a machine's own: in its folder, and where they are for what runs on it.
const FOLDERS: [(&str, &str); 4] = [
    ("etc", "/etc/sidestep"),
    ("lib", "/var/lib"),
    ("run", "/run/sidestep"),
    // As the packages make it: sockets in it belong to its group.
    ("agents", "/run/sidestep-agent"),
];
/// Puts them there, and becomes the command.
const BECOME: &str = r#"
own=$1
shift
mount --bind "$own/etc" /etc/sidestep
mount --bind "$own/lib" /var/lib
mount --bind "$own/run" /run/sidestep
mount --bind "$own/agents" /run/sidestep-agent
exec "$@"
"#;
/// Addresses have room for so many.
const MOST: usize = 9999;

/// Machines that are up until [`Machines::remove`].
#[derive(Debug, Clone)]
pub struct Machines {
    prefix: String,
}

impl Machines {
    /// Machines whose namespaces' names begin so; there may be none yet.
    #[must_use]
    pub fn named(prefix: impl Into<String>) -> Self {
        Machines { prefix: prefix.into() }
    }

    /// Makes the machines 1 to `count` and their router, as far as they are not there.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn make(&self, count: usize) -> Result<(), Error> {
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::NotRoot);
        }
        if !(1..=MOST).contains(&count) {
            return Err(Error::Usage(format!("{count} machines: there can be 1 to {MOST}")));
        }
        check_neighbors(count as u64)?;
        for (_, there) in FOLDERS {
            fs::create_dir_all(there).map_err(|source| Error::file(there, source))?;
        }
        let router = self.router();
        if !router.exists() {
            router.create()?;
            router.sysctl(&[("ipv6/conf/all/forwarding", 1)])?;
        }
        (1..=count).filter(|number| !self.namespace(*number).exists()).try_for_each(|number| self.add(number))
    }

    fn add(&self, number: usize) -> Result<(), Error> {
        let (machine, router) = (self.namespace(number), self.router());
        machine.create()?;
        machine.sysctl(&[("ipv6/conf/all/forwarding", 1)])?;
        let name = machine.name();
        router.ip(&format!(
            "link add name to-{number} type veth peer name eth0 netns {name}\n\
             link set to-{number} up\n\
             address add 2001:db8:f:{number}::1/64 dev to-{number} nodad\n\
             route add {} via 2001:db8:f:{number}::2\n",
            hop_prefix(number)
        ))?;
        // Both ends of a cable, so that the network behind it is up without a machine in it.
        machine.ip(&format!(
            "link add name inside type veth peer name cable\n\
             link set inside up\nlink set cable up\nlink set eth0 up\n\
             address add {}/64 dev inside nodad\n\
             address add 2001:db8:f:{number}::2/64 dev eth0 nodad\n\
             route add default via 2001:db8:f:{number}::1\n",
            inside(number)
        ))?;
        let folder = self.folder(number);
        for (name, _) in FOLDERS {
            let path = folder.join(name);
            let made = DirBuilder::new().mode(0o700).recursive(true).create(&path);
            made.map_err(|source| Error::file(&path, source))?;
        }
        let agents = folder.join("agents");
        fs::set_permissions(&agents, Permissions::from_mode(0o2750))
            .map_err(|source| Error::file(&agents, source))
    }

    /// The router between them.
    #[must_use]
    pub fn router(&self) -> Namespace {
        Namespace::named(format!("{}-router", self.prefix))
    }

    /// A machine's namespace.
    #[must_use]
    pub fn namespace(&self, number: usize) -> Namespace {
        Namespace::named(format!("{}-{number}", self.prefix))
    }

    /// Where a machine's own folders are: `etc`, `lib`, `run`, `agents`.
    #[must_use]
    pub fn folder(&self, number: usize) -> PathBuf {
        directory(&self.prefix).join(number.to_string())
    }

    /// A command on a machine; its process is the program itself, so that it can be signalled.
    ///
    /// # Errors
    /// When there is no such machine.
    pub fn command(&self, number: usize, program: &Path) -> Result<Command, Error> {
        let namespace = self.namespace(number);
        if !namespace.exists() {
            return Err(Error::Usage(format!(
                "there is no machine {number}: `sidestep-lab fleet up {number}` makes it"
            )));
        }
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace.name(), "sh", "-ec", BECOME, "sh"]);
        command.arg(self.folder(number)).arg(program);
        Ok(command)
    }

    /// Ends what runs on them, and removes them.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn remove(&self) -> Result<(), Error> {
        let start = format!("{}-", self.prefix);
        let is_ours = |name: &String| {
            let rest = name.strip_prefix(&start);
            rest.is_some_and(|rest| rest == "router" || rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let ours: Vec<String> = crate::prefix::names("/run/netns").filter(is_ours).collect();
        // All at once, so that a fleet does not take the time of each of its sites.
        let removed = std::thread::scope(|scope| {
            let each = |name: &String| {
                let namespace = Namespace::named(name.clone());
                scope.spawn(move || namespace.delete())
            };
            let threads: Vec<_> = ours.iter().map(each).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
        });
        let folder = directory(&self.prefix);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|source| Error::file(&folder, source))?;
        }
        removed
    }
}

/// Where a machine's site hops.
#[must_use]
pub fn hop_prefix(number: usize) -> String {
    format!("2001:db8:a:{number}::/64")
}

/// A machine's address in the network behind it.
#[must_use]
pub fn inside(number: usize) -> String {
    format!("fd00:{number}::1")
}

/// A machine's address in the Internet.
#[must_use]
pub fn outside(number: usize) -> String {
    format!("2001:db8:f:{number}::2")
}
