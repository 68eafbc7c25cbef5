//! `[[wrap]]` with a device of WireGuard: what WireGuard's own tool says of it, and what it is told. `wg` knows the kernel's
//! devices and those in user space alike.
//!
//! WireGuard follows its peer to wherever its last packet came from: one that was underway, or that an end sent which has
//! just started, leads it out of the tunnel again, and from there it leads the other end. So a thread looks every second
//! where it is and leads it back; and what it was found to exchange with its peer outside is dropped from then on
//! ([`Led::strays`]), since otherwise two ends that send all the time could keep each other there. `wg` may hang, as
//! WireGuard in user space may: it is only waited for on that thread, and not for long.

mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::mpsc;

use config::{TunnelConfig, Wrap, inner_ends};
use control::tunnel_status::Wrapped as Status;
use linux::outside::Stray;
use mt6d::mask::{self, Flow};
use tracing::warn;

use crate::kernel::led::Led;
pub(crate) use watch::Found;
use watch::{Wanted, Watch};

/// Places outside that are known of a device; of more, those that were found last.
const STRAYS: usize = 8;

/// What a configuration wraps, as it was when it was last looked at.
#[derive(Default)]
pub(crate) struct Wrapped {
    /// By the peers that they lead to; without the name of an interface where the configuration names none.
    devices: BTreeMap<String, Device>,
    /// Who looks, until the thread does.
    watch: Watch,
    thread: Option<mpsc::Sender<Vec<Wanted>>>,
    /// What the thread and the kernel were last told.
    wanted: Vec<Wanted>,
    led: Led,
}

#[derive(Default)]
struct Device {
    /// Which of WireGuard's peers it is about, if the configuration says it.
    public_key: Option<String>,
    found: Found,
    /// As it is in the last session that masked its packets.
    flow: Option<Flow>,
    strays: VecDeque<Stray>,
}

impl Wrapped {
    /// Before there is a thread: asks each device for its port, where the configuration does not say it, and leads its peer into
    /// the tunnel. What does not work is said; it is tried again every second.
    pub(crate) fn prepare(&mut self, config: &mut TunnelConfig) -> Led {
        self.remember(config, &BTreeMap::new());
        self.wanted = self.wanted(config);
        let found = self.watch.look(&self.wanted);
        self.found(found);
        self.know_ports(config);
        self.led = self.led(config);
        self.led.clone()
    }

    /// The ports of devices, where the configuration does not say them. Returns whether one is another.
    pub(crate) fn know_ports(&self, config: &mut TunnelConfig) -> bool {
        let mut has_changed = false;
        for wrap in &mut config.wraps {
            let Some(device) = self.devices.get(&wrap.peer).filter(|device| device.is(wrap)) else {
                continue;
            };
            let port = device.found.port.or(wrap.asked);
            has_changed |= std::mem::replace(&mut wrap.asked, port) != port && wrap.port.is_none();
        }
        has_changed
    }

    /// What was found of the devices.
    pub(crate) fn found(&mut self, found: Vec<Found>) {
        for found in found {
            let Some(device) = self.devices.get_mut(&found.peer) else { continue };
            let is_known = |remote| device.strays.iter().any(|known| known.remote == remote);
            if let Some(stray) = found.stray.filter(|stray| !is_known(stray.remote)) {
                if device.strays.len() == STRAYS {
                    device.strays.pop_front();
                }
                device.strays.push_back(stray);
            }
            // One that is away for a moment will be back, with its port.
            device.found = Found { port: found.port.or(device.found.port), ..found };
        }
    }

    /// Has the devices led to where `sessions`, by the names of peers, have their other ends now; a thread does it, which is
    /// started with `report` to tell what it finds. What the kernel is to be told, if that is something else than before.
    pub(crate) fn lead(
        &mut self,
        config: &TunnelConfig,
        sessions: &BTreeMap<&str, Flow>,
        report: impl FnOnce() -> Box<dyn Fn(Vec<Found>) + Send>,
    ) -> Option<Led> {
        self.remember(config, sessions);
        let wanted = self.wanted(config);
        if self.thread.is_none() && !wanted.is_empty() {
            let watch = std::mem::take(&mut self.watch);
            let thread = watch.start(self.wanted.clone(), report());
            self.thread = thread.inspect_err(|error| warn!("WireGuard is not looked after: {error}")).ok();
        }
        if wanted != self.wanted {
            let _ = self.thread.as_ref().map(|thread| thread.send(wanted.clone()));
            self.wanted = wanted;
        }
        let led = self.led(config);
        if led == self.led {
            return None;
        }
        self.led = led;
        Some(self.led.clone())
    }

    /// Has the devices looked at now: they may be others than a moment ago.
    pub(crate) fn look(&self) {
        let _ = self.thread.as_ref().map(|thread| thread.send(self.wanted.clone()));
    }

    /// The device that travels with a peer.
    pub(crate) fn status(&self, peer: &str) -> Option<Status> {
        let Found { interface, endpoint, problem, .. } = self.devices.get(peer)?.found.clone();
        (!interface.is_empty()).then_some(Status { interface, endpoint, problem })
    }

