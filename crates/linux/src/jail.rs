//! A program in user, network and mount namespaces of its own, whose only way out is a TUN device that this process holds.
//! It takes no privileges, where the kernel lets users make namespaces.
//!
//! The child is forked before there are secrets in this process, makes its namespaces and the device in them, hands over the
//! device's queue, and waits for what it is to be configured with. Then it becomes the program. It is killed when this process
//! ends; what it has started meanwhile lives on, without any network: the device goes with its queue.

use std::ffi::OsString;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ipnet::IpNet;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getgid, getppid, getuid};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::netlink::{Netlink, Route};
use crate::tun::{self, Offloads, Queue};

/// The device's name, in a namespace where it is the only one.
const DEVICE: &str = "tun0";
const LOOPBACK: u32 = 1;
/// Where the C library looks for name servers.
const RESOLVER: &str = "/etc/resolv.conf";
/// Daemons of the host that look names up for whoever asks by a path, past every network namespace.
const RESOLVERS_OF_THE_HOST: [&str; 4] = [
    "/run/nscd/socket",
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/dbus/system_bus_socket",
    "/run/avahi-daemon/socket",
];
/// Exit status of a program that cannot be run, as of a shell.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// More than the longest answer of the child.
const LONGEST: u64 = 4096;

/// What the program's network is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Addresses of its device.
    pub addresses: Vec<IpNet>,
    /// The device's MTU.
    pub mtu: u32,
    /// Its name servers.
    pub dns: Vec<IpAddr>,
}

/// A program that waits for its network, or runs.
#[derive(Debug)]
pub struct Jail {
    child: Pid,
    ended: OwnedFd,
    channel: UnixStream,
    queue: Option<Queue>,
    offloads: Offloads,
    is_reaped: bool,
}

impl Jail {
    /// Forks the child, which makes its namespaces. Call it before the first thread, and before there are secrets.
    ///
    /// # Errors
    /// Where the kernel forbids it: the error says what to do.
    pub fn start(command: &[OsString]) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair().context(|| "socketpair")?;
        let parent = nix::unistd::getpid();
        // SAFETY: this process has one thread, as is asked for, so that no lock is held by one that the child has not.
        match unsafe { fork() }.context(|| "fork")? {
            ForkResult::Child => {
                drop(ours);
                let status = be_the_program(&theirs, parent, command);
                std::process::exit(status);
            }
            ForkResult::Parent { child } => {
                drop(theirs);
                // SAFETY: the arguments are numbers; what comes back is a descriptor of ours alone, or an error.
                let ended = unsafe { libc::syscall(libc::SYS_pidfd_open, child.as_raw(), 0) };
                if ended < 0 {
                    return Err(Error::last("pidfd_open (needs Linux 5.3)"));
                }
                // SAFETY: as above.
                let ended = unsafe { OwnedFd::from_raw_fd(ended as RawFd) };
                let mut jail = Self {
                    child,
                    ended,
                    channel: ours,
                    queue: None,
                    offloads: Offloads::None,
                    is_reaped: false,
                };
                let (queue, offloads) = jail.receive_queue()?;
                (jail.queue, jail.offloads) = (Some(queue), offloads);
                Ok(jail)
            }
        }
    }

    /// The queue of its device, once, with the offloads that the kernel has taken.
    pub fn take_queue(&mut self) -> Option<(Queue, Offloads)> {
        Some((self.queue.take()?, self.offloads))
    }

    /// Gives it its network, and has it become the program.
    ///
    /// # Errors
    /// Why it could not: it has ended then.
    pub fn open(&mut self, setup: &Setup) -> Result<()> {
        let mut line = serde_json::to_vec(setup)
            .map_err(|error| Error::other("set up the program's network", error.to_string()))?;
        line.push(b'\n');
        self.channel.write_all(&line).context(|| "tell the program its network")?;
        let _ = self.channel.shutdown(Shutdown::Write);
        // Closed when it becomes the program.
        let mut told = String::new();
        (&self.channel).take(LONGEST).read_to_string(&mut told).context(|| "hear from the program")?;
        if told.is_empty() { Ok(()) } else { Err(Error::other("run the program", told)) }
    }

    /// Readable when it has ended.
    #[must_use]
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Asks it to end.
    pub fn stop(&self) {
        if !self.is_reaped {
            // It may have ended just now.
            let _ = nix::sys::signal::kill(self.child, Signal::SIGTERM);
        }
    }

    /// Waits for its end, and returns its exit status: 128 and a signal's number more, where that has ended it.
    ///
    /// # Errors
    /// Where it was waited for before.
    pub fn wait(&mut self) -> Result<u8> {
        loop {
            match waitpid(self.child, None) {
                Ok(WaitStatus::Exited(_, status)) => {
                    self.is_reaped = true;
                    return Ok(status as u8);
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    self.is_reaped = true;
                    return Ok(128u8.wrapping_add(signal as i32 as u8));
                }
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(Error::new("waitpid", error)),
            }
        }
    }

    fn receive_queue(&self) -> Result<(Queue, Offloads)> {
        let mut bytes = [0; LONGEST as usize];
        let mut control = nix::cmsg_space!(RawFd);
        let mut pieces = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg::<()>(
            self.channel.as_raw_fd(),
            &mut pieces,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )
        .context(|| "receive the program's TUN device")?;
        let length = message.bytes;
        let mut queue = None;
        for part in message.cmsgs().context(|| "receive the program's TUN device")? {
            if let ControlMessageOwned::ScmRights(descriptors) = part {
                for descriptor in descriptors {
                    // SAFETY: the kernel has just made it for this process, and nobody else has it.
                    queue = Some(Queue::from(unsafe { OwnedFd::from_raw_fd(descriptor) }));
                }
            }
        }
        let told = bytes.get(..length).unwrap_or_default();
        match queue {
            Some(queue) => Ok((queue, offloads_of(told.first().copied().unwrap_or(0)))),
            None if told.is_empty() => {
                Err(Error::other("make namespaces for the program", "it has ended at once"))
            }
            None => {
                let told = String::from_utf8_lossy(told).into_owned();
                Err(Error::other("make namespaces for the program", told))
            }
        }
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = nix::sys::signal::kill(self.child, Signal::SIGKILL);
            let _ = waitpid(self.child, None);
        }
    }
}

