//! Whether a tunnel can hop where an uplink is.

use router::site::Site;

use crate::document::Document;
use crate::hops::UPLINK;
use crate::node::{Mode, Node};
use crate::report::{Finding, Report};

/// Checks that a tunnel can hop where the site's uplink is; `site` is what the rest of the file describes.
pub(crate) fn check(document: &Document, node: &Node, site: Option<&Site>, report: &mut Report) {
    let (Some(hops), Some(table)) = (&node.follows, document.node.get()) else { return };
    let span = table.hop_prefix.span();
    let mut wrong = |title: &str, label: &str, help: String| {
        report.add(Finding::error(span.clone(), title, label, help));
    };
    if node.mode == Mode::Transparent {
        let help = "give a part of the link's /64, like 2001:db8:a:0:f000::/68".to_owned();
        return wrong("a transparent gateway has no uplink", "not in this mode", help);
    }
    let Some(site) = site.filter(|site| !site.uplinks.is_empty()) else {
        // If there are tables, what is wrong with them is said already.
        if document.uplink.is_absent() {
            let help = "add an [[uplink]] of that name, or write a prefix".to_owned();
            wrong("this file has no [[uplink]]", "nothing to follow", help);
        }
        return;
    };
    let Some(uplink) = site.uplinks.iter().find(|uplink| uplink.name == hops.uplink) else {
        let names: Vec<_> = site.uplinks.iter().map(|uplink| uplink.name.as_str()).collect();
        let title = format!("no [[uplink]] is named {:?}", hops.uplink);
        return wrong(&title, "nothing to follow", format!("there are: {}", names.join(", ")));
    };
    if uplink.interface != node.external {
        let title =
            format!("`external` is {}, and uplink {} is at another interface", node.external, uplink.name);
        wrong(&title, "what it hops in leaves there", format!("write external = \"{}\"", uplink.interface));
    }
    let has_prefixes = uplink.delegation.is_some() || !uplink.prefixes.is_empty() || uplink.tunnel.is_some();
    if !hops.on_link && !has_prefixes {
        let help = "add delegation = true to the uplink, or on_link = true here for the prefix of its link"
            .to_owned();
        wrong(
            &format!("uplink {} has no prefix that is routed here", uplink.name),
            "nothing to hop in",
            help,
        );
    }
    let Some(number) = hops.number else { return };
    if hops.on_link {
        let help = format!("write \"{UPLINK}{}\"", uplink.name);
        return wrong("the prefix of a link has no parts", "it is a /64 itself", help);
    }
    if let Some(network) = site.networks.iter().find(|network| network.subnet == Some(number)) {
        let title = format!("subnet {number} is that of network {}", network.name);
        let help =
            format!("write another number, or \"{UPLINK}{}\" for the last one that is free", uplink.name);
        return wrong(&title, "used for nothing else", help);
    }
    // Where the provider decides, it is known when there is a prefix.
    let wished = uplink.delegation.map(|delegation| delegation.length);
    let lengths = uplink.prefixes.iter().map(|prefix| Some(prefix.prefix_len())).chain(wished);
    if let Some(Some(shortest)) = lengths.min_by_key(|length| length.unwrap_or(0))
        && number.checked_shr(64u32.saturating_sub(shortest.into())).unwrap_or(0) > 0
    {
        let last = (1u128 << 64u32.saturating_sub(shortest.into())) - 1;
        let help = format!("a /{shortest} has subnets 0 to {last}");
        wrong(&format!("uplink {} has no subnet {number}", uplink.name), "too large", help);
    }
}
