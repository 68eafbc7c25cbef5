//! Files for systemd-networkd, by which it leaves to a gateway what is the gateway's: all of IPv6, and routes. IPv4 stays as it
//! is.
//!
//! networkd takes for each interface the first file, by name, that matches. So a file of ours stands in the place of the one
//! that was used before, and has what that says of IPv4, of ports, of VLANs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use config::Config;
use linux::netlink::Netlink;

use super::manager::{ConfiguredBy, Machine};
use crate::failure::Failure;
use crate::load::load;
use crate::running::unit_of;
use crate::terminal::print;

/// Before the files of cloud-init and netplan, which begin with `10-`: the first one counts.
const PREFIX: &str = "05-sidestep";
/// Routes and rules of others are theirs.
const SETTINGS: (&str, &str) =
    ("networkd.conf.d/sidestep.conf", include_str!("../../../../examples/networkd/sidestep.conf"));
/// Sections that are about IPv6 alone, and that of what is matched.
const NOT_KEPT: [&str; 8] = [
    "Match",
    "DHCPv6",
    "DHCPPrefixDelegation",
    "IPv6AcceptRA",
    "IPv6SendRA",
    "IPv6Prefix",
    "IPv6RoutePrefix",
    "IPv6PREF64Prefix",
];
/// Settings that are ours, by section.
const OURS: [(&str, &str); 10] = [
    ("Link", "Unmanaged"),
    ("Network", "DHCP"),
    ("Network", "IPv6AcceptRA"),
    ("Network", "IPv6SendRA"),
    ("Network", "DHCPPrefixDelegation"),
    ("Network", "DHCPv6PrefixDelegation"),
    ("Network", "LinkLocalAddressing"),
    ("Network", "IPv6LinkLocalAddressGenerationMode"),
    ("Network", "KeepConfiguration"),
    ("Network", "ConfigureWithoutCarrier"),
];

/// What an interface is to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It leads to a provider; whether its IPv4 address is left to a DHCP client.
    Uplink { dhcp: bool },
    /// Hosts are behind it.
    Network,
    /// Another program makes it, and configures it: Sidestep, or pppd.
    Made,
}

/// Writes the files into this folder, or shows them.
pub(super) fn write(file: &Path, folder: Option<&Path>) -> Result<(), Failure> {
    let links = Netlink::open()
        .and_then(|mut netlink| netlink.links())
        .map_err(|error| Failure::Message(format!("cannot list the interfaces of this machine: {error}")))?;
    let machine = Machine { root: "/".into(), links };
    print(said(&load(file)?, file, &machine, folder)?)
}

/// The same; what is to be said of it.
fn said(config: &Config, file: &Path, machine: &Machine, folder: Option<&Path>) -> Result<String, Failure> {
    let mut text = String::new();
    let mut are_files = false;
    for (interface, role) in &roles(config) {
        match machine.configured_by(interface) {
            // Who makes it configures it.
            ConfiguredBy::NetworkManager | ConfiguredBy::Ifupdown { .. } if *role == Role::Made => {}
            ConfiguredBy::NetworkManager => {
                let _ = writeln!(
                    text,
                    "{interface}: NetworkManager configures it. Its IPv6 is to be left alone:\n    \
                     nmcli connection modify NAME ipv6.method ignore     (`nmcli device` shows which NAME)"
                );
            }
            ConfiguredBy::Ifupdown { ipv6: Some(place) } => {
                let _ = writeln!(
                    text,
                    "{interface}: ifupdown configures it. Take its `iface {interface} inet6` out of {}",
                    place.display()
                );
            }
            ConfiguredBy::Ifupdown { ipv6: None } => {
                let _ = writeln!(text, "{interface}: ifupdown configures it, and leaves its IPv6 alone");
            }
            ConfiguredBy::Networkd(used) => {
                let name = format!("{PREFIX}-{interface}.network");
                let problem = if is_a_pattern(interface) {
                    Some(
                        "systemd-networkd would take its name for a pattern: write a file that matches it"
                            .into(),
                    )
                } else {
                    used.as_deref().and_then(|used| in_the_way(&name, used))
                };
                if let Some(problem) = problem {
                    let _ = writeln!(text, "{interface}: {problem}");
                    continue;
                }
                let before = used.as_deref().map(|used| Before::read(machine, used)).transpose()?;
                put(
                    &mut text,
                    folder,
                    &format!("network/{name}"),
                    &network(interface, *role, before.as_ref()),
                )?;
                are_files = true;
            }
        }
    }
    if are_files {
        put(&mut text, folder, SETTINGS.0, SETTINGS.1)?;
        text += &next_steps(file, machine, folder);
    }
    if text.is_empty() {
        text = format!("{} has no interface that a network manager could have\n", file.display());
    }
    Ok(text)
}

