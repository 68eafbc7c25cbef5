//! What a lab looks like, as text for a terminal.

use std::fmt::Write as _;

use serde_json::Value;

use crate::lab::Lab;
use crate::topology::{Node, Site};

/// The machines, and what the gateways say about themselves.
pub fn text(lab: &Lab) -> String {
    let mut text = String::new();
    for node in Node::ALL {
        let namespace = lab.namespace(node);
        if namespace.exists() {
            let purpose = match node {
                Node::HostA => "host A       2001:db8:a::2, 10.0.1.2",
                Node::GatewayA => "gateway A",
                Node::Router => "router",
                Node::RouterB => "router B",
                Node::Relay => "impairment relay",
                Node::GatewayB => "gateway B",
                Node::HostB => "host B       2001:db8:b::2, 10.0.2.2",
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
