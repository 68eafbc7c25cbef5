//! `netstat`, `ifconfig`, `route`: what a host knows, of the process that holds the device, or of one that is there just for
//! this.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use control::Request;
use control::stack_status::Status;

use super::options::HostOptions;
use super::status;
use crate::failure::Failure;
use crate::terminal::print;

/// Options of the three.
#[derive(Debug, Args)]
pub(crate) struct NetstatOptions {
    #[command(flatten)]
    host: HostOptions,
    /// Write JSON; its fields are stable
    #[arg(long)]
    json: bool,
}

/// What is shown as text; JSON has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    Addresses,
    Routes,
}

/// Shows it.
pub(crate) fn run(options: &NetstatOptions, part: Part) -> Result<(), Failure> {
    let status = match ask(&options.host.dev)? {
        Asked::Answer(status) => *status,
        Asked::Nobody(why) => {
            // It may be held by a host that cannot be asked.
            let running = options.host.start_until_signal(1).map_err(|error| match error {
                Failure::Message(message) => Failure::Message(format!("{message}; {why}")),
                other => other,
            })?;
            status::of(&running.stack, &options.host.dev)?
        }
    };
    if options.json {
        return print(format_args!("{}\n", serde_json::to_string_pretty(&status)?));
    }
    print(describe(&status, part))
}

/// Whether the process that holds the device was asked.
enum Asked {
    Answer(Box<Status>),
    /// There is none, or it cannot be asked: why.
    Nobody(String),
}

fn ask(device: &str) -> Result<Asked, Failure> {
    let path = match control::socket_of_stack(device) {
        Ok(path) => path,
        Err(error) => {
            return Ok(Asked::Nobody(format!(
                "a sidestep that holds the device cannot be asked: {error}: set it for both, to a folder that only you can \
                 write to"
            )));
        }
    };
    match control::ask(&path, &Request::Show) {
        Ok(value) => Ok(Asked::Answer(Box::new(serde_json::from_value(value)?))),
        Err(control::Error::NotRunning { .. }) => {
            Ok(Asked::Nobody(format!("no sidestep of yours answers at {}", path.display())))
        }
        Err(error) => Err(error.into()),
    }
}

/// The status as text.
fn describe(status: &Status, part: Part) -> String {
    let mut text = String::new();
    if part != Part::Routes {
        let link = status.link_layer.as_ref().map(|mac| format!(" link {mac}")).unwrap_or_default();
        let _ = writeln!(text, "{}: mtu {}{link}", status.device, status.mtu);
        for known in &status.addresses {
            let _ = writeln!(
                text,
                "  {} {} {}{}{}",
                known.address,
                known.origin,
                known.state,
                lifetime("preferred", known.preferred_seconds),
                lifetime("valid", known.valid_seconds)
            );
        }
    }
    if part != Part::Addresses {
        section(&mut text, "routers", status.routers.iter().map(ToString::to_string));
        let through = |route: &control::stack_status::Route| match (&route.router, &route.preference) {
            (Some(router), Some(preference)) => format!("via {router} {preference}"),
            (Some(router), None) => format!("via {router}"),
            (None, _) => "on link".to_owned(),
        };
        let routes = status.routes.iter().map(|route| {
            format!("{} {}{}", route.destination, through(route), lifetime("valid", route.valid_seconds))
        });
        let ipv4 = status.ipv4_gateway.iter().map(|gateway| format!("0.0.0.0/0 via {gateway}"));
        section(&mut text, "routes", routes.chain(ipv4));
    }
    if part == Part::All {
        describe_rest(status, &mut text);
    }
    text
}

fn describe_rest(status: &Status, text: &mut String) {
    section(text, "DNS servers", status.dns_servers.iter().map(ToString::to_string));
    let destinations = status.destinations.iter().map(|known| {
        let mtu = known.path_mtu.map(|mtu| format!(" path mtu {mtu}")).unwrap_or_default();
        let to = known.redirected_to.map(|to| format!(" redirected to {to}")).unwrap_or_default();
        format!("{}{mtu}{}{to}", known.address, lifetime("for", known.path_mtu_seconds))
    });
    section(text, "destinations", destinations);
    let neighbors = status.neighbors.iter().map(|known| {
        let router = if known.is_router { " router" } else { "" };
        format!("{} {} {}{router}", known.address, known.link_layer.as_deref().unwrap_or("?"), known.state)
    });
    section(text, "neighbors", neighbors);
    let sockets = status.sockets.iter().map(|socket| {
        let remote = socket.remote.map_or("*".to_owned(), |remote| remote.to_string());
        let state = socket.state.as_deref().unwrap_or("");
        let (protocol, local) = (&socket.protocol, socket.local);
        let line =
            format!("{protocol} {} {} {local} {remote} {state}", socket.receive_queue, socket.send_queue);
        line.trim_end().to_owned()
    });
    section(text, "sockets (protocol, to read, to send, local, remote, state)", sockets);
    let drops = status
        .drops
        .iter()
        .flat_map(|(layer, reasons)| reasons.iter().map(move |(reason, n)| format!("{layer} {reason} {n}")));
    section(text, "drops", drops);
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(text, "{title}");
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    }
}

fn lifetime(name: &str, seconds: Option<u64>) -> String {
    seconds.map(|seconds| format!(" {name} {:?}", Duration::from_secs(seconds))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::stack_status::{Address, Neighbor, Route};

    #[test]
    fn each_part_shows_its_own() {
        let status = Status {
            version: String::new(),
            device: "tap0".into(),
            link_layer: Some("02:00:00:00:00:01".into()),
            mtu: 1500,
            addresses: vec![Address {
                address: "2001:db8::2/64".parse().unwrap(),
                origin: "stable".into(),
                state: "preferred".into(),
                preferred_seconds: Some(60),
                valid_seconds: None,
            }],
            routers: vec!["fe80::1".parse().unwrap()],
            routes: vec![Route {
                destination: "::/0".parse().unwrap(),
                router: Some("fe80::1".parse().unwrap()),
                preference: Some("high".into()),
                valid_seconds: None,
            }],
            ipv4_gateway: None,
            dns_servers: Vec::new(),
            destinations: Vec::new(),
            neighbors: vec![Neighbor {
                address: "fe80::1".parse().unwrap(),
                link_layer: None,
                state: "incomplete".into(),
                is_router: true,
            }],
            sockets: Vec::new(),
            drops: [("ip".into(), [("checksum".into(), 3)].into())].into(),
        };
        let addresses = describe(&status, Part::Addresses);
        assert_eq!(
            addresses,
            "tap0: mtu 1500 link 02:00:00:00:00:01\n  2001:db8::2/64 stable preferred preferred 60s\n"
        );
        let routes = describe(&status, Part::Routes);
        assert_eq!(routes, "routers\n  fe80::1\nroutes\n  ::/0 via fe80::1 high\n");
        let all = describe(&status, Part::All);
        assert!(all.starts_with(&(addresses + &routes)), "{all}");
        assert!(all.contains("neighbors\n  fe80::1 ? incomplete router\ndrops\n  ip checksum 3\n"), "{all}");
    }
}
