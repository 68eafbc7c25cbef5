//! The shape of `[flows]`.

use crate::key::Absent::{Default, Required};
use crate::section::{Period, section};

section! {
    /// `[flows]`, as it stands in the file.
    FlowsTable = "[flows]" {
        /// The collector's address and port, usually 4739. What it is told is sent as it is, by UDP: have it in a network of
        /// your own, or behind a tunnel.
        collector: String = Required(r#"the collector, like "[2001:db8:5::10]:4739""#);
        /// How often it is told of connections that go on, 10 s to 1 h. With a short one it knows earlier, and gets more
        /// records. Of connections that end it is told within a second or two.
        interval: Period = Default(r#""60s""#);
        /// The number that tells this gateway from others with the same address.
        observation_domain: i64 = Default("1");
    }
}
