//! Tables `[[script]]`: packet scripts, and the hooks that they are put at.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use script::testing::{self, Contents, Files};
use script::vm::ScriptError;
use toml::Spanned;

use crate::attachment::{Attachment, Failure, Hook, Tier};
use crate::converter::Converter;
use crate::folder::Folder;
use crate::key::Absent::{Default, Otherwise, Required};
use crate::report::{Finding, Report};
use crate::section::section;
use crate::value::{self, Problem, problem};

section! {
    /// `[[script]]`, as it stands in the file.
    ScriptTable = "[[script]]" {
        /// The script, relative to the configuration's folder. `sidestep check` loads it.
        file: String = Required(r#"the script, like "nat.lua""#);
        /// Where it receives packets: `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`,
        /// `tunnel-in`, `tunnel-out`; [what each is](scripting.md#hooks).
        hook: String = Required(
            "one of \"prerouting\", \"input\", \"forward\", \"output\", \"postrouting\", \"ingress\", \"egress\", \
             \"tunnel-in\", \"tunnel-out\""
        );
        /// Only packets on this interface.
        dev: String = Otherwise("any; the tunnel's at `tunnel-in`, `tunnel-out`");
        /// [Which packets](scripting.md#rules). Packets that match no script cost nothing.
        rule as "match": String = Otherwise("every packet");
        /// The function that is called with each packet.
        function: String = Default(r#""process_packet""#);
        /// Scripts with the same number share globals, tables and threads.
        state: i64 = Otherwise("one for each file");
        /// Priority among the chains at the hook.
        priority: i64 = Otherwise("`-150`");
        /// What happens to a packet at which the script fails: `"drop"` or `"accept"`.
        failure: String = Default(r#""drop""#);
        /// `true`: packets pass while the script host is not running or cannot keep up.
        fail_open: bool = Default("false");
        /// `"kernel"`, `"both"`, `"user"`: [where it runs](scripting.md#two-tiers).
        tier: String = Default(r#""auto""#);
        /// `true`: at XDP of `dev`, [before everything else](scripting.md#at-xdp). Only for scripts that inspect
        /// packets and return a verdict; others are refused.
        xdp: bool = Default("false");
    }
}

/// A script of the configuration.
#[derive(Debug, Clone)]
pub struct Configured {
    /// Where its script is put, and how it runs there.
    pub attachment: Attachment,
    /// Where its file is named, and its function, or else the file again.
    places: [Range<usize>; 2],
}

impl Converter<'_> {
    /// `tunnel` is the name of the tunnel's device.
    pub(crate) fn script(&mut self, script: &ScriptTable, tunnel: Option<&str>) -> Option<Configured> {
        let folder = self.folder();
        let file = self.value(&script.file, |file| Ok(folder.join(file)));
        let hook = self.value(&script.hook, |name| one_of(name, &Hook::ALL, Hook::name));
        let dev = self.optional(&script.dev, value::interface);
        let state = self.optional(&script.state, |number| whole(number, "a number from 0 on"));
        let tier = self.value(&script.tier, |name| one_of(name, &Tier::ALL, Tier::name));
        let priority = self.optional(&script.priority, |number| whole(number, "a smaller number"));
        let failure = self.value(&script.failure, |name| one_of(name, &Failure::ALL, Failure::name));
        let hook = hook?;
        let dev = dev?.or_else(|| match hook {
            Hook::TunnelIn | Hook::TunnelOut => tunnel.map(str::to_owned),
            _ => None,
        });
        let attachment = Attachment {
            file: file?,
            hook,
            dev,
            rule: script.rule.text().map(str::to_owned),
            function: script.function.get()?.clone(),
            state: state?,
            tier: tier?,
            xdp: script.xdp.is_true(),
            priority: priority?,
            failure: failure?,
            fail_open: script.fail_open.is_true(),
        };
        if let Err(error) = attachment.check() {
            let span = match error.key() {
                "match" => script.rule.span_or_table(),
                "tier" => script.tier.span_or_table(),
                "xdp" => script.xdp.span_or_table(),
                _ => script.dev.span_or_table(),
            };
            let help = "see docs/scripting.md, \"Hooks\"".to_owned();
            self.refuse(span, error.key(), Problem { label: error.to_string(), help });
            return None;
        }
        let place = script.file.span();
        let function = script.function.given().map_or_else(|| place.clone(), Spanned::span);
        Some(Configured { attachment, places: [place, function] })
    }
}

/// Loads every script, as a test of it would be: what cannot be loaded, or lacks its function, is reported.
pub(crate) fn check_files(scripts: &mut [Configured], report: &mut Report) {
    for script in &mut *scripts {
        let [file, function] = script.places.clone();
        let attachment = &mut script.attachment;
        match contents(&attachment.file) {
            Ok((path, Contents { functions, unknown, .. })) => {
                if let Some(first) = unknown.first() {
                    let help = format!("`sidestep script check {}` shows all of them", path.display());
                    let label = first.to_string();
                    report.add(Finding::warning(file, "a script has names that nothing has", label, help));
                }
                if !functions.contains(&attachment.function) {
                    let label = format!("the script has no function {}", attachment.function);
                    let help = match &functions[..] {
                        [] => format!("write function {}(p) into it", attachment.function),
                        known => format!("name one of its functions with `function`: {}", known.join(", ")),
                    };
                    report.add(Finding::error(function, "a script cannot be used", label, help));
                }
                attachment.file = path;
            }
            Err(why) => {
                let shown = attachment.file.display();
                let help = format!("`sidestep script check {shown}` says more");
                report.add(Finding::error(file, "a script cannot be loaded", why.to_string(), help));
            }
        }
    }
    check_states(scripts, report);
}

/// Reports what files of one state declare in unlike ways.
fn check_states(scripts: &[Configured], report: &mut Report) {
    let states: BTreeSet<u32> = scripts.iter().filter_map(|script| script.attachment.state).collect();
    for state in states {
        let mut files: Vec<&Configured> = Vec::new();
        for script in scripts.iter().filter(|script| script.attachment.state == Some(state)) {
            if files.iter().all(|known| known.attachment.file != script.attachment.file) {
                files.push(script);
            }
        }
        let text = |script: &&Configured| {
            let file = &script.attachment.file;
            Some((file.display().to_string(), std::fs::read_to_string(file).ok()?))
        };
        // One that cannot be read is reported as that.
        let Some(texts) = files.iter().map(text).collect::<Option<Vec<_>>>() else { continue };
        let beside = |at: usize| -> Rc<dyn Files> { Rc::new(Folder::of(&files[at].attachment.file)) };
        if let Some((at, label)) = testing::disagreement(&texts, beside) {
            let help = "files of one state declare alike what they share".to_owned();
            report.add(Finding::error(files[at].places[0].clone(), "a script cannot be loaded", label, help));
        }
    }
}

/// Why a script cannot be loaded.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    /// Its file cannot be read.
    #[error("{0}")]
    File(#[from] io::Error),
    /// Its text is wrong.
    #[error("{0}")]
    Script(#[from] ScriptError),
}

/// The absolute path of a script, and what is in it.
fn contents(file: &Path) -> Result<(PathBuf, Contents), LoadError> {
    let path = file.canonicalize()?;
    let source = std::fs::read_to_string(&path)?;
    let files: Rc<dyn Files> = Rc::new(Folder::of(&path));
    let contents = testing::inspect(&path.display().to_string(), &source, &files)?;
    Ok((path, contents))
}

/// The one of `all` that has this name.
fn one_of<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, Problem> {
    all.iter().copied().find(|one| name(*one) == text).map_or_else(
        || {
            let names: Vec<_> = all.iter().map(|one| format!("\"{}\"", name(*one))).collect();
            problem("not known", format!("write one of {}", names.join(", ")))
        },
        Ok,
    )
}

fn whole<T: TryFrom<i64>>(number: i64, help: &str) -> Result<T, Problem> {
    T::try_from(number).or_else(|_| problem("out of range", format!("write {help}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_of_a_state_that_disagree_are_refused_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        for (name, limit) in [("one", 10), ("another", 20)] {
            let text =
                format!("nf.table {{ name = 'n', key = 'int', limit = {limit} }}\nfunction {name}(p) end\n");
            put(&format!("{name}.lua"), &text);
        }
        let load = |states: [u32; 2]| {
            let mut text = "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\n\
                            external = \"eth0\"\nhop_prefix = \"2001:db8:a1::/64\"\n"
                .to_owned();
            for (name, state) in ["one", "another"].iter().zip(states) {
                text += &format!(
                    "[[script]]\nfile = \"{name}.lua\"\nfunction = \"{name}\"\nhook = \"forward\"\nstate = {state}\n"
                );
            }
            put("mt6d0.toml", &text);
            crate::load(&folder.path().join("mt6d0.toml")).map_err(|error| error.to_string())
        };
        assert!(load([7, 8]).is_ok());
        let refused = load([7, 7]).unwrap_err();
        assert!(
            refused.contains("mt6d0.toml:11:8") && refused.contains("\"n\" has limit = 10 in"),
            "{refused}"
        );
        assert!(refused.contains("one.lua, and limit = 20 in"), "{refused}");
    }
}
