//! The single tests, and which values they give.

/// Frame sizes of RFC 2544 section 9.1 with the check sequence (4 bytes), but for the smallest: 64 bytes hold no IPv6 with
/// UDP. 86 hold 20 bytes more, which number the datagrams.
pub(super) const FRAMES: [u32; 7] = [86, 128, 256, 512, 1_024, 1_280, 1_518];

/// Socket buffers that limit TCP's window, bytes; what the kernel allows is less on some machines.
pub(super) const WINDOWS: [u32; 6] = [8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Ethernet's header and check sequence.
const ETHERNET: u32 = 18;
const UDP: u32 = 8;
const TCP: u32 = 20;

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Ipv6,
    Ipv4,
}

impl Family {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ipv6 => "ipv6",
            Self::Ipv4 => "ipv4",
        }
    }

    const fn header(self) -> u32 {
        match self {
            Self::Ipv6 => 40,
            Self::Ipv4 => 20,
        }
    }

    /// What a frame holds behind the IP header and one of 8 bytes, which UDP and echo requests have.
    pub(super) const fn payload(self, frame: u32) -> u32 {
        frame.saturating_sub(ETHERNET + self.header() + UDP)
    }

    /// The longest segment that a frame holds, with TCP's options.
    pub(super) const fn segment(self, frame: u32) -> u32 {
        frame.saturating_sub(ETHERNET + self.header() + TCP)
    }
}

/// One test. Sizes are those of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// One flow, unlimited.
    Tcp,
    /// One flow with so large a window at most.
    Window(u32),
    /// One flow of such frames.
    Segments(u32),
    /// Datagrams as fast as the sender goes: how many get there.
    Packets(u32),
    /// The highest rate at which no datagram is lost.
    WithoutLoss(u32),
    /// Round trips.
    Echo(u32),
    /// Round trips of connections' first packets.
    Connect,
}

/// Of a repetition.
pub(super) const ROUNDS: u32 = 3;

impl Test {
    /// Its name, also part of a file's name.
    pub(super) fn name(self) -> String {
        match self {
            Self::Tcp => "tcp".to_owned(),
            Self::Window(bytes) => format!("window-{bytes}"),
            Self::Segments(frame) => format!("tcp-{frame}"),
            Self::Packets(frame) => format!("packets-{frame}"),
            Self::WithoutLoss(frame) => format!("zeroloss-{frame}"),
            Self::Echo(frame) => format!("echo-{frame}"),
            Self::Connect => "connect".to_owned(),
        }
    }

    /// The value that counts, and its unit.
    pub(super) const fn value(self) -> (&'static str, &'static str) {
        match self {
            Self::Tcp | Self::Window(_) => ("mbit_s", "Mbit/s"),
            Self::Segments(_) | Self::Packets(_) | Self::WithoutLoss(_) => ("thousand_s", "thousand/s"),
            Self::Echo(_) | Self::Connect => ("p50_us", "µs"),
        }
    }

    /// Whether the kernel allows socket buffers of the size. It doubles what is asked for.
    pub(super) fn is_possible(self) -> bool {
        let Self::Window(bytes) = self else { return true };
        ["rmem_max", "wmem_max"].into_iter().all(|name| {
            let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap_or_default();
            text.trim().parse().is_ok_and(|most: u32| bytes <= most.saturating_mul(2))
        })
    }

    /// Whether it is made in this round, from 1: what takes no time in each, TCP in every third, so that both take about
    /// as long; a search, which is long and coarse, in the first.
    pub(super) const fn is_in(self, round: u32) -> bool {
        match self {
            Self::Packets(_) | Self::Echo(_) | Self::Connect => true,
            Self::Tcp | Self::Window(_) | Self::Segments(_) => round % ROUNDS == 1,
            Self::WithoutLoss(_) => round == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_what_their_names_say() {
        // The usual MSS and the usual UDP payload of Ethernet.
        assert_eq!((Family::Ipv6.segment(1_518), Family::Ipv4.segment(1_518)), (1_440, 1_460));
        assert_eq!((Family::Ipv6.payload(1_518), Family::Ipv4.payload(1_518)), (1_452, 1_472));
        assert_eq!(Family::Ipv6.payload(FRAMES[0]), 20);
        assert_eq!(Family::Ipv6.payload(64), 0);
    }
}
