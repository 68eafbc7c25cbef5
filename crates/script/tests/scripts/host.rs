//! A host with a clock that stands still, and packets to give to scripts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use script::checksum::{Layout, complete, transport_sum};
use script::host::{FileError, Host, InterfaceError, Module};
use script::packet::Packet;
use script::vm::{Limits, Machine, RuleId, Script, ScriptError, Verdict};
use wire::checksum::{Sum, TransportChecksum};

/// What a script's host has seen, and what it will say.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) log: Vec<String>,
    pub(crate) modules: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct TestHost(pub(crate) Rc<RefCell<World>>);

impl Host for TestHost {
    fn now_ms(&mut self) -> u64 {
        self.0.borrow().now_ms
    }

    fn random(&mut self) -> u32 {
        4
    }

    fn send(&mut self, packet: &[u8], _: Option<&Packet>) {
        self.0.borrow_mut().sent.push(packet.to_vec());
    }

    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError> {
        let known = ["eth0", "eth1"];
        let number = known.iter().position(|known| *known == name);
        number.map(|number| number as u32 + 1).ok_or_else(|| InterfaceError::Unknown {
            name: name.to_owned(),
            known: known.map(str::to_owned).into(),
        })
    }

    fn log(&mut self, line: &str) {
        self.0.borrow_mut().log.push(line.to_owned());
    }

    fn module(&mut self, name: &str) -> Result<Option<Module>, FileError> {
        let source = self.0.borrow().modules.get(name).cloned();
        Ok(source.map(|source| Module { source, path: format!("{name}.lua") }))
    }
}

/// A machine with one script.
pub(crate) struct Bench {
    pub(crate) machine: Machine,
    pub(crate) world: Rc<RefCell<World>>,
    pub(crate) rule: RuleId,
}

impl Bench {
    pub(crate) fn new(source: &str) -> Self {
        Self::with(Script::new("test.lua", source), Limits::default())
    }

    /// The body of `process_packet`; without a verdict it accepts.
    pub(crate) fn body(body: &str) -> Self {
        Self::new(&format!("function process_packet(p)\n{body}\nreturn NF_ACCEPT\nend"))
    }

    pub(crate) fn with(script: Script, limits: Limits) -> Self {
        let host = TestHost::default();
        let world = Rc::clone(&host.0);
        let mut machine = Machine::new(host, limits);
        let rule = machine.load(script).unwrap_or_else(|error| panic!("{error}\n{}", error.traceback));
        Self { machine, world, rule }
    }

    pub(crate) fn run(&mut self, packet: &mut Packet) -> (Verdict, Option<ScriptError>) {
        self.machine.run(self.rule, packet)
    }

    /// Runs a script that must not fail.
    pub(crate) fn pass(&mut self, packet: &mut Packet) -> Verdict {
        let (verdict, error) = self.run(packet);
        if let Some(error) = error {
            panic!("{error}\n{}", error.traceback);
        }
        verdict
    }

    /// Runs a script that must fail; what it says.
    pub(crate) fn fails(&mut self, packet: &mut Packet) -> String {
        let (verdict, error) = self.run(packet);
        assert_eq!(verdict, Verdict::Drop);
        error.expect("the script fails").message
    }

    pub(crate) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.world.borrow_mut().log)
    }
}

pub(crate) fn frame(ethertype: u16, vlan: &[u16], payload: &[u8]) -> Packet {
    let mut bytes = vec![0x02, 0, 0, 0, 0, 2, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab];
    for tag in vlan {
        bytes.extend(0x8100u16.to_be_bytes());
        bytes.extend(tag.to_be_bytes());
    }
    bytes.extend(ethertype.to_be_bytes());
    bytes.extend(payload);
    Packet::of_frame(bytes, TransportChecksum::Complete)
}

/// An IPv4 packet with all checksums right.
pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = wire::ipv4::Header {
        type_of_service: 0,
        total_length: 20 + payload.len() as u16,
        identification: 7,
        dont_fragment: false,
        time_to_live: 64,
        protocol,
        source: Ipv4Addr::new(192, 168, 0, 2),
        destination: Ipv4Addr::new(192, 0, 2, 1),
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(payload);
    let layout = Layout::of_ipv4(&bytes, 0).expect("IPv4");
    complete(&mut bytes, &layout);
    bytes
}

/// An IPv6 packet with all checksums right; `payload` begins with a header of the type `next_header`.
pub(crate) fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = wire::ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: payload.len() as u16,
        next_header,
        hop_limit: 64,
        source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        destination: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2),
    };
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend(payload);
    let layout = Layout::of_ipv6(&bytes, 0).expect("IPv6");
    complete(&mut bytes, &layout);
    bytes
}

pub(crate) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend((8 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(payload);
    bytes
}

/// A TCP segment with these flags and options.
pub(crate) fn tcp(source: u16, destination: u16, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    bytes.extend([(5 + options.len() as u8 / 4) << 4, flags, 0x10, 0, 0, 0, 0, 0]);
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

/// Whether all checksums of a frame are right.
pub(crate) fn checksums_are_right(frame: &[u8]) -> bool {
    let Some(layout) = Layout::of_frame(frame) else { return true };
    let header = layout.version == 6 || Sum::of(&frame[layout.network..layout.header_end]).is_valid();
    let transport =
        layout.transport.is_none_or(|transport| transport_sum(frame, &layout, &transport).is_valid());
    header && transport
}
