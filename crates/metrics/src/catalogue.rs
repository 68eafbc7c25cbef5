//! Every metric, declared once: exported, and listed in `docs/metrics.md`, are these and no others.

/// What a metric counts or measures.
#[derive(Debug)]
pub struct Metric {
    /// Without `sidestep_`, its unit and `_total`.
    pub name: &'static str,
    /// How it changes.
    pub kind: Kind,
    /// A base unit, as OpenMetrics writes it.
    pub unit: Option<&'static str>,
    /// Of each sample, in this order.
    pub labels: &'static [&'static str],
    help: &'static str,
    /// Its place in [`ALL`].
    pub(crate) index: usize,
}

/// How a metric changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, until what counts starts anew.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It is 1, and its labels say something.
    Info,
}

impl Metric {
    /// In one line.
    pub fn help(&self) -> &'static str {
        self.help.trim_start()
    }

    /// The name that samples have.
    pub fn full_name(&self) -> String {
        let unit = self.unit.map_or(String::new(), |unit| format!("_{unit}"));
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        format!("sidestep_{}{unit}{end}", self.name)
    }
}

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $constant:ident: $kind:ident $name:literal $(in $unit:ident)? [$($label:ident)*];)*) => {
        $($(#[doc = $help])+ pub const $constant: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            unit: metrics!(@unit $($unit)?),
            labels: &[$(stringify!($label)),*],
            help: concat!($($help),+),
            index: Index::$constant as usize,
        };)*
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "these are the names of the constants")]
        enum Index { $($constant),* }
        /// All, in the order of their page.
        pub const ALL: &[&Metric] = &[$(&$constant),*];
    };
    (@unit) => { None };
    (@unit $unit:ident) => { Some(stringify!($unit)) };
}