    /// Knows the devices of the configuration, and no others.
    fn remember(&mut self, config: &TunnelConfig, sessions: &BTreeMap<&str, Flow>) {
        let mut before = std::mem::take(&mut self.devices);
        for wrap in &config.wraps {
            let known = before.remove(&wrap.peer).filter(|device| device.is(wrap));
            let mut device = known.unwrap_or_default();
            device.found.peer.clone_from(&wrap.peer);
            device.found.interface = wrap.interface.clone().unwrap_or_default();
            device.public_key.clone_from(&wrap.public_key);
            device.flow = sessions.get(wrap.peer.as_str()).copied().or(device.flow);
            // Its peer is where it was, whatever its own port is now.
            device.strays.iter_mut().for_each(|stray| stray.port = wrap.port().unwrap_or(stray.port));
            self.devices.insert(wrap.peer.clone(), device);
        }
    }

    fn wanted(&self, config: &TunnelConfig) -> Vec<Wanted> {
        let own = own_ends(config);
        let wanted = |wrap: &Wrap| {
            let device = self.devices.get(&wrap.peer)?;
            let inner: Vec<Ipv6Addr> = inner_ends(config.peer(&wrap.peer)?).collect();
            // One of a key that the peer has no more is not there any more either.
            let remote = device.flow.map(|flow| *flow.remote.ip()).filter(|end| inner.contains(end));
            Some(Wanted {
                peer: wrap.peer.clone(),
                interface: wrap.interface.clone()?,
                public_key: wrap.public_key.clone(),
                own_port: wrap.port,
                local: device.local(&own),
                remote: remote.or(inner.first().copied())?,
                port: device.flow.map(|flow| flow.remote.port()),
                inner,
            })
        };
        config.wraps.iter().filter_map(wanted).collect()
    }

    fn led(&self, config: &TunnelConfig) -> Led {
        let (own, mut led) = (own_ends(config), Led::default());
        for (peer, device) in &self.devices {
            led.strays.extend(&device.strays);
            let local = device.local(&own);
            let ends = config.peer(peer).into_iter().flat_map(inner_ends);
            led.sources.extend(ends.map(|end| (IpAddr::V6(end).into(), local)));
        }
        led
    }
}

/// This node's inner ends, for each key that it has, the newest first.
pub(crate) fn own_ends(config: &TunnelConfig) -> Vec<Ipv6Addr> {
    let keys = std::iter::once(&config.node.private_key).chain(&config.node.previous_key);
    keys.map(|key| mask::address(&key.public())).collect()
}

impl Device {
    fn is(&self, wrap: &Wrap) -> bool {
        wrap.interface.as_deref().unwrap_or_default() == self.found.interface
            && wrap.public_key == self.public_key
    }