/// What the child does; returns its exit status, if it does not become the program.
fn be_the_program(channel: &UnixStream, parent: Pid, command: &[OsString]) -> i32 {
    let tell = |error: &Error| {
        let _ = (&mut &*channel).write_all(error.to_string().as_bytes());
    };
    let device = match enter_namespaces(parent) {
        Ok(device) => device,
        Err(error) => {
            tell(&with_remedy(error));
            return NOT_EXECUTABLE;
        }
    };
    let index = device.index;
    let outcome = send_queue(channel, device).and_then(|()| {
        let mut line = Vec::new();
        (&mut &*channel).take(1 << 20).read_to_end(&mut line).context(|| "hear of the network")?;
        if line.is_empty() {
            // The tunnel did not come about.
            return Ok(false);
        }
        let setup: Setup = serde_json::from_slice(&line)
            .map_err(|error| Error::other("hear of the network", error.to_string()))?;
        set_up_network(index, &setup)?;
        set_up_names(&setup.dns)?;
        Ok(true)
    });
    match outcome {
        Ok(true) => {}
        Ok(false) => return NOT_EXECUTABLE,
        Err(error) => {
            tell(&error);
            return NOT_EXECUTABLE;
        }
    }
    let [program, arguments @ ..] = command else { return NOT_FOUND };
    // A mask is inherited: the signals that this command reads would end no program, nor would Ctrl-C.
    if let Err(error) = SigSet::empty().thread_set_mask() {
        tell(&Error::new("pthread_sigmask", error));
        return NOT_EXECUTABLE;
    }
    // Descriptors of ours are closed.
    let error = Command::new(program).args(arguments).exec();
    let shown = Path::new(program).display().to_string();
    let status = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    tell(&Error::new(shown, error));
    status
}

