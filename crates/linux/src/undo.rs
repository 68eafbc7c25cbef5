//! The journal of what was set up in the kernel and would outlive us.
//!
//! A step is written down before it is taken, and struck out after it was taken back. So whatever a crash leaves
//! behind is in the journal, which the next start finds: [`Journal::open`] then takes everything back. Taking back
//! what is not there is no error, and what is not ours is left alone: routes and neighbor entries carry
//! [`crate::netlink::PROTOCOL`], a table our name, a filter our priority and a handle drawn at random.
//!
//! The file has one JSON value a line: `{"did":STEP}` or `{"undid":STEP}`. A line that a crash cut short is passed
//! over: its step was not taken yet. So is a step that no journal of ours has. A file that somebody else could have
//! written is refused: what it says is done with our privileges.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::Ipv6Addr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use wire::ethernet::MacAddress;

use crate::bpf::Program;
use crate::bpf::attach::{Attachment, Direction, Filter};
use crate::error::{Context, Error, Result};
use crate::forwarding::{Forwarding, IpVersion};
use crate::netlink::{Cake, Lifetimes, NeighborState, Netlink, Route, Rule, TableRoute};
use crate::nft;
use crate::no_autoconf::NoAutoconf;
use crate::sysctl;

/// Lines that are struck out before the file is written anew.
const COMPACT_AFTER: usize = 4_096;

/// Something that Sidestep put into the kernel, and how to find it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A route of ours, without its MTU, which may change.
    Route(Route),
    /// A route of ours in another table than the main one.
    TableRoute(TableRoute),
    /// A rule of ours that says which table decides.
    Rule(Rule),
    /// A neighbor entry of ours.
    Neighbor {
        /// The interface.
        index: u32,
        /// The neighbor's address.
        address: Ipv6Addr,
    },
    /// The tables that keep the prefix of this tunnel dark.
    DarkPrefix {
        /// The tunnel's name.
        tunnel: String,
    },
    /// An address of an interface that nobody else had given it.
    Address {
        /// The interface.
        index: u32,
        /// The address, with the length of its network.
        address: IpNet,
    },
    /// A table of nftables.
    Table {
        /// Its family: `inet`, `ip6`, `ip`.
        family: String,
        /// Its name.
        name: String,
    },
    /// A filter of ours at an interface.
    Filter(Filter),
    /// A CAKE of ours at the root of an interface.
    Cake {
        /// The interface.
        index: u32,
    },
    /// A device of the kind `ifb`.
    Ifb {
        /// Its name.
        name: String,
    },
    /// What an interface receives is sent to another one.
    Redirect {
        /// The interface.
        index: u32,
        /// The filter's handle.
        handle: u32,
        /// The other interface.
        to: u32,
    },
    /// An interface without autoconfiguration, and how it was before. Journals have it by this name.
    #[serde(rename = "quiet")]
    NoAutoconf(NoAutoconf),
    /// A parameter of an interface that was something else before.
    Parameter {
        /// The interface.
        interface: String,
        /// Which one, for IPv6.
        name: String,
        /// What it was.
        before: String,
        /// What it is now.
        now: String,
    },
    /// A parameter of the network that was something else before.
    Global {
        /// Its path below `/proc/sys/net`.
        name: String,
        /// What it was.
        before: String,
        /// What it is now.
        now: String,
    },
    /// A machine that forwards now, and how it was before.
    Forwarding(Forwarding),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Did(Step),
    Undid(Step),
}

/// The journal of one tunnel. Whoever has it open must be the only one: the TUN device's name sees to that.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    done: Vec<Step>,
    struck_out: usize,
}

impl Journal {
    /// Opens the journal, and first takes back whatever an earlier run left. Returns what that was.
    ///
    /// Call it once the TUN device is made, so that two programs cannot undo each other's work.
    pub fn open(path: &Path, netlink: &mut Netlink) -> Result<(Self, Vec<Step>)> {
        Self::open_keeping(path, netlink, |_| false)
    }

