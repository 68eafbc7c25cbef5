//! BPF filters of the queueing discipline clsact, for kernels that have no better way to attach a program to an interface
//! (see [`crate::bpf::attach`]).

use std::os::fd::RawFd;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};

use super::shaping::was_there;
use super::{Netlink, PROTOCOL};
use crate::bpf::attach::{Direction, Filter};
use crate::error::Result;

/// EtherType of all packets, as the kernel has it.
const ETH_P_ALL: u16 = 3;

impl Netlink {
    /// Gives an interface the queueing discipline clsact, unless it has it.
    pub(crate) fn add_clsact(&mut self, index: u32) -> Result<()> {
        let mut message = TcMessage::with_index(index as i32);
        message.header.parent = TcHandle::CLSACT;
        message.header.handle = TcHandle { major: TcHandle::CLSACT.major, minor: 0 };
        message.attributes.push(TcAttribute::Kind("clsact".into()));
        let added =
            self.change(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_EXCL, || {
                format!("add clsact to interface {index} (needs CONFIG_NET_SCH_INGRESS)")
            });
        match added {
            Err(error) if error.already_exists() => Ok(()),
            result => result,
        }
    }

    /// Adds a filter whose program says what becomes of packets. If it is there it gets this program, between two packets,
    /// and keeps its place.
    pub(crate) fn put_filter(&mut self, filter: &Filter, program: RawFd) -> Result<()> {
        let mut message = message(filter);
        message.attributes.push(TcAttribute::Options(vec![
            TcOption::Bpf(TcFilterBpfOption::ProgFd(program as u32)),
            TcOption::Bpf(TcFilterBpfOption::ProgName("sidestep".into())),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ]));
        self.change(RouteNetlinkMessage::NewTrafficFilter(message), NLM_F_CREATE, || {
            format!("add a BPF filter to interface {} (needs CONFIG_NET_CLS_BPF)", filter.index)
        })
    }

    /// Whether a filter of ours is there.
    pub(crate) fn has_filter(&mut self, filter: &Filter) -> Result<bool> {
        let request = RouteNetlinkMessage::GetTrafficFilter(message(filter));
        was_there(self.change(request, 0, || format!("look for a BPF filter of interface {}", filter.index)))
    }

    /// Removes a filter of ours. Returns whether it was there.
    pub(crate) fn delete_filter(&mut self, filter: &Filter) -> Result<bool> {
        let request = RouteNetlinkMessage::DelTrafficFilter(message(filter));
        was_there(self.change(request, 0, || format!("delete a BPF filter of interface {}", filter.index)))
    }
}

/// What it takes to find a filter: interface, side, priority, protocol, handle, kind.
fn message(filter: &Filter) -> TcMessage {
    let mut message = TcMessage::with_index(filter.index as i32);
    let minor = match filter.direction {
        Direction::Ingress => TcHandle::MIN_INGRESS,
        Direction::Egress => TcHandle::MIN_EGRESS,
    };
    message.header.parent = TcHandle { major: TcHandle::CLSACT.major, minor };
    message.header.handle = filter.handle.into();
    message.header.info = u32::from(PROTOCOL) << 16 | u32::from(ETH_P_ALL.to_be());
    message.attributes.push(TcAttribute::Kind(TcFilterBpf::KIND.into()));
    message
}