/// The interfaces of a gateway, and those that are made for it.
fn roles(config: &Config) -> BTreeMap<String, Role> {
    let mut roles = BTreeMap::new();
    if let Some(tunnel) = &config.tunnel {
        roles.insert(tunnel.tunnel.name.clone(), Role::Made);
    }
    let Some(site) = config.gateway.as_ref().map(|gateway| &gateway.site) else { return roles };
    for uplink in site.uplinks.iter().filter(|uplink| uplink.tunnel.is_some()) {
        roles.insert(uplink.interface.clone(), Role::Made);
    }
    for uplink in site.uplinks.iter().filter(|uplink| uplink.tunnel.is_none()) {
        let dhcp = uplink.addresses.iter().all(|address| address.addr().is_ipv6());
        let role = if is_of_pppd(&uplink.interface) { Role::Made } else { Role::Uplink { dhcp } };
        roles.entry(uplink.interface.clone()).or_insert(role);
    }
    for tunnel in site.uplinks.iter().filter_map(|uplink| uplink.tunnel.as_ref()) {
        let role = if is_of_pppd(&tunnel.over) { Role::Made } else { Role::Uplink { dhcp: true } };
        roles.entry(tunnel.over.clone()).or_insert(role);
    }
    let inner = site.networks.iter().map(|network| &network.interface);
    for interface in inner.chain(site.routes.iter().map(|route| &route.interface)) {
        roles.entry(interface.clone()).or_insert(Role::Network);
    }
    roles
}

fn is_of_pppd(interface: &str) -> bool {
    interface.strip_prefix("ppp").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether `Name=` would match others, or nothing.
fn is_a_pattern(interface: &str) -> bool {
    !interface.chars().all(|c| c.is_ascii_alphanumeric() || "._-@+".contains(c))
}

/// Why a file of this name would do nothing, or is not needed.
fn in_the_way(name: &str, used: &Path) -> Option<String> {
    let other = used.file_name()?.to_str()?;
    if other == name {
        return Some(format!("{} is used already, and left as it is", used.display()));
    }
    (other < name).then(|| {
        format!(
            "systemd-networkd takes {}, which comes before {name} by its name: give it another one, or see to it yourself that \
             it has `IPv6AcceptRA=no`, `KeepConfiguration=yes` and no DHCP for IPv6",
            used.display()
        )
    })
}

/// What networkd has been told of an interface.
struct Before {
    file: PathBuf,
    /// All of it but what is ours.
    kept: String,
    /// Whether it asks for an IPv4 address.
    dhcp: bool,
}

impl Before {
    fn read(machine: &Machine, used: &Path) -> Result<Before, Failure> {
        let text = machine
            .network_file(used)
            .map_err(|(path, error)| Failure::Message(format!("{}: {error}", path.display())))?;
        let (kept, dhcp) = without_ours(&text);
        Ok(Before { file: used.to_owned(), kept, dhcp })
    }
}

/// A file of networkd's without what is ours, and whether it asks for an IPv4 address.
fn without_ours(text: &str) -> (String, bool) {
    let (mut kept, mut dhcp) = (String::new(), false);
    let (mut section, mut begun) = (String::new(), false);
    for line in settings(text) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // Settings of some sections belong together: two of [Address] are two addresses.
            name.clone_into(&mut section);
            begun = false;
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((&line, ""));
        let setting = (section.as_str(), key.trim_end());
        if setting == ("Network", "DHCP") {
            let value = value.trim().to_ascii_lowercase();
            dhcp = matches!(&*value, "yes" | "y" | "true" | "t" | "on" | "1" | "both" | "ipv4" | "v4");
        }
        if section.is_empty() || NOT_KEPT.contains(&&*section) || OURS.contains(&setting) {
            continue;
        }
        if !begun {
            let _ = writeln!(kept, "\n[{section}]");
            begun = true;
        }
        let _ = writeln!(kept, "{line}");
    }
    (kept, dhcp)
}

