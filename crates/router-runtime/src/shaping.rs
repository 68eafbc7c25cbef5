//! Short queues at the uplinks: CAKE at an uplink's interface for what is sent, and at a device of the kind `ifb` for what
//! is received. All of it stays when the gateway is killed, as packets are to be shaped then, too; the next run takes it
//! over or takes it back.
//!
//! What comes through a transition tunnel leaves the uplink's interface before it could be redirected there, as an inner
//! packet. So the tunnel's device is redirected to the same `ifb`: both share the line.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use control::router_status::{Bandwidth as Status, Shaped as Side};
use linux::bpf::attach::{Direction, Filter};
use linux::netlink::{Cake, Framing, Link, Netlink, Root};
use linux::undo::{Journal, Step};
use router::site::{Bandwidth, Overhead, Site, Uplink};
use tracing::warn;

use crate::link::index_of;

/// The longest name of an interface.
const LONGEST: usize = 15;

/// What was set up for short queues.
#[derive(Default)]
pub(crate) struct Shaping {
    done: Vec<Step>,
    /// What CAKE is to do at each interface, once it was looked at.
    cakes: BTreeMap<u32, Cake>,
    /// Rates of uplinks that follow what the line carries, down and up.
    rates: BTreeMap<String, [Option<u64>; 2]>,
    /// Of each uplink, why packets are not shaped, down and up, as was found when it was last looked.
    why: BTreeMap<String, [Option<String>; 2]>,
}

/// Whether a step is one of these.
pub(crate) fn is_shaping(step: &Step) -> bool {
    matches!(step, Step::Cake { .. } | Step::Ifb { .. } | Step::Redirect { .. })
}

/// The device by which goes what an interface receives: `ifb4eth0`, as other programs name it. Of a name that is too long for
/// that, its beginning and a digest, `ifb4enp1-1a2b3c`: those of VLANs begin alike.
fn device_of(interface: &str) -> String {
    let mut name = format!("ifb4{interface}");
    if name.len() > LONGEST {
        let mut hasher = DefaultHasher::new();
        interface.hash(&mut hasher);
        let digest = format!("-{:06x}", hasher.finish() & 0xff_ffff);
        let end = (0..=LONGEST - digest.len()).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        name.truncate(end);
        name += &digest;
    }
    name
}

impl Shaping {
    /// Takes over what an earlier run has left.
    pub(crate) fn left(steps: &[Step]) -> Self {
        Shaping {
            done: steps.iter().filter(|step| is_shaping(step)).cloned().collect(),
            ..Shaping::default()
        }
    }

    /// Has what goes by an uplink's line be at these rates, down and up, from now on. Where it is not shaped, that is what it
    /// begins with.
    pub(crate) fn set_rates(
        &mut self,
        uplink: &Uplink,
        rates: [Option<u64>; 2],
        links: &[Link],
        netlink: &mut Netlink,
        journal: &mut Journal,
    ) {
        if self.rates.insert(uplink.name.clone(), rates) == Some(rates) {
            return;
        }
        for (index, rate) in interfaces(uplink, links, netlink).into_iter().zip(rates) {
            let shaped = index.and_then(|index| Some((index, self.cakes.get_mut(&index)?))).zip(rate);
            // What fails is found by the next look, which tells it.
            if let Some(((index, cake), rate)) = shaped
                && journal.shape(netlink, index, &Cake { rate, ..*cake }).is_ok()
            {
                cake.rate = rate;
            }
        }
    }

