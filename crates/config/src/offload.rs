//! `flow_offload` in `[firewall]`: whether it leads anywhere, and past whom.

use router::site::{FlowOffload, Site};

use crate::attachment::{Hook, Tier};
use crate::converter::Converter;
use crate::document::Document;
use crate::report::Finding;
use crate::script::Configured;
use crate::value::{Problem, problem};

impl Converter<'_> {
    /// Who carries packets of known connections, where the file says so; None where it cannot be.
    pub(crate) fn flow_offload(&mut self, document: &Document) -> Option<Option<FlowOffload>> {
        let given = &document.firewall.get()?.flow_offload;
        let who = self.optional(given, flow_offload)?;
        if who.is_some() && document.uplink.is_absent() && document.network.is_absent() {
            let help = "add [[uplink]] and [[network]], between which `sidestep up` forwards, or remove it";
            let title = "flow_offload in [firewall] speeds nothing up";
            self.report(Finding::error(given.span(), title, "there is no uplink and no network", help));
        }
        Some(who)
    }

    /// Refuses packet scripts that packets of known connections would go past.
    pub(crate) fn scripts_see_offloaded(&mut self, document: &Document, site: &Site, scripts: &[Configured]) {
        if site.flow_offload.is_none() {
            return;
        }
        for (table, script) in document.script.list().iter().zip(scripts) {
            if is_passed(script) {
                let title = "flow_offload in [firewall] has packets of known connections go past a script";
                let help = "put the script at an interface, in the kernel: hook = \"ingress\", dev, tier = \"kernel\" and no \
                            priority; or remove flow_offload";
                let label = "netfilter shows it a connection's first packets alone";
                self.report(Finding::error(table.span(), title, label, help));
            }
        }
    }
}

/// Whether it gets forwarded packets, and of a connection that is offloaded not all of them: at netfilter's hooks, where it is
/// in any case or may come to be.
fn is_passed(script: &Configured) -> bool {
    let of = &script.attachment;
    match of.hook {
        Hook::Forward => true,
        Hook::Prerouting | Hook::Postrouting | Hook::Ingress | Hook::Egress => {
            of.tier != Tier::Kernel || of.dev.is_none() || of.priority.is_some()
        }
        Hook::Input | Hook::Output | Hook::TunnelIn | Hook::TunnelOut => false,
    }
}

fn flow_offload(text: &str) -> Result<FlowOffload, Problem> {
    let known = [FlowOffload::Software, FlowOffload::Hardware].into_iter().find(|known| known.name() == text);
    known.map_or_else(|| problem("not a way to offload flows", r#"write "software" or "hardware""#), Ok)
}
