//! What the script host says, as text.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use linux::bpf::xdp::Mode;

use config::attachment::Tier;
use script_host::metric_protocol::{self, Exported};
use script_host::protocol::{Held, Scripts, Status, Traced, TracedLine, Verdicts};
use serde::Serialize;

use super::measure::Measured;
use crate::terminal::visible;

/// The list.
pub(super) fn text(scripts: &Scripts, measured: &[Option<Measured>]) -> String {
    if scripts.scripts.is_empty() && scripts.held.is_empty() {
        return "no scripts are loaded\n".to_owned();
    }
    let measured = measured.iter().copied().chain(std::iter::repeat(None));
    let of = |(script, measured)| one(script, measured, &scripts.metrics);
    let running = scripts.scripts.iter().zip(measured).map(of);
    running.chain(scripts.held.iter().map(not_loaded)).collect::<Vec<_>>().join("\n")
}

/// A script that does not run.
fn not_loaded(Held { attachment, why }: &Held) -> String {
    let packets = if attachment.fail_open { "pass" } else { "are dropped" };
    let why = why.as_deref().unwrap_or("it is being loaded").lines().map(visible);
    let why: String = why.map(|line| format!("            {line}\n")).collect();
    let (file, hook) = (attachment.file.display(), attachment.hook.name());
    format!("not loaded: {file}\n  hook      {hook}\n  packets   {packets}\n{why}")
}

/// The list as JSON: what the host says, and what was measured.
pub(super) fn document<'a>(
    Scripts { scripts, metrics, held }: &'a Scripts,
    measured: &[Option<Measured>],
) -> impl Serialize + use<'a> {
    #[derive(Serialize)]
    struct One<'a> {
        #[serde(flatten)]
        status: &'a Status,
        #[serde(skip_serializing_if = "Option::is_none")]
        measured: Option<Measured>,
    }
    #[derive(Serialize)]
    struct Document<'a> {
        scripts: Vec<One<'a>>,
        metrics: &'a [Exported],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        held: &'a [Held],
    }
    let measured = measured.iter().copied().chain(std::iter::repeat(None));
    let scripts = scripts.iter().zip(measured).map(|(status, measured)| One { status, measured });
    Document { scripts: scripts.collect(), metrics, held }
}

fn one(script: &Status, measured: Option<Measured>, metrics: &[Exported]) -> String {
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
    if let Some(why) = &script.not_attached {
        let packets = if at.fail_open { "pass" } else { "are dropped" };
        line("attached", format_args!("no, and its packets {packets}: {}", visible(why)));
    }
    line("packets", format_args!("{}{}", script.packets, verdicts(&script.verdicts)));
    if script.handed_over > 0 {
        line("to Lua", format_args!("{} of them, handed over by the kernel", script.handed_over));
    }
    if script.traced {
        line("traced", format_args!("by somebody, at this moment"));
    }
    if script.lost > 0 {
        line("lost", format_args!("{} lines of the log, captured packets and the like", script.lost));
    }
    if let Some(ns) = script.ns_per_packet {
        line("time", format_args!("{ns} ns for a packet"));
    }
    if let Some(measured) = measured {
        line("measured", format_args!("{}", measured.text()));
    }
    if script.sent > 0 {
        line("sent", format_args!("{} packets of its own", script.sent));
    }
    // Scripts of one state share them: they are told once.
    let own = metrics.iter().filter(|metric| metric.scripts.first() == Some(&script.id));
    for (at, metric) in own.enumerate() {
        line(if at == 0 { "metrics" } else { "" }, format_args!("{}", exported(metric)));
    }
    let Some(fault) = &script.last_error else { return text };
    line("errors", format_args!("{}, the last {}", script.errors, ago(fault.unix_ms)));
    for part in std::iter::once(&fault.message).chain(&fault.traceback) {
        line("", format_args!("{}", visible(part)));
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

/// `dropped{reason="late"} 5`, and of a histogram how many values there were, and their mean.
fn exported(metric: &Exported) -> String {
    let labels: Vec<_> = metric.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let unit = metric.unit.as_ref().map_or_else(String::new, |unit| format!(" {unit}"));
    let name = &metric.name;
    match &metric.value {
        metric_protocol::Value::Counter { value } => format!("{name}{labels} {value}{unit}"),
        metric_protocol::Value::Histogram { sum, buckets } => {
            let count: u64 = buckets.iter().map(|bucket| bucket.count).sum();
            match count {
                0 => format!("{name}{labels} no values"),
                count => format!("{name}{labels} {count} values, {:.6}{unit} on average", sum / count as f64),
            }
        }
    }
}

/// A packet's way.
pub(super) fn traced(traced: &Traced) -> String {
    let mut text = format!("packet of {} octets, in {}\n", traced.length, tier(&traced.tier));
    for row in traced.packet.as_bytes().chunks(64) {
        let octets: Vec<_> = row.chunks(2).map(String::from_utf8_lossy).collect();
        let _ = writeln!(text, "  {}", octets.join(" "));
    }
    let mut known = "";
    for TracedLine { file, line, text: source, told } in &traced.lines {
        if file != known {
            let _ = writeln!(text, "{file}");
            known = file;
        }
        let (source, told) = (visible(source.trim_end()), visible(told));
        let _ = match told.is_empty() {
            true => writeln!(text, "{line:>6}  {source}"),
            false => writeln!(text, "{line:>6}  {source:<47} -- {told}"),
        };
    }
    if let Some(error) = &traced.error {
        let _ = writeln!(text, "failed: {}", visible(error));
    }
    let changed = if traced.changed { ", changed" } else { "" };
    let verdict = traced.verdict.as_deref().unwrap_or("handed over to Lua");
    let _ = writeln!(text, "{verdict}{changed}");
    text
}

fn tier(name: &str) -> &str {
    match name {
        "user" => "Lua",
        _ => "the kernel",
    }
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
