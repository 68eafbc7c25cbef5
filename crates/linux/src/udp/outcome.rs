//! What becomes of a send: what the error numbers of `sendmsg` mean for a socket that nothing is fatal to.

use std::io;

/// What became of a send. Only what is [`SendOutcome::Sent`] has left; nothing here is a reason to close the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// All of it was handed to the network.
    Sent,
    /// The send buffer is full after so many bytes of whole segments: wait until the socket is writable.
    WouldBlock(usize),
    /// A queue of this host is full, and the datagram lost in it.
    Dropped,
    /// A datagram is longer than the interface's MTU.
    TooLong,
    /// A firewall of this host refused it.
    Refused,
    /// The error is what an ICMP message has said of an earlier one, twice in a row; or a route refuses it.
    Reported(i32),
    /// There is no way to the peer now: no route, no such source address, or the link is down.
    Unreachable(i32),
}

impl SendOutcome {
    /// That of a system call, which is made again where its error was not about this datagram.
    pub(super) fn of(mut send: impl FnMut() -> io::Result<()>) -> io::Result<Self> {
        let mut again = true;
        loop {
            let Err(error) = send() else { return Ok(Self::Sent) };
            let number = error.raw_os_error().unwrap_or(0);
            match number {
                libc::EINTR => {}
                libc::EAGAIN => return Ok(Self::WouldBlock(0)),
                libc::ENOBUFS | libc::ENOMEM => return Ok(Self::Dropped),
                // The first time this may be the news of an ICMP error about an earlier datagram.
                _ if again && from_the_network(number) => again = false,
                libc::EMSGSIZE => return Ok(Self::TooLong),
                libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL => {
                    return Ok(Self::Unreachable(number));
                }
                libc::EPERM => return Ok(Self::Refused),
                _ if from_the_network(number) => return Ok(Self::Reported(number)),
                _ => return Err(error),
            }
        }
    }

    /// That of datagrams of `size` bytes that are sent one by one.
    pub(super) fn of_each<E>(
        data: &[u8],
        size: usize,
        mut send: impl FnMut(&[u8]) -> Result<Self, E>,
    ) -> Result<Self, E> {
        let mut sent = 0;
        let mut outcome = Self::Sent;
        for datagram in data.chunks(size.max(1)) {
            match send(datagram)? {
                Self::Sent => {}
                Self::WouldBlock(_) => return Ok(Self::WouldBlock(sent)),
                Self::Dropped => outcome = Self::Dropped,
                other => return Ok(other),
            }
            sent += datagram.len();
        }
        Ok(outcome)
    }
}

/// Error numbers that the kernel makes of ICMPv6 errors (`icmpv6_err_convert` in net/ipv6/icmp.c).
pub(super) fn from_the_network(number: i32) -> bool {
    matches!(
        number,
        libc::ECONNREFUSED
            | libc::EMSGSIZE
            | libc::EPROTO
            | libc::EACCES
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of a call that returns these error numbers, one each time, and then succeeds.
    fn outcome(errors: &[i32]) -> Result<SendOutcome, Option<i32>> {
        let mut errors = errors.iter();
        let send = || errors.next().map_or(Ok(()), |number| Err(io::Error::from_raw_os_error(*number)));
        SendOutcome::of(send).map_err(|error| error.raw_os_error())
    }

    #[test]
    fn news_about_an_earlier_datagram_are_no_refusal_of_this_one() {
        assert_eq!(outcome(&[]), Ok(SendOutcome::Sent));
        assert_eq!(outcome(&[libc::ECONNREFUSED, libc::EINTR]), Ok(SendOutcome::Sent));
        let twice = |number| outcome(&[number, number]);
        assert_eq!(twice(libc::ECONNREFUSED), Ok(SendOutcome::Reported(libc::ECONNREFUSED)));
        assert_eq!(twice(libc::EMSGSIZE), Ok(SendOutcome::TooLong));
        assert_eq!(twice(libc::EHOSTUNREACH), Ok(SendOutcome::Unreachable(libc::EHOSTUNREACH)));
        assert_eq!(outcome(&[libc::EADDRNOTAVAIL]), Ok(SendOutcome::Unreachable(libc::EADDRNOTAVAIL)));
        assert_eq!(outcome(&[libc::EPERM]), Ok(SendOutcome::Refused));
        assert_eq!(outcome(&[libc::ENOBUFS]), Ok(SendOutcome::Dropped));
        assert_eq!(outcome(&[libc::EINVAL]), Err(Some(libc::EINVAL)));
    }

    #[test]
    fn of_single_datagrams_those_before_a_full_buffer_are_told() {
        let mut room = 2;
        let of_each = SendOutcome::of_each(&[0; 25], 10, |_| {
            room -= 1;
            Ok::<_, ()>(if room < 0 { SendOutcome::WouldBlock(0) } else { SendOutcome::Sent })
        });
        assert_eq!(of_each, Ok(SendOutcome::WouldBlock(20)));
    }
}
