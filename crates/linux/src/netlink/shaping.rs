//! Shaping by CAKE: the queueing discipline at an interface's root for what is sent, and at the root of a device of the
//! kind `ifb` for what is received, which a filter sends there and which comes back from there as if it had just come in.
//!
//! A discipline of ours has the handle [`OURS`], and only such a one is changed or removed. That of somebody else is not
//! replaced: the kernel then answers that it [already exists](crate::Error::already_exists). Numbers of attributes are
//! those of linux/pkt_sched.h.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL, Nla as _};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirror, TcActionMirrorOption, TcActionOption, TcActionType,
    TcAttribute, TcFilterMatchAll, TcFilterMatchAllOption, TcHandle, TcMessage, TcMirror, TcMirrorActionType,
    TcOption, TcStats2, TcXstats,
};

use super::Netlink;
use super::link::kind_of;
use crate::bpf::attach::Direction;
use crate::error::{Error, Result};
use crate::nfnetlink::{attribute, attributes};

/// The handle of a discipline of ours, as `tc qdisc` shows it: `5353:`. The kernel itself draws from `8000:` up.
const OURS: u16 = 0x5353;
/// The priority of the filter: the last one, so that programs see each packet before it is redirected. Behind the
/// device they would not: what comes back from there is not classified again.
const LAST: u16 = 0xff53;
/// EtherType of all packets, as the kernel has it.
const ETH_P_ALL: u16 = 3;
const KIND: &str = "cake";

const BASE_RATE64: u16 = 2;
const DIFFSERV_MODE: u16 = 3;
const ATM: u16 = 4;
const FLOW_MODE: u16 = 5;
const OVERHEAD: u16 = 6;
const RTT: u16 = 7;
const TARGET: u16 = 8;
const AUTORATE: u16 = 9;
const MEMORY: u16 = 10;
const NAT: u16 = 11;
const RAW: u16 = 12;
const WASH: u16 = 13;
const MPU: u16 = 14;
const INGRESS: u16 = 15;
const ACK_FILTER: u16 = 16;
const SPLIT_GSO: u16 = 17;
const FWMARK: u16 = 18;

/// By hosts on the side of the sources, then by flows.
const DUAL_SRCHOST: u32 = 5;
/// By hosts on the side of the destinations, then by flows.
const DUAL_DSTHOST: u32 = 6;
/// Four tins: bulk, best effort, video, voice.
const DIFFSERV4: u32 = 1;
/// One tin: marks do not count.
const BESTEFFORT: u32 = 3;
/// The kernel's defaults, which somebody may have changed; times are in microseconds.
const DEFAULTS: [(u16, u32); 6] =
    [(RTT, 100_000), (TARGET, 5_000), (AUTORATE, 0), (MEMORY, 0), (ACK_FILTER, 0), (FWMARK, 0)];

/// CAKE at one side of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cake {
    /// Bits per second.
    pub rate: u64,
    /// Which packets these are of those that the interface sends ([`Direction::Egress`]) and receives.
    pub direction: Direction,
    /// Addresses of hosts are masqueraded there: connection tracking says whose a packet is.
    pub nat: bool,
    /// What the link adds to each packet. None: packets count as the kernel has them.
    pub framing: Option<Framing>,
}

/// What a packet of the network layer takes on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Bytes that come to each packet.
    pub overhead: u8,
    /// The fewest bytes that one takes with them.
    pub least: u8,
    /// It is cut into cells of ATM: 48 bytes in 53.
    pub cells: bool,
}

/// The queueing discipline at the root of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// That of the kernel, which nobody has chosen; or one that could not be read.
    Default,
    /// A CAKE of ours.
    Ours(Shaped),
    /// Somebody else's, by its kind.
    Others(String),
}

