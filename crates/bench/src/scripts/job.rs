//! What is to be done with packets, and who does it.

use clap::ValueEnum;
use serde::Serialize;

use crate::comparison::contender::NONE;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Job {
    /// Packets from networks of a list go nowhere.
    Drop,
    /// The client's address is another one outside.
    Nat,
    /// A source sends so many packets a second.
    Limit,
    /// No TLS connections to a name.
    Sni,
    /// Names that are asked for are logged.
    Dns,
    /// Connections are shared among three servers.
    Balance,
}

impl Job {
    pub(super) const ALL: [Self; 6] =
        [Self::Drop, Self::Nat, Self::Limit, Self::Sni, Self::Dns, Self::Balance];

    /// Also what metrics begin with.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Nat => "nat",
            Self::Limit => "limit",
            Self::Sni => "sni",
            Self::Dns => "dns",
            Self::Balance => "balance",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Drop => "Drop by prefix list",
            Self::Nat => "NAT",
            Self::Limit => "Rate limit",
            Self::Sni => "SNI filter",
            Self::Dns => "DNS log",
            Self::Balance => "Load balancing",
        }
    }

    /// What it is, and what was shown before it was measured.
    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::Drop => {
                "A thousand prefixes; packets from one of them are dropped. Measured are packets from elsewhere, which pass."
            }
            Self::Nat => {
                "The client's address is translated and back; the server sees the outer one, and its answers arrive."
            }
            Self::Limit => {
                "Of 400 packets of UDP that a source sends at once, 50 to 200 arrive where the limit is 50 or 100 a second. \
                 Measured with a limit that is not reached."
            }
            Self::Sni => {
                "A connection whose ClientHello asks for a name of the list gets no answer, others do. Measured are others."
            }
            Self::Dns => {
                "The log tells who asks for which name. Measured are queries; of a flood nobody logs them all."
            }
            Self::Balance => "Thirty connections reach all three servers, and each one stays with its own.",
        }
    }

    /// Whether connections are measured, not packets.
    pub(super) const fn is_tcp(self) -> bool {
        matches!(self, Self::Sni | Self::Balance)
    }
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    /// Nobody.
    None,
    ScriptKernel,
    ScriptXdp,
    ScriptBoth,
    ScriptUser,
    Nftables,
    C,
    CXdp,
    Suricata,
    Haproxy,
}

/// A file, with its text.
pub(super) type Text = (&'static str, &'static str);

/// What somebody has to do with a job.
pub(super) enum Part {
    /// Does it, by these.
    Does(&'static [Text]),
    /// Cannot, and why.
    Cannot(&'static str),
    /// Is no other than somebody else.
    Absent,
}

/// The loader of what is in C.
pub(super) const LOADER: &str = "load.c";

macro_rules! texts {
    ($($file:literal),+) => { Part::Does(&[$(($file, include_str!(concat!("peers/", $file)))),+]) };
}

macro_rules! scripts {
    ($($file:literal),+) => {
        Part::Does(&[$(($file, include_str!(concat!("../../../../examples/scripts/", $file)))),+])
    };
}

impl Peer {
    pub(super) const ALL: [Self; 10] = [
        Self::None,
        Self::ScriptKernel,
        Self::ScriptXdp,
        Self::ScriptBoth,
        Self::ScriptUser,
        Self::Nftables,
        Self::C,
        Self::CXdp,
        Self::Suricata,
        Self::Haproxy,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => NONE,
            Self::ScriptKernel => "script-kernel",
            Self::ScriptXdp => "script-xdp",
            Self::ScriptBoth => "script-both",
            Self::ScriptUser => "script-user",
            Self::Nftables => "nftables",
            Self::C => "c",
            Self::CXdp => "c-xdp",
            Self::Suricata => "suricata",
            Self::Haproxy => "haproxy",
        }
    }

    pub(super) const fn about(self) -> &'static str {
        match self {
            Self::None => "the gateway forwards and does nothing else",
            Self::ScriptKernel => "the script of `examples/scripts` in the kernel tier (tcx)",
            Self::ScriptXdp => "the same at XDP, where it may run there",
            Self::ScriptBoth => {
                "a script that reads streams, in both tiers: the kernel hands over to Lua what it cannot decide"
            }
            Self::ScriptUser => "the same in Lua alone",
            Self::Nftables => "rules of nftables; NAT and balancing with connection tracking",
            Self::C => {
                "eBPF written by hand in C, compiled by clang, at the same place (tcx); the second number of lines is its loader"
            }
            Self::CXdp => "the same C at XDP",
            Self::Suricata => "inline behind two queues (NFQUEUE), a thread for each",
            Self::Haproxy => "a proxy: connections end at it, and others begin",
        }
    }