    /// Has it there as it should be now, also what somebody has taken away. Returns what cannot be had, and what mends it.
    pub(crate) fn follow(
        &mut self,
        site: &Site,
        links: &[Link],
        netlink: &mut Netlink,
        journal: &mut Journal,
    ) -> Vec<String> {
        let (mut wanted, mut problems) = (Vec::new(), Vec::new());
        self.why.clear();
        for uplink in &site.uplinks {
            let Some(bandwidth) = uplink.bandwidth else { continue };
            // Without the interface there is nothing to shape.
            let Some(index) = index_of(links, &uplink.interface) else { continue };
            let [down, up] = self.rates_of(uplink);
            let mut kernel = Shaper { shaping: self, netlink, journal, wanted: &mut wanted };
            let sent = up.and_then(|rate| {
                let cake = cake(uplink, bandwidth, rate, Direction::Egress);
                kernel.shape(index, &uplink.interface, &cake).err()
            });
            let received = down.and_then(|rate| {
                let cake = cake(uplink, bandwidth, rate, Direction::Ingress);
                let tunnels = site.uplinks.iter().filter(|other| {
                    other.tunnel.as_ref().is_some_and(|tunnel| tunnel.over == uplink.interface)
                });
                let tunnels = tunnels.filter_map(|other| index_of(links, &other.interface));
                let received: Vec<_> = [index].into_iter().chain(tunnels).collect();
                kernel.shape_received(&received, &uplink.interface, &cake, links).err()
            });
            for (what, why) in [("sent", &sent), ("received", &received)] {
                let problem = |why| format!("uplink {}: what is {what} is not shaped: {why}", uplink.name);
                problems.extend(why.as_ref().map(problem));
            }
            self.why.insert(uplink.name.clone(), [received, sent]);
        }
        // The newest first: what is redirected to a device that is gone is lost.
        for step in self.done.clone().iter().rev().filter(|step| !wanted.contains(step)) {
            match journal.undo_step(netlink, step) {
                Ok(()) => self.done.retain(|done| done != step),
                Err(error) => problems.push(error.to_string()),
            }
            if let Step::Cake { index } = step {
                self.cakes.remove(index);
            }
        }
        problems
    }

    /// What CAKE is to let through, down and up.
    fn rates_of(&self, uplink: &Uplink) -> [Option<u64>; 2] {
        let Some(bandwidth) = uplink.bandwidth else { return [None, None] };
        let [down, up] = self.rates.get(&uplink.name).copied().unwrap_or_default();
        let side = |rate: Option<u64>, least: Option<u64>, most: Option<u64>| {
            let most = most?;
            // The least, before anything is known of the line.
            Some(least.map_or(most, |least| rate.unwrap_or(least).clamp(least, most)))
        };
        [side(down, bandwidth.down_least, bandwidth.down), side(up, bandwidth.up_least, bandwidth.up)]
    }

    /// What becomes of an uplink's packets now; none where its bandwidth is not given.
    pub(crate) fn status(&self, uplink: &Uplink, links: &[Link], netlink: &mut Netlink) -> Option<Status> {
        let Bandwidth { down, up, down_least, up_least, .. } = uplink.bandwidth?;
        let [received, sent] = interfaces(uplink, links, netlink);
        // That of the uplink's own interface; not of tunnels over it.
        let is_redirected = |device: &u32| {
            let to_device = self.done.iter().find_map(|step| match step {
                Step::Redirect { index, handle, to } if Some(*index) == sent && to == device => {
                    Some((*index, *handle))
                }
                _ => None,
            });
            to_device.is_some_and(|(index, handle)| netlink.has_redirect(index, handle).unwrap_or(false))
        };
        let received = received.filter(is_redirected);
        let whys = self.why.get(&uplink.name).cloned().unwrap_or_default();
        let [why_down, why_up] = whys.map(|why| {
            let gone = || match sent {
                None => format!("{} is not there", uplink.interface),
                Some(_) => {
                    "another program has taken away what shapes it, which is put back within ten seconds"
                        .to_owned()
                }
            };
            why.unwrap_or_else(gone)
        });
        let mut side = |wanted: Option<u64>, least_bits: Option<u64>, index: Option<u32>, why: String| {
            let root = index.and_then(|index| netlink.root(index).ok());
            let shaped = match root {
                Some(Root::Ours(shaped)) => Some(shaped),
                _ => None,
            };
            wanted.map(|rate_bits| Side {
                rate_bits,
                least_bits,
                rate_in_force_bits: shaped.map(|shaped| shaped.rate),
                why: shaped.is_none().then_some(why),
                sent_packets: shaped.map_or(0, |shaped| shaped.sent_packets),
                sent_bytes: shaped.map_or(0, |shaped| shaped.sent_bytes),
                dropped_packets: shaped.map_or(0, |shaped| shaped.dropped),
                marked_packets: shaped.map_or(0, |shaped| shaped.marked),
                backlog_bytes: shaped.map_or(0, |shaped| shaped.backlog),
                peak_delay_ms: shaped.map_or(0.0, |shaped| shaped.peak_delay_us as f64 / 1e3),
            })
        };
        let down = side(down, down_least, received, why_down);
        Some(Status { down, up: side(up, up_least, sent, why_up), delay: None })
    }
}

