//! Scripts come, get other texts, and go: all that is asked for at once, or nothing of it.
//!
//! What can be refused is found first: texts are tried out in the threads of their groups, programs are loaded beside those
//! that run. Then new scripts are attached, which the kernel may refuse yet, and are taken away again if it does. What is
//! ready is put in its places last, Lua's first: a packet that is handed over runs through the whole new function.

use std::path::PathBuf;

use script::vm;
use script::vm::traced::with_twins;
use tracing::{info, warn};

use super::error::{AttachError, RequestError};
use super::group::{Key, link_is_enough};
use super::in_kernel::Prepared;
use super::kernel::Maps;
use super::rules::{self, Hold, There};
use super::runs::Runs;
use super::worker::Texts;
use super::{Host, SETTLE, Script, SharedMaps, read};
use config::attachment::Attachment;

/// What a file has now, for the scripts of a state.
pub(super) struct Text {
    pub(super) key: Key,
    pub(super) file: PathBuf,
    pub(super) source: String,
}

/// A script's other program, and the maps that are its own, if it hands over.
type InKernelAnew = (u32, Prepared, Option<Maps>);

impl Text {
    fn is_of(&self, script: &Script) -> bool {
        script.key == self.key && script.attachment.file == self.file
    }
}

impl Host {
    /// Loads a script. Others of its file and state get the text that the file has now, too.
    pub(super) fn load(&mut self, attachment: &Attachment) -> Result<u32, RequestError> {
        self.change(&[], std::slice::from_ref(attachment), &[])??;
        Ok(self.last_id)
    }

    /// Loads the files of scripts anew, each one once. Rules that somebody has flushed come back.
    pub(super) fn reload(&mut self, ids: &[u32]) -> Result<(), RequestError> {
        let changed = match self.change(ids, &[], &[]) {
            // The other files of their states may have been changed with them.
            Err(RequestError::Unlike(_)) => self.change(&self.of_their_states(ids), &[], &[]),
            changed => changed,
        };
        changed??;
        Ok(self.restore_rules()?)
    }

    /// Has these scripts, with the present texts of their files, in the place of those of before.
    pub(super) fn have(&mut self, wanted: &[Attachment], before: &[Attachment]) -> Result<(), RequestError> {
        let is_there = |one: &&Attachment| self.scripts.iter().any(|script| script.attachment == **one);
        let new: Vec<Attachment> = wanted.iter().filter(|one| !is_there(one)).cloned().collect();
        let is_wanted = |script: &Script| wanted.contains(&script.attachment);
        let goes = |script: &Script| before.contains(&script.attachment) && !is_wanted(script);
        let ids = |which: &dyn Fn(&Script) -> bool| {
            self.scripts.iter().filter(|script| which(script)).map(|script| script.id).collect::<Vec<u32>>()
        };
        let (stay, go) = (ids(&is_wanted), ids(&goes));
        let changed = self.change(&stay, &new, &go)?;
        // It is done: what fails now is told, and ends nothing of the rest.
        let restored = self.restore_rules().map_err(RequestError::from);
        let unloaded = go.iter().map(|id| self.unload(*id)).collect::<Vec<_>>();
        for error in [changed, restored].into_iter().chain(unloaded).filter_map(Result::err) {
            warn!("scripts are as they are to be, but: {error}");
        }
        Ok(())
    }

    /// Unloads a script.
    pub(super) fn unload(&mut self, id: u32) -> Result<(), RequestError> {
        let script = self.script(id)?;
        let (key, file) = (script.key.clone(), script.attachment.file.clone());
        let detached = self.detach(id)?;
        self.end_unused();
        self.forget(&key);
        self.traces.forget(id);
        info!(event = "script_unloaded", script = id, "{}: script {id} unloaded", file.display());
        Ok(detached?)
    }

