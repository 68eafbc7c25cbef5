//! Which association is for a packet that leaves, among any number of them.
//!
//! Those that are for the same networks, of the same protocol and mode, with the same ends and the same owner, lie together.
//! Where a packet's are, is asked for each pair of prefix lengths that there is; a host or gateway has few of these, and a
//! rekey leaves few that lie together. So 10,000 associations are looked through in the time of ten.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::association::{Association, AssociationId, Mode, Protocol};
use crate::request::{Request, Service, SocketId};

/// What associations have in common that lie together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    protocol: Protocol,
    mode: Mode,
    owner: Option<SocketId>,
    /// `None`: those of all ends, for packets of which policy does not say between which gateways they go.
    ends: Option<(IpAddr, IpAddr)>,
    source: IpNet,
    destination: IpNet,
}

/// Prefix lengths of source and destination, and whether they are of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    is_ipv6: bool,
    source: u8,
    destination: u8,
}

/// The associations that packets may leave by.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    /// Of each kind, the oldest first.
    kinds: HashMap<Kind, Vec<AssociationId>>,
    /// With the number of kinds that have it.
    shapes: BTreeMap<Shape, usize>,
}

impl Offers {
    pub(crate) fn add(&mut self, id: AssociationId, association: &Association, owner: Option<SocketId>) {
        for kind in kinds(association, owner) {
            let ids = self.kinds.entry(kind).or_default();
            if ids.is_empty() {
                *self.shapes.entry(kind.shape()).or_default() += 1;
            }
            if let Err(place) = ids.binary_search(&id) {
                ids.insert(place, id);
            }
        }
    }

    /// Takes one away that was put in with the same parameters and owner.
    pub(crate) fn remove(&mut self, id: AssociationId, association: &Association, owner: Option<SocketId>) {
        for kind in kinds(association, owner) {
            let Some(ids) = self.kinds.get_mut(&kind) else { continue };
            let Ok(place) = ids.binary_search(&id) else { continue };
            ids.remove(place);
            if !ids.is_empty() {
                continue;
            }
            self.kinds.remove(&kind);
            let shape = kind.shape();
            if let Some(kinds) = self.shapes.get_mut(&shape) {
                *kinds -= 1;
                if *kinds == 0 {
                    self.shapes.remove(&shape);
                }
            }
        }
    }

    /// The newest for such packets that also is as wanted.
    pub(crate) fn newest(
        &self,
        request: &Request,
        is_wanted: impl Fn(AssociationId) -> bool,
    ) -> Option<AssociationId> {
        let traffic = &request.traffic;
        let owners = [request.socket.map(Some), (!request.is_unique).then_some(None)];
        let mut newest = None;
        for shape in self.shapes.keys().filter(|shape| shape.is_ipv6 == traffic.source.is_ipv6()) {
            let (Some(source), Some(destination)) =
                (network(traffic.source, shape.source), network(traffic.destination, shape.destination))
            else {
                continue;
            };
            for owner in owners.into_iter().flatten() {
                let kind = Kind::of(request.service, owner, request.tunnel, source, destination);
                let Some(ids) = self.kinds.get(&kind) else { continue };
                let better = ids.iter().rev().take_while(|id| newest.is_none_or(|newest| **id > newest));
                newest = better.copied().find(|id| is_wanted(*id)).or(newest);
            }
        }
        newest
    }

    /// How many networks of a packet are asked for.
    #[cfg(test)]
    pub(crate) fn shapes(&self) -> usize {
        self.shapes.len()
    }
}

impl Kind {
    fn of(
        service: Service,
        owner: Option<SocketId>,
        ends: Option<(IpAddr, IpAddr)>,
        source: IpNet,
        destination: IpNet,
    ) -> Self {
        let mode = service.mode();
        // In transport mode the ends are those of the packet.
        let ends = ends.filter(|_| mode == Mode::Tunnel);
        Self { protocol: service.protocol(), mode, owner, ends, source, destination }
    }

    fn shape(&self) -> Shape {
        Shape {
            is_ipv6: self.source.addr().is_ipv6(),
            source: self.source.prefix_len(),
            destination: self.destination.prefix_len(),
        }
    }
}

/// Under which kinds an association lies. One twice does no harm.
fn kinds(association: &Association, owner: Option<SocketId>) -> Vec<Kind> {
    let parameters = association.parameters();
    let (protocol, mode) = (association.protocol(), parameters.mode);
    let ends = (parameters.source, parameters.destination);
    let of = |ends, source, destination| Kind { protocol, mode, owner, ends, source, destination };
    if mode == Mode::Transport {
        return vec![of(None, ends.0.into(), ends.1.into())];
    }
    let networks: Vec<_> = match &parameters.selectors[..] {
        [] => vec![(ends.0.into(), everything(ends.0))],
        selectors => selectors.iter().map(|one| (one.source.trunc(), one.destination.trunc())).collect(),
    };
    networks.into_iter().flat_map(|(from, to)| [of(None, from, to), of(Some(ends), from, to)]).collect()
}

fn network(address: IpAddr, prefix: u8) -> Option<IpNet> {
    Some(IpNet::new(address, prefix).ok()?.trunc())
}

fn everything(version: IpAddr) -> IpNet {
    match version {
        IpAddr::V4(_) => ipnet::Ipv4Net::default().into(),
        IpAddr::V6(_) => ipnet::Ipv6Net::default().into(),
    }
}
