//! What the configuration of a tunnel leads to, in plain words.

use std::fmt::Write as _;
use std::path::Path;

use linux::netlink::Netlink;
use mt6d::overhead;
use router::site::Hops;

use config::{Mode, TunnelConfig};

use tunnel_runtime::limits::open_files;
use tunnel_runtime::obstacles;

use super::peers::{self, Peers, list};
use crate::failure::Failure;
use crate::ssh;

/// Bytes that each form of an inner packet adds on its way through the tunnel (docs/protocol.md, "Data").
const OVERHEADS: [(u16, &str); 4] = [
    (overhead::ELIDED, "between two hosts, where each gateway protects one"),
    (overhead::CONTEXT, "between addresses that have been announced"),
    (overhead::IPV4, "IPv4"),
    (overhead::FULL, "with full headers, the first packets between two addresses"),
];

/// What an uplink's tunnel over IPv4 adds to a packet, in bytes.
const IPV4_HEADER: u32 = 20;
/// Warnings about the machine that are told where nobody asks for all.
const MOST_WARNINGS: usize = 10;

/// What is known of the machine that a configuration is for.
#[derive(Debug, Clone, Default)]
pub(crate) struct System {
    /// MTU of the external interface in bytes; None if there is no such interface.
    pub external_mtu: Option<u32>,
    /// How many files a process may have open.
    pub open_files: Option<u64>,
    /// What keeps the tunnel from working there now.
    pub warnings: Vec<String>,
}

impl System {
    /// Looks at the machine that this runs on.
    /// `routes`: the same file makes a router of it.
    pub(crate) fn of_this_machine(config: &TunnelConfig, routes: bool) -> System {
        let mtu = |interface: &str| Some(Netlink::open().ok()?.link_by_name(interface).ok()??.mtu);
        let below = || Some(mtu(config.external_over.as_ref()?)?.saturating_sub(IPV4_HEADER));
        System {
            external_mtu: mtu(&config.node.external).or_else(below),
            open_files: linux::process::raise_open_files().ok(),
            warnings: ssh::taken_away(config)
                .into_iter()
                .chain(obstacles::find(config, routes).into_iter().map(|found| found.says))
                .collect(),
        }
    }
}

/// What `sidestep up` would do with this configuration, and with these of its peers.
///
/// # Errors
/// Where a peer is named that there is not.
pub(crate) fn describe(
    file: &Path,
    config: &TunnelConfig,
    system: &System,
    which: Peers<'_>,
) -> Result<String, Failure> {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_node(&mut text, file, config);
    text += &peers::describe(config, which)?;
    for script in &config.scripts {
        let _ = super::script::write(&mut text, script);
    }
    if !config.is_classic() {
        let _ = write_limits(&mut text, config, system);
    }
    let told = if which == Peers::All { usize::MAX } else { MOST_WARNINGS };
    for (number, warning) in system.warnings.iter().take(told).enumerate() {
        let title = if number == 0 { "\nMachine" } else { "       " };
        let _ = writeln!(text, "{title}   WARNING: {warning}");
    }
    if system.warnings.len() > told {
        let more = system.warnings.len() - told;
        let _ = writeln!(text, "          WARNING: and {more} more, which --all tells");
    }
    Ok(text)
}

