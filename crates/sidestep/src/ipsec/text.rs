//! The status of a tunnel as text.

use std::fmt::Write as _;

use control::ipsec_status::{Child, Only, Remote, Status};

/// All of it, for people.
pub(super) fn describe(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}: up for {}, MTU {}", status.tunnel, duration(status.uptime_s), status.mtu);
    for (what, list) in [
        ("addresses given", &status.given_addresses),
        ("DNS servers given", &status.dns),
        ("DNS servers that are asked past the tunnel", &status.dns_past_tunnel),
    ] {
        if !list.is_empty() {
            let _ = writeln!(text, "  {what}: {}", join(list));
        }
    }
    for remote in &status.remotes {
        describe_remote(&mut text, remote);
    }
    if !status.drops.is_empty() {
        let drops: Vec<_> = status.drops.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let _ = writeln!(text, "\ndropped: {}", drops.join(", "));
    }
    text
}

fn describe_remote(text: &mut String, remote: &Remote) {
    let _ = write!(text, "\n{}: {}", remote.name, remote.state);
    match &remote.last_failure {
        // The conversation is there: some of its children are not.
        Some(why) if remote.state == "up" => {
            let _ = writeln!(text, " ({why})");
        }
        Some(why) => {
            let _ = writeln!(text, " (last attempt: {why})");
        }
        None => text.push('\n'),
    }
    for ike in &remote.ike {
        let who = if ike.initiated { "begun here" } else { "begun there" };
        let _ = writeln!(text, "  IKE {} with {}, {who}, for {}", ike.spi, ike.identity, duration(ike.age_s));
    }
    for child in &remote.children {
        describe_child(text, child);
    }
}

fn describe_child(text: &mut String, child: &Child) {
    let replaced = if child.replaced { ", replaced" } else { "" };
    let heard = match child.heard_ms {
        Some(ms) => format!("heard {} ago", duration(ms / 1000)),
        None => "not heard yet".to_owned(),
    };
    let place = match child.remote.port() {
        0 => format!("{}, without UDP", child.remote.ip()),
        _ => child.remote.to_string(),
    };
    let _ = writeln!(
        text,
        "  child {} at {}: {}, for {}, {heard}{replaced}\n    {} to {}{}\n    SPI {} in, {} out; sent {} packets, {} bytes; received {} packets, {} bytes",
        child.number,
        place,
        child.algorithm,
        duration(child.age_s),
        join(&child.local_networks),
        join(&child.remote_networks),
        only(&child.only),
        child.inbound_spi,
        child.outbound_spi,
        child.tx_packets,
        child.tx_bytes,
        child.rx_packets,
        child.rx_bytes,
    );
}

fn only(only: &[Only]) -> String {
    let ports = |ports: &Option<String>, whose: &str| {
        ports.as_ref().map_or(String::new(), |ports| format!(" {whose} {ports}"))
    };
    let told = |only: &Only| {
        let ports = [ports(&only.local_ports, "from port"), ports(&only.remote_ports, "to port")];
        format!("{}{}", only.protocol, ports.concat())
    };
    let all = only.iter().map(told).collect::<Vec<_>>().join(", ");
    if all.is_empty() { all } else { format!(", only {all}") }
}

fn join<T: std::fmt::Display>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told() {
        let document = r#"{
            "version": "1", "tunnel": "site", "uptime_s": 61, "mtu": 1415, "given_addresses": ["10.9.0.10"],
            "dns": ["10.9.0.1"], "dns_past_tunnel": ["192.168.1.1"], "drops": {"too_big": 3},
            "remotes": [{
                "name": "office", "state": "up", "last_failure": "child 2 was refused: TS_UNACCEPTABLE",
                "ike": [{"spi": "01", "identity": "vpn.example.org", "initiated": true, "age_s": 5}],
                "children": [{
                    "number": 1, "inbound_spi": "02", "outbound_spi": "03", "algorithm": "aes256gcm16",
                    "remote": "192.0.2.1:4500", "local_networks": ["10.9.0.10/32"], "remote_networks": ["10.0.0.0/8"],
                    "only": [{"protocol": "tcp", "local_ports": null, "remote_ports": "443"}],
                    "replaced": false, "age_s": 5, "heard_ms": 2000, "tx_packets": 1, "tx_bytes": 100,
                    "rx_packets": 2, "rx_bytes": 200
                }]
            }]
        }"#;
        let told = describe(&serde_json::from_str(document).unwrap());
        for part in [
            "site: up for 1m1s, MTU 1415",
            "addresses given: 10.9.0.10",
            "DNS servers given: 10.9.0.1\n  DNS servers that are asked past the tunnel: 192.168.1.1",
            "office: up (child 2 was refused: TS_UNACCEPTABLE)\n",
            "IKE 01 with vpn.example.org, begun here, for 5s",
            "child 1 at 192.0.2.1:4500: aes256gcm16, for 5s, heard 2s ago\n    10.9.0.10/32 to 10.0.0.0/8, only tcp to port 443",
            "SPI 02 in, 03 out; sent 1 packets, 100 bytes",
            "dropped: too_big 3",
        ] {
            assert!(told.contains(part), "{part:?} in\n{told}");
        }
    }
}
