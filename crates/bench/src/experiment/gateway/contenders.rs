//! Who can take part here.

use lab::Error;
use lab::command::find;

use super::scene::{kernel_has_flowtable, kernel_has_sit, restore};
use super::subject::{BY_HAND, List, Tunnel, Way};
use crate::comparison::results::{Absence, Entry};

/// All who can take part in the paper's plan, and who cannot here, with the reason.
pub(super) fn of_paper(prefix: &str) -> Result<(Vec<Entry>, Vec<Absence>), Error> {
    let mut entries = vec![
        entry("sidestep", "`sidestep up` as router; T2: `sidestep firewall apply`; T3: `[uplink.tunnel]`"),
        entry(BY_HAND, "T1: the same router without Sidestep: addresses and routes by hand"),
        entry(List::Nftables.name(), "T2: the rules as one list in a chain of nftables, for each packet"),
        entry(Tunnel::Native.name(), "T3: no tunnel, the gateways route IPv6 over the link between them"),
        entry(
            Tunnel::UserSpace.name(),
            "T3: 6in4 in user space, a process with two packet sockets (`sidestep-lab sixin4`)",
        ),
    ];
    let mut left_out = Vec::new();
    match restore(false) {
        Some(program) => {
            let legacy = program.to_string_lossy().contains("legacy");
            let kind = if legacy { "xtables, as the paper's gateway had" } else { "over nftables" };
            let about = format!("T2: the rules as one list in FORWARD of ip6tables and iptables ({kind})");
            entries.insert(2, entry(List::Iptables.name(), &about));
        }
        None => left_out.push(Absence {
            what: List::Iptables.name().to_owned(),
            why: "not installed (apt install iptables)".to_owned(),
        }),
    }
    let sit = entry(Tunnel::Sit.name(), "T3: the kernel's own tunnel device");
    let flowtable =
        entry(Tunnel::Flowtable.name(), "T3: `[uplink.tunnel]` with `flow_offload = \"software\"`");
    for (contender, is_there) in [(sit, kernel_has_sit(prefix)?), (flowtable, kernel_has_flowtable(prefix)?)]
    {
        match is_there {
            true => entries.push(contender),
            false => left_out.push(absent(contender)),
        }
    }
    programs()?;
    Ok((entries, left_out))
}

/// The same for NAT64.
pub(super) fn of_translation(prefix: &str) -> Result<(Vec<Entry>, Vec<Absence>), Error> {
    programs()?;
    let mut entries = vec![
        entry(Way::Stateless.name(), "IPv6 is forwarded, without a firewall"),
        entry(Way::Forwarded.name(), "IPv6 is forwarded, with the default firewall, as all that follow"),
        entry(Way::Masqueraded.name(), "IPv4 leaves with the uplink's address: `masquerade = true`"),
        entry(Way::Nat64.name(), "a host of IPv6 and a server of IPv4: `[nat64]`"),
        entry(
            Way::Clat.name(),
            "a host of IPv4 and a server with an address in a translator's prefix: `kind = \"464xlat\"`",
        ),
    ];
    let flowtables = [
        entry(Way::ForwardedFlowtable.name(), "as `forwarded`, with `flow_offload = \"software\"`"),
        entry(Way::Nat64Flowtable.name(), "as `nat64`, with `flow_offload = \"software\"`"),
        entry(Way::ClatFlowtable.name(), "as `clat`, with `flow_offload = \"software\"`"),
    ];
    if kernel_has_flowtable(prefix)? {
        entries.extend(flowtables);
        return Ok((entries, Vec::new()));
    }
    Ok((entries, flowtables.map(absent).into()))
}

/// What the kernel lacks.
fn absent(contender: Entry) -> Absence {
    Absence { what: contender.name, why: "this kernel has none".to_owned() }
}

fn entry(name: &str, about: &str) -> Entry {
    Entry { name: name.to_owned(), about: about.to_owned() }
}

/// What measures is there.
fn programs() -> Result<(), Error> {
    let missing = ["iperf3", "ping", "nft", "ethtool"].into_iter().find(|program| find(program).is_none());
    missing.map_or(Ok(()), |program| {
        Err(Error::Usage(format!("`{program}` is not installed: scripts/setup lab")))
    })
}