    /// Gives scripts of these numbers the present texts of their files, and loads others; all of it, or nothing. Some are about
    /// to go, which no reason in them prevents. What the kernel then says of programs that it has taken before, as where an
    /// interface is gone, is told beside that.
    fn change(
        &mut self,
        ids: &[u32],
        new: &[Attachment],
        going: &[u32],
    ) -> Result<Result<(), RequestError>, RequestError> {
        new.iter().try_for_each(Attachment::check)?;
        // News of interfaces may not have been read yet.
        self.follow_interfaces(&[]);
        let mut given = self.scripts.iter().filter(|script| ids.contains(&script.id));
        if let Some(why) = given.find_map(Script::not_attached) {
            return Err(RequestError::NotReplacedInKernel(AttachError::NotAttached(why.to_owned())));
        }
        let texts = self.texts(ids, new)?;
        self.agree(&texts, going)?;
        for script in self.scripts.iter().filter(|script| script.runs.user().is_some()) {
            let Some(text) = texts.iter().find(|text| text.is_of(script)) else { continue };
            link_is_enough(&script.attachment, &text.source).map_err(RequestError::NotReplaced)?;
        }
        let in_groups = self.in_groups(texts.iter(), |_, text| &text.source);
        for (key, texts) in &in_groups {
            self.group(key).map_or(Ok(()), |group| group.check(texts)).map_err(RequestError::NotReplaced)?;
        }
        let (prepared, maps) = self.prepare_in_kernel(&texts, going)?;

        let last_before = self.last_id;
        let maps = std::mem::replace(&mut self.maps, maps);
        let attached = new.iter().try_for_each(|attachment| self.attach_new(attachment, &texts));
        let replaced = attached.and_then(|()| {
            // A group that has got another text with a new script has been made anew already.
            let rest = texts.iter().filter(|text| !self.came_with_new(text, last_before));
            self.replace_in_groups(&self.in_groups(rest, |_, text| &text.source))
                .map_err(RequestError::NotReplaced)
        });
        if let Err(error) = replaced {
            self.take_back(last_before, maps, &texts);
            return Err(error);
        }
        let in_kernel = self.replace_in_kernel(prepared);
        for script in &mut self.scripts {
            let Some(text) = texts.iter().find(|text| text.is_of(script)) else { continue };
            script.text.clone_from(&text.source);
            if script.id <= last_before {
                self.common.log.add(script.id, "loaded anew");
            }
        }
        self.point_mirrors();
        self.welcome(last_before);
        Ok(in_kernel)
    }

    /// The present texts of these scripts, and of those that come.
    fn texts(&self, ids: &[u32], new: &[Attachment]) -> Result<Vec<Text>, RequestError> {
        let there = self.scripts.iter().filter(|script| ids.contains(&script.id));
        let there = there.map(|script| (script.key.clone(), script.attachment.file.as_path()));
        let new = new.iter().map(|attachment| (key_of(attachment), attachment.file.as_path()));
        let mut texts: Vec<Text> = Vec::new();
        for (key, file) in there.chain(new) {
            if texts.iter().all(|text| (&text.key, text.file.as_path()) != (&key, file)) {
                texts.push(Text { key, file: file.to_owned(), source: read(file)? });
            }
        }
        Ok(texts)
    }

    /// Whether the threads of a text's scripts have got it with one that has come after the script of this number.
    fn came_with_new(&self, text: &Text, last_before: u32) -> bool {
        let mut own = self.scripts.iter().filter(|script| text.is_of(script) && script.runs.user().is_some());
        let has_other = own.clone().any(|script| script.id <= last_before && script.text != text.source);
        let has_none = own.clone().all(|script| script.id > last_before);
        own.any(|script| script.id > last_before) && (has_other || has_none)
    }