metrics! {
    /// The program that exports these metrics
    BUILD: Info "build" [version];
    /// Whether a daemon answers on its socket: a tunnel by its name, gateway, scripts
    DAEMON_UP: Gauge "daemon_up" [daemon];
    /// A daemon and its version
    DAEMON: Info "daemon" [daemon version];
    /// For how long a daemon has run
    DAEMON_UPTIME: Gauge "daemon_uptime" in seconds [daemon];
    /// How long it took to ask all daemons
    ASKING: Gauge "asking" in seconds [];

    /// Datagrams and packets dropped that belong to no peer, by reason
    TUNNEL_DROPPED: Counter "tunnel_dropped" [tunnel reason];
    /// How often another program had changed the rules that keep the hopping prefix dark, and they were restored
    TUNNEL_RULES_RESTORED: Counter "tunnel_rules_restored" [tunnel];
    /// Whether the rules that keep the hopping prefix dark are in the kernel
    TUNNEL_DARK: Gauge "tunnel_prefix_dark" [tunnel];
    /// Of two gateways of a site: 1 for the one that is active
    TUNNEL_ACTIVE: Gauge "tunnel_active" [tunnel];
    /// Peers in the configuration
    TUNNEL_PEERS: Gauge "tunnel_peers" [tunnel];

    /// What is spoken with a peer, and how its packets travel
    PEER: Info "peer" [tunnel peer profile carry shape];
    /// 1 for the state that a peer is in (idle, handshake, established, silent), 0 for the others
    PEER_STATE: Gauge "peer_state" [tunnel peer state];
    /// Unix time at which the state began
    PEER_STATE_SINCE: Gauge "peer_state_timestamp" in seconds [tunnel peer];
    /// Unix time at which something came that was the peer's for certain
    PEER_HEARD: Gauge "peer_last_heard_timestamp" in seconds [tunnel peer];
    /// Unix time at which the peer last answered a question in this session
    PEER_ANSWERED: Gauge "peer_last_answered_timestamp" in seconds [tunnel peer];
    /// 1 while something is known to be wrong with a peer, by the code that show --json has
    PEER_FAULT: Gauge "peer_fault" [tunnel peer code];
    /// How often it was tried to reach a peer since there is a reason to, without success so far
    PEER_TRIES: Gauge "peer_tries" [tunnel peer];
    /// Unix time at which the session was made
    SESSION_START: Gauge "session_start_timestamp" in seconds [tunnel peer];
    /// How often the keys of the session were changed
    SESSION_REKEYS: Counter "session_rekeys" [tunnel peer];
    /// Handshakes completed, rekeys not counted
    PEER_HANDSHAKES: Counter "peer_handshakes" [tunnel peer];
    /// Lanes born, but for those that sessions begin with
    PEER_ROTATIONS: Counter "peer_rotations" [tunnel peer];
    /// Lanes left out because this end could not open its endpoint
    PEER_SKIPS: Counter "peer_skips" [tunnel peer];
    /// Lanes that are alive
    PEER_LANES: Gauge "peer_lanes" [tunnel peer];
    /// Inner packets sent
    PEER_SENT_PACKETS: Counter "peer_sent_packets" [tunnel peer];
    /// Their bytes
    PEER_SENT: Counter "peer_sent" in bytes [tunnel peer];
    /// Inner packets received
    PEER_RECEIVED_PACKETS: Counter "peer_received_packets" [tunnel peer];
    /// Their bytes
    PEER_RECEIVED: Counter "peer_received" in bytes [tunnel peer];
    /// Of the packets sent, those that left with replaced addresses
    PEER_SENT_REWRITTEN_PACKETS: Counter "peer_sent_rewritten_packets" [tunnel peer];
    /// Their bytes
    PEER_SENT_REWRITTEN: Counter "peer_sent_rewritten" in bytes [tunnel peer];
    /// Of the packets received, those that came with replaced addresses
    PEER_RECEIVED_REWRITTEN_PACKETS: Counter "peer_received_rewritten_packets" [tunnel peer];
    /// Their bytes
    PEER_RECEIVED_REWRITTEN: Counter "peer_received_rewritten" in bytes [tunnel peer];
    /// Datagrams and packets of a peer dropped, by reason
    PEER_DROPPED: Counter "peer_dropped" [tunnel peer reason];
    /// Round-trip time
    PEER_ROUND_TRIP: Gauge "peer_round_trip" in seconds [tunnel peer];
    /// The peer's wall clock minus this machine's
    PEER_CLOCK_OFFSET: Gauge "peer_clock_offset" in seconds [tunnel peer];
    /// Path MTU, the whole outer packet
    PEER_PATH_MTU: Gauge "peer_path_mtu" in bytes [tunnel peer];
    /// Whether a search for it has come to an end
    PEER_PATH_MTU_SETTLED: Gauge "peer_path_mtu_settled" [tunnel peer];

    /// The rate of a constant shape per second, outer headers included
    SHAPE_RATE: Gauge "shape_rate" in bytes [tunnel peer];
    /// What an adaptive shape may spend now
    SHAPE_BUDGET: Gauge "shape_budget" in bytes [tunnel peer];
    /// Datagrams that left in slots of the shape in this session
    SHAPE_DATAGRAMS: Counter "shape_datagrams" [tunnel peer];
    /// Those of them that carried nothing
    SHAPE_PADDING: Counter "shape_padding_datagrams" [tunnel peer];
    /// Datagrams that wait for a slot
    SHAPE_WAITING: Gauge "shape_waiting_datagrams" [tunnel peer];
    /// How long packets of the last minute have waited for a slot: half of them (50), all but one in a hundred (99) no longer
    SHAPE_DELAY: Gauge "shape_delay" in seconds [tunnel peer percentile];
    /// How late slots of the last minute left, likewise
    SHAPE_LATENESS: Gauge "shape_lateness" in seconds [tunnel peer percentile];
    /// Datagrams that were so late that their slot was given up, and put off
    SHAPE_PUT_OFF: Counter "shape_put_off_datagrams" [tunnel peer];

    /// Connections that the kernel follows now
    GATEWAY_CONNECTIONS: Gauge "gateway_connections" [];
    /// Those of them that take a flowtable now
    GATEWAY_OFFLOADED_CONNECTIONS: Gauge "gateway_offloaded_connections" [];
    /// What could not be done, or not be had: sidestep status says what
    GATEWAY_PROBLEMS: Gauge "gateway_problems" [];
    /// Whether the link has signal
    UPLINK_LINK_UP: Gauge "uplink_link_up" [uplink interface];
    /// Whether it leads to the Internet, as far as is known
    UPLINK_WORKS: Gauge "uplink_works" [uplink interface];
    /// Whether probed hosts answer; only where some are probed
    UPLINK_PROBES_ANSWERED: Gauge "uplink_probes_answered" [uplink interface];
    /// Whether there is a default router
    UPLINK_ROUTER: Gauge "uplink_router" [uplink interface];
    /// Prefixes that it was delegated or given
    UPLINK_PREFIXES: Gauge "uplink_prefixes" [uplink interface];
    /// Unix time at which the last of these leases ends; none without an end
    UPLINK_LEASE_EXPIRY: Gauge "uplink_lease_expiry_timestamp" in seconds [uplink interface];
    /// For how long a delegated prefix has been waited for; 0 if none is
    UPLINK_WAITING: Gauge "uplink_prefix_waiting" in seconds [uplink interface];
    /// What its line carries, down or up, as in the configuration; only where that is given
    UPLINK_BANDWIDTH: Gauge "uplink_bandwidth_bytes_per_second" [uplink interface direction];
    /// What CAKE lets through; 0 where it is not there
    UPLINK_SHAPED: Gauge "uplink_shaped_bytes_per_second" [uplink interface direction];
    /// Packets that CAKE let through
    UPLINK_SHAPED_PACKETS: Counter "uplink_shaped_packets" [uplink interface direction];
    /// Packets that CAKE dropped, so that their senders slow down
    UPLINK_SHAPED_DROPPED: Counter "uplink_shaped_dropped_packets" [uplink interface direction];
    /// Packets that CAKE marked instead (ECN)
    UPLINK_SHAPED_MARKED: Counter "uplink_shaped_marked_packets" [uplink interface direction];
    /// What waits in CAKE
    UPLINK_SHAPED_BACKLOG: Gauge "uplink_shaped_backlog" in bytes [uplink interface direction];
    /// How long packets waited in CAKE lately
    UPLINK_SHAPED_DELAY: Gauge "uplink_shaped_peak_delay" in seconds [uplink interface direction];
    /// Packets that came through a transition tunnel
    TRANSITION_RECEIVED_PACKETS: Counter "transition_received_packets" [uplink kind];
    /// Their bytes
    TRANSITION_RECEIVED: Counter "transition_received" in bytes [uplink kind];
    /// Packets that left through a transition tunnel
    TRANSITION_SENT_PACKETS: Counter "transition_sent_packets" [uplink kind];
    /// Their bytes
    TRANSITION_SENT: Counter "transition_sent" in bytes [uplink kind];
    /// Packets that a transition tunnel did not carry, by reason
    TRANSITION_DROPPED: Counter "transition_dropped" [uplink kind reason];
    /// Hosts of IPv6 that have an address for IPv4
    NAT64_HOSTS: Gauge "nat64_hosts" [];
    /// Packets that became IPv4
    NAT64_TO_IPV4_PACKETS: Counter "nat64_to_ipv4_packets" [];
    /// Their bytes
    NAT64_TO_IPV4: Counter "nat64_to_ipv4" in bytes [];
    /// Packets that became IPv6
    NAT64_TO_IPV6_PACKETS: Counter "nat64_to_ipv6_packets" [];
    /// Their bytes
    NAT64_TO_IPV6: Counter "nat64_to_ipv6" in bytes [];
    /// Packets that were not translated, by reason
    NAT64_DROPPED: Counter "nat64_dropped" [reason];
    /// Records of flows that the collector was sent
    FLOWS_RECORDS: Counter "flows_records" [];
    /// Records that could not be sent
    FLOWS_LOST: Counter "flows_lost_records" [];
    /// Records that were not sent, since there were more in one second than a collector is to take
    FLOWS_LEFT_OUT: Counter "flows_left_out_records" [];
    /// How often so many connections ended at once that the kernel did not tell all
    FLOWS_MISSED: Counter "flows_missed" [];
    /// Whether the link has signal
    NETWORK_LINK_UP: Gauge "network_link_up" [network interface];
    /// Whether hosts are told that it leads out
    NETWORK_DEFAULT_ROUTER: Gauge "network_default_router" [network interface];
    /// Prefixes that hosts have
    NETWORK_PREFIXES: Gauge "network_prefixes" [network interface];
    /// Hosts that the kernel knows there
    NETWORK_NEIGHBORS: Gauge "network_neighbors" [network interface];
    /// Whether the dnsmasq runs that answers hosts there
    NETWORK_DNSMASQ_RUNS: Gauge "network_dnsmasq_runs" [network interface];
    /// How often it was started anew, because it had ended
    NETWORK_DNSMASQ_RESTARTS: Counter "network_dnsmasq_restarts" [network interface];
    /// IPv4 addresses that hosts have leased
    NETWORK_LEASES: Gauge "network_leases" [network interface];
    /// IPv4 addresses that there are to lease
    NETWORK_LEASE_ADDRESSES: Gauge "network_lease_addresses" [network interface];
    /// Ports that hosts have opened
    NETWORK_PORT_MAPPINGS: Gauge "network_port_mappings" [network interface];
    /// Router advertisements sent
    NETWORK_ADVERTISEMENTS: Counter "network_advertisements_sent" [network interface];
    /// Router solicitations received
    NETWORK_SOLICITATIONS: Counter "network_solicitations_received" [network interface];
    /// Routers heard in the last hour that should not be there
    NETWORK_ROGUE_ROUTERS: Gauge "network_rogue_routers" [network interface];

    /// Packets that a rule of the firewall was about, by its number; of connections the first only
    FIREWALL_RULE_PACKETS: Counter "firewall_rule_packets" [rule verdict];
    /// Their bytes
    FIREWALL_RULE: Counter "firewall_rule" in bytes [rule verdict];
    /// Packets that were decided by default, by reason
    FIREWALL_DEFAULT_PACKETS: Counter "firewall_default_packets" [reason verdict];
    /// Their bytes
    FIREWALL_DEFAULT: Counter "firewall_default" in bytes [reason verdict];
    /// First packets of connections from one zone to another, and packets that were refused; not all that cross
    FIREWALL_PAIR_PACKETS: Counter "firewall_pair_packets" [from to];
    /// Their bytes
    FIREWALL_PAIR: Counter "firewall_pair" in bytes [from to];

    /// Packets and datagrams dropped, by reason
    IPSEC_DROPPED: Counter "ipsec_dropped" [tunnel reason];
    /// 1 for the state that a remote is in (up, connecting, waiting, idle), 0 for the others
    IPSEC_REMOTE_STATE: Gauge "ipsec_remote_state" [tunnel remote state];
    /// IKE SAs
    IPSEC_IKE_SAS: Gauge "ipsec_ike_sas" [tunnel remote];
    /// Children that are in use
    IPSEC_CHILDREN: Gauge "ipsec_children" [tunnel remote];
    /// Inner packets that the present association of a child has sent
    IPSEC_SENT_PACKETS: Counter "ipsec_child_sent_packets" [tunnel remote child];
    /// Their bytes
    IPSEC_SENT: Counter "ipsec_child_sent" in bytes [tunnel remote child];
    /// Inner packets that it has received
    IPSEC_RECEIVED_PACKETS: Counter "ipsec_child_received_packets" [tunnel remote child];
    /// Their bytes
    IPSEC_RECEIVED: Counter "ipsec_child_received" in bytes [tunnel remote child];

    /// A packet script: its file without folders, its hook and function, and the tier that it runs in
    SCRIPT: Info "script" [script file hook function tier];
    /// Whether packets come to it: 0 while its interface is away, or does not take its program
    SCRIPT_ATTACHED: Gauge "script_attached" [script];
    /// Scripts of a configuration that are to run and could not be loaded
    SCRIPTS_HELD: Gauge "scripts_held" [];
    /// Packets that a script was given
    SCRIPT_PACKETS: Counter "script_packets" [script];
    /// Of these, by verdict
    SCRIPT_VERDICTS: Counter "script_verdicts" [script verdict];
    /// Packets and deferred calls at which it failed
    SCRIPT_ERRORS: Counter "script_errors" [script];
    /// Packets that it has sent
    SCRIPT_SENT_PACKETS: Counter "script_sent_packets" [script];
    /// Packets that the kernel handed over to Lua, in the tier both
    SCRIPT_HANDED_OVER: Counter "script_handed_over_packets" [script];
    /// What a packet takes, measured at one of 64
    SCRIPT_PACKET_TIME: Gauge "script_packet_time" in seconds [script];
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::PathBuf;

    use super::*;

    /// The table of `docs/metrics.md`.
    fn table() -> String {
        let mut table = String::from("| metric | kind | labels | what it is |\n|---|---|---|---|\n");
        for metric in ALL {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Info => "info",
            };
            let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, labels, help) = (metric.full_name(), labels.join(", "), metric.help());
            let _ = writeln!(table, "| `{name}` | {kind} | {labels} | {help} |");
        }
        table
    }

    /// `UPDATE_REFERENCE=1 cargo test -p metrics` writes it.
    #[test]
    fn the_manual_lists_every_metric() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once("<!-- metrics -->\n").unwrap();
        let (listed, after) = rest.split_once("<!-- end of metrics -->").unwrap();
        let wanted = format!("\n{}\n", table());
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            let text = format!("{before}<!-- metrics -->\n{wanted}<!-- end of metrics -->{after}");
            std::fs::write(&path, text).unwrap();
        } else {
            assert_eq!(listed, wanted, "run UPDATE_REFERENCE=1 cargo test -p metrics");
        }
    }

    /// Rules and dashboard name nothing that is not exported.
    #[test]
    fn what_is_shipped_names_metrics_that_there_are() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib/prometheus");
        let known: Vec<String> = ALL.iter().map(|metric| metric.full_name()).collect();
        for file in ["sidestep.rules.yml", "sidestep.rules.test.yml", "dashboard.json"] {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for word in words.filter(|word| word.starts_with("sidestep_")) {
                assert!(known.iter().any(|name| name == word), "{file}: {word}");
            }
        }
    }
}