    /// The same, but what is to be kept stays, as if it had been set up through this journal.
    pub fn open_keeping(
        path: &Path,
        netlink: &mut Netlink,
        keep: impl Fn(&Step) -> bool,
    ) -> Result<(Self, Vec<Step>)> {
        let left = outstanding(&read(path)?);
        let (done, left): (Vec<_>, Vec<_>) = left.into_iter().partition(keep);
        for step in left.iter().rev() {
            take_back(step, netlink)?;
        }
        let file = write_anew(path, &done)?;
        Ok((Self { path: path.to_owned(), file, done, struck_out: 0 }, left))
    }

    /// What is in another program's journal; nothing where there is none, or it cannot be read.
    #[must_use]
    pub fn of_another(path: &Path) -> Vec<Step> {
        read(path).map(|content| outstanding(&content)).unwrap_or_default()
    }

    /// What has been set up and not yet taken back, oldest first.
    #[must_use]
    pub fn done(&self) -> &[Step] {
        &self.done
    }

    /// Adds a route. If the very same one is there already, whosever it is, it stays, and the error
    /// [already exists](crate::Error::already_exists).
    pub fn add_route(&mut self, netlink: &mut Netlink, route: Route) -> Result<()> {
        let step = Step::Route(route.without_mtu());
        self.take(step, || netlink.add_route(&route))
    }

    /// Takes over a route of ours that is there, as if it had been added through this journal.
    pub fn adopt_route(&mut self, route: &Route) -> Result<()> {
        self.take(Step::Route(route.without_mtu()), || Ok(()))
    }

    /// Removes a route that was added through this journal, whatever its MTU is by now.
    pub fn delete_route(&mut self, netlink: &mut Netlink, route: &Route) -> Result<()> {
        self.undo(netlink, &Step::Route(route.without_mtu()))
    }

    /// Adds a route to another table. If the very same one is there already, whosever it is, it stays, and the error
    /// [already exists](crate::Error::already_exists).
    pub fn add_table_route(&mut self, netlink: &mut Netlink, route: TableRoute) -> Result<()> {
        self.take(Step::TableRoute(route.clone()), || netlink.add_table_route(&route))
    }

    /// Adds a rule, with the same error.
    pub fn add_rule(&mut self, netlink: &mut Netlink, rule: Rule) -> Result<()> {
        self.take(Step::Rule(rule), || netlink.add_rule(&rule))
    }

    /// Takes back one of the steps that were taken through this journal.
    pub fn undo_step(&mut self, netlink: &mut Netlink, step: &Step) -> Result<()> {
        self.undo(netlink, step)
    }

    /// Adds a neighbor entry. If the kernel has one for the address, it stays, and the error
    /// [already exists](crate::Error::already_exists).
    pub fn add_neighbor(
        &mut self,
        netlink: &mut Netlink,
        index: u32,
        address: Ipv6Addr,
        mac: MacAddress,
        state: NeighborState,
    ) -> Result<()> {
        self.take(Step::Neighbor { index, address }, || netlink.add_neighbor(index, address, mac, state))
    }

    /// Removes a neighbor entry that was added through this journal.
    pub fn delete_neighbor(&mut self, netlink: &mut Netlink, index: u32, address: Ipv6Addr) -> Result<()> {
        self.undo(netlink, &Step::Neighbor { index, address })
    }

    /// Makes a prefix dark, and runs another script in the same transaction: see [`nft::darken`].
    pub fn darken(&mut self, dark: &nft::DarkPrefix<'_>, beside: &str) -> Result<bool> {
        let step = Step::DarkPrefix { tunnel: dark.tunnel.to_owned() };
        self.take(step, || nft::darken(dark, beside))
    }

