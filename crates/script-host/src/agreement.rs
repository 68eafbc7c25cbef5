//! Files that share a state declare alike what they share. Otherwise programs in the kernel would not come to have one map,
//! or would take each other's entries for expired; and in Lua the file that was loaded last would decide.

use std::mem::discriminant;
use std::path::Path;

use script::compile::shared::{Form, Part, Shared};
use script::host;
use script::tables::WhenFull;
use script::vm;

use super::Host;
use super::changes::Text;
use super::error::RequestError;
use super::group::Key;
use super::kernel::{Interfaces, TopLevel};
use config::folder::Folder;

/// A file, and what is or is to be its text.
type File<'a> = (&'a Path, &'a str);

impl Host {
    /// Looks whether the files of each state that gets texts agree with them; scripts that are about to go do not count.
    ///
    /// # Errors
    /// The first thing that two files declare in unlike ways.
    pub(super) fn agree(&self, texts: &[Text], going: &[u32]) -> Result<(), RequestError> {
        let mut done: Vec<&Key> = Vec::new();
        for Text { key, .. } in texts {
            if done.contains(&key) {
                continue;
            }
            done.push(key);
            let mut files: Vec<File<'_>> = Vec::new();
            let there =
                self.scripts.iter().filter(|script| script.key == *key && !going.contains(&script.id));
            let there = there.map(|script| (&*script.attachment.file, &*script.text));
            // What a file is to have comes in the place of what it had.
            let given = texts.iter().filter(|text| text.key == *key).map(|text| (&*text.file, &*text.source));
            for (file, text) in there.chain(given) {
                match files.iter_mut().find(|(known, _)| *known == file) {
                    Some((_, known)) => *known = text,
                    None => files.push((file, text)),
                }
            }
            if files.len() > 1 {
                compare(&files)?;
            }
        }
        Ok(())
    }

    /// The scripts that share states with these.
    pub(super) fn of_their_states(&self, ids: &[u32]) -> Vec<u32> {
        let keys: Vec<&Key> =
            self.scripts.iter().filter(|script| ids.contains(&script.id)).map(|script| &script.key).collect();
        let sharing = self.scripts.iter().filter(|script| keys.contains(&&script.key));
        sharing.map(|script| script.id).collect()
    }
}

fn compare(files: &[File<'_>]) -> Result<(), RequestError> {
    let texts: Vec<(String, String)> =
        files.iter().map(|(file, text)| (file.display().to_string(), (*text).to_owned())).collect();
    let declared = vm::declared(&texts, |at| -> Box<dyn host::Host> {
        Box::new(TopLevel { folder: Folder::of(files[at].0), interfaces: Interfaces::Elsewhere })
    });
    for (at, own) in declared.iter().enumerate() {
        for (other, others) in declared[..at].iter().enumerate() {
            for shared in own {
                let same = |other: &&Shared| {
                    other.name == shared.name && discriminant(&other.form) == discriminant(&shared.form)
                };
                let before = others.iter().find(same).map(properties).unwrap_or_default();
                let differs = before.into_iter().zip(properties(shared)).find(|(one, other)| one != other);
                if let Some(((what, one), (_, another))) = differs {
                    let (first, second) = (&texts[other].0, &texts[at].0);
                    return Err(RequestError::Unlike(format!(
                        "{:?} has {what} = {one} in {first}, and {what} = {another} in {second}",
                        shared.name
                    )));
                }
            }
        }
    }
    Ok(())
}

/// What a declaration says, as it says it; those of two things of one form are in the same order.
fn properties(shared: &Shared) -> Vec<(&'static str, String)> {
    let parts = |parts: &[Part]| parts.iter().map(Part::to_string).collect::<Vec<_>>().join(", ");
    let mut all = match &shared.form {
        Form::Table { key, value, .. } => vec![("key", parts(key)), ("value", parts(value))],
        Form::Prefixes { limit, .. } => vec![("limit", limit.to_string())],
        Form::Histogram { bounds } => vec![("buckets", format!("{bounds:?}"))],
        Form::Counter | Form::Flows { .. } => Vec::new(),
    };
    if let Form::Table { shape, .. } | Form::Flows { shape, .. } = &shared.form {
        let when_full = match shape.when_full {
            WhenFull::Refuse => "\"refuse\"",
            WhenFull::Oldest => "\"oldest\"",
        };
        all.extend([
            ("limit", shape.limit.to_string()),
            ("expires", shape.expires_ms.map_or_else(|| "nil".to_owned(), |expires| expires.to_string())),
            ("when_full", when_full.to_owned()),
        ]);
    }
    all.push(("persistent", shared.persistent.to_string()));
    all
}
