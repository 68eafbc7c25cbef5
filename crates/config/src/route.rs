//! `[[route]]`: routes of your own.

use std::net::IpAddr;

use router::site::StaticRoute;

use crate::converter::Converter;
use crate::key::Absent::{Otherwise, Required};
use crate::section::section;
use crate::value::{self, Problem, problem};

section! {
    /// `[[route]]`, as it stands in the file.
    RouteTable = "[[route]]" {
        /// Destination prefix, IPv6 or IPv4.
        to: String = Required(r#"where it leads, like "2001:db8:5::/48""#);
        /// Address of the next router.
        via: String = Otherwise("on the link");
        /// Interface that the packets leave by.
        interface: String = Required(r#"the interface, like "eth1""#);
    }
}

impl Converter<'_> {
    pub(crate) fn route(&mut self, given: &RouteTable) -> Option<StaticRoute> {
        let to = self.value(&given.to, value::inner_prefix);
        let via = self.optional(&given.via, router);
        let interface = self.value(&given.interface, value::interface);
        let (to, via) = (to?, via?);
        if via.is_some_and(|router| router.is_ipv6() != to.addr().is_ipv6()) {
            let help = "an IPv6 route needs an IPv6 router, an IPv4 route an IPv4 one".to_owned();
            let label = "of the other IP version".to_owned();
            self.refuse(given.via.span(), "via", Problem { label, help });
            return None;
        }
        Some(StaticRoute { to, via, interface: interface? })
    }
}

fn router(text: &str) -> Result<IpAddr, Problem> {
    text.parse().or_else(|_| problem("not an address", "write the next router's address"))
}
