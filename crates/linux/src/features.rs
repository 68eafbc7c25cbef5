//! Features of interfaces, as `ethtool -k` shows them.

use std::os::fd::AsRawFd as _;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::{Context as _, Error, Result};
use crate::tun;

// From linux/sockios.h and linux/ethtool.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_STRINGS: u32 = 0x1b;
const GET_SET_SIZES: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
/// The set of the features' names.
const NAMES: u32 = 4;
/// Bytes of a name, with zeros behind it.
const NAME: usize = 32;
/// Bytes about 32 features: those that are available, requested, active, and that never change, a bit each.
const BLOCK: usize = 16;
const ACTIVE: usize = 8;

/// Of these features those that are active at an interface. One that this kernel does not know is not.
pub fn active<'f>(interface: &str, features: &[&'f str]) -> Result<Vec<&'f str>> {
    let sizes = ask(interface, GET_SET_SIZES, &[0, 0, 0, 0], &(1u64 << NAMES).to_ne_bytes(), 4)?;
    let count = word(&sizes, 16);
    if count == 0 {
        return Ok(Vec::new());
    }
    let names =
        ask(interface, GET_STRINGS, &NAMES.to_ne_bytes(), &count.to_ne_bytes(), NAME * count as usize)?;
    let blocks = count.div_ceil(32);
    let states = ask(interface, GET_FEATURES, &blocks.to_ne_bytes(), &[], BLOCK * blocks as usize)?;
    let names = names[12..].chunks_exact(NAME).enumerate();
    let is_active =
        |number: usize| (word(&states, 8 + number / 32 * BLOCK + ACTIVE) >> (number % 32)) & 1 == 1;
    let active: Vec<&[u8]> = names.filter(|(number, _)| is_active(*number)).map(|(_, name)| name).collect();
    let has = |feature: &str| {
        active.iter().any(|name| name.split(|byte| *byte == 0).next() == Some(feature.as_bytes()))
    };
    Ok(features.iter().copied().filter(|feature| has(feature)).collect())
}

/// What the kernel makes of a request: its number, what is asked for, and room for so many bytes of the answer.
fn ask(interface: &str, number: u32, what: &[u8], more: &[u8], room: usize) -> Result<Vec<u8>> {
    let describe = || format!("SIOCETHTOOL {interface}");
    let mut bytes = [&number.to_ne_bytes()[..], what, more, &vec![0; room]].concat();
    let socket =
        socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).context(describe)?;
    let mut request = tun::request(interface);
    request.ifr_ifru.ifru_data = bytes.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL reads one `ifreq`, and reads and writes what that points to: of GET_SET_SIZES the header and 4 bytes
    // for each set that was asked for, which is one; of GET_STRINGS as many names as the kernel has said that there are, which
    // does not change while it runs; of GET_FEATURES no more blocks than were asked for.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 { Err(Error::last(describe())) } else { Ok(bytes) }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}
