//! An IPsec tunnel.

use std::collections::BTreeMap;

use control::ipsec_status::{Child, Status};

use crate::catalogue::*;
use crate::page::{Label, Page};

const STATES: [&str; 4] = ["up", "connecting", "waiting", "idle"];

pub(crate) fn ipsec(page: &mut Page, status: &Status) {
    let tunnel = Label::from(status.tunnel.as_str());
    for (reason, count) in &status.drops {
        page.add(&IPSEC_DROPPED, &[&tunnel, &Label::from(reason.as_str())], *count);
    }
    for remote in &status.remotes {
        let name = Label::from(remote.name.as_str());
        for state in STATES {
            page.add(&IPSEC_REMOTE_STATE, &[&tunnel, &name, &Label::from(state)], remote.state == state);
        }
        page.add(&IPSEC_IKE_SAS, &[&tunnel, &name], remote.ike.len());
        // While one takes another's place there are both, and for a moment perhaps two new ones: the newest is the one in use.
        let present = remote.children.iter().filter(|child| !child.replaced);
        let present: BTreeMap<usize, &Child> = present.map(|child| (child.number, child)).collect();
        page.add(&IPSEC_CHILDREN, &[&tunnel, &name], present.len());
        for (number, child) in present {
            let whose = [&tunnel, &name, &Label::from(number.to_string())];
            page.add(&IPSEC_SENT_PACKETS, &whose, child.tx_packets);
            page.add(&IPSEC_SENT, &whose, child.tx_bytes);
            page.add(&IPSEC_RECEIVED_PACKETS, &whose, child.rx_packets);
            page.add(&IPSEC_RECEIVED, &whose, child.rx_bytes);
        }
    }
}
