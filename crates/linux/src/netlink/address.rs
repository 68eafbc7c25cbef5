//! Addresses of interfaces.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope, CacheInfo,
};

use super::{Netlink, family};
use crate::error::Result;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface.
    pub index: u32,
    /// The address, with the length of the prefix that is on the link.
    pub address: IpNet,
    /// Not useable: duplicate address detection is under way, or has failed.
    pub tentative: bool,
    /// Another node has it: duplicate address detection failed.
    pub duplicate: bool,
    /// Of global scope; otherwise it is good on its link or this host only.
    pub global: bool,
    /// Not to be used as a source of new flows.
    pub deprecated: bool,
    /// Somebody gave it for good; otherwise it has a lifetime, as a router or a DHCPv6 server said.
    pub permanent: bool,
}

/// How long an address lasts, in seconds; all ones: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// As a source of new flows.
    pub preferred: u32,
    /// At all.
    pub valid: u32,
}

impl Netlink {
    /// All addresses of all interfaces, of both families.
    pub fn all_addresses(&mut self) -> Result<Vec<Address>> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.dump(request, || "RTM_GETADDR".into())?;
        Ok(answers.into_iter().filter_map(Address::from_message).collect())
    }

    /// All addresses of an interface, of both families.
    pub fn addresses(&mut self, index: u32) -> Result<Vec<Address>> {
        let mut all = self.all_addresses()?;
        all.retain(|address| address.index == index);
        Ok(all)
    }

    /// Adds an address to an interface. `detect_duplicates` is for IPv6: without, the address is useable at once.
    pub fn add_address(&mut self, index: u32, address: IpNet, detect_duplicates: bool) -> Result<()> {
        let mut message = address_message(index, address);
        if !detect_duplicates && address.addr().is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change(RouteNetlinkMessage::NewAddress(message), flags, || {
            format!("add address {address} to link {index}")
        })
    }

    /// Adds an address of IPv6 that ends by itself: after so many seconds it is no source of new flows, and later gone.
    /// Its network gets no route: the kernel would make one that lasts as long as the address was to, also when that is
    /// deleted before.
    pub fn add_temporary_address(&mut self, index: u32, address: IpNet, lifetimes: Lifetimes) -> Result<()> {
        let message = with_lifetimes(address_message(index, address), lifetimes);
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change(RouteNetlinkMessage::NewAddress(message), flags, || {
            format!("add address {address} to link {index}")
        })
    }

    /// Gives an address of [`Netlink::add_temporary_address`] other lifetimes. Not one that was added for good: the
    /// kernel would take the route to its network away (seen with 6.18).
    pub fn set_lifetimes(&mut self, index: u32, address: IpNet, lifetimes: Lifetimes) -> Result<()> {
        let message = with_lifetimes(address_message(index, address), lifetimes);
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_REPLACE, || {
            format!("set the lifetimes of address {address} of link {index}")
        })
    }

    /// Gives an interface an address of IPv6 for so many seconds from now on, whether it has it already or not: it is useable at
    /// once, is the source of nothing that the machine begins itself, and its network gets no route. Who stops giving it loses it,
    /// also when nobody is there to take it away.
    pub fn hold_address(&mut self, index: u32, address: IpNet, seconds: u32) -> Result<()> {
        self.add_deprecated(index, address, seconds, NLM_F_REPLACE)
    }

    /// Gives an interface an address of IPv6 for good that is useable at once, and the source of nothing that the machine begins
    /// itself but where a route says so.
    pub fn add_deprecated_address(&mut self, index: u32, address: IpNet) -> Result<()> {
        self.add_deprecated(index, address, u32::MAX, NLM_F_EXCL)
    }

    fn add_deprecated(&mut self, index: u32, address: IpNet, seconds: u32, flag: u16) -> Result<()> {
        let lifetimes = Lifetimes { preferred: 0, valid: seconds };
        let mut message = with_lifetimes(address_message(index, address), lifetimes);
        message.attributes.pop();
        let flags = AddressFlags::Noprefixroute | AddressFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(flags));
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | flag, || {
            format!("add address {address} to link {index}, which is no source")
        })
    }

    /// Removes an address from an interface. Returns whether it was there.
    pub fn delete_address(&mut self, index: u32, address: IpNet) -> Result<bool> {
        let message = address_message(index, address);
        let result = self.change(RouteNetlinkMessage::DelAddress(message), 0, || {
            format!("delete address {address} from link {index}")
        });
        match result {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::ENODEV)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl Address {
    pub(super) fn from_message(message: RouteNetlinkMessage) -> Option<Address> {
        let (RouteNetlinkMessage::NewAddress(message) | RouteNetlinkMessage::DelAddress(message)) = message
        else {
            return None;
        };
        let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        // Where the two differ, IFA_ADDRESS is the other end of a point-to-point link and IFA_LOCAL the address.
        let (mut address, mut local) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Address(found) => address = Some(*found),
                AddressAttribute::Local(found) => local = Some(*found),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        let address = IpNet::new(local.or(address)?, message.header.prefix_len).ok()?;
        Some(Address {
            index: message.header.index,
            address,
            tentative: flags.intersects(AddressFlags::Tentative | AddressFlags::Dadfailed),
            duplicate: flags.contains(AddressFlags::Dadfailed),
            global: message.header.scope == AddressScope::Universe,
            deprecated: flags.contains(AddressFlags::Deprecated),
            permanent: flags.contains(AddressFlags::Permanent),
        })
    }
}

fn with_lifetimes(mut message: AddressMessage, lifetimes: Lifetimes) -> AddressMessage {
    let mut information = CacheInfo::default();
    information.ifa_preferred = lifetimes.preferred.min(lifetimes.valid);
    information.ifa_valid = lifetimes.valid;
    message.attributes.push(AddressAttribute::CacheInfo(information));
    message.attributes.push(AddressAttribute::Flags(AddressFlags::Noprefixroute));
    message
}

fn address_message(index: u32, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message.attributes.push(AddressAttribute::Local(address.addr()));
    message.attributes.push(AddressAttribute::Address(address.addr()));
    if let IpAddr::V4(_) = address.addr()
        && address.addr().is_loopback()
    {
        message.header.scope = AddressScope::Host;
    }
    message
}
