//! What stubby is told, which asks servers by DNS over TLS (RFC 7858) for the resolver, and what it says of them.
//!
//! The profile is the strict one (RFC 8310 section 5): a server whose certificate does not verify for its name is asked
//! nothing, and nothing is ever asked in the clear. As for dnsmasq, all that is written comes from values that the
//! configuration has read.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::settings::TlsServer;

/// Where it listens for the resolver: at a port that only the privileged can have, so that no other user of this machine
/// answers in its place.
pub const LISTENS_AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 8, 5, 3)), 53);

/// The configuration with these servers: the first is asked, another where it does not answer.
#[must_use]
pub fn configuration(servers: &[TlsServer]) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_configuration(&mut text, servers);
    text
}

fn write_configuration(text: &mut String, servers: &[TlsServer]) -> fmt::Result {
    // Padding hides the length of names (RFC 8467); a server tells nobody which network asks (RFC 7871 section 7.1.2). A
    // server that was not reached is tried again soon: after an hour is the default.
    write!(
        text,
        "# Written by `sidestep up`, which ends stubby and starts it when something here changes.\n\
         resolution_type: GETDNS_RESOLUTION_STUB\n\
         dns_transport_list: [GETDNS_TRANSPORT_TLS]\n\
         tls_authentication: GETDNS_AUTHENTICATION_REQUIRED\n\
         tls_min_version: GETDNS_TLS1_2\n\
         tls_query_padding_blocksize: 128\n\
         edns_client_subnet_private: 1\n\
         round_robin_upstreams: 0\n\
         idle_timeout: 10000\n\
         tls_backoff_time: 10\n\
         listen_addresses: [{}@{}]\n\
         upstream_recursive_servers:\n",
        LISTENS_AT.ip(),
        LISTENS_AT.port()
    )?;
    for server in servers {
        let (address, port) = (server.place.ip().to_string(), server.place.port());
        // In YAML, no value begins with a colon.
        let zero = if address.starts_with(':') { "0" } else { "" };
        writeln!(
            text,
            "  - address_data: {zero}{address}\n    tls_port: {port}\n    tls_auth_name: \"{}\"",
            server.name
        )?;
    }
    Ok(())
}

/// What a line of its log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The server at this address has answered, or may be asked.
    Works(IpAddr),
    /// It may not: its certificate does not verify, with the reason.
    Untrusted(IpAddr, String),
    /// There is no connection to it, or no answer.
    Unreachable(IpAddr),
    /// It asks nobody any more, until it is started anew: getdns does not come back to a server whose certificate has never
    /// verified, as where the clock was wrong.
    GivesUp,
}

/// Reads a line, if it is one that matters.
#[must_use]
pub fn said(line: &str) -> Option<Said> {
    if line.contains("Could not schedule query: None of the configured upstreams") {
        return Some(Said::GivesUp);
    }
    let (_, line) = line.split_once("STUBBY: ")?;
    let (address, what) = line.split_once(" : ")?;
    let address: IpAddr = address.trim().parse().ok()?;
    let what = what.trim();
    if what.starts_with("Verify passed") {
        return Some(Said::Works(address));
    }
    if what.starts_with("Verify failed") {
        let reason = what.split('"').nth(1).unwrap_or("no reason is given");
        return Some(Said::Untrusted(address, reason.to_owned()));
    }
    let closed = what.strip_prefix("Conn closed: TLS - ")?;
    if closed.starts_with("*Failure*") {
        return Some(Said::Unreachable(address));
    }
    let number = |name: &str| {
        let value = closed.split(',').find_map(|part| part.trim().strip_prefix(name))?;
        value.trim_start_matches([' ', '=']).parse::<u64>().ok()
    };
    match (number("Resps")?, number("Timeouts")?) {
        (1.., _) => Some(Said::Works(address)),
        (0, 1..) => Some(Said::Unreachable(address)),
        (0, 0) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_asked_by_tls_alone_and_by_their_name() {
        let server =
            |place: &str, name: &str| TlsServer { place: place.parse().unwrap(), name: name.to_owned() };
        let text = configuration(&[
            server("9.9.9.9:853", "dns.quad9.net"),
            server("[2620:fe::9]:8853", "dns.quad9.net"),
            server("[::1]:853", "local.example"),
        ]);
        for expected in [
            "dns_transport_list: [GETDNS_TRANSPORT_TLS]\n",
            "tls_authentication: GETDNS_AUTHENTICATION_REQUIRED\n",
            "listen_addresses: [127.8.5.3@53]\n",
            "  - address_data: 9.9.9.9\n    tls_port: 853\n    tls_auth_name: \"dns.quad9.net\"\n",
            "  - address_data: 2620:fe::9\n    tls_port: 8853\n    tls_auth_name: \"dns.quad9.net\"\n",
            "  - address_data: 0::1\n    tls_port: 853\n    tls_auth_name: \"local.example\"\n",
        ] {
            assert!(text.contains(expected), "{expected}{text}");
        }
    }

    #[test]
    fn what_it_says_of_servers_is_understood() {
        let address = "10.9.9.9".parse().unwrap();
        for (line, expected) in [
            ("10.9.9.9                                 : Verify passed : TLS", Some(Said::Works(address))),
            (
                "10.9.9.9  : Verify failed : TLS - *Failure* - (62) \"hostname mismatch\"",
                Some(Said::Untrusted(address, "hostname mismatch".to_owned())),
            ),
            ("10.9.9.9  : Conn closed: TLS - *Failure*", Some(Said::Unreachable(address))),
            (
                "10.9.9.9 : Conn closed: TLS - Resps=     0, Timeouts  =     1, Curr_auth =   None, Keepalive(ms)=     0",
                Some(Said::Unreachable(address)),
            ),
            (
                "10.9.9.9 : Conn closed: TLS - Resps=     2, Timeouts  =     1, Curr_auth =Success, Keepalive(ms)= 10000",
                Some(Said::Works(address)),
            ),
            ("10.9.9.9 : Conn closed: TLS - Resps=     0, Timeouts  =     0, Curr_auth = Failed", None),
            ("10.9.9.9 : Conn opened: TLS - Strict Profile", None),
            ("   *FAILURE* no valid transports or upstreams available!", None),
        ] {
            assert_eq!(said(&format!("[09:14:11.779809] STUBBY: {line}")), expected, "{line}");
        }
        let line = "Could not schedule query: None of the configured upstreams could be used to send queries on the specified transports";
        assert_eq!(said(line), Some(Said::GivesUp));
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_read_without_panic(line: String) {
            let _ = (said(&line), said(&format!("STUBBY: ::1 : {line}")));
        }
    }
}