    /// For each group that has scripts of these texts, what `choose` takes: of a text, and the first script that has it.
    fn in_groups<'t>(
        &'t self,
        texts: impl Iterator<Item = &'t Text>,
        choose: impl Fn(&'t Script, &'t Text) -> &'t str,
    ) -> Vec<(Key, Texts)> {
        let mut groups: Vec<(Key, Vec<(String, String)>)> = Vec::new();
        for text in texts {
            let mut in_user_tier = self.scripts.iter().filter(|script| script.runs.user().is_some());
            let Some(script) = in_user_tier.find(|script| text.is_of(script)) else { continue };
            let own = (text.file.display().to_string(), with_twins(choose(script, text)));
            match groups.iter_mut().find(|(key, _)| *key == text.key) {
                Some((_, texts)) => texts.push(own),
                None => groups.push((text.key.clone(), vec![own])),
            }
        }
        groups.into_iter().map(|(key, texts)| (key, texts.into())).collect()
    }

    /// Puts other texts in the places of those that groups have, in all of them or in none.
    fn replace_in_groups(&self, texts: &[(Key, Texts)]) -> Result<(), AttachError> {
        let mut groups = texts.iter().filter_map(|(key, texts)| Some((self.group(key)?, texts)));
        let prepared = groups.clone().try_for_each(|(group, texts)| group.prepare(texts));
        groups.by_ref().for_each(|(group, _)| group.settle(prepared.is_ok()));
        prepared
    }

    /// Compiles scripts in the kernel anew; the programs have yet to be put in their places, and so have the maps that they
    /// want: those that scripts share, by their states, and those that are a script's own. As in Lua a state is made anew
    /// with all its scripts, or some would go on with other maps than the rest: those of other files have the texts that
    /// they had, and their modules as they are now.
    fn prepare_in_kernel(
        &mut self,
        texts: &[Text],
        going: &[u32],
    ) -> Result<(Vec<InKernelAnew>, SharedMaps), RequestError> {
        let mut prepared = Vec::new();
        let mut shared = self.maps.clone();
        let mut logs = Vec::new();
        let text_of = |script: &Script| texts.iter().find(|text| text.is_of(script));
        let made_anew = self.scripts.iter().filter(|script| text_of(script).is_some());
        let made_anew: Vec<Key> = made_anew.map(|script| script.key.clone()).collect();
        // A host without CAP_BPF has none of these, and no ring.
        let is_meant = |script: &&Script| {
            let stays = script.runs.kernel().is_some() && !going.contains(&script.id);
            stays && made_anew.contains(&script.key)
        };
        for _ in 0..self.scripts.iter().filter(is_meant).count() {
            logs.push(self.next_log()?);
        }
        for script in self.scripts.iter().filter(is_meant) {
            let Some(in_kernel) = script.runs.kernel() else { continue };
            let source = text_of(script).map_or(&script.text, |text| &text.source);
            let source = as_loaded(&script.attachment, source.clone());
            let mut own = script.runs.user().map(|threads| threads.own.lock().clone());
            let maps = match &mut own {
                Some(own) => Some(own),
                None => shared.iter_mut().find(|(key, _)| *key == script.key).map(|(_, maps)| maps),
            };
            let (Some(maps), Some(log)) = (maps, logs.pop()) else { continue };
            let loaded = in_kernel.prepare(&script.attachment, &source, maps, &self.common.links, log);
            prepared.push((script.id, loaded.map_err(RequestError::NotReplacedInKernel)?, own));
        }
        Ok((prepared, shared))
    }

    /// Puts programs in the places of those that run. What the kernel refuses first is told when all were tried.
    fn replace_in_kernel(&mut self, prepared: Vec<InKernelAnew>) -> Result<(), RequestError> {
        let mut result = Ok(());
        for (id, prepared, own) in prepared {
            let Some(script) = self.scripts.iter_mut().find(|script| script.id == id) else { continue };
            if let (Some(threads), Some(own)) = (script.runs.user(), own) {
                *threads.own.lock() = own;
            }
            match script.runs.kernel_mut().map(|in_kernel| in_kernel.replace(prepared)).transpose() {
                Ok(told) => self.tell(id, &told.unwrap_or_default()),
                Err(error) => result = result.and(Err(error.into())),
            }
        }
        result
    }

    /// Attaches a script that was not there, as the last one.
    fn attach_new(&mut self, attachment: &Attachment, texts: &[Text]) -> Result<(), RequestError> {
        let (id, key) = (self.last_id + 1, key_of(attachment));
        let own = texts.iter().find(|text| text.key == key && text.file == attachment.file);
        let text = own.map(|text| text.source.clone()).unwrap_or_default();
        let runs = self.attach(id, attachment, &as_loaded(attachment, text.clone()), &key)?;
        self.last_id = id;
        self.scripts.push(Script { id, attachment: attachment.clone(), key, text, runs });
        Ok(())
    }

    /// Takes away what has come after the script of this number, and has the maps and texts of before.
    fn take_back(&mut self, last_before: u32, maps: SharedMaps, texts: &[Text]) {
        let came: Vec<&Text> = texts.iter().filter(|text| self.came_with_new(text, last_before)).collect();
        let new: Vec<u32> =
            self.scripts.iter().map(|script| script.id).filter(|id| *id > last_before).collect();
        for id in new {
            if let Err(error) = self.detach(id).and_then(|detached| detached) {
                warn!("script {id}: {error}");
            }
        }
        let before = self.in_groups(came.into_iter(), |script, _| &script.text);
        if let Err(error) = self.replace_in_groups(&before) {
            warn!("scripts do not get back the texts that they had: {error}");
        }
        self.maps = maps;
        self.end_unused();
    }

    /// Says that the scripts after this number are there.
    fn welcome(&mut self, last_before: u32) {
        for at in 0..self.scripts.len() {
            let Script { id, attachment, key, runs, .. } = &self.scripts[at];
            let (id, key) = (*id, key.clone());
            if id <= last_before {
                continue;
            }
            info!(
                event = "script_loaded",
                script = id,
                "{}: loaded as script {id} at {}",
                attachment.file.display(),
                attachment.hook.name()
            );
            if let Some(other) = self.first_nevertheless(id, attachment, runs) {
                let what = format!(
                    "script {other} comes before this one, though it was loaded before: it runs in another tier \
                     (load both with the same --tier)"
                );
                warn!("script {id}: {what}");
                self.common.log.add(id, &what);
            }
            self.restored(&key);
            self.compare_exported(id);
        }
    }

    /// Gives a script no more packets, and forgets it. It is still there where its queues cannot be left; and it is gone
    /// where the kernel then says something else of its program.
    fn detach(&mut self, id: u32) -> linux::Result<linux::Result<()>> {
        let Some(at) = self.scripts.iter().position(|script| script.id == id) else { return Ok(Ok(())) };
        let Script { attachment, key, text, runs, .. } = self.scripts.remove(at);
        if let Err(error) = rules::end_hold(Hold::NotAttached(id)) {
            warn!("script {id}: packets are still dropped that came by its interface: {error}");
        }
        let (detached, threads) = match runs {
            Runs::User(threads) => (Ok(()), Some(threads)),
            Runs::Kernel(in_kernel) => (in_kernel.detach(&mut self.attach_journal), None),
            Runs::Both(in_kernel, threads) => {
                let detached = in_kernel.detach(&mut self.attach_journal);
                // What it has handed over finds its queue.
                std::thread::sleep(SETTLE);
                (detached, Some(threads))
            }
        };
        if let Some(threads) = threads
            && let Err(error) = self.leave_queues(id, &key, &threads)
        {
            self.scripts.insert(at, Script { id, attachment, key, text, runs: Runs::User(threads) });
            return Err(error);
        }
        Ok(detached)
    }

    /// Puts back the rules that are gone.
    pub(super) fn restore_rules(&mut self) -> linux::Result<()> {
        // Rules that could not be taken away when their scripts came.
        self.scripts.iter().for_each(|script| self.holds.let_go(&script.attachment));
        let there = There::look()?;
        let detached = self.scripts.iter().filter(|script| script.not_attached().is_some());
        let detached = detached.map(|script| (Hold::NotAttached(script.id), &script.attachment));
        for (hold, attachment) in self.holds.chains().chain(detached) {
            if !there.holds(hold, attachment) {
                rules::hold(hold, attachment)?;
                warn!(
                    event = "rules_restored",
                    "the rules of {} were gone: put back",
                    attachment.file.display()
                );
            }
        }
        for script in &self.scripts {
            let (Some(threads), mark) = (script.runs.user(), script.runs.mark()) else { continue };
            if there.has_all(script.id, mark) {
                continue;
            }
            let queues = self.slots.queues(threads.slot);
            rules::restore(script.id, &script.attachment, &queues, threads.place, mark)?;
            let id = script.id;
            warn!(event = "rules_restored", script = id, "the rules of script {id} were gone: put back");
        }
        Ok(())
    }
}

/// The state of a script.
fn key_of(attachment: &Attachment) -> Key {
    attachment.state.map_or_else(|| Key::File(attachment.file.clone()), Key::Number)
}

/// What a state is to load.
fn as_loaded(attachment: &Attachment, source: String) -> vm::Script {
    vm::Script {
        path: attachment.file.display().to_string(),
        source,
        function: attachment.function.clone(),
        state: 0,
        failure: attachment.failure.verdict(),
    }
}
