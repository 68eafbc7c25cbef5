//! Files that share a state [declare alike](disagreement) what they share.

use std::path::Path;
use std::rc::Rc;

use script::testing::disagreement;

use super::Host;
use super::changes::Text;
use super::error::RequestError;
use super::group::Key;
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
    match disagreement(&texts, |at| Rc::new(Folder::of(files[at].0))) {
        Some((_, what)) => Err(RequestError::Unlike(what)),
        None => Ok(()),
    }
}
