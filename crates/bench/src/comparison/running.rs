//! A contender that runs, in a lab of its own, with no other way between the hosts.

use std::time::Duration;

use crate::comparison::contender::{Contender, NONE};
use lab::Error;
use lab::topology::{Node, Site, Topology};
use lab::{Builder, Lab};

/// How long a tunnel may take to be there.
const PATIENCE: Duration = Duration::from_secs(30);

/// The metric of a route that is to be used if there is no other.
const LAST: u32 = 100_000;

/// A contender in a lab of its own, running.
pub(crate) struct Running {
    pub(crate) contender: Box<dyn Contender>,
    pub(crate) lab: Lab,
}

impl Running {
    /// Builds the lab, starts the contender, and waits until packets come through.
    ///
    /// # Errors
    /// When one of these fails; nothing is left running then.
    pub(crate) fn start(contender: Box<dyn Contender>, builder: Builder) -> Result<Self, Error> {
        let lab = contender.lab(builder).build()?;
        Self::launch(contender, lab)
    }

    /// The same in a lab of the contender's that is there already.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn launch(mut contender: Box<dyn Contender>, mut lab: Lab) -> Result<Self, Error> {
        let started = contender.start(&mut lab, 0).and_then(|()| {
            if contender.name() != NONE && !lab.has_tunnel() {
                close_other_ways(&lab, contender.hops_among_hosts())?;
            }
            lab.wait_connected(PATIENCE)
        });
        if let Err(error) = started {
            contender.stop(&mut lab);
            return Err(error);
        }
        Ok(Self { contender, lab })
    }

    /// Its contender's name.
    pub(crate) fn name(&self) -> &str {
        self.contender.name()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.contender.stop(&mut self.lab);
    }
}

/// Takes the routes of the plain lab away at its router, or, where outer addresses are in the hosts' networks, those to
/// the hosts: what comes through now has come through the tunnel. In the switched lab the gateways' own routes to each
/// other were the only way, and the tunnel has replaced them; where outer packets take these routes, the other host is
/// out of reach by them.
fn close_other_ways(lab: &Lab, among_hosts: bool) -> Result<(), Error> {
    let topology = lab.topology();
    if topology == Topology::Switched {
        for site in [Site::A, Site::B].into_iter().filter(|_| among_hosts) {
            let route = format!("route add unreachable {}/128 metric {LAST}\n", site.other().host());
            lab.namespace(site.gateway()).ip(&route)?;
        }
        return Ok(());
    }
    let lines = [Site::A, Site::B].map(|site| {
        let ([v6, v4], host) = (site.inner_prefixes(), site.host());
        // 6in4 carries no IPv4: there is none to be taken away.
        let v4 = if topology == Topology::Routed { format!("route del {v4}\n") } else { String::new() };
        if among_hosts {
            format!("route add unreachable {host}/128\n{v4}")
        } else {
            format!("route del {v6}\n{v4}")
        }
    });
    lab.namespace(Node::Router).ip(&lines.concat())
}
