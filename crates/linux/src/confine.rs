//! A process gives up what it will not need: most files, many system calls, core dumps. What systemd would take from it it
//! so lacks where it is started by hand, too, and so do the programs that it starts.
//!
//! It stays the user that it is: files with keys belong to that user, and are read again at each reload. Root without
//! capabilities could still change all that belongs to root; Landlock prevents that.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, path_beneath_rules,
};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::stat::{Mode, umask};

use crate::error::{Context as _, Error, Result};

/// What is written to beside a process' own folders: network settings, the device of TUN, and where `nft` has no output.
const ALWAYS_WRITABLE: [&str; 3] = ["/proc/sys/net", "/dev/net/tun", "/dev/null"];

/// Memory of this process is written to no disk, and nobody else of the same user may look into it.
pub fn no_core_dumps() -> Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0).context(|| "setrlimit RLIMIT_CORE")?;
    nix::sys::prctl::set_dumpable(false).context(|| "prctl PR_SET_DUMPABLE")
}

/// Confines this thread, and the threads and programs that it starts, for good: they create and change files only beneath
/// these folders (which are made, if need be), make no executable memory, and have no system calls but those for ordinary
/// services and BPF. New files are their owner's alone. Returns what of this the kernel does not offer.
///
/// Call it before the first thread.
pub fn confine<'a>(folders: impl IntoIterator<Item = &'a Path>) -> Result<Vec<&'static str>> {
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let mut writable: Vec<&Path> = ALWAYS_WRITABLE.iter().map(Path::new).collect();
    for folder in folders {
        // "" is what a path of one name says of its folder.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        // Where that fails, who writes to it says so.
        let _ = std::fs::create_dir_all(folder);
        writable.push(folder);
    }
    nix::sys::prctl::set_no_new_privs().context(|| "prctl PR_SET_NO_NEW_PRIVS")?;
    let mut missing = Vec::new();
    missing.extend(restrict_files(&writable)?);
    if !deny_executable_memory()? {
        missing.push("PR_SET_MDWE");
    }
    // Last: it could be told to deny what the others need.
    if !system_calls::restrict()? {
        missing.push("seccomp");
    }
    Ok(missing)
}

/// What programs need of the system: themselves, libraries, the time of day here, randomness.
const READ_BY_PROGRAMS: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/dev/urandom",
    "/proc/sys/net",
];

/// Confines this thread, and the programs that it starts, for good: they read and run what belongs to the system and is no
/// configuration, read `readable`, write to `writable` (files or folders, which are there), and see no other file. False where the
/// kernel has no Landlock.
pub fn confine_program(readable: &[&Path], writable: &[&Path]) -> Result<bool> {
    nix::sys::prctl::set_no_new_privs().context(|| "prctl PR_SET_NO_NEW_PRIVS")?;
    let failed =
        |error: landlock::RulesetError| Error::other("restrict files by Landlock", error.to_string());
    let (all, read) = (AccessFs::from_all(ABI::V3), AccessFs::from_read(ABI::V3));
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(failed)?
        .create()
        .map_err(failed)?
        .add_rules(path_beneath_rules(READ_BY_PROGRAMS, read))
        .map_err(failed)?
        .add_rules(path_beneath_rules(readable, read))
        .map_err(failed)?
        .add_rules(path_beneath_rules(["/dev/null"], AccessFs::WriteFile | AccessFs::ReadFile))
        .map_err(failed)?
        .add_rules(path_beneath_rules(writable, all))
        .map_err(failed)?
        .restrict_self()
        .map_err(failed)?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// What is missing of it: all, where the kernel has no Landlock or it is off, or what came later.
fn restrict_files(writable: &[&Path]) -> Result<Option<&'static str>> {
    let failed =
        |error: landlock::RulesetError| Error::other("restrict files by Landlock", error.to_string());
    // Linux 6.2; of an older kernel, what it knows.
    let access = AccessFs::from_write(ABI::V3);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(access)
        .map_err(failed)?
        .create()
        .map_err(failed)?
        .add_rules(path_beneath_rules(writable, access))
        .map_err(failed)?
        .restrict_self()
        .map_err(failed)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => None,
        RulesetStatus::PartiallyEnforced => Some("Landlock of Linux 6.2 (others' files could be truncated)"),
        RulesetStatus::NotEnforced => Some("Landlock"),
    })
}

/// False where the kernel does not know that: before Linux 6.3.
fn deny_executable_memory() -> Result<bool> {
    const PR_SET_MDWE: libc::c_int = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
    let none: libc::c_ulong = 0;
    // SAFETY: the arguments are numbers; nothing is read or written.
    let result = unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, none, none, none) };
    match Error::last("prctl PR_SET_MDWE") {
        _ if result == 0 => Ok(true),
        error if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        error => Err(error),
    }
}

mod system_calls {
    //! The filter of system calls (seccomp(2)): what the unit's `SystemCallFilter=`, `RestrictNamespaces=`,
    //! `RestrictAddressFamilies=` and `LockPersonality=` deny. It denies by name rather than allowing by name: what a C
    //! library or a program like `nft` of another version calls is not known here.

