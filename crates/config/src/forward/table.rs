//! The shape of `[[forward]]`.

use toml::Spanned;
use toml::de::DeValue;

use crate::firewall::table::OneOrMany;
use crate::key::Absent::{Default, Otherwise, Required};
use crate::report::Report;
use crate::section::{Value, integer, mismatch, section};

section! {
    /// `[[forward]]`, as it stands in the file.
    ForwardTable = "[[forward]]", named "forward" {
        /// Its name in `status` and `explain`.
        name: String = Otherwise("the first of its ports, like `tcp/443`");
        /// The uplinks through which it is reached, by name, one or a list. Each has `masquerade = true`.
        uplink: OneOrMany = Otherwise("all that masquerade");
        /// `"tcp"`, `"udp"`, or `["tcp", "udp"]`.
        protocol: OneOrMany = Default(r#""tcp""#);
        /// The port at the gateway, like `443`, or a range, `"8000-8010"`, or a list of both.
        port: PortWords = Required(r#"the port at the gateway, like 443, or a range, like "8000-8010""#);
        /// The host's IPv4 address, in one of the networks, or behind one by a `[[route]]`: `"192.168.1.5"`. One port alone
        /// can be another there: `"192.168.1.5:8443"`.
        to: String = Required(r#"the host, like "192.168.1.5", or with another port, "192.168.1.5:8443""#);
        /// Who may use it, also from inside: IPv4 addresses, prefixes, ranges, names in `[firewall.addresses]`.
        from: OneOrMany = Otherwise("everybody");
        /// `true`: the kernel logs the first packet of each connection, up to 10 per second, as
        /// `sidestep rule 3 accept:`.
        log: bool = Default("false");
    }
}

/// A port, a range, or a list of both.
#[derive(Debug)]
pub(crate) struct PortWords(pub(crate) Vec<String>);

impl Value for PortWords {
    type Seen<'v> = &'v [String];
    const EXPECTED: &'static str = "a port, a range of ports in quotes, or a list of such";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let word = |value: &DeValue<'_>| {
            let number = integer(value).map(|number| number.to_string());
            number.or_else(|| value.as_str().map(str::to_owned))
        };
        let words = match value.get_ref() {
            DeValue::Array(list) => list.iter().map(|element| word(element.get_ref())).collect(),
            one => word(one).map(|word| vec![word]),
        };
        words.map(PortWords).or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &[String] {
        &self.0
    }
}
