//! The rule of nftables that gives packets to queues.
//!
//! It is nft's statement `queue`, or, in kernels that have no such statement, what `-j NFQUEUE` is there: an expression
//! of nft_compat, which the program nft cannot write.

use std::io;
use std::ops::RangeInclusive;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::acknowledgement;
use crate::error::{Error, Result};
use crate::nfnetlink::Message;
use crate::nft;

const SUBSYSTEM_NONE: u8 = 0;
const SUBSYSTEM_NFTABLES: u16 = 10;
// linux/netfilter/nfnetlink.h
const MSG_BATCH_BEGIN: u16 = 16;
const MSG_BATCH_END: u16 = 17;
// linux/netfilter/nf_tables.h
const MSG_NEWRULE: u16 = (SUBSYSTEM_NFTABLES << 8) | 6;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEM: u16 = 1;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
// linux/netfilter/nf_tables_compat.h
const TARGET_NAME: u16 = 1;
const TARGET_REVISION: u16 = 2;
const TARGET_INFO: u16 = 3;
/// linux/netfilter/xt_NFQUEUE.h: of xt_NFQ_info_v3.
const REVISION: u32 = 3;
const BYPASS: u16 = 1;
/// NFPROTO_INET
const FAMILY_INET: u8 = 1;

/// Adds a rule to the chain of a table of the family `inet`: every packet goes to one of `queues`, all of a pair of hosts
/// to the same one. `bypass`: where nobody listens, packets go on; they are discarded otherwise.
pub fn send_to(table: &str, chain: &str, queues: &RangeInclusive<u16>, bypass: bool) -> Result<()> {
    let flags = if bypass { "flags bypass " } else { "" };
    let (first, last) = (queues.start(), queues.end());
    let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
    let told = match nft::apply(&format!("add rule inet {table} {chain} queue {flags}to {range}\n")) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let what = || {
        format!(
            "a rule for netfilter queues (needs a kernel with CONFIG_NFT_QUEUE, or CONFIG_NFT_COMPAT and \
             CONFIG_NETFILTER_XT_TARGET_NFQUEUE; nft says: {told})"
        )
    };
    add_target(table, chain, queues, bypass).map_err(|error| Error::new(what(), error))
}

fn add_target(table: &str, chain: &str, queues: &RangeInclusive<u16>, bypass: bool) -> io::Result<()> {
    let mut bytes = Vec::new();
    let request = libc::NLM_F_REQUEST as u16;
    let edge = |bytes: &mut Vec<u8>, kind| {
        Message::begin(bytes, kind, request, 0, SUBSYSTEM_NONE, SUBSYSTEM_NFTABLES).end();
    };
    edge(&mut bytes, MSG_BATCH_BEGIN);
    let flags = request | (libc::NLM_F_CREATE | libc::NLM_F_APPEND | libc::NLM_F_ACK) as u16;
    let mut rule = Message::begin(&mut bytes, MSG_NEWRULE, flags, 1, FAMILY_INET, 0);
    rule.attribute(RULE_TABLE, &zero_ended(table));
    rule.attribute(RULE_CHAIN, &zero_ended(chain));
    rule.nested(RULE_EXPRESSIONS, |list| {
        list.nested(LIST_ELEM, |expression| {
            expression.attribute(EXPR_NAME, b"target\0");
            expression.nested(EXPR_DATA, |target| {
                target.attribute(TARGET_NAME, b"NFQUEUE\0");
                target.attribute(TARGET_REVISION, &REVISION.to_be_bytes());
                let count = queues.end() - queues.start() + 1;
                let flags = if bypass { BYPASS } else { 0 };
                // The structure's three integers, padded to eight octets.
                let info = [*queues.start(), count, flags, 0].map(u16::to_ne_bytes).concat();
                target.attribute(TARGET_INFO, &info);
            });
        });
    });
    rule.end();
    edge(&mut bytes, MSG_BATCH_END);

    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    loop {
        let (answer, _) = socket.recv_from_full()?;
        match acknowledgement(&answer) {
            Some(0) => return Ok(()),
            Some(code) => return Err(io::Error::from_raw_os_error(-code)),
            None => {}
        }
    }
}

fn zero_ended(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}
