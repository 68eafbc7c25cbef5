//! What `check` says of a `[[script]]`, with a tunnel or a gateway.

use std::fmt::Write as _;

use config::Configured;
use config::attachment::Failure as ScriptFailure;

pub(super) fn write(text: &mut String, script: &Configured) -> std::fmt::Result {
    let at = &script.attachment;
    writeln!(text, "\nScript    {} gets packets at {}", at.file.display(), at.hook.name())?;
    let device = at.device().map(|name| format!("of {name}"));
    let rule = at.rule.as_ref().map(|rule| format!("that match {rule}"));
    let which: Vec<String> = device.into_iter().chain(rule).collect();
    if !which.is_empty() {
        writeln!(text, "          only those {}", which.join(", "))?;
    }
    let failure = match at.failure {
        ScriptFailure::Drop => "drop",
        ScriptFailure::Accept => "pass",
    };
    let lost = if at.fail_open { "pass" } else { "drop" };
    writeln!(
        text,
        "          run {}; {failure} packets that it fails on, {lost} packets that cannot reach it",
        at.function
    )
}