/// Its lines without comments; one that goes on in the next, behind comments, too, is one.
fn settings(text: &str) -> Vec<String> {
    let (mut lines, mut begun) = (Vec::new(), String::new());
    let end = |line: &mut String| {
        let whole = std::mem::take(line).trim().to_owned();
        (!whole.is_empty()).then_some(whole)
    };
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(part) = line.strip_suffix('\\') {
            begun = begun + part + " ";
        } else {
            begun += line;
            lines.extend(end(&mut begun));
        }
    }
    lines.extend(end(&mut begun));
    lines
}

/// The file of an interface.
fn network(interface: &str, role: Role, before: Option<&Before>) -> String {
    let mut text = format!("# Written by `sidestep init --networkd`: {interface} ");
    if role == Role::Made {
        text +=
            &format!("is configured by who makes it.\n[Match]\nName={interface}\n\n[Link]\nUnmanaged=yes\n");
        return text;
    }
    text += "has its IPv6 from Sidestep, which networkd leaves alone.\n";
    if let Some(before) = before {
        text += &format!("# All else is from {}, which is no longer used for it.\n", before.file.display());
    }
    text += &format!("[Match]\nName={interface}\n");
    text += before.map_or("", |before| &before.kept);
    text += "\n[Network]\n";
    let dhcp = before.map_or(role == Role::Uplink { dhcp: true }, |before| before.dhcp);
    text += if dhcp { "DHCP=ipv4\n" } else { "" };
    text += "IPv6AcceptRA=no\nKeepConfiguration=yes\n";
    text += if role == Role::Network { "ConfigureWithoutCarrier=yes\n" } else { "" };
    text
}

/// Writes a file of this name into the folder, if it is not there yet, or shows it.
fn put(said: &mut String, folder: Option<&Path>, name: &str, text: &str) -> Result<(), Failure> {
    let Some(folder) = folder else {
        let _ = writeln!(said, "/etc/systemd/{name}");
        for line in text.lines().filter(|line| !line.is_empty()) {
            let _ = writeln!(said, "    {line}");
        }
        said.push('\n');
        return Ok(());
    };
    let path = folder.join(name);
    let about = |error: std::io::Error| Failure::Message(format!("{}: {error}", path.display()));
    let parent = path.parent().unwrap_or(folder);
    if !parent.exists() {
        // networkd is no longer root when it reads them, whatever the umask.
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::set_permissions(parent, Permissions::from_mode(0o755)))
            .map_err(about)?;
    }
    match linux::file::create_for_all(&path, text.as_bytes()) {
        Ok(()) => {
            let _ = writeln!(said, "{} is written", path.display());
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let _ = writeln!(said, "{} exists already, and is left as it is", path.display());
        }
        Err(error) => return Err(about(error)),
    }
    Ok(())
}

fn next_steps(file: &Path, machine: &Machine, folder: Option<&Path>) -> String {
    let Some(folder) = folder else {
        return format!(
            "Nothing is written. To write them:\n    sidestep init --networkd {} --into /etc/systemd\n",
            file.display()
        );
    };
    let begin = if machine.runs_networkd() { "restart" } else { "enable --now" };
    let unit = unit_of(file);
    let mut text = String::from("\n");
    if folder != Path::new("/etc/systemd") {
        let _ = writeln!(text, "systemd-networkd reads these folders in /etc/systemd: take the files there.");
    }
    let _ = writeln!(
        text,
        "To apply it:\n    systemctl {begin} systemd-networkd\n    systemctl enable --now {unit}\nIPv6 addresses and \
         routes that networkd has set stay until their lifetimes end."
    );
    text
}

#[cfg(test)]
mod tests;
