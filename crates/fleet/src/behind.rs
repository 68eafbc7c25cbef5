//! Which networks are behind a site, by what its machine is in.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::site::Member;

impl Member {
    /// The networks behind the site, and its agent's address, if they are others by now: its provider has renumbered it.
    /// `inner`: the networks that its machine is in, with its addresses there.
    ///
    /// What the site may take by itself follows the machine; all else is the administrators' to say. While the machine is in
    /// none of what it may take, an interface is down, and nothing is said of that.
    #[must_use]
    pub fn renumbered(&self, inner: &[(IpNet, IpAddr)]) -> Option<(Vec<IpNet>, Option<IpAddr>)> {
        let may_take = |network: &IpNet| self.may_take.iter().any(|wide| wide.contains(network));
        let found: Vec<&(IpNet, IpAddr)> = inner.iter().filter(|(network, _)| may_take(network)).collect();
        let first = found.first()?;
        let is_there =
            |network: &&IpNet| !may_take(network) || found.iter().any(|(one, _)| network.contains(one));
        let mut networks: Vec<IpNet> = self.networks.iter().filter(is_there).copied().collect();
        for (network, _) in &found {
            if !networks.iter().any(|wide| wide.contains(network)) {
                networks.push(*network);
            }
        }
        let has = |address: &IpAddr| networks.iter().any(|network| network.contains(address));
        let address = self.address.map(|address| if has(&address) { address } else { first.1 });
        (networks != self.networks || address != self.address).then_some((networks, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SigningKey;

    fn member(networks: &[&str], may_take: &[&str], address: &str) -> Member {
        let list = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Member {
            name: "kiel".parse().unwrap(),
            identity: SigningKey::from_seed([1; 32]).public(),
            role: "spoke".parse().unwrap(),
            region: None,
            zone: None,
            standby: None,
            networks: list(networks),
            may_take: list(may_take),
            address: Some(address.parse().unwrap()),
            notices_after: 0,
            revoked: None,
        }
    }

    /// What is said of a machine in these networks, in words.
    fn said(member: &Member, inner: &[(&str, &str)]) -> Option<String> {
        let inner: Vec<(IpNet, IpAddr)> = inner
            .iter()
            .map(|(network, address)| (network.parse().unwrap(), address.parse().unwrap()))
            .collect();
        let (networks, address) = member.renumbered(&inner)?;
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        Some(format!("{} at {}", networks.join(" "), address.unwrap()))
    }

    #[test]
    fn what_a_site_may_take_follows_its_machine() {
        let site = member(&["2001:db8:b::/64", "fd00:7::/48"], &["2001:db8::/32"], "2001:db8:b::1");
        let old = ("2001:db8:b::/64", "2001:db8:b::1");
        let new = ("2001:db8:c::/64", "2001:db8:c::1");
        assert_eq!(said(&site, &[old]), None);
        assert_eq!(
            said(&site, &[old, new]).unwrap(),
            "2001:db8:b::/64 fd00:7::/48 2001:db8:c::/64 at 2001:db8:b::1",
            "both, as long as both are there"
        );
        assert_eq!(said(&site, &[new]).unwrap(), "fd00:7::/48 2001:db8:c::/64 at 2001:db8:c::1");
    }

    #[test]
    fn what_is_the_administrators_stays() {
        // Behind another router, within what is routed to the site, and of a site that may take nothing.
        let site = member(&["2001:db8:b::/48"], &["2001:db8::/32"], "2001:db8:b::1");
        assert_eq!(said(&site, &[("2001:db8:b:1::/64", "2001:db8:b:1::1")]), None);
        assert_eq!(said(&site, &[("fd00::/64", "fd00::1")]), None, "not to be taken");
        assert_eq!(said(&site, &[]), None, "an interface is down");
        let fixed = member(&["2001:db8:b::/64"], &[], "2001:db8:b::1");
        assert_eq!(said(&fixed, &[("2001:db8:c::/64", "2001:db8:c::1")]), None);
    }
}