/// Bytes that CAKE has let through, down and up.
pub(crate) fn carried(uplink: &Uplink, links: &[Link], netlink: &mut Netlink) -> [Option<u64>; 2] {
    interfaces(uplink, links, netlink).map(|index| match netlink.root(index?) {
        Ok(Root::Ours(shaped)) => Some(shaped.sent_bytes),
        _ => None,
    })
}

/// Where packets of an uplink are shaped: what comes in, and what goes out.
fn interfaces(uplink: &Uplink, links: &[Link], netlink: &mut Netlink) -> [Option<u32>; 2] {
    let received = netlink.ifb(&device_of(&uplink.interface)).ok().flatten();
    [received, index_of(links, &uplink.interface)]
}

fn cake(uplink: &Uplink, bandwidth: Bandwidth, rate: u64, direction: Direction) -> Cake {
    let frame = |overhead, least, cells| Some(Framing { overhead, least, cells });
    // Those of tc-cake(8); with PPPoE in a VLAN, and for ADSL, those that OpenWrt recommends.
    let framing = match bandwidth.overhead {
        Overhead::Ethernet => frame(38, 84, false),
        Overhead::Docsis => frame(18, 64, false),
        Overhead::Ptm => frame(34, 68, false),
        Overhead::Atm => frame(44, 0, true),
        Overhead::None => None,
    };
    Cake { rate, direction, nat: uplink.masquerade, framing }
}

/// What it takes to have something there.
struct Shaper<'a> {
    shaping: &'a mut Shaping,
    netlink: &'a mut Netlink,
    journal: &'a mut Journal,
    wanted: &'a mut Vec<Step>,
}

