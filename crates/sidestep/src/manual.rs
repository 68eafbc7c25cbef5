//! The manual, made from the declaration of the command line.

use std::io;

use clap::Command;
use clap_mangen::Man;

/// Complete configurations, with comments.
const EXAMPLES: [(&str, &str); 3] = [
    ("A tunnel", include_str!("../../../examples/site-a.toml")),
    ("A gateway", include_str!("../../../examples/home.toml")),
    ("IPsec between two sites", include_str!("../../../examples/ipsec-site-a.toml")),
];

/// sidestep(1), all commands on one page, in roff.
pub(crate) fn page(mut command: Command) -> io::Result<String> {
    command.build();
    let mut page = Vec::new();
    let man = Man::new(command.clone()).manual("Sidestep");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    man.render_extra_section(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).replace(".SH EXTRA\n", ".SH EXAMPLES\n.nf\n");
    page.push_str(".fi\n");
    page.push_str(".SH COMMANDS\n");
    for command in command.get_subcommands() {
        add_command(&mut page, command)?;
    }
    page.push_str(".SH CONFIGURATION\nComplete configurations.\n");
    for (what, example) in EXAMPLES {
        page.push_str(&format!(".PP\n{what}:\n.PP\n.nf\n{}.fi\n", verbatim(example)));
    }
    page.push_str(CLOSING);
    Ok(page)
}

const CLOSING: &str = r"
.SH FILES
.TP
/etc/sidestep/NAME.toml
Configuration of the service sidestep@NAME.
.TP
/run/sidestep/NAME.sock
Control socket of the running daemon of tunnel NAME, for its owner alone;
.I /run/sidestep-read/NAME.sock
is for the group sidestep and answers what changes nothing. A request is one line of JSON, like
{\(dqcommand\(dq:\(dqshow\(dq}; the answer is one JSON document, {\(dqok\(dq:\|.\|.\|.} or {\(dqerror\(dq:\(dq\|.\|.\|.\(dq}.
.TP
/var/lib/sidestep
What the daemon remembers from one run to the next.
.SH EXIT STATUS
0 for success, 1 for a failure, which standard error explains, 2 for wrong usage; of check 3 for a valid configuration that
this machine, as it is, would refuse.
.SH SEE ALSO
.BR wg (8),
.BR ip (8),
.BR nft (8)
";

/// A command, and below it those that it has, as subsections.
fn add_command(page: &mut String, command: &Command) -> io::Result<()> {
    if command.is_hide_set() || command.get_name() == "help" {
        return Ok(());
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let man = Man::new(command.clone());
    let mut sections = Vec::new();
    man.render_synopsis_section(&mut sections)?;
    man.render_description_section(&mut sections)?;
    man.render_options_section(&mut sections)?;
    man.render_extra_section(&mut sections)?;
    page.push_str(".SS ");
    page.push_str(name);
    page.push('\n');
    for line in String::from_utf8_lossy(&sections).lines() {
        // Subsections of a subsection there are none: a heading becomes a paragraph.
        match line.strip_prefix(".SH ") {
            Some("SYNOPSIS" | "DESCRIPTION") => page.push_str(".PP\n"),
            // Examples: line by line, as in the help. They come last.
            Some("EXTRA") => page.push_str(".PP\n.nf\n"),
            Some(_) => page.push_str(".PP\nOptions:\n"),
            None => {
                page.push_str(line);
                page.push('\n');
            }
        }
    }
    if command.get_after_help().is_some() {
        page.push_str(".fi\n");
    }
    for command in command.get_subcommands() {
        add_command(page, command)?;
    }
    Ok(())
}

/// `text` as roff shows it unchanged.
fn verbatim(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    let line = |line: &str| match line.chars().next() {
        Some('.' | '\'') => format!("\\&{line}"),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = escaped.split('\n').map(line).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_manual_has_every_command() {
        let command = crate::cli::Cli::command();
        let page = page(command.clone()).unwrap();
        for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(
                page.contains(&format!(".SS sidestep {}\n", command.get_name())),
                "{}",
                command.get_name()
            );
        }
        assert!(!page.contains("test\\-clock"));
        assert!(
            page.contains("[[peer]]")
                && page.contains("[[uplink]]")
                && page.contains("[ipsec]")
                && page.contains(".SH EXAMPLES\n")
        );
    }

    #[test]
    fn lines_that_roff_would_take_for_requests_are_protected() {
        assert_eq!(verbatim(".a\n'b\nc\\d-e"), "\\&.a\n\\&'b\nc\\ed\\-e");
    }
}