/// A CAKE of ours, and what it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shaped {
    /// Bits per second.
    pub rate: u64,
    /// All that was chosen of it; none where that is something that [`Cake`] does not choose.
    pub cake: Option<Cake>,
    /// Packets that went through.
    pub sent_packets: u64,
    /// Their bytes, as the kernel counts them.
    pub sent_bytes: u64,
    /// Packets that were dropped, so that their senders slow down.
    pub dropped: u64,
    /// Packets that were marked instead (ECN).
    pub marked: u64,
    /// Bytes that wait.
    pub backlog: u64,
    /// How long packets waited lately, in microseconds: an average that follows higher values fast and lower ones slowly.
    pub peak_delay_us: u64,
}

impl Netlink {
    /// What there is at the root of an interface.
    pub fn root(&mut self, index: u32) -> Result<Root> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index as i32));
        let answers = self.dump(request, || format!("RTM_GETQDISC {index}"))?;
        let of_index = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(message) => Some(message),
            _ => None,
        });
        let is_root = |message: &TcMessage| {
            message.header.index == index as i32 && message.header.parent == TcHandle::ROOT
        };
        Ok(of_index.filter(is_root).map(|message| Root::of(&message)).next().unwrap_or(Root::Default))
    }

    /// Has this CAKE at the root of an interface, where nobody has chosen anything else. Ours that is there shapes like
    /// this from the next packet on; none is lost.
    pub(crate) fn shape(&mut self, index: u32, cake: &Cake) -> Result<()> {
        let flags = match self.root(index)? {
            Root::Ours(_) => 0,
            Root::Default | Root::Others(_) => NLM_F_CREATE | NLM_F_EXCL,
        };
        let mut message = root_message(index);
        message.attributes.push(TcAttribute::Options(cake.options()));
        self.change(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            format!("add cake to interface {index} (needs the module sch_cake)")
        })
    }

    /// Removes a CAKE of ours; the kernel puts its default there. Returns whether it was there.
    pub(crate) fn delete_cake(&mut self, index: u32) -> Result<bool> {
        // The kernel compares the handle.
        let request = RouteNetlinkMessage::DelQueueDiscipline(root_message(index));
        was_there(self.change(request, 0, || format!("delete cake from interface {index}")))
    }

    /// The index of the `ifb` of that name; none where there is no such interface, or it is of another kind.
    pub fn ifb(&mut self, name: &str) -> Result<Option<u32>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.get(RouteNetlinkMessage::GetLink(message), || format!("RTM_GETLINK {name}")) {
            Ok(RouteNetlinkMessage::NewLink(link)) if kind_of(&link) == Some(&InfoKind::Ifb) => {
                Ok(Some(link.header.index))
            }
            Ok(_) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a device of the kind `ifb`, and sets it up.
    pub(crate) fn add_ifb(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]));
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add the device {name} (needs the module ifb)")
        })
    }

    /// Deletes a device of the kind `ifb`. Returns whether it was there.
    pub(crate) fn delete_ifb(&mut self, name: &str) -> Result<bool> {
        let Some(index) = self.ifb(name)? else { return Ok(false) };
        let mut message = LinkMessage::default();
        message.header.index = index;
        was_there(
            self.change(RouteNetlinkMessage::DelLink(message), 0, || format!("delete the device {name}")),
        )
    }

    /// Redirects all that an interface receives to another one, after what else is attached there. If it is so already,
    /// it stays. A filter with another handle in its place stays, too, and the error
    /// [already exists](crate::Error::already_exists).
    pub(crate) fn add_redirect(&mut self, index: u32, handle: u32, to: u32) -> Result<()> {
        self.add_clsact(index)?;
        let mut message = redirect_message(index, handle);
        message.attributes.push(TcAttribute::Options(vec![TcOption::MatchAll(
            TcFilterMatchAllOption::Action(vec![redirect_action(to)]),
        )]));
        let added = self.change(RouteNetlinkMessage::NewTrafficFilter(message), NLM_F_CREATE, || {
            format!(
                "redirect what interface {index} receives (needs the modules cls_matchall and act_mirred)"
            )
        });
        match added {
            Err(error) if error.already_exists() && self.has_redirect(index, handle)? => Ok(()),
            result => result,
        }
    }

    /// Whether a redirection is there.
    pub fn has_redirect(&mut self, index: u32, handle: u32) -> Result<bool> {
        let request = RouteNetlinkMessage::GetTrafficFilter(redirect_message(index, handle));
        was_there(self.change(request, 0, || format!("look for the redirection at interface {index}")))
    }

    /// Removes a redirection. Returns whether it was there.
    pub(crate) fn delete_redirect(&mut self, index: u32, handle: u32) -> Result<bool> {
        let request = RouteNetlinkMessage::DelTrafficFilter(redirect_message(index, handle));
        was_there(self.change(request, 0, || format!("end the redirection at interface {index}")))
    }
}