impl Shaper<'_> {
    /// Has CAKE at an interface.
    fn shape(&mut self, index: u32, interface: &str, cake: &Cake) -> Result<(), String> {
        let root = self.netlink.root(index).map_err(|error| error.to_string())?;
        let is_as_wanted = match &root {
            // The kernel counts octets.
            Root::Ours(shaped) => shaped.cake == Some(Cake { rate: cake.rate / 8 * 8, ..*cake }),
            Root::Others(kind) => {
                return Err(format!(
                    "{interface} has the queueing discipline {kind}, which somebody has chosen: \
                     `tc qdisc del dev {interface} root` gives it up"
                ));
            }
            Root::Default => false,
        };
        let step = Step::Cake { index };
        if !is_as_wanted {
            if root == Root::Default && self.shaping.cakes.contains_key(&index) {
                warn!("CAKE at {interface} had disappeared and is put back");
            }
            self.journal.shape(self.netlink, index, cake).map_err(|error| {
                explained(
                    &error,
                    "the kernel has no CAKE: it needs the module sch_cake (OpenWrt: kmod-sched-cake)",
                )
            })?;
        }
        self.shaping.cakes.insert(index, *cake);
        self.keep(step);
        Ok(())
    }

    /// Has what these interfaces receive go by one CAKE. Nothing is redirected to where there is none.
    fn shape_received(
        &mut self,
        received: &[u32],
        interface: &str,
        cake: &Cake,
        links: &[Link],
    ) -> Result<(), String> {
        let name = device_of(interface);
        let to = self.device(&name, links)?;
        // Also without CAKE, which is tried again: a device that came and went each time would be news each time.
        self.keep(Step::Ifb { name: name.clone() });
        self.shape(to, &name, cake)?;
        for &index in received {
            self.redirect(index, to, links)?;
        }
        Ok(())
    }

    /// The device of that name, which is made if need be.
    fn device(&mut self, name: &str, links: &[Link]) -> Result<u32, String> {
        let is_ours = self.shaping.done.contains(&Step::Ifb { name: name.to_owned() });
        let there = self.netlink.ifb(name).map_err(|error| error.to_string())?;
        if let Some(index) = there.filter(|_| is_ours) {
            if links.iter().any(|link| link.index == index && !link.up) {
                // What is redirected to it would be dropped.
                self.netlink.set_link_up(index, true).map_err(|error| error.to_string())?;
            }
            return Ok(index);
        }
        if is_ours {
            warn!("the device {name} had disappeared and is put back");
        }
        self.journal.add_ifb(self.netlink, name).map_err(|error| match error.already_exists() {
            true => format!(
                "there is an interface {name} that somebody else has made: end the program that shapes already, or \
                 `ip link del {name}`"
            ),
            false => explained(&error, "the kernel has no ifb: it needs the module ifb (OpenWrt: kmod-ifb)"),
        })?;
        let made = self.netlink.ifb(name).map_err(|error| error.to_string())?;
        made.ok_or_else(|| format!("the device {name} is gone again"))
    }

    fn redirect(&mut self, index: u32, to: u32, links: &[Link]) -> Result<(), String> {
        let of_index = |step: &&Step| matches!(step, Step::Redirect { index: other, .. } if *other == index);
        let before = self.shaping.done.iter().find(of_index).cloned();
        let step = match before {
            Some(step @ Step::Redirect { to: other, .. }) if other == to => step,
            before => {
                // To a device that is no more.
                if let Some(step) = before {
                    self.journal.undo_step(self.netlink, &step).map_err(|error| error.to_string())?;
                    self.shaping.done.retain(|done| *done != step);
                }
                Step::Redirect { index, handle: Filter::new(index, Direction::Ingress).handle, to }
            }
        };
        let Step::Redirect { handle, .. } = step else { return Ok(()) };
        // Also if it is there: it does nothing then.
        let lacking = "the kernel cannot redirect it: it needs the modules sch_ingress, cls_matchall and act_mirred \
                       (OpenWrt: kmod-sched-core)";
        let redirected = self.journal.add_redirect(self.netlink, index, handle, to);
        redirected.map_err(|error| {
            if !error.already_exists() {
                return explained(&error, lacking);
            }
            let name = links.iter().find(|link| link.index == index).map_or("NAME", |link| &link.name);
            format!(
                "{name} has another filter in the place of ours: `tc filter del dev {name} ingress priority 65363` removes it"
            )
        })?;
        self.keep(step);
        Ok(())
    }

    fn keep(&mut self, step: Step) {
        if !self.shaping.done.contains(&step) {
            self.shaping.done.push(step.clone());
        }
        self.wanted.push(step);
    }
}

/// An error, in other words where the kernel lacks something.
fn explained(error: &linux::Error, lacking: &str) -> String {
    if error.is_unknown_kind() { lacking.to_owned() } else { error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_name_of_its_own_that_the_kernel_takes() {
        assert_eq!(device_of("eth0"), "ifb4eth0");
        assert_eq!(device_of("enp0s31f6.1"), "ifb4enp0s31f6.1");
        let long =
            ["enp1s0f0.100", "enp1s0f0.101", "enp1s0f0.102", "enp0s31f6.1234", "aéééééé"].map(device_of);
        assert!(long.iter().all(|name| (12..=LONGEST).contains(&name.len())), "{long:?}");
        assert!(long[0].starts_with("ifb4enp1-"), "{long:?}");
        assert_eq!(long.iter().collect::<std::collections::BTreeSet<_>>().len(), long.len(), "{long:?}");
    }
}
