//! Who has the ports of IKE, where they are taken.

use std::path::PathBuf;
use std::time::Duration;

use config::ipsec::IpsecConfig;
use control::Request;
use control::ipsec_status::Status;

use crate::error::Error;

/// How long another tunnel may take to say which ports it has.
const ASK_OTHERS: Duration = Duration::from_secs(1);

/// Who has the ports, if somebody has them.
pub(super) fn taken(error: linux::Error, config: &IpsecConfig, folders: &[PathBuf]) -> Error {
    if error.kind() != std::io::ErrorKind::AddrInUse {
        return error.into();
    }
    let ports = [config.ports.ike, config.ports.nat].map(|port| port.to_string()).join(" or ");
    let holds = |status: &Status| {
        // One in another network namespace has other ports of this number.
        Some(status.network_namespace) == control::network_namespace().ok()
            && status
                .ports
                .iter()
                .any(|port| *port != 0 && [config.ports.ike, config.ports.nat].contains(port))
    };
    let others = folders.iter().flat_map(|folder| control::sockets(folder));
    let status = |socket: PathBuf| -> Option<Status> {
        serde_json::from_value(control::ask_within(&socket, &Request::Show, ASK_OTHERS).ok()?).ok()
    };
    let holder = others.filter_map(status).find(holds);
    let is_ours = holder.is_some();
    let who = match holder {
        Some(Status { tunnel, pid, .. }) => format!(
            "the tunnel {tunnel} (process {pid}) has it: end that (`sidestep ipsec down {tunnel}`), or give one of them other \
             ports (`port`, `nat_port`)"
        ),
        None => format!(
            "another program has it, perhaps another key daemon (strongSwan's is charon): `ss --udp --listening --processes \
             --numeric '( sport = {} or sport = {} )'` shows which",
            config.ports.ike, config.ports.nat
        ),
    };
    Error::PortTaken { ports, who, is_ours }
}