    /// Gives an interface an address, for good if there are no lifetimes. If it has it already, it stays, and the error
    /// [already exists](crate::Error::already_exists).
    pub fn add_address(
        &mut self,
        netlink: &mut Netlink,
        index: u32,
        address: IpNet,
        lifetimes: Option<Lifetimes>,
    ) -> Result<()> {
        // Asked first: a crash between the journal and the kernel's answer must not make somebody else's address ours.
        if netlink.addresses(index)?.iter().any(|found| found.address.addr() == address.addr()) {
            let exists = std::io::Error::from_raw_os_error(libc::EEXIST);
            return Err(Error::new(format!("add address {address} to link {index}"), exists));
        }
        self.take(Step::Address { index, address }, || match lifetimes {
            Some(lifetimes) => netlink.add_temporary_address(index, address, lifetimes),
            None => netlink.add_address(index, address, true),
        })
    }

    /// Removes an address that was added through this journal.
    pub fn delete_address(&mut self, netlink: &mut Netlink, index: u32, address: IpNet) -> Result<()> {
        self.undo(netlink, &Step::Address { index, address })
    }

    /// Runs a script of nft that makes, or changes, a table of ours, and nothing else.
    pub fn set_table(&mut self, family: &str, name: &str, script: &str) -> Result<()> {
        self.make_table(family, name, || nft::apply(script))
    }

    /// Has a table of ours made, or changed, with others at once.
    pub fn make_table<T>(&mut self, family: &str, name: &str, make: impl FnOnce() -> Result<T>) -> Result<T> {
        self.take(Step::Table { family: family.to_owned(), name: name.to_owned() }, make)
    }

    /// Removes a table that was made through this journal.
    pub fn delete_table(&mut self, netlink: &mut Netlink, family: &str, name: &str) -> Result<()> {
        self.undo(netlink, &Step::Table { family: family.to_owned(), name: name.to_owned() })
    }

    /// Attaches a BPF program of type `sched_cls` to an interface, as well as the kernel can; only what would outlive a
    /// crash is written down. It is detached when what is returned is dropped.
    pub fn attach(&mut self, program: &Program, index: u32, direction: Direction) -> Result<Attachment> {
        let by_link = Attachment::tcx(program, index, direction);
        self.or_attach_filter(by_link, program, Filter::new(index, direction))
    }

    /// The same, before those that others have attached: one that lets a packet pass ends what those behind it see.
    pub fn attach_first(
        &mut self,
        program: &Program,
        index: u32,
        direction: Direction,
    ) -> Result<Attachment> {
        let by_link = Attachment::tcx_before(program, index, direction);
        self.or_attach_filter(by_link, program, Filter::new(index, direction))
    }

    fn or_attach_filter(
        &mut self,
        by_link: Result<Attachment>,
        program: &Program,
        filter: Filter,
    ) -> Result<Attachment> {
        match by_link {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.attach_filter(program, filter),
            result => result,
        }
    }

    /// Has CAKE at the root of an interface; ours that is there is changed in its place, and loses nothing. What somebody
    /// else has chosen there stays, and the error [already exists](crate::Error::already_exists).
    pub fn shape(&mut self, netlink: &mut Netlink, index: u32, cake: &Cake) -> Result<()> {
        self.take(Step::Cake { index }, || netlink.shape(index, cake))
    }

    /// Makes a device of the kind `ifb`. If there is an interface of that name, it stays, with the same error.
    pub fn add_ifb(&mut self, netlink: &mut Netlink, name: &str) -> Result<()> {
        // Asked first: a crash between the journal and the kernel's answer must not make somebody else's device ours.
        if netlink.link_by_name(name)?.is_some() {
            let exists = std::io::Error::from_raw_os_error(libc::EEXIST);
            return Err(Error::new(format!("add the device {name}"), exists));
        }
        self.take(Step::Ifb { name: name.to_owned() }, || netlink.add_ifb(name))
    }

    /// Has what an interface receives sent to another one.
    pub fn add_redirect(&mut self, netlink: &mut Netlink, index: u32, handle: u32, to: u32) -> Result<()> {
        self.take(Step::Redirect { index, handle, to }, || netlink.add_redirect(index, handle, to))
    }

    /// The same by a filter, which every kernel has.
    pub fn attach_filter(&mut self, program: &Program, filter: Filter) -> Result<Attachment> {
        self.take(Step::Filter(filter), || Attachment::clsact(program, filter))
    }