/// Neither is the object, or where it would be.
pub(super) fn was_there(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Error { source, .. })
            if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV)) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

impl Cake {
    fn options(&self) -> Vec<TcOption> {
        let option = |kind, value: &[u8]| TcOption::Other(DefaultNla::new(kind, value.to_vec()));
        let rate = option(BASE_RATE64, &(self.rate / 8).to_ne_bytes());
        let numbers = self.numbers().into_iter().map(|(kind, value)| option(kind, &value.to_ne_bytes()));
        std::iter::once(rate).chain(numbers).collect()
    }

    /// All options but the rate.
    fn numbers(&self) -> Vec<(u16, u32)> {
        // Each host inside has its share first, however many connections it has.
        let (flows, tins, of_received) = match self.direction {
            // Whoever sends from inside may say what is urgent; a tin has its share of the rate and no more.
            Direction::Egress => (DUAL_SRCHOST, DIFFSERV4, 0),
            // What senders outside have written into the field is worth nothing, and a wireless network inside would obey it:
            // it is cleared. Dropped packets count, since they have used the link already.
            Direction::Ingress => (DUAL_DSTHOST, BESTEFFORT, 1),
        };
        let mut numbers =
            vec![(FLOW_MODE, flows), (DIFFSERV_MODE, tins), (WASH, of_received), (INGRESS, of_received)];
        numbers.extend([(NAT, self.nat.into()), (SPLIT_GSO, 1)]);
        let Framing { overhead, least, cells } =
            self.framing.unwrap_or(Framing { overhead: 0, least: 0, cells: false });
        numbers.extend([(ATM, cells.into()), (OVERHEAD, overhead.into()), (MPU, least.into())]);
        numbers.extend(self.framing.is_none().then_some((RAW, 0)));
        numbers.extend(DEFAULTS);
        numbers
    }

    /// The one that has these options.
    fn of(options: &[u8]) -> Option<Self> {
        let value = |kind| attribute(options, kind).map(number);
        let small = |kind| u8::try_from(value(kind)?).ok();
        let framing = match value(RAW) {
            Some(_) => None,
            None => Some(Framing { overhead: small(OVERHEAD)?, least: small(MPU)?, cells: value(ATM)? == 1 }),
        };
        let direction = if value(INGRESS)? == 0 { Direction::Egress } else { Direction::Ingress };
        let rate = value(BASE_RATE64)?.saturating_mul(8);
        let cake = Cake { rate, direction, nat: value(NAT)? == 1, framing };
        cake.numbers().into_iter().all(|(kind, number)| value(kind) == Some(number.into())).then_some(cake)
    }
}

impl Root {
    fn of(message: &TcMessage) -> Root {
        let kind = message.attributes.iter().find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.as_str()),
            _ => None,
        });
        match kind {
            Some(KIND) if message.header.handle == ours() => Root::Ours(Shaped::of(&message.attributes)),
            // Without a handle: made by the kernel.
            Some(kind) if message.header.handle.major != 0 => Root::Others(kind.to_owned()),
            _ => Root::Default,
        }
    }
}

