//! What the gateway of this network namespace says of itself.

use control::Request;
use control::router_status::Status;

use super::finding::Finding;

/// Whether there is a gateway, and what it could not do.
pub(super) fn look(findings: &mut Vec<Finding>) -> bool {
    let asked =
        control::socket_of_gateway().ok().and_then(|socket| control::ask(&socket, &Request::Show).ok());
    let Some(status) = asked.and_then(|status| serde_json::from_value::<Status>(status).ok()) else {
        return false;
    };
    let says = format!("the gateway runs, version {}, uplinks: {}", status.version, status.uplinks.len());
    findings.push(Finding::ok("gateway", says));
    let problems = status.problems.iter();
    findings.extend(
        problems.map(|problem| Finding::warning("gateway_problem", format!("the gateway: {problem}"))),
    );
    true
}
