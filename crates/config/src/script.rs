//! Tables `[[script]]`: packet scripts, and the hooks that they are put at.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::ValueEnum;
use script::testing::{self, Files};
use serde::Deserialize;
use toml::Spanned;

use super::convert::Converter;
use super::document::Text;
use super::report::{Finding, Report};
use super::value::Problem;
use crate::attachment::{Attachment, Failure, Hook, Tier};
use crate::folder::Folder;

const FUNCTION: &str = "process_packet";

/// The table, as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    file: Text,
    hook: Text,
    dev: Text,
    #[serde(rename = "match")]
    rule: Text,
    function: Text,
    state: Option<Spanned<i64>>,
    tier: Text,
    xdp: Option<Spanned<bool>>,
    priority: Option<Spanned<i64>>,
    failure: Text,
    fail_open: Option<bool>,
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
    pub(super) fn script(&mut self, table: &Spanned<Table>, tunnel: Option<&str>) -> Option<Configured> {
        let (script, header) = (table.get_ref(), table.span());
        let owner = "[[script]]";
        let file = self.required(&script.file, &header, owner, "file", "the script, like \"nat.lua\"");
        let place = file.map(Spanned::span);
        let file = file.map(|file| self.folder().join(file.get_ref()));
        let hooks = format!("one of {}", names::<Hook>());
        let hook = self.required(&script.hook, &header, owner, "hook", &hooks);
        let hook = self.value("hook", hook, |text| one_of::<Hook>(text));
        let dev = self.optional("dev", script.dev.as_ref(), |text| super::value::interface(text));
        let state =
            self.optional("state", script.state.as_ref(), |number| whole(*number, "a number from 0 on"));
        let tier = self.optional("tier", script.tier.as_ref(), |text| one_of::<Tier>(text));
        let priority =
            self.optional("priority", script.priority.as_ref(), |number| whole(*number, "a smaller number"));
        let failure = self.optional("failure", script.failure.as_ref(), |text| one_of::<Failure>(text));
        let hook = hook?;
        let dev = dev?.or_else(|| match hook {
            Hook::TunnelIn | Hook::TunnelOut => tunnel.map(str::to_owned),
            _ => None,
        });
        let text = |text: &Text| text.as_ref().map(|text| text.get_ref().clone());
        let attachment = Attachment {
            file: file?,
            hook,
            dev,
            rule: text(&script.rule),
            function: text(&script.function).unwrap_or_else(|| FUNCTION.to_owned()),
            state: state?,
            tier: tier?.unwrap_or(Tier::Auto),
            xdp: script.xdp.as_ref().is_some_and(|xdp| *xdp.get_ref()),
            priority: priority?,
            failure: failure?.unwrap_or(Failure::Drop),
            fail_open: script.fail_open.unwrap_or(false),
        };
        if let Err(wrong) = attachment.check() {
            let given = match wrong.key {
                "match" => script.rule.as_ref().map(Spanned::span),
                "tier" => script.tier.as_ref().map(Spanned::span),
                "xdp" => script.xdp.as_ref().map(Spanned::span),
                _ => None,
            };
            let title = format!("`{}` cannot be used", wrong.key);
            self.report(Finding::error(
                given.unwrap_or(header),
                title,
                wrong.message,
                "see docs/scripting.md, \"Hooks\"",
            ));
            return None;
        }
        let place = place?;
        let function = script.function.as_ref().map_or_else(|| place.clone(), Spanned::span);
        Some(Configured { attachment, places: [place, function] })
    }
}

/// Loads every script, as a test of it would be: what cannot be loaded, or lacks its function, is reported.
pub(super) fn check_files(scripts: &mut [Configured], report: &mut Report) {
    for script in scripts {
        let [file, function] = script.places.clone();
        let attachment = &mut script.attachment;
        match contents(&attachment.file) {
            Ok((path, functions)) => {
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
                report.add(Finding::error(file, "a script cannot be loaded", why, help));
            }
        }
    }
}

/// The absolute path of a script, and its functions.
fn contents(file: &Path) -> Result<(PathBuf, Vec<String>), String> {
    let path = file.canonicalize().map_err(|error| error.to_string())?;
    let source = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let files: Rc<dyn Files> = Rc::new(Folder::of(&path));
    let contents =
        testing::inspect(&path.display().to_string(), &source, &files).map_err(|error| error.message)?;
    Ok((path, contents.functions))
}

fn one_of<T: ValueEnum>(text: &str) -> Result<T, Problem> {
    T::from_str(text, false).map_err(|_| Problem {
        label: "not known".to_owned(),
        help: format!("write one of {}", names::<T>()),
    })
}

fn names<T: ValueEnum>() -> String {
    let names = T::value_variants()
        .iter()
        .filter_map(|value| Some(format!("\"{}\"", value.to_possible_value()?.get_name())));
    names.collect::<Vec<_>>().join(", ")
}

fn whole<T: TryFrom<i64>>(number: i64, help: &str) -> Result<T, Problem> {
    T::try_from(number)
        .map_err(|_| Problem { label: "out of range".to_owned(), help: format!("write {help}") })
}