    /// Detaches what was attached through this journal: it is struck out, as what is [dropped](Attachment) is not.
    pub fn detach(&mut self, netlink: &mut Netlink, attachment: Attachment) -> Result<()> {
        let step = attachment.filter().map(Step::Filter);
        drop(attachment);
        step.map_or(Ok(()), |step| self.undo(netlink, &step))
    }

    /// Ends autoconfiguration at an interface: see [`crate::no_autoconf`].
    pub fn disable_autoconf(&mut self, interface: &str) -> Result<()> {
        let before = NoAutoconf::before(interface)?;
        self.take(Step::NoAutoconf(before.clone()), || before.apply())
    }

    /// Gives an interface's IPv6 another value of a parameter, as long as this journal is open.
    pub fn set_parameter(&mut self, interface: &str, name: &str, value: &str) -> Result<()> {
        let before = sysctl::read(interface, name)?;
        if before == value {
            return Ok(());
        }
        let (interface, name, now) = (interface.to_owned(), name.to_owned(), value.to_owned());
        let step = Step::Parameter { interface: interface.clone(), name: name.clone(), before, now };
        self.take(step, || sysctl::write(&interface, &name, value))
    }

    /// Gives a parameter of the network, by its path below `/proc/sys/net`, another value, as long as this journal is
    /// open.
    pub fn set_global(&mut self, name: &str, value: &str) -> Result<()> {
        let before = sysctl::read_global(name)?;
        if before == value {
            return Ok(());
        }
        let step = Step::Global { name: name.to_owned(), before, now: value.to_owned() };
        self.take(step, || sysctl::write_global(name, value))
    }

    /// Makes a router of the machine, as long as this journal is open: see [`crate::forwarding`]. `interfaces`: all that
    /// there are.
    pub fn forward<'i>(
        &mut self,
        version: IpVersion,
        interfaces: impl Iterator<Item = &'i str>,
    ) -> Result<()> {
        let Some(before) = Forwarding::before(version, interfaces)? else { return Ok(()) };
        self.take(Step::Forwarding(before.clone()), || before.apply())
    }

    /// Has an interface take IPv4 packets whose source is reached by another one: a strict reverse path filter drops them, and
    /// does not answer their ARP. One that is loose, or off, stays.
    pub fn loosen_reverse_path_filter(&mut self, interface: &str) -> Result<()> {
        const STRICT: &str = "1";
        const LOOSE: &str = "2";
        let own = format!("ipv4/conf/{interface}/rp_filter");
        let [all, this] = [sysctl::read_global("ipv4/conf/all/rp_filter")?, sysctl::read_global(&own)?];
        // The larger one counts.
        if all.max(this) == STRICT { self.set_global(&own, LOOSE) } else { Ok(()) }
    }

    /// Takes everything back, newest first, and goes on past what fails: the first error is returned, and what
    /// failed stays in the journal. When all went well the file is removed.
    pub fn undo_all(self, netlink: &mut Netlink) -> Result<()> {
        self.undo_all_but(netlink, |_| false)
    }

    /// The same, but what is to be kept stays, for the next start to find.
    pub fn undo_all_but(mut self, netlink: &mut Netlink, keep: impl Fn(&Step) -> bool) -> Result<()> {
        let mut first_error = None;
        for step in self.done.clone().into_iter().rev().filter(|step| !keep(step)) {
            if let Err(error) = self.undo(netlink, &step) {
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            Some(error) => Err(error),
            None if !self.done.is_empty() => Ok(()),
            None => std::fs::remove_file(&self.path).context(|| format!("unlink {}", self.path.display())),
        }
    }

    fn take<T>(&mut self, step: Step, act: impl FnOnce() -> Result<T>) -> Result<T> {
        // What is done once more is in the file already, which does not grow by it.
        if self.done.contains(&step) {
            return act();
        }
        self.append(&Line::Did(step.clone()))?;
        match act() {
            Ok(made) => {
                self.done.push(step);
                Ok(made)
            }
            Err(error) => {
                self.strike_out(step)?;
                Err(error)
            }
        }
    }

    fn undo(&mut self, netlink: &mut Netlink, step: &Step) -> Result<()> {
        let Some(position) = self.done.iter().position(|done| done == step) else { return Ok(()) };
        take_back(step, netlink)?;
        self.done.remove(position);
        self.strike_out(step.clone())
    }

    fn strike_out(&mut self, step: Step) -> Result<()> {
        self.append(&Line::Undid(step))?;
        self.struck_out += 1;
        if self.struck_out >= COMPACT_AFTER {
            self.file = write_anew(&self.path, &self.done)?;
            self.struck_out = 0;
        }
        Ok(())
    }

    fn append(&mut self, line: &Line) -> Result<()> {
        // One write, so that a crash leaves a whole line or the beginning of one. No fsync: what a power failure
        // takes, it takes from the kernel too.
        let line = encode(line)?;
        let mut file = &self.file;
        let mut write = || {
            let length = file.metadata()?.len();
            file.write_all(&line).inspect_err(|_| {
                // There may be no room on the disk. The next line does not come behind a part of this one.
                let _ = file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length)));
            })
        };
        write().context(|| format!("write {}", self.path.display()))
    }
}