    /// Of this node's inner ends the one that it has to do with.
    fn local(&self, own: &[Ipv6Addr]) -> Ipv6Addr {
        let used = self.flow.map(|flow| *flow.local.ip());
        used.filter(|used| own.contains(used)).unwrap_or(own[0])
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(more: &str) -> TunnelConfig {
        let text = format!(
            "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nexternal = \"eth0\"\n\
             previous_private_key = \"CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg=\"\n\
             hop_prefix = \"2001:db8:a1::/64\"\n[[peer]]\nname = \"site-b\"\n\
             public_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
             allowed_ips = [\"2001:db8:b::/64\"]\n{more}"
        );
        let no_file = |_: &Path| Err(config::KeyFileError::Missing);
        config::parse(&text, Path::new("a.toml"), &no_file).unwrap().tunnel.unwrap()
    }

    fn wrapped() -> TunnelConfig {
        config("[[wrap]]\npeer = \"site-b\"\ninterface = \"wg0\"\n")
    }

    fn found(port: u16, stray: Option<&str>) -> Vec<Found> {
        let stray = stray.map(|remote| Stray { port, remote: remote.parse().unwrap() });
        vec![Found {
            peer: "site-b".to_owned(),
            interface: "wg0".to_owned(),
            port: Some(port),
            endpoint: stray.map(|stray| stray.remote),
            stray,
            problem: None,
        }]
    }

    fn no_thread() -> Box<dyn Fn(Vec<Found>) + Send> {
        unreachable!("there is one")
    }

    /// With a thread that does nothing: the devices of this machine are not ours.
    fn without_thread() -> Wrapped {
        Wrapped { thread: Some(mpsc::channel().0), ..Wrapped::default() }
    }

    #[test]
    fn a_port_that_changes_is_known_and_the_files_own_stays() {
        let (mut config, mut wrapped_by) = (wrapped(), without_thread());
        wrapped_by.remember(&config, &BTreeMap::new());
        wrapped_by.found(found(7, None));
        assert!(wrapped_by.know_ports(&mut config) && !wrapped_by.know_ports(&mut config));
        assert_eq!(config.wraps[0].port(), Some(7));
        wrapped_by.found(found(8, None));
        assert!(wrapped_by.know_ports(&mut config));
        assert_eq!(config.wraps[0].port(), Some(8));
        config.wraps[0].port = Some(9);
        wrapped_by.found(found(10, None));
        assert!(!wrapped_by.know_ports(&mut config));
        assert_eq!(config.wraps[0].port(), Some(9));
    }

    #[test]
    fn a_port_is_known_while_the_device_is_away() {
        let (mut config, mut wrapped_by) = (wrapped(), without_thread());
        wrapped_by.remember(&config, &BTreeMap::new());
        wrapped_by.found(found(7, None));
        wrapped_by.found(vec![Found {
            port: None,
            problem: Some("gone".to_owned()),
            ..found(7, None).remove(0)
        }]);
        assert!(wrapped_by.know_ports(&mut config));
        assert_eq!(config.wraps[0].port(), Some(7), "also for a configuration that was just read");
    }

    #[test]
    fn what_was_met_outside_is_of_no_other_peer_of_the_devices() {
        let (config, mut wrapped_by) = (wrapped(), without_thread());
        wrapped_by.remember(&config, &BTreeMap::new());
        wrapped_by.found(found(7, Some("192.0.2.1:7")));
        let key = "public_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\n";
        let other = super::tests::config(&format!("[[wrap]]\npeer = \"site-b\"\ninterface = \"wg0\"\n{key}"));
        let led = wrapped_by.lead(&other, &BTreeMap::new(), no_thread).unwrap();
        assert!(led.strays.is_empty(), "{led:?}");
    }

    #[test]
    fn what_was_met_outside_is_dropped_until_nothing_is_wrapped() {
        let (config, mut wrapped_by) = (wrapped(), without_thread());
        wrapped_by.lead(&config, &BTreeMap::new(), no_thread);
        for number in 1..=STRAYS as u16 + 2 {
            let remote = format!("192.0.2.1:{number}");
            wrapped_by.found(found(7, Some(&remote)));
            wrapped_by.found(found(7, Some(&remote)));
        }
        let led = wrapped_by.lead(&config, &BTreeMap::new(), no_thread).unwrap();
        assert_eq!(led.strays.len(), STRAYS);
        assert_eq!(led.strays[0].remote, "192.0.2.1:3".parse().unwrap());
        assert_eq!(wrapped_by.lead(&config, &BTreeMap::new(), no_thread), None, "that is known");
        let nothing = super::tests::config("");
        let led = wrapped_by.lead(&nothing, &BTreeMap::new(), no_thread);
        assert_eq!(led, Some(Led::default()));
    }

    #[test]
    fn what_was_met_outside_is_dropped_at_the_devices_next_port_too() {
        let (mut config, mut wrapped_by) = (wrapped(), without_thread());
        wrapped_by.remember(&config, &BTreeMap::new());
        for (port, remotes) in [(7, &["192.0.2.1:7"][..]), (8, &["192.0.2.1:7", "192.0.2.2:7"])] {
            for remote in remotes {
                wrapped_by.found(found(port, Some(remote)));
            }
            wrapped_by.know_ports(&mut config);
            let led = wrapped_by.lead(&config, &BTreeMap::new(), no_thread).unwrap();
            let stray = |remote: &&str| Stray { port, remote: remote.parse().unwrap() };
            assert_eq!(led.strays, remotes.iter().map(stray).collect::<Vec<_>>());
        }
    }

    #[test]
    fn ends_are_those_of_the_session_that_there_was_last() {
        let (config, mut wrapped_by) = (wrapped(), without_thread());
        let own = [&config.node.private_key, config.node.previous_key.as_ref().unwrap()];
        let [own, previous] = own.map(|key| mask::address(&key.public()));
        let remote = mask::address(&config.peers[0].public_key);
        let wanted = |wrapped_by: &Wrapped| {
            let wanted = &wrapped_by.wanted[0];
            (wanted.local, wanted.remote, wanted.port)
        };
        let lead = |wrapped_by: &mut Wrapped, flow: Option<Flow>| {
            let sessions = flow.map(|flow| ("site-b", flow)).into_iter().collect();
            wrapped_by.lead(&config, &sessions, no_thread)
        };
        let led = lead(&mut wrapped_by, None).unwrap();
        assert_eq!(led.sources, [(IpAddr::V6(remote).into(), own)].into());
        assert_eq!(wanted(&wrapped_by), (own, remote, None));
        let end = |address, port| std::net::SocketAddrV6::new(address, port, 0, 0);
        let flow = Flow { local: end(previous, 7), remote: end(remote, 8) };
        let led = lead(&mut wrapped_by, Some(flow)).unwrap();
        assert_eq!(led.sources, [(IpAddr::V6(remote).into(), previous)].into());
        assert_eq!(lead(&mut wrapped_by, None), None, "also where there is none for a while");
        assert_eq!(wanted(&wrapped_by), (previous, remote, Some(8)));
        let gone = Flow { local: end(remote, 7), remote: end(previous, 8) };
        lead(&mut wrapped_by, Some(gone));
        assert_eq!(wanted(&wrapped_by), (own, remote, Some(8)), "of keys that nobody has any more");
    }
}