fn write_node(text: &mut String, file: &Path, config: &TunnelConfig) -> std::fmt::Result {
    let (node, tunnel) = (&config.node, &config.tunnel);
    writeln!(text, "{} is valid. `sidestep up` would do this:\n", file.display())?;
    let mtu = match tunnel.mtu {
        Some(mtu) => format!("MTU {mtu}"),
        None => "an MTU that follows the path".to_owned(),
    };
    write!(text, "Tunnel    make the TUN device {} with {mtu}", tunnel.name)?;
    if tunnel.addresses.is_empty() {
        writeln!(text, " and no address")?;
    } else {
        writeln!(text, " and {}", list(&tunnel.addresses))?;
    }
    if let Some(transparent) = &node.transparent {
        let internal = &transparent.internal;
        writeln!(text, "Mode      bridge frames between {internal} and {}, invisibly", node.external)?;
        for host in transparent.hosts(&config.classic) {
            let mac = host.mac.map_or("a MAC that is learned".to_owned(), |mac| mac.to_string());
            writeln!(text, "          protect {}, at {mac}", host.address)?;
        }
        let others = if transparent.pass_others { "pass" } else { "drop" };
        writeln!(text, "          {others} traffic between these hosts and anyone but their peers")?;
        writeln!(text, "          (while sidestep is not running, nothing is bridged)")?;
    }
    if config.is_classic() {
        return Ok(());
    }
    let prefix = match (&node.follows, node.mode) {
        (Some(follows), _) if follows.on_link => {
            format!("the prefix of the link of uplink {}", follows.uplink)
        }
        (Some(Hops { uplink, number: Some(number), .. }), _) => {
            format!("subnet {number} of what uplink {uplink} is delegated")
        }
        (Some(Hops { uplink, .. }), _) => {
            format!("the last /64 that no network has of what uplink {uplink} is delegated")
        }
        (None, Mode::Routed | Mode::Transparent) => node.hop_prefix.to_string(),
        (None, Mode::Host) => "the prefix of the link".to_owned(),
    };
    writeln!(text, "Identity  use the public key {}, which peers need", node.private_key.public())?;
    if let Some(previous) = &node.previous_key {
        writeln!(
            text,
            "          and the previous one, {}, for peers that do not know it yet",
            previous.public()
        )?;
    }
    writeln!(text, "Hopping   take outer addresses from {prefix} on {}", node.external)?;
    if node.mode == Mode::Host {
        writeln!(
            text,
            "          take over all IPv6 on {0}: the kernel has no address there",
            node.external
        )?;
        writeln!(
            text,
            "          solicit routers from the unspecified address, and move when the network changes"
        )?;
    }
    if node.on_link {
        writeln!(text, "          answer neighbor solicitations for open endpoints, and nothing else")?;
    } else {
        let route = node.follows.as_ref().map_or(prefix.as_str(), |_| "PREFIX");
        writeln!(text, "          (route `local {route} dev lo`; the router must send the prefix here)")?;
    }
    let table = linux::nft::table_name(&tunnel.name);
    writeln!(text, "          keep the rest of the prefix dark with the nftables table `ip6 {table}`")?;
    Ok(())
}

fn write_limits(text: &mut String, config: &TunnelConfig, system: &System) -> std::fmt::Result {
    let path = system.external_mtu.unwrap_or(1500);
    writeln!(text, "\nMTU       largest inner packet at a path MTU of {path}, the external link's MTU:")?;
    for (overhead, form) in OVERHEADS {
        writeln!(text, "          {:>5}  {form}", path.saturating_sub(overhead.into()))?;
    }
    let ((_, open), (_, without)) = (open_files(config, u64::MAX), open_files(config, 0));
    write!(
        text,
        "Files     up to {open} open at once, all peers together ({without} where the kernel has no BPF)"
    )?;
    match system.open_files {
        Some(limit) if limit < open => {
            writeln!(
                text,
                "\n          WARNING: more than the {limit} allowed here: raise the limit on open files"
            )?;
            writeln!(
                text,
                "          (ulimit -n, LimitNOFILE= of the service), rotate more slowly, or use fewer lanes"
            )
        }
        Some(limit) => writeln!(text, "; {limit} are allowed here"),
        None => writeln!(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rotation: &str, lanes: u8) -> TunnelConfig {
        let text = format!(
            "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nexternal = \"eth0\"\n\
             hop_prefix = \"2001:db8:a1::/64\"\n[[peer]]\nname = \"site-b\"\n\
             public_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
             allowed_ips = [\"2001:db8:b::/64\"]\nrotation = \"{rotation}\"\nlanes = {lanes}\n"
        );
        let no_file = |_: &Path| Err(config::KeyFileError::Missing);
        config::parse(&text, Path::new("a.toml"), &no_file).unwrap().tunnel.unwrap()
    }

    #[test]
    fn the_plan_says_what_will_be_done() {
        let config = config("10s", 1);
        let system = System { external_mtu: Some(1500), open_files: Some(20_000), warnings: Vec::new() };
        let text = describe(Path::new("a.toml"), &config, &system, Peers::SummedUp).unwrap();
        for part in
            ["mt6d0", "2001:db8:a1::/64", "site-b", "2001:db8:b::/64", "1464", "1461", "1432", "20000"]
        {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(!text.contains("WARNING"), "{text}");
        assert!(!text.contains("yAnz5TF"), "{text}");
        let warnings = vec!["it does not forward".to_owned(), "there is no route".to_owned()];
        let poor = System { external_mtu: None, open_files: Some(32), warnings };
        let text = describe(Path::new("a.toml"), &config, &poor, Peers::SummedUp).unwrap();
        assert_eq!(text.matches("WARNING").count(), 3);
        assert!(
            text.ends_with(
                "\nMachine   WARNING: it does not forward\n          WARNING: there is no route\n"
            )
        );
    }
}
