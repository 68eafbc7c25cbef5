//! What the active adversary tries.

use std::fmt;

/// A kind of try. Everything in it that this leaves open (a code, a port, a length) is drawn for each try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: the moment that the others are compared with.
    Nothing,
    /// A recorded datagram again.
    Replay(Recorded),
    /// The datagram twice.
    Duplicate,
    /// The datagram not at all.
    Drop,
    /// The datagram 50 to 500 ms later.
    Delay,
    /// The datagram without its end.
    Truncate,
    /// The datagram changed in one place.
    Tamper(Place),
    /// Besides the datagram one of random bytes, with the same addresses and ports.
    Spoof,
    /// A packet of a stranger, or in the peer's name, to an address.
    Scan(Probe, Target),
    /// A Packet Too Big with the addresses and ports of a datagram that was just sent, and all of what an expired
    /// endpoint of the same end sent: do the two belong together?
    Oracle,
    /// An ICMPv6 error of this type in a router's or the peer's name.
    Error(u8, Quote),
}

/// Which recorded datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    Live,
    Expired,
}

/// Where a datagram is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Counter,
    Body,
    Tag,
    Ecn,
    HopLimit,
    FlowLabel,
}

/// What a scan sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Echo,
    Syn,
    UdpOpen,
    UdpClosed,
    Fragment,
    HopByHop,
    DestinationOptions,
    Routing,
    UnknownHeader,
    NeighborSolicitation,
}

/// Whose address it goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Used,
    Unused,
}

/// What an ICMPv6 error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    /// The datagram that was just sent.
    Live,
    /// The addresses and ports of the datagram that was just sent, and what an expired endpoint of the same end sent.
    Old,
    /// A datagram of an expired endpoint, as it was.
    Expired,
    /// The addresses and ports of the datagram that was just sent, and random bytes.
    Foreign,
    /// Addresses that nobody uses.
    Unknown,
}

impl Kind {
    /// All of them but [`Self::Nothing`].
    pub(super) fn all() -> Vec<Self> {
        use Place::{Body, Counter, Ecn, FlowLabel, HopLimit, Tag};
        use Probe::{
            DestinationOptions, Echo, Fragment, HopByHop, NeighborSolicitation, Routing, Syn, UdpClosed,
            UdpOpen, UnknownHeader,
        };
        let mut all = vec![
            Self::Replay(Recorded::Live),
            Self::Replay(Recorded::Expired),
            Self::Duplicate,
            Self::Drop,
            Self::Delay,
            Self::Truncate,
        ];
        all.extend([Counter, Body, Tag, Ecn, HopLimit, FlowLabel].map(Self::Tamper));
        all.push(Self::Spoof);
        let probes = [
            Echo,
            Syn,
            UdpOpen,
            UdpClosed,
            Fragment,
            HopByHop,
            DestinationOptions,
            Routing,
            UnknownHeader,
            NeighborSolicitation,
        ];
        for probe in probes {
            all.extend([Target::Used, Target::Unused].map(|target| Self::Scan(probe, target)));
        }
        all.push(Self::Oracle);
        for error in [1, 2, 3, 4, 127] {
            let quotes = [Quote::Live, Quote::Old, Quote::Expired, Quote::Foreign, Quote::Unknown];
            all.extend(quotes.map(|quote| Self::Error(error, quote)));
        }
        all
    }

    /// Those whose names begin with one of these; all, if there are none.
    pub(super) fn chosen(beginnings: &[String]) -> Vec<Self> {
        let mut kinds = Self::all();
        kinds.retain(|kind| {
            let name = kind.to_string();
            beginnings.is_empty() || beginnings.iter().any(|beginning| name.starts_with(beginning.as_str()))
        });
        kinds
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => to.write_str("nothing"),
            Self::Replay(Recorded::Live) => to.write_str("replay.live"),
            Self::Replay(Recorded::Expired) => to.write_str("replay.expired"),
            Self::Duplicate => to.write_str("duplicate"),
            Self::Drop => to.write_str("drop"),
            Self::Delay => to.write_str("delay"),
            Self::Truncate => to.write_str("truncate"),
            Self::Tamper(place) => {
                let place = match place {
                    Place::Counter => "counter",
                    Place::Body => "body",
                    Place::Tag => "tag",
                    Place::Ecn => "ecn",
                    Place::HopLimit => "hop-limit",
                    Place::FlowLabel => "flow-label",
                };
                write!(to, "tamper.{place}")
            }
            Self::Spoof => to.write_str("spoof"),
            Self::Scan(probe, target) => {
                let probe = match probe {
                    Probe::Echo => "echo",
                    Probe::Syn => "syn",
                    Probe::UdpOpen => "udp-open",
                    Probe::UdpClosed => "udp-closed",
                    Probe::Fragment => "fragment",
                    Probe::HopByHop => "hop-by-hop",
                    Probe::DestinationOptions => "destination-options",
                    Probe::Routing => "routing",
                    Probe::UnknownHeader => "unknown-header",
                    Probe::NeighborSolicitation => "neighbor-solicitation",
                };
                let target = match target {
                    Target::Used => "used",
                    Target::Unused => "unused",
                };
                write!(to, "scan.{probe}.{target}")
            }
            Self::Oracle => to.write_str("oracle"),
            Self::Error(error, quote) => {
                let quote = match quote {
                    Quote::Live => "live",
                    Quote::Old => "old",
                    Quote::Expired => "expired",
                    Quote::Foreign => "foreign",
                    Quote::Unknown => "unknown",
                };
                write!(to, "error.{error}.{quote}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own_and_can_be_chosen_by_it() {
        let mut names: Vec<_> = Kind::all().iter().map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Kind::all().len());
        assert_eq!(Kind::chosen(&["error.2.old".into()]), [Kind::Error(2, Quote::Old)]);
        assert_eq!(Kind::chosen(&["tamper".into(), "drop".into()]).len(), 7);
        assert_eq!(Kind::chosen(&[]), Kind::all());
    }
}
