//! Functions of the kernel that BPF programs call, by their numbers in linux/bpf.h, where their arguments stand.

use std::net::IpAddr;

/// A function of the kernel. Those that have to do with packets are there for programs of type `sched_cls`; the lines
/// say what is worth knowing beyond linux/bpf.h. None of these takes a program under the GPL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[non_exhaustive]
pub enum Helper {
    /// `map_lookup_elem(map, key)`: a pointer to the value, or 0.
    MapLookup = 1,
    /// `map_update_elem(map, key, value, flags)`: 0, or an error below zero.
    MapUpdate = 2,
    /// `map_delete_elem(map, key)`
    MapDelete = 3,
    /// `ktime_get_ns()`: CLOCK_MONOTONIC.
    KtimeGetNs = 5,
    /// `get_prandom_u32()`
    GetPrandomU32 = 7,
    /// `get_smp_processor_id()`
    GetSmpProcessorId = 8,
    /// `skb_store_bytes(context, offset, from, length, flags)`: pointers to the packet are lost.
    SkbStoreBytes = 9,
    /// `l3_csum_replace(context, offset, from, to, size)`
    L3ChecksumReplace = 10,
    /// `l4_csum_replace(context, offset, from, to, flags and size)`
    L4ChecksumReplace = 11,
    /// `tail_call(context, map, number)`: goes on with that program for good, or comes back if there is none.
    TailCall = 12,
    /// `clone_redirect(context, interface, flags)`: a copy goes there, the packet goes on; pointers to it are lost.
    CloneRedirect = 13,
    /// `skb_vlan_push(context, protocol in network byte order, tag)`: beside the packet, and one that is there into it.
    SkbVlanPush = 18,
    /// `skb_vlan_pop(context)`: of what is beside the packet, or else in it; the next one in it then goes beside it.
    SkbVlanPop = 19,
    /// `redirect(interface, flags)`: what it returns is the program's result.
    Redirect = 23,
    /// `skb_load_bytes(context, offset, to, length)`
    SkbLoadBytes = 26,
    /// `csum_diff(from, from_size, to, to_size, seed)`: a sum of 32 bits, not folded.
    ChecksumDiff = 28,
    /// `skb_change_proto(context, protocol, flags)`
    SkbChangeProto = 31,
    /// `skb_change_type(context, type)`
    SkbChangeType = 32,
    /// `get_hash_recalc(context)`
    GetHashRecalc = 34,
    /// `skb_change_tail(context, length, flags)`
    SkbChangeTail = 38,
    /// `skb_pull_data(context, length)`: what direct access needs where data is not in one piece.
    SkbPullData = 39,
    /// `csum_update(context, sum)`
    ChecksumUpdate = 40,
    /// `set_hash_invalid(context)`
    SetHashInvalid = 41,
    /// `skb_change_head(context, length, flags)`: room in front, as a link header that the device does not have.
    SkbChangeHead = 43,
    /// `skb_adjust_room(context, difference, mode, flags)`
    SkbAdjustRoom = 50,
    /// `skb_load_bytes_relative(context, offset, to, length, start)`
    SkbLoadBytesRelative = 68,
    /// `sk_release(socket)`
    SkRelease = 86,
    /// `spin_lock(lock in a map's value)`: until it is unlocked the program calls nothing else.
    SpinLock = 93,
    /// `spin_unlock(lock)`
    SpinUnlock = 94,
    /// `sk_assign(context, socket, flags)`
    SkAssign = 124,
    /// `ringbuf_output(map, data, size, flags)`
    RingBufferOutput = 130,
    /// `ringbuf_reserve(map, size, flags)`: a pointer, or 0.
    RingBufferReserve = 131,
    /// `ringbuf_submit(data, flags)`
    RingBufferSubmit = 132,
    /// `ringbuf_discard(data, flags)`
    RingBufferDiscard = 133,
    /// `csum_level(context, level)`
    ChecksumLevel = 135,
    /// `redirect_neigh(interface, next hop, its size, flags)`, Linux 5.10: what it returns is the program's result. The
    /// packet needs a link header of 14 bytes, which is replaced.
    RedirectNeighbor = 152,
    /// `ktime_get_coarse_ns()`, Linux 5.11: as [`Helper::KtimeGetNs`], some milliseconds old and for nothing.
    KtimeGetCoarseNs = 160,
    /// `loop(turns, function, state, 0)`, Linux 5.17: calls `function(turn, state)` so often, or until it returns 1.
    Loop = 181,
    /// `xdp_get_buff_len(context)`, Linux 5.18: the packet's length, wherever its parts are.
    XdpBufferLength = 188,
    /// `xdp_load_bytes(context, offset, to, length)`, Linux 5.18: 0, or an error below zero.
    XdpLoadBytes = 189,
    /// `dynptr_read(to, length, dynptr, offset, flags)`, Linux 5.19: 0, or an error below zero.
    DynptrRead = 201,
}

/// Bytes of a next hop, as [`Helper::RedirectNeighbor`] takes it.
pub const NEXT_HOP: usize = 20;

/// The same (`struct bpf_redir_neigh`): a family, 4 bytes, and an address. A packet that has to wait for the neighbor's
/// resolution is lost if it came by another device, so it should be one that is known.
#[must_use]
pub fn next_hop(address: IpAddr) -> [u8; NEXT_HOP] {
    const AF_INET: u32 = 2;
    const AF_INET6: u32 = 10;
    let mut value = [0; NEXT_HOP];
    match address {
        IpAddr::V4(address) => {
            value[..4].copy_from_slice(&AF_INET.to_ne_bytes());
            value[4..8].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            value[..4].copy_from_slice(&AF_INET6.to_ne_bytes());
            value[4..].copy_from_slice(&address.octets());
        }
    }
    value
}