    use crate::error::{Error, Result};

    /// linux/audit.h
    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const ARCHITECTURE: Option<u32> = None;

    /// From here on numbers are those of x32.
    #[cfg(target_arch = "x86_64")]
    const FOREIGN: u32 = 0x4000_0000;
    #[cfg(not(target_arch = "x86_64"))]
    const FOREIGN: u32 = u32::MAX;

    // System calls that libc does not name everywhere yet. Since 424 they have the same number on all architectures.
    const FCHMODAT2: libc::c_long = 452;
    const SETXATTRAT: libc::c_long = 463;
    const REMOVEXATTRAT: libc::c_long = 466;
    const FILE_SETATTR: libc::c_long = 469;
    #[cfg(target_arch = "x86_64")]
    const KEXEC_FILE_LOAD: libc::c_long = libc::SYS_kexec_file_load;
    // libc lacks it for aarch64 with musl.
    #[cfg(not(target_arch = "x86_64"))]
    const KEXEC_FILE_LOAD: libc::c_long = 294;

    /// Offsets in `struct seccomp_data`.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    /// The lower half of the first argument, on the little-endian processors that are named above.
    const FIRST_ARGUMENT: u32 = 16;
    const SECOND_ARGUMENT: u32 = 24;

    /// What types into the terminal that it was started from, for the shell there to read: TIOCSTI and TIOCLINUX, whose type
    /// in libc is another for each C library.
    const DENIED_IOCTLS: [u32; 2] = [0x5412, 0x541c];

    /// All flags of clone(2) that begin a namespace.
    const NAMESPACES: u32 = (libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET) as u32;

    const FAMILIES: [libc::c_int; 5] =
        [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];

    const DENIED: &[libc::c_long] = &[
        // Others' memory and descriptors.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        // System calls past this filter.
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        // What Landlock does not look at: modes, times and other attributes of others' files.
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        FCHMODAT2,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        SETXATTRAT,
        REMOVEXATTRAT,
        FILE_SETATTR,
        libc::SYS_utimensat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime,
        // Other users, other owners of files.
        libc::SYS_setuid,
        libc::SYS_setgid,
        libc::SYS_setreuid,
        libc::SYS_setregid,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setfsuid,
        libc::SYS_setfsgid,
        libc::SYS_setgroups,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown,
        // Namespaces (unshare and clone: below) and file systems.
        libc::SYS_setns,
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_open_by_handle_at,
        libc::SYS_fanotify_init,
        libc::SYS_quotactl,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        // The kernel and the machine.
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        KEXEC_FILE_LOAD,
        libc::SYS_reboot,
        libc::SYS_syslog,
        libc::SYS_acct,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_clock_settime,
        libc::SYS_clock_adjtime,
        libc::SYS_settimeofday,
        libc::SYS_adjtimex,
        libc::SYS_vhangup,
        libc::SYS_personality,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_keyctl,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_iopl,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_ioperm,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_modify_ldt,
    ];

    /// False where this is not done: on other processors, or where the kernel has no filters.
    pub(super) fn restrict() -> Result<bool> {
        let Some(mut filter) = filter() else { return Ok(false) };
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the kernel copies the program and the instructions that it points to, which live across the call.
        let result =
            unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
        match Error::last("prctl PR_SET_SECCOMP") {
            _ if result == 0 => Ok(true),
            error if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            error => Err(error),
        }
    }

    fn filter() -> Option<Vec<libc::sock_filter>> {
        let refuse = |errno: libc::c_int| instruction(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | errno as u32);
        let allow = instruction(libc::BPF_RET, libc::SECCOMP_RET_ALLOW);
        let load = |offset| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
        // Passes over the next so many instructions, unless.
        let unless = |condition, operand, over| jump(condition, operand, 0, over);
        let mut filter = vec![
            load(ARCH),
            jump(libc::BPF_JEQ, ARCHITECTURE?, 1, 0),
            refuse(libc::EPERM),
            load(NUMBER),
            unless(libc::BPF_JGE, FOREIGN, 1),
            refuse(libc::EPERM),
        ];
        for number in DENIED {
            filter.extend([unless(libc::BPF_JEQ, *number as u32, 1), refuse(libc::EPERM)]);
        }
        filter.extend([
            // Only an umask of a thread's own.
            unless(libc::BPF_JEQ, libc::SYS_unshare as u32, 4),
            load(FIRST_ARGUMENT),
            jump(libc::BPF_JEQ, libc::CLONE_FS as u32, 1, 0),
            refuse(libc::EPERM),
            allow,
            // Its flags are out of reach; a C library then calls clone.
            unless(libc::BPF_JEQ, libc::SYS_clone3 as u32, 1),
            refuse(libc::ENOSYS),
            unless(libc::BPF_JEQ, libc::SYS_clone as u32, 4),
            load(FIRST_ARGUMENT),
            unless(libc::BPF_JSET, NAMESPACES, 1),
            refuse(libc::EPERM),
            allow,
            unless(libc::BPF_JEQ, libc::SYS_ioctl as u32, 2 * DENIED_IOCTLS.len() as u8 + 2),
            load(SECOND_ARGUMENT),
        ]);
        for request in DENIED_IOCTLS {
            filter.extend([unless(libc::BPF_JEQ, request, 1), refuse(libc::EPERM)]);
        }
        filter.extend([
            allow,
            jump(libc::BPF_JEQ, libc::SYS_socket as u32, 1, 0),
            allow,
            load(FIRST_ARGUMENT),
        ]);
        for family in FAMILIES {
            filter.extend([unless(libc::BPF_JEQ, family as u32, 1), allow]);
        }
        filter.push(refuse(libc::EAFNOSUPPORT));
        Some(filter)
    }

