//! What a lab looks like, as text for a terminal.

use std::fmt::Write as _;

use serde_json::Value;

use lab::Gateways;
use lab::Lab;
use lab::topology::{Node, Site};
use lab::transparent::{THIRD, THIRD_IPV4};

/// The machines, and what the gateways say about themselves.
pub fn text(lab: &Lab) -> String {
    let mut text = String::new();
    for node in Node::ALL {
        let namespace = lab.namespace(node);
        if namespace.exists() {
            let purpose = match node {
                Node::HostA => host(lab, Site::A),
                Node::GatewayA => "gateway A".into(),
                Node::Router => "router".into(),
                Node::RouterB => "router B".into(),
                Node::Relay => "impairment relay".into(),
                Node::GatewayB => "gateway B".into(),
                Node::HostB => host(lab, Site::B),
                Node::SwitchInside => "switch, inside".into(),
                Node::ThirdInside => third("inside", 0),
                Node::SwitchOutside => "switch, outside".into(),
                Node::ThirdOutside => third("outside", 1),
            };
            let _ = writeln!(text, "{:<16} {purpose}", namespace.name());
        }
    }
    if lab.has_tunnel() {
        for site in [Site::A, Site::B] {
            let _ = match lab.show(site) {
                Ok(show) => {
                    writeln!(text, "gateway {}: {}", site.letter().to_uppercase(), gateway_line(&show))
                }
                Err(_) => writeln!(text, "gateway {}: not running", site.letter().to_uppercase()),
            };
        }
    }
    text
}

fn host(lab: &Lab, site: Site) -> String {
    let ipv4 = match lab.gateways() {
        Gateways::Routing => format!(", {}", site.host_v4()),
        Gateways::Transparent => String::new(),
    };
    format!("host {}       {}{ipv4}", site.letter().to_uppercase(), lab.host(site))
}

fn third(side: &str, number: usize) -> String {
    format!("third host {side}, not protected  {}, {}", THIRD[number], THIRD_IPV4[number])
}

fn gateway_line(show: &Value) -> String {
    let peer = &show["peers"][0];
    let state = peer["state"].as_str().unwrap_or("unknown");
    let rotations = peer["rotations"].as_u64().unwrap_or(0);
    format!("{state}, {rotations} rotations, {} to {}", endpoint(&peer["local"]), endpoint(&peer["remote"]))
}

/// The first lane's endpoint of a `local` or `remote` list, as `[address]:port`.
pub(crate) fn endpoint(lanes: &Value) -> String {
    match (lanes[0]["address"].as_str(), lanes[0]["port"].as_u64()) {
        (Some(address), Some(port)) => format!("[{address}]:{port}"),
        _ => "-".into(),
    }
}