fn take_back(step: &Step, netlink: &mut Netlink) -> Result<()> {
    match step {
        Step::Route(route) => netlink.delete_route(route).map(drop),
        Step::TableRoute(route) => netlink.delete_table_route(route).map(drop),
        Step::Rule(rule) => netlink.delete_rule(rule).map(drop),
        Step::Neighbor { index, address } => netlink.delete_neighbor(*index, *address).map(drop),
        Step::DarkPrefix { tunnel } => nft::remove(tunnel).map(drop),
        Step::Address { index, address } => netlink.delete_address(*index, *address).map(drop),
        Step::Table { family, name } => nft::remove_table(family, name).map(drop),
        Step::NoAutoconf(before) => before.restore(),
        Step::Filter(filter) => netlink.delete_filter(filter).map(drop),
        Step::Cake { index } => netlink.delete_cake(*index).map(drop),
        Step::Ifb { name } => netlink.delete_ifb(name).map(drop),
        Step::Redirect { index, handle, .. } => netlink.delete_redirect(*index, *handle).map(drop),
        Step::Parameter { interface, name, before, now } => match sysctl::read(interface, name) {
            // Somebody has changed it since, or the interface is gone.
            Ok(found) if found != *now => Ok(()),
            Err(_) => Ok(()),
            Ok(_) => sysctl::write(interface, name, before),
        },
        Step::Global { name, before, now } => match sysctl::read_global(name) {
            Ok(found) if found == *now => sysctl::write_global(name, before),
            Ok(_) | Err(_) => Ok(()),
        },
        Step::Forwarding(before) => before.restore(),
    }
}