    fn instruction(code: u32, operand: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: operand }
    }

    fn jump(condition: u32, operand: u32, if_true: u8, if_false: u8) -> libc::sock_filter {
        let code = (libc::BPF_JMP | condition | libc::BPF_K) as u16;
        libc::sock_filter { code, jt: if_true, jf: if_false, k: operand }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::CloneFlags;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    use std::fs;
    use std::io::ErrorKind;
    use std::process::Command;

    /// linux/sched.h; of clone(2) it is no flag.
    const CLONE_NEWTIME: libc::c_int = 0x80;

    /// Without a terminal the kernel would say so (ENOTTY).
    fn types_into_its_terminal() -> nix::Result<()> {
        // SAFETY: the request reads one byte from the address, which lives across the call.
        let result = unsafe { libc::ioctl(0, libc::TIOCSTI, &b'\0') };
        nix::errno::Errno::result(result).map(drop)
    }

    #[test]
    fn a_confined_program_sees_what_it_is_given_and_the_system() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [given, kept, secret] =
            [own.path().join("given"), own.path().join("kept"), other.path().join("secret")];
        for file in [&given, &kept, &secret] {
            fs::write(file, "text").unwrap();
        }
        let works =
            |words: &[&str]| Command::new(words[0]).args(&words[1..]).output().unwrap().status.success();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (given_name, kept_name, secret_name) = (text(&given), text(&kept), text(&secret));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if !confine_program(&[&given], &[&kept]).unwrap() {
                    return;
                }
                assert!(works(&["cat", &given_name]) && works(&["cat", &kept_name]));
                assert!(works(&["sh", "-c", &format!("echo more >> {kept_name}")]));
                assert!(!works(&["sh", "-c", &format!("echo more >> {given_name}")]));
                assert!(!works(&["cat", &secret_name]) && !works(&["cat", "/etc/passwd"]));
                assert!(!works(&["touch", &text(&own.path().join("new"))]));
            });
        });
        assert!(works(&["cat", &secret_name]), "others are not confined");
    }

    #[test]
    fn a_confined_thread_writes_to_its_folders_only_and_lacks_what_it_does_not_need() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let before = umask(Mode::empty());
        umask(before);
        // A thread of its own: what it gives up, the other tests keep.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let folder = own.path().join("made");
                let missing = confine([folder.as_path()]).unwrap();
                umask(before);
                fs::write(folder.join("file"), "1").unwrap();
                fs::rename(folder.join("file"), folder.join("renamed")).unwrap();
                assert_eq!(fs::read_to_string(folder.join("renamed")).unwrap(), "1");
                fs::write("/dev/null", "").unwrap();
                assert!(fs::read_to_string("/proc/thread-self/status").unwrap().contains("NoNewPrivs:\t1"));

                let denied = |result: nix::Result<()>| result == Err(nix::errno::Errno::EPERM);
                if !missing.iter().any(|missing| missing.starts_with("Landlock")) {
                    let refused = fs::write(other.path().join("file"), "").unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
                    // Nor do programs that it starts.
                    let mut touch = Command::new("touch");
                    assert!(!touch.arg(other.path().join("file")).output().unwrap().status.success());
                }
                if !missing.contains(&"seccomp") {
                    let unshare =
                        |flags| std::thread::spawn(move || nix::sched::unshare(flags)).join().unwrap();
                    assert!(denied(unshare(CloneFlags::CLONE_NEWUTS)));
                    assert!(denied(unshare(CloneFlags::from_bits_retain(CLONE_NEWTIME))));
                    assert!(denied(unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)));
                    // A thread may have an umask of its own.
                    unshare(CloneFlags::CLONE_FS).unwrap();
                    assert!(denied(nix::unistd::chown(&folder, None, None)));
                    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                    let refused = fs::set_permissions(other.path(), mode).unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
                    assert!(denied(types_into_its_terminal()));
                    let (family, flags) = (AddressFamily::Alg, SockFlag::empty());
                    let refused = socket(family, SockType::SeqPacket, flags, None).unwrap_err();
                    assert_eq!(refused, nix::errno::Errno::EAFNOSUPPORT);
                }
                // What it needs is there: threads, programs, sockets.
                assert_eq!(std::thread::spawn(|| 1).join().unwrap(), 1);
                assert!(Command::new("true").status().unwrap().success());
                std::net::UdpSocket::bind("[::]:0").unwrap();
            });
        });
        fs::write(other.path().join("file"), "others are not confined").unwrap();
    }
}