impl Shaped {
    fn of(attributes: &[TcAttribute]) -> Shaped {
        let mut shaped = Shaped::default();
        for found in attributes {
            match found {
                // The decoder leaves options of this kind in one piece.
                TcAttribute::Options(options) => {
                    if let Some(TcOption::Other(all)) = options.first() {
                        let mut bytes = vec![0; all.value_len()];
                        all.emit_value(&mut bytes);
                        shaped.rate = attribute(&bytes, BASE_RATE64).map_or(0, number).saturating_mul(8);
                        shaped.cake = Cake::of(&bytes);
                    }
                }
                TcAttribute::Stats2(all) => all.iter().for_each(|stats| shaped.count(stats)),
                _ => {}
            }
        }
        shaped
    }

    fn count(&mut self, stats: &TcStats2) {
        const TIN_STATS: u16 = 10;
        const MARKED_PACKETS: u16 = 8;
        const PEAK_DELAY_US: u16 = 18;
        match stats {
            TcStats2::Basic(basic) => {
                (self.sent_packets, self.sent_bytes) = (basic.packets.into(), basic.bytes);
            }
            TcStats2::Queue(queue) => {
                (self.dropped, self.backlog) = (queue.drops.into(), queue.backlog.into());
            }
            TcStats2::App(TcXstats::Other(bytes)) => {
                let tins = attribute(bytes, TIN_STATS).unwrap_or_default();
                for (_, tin) in attributes(tins) {
                    self.marked += attribute(tin, MARKED_PACKETS).map_or(0, number);
                    let delay = attribute(tin, PEAK_DELAY_US).map_or(0, number);
                    self.peak_delay_us = self.peak_delay_us.max(delay);
                }
            }
            _ => {}
        }
    }
}

/// A number of 32 or 64 bits.
fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

const fn ours() -> TcHandle {
    TcHandle { major: OURS, minor: 0 }
}

/// What it takes to find a discipline of ours.
fn root_message(index: u32) -> TcMessage {
    let mut message = TcMessage::with_index(index as i32);
    message.header.parent = TcHandle::ROOT;
    message.header.handle = ours();
    message.attributes.push(TcAttribute::Kind(KIND.into()));
    message
}

/// What it takes to find a redirection of ours.
fn redirect_message(index: u32, handle: u32) -> TcMessage {
    let mut message = TcMessage::with_index(index as i32);
    message.header.parent = TcHandle { major: TcHandle::CLSACT.major, minor: TcHandle::MIN_INGRESS };
    message.header.handle = handle.into();
    message.header.info = u32::from(LAST) << 16 | u32::from(ETH_P_ALL.to_be());
    message.attributes.push(TcAttribute::Kind(TcFilterMatchAll::KIND.into()));
    message
}