fn enter_namespaces(parent: Pid) -> Result<tun::Device> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).context(|| "prctl PR_SET_PDEATHSIG")?;
    if getppid() != parent {
        return Err(Error::other("make namespaces", "the process that asked for them has ended"));
    }
    let (user, group) = (getuid(), getgid());
    // The files of a process that is not dumpable belong to root. There are no secrets here.
    nix::sys::prctl::set_dumpable(true).context(|| "prctl PR_SET_DUMPABLE")?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .context(|| "unshare CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS")?;
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ] {
        std::fs::write(file, text).context(|| format!("write {file}"))?;
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).context(|| "make mounts private")?;
    Netlink::open()?.set_link_up(LOOPBACK, true)?;
    tun::create(DEVICE, 1, Offloads::TcpAndUdp)
}

fn with_remedy(error: Error) -> Error {
    let is_forbidden = matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::ENOSPC | libc::EUSERS | libc::EINVAL)
    );
    if !is_forbidden {
        return error;
    }
    if error.to_string().starts_with("open /dev/net/tun") {
        let what =
            "as root, allow it to all: `chmod 666 /dev/net/tun`. `sidestep ipsec proxy` does not need it";
        return Error::other(error.to_string(), what);
    }
    Error::other(
        error.to_string(),
        "users may not make namespaces here. As root, allow it by whichever of these there is: \
         `sysctl -w kernel.unprivileged_userns_clone=1`, `sysctl -w user.max_user_namespaces=15000`, \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`; and /dev/net/tun must be for all (mode 0666). \
         `sidestep ipsec proxy` needs none of it",
    )
}

fn send_queue(channel: &UnixStream, device: tun::Device) -> Result<()> {
    let tun::Device { offloads, queues, .. } = device;
    let descriptors: Vec<RawFd> = queues.iter().map(|queue| queue.as_fd().as_raw_fd()).collect();
    let number = [number_of(offloads)];
    sendmsg::<()>(
        channel.as_raw_fd(),
        &[IoSlice::new(&number)],
        &[ControlMessage::ScmRights(&descriptors)],
        MsgFlags::empty(),
        None,
    )
    .map(drop)
    .context(|| "hand over the TUN device")
}

const OFFLOADS: [Offloads; 4] = [Offloads::None, Offloads::Checksums, Offloads::Tcp, Offloads::TcpAndUdp];

fn number_of(offloads: Offloads) -> u8 {
    OFFLOADS.iter().position(|other| *other == offloads).unwrap_or(0) as u8
}

fn offloads_of(number: u8) -> Offloads {
    OFFLOADS.get(usize::from(number)).copied().unwrap_or(Offloads::None)
}

fn set_up_network(index: u32, setup: &Setup) -> Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.set_link_mtu(index, setup.mtu)?;
    for address in &setup.addresses {
        netlink.add_address(index, *address, false)?;
    }
    netlink.set_link_up(index, true)?;
    let defaults: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    for default in defaults {
        let has_address = setup.addresses.iter().any(|address| address.addr().is_ipv4() == default.is_ipv4());
        let everything = IpNet::new(default, 0)
            .map_err(|error| Error::other("make a default route", error.to_string()))?;
        if has_address {
            netlink.add_route(&Route::device(everything, index))?;
        }
    }
    Ok(())
}

/// The program's own resolver configuration in the place of the host's, and the host's daemons out of sight.
fn set_up_names(dns: &[IpAddr]) -> Result<()> {
    let bind = |from: &Path, to: &Path| {
        mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .context(|| format!("mount over {}", to.display()))
    };
    for socket in RESOLVERS_OF_THE_HOST.map(Path::new) {
        if socket.exists() {
            bind(Path::new("/dev/null"), socket)?;
        }
    }
    // It may be a link to a file of a daemon's, or to nothing.
    let Ok(place) = Path::new(RESOLVER).canonicalize() else { return Ok(()) };
    let file = write_resolver_file(dns)?;
    let bound = bind(&file, &place);
    // It goes on, mounted, without a name.
    let _ = std::fs::remove_file(&file);
    bound
}

fn write_resolver_file(dns: &[IpAddr]) -> Result<PathBuf> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let text: String = dns.iter().map(|server| format!("nameserver {server}\n")).collect();
    let name = format!("sidestep-resolv-{}", nix::unistd::getpid());
    let path = std::env::temp_dir().join(name);
    let what = || format!("make {}", path.display());
    let mut file: File =
        File::options().write(true).create_new(true).mode(0o644).open(&path).context(what)?;
    file.write_all(text.as_bytes()).context(what)?;
    Ok(path)
}
