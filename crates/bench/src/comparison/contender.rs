//! What is compared: one small trait, and a file for each kind.

use lab::Error;
use lab::topology::Site;
use lab::{Builder, Lab};

/// The contender that the others are compared with: no tunnel.
pub(crate) const NONE: &str = "none";

/// The contender that a reader knows best.
pub(crate) const KNOWN: &str = "wireguard-go";

/// A tunnel between the two gateways of a lab.
pub(crate) trait Contender {
    /// Its name, as `--against` has it.
    fn name(&self) -> &str;

    /// What it is and how it is set up, in a few words.
    fn about(&self) -> String;

    /// Why it cannot run on this machine, and what to do about it.
    fn missing(&self) -> Option<String> {
        None
    }

    /// The lab that it needs. The plain one routes the inner networks, as far as no tunnel takes them over.
    fn lab(&self, builder: Builder) -> Builder {
        builder.tunnel(false)
    }

    /// Starts it in both gateways. Gateway A gets so many peers more, who never answer.
    fn start(&mut self, lab: &mut Lab, strangers: u32) -> Result<(), Error>;

    /// The device that its packets come out of, at a site, if it is one that `wg` knows.
    fn device(&self, _: &Lab, _: Site) -> Option<String> {
        None
    }

    /// Ends it.
    fn stop(&mut self, lab: &mut Lab);

    /// The processes that carry the packets, at site A and at site B. Nothing where the kernel does it.
    fn processes(&self, lab: &mut Lab) -> Option<[u32; 2]>;

    /// Whether it is a variant of another one, of which fewer things are measured.
    fn is_variant(&self) -> bool {
        false
    }

    /// Whether its outer addresses are in the hosts' networks, which the router must go on routing then.
    fn hops_among_hosts(&self) -> bool {
        false
    }

    /// Whether one process can have many peers.
    fn has_peers(&self) -> bool {
        false
    }
}

/// What to do about a program that is missing.
pub(crate) fn not_installed(program: &str, contender: &str) -> String {
    format!(
        "`{program}` is not on the path: scripts/contenders {contender} installs it below target/tools, where \
         `make bench` finds it"
    )
}