    /// What has to be there: a file or a command.
    pub(super) const fn needs(self) -> &'static [&'static str] {
        match self {
            Self::C | Self::CXdp => &["clang", "/usr/include/bpf/libbpf.h"],
            Self::Suricata => &["suricata"],
            Self::Haproxy => &["haproxy"],
            _ => &[],
        }
    }

    /// How it takes part in a job.
    pub(super) const fn part(self, job: Job) -> Part {
        match (self, job) {
            (Self::None, _) => Part::Does(&[]),
            (Self::ScriptKernel | Self::ScriptXdp, Job::Drop) => scripts!("prefixes_blocked.lua"),
            (Self::ScriptKernel | Self::ScriptXdp, Job::Limit) => scripts!("token_bucket.lua"),
            (Self::ScriptKernel, Job::Nat) => scripts!("nat.lua"),
            (Self::ScriptKernel, Job::Balance) => scripts!("load_balance.lua"),
            (Self::ScriptBoth | Self::ScriptUser, Job::Sni) => {
                scripts!("tls_name_filter.lua", "lib/answer.lua")
            }
            (Self::ScriptKernel | Self::ScriptXdp | Self::ScriptUser, Job::Dns) => scripts!("dns_log.lua"),
            (Self::C | Self::CXdp, Job::Drop) => texts!("drop.c", "load.c"),
            (Self::C | Self::CXdp, Job::Limit) => texts!("limit.c", "load.c"),
            (Self::C, Job::Nat) => texts!("nat.c", "load.c"),
            (Self::C, Job::Sni) => texts!("sni.c", "load.c"),
            (Self::C, Job::Dns) => texts!("dns.c", "load.c"),
            (Self::C, Job::Balance) => texts!("balance.c", "load.c"),
            (Self::ScriptKernel | Self::ScriptXdp | Self::ScriptBoth | Self::ScriptUser | Self::CXdp, _) => {
                Part::Absent
            }
            (Self::Nftables, Job::Drop) => texts!("drop.nft"),
            (Self::Nftables, Job::Nat) => texts!("nat.nft"),
            (Self::Nftables, Job::Limit) => texts!("limit.nft"),
            (Self::Nftables, Job::Balance) => texts!("balance.nft"),
            (Self::Nftables, Job::Sni) => Part::Cannot(
                "it compares octets at fixed places, and the name is behind fields of any length",
            ),
            (Self::Nftables, Job::Dns) => Part::Cannot(
                "its `log` has addresses and ports; for names it hands whole packets to another program",
            ),
            (Self::Suricata, Job::Drop) => {
                texts!("drop.rules", "suricata.yaml", "drop.yaml", "suricata.ip6tables")
            }
            (Self::Suricata, Job::Limit) => texts!("limit.rules", "suricata.yaml", "suricata.ip6tables"),
            (Self::Suricata, Job::Sni) => texts!("sni.rules", "suricata.yaml", "suricata.ip6tables"),
            (Self::Suricata, Job::Dns) => texts!("suricata.yaml", "dns.yaml", "suricata.ip6tables"),
            (Self::Suricata, Job::Nat | Job::Balance) => {
                Part::Cannot("it passes and drops packets, and changes no addresses")
            }
            (Self::Haproxy, Job::Sni) => texts!("sni.cfg"),
            (Self::Haproxy, Job::Balance) => texts!("balance.cfg"),
            (Self::Haproxy, _) => Part::Cannot("it takes connections of TCP, not packets"),
        }
    }
}
