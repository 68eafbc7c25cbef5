//! The shape of `[network.port_mapping]`.

use crate::key::Absent::Default;
use crate::section::{Period, section};

section! {
    /// `[network.port_mapping]`, as it stands in the file.
    PortMappingTable = "[network.port_mapping]" {
        /// How many ports one host, by address, may have open: 1 to 1024. All hosts of the network together have 1024 at the
        /// most.
        per_host: i64 = Default("32");
        /// The lowest port, at the gateway and at the host. A lower one lets hosts offer what programs take for the
        /// system's own services.
        lowest_port: i64 = Default("1024");
        /// How long a port stays open before the host has to ask again, 1 s to 24 h; most ask for an hour or two. With a
        /// short one, ports of hosts that have left are closed sooner.
        longest: Period = Default(r#""24h""#);
    }
}