fn redirect_action(to: u32) -> TcAction {
    let mut parameters = TcMirror::default();
    parameters.generic.action = TcActionType::Stolen;
    parameters.eaction = TcMirrorActionType::EgressRedir;
    parameters.ifindex = to;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.into()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(parameters))]),
    ];
    action
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable as _;
    use proptest::prelude::*;

    use super::*;

    /// Attributes as `tc` sends them.
    fn written(message: &TcMessage) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    /// What the kernel has, unless it is told otherwise.
    const KERNELS: [(u16, u64); 6] = [(7, 100_000), (8, 5_000), (9, 0), (10, 0), (16, 0), (18, 0)];

    fn options(cake: &Cake) -> Vec<(u16, u64)> {
        let mut message = root_message(7);
        message.attributes.push(TcAttribute::Options(cake.options()));
        let bytes = written(&message);
        assert_eq!(attribute(&bytes[20..], 1), Some(&b"cake\0"[..]));
        attributes(attribute(&bytes[20..], 2).unwrap()).map(|(kind, value)| (kind, number(value))).collect()
    }

    #[test]
    fn the_message_for_what_is_sent_is_that_of_tc() {
        // tc qdisc add dev IF root handle 5353: cake bandwidth 20mbit dual-srchost diffserv4 nat split-gso ethernet
        let framing = Some(Framing { overhead: 38, least: 84, cells: false });
        let cake = Cake { rate: 20_000_000, direction: Direction::Egress, nat: true, framing };
        let expected =
            [(2, 2_500_000), (5, 5), (3, 1), (13, 0), (15, 0), (11, 1), (17, 1), (4, 0), (6, 38), (14, 84)];
        assert_eq!(options(&cake), [&expected[..], &KERNELS[..]].concat());
        let bytes = written(&root_message(7));
        assert_eq!(bytes[4..16], *[7u32, 0x5353_0000, 0xffff_ffff].map(u32::to_ne_bytes).as_flattened());
    }

    #[test]
    fn the_message_for_what_is_received_is_that_of_tc() {
        // tc qdisc add dev IFB root handle 5353: cake bandwidth 100mbit dual-dsthost besteffort wash ingress raw
        let cake = Cake { rate: 100_000_000, direction: Direction::Ingress, nat: false, framing: None };
        let expected = [
            (2, 12_500_000),
            (5, 6),
            (3, 3),
            (13, 1),
            (15, 1),
            (11, 0),
            (17, 1),
            (4, 0),
            (6, 0),
            (14, 0),
            (12, 0),
        ];
        assert_eq!(options(&cake), [&expected[..], &KERNELS[..]].concat());
    }

    #[test]
    fn one_whose_options_somebody_has_changed_is_another() {
        for (direction, nat, cells) in [
            (Direction::Egress, true, true),
            (Direction::Ingress, false, false),
            (Direction::Ingress, true, true),
        ] {
            for framing in [None, Some(Framing { overhead: 44, least: 84, cells })] {
                let cake = Cake { rate: 20_000_000, direction, nat, framing };
                let all = options(&cake);
                let read = |options: &[(u16, u64)]| {
                    let bytes: Vec<u8> = options
                        .iter()
                        .flat_map(|(kind, value)| {
                            [12u16, *kind].into_iter().flat_map(u16::to_ne_bytes).chain(value.to_ne_bytes())
                        })
                        .collect();
                    Cake::of(&bytes)
                };
                assert_eq!(read(&all), Some(cake));
                for at in 0..all.len() {
                    let mut changed = all.clone();
                    changed[at].1 += 3;
                    assert_ne!(read(&changed), Some(cake), "{:?}", all[at]);
                    changed.remove(at);
                    assert_ne!(read(&changed), Some(cake), "{:?}", all[at]);
                }
            }
        }
    }

    #[test]
    fn a_redirection_comes_last_and_steals_what_it_sends_on() {
        let mut message = redirect_message(7, 0x1234);
        message.attributes.push(TcAttribute::Options(vec![TcOption::MatchAll(
            TcFilterMatchAllOption::Action(vec![redirect_action(9)]),
        )]));
        let bytes = written(&message);
        let header = [7, 0x1234, 0xffff_fff2, 0xff53_0000 | u32::from(ETH_P_ALL.to_be())];
        assert_eq!(bytes[4..20], *header.map(u32::to_ne_bytes).as_flattened());
        let action = attribute(attribute(&bytes[20..], 2).unwrap(), 2).unwrap();
        let action = attribute(action, 1).unwrap();
        assert_eq!(attribute(action, 1), Some(&b"mirred\0"[..]));
        // struct tc_mirred: index, capab, action, refcnt, bindcnt, eaction, ifindex (linux/tc_act/tc_mirred.h).
        let parameters = attribute(attribute(action, 2).unwrap(), 2).unwrap();
        assert_eq!(*parameters, *[0u32, 0, 4, 0, 0, 1, 9].map(u32::to_ne_bytes).as_flattened());
    }

    #[test]
    fn a_default_of_the_kernel_is_nobodys() {
        let mut message = root_message(7);
        assert_eq!(Root::of(&message), Root::Ours(Shaped::default()));
        message.header.handle = TcHandle { major: 0x8001, minor: 0 };
        assert_eq!(Root::of(&message), Root::Others("cake".into()));
        message.header.handle = TcHandle::UNSPEC;
        assert_eq!(Root::of(&message), Root::Default);
    }

    proptest! {
        #[test]
        fn any_bytes_of_statistics_are_read_without_panic(bytes: Vec<u8>) {
            Shaped::default().count(&TcStats2::App(TcXstats::Other(bytes)));
        }
    }
}