/// The journal's text, if nobody else could have written it.
fn read(path: &Path) -> Result<Vec<u8>> {
    let what = || format!("read the journal {}", path.display());
    let refuse = |reason: String| Err(Error::other(what(), reason + ": remove it"));
    let mut file = match OpenOptions::new()
        .read(true)
        // A pipe in place of the file must not hold us up.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return refuse("a symbolic link".into()),
        Err(error) => return Err(Error::new(what(), error)),
    };
    let metadata = file.metadata().context(what)?;
    if !metadata.is_file() {
        return refuse("not a plain file".into());
    }
    if ![0, nix::unistd::geteuid().as_raw()].contains(&metadata.uid()) {
        return refuse(format!("it belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return refuse(format!("others may write to it (mode {:04o})", metadata.mode() & 0o7777));
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content).context(what)?;
    Ok(content)
}

impl Step {
    /// The setting that it is about, if it is about one: its path below `/proc/sys/net`.
    #[must_use]
    pub fn setting(&self) -> Option<String> {
        match self {
            Step::Parameter { interface, name, .. } => Some(sysctl::path(interface, name)),
            Step::Global { name, .. } => Some(name.clone()),
            Step::Forwarding(before) => Some(before.version().switch().to_owned()),
            _ => None,
        }
    }

    /// Whether a journal of ours may have it: its names are names, and lead nowhere else.
    fn is_plausible(&self) -> bool {
        let word = |text: &str| {
            let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
            !text.is_empty() && !text.starts_with('.') && text.bytes().all(plain)
        };
        match self {
            Step::Table { family, name } => {
                ["inet", "ip", "ip6"].contains(&family.as_str())
                    && name.starts_with("sidestep-")
                    && word(name)
            }
            Step::NoAutoconf(before) => sysctl::is_interface(before.interface()),
            Step::Parameter { interface, name, .. } => sysctl::is_interface(interface) && word(name),
            // Those of an interface have its name in them, which may be any.
            Step::Global { name, .. } => name.contains('/') && name.split('/').all(sysctl::is_interface),
            Step::Forwarding(before) => before.interfaces().all(sysctl::is_interface),
            Step::Ifb { name } => sysctl::is_interface(name),
            Step::Route(_)
            | Step::TableRoute(_)
            | Step::Rule(_)
            | Step::Neighbor { .. }
            | Step::DarkPrefix { .. }
            | Step::Address { .. }
            | Step::Filter(_)
            | Step::Cake { .. }
            | Step::Redirect { .. } => true,
        }
    }
}

/// The steps of a journal's text that were taken and not taken back.
fn outstanding(content: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    for line in content.split(|&byte| byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Line::Did(step)) if step.is_plausible() && !steps.contains(&step) => steps.push(step),
            Ok(Line::Undid(step)) => steps.retain(|kept| *kept != step),
            Ok(Line::Did(_)) | Err(_) => {}
        }
    }
    steps
}

/// Replaces the file by one with these steps, never leaving less than either.
fn write_anew(path: &Path, steps: &[Step]) -> Result<File> {
    let mut content = Vec::new();
    for step in steps {
        content.extend(encode(&Line::Did(step.clone()))?);
    }
    crate::file::replace(path, &content).context(|| format!("write {}", path.display()))
}

