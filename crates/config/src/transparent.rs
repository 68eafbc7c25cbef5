//! The transparent mode of `[node]`.

use std::net::Ipv6Addr;

use toml::Spanned;
use wire::ethernet::MacAddress;

use crate::classic::ClassicPeer;
use crate::converter::Converter;
use crate::key::Absent::{Otherwise, Required};
use crate::section::{Given, section};
use crate::value::{self, Problem, problem};

section! {
    /// A host of `protect`, as it stands in the file.
    HostTable = "a host of `protect`" {
        /// Its true address.
        address: String = Required("the address of a host that is protected");
        /// Its MAC address.
        mac: String = Otherwise("learned");
    }
}

/// A gateway between its hosts and their router that neither of them sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transparent {
    /// Name of the interface that the hosts are behind.
    pub internal: String,
    /// The hosts that are protected, beside those of peers of the classic profile.
    pub protect: Vec<ProtectedHost>,
    /// What protected hosts and others than their peers say to each other passes, which shows the hosts.
    pub pass_others: bool,
}

/// A host of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectedHost {
    /// Its address.
    pub address: Ipv6Addr,
    /// Its hardware address; learned where it is not given.
    pub mac: Option<MacAddress>,
}

impl Transparent {
    /// All hosts that are protected, those of peers of the classic profile, too.
    pub fn hosts(&self, classic: &[ClassicPeer]) -> Vec<ProtectedHost> {
        let mut hosts = self.protect.clone();
        for peer in classic {
            let local = peer.stream.local;
            match hosts.iter_mut().find(|host| host.address == local.address) {
                Some(host) => host.mac = host.mac.or(local.mac.map(MacAddress)),
                None => {
                    let mac = local.mac.map(MacAddress);
                    hosts.push(ProtectedHost { address: local.address, mac });
                }
            }
        }
        hosts
    }
}

impl Converter<'_> {
    /// The transparent mode, as these keys of `[node]` have it.
    pub(crate) fn transparent(
        &mut self,
        internal: &Given<String>,
        protect: &Given<Vec<Spanned<HostTable>>>,
        others: &Given<String>,
    ) -> Option<Transparent> {
        self.require(internal, r#"the interface that the hosts are behind, like "eth1""#);
        let internal = self.value(internal, value::interface);
        let pass_others = self.value(others, pass_others);
        let hosts: Vec<_> = protect
            .list()
            .iter()
            .map(|host| {
                let address = self.value(&host.get_ref().address, value::host_address);
                let mac = self.optional(&host.get_ref().mac, value::mac);
                Some(ProtectedHost { address: address?, mac: mac?.map(MacAddress) })
            })
            .collect();
        Some(Transparent {
            internal: internal?,
            protect: hosts.into_iter().collect::<Option<_>>()?,
            pass_others: pass_others?,
        })
    }
}

/// Whether what protected hosts and others say to each other passes.
fn pass_others(text: &str) -> Result<bool, Problem> {
    match text {
        "block" => Ok(false),
        "pass" => Ok(true),
        _ => problem("neither of the two", r#"write "block", or "pass", which shows the hosts' addresses"#),
    }
}
