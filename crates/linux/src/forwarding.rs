//! The switch that makes a router of the machine, and what the kernel changes along with it: whether each interface forwards,
//! those to come (`default`) included, and for IPv4 whether redirects are believed.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::sysctl;

/// Interfaces that are made later begin as this one.
const DEFAULT: &str = "default";
const IPV4_REDIRECTS: &str = "ipv4/conf/all/accept_redirects";

/// Which packets are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpVersion {
    /// Those of IPv4.
    Ipv4,
    /// Those of IPv6.
    Ipv6,
}

/// How a machine was that did not forward before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarding {
    version: IpVersion,
    /// Whether each interface forwarded, by its name.
    interfaces: Vec<(String, String)>,
    /// Whether redirects of IPv4 were believed.
    redirects: Option<String>,
}

impl IpVersion {
    /// The switch: its path below `/proc/sys/net`.
    #[must_use]
    pub fn switch(self) -> &'static str {
        match self {
            IpVersion::Ipv4 => "ipv4/ip_forward",
            IpVersion::Ipv6 => "ipv6/conf/all/forwarding",
        }
    }

    /// The setting of one interface.
    #[must_use]
    pub fn of_interface(self, name: &str) -> String {
        match self {
            IpVersion::Ipv4 => format!("ipv4/conf/{name}/forwarding"),
            IpVersion::Ipv6 => format!("ipv6/conf/{name}/forwarding"),
        }
    }
}

impl Forwarding {
    /// How the machine is, with these interfaces; None where it forwards already.
    pub(crate) fn before<'i>(
        version: IpVersion,
        interfaces: impl Iterator<Item = &'i str>,
    ) -> Result<Option<Self>> {
        if sysctl::read_global(version.switch())? != "0" {
            return Ok(None);
        }
        // One that is gone, or has no IP, has no such setting.
        let is_so = |name: &str| {
            let value = sysctl::read_global(&version.of_interface(name)).ok()?;
            Some((name.to_owned(), value))
        };
        let interfaces = [DEFAULT].into_iter().chain(interfaces).filter_map(is_so).collect();
        let redirects = match version {
            IpVersion::Ipv4 => Some(sysctl::read_global(IPV4_REDIRECTS)?),
            IpVersion::Ipv6 => None,
        };
        Ok(Some(Forwarding { version, interfaces, redirects }))
    }

    pub(crate) fn version(&self) -> IpVersion {
        self.version
    }

    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.interfaces.iter().map(|(name, _)| name.as_str())
    }

    /// Switches it on.
    pub(crate) fn apply(&self) -> Result<()> {
        sysctl::write_global(self.version.switch(), "1")
    }

    /// Switches it off, unless somebody has; all is as it was then, but for what somebody has changed since.
    pub(crate) fn restore(&self) -> Result<()> {
        let switch = self.version.switch();
        if sysctl::read_global(switch)? == "0" {
            return Ok(());
        }
        let interfaces =
            self.interfaces.iter().map(|(name, before)| (self.version.of_interface(name), before, "1"));
        let redirects = self.redirects.iter().map(|before| (IPV4_REDIRECTS.to_owned(), before, "0"));
        // What the switch has made of it, and whoever has changed it after that.
        let later = |(path, before, made): (String, &String, &str)| {
            let found = sysctl::read_global(&path).ok()?;
            Some((path, if found == made { before.clone() } else { found }))
        };
        let later: Vec<_> = interfaces.chain(redirects).filter_map(later).collect();
        sysctl::write_global(switch, "0")?;
        for (path, value) in later {
            if sysctl::read_global(&path).is_ok_and(|found| found != value) {
                sysctl::write_global(&path, &value)?;
            }
        }
        Ok(())
    }
}
