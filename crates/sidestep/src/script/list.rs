//! What the script host says, as text.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use linux::bpf::xdp::Mode;

use config::attachment::Tier;
use script_host::protocol::{Scripts, Status, Traced, Verdicts};

/// The list.
pub(super) fn text(scripts: &Scripts) -> String {
    if scripts.scripts.is_empty() {
        return "no scripts are loaded\n".to_owned();
    }
    scripts.scripts.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(script: &Status) -> String {
    let at = &script.attachment;
    let mut text = format!("script {}: {}\n", script.id, at.file.display());
    let mut line = |name: &str, value: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "  {name:<10}{value}");
    };
    let device = at.device().map_or_else(String::new, |name| format!(", {name}"));
    let rule = at.rule.as_ref().map_or_else(String::new, |rule| format!(", {rule}"));
    line("hook", format_args!("{}{device}{rule}", at.hook.name()));
    let threads = match script.threads {
        0 => String::new(),
        1 => ", 1 thread".to_owned(),
        many => format!(", {many} threads"),
    };
    let tier = match at.tier {
        Tier::Both => "both tiers".to_owned(),
        tier => format!("the {} tier", tier.name()),
    };
    let xdp = match script.xdp_mode {
        Some(Mode::Native) => ", at XDP (native: in the driver)",
        Some(Mode::Generic) => ", at XDP (generic: behind the driver)",
        None => "",
    };
    line("function", format_args!("{} in {tier}{xdp}{threads}", at.function));
    line("packets", format_args!("{}{}", script.packets, verdicts(&script.verdicts)));
    if script.handed_over > 0 {
        line("to Lua", format_args!("{} of them, handed over by the kernel", script.handed_over));
    }
    if let Some(ns) = script.ns_per_packet {
        line("time", format_args!("{ns} ns for a packet"));
    }
    if script.sent > 0 {
        line("sent", format_args!("{} packets of its own", script.sent));
    }
    let Some(fault) = &script.last_error else { return text };
    line("errors", format_args!("{}, the last {}", script.errors, ago(fault.unix_ms)));
    for part in std::iter::once(&fault.message).chain(&fault.traceback) {
        line("", format_args!("{part}"));
    }
    text
}

fn verdicts(counts: &Verdicts) -> String {
    let named = [
        ("NF_ACCEPT", counts.nf_accept),
        ("XT_CONTINUE", counts.xt_continue),
        ("NF_DROP", counts.nf_drop),
        ("NF_STOLEN", counts.nf_stolen),
        ("NF_QUEUE", counts.nf_queue),
        ("NF_REPEAT", counts.nf_repeat),
    ];
    let some = named.iter().filter(|(_, count)| *count > 0);
    let texts: Vec<String> = some.map(|(name, count)| format!("{count} {name}")).collect();
    if texts.is_empty() { String::new() } else { format!(": {}", texts.join(", ")) }
}

/// A packet's way.
pub(super) fn traced(traced: &Traced) -> String {
    let mut text = format!("packet of {} octets\n", traced.length);
    for row in traced.packet.as_bytes().chunks(64) {
        let octets: Vec<_> = row.chunks(2).map(String::from_utf8_lossy).collect();
        let _ = writeln!(text, "  {}", octets.join(" "));
    }
    let mut file = "";
    for (path, number, source) in &traced.lines {
        if path != file {
            let _ = writeln!(text, "{path}");
            file = path;
        }
        let _ = writeln!(text, "{number:>6}  {source}");
    }
    if let Some(error) = &traced.error {
        let _ = writeln!(text, "failed: {error}");
    }
    let changed = if traced.changed { ", changed" } else { "" };
    let _ = writeln!(text, "{}{changed}", traced.verdict);
    text
}

/// Time of the day (UTC), with milliseconds.
pub(super) fn time(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{ms:03}", seconds % 60)
}

fn ago(unix_ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    match now.saturating_sub(unix_ms) / 1000 {
        0 => "just now".to_owned(),
        seconds @ 1..120 => format!("{seconds} s ago"),
        seconds => format!("{} min ago", seconds / 60),
    }
}
