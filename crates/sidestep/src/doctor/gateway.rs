//! What the gateway of this network namespace says of itself.

use control::Request;
use control::router_status::{Shaped, Status, Uplink};

use super::finding::Finding;
use crate::show::text::rate;

/// Whether there is a gateway, and what it could not do.
pub(super) fn look(findings: &mut Vec<Finding>) -> bool {
    let asked =
        control::socket_of_gateway().ok().and_then(|socket| control::ask(&socket, &Request::Show).ok());
    let Some(status) = asked.and_then(|status| serde_json::from_value::<Status>(status).ok()) else {
        return false;
    };
    let says = format!("the gateway runs, version {}, uplinks: {}", status.version, status.uplinks.len());
    findings.push(Finding::ok("gateway", says));
    let shaping: Vec<_> = status.uplinks.iter().flat_map(shaping).collect();
    let problems = status.problems.iter();
    let problems = problems.map(|problem| Finding::warning("gateway_problem", of_gateway(problem)));
    // What is not shaped is a problem, too, unless it was taken away just now.
    let problems =
        problems.filter(|problem| !shaping.iter().any(|known: &Finding| known.says == problem.says));
    findings.extend(problems);
    findings.extend(shaping);
    true
}

fn of_gateway(says: &str) -> String {
    format!("the gateway: {says}")
}

/// Whether an uplink's packets are shaped, in each direction whose bandwidth is given.
fn shaping(uplink: &Uplink) -> Vec<Finding> {
    let bandwidth = uplink.bandwidth.as_ref();
    let sides = bandwidth.map(|bandwidth| [("received", &bandwidth.down), ("sent", &bandwidth.up)]);
    let sides = sides.into_iter().flatten().filter_map(|(what, side)| Some((what, side.as_ref()?)));
    let finding = |(what, side): (&str, &Shaped)| match (side.rate_in_force_bits, &side.why) {
        (Some(bits), _) => {
            let says = format!("uplink {}: what is {what} is shaped to {}", uplink.name, rate(bits as f64));
            Finding::ok("shaped", of_gateway(&says))
        }
        (None, why) => {
            let why = why.as_deref().unwrap_or("the gateway does not say why");
            let says = format!("uplink {}: what is {what} is not shaped: {why}", uplink.name);
            Finding::warning("not_shaped", of_gateway(&says))
        }
    };
    sides.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::finding::Level;

    fn uplink(bandwidth: &Value) -> Uplink {
        let uplink = json!({
            "name": "fibre", "interface": "eth0", "link_up": true, "works": true, "probes_answered": null, "router": null,
            "router_seconds": null, "prefixes": [], "waits_for_prefix": null, "dns_servers": [], "bandwidth": bandwidth,
        });
        serde_json::from_value(uplink).unwrap()
    }

    fn side(in_force: &Value, why: &Value) -> Value {
        json!({
            "rate_bits": 20_000_000, "rate_in_force_bits": in_force, "why": why, "sent_packets": 0, "sent_bytes": 0,
            "dropped_packets": 0, "marked_packets": 0, "backlog_bytes": 0, "peak_delay_ms": 0.0,
        })
    }

    #[test]
    fn each_direction_with_a_bandwidth_is_shaped_or_it_is_said_why_not() {
        assert_eq!(shaping(&uplink(&Value::Null)), []);
        let down = side(&json!(18_000_000), &Value::Null);
        let up = side(&Value::Null, &json!("the kernel has no CAKE"));
        let found = shaping(&uplink(&json!({ "down": down, "up": up, "delay": null })));
        let [shaped, not_shaped] = &found[..] else { panic!("{found:?}") };
        assert_eq!((shaped.level, shaped.code.as_str()), (Level::Ok, "shaped"));
        assert_eq!(shaped.says, "the gateway: uplink fibre: what is received is shaped to 18.0 Mbit/s");
        assert_eq!((not_shaped.level, not_shaped.code.as_str()), (Level::Warning, "not_shaped"));
        assert_eq!(
            not_shaped.says,
            "the gateway: uplink fibre: what is sent is not shaped: the kernel has no CAKE"
        );
        let given = shaping(&uplink(&json!({ "down": null, "up": side(&Value::Null, &Value::Null) })));
        assert_eq!(given.len(), 1, "{given:?}");
    }
}
