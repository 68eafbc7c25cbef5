//! Packet scripts.

use script_host::protocol::Scripts;

use crate::catalogue::*;
use crate::custom::families;
use crate::page::{Label, Page};

pub(crate) fn scripts(page: &mut Page, scripts: &Scripts) {
    for script in &scripts.scripts {
        let number = Label::from(script.id.to_string());
        let what = &script.attachment;
        let [file, hook, function, tier] = [
            &*what.file.file_name().unwrap_or_default().to_string_lossy(),
            what.hook.name(),
            &*what.function,
            what.tier.name(),
        ]
        .map(Label::from);
        page.add(&SCRIPT, &[&number, &file, &hook, &function, &tier], true);
        page.add(&SCRIPT_ATTACHED, &[&number], script.not_attached.is_none());
        for (metric, count) in [
            (&SCRIPT_PACKETS, script.packets),
            (&SCRIPT_ERRORS, script.errors),
            (&SCRIPT_SENT_PACKETS, script.sent),
            (&SCRIPT_HANDED_OVER, script.handed_over),
        ] {
            page.add(metric, &[&number], count);
        }
        let verdicts = &script.verdicts;
        for (name, count) in [
            ("NF_DROP", verdicts.nf_drop),
            ("NF_ACCEPT", verdicts.nf_accept),
            ("NF_STOLEN", verdicts.nf_stolen),
            ("NF_QUEUE", verdicts.nf_queue),
            ("NF_REPEAT", verdicts.nf_repeat),
            ("XT_CONTINUE", verdicts.xt_continue),
        ] {
            page.add(&SCRIPT_VERDICTS, &[&number, &Label::from(name)], count);
        }
        if let Some(nanoseconds) = script.ns_per_packet {
            page.add(&SCRIPT_PACKET_TIME, &[&number], nanoseconds as f64 / 1e9);
        }
    }
    page.add(&SCRIPTS_HELD, &[], scripts.held.len());
    for family in families(&scripts.metrics) {
        page.add_custom(family);
    }
}