fn encode(line: &Line) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line).context(|| "write the journal as JSON")?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> Step {
        Step::Route(Route::local(text.parse().unwrap()))
    }

    #[test]
    fn what_was_done_and_not_undone_is_outstanding() {
        let mut content = Vec::new();
        for line in [
            Line::Did(route("2001:db8::/64")),
            Line::Did(Step::Neighbor { index: 3, address: "2001:db8::1".parse().unwrap() }),
            Line::Did(Step::DarkPrefix { tunnel: "mt6d0".into() }),
            Line::Undid(Step::Neighbor { index: 3, address: "2001:db8::1".parse().unwrap() }),
        ] {
            content.extend(encode(&line).unwrap());
        }
        content.extend(b"{\"did\":{\"route\":{\"destin");
        let expected = [route("2001:db8::/64"), Step::DarkPrefix { tunnel: "mt6d0".into() }];
        assert_eq!(outstanding(&content), expected);
    }

    #[test]
    fn a_step_that_fails_again_and_again_fills_no_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let kept = route("2001:db8:1::/64");
        let file = write_anew(&path, &[]).unwrap();
        let mut journal = Journal { path: path.clone(), file, done: Vec::new(), struck_out: 0 };
        journal.take(kept.clone(), || Ok(())).unwrap();
        for _ in 0..COMPACT_AFTER + 10 {
            let failed =
                journal.take(route("2001:db8:2::/64"), || Err::<(), _>(Error::other("add", "refused")));
            assert!(failed.unwrap_err().to_string().contains("refused"));
        }
        let content = std::fs::read(&path).unwrap();
        assert!(content.split(|&byte| byte == b'\n').count() < COMPACT_AFTER, "{} bytes", content.len());
        assert_eq!(outstanding(&content), [kept]);
    }

    #[test]
    fn a_line_without_room_takes_no_other_one_along() {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        const PATH: &str = "SIDESTEP_TEST_JOURNAL";
        let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else {
            // Once more in a process of its own, whose files may not be long: more than that is no signal, but an error.
            let folder = tempfile::tempdir().unwrap();
            let mut alone = std::process::Command::new("sh");
            alone.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
            alone.args(["--exact", "undo::tests::a_line_without_room_takes_no_other_one_along"]);
            let output = alone.env(PATH, folder.path().join("journal")).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        };
        let file = write_anew(&path, &[]).unwrap();
        let mut journal = Journal { path: path.clone(), file, done: Vec::new(), struck_out: 0 };
        let steps = ["2001:db8:1::/64", "2001:db8:2::/64", "2001:db8:3::/64"].map(route);
        journal.take(steps[0].clone(), || Ok(())).unwrap();
        let line = std::fs::metadata(&path).unwrap().len();
        let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
        setrlimit(Resource::RLIMIT_FSIZE, line + line / 2, hard).unwrap();
        journal.take(steps[1].clone(), || Ok(())).unwrap_err();
        setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
        journal.take(steps[2].clone(), || Ok(())).unwrap();
        assert_eq!(outstanding(&std::fs::read(&path).unwrap()), [steps[0].clone(), steps[2].clone()]);
    }

    #[test]
    fn a_journal_that_somebody_else_could_have_written_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt6d0.journal");
        let refused = || read(&path).unwrap_err().to_string();
        assert_eq!(read(&path).unwrap(), b"", "there is none");

        let elsewhere = folder.path().join("elsewhere");
        std::fs::write(&elsewhere, "precious").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(refused().ends_with("a symbolic link: remove it"), "{}", refused());
        // Nor is a link followed where the new one is written.
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, path.with_extension("new")).unwrap();
        write_anew(&path, &[route("2001:db8::/64")]).unwrap();
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"precious");
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().mode(), libc::S_IFREG | 0o600);
        assert_eq!(outstanding(&read(&path).unwrap()), [route("2001:db8::/64")]);

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o622)).unwrap();
        assert!(refused().contains("others may write to it (mode 0622)"), "{}", refused());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(refused().contains("it belongs to user 65534"), "{}", refused());
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(refused().contains("not a plain file"), "{}", refused());
    }

    fn forwarding(interface: &str) -> Step {
        let text = format!(r#"{{"version":"ipv4","interfaces":[["{interface}","0"]],"redirects":"1"}}"#);
        Step::Forwarding(serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn steps_that_lead_elsewhere_are_none_of_ours() {
        let own = [
            Step::Global { name: "ipv6/conf/all/forwarding".into(), before: "0".into(), now: "1".into() },
            Step::Global { name: "netfilter/nf_conntrack_max".into(), before: "0".into(), now: "1".into() },
            Step::Parameter {
                interface: "eth0.7".into(),
                name: "accept_ra".into(),
                before: "1".into(),
                now: "2".into(),
            },
            Step::Table { family: "ip".into(), name: "sidestep-nat".into() },
            forwarding("eth0.7"),
        ];
        let global = |name: &str| Step::Global { name: name.into(), before: "x".into(), now: "y".into() };
        let parameter = |interface: &str, name: &str| Step::Parameter {
            interface: interface.into(),
            name: name.into(),
            before: "x".into(),
            now: "y".into(),
        };
        let forged = [
            global("../kernel/core_pattern"),
            global("ipv6/../../kernel/core_pattern"),
            global("/etc/passwd"),
            global("ipv6//forwarding"),
            parameter("../../../kernel", "core_pattern"),
            parameter("..", "forwarding"),
            parameter("eth0", "../../../../kernel/core_pattern"),
            forwarding("../../../kernel"),
            Step::Table { family: "inet".into(), name: "filter".into() },
            Step::Table { family: "inet; flush ruleset".into(), name: "sidestep-nat".into() },
        ];
        let content: Vec<u8> =
            own.iter().chain(&forged).flat_map(|step| encode(&Line::Did(step.clone())).unwrap()).collect();
        assert_eq!(outstanding(&content), own);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(content: Vec<u8>) {
            outstanding(&content);
        }
    }
}
