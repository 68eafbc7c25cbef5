//! Whether those are there that a peer names as others to meet it through, or to be introduced to.

use mt6d::config::PeerConfig;
use toml::Spanned;

use crate::document::Document;
use crate::introduce::IntroduceValue;
use crate::report::{Finding, Report};

/// Those that are named are other peers of this file.
pub(crate) fn check(document: &Document, peers: &[(usize, PeerConfig)], report: &mut Report) {
    let is_there = |name: &str| peers.iter().any(|(_, peer)| peer.name == name);
    for (index, peer) in peers {
        let Some(table) = document.peer.list().get(*index).map(Spanned::get_ref) else { continue };
        let only = match table.introduce.get() {
            Some(IntroduceValue::Only(names)) => names.as_slice(),
            _ => &[],
        };
        for (key, named) in [("meet_through", table.meet_through.list()), ("introduce", only)] {
            for name in named {
                let (label, help) = match name.get_ref() {
                    own if *own == peer.name => {
                        ("the peer itself", "name a third that both have a session with")
                    }
                    other if is_there(other) => continue,
                    _ => ("there is no such peer", "write the `name` of another [[peer]] of this file"),
                };
                let title = format!("`{key}` of peer {:?} names {:?}", peer.name, name.get_ref());
                report.add(Finding::error(name.span(), title, label, help));
            }
        }
    }
}
