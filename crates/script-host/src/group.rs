//! Scripts that share Lua states, and the threads that run them.
//!
//! Each thread has states of its own; `nf.table` and its like are one for all. A thread of its own does what scripts put
//! off. Scripts of different groups share nothing, no thread either: one that loops holds up its own packets.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::time::Duration;

use linux::event::Waker;
use linux::queue::Socket;
use script::link;
use script::vm::{MAX_DEFERRED, Script, Tables};

use super::decided::OwnMaps;
use super::error::AttachError;
use super::statistics::Statistics;
use super::thread_host::Common;
use super::worker::{Answer, Command, DeferredSender, Texts, Worker};
use config::attachment::{Attachment, Hook};
use config::folder::Folder;

/// How long a thread may take to load a script: it ends the packets that it has first.
const PATIENCE: Duration = Duration::from_secs(15);

/// Which scripts share states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// Those of this number.
    Number(u32),
    /// Those of this file.
    File(PathBuf),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

struct Thread {
    commands: Sender<Command>,
    waker: Waker,
}

impl Thread {
    fn tell(&self, command: Command) {
        // One that has ended has said why.
        let _ = self.commands.send(command);
        self.waker.wake();
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // It ends when it finds that nobody gives commands: after the channel is dropped, so it is woken late enough.
        let (closed, _) = channel();
        drop(std::mem::replace(&mut self.commands, closed));
        self.waker.wake();
    }
}

/// Scripts that share states. Their threads end when it is dropped.
pub(super) struct Group {
    pub(super) key: Key,
    /// Those for packets, then the one for what was put off.
    threads: Vec<Thread>,
    pub(super) tables: Tables,
}

impl Group {
    /// A group without scripts, with so many threads for packets.
    pub(super) fn start(key: Key, count: usize, common: &Common) -> linux::Result<Self> {
        let tables = Tables::default();
        let (calls, deferred) = sync_channel(MAX_DEFERRED);
        let sender = DeferredSender { calls, waker: Waker::new()? };
        let mut threads = Vec::new();
        let mut deferred = Some(deferred);
        for number in 0..=count {
            let is_last = number == count;
            let waker = if is_last { sender.waker.clone() } else { Waker::new()? };
            let sender = (!is_last).then(|| sender.clone());
            let deferred = is_last.then(|| deferred.take()).flatten();
            let (commands, received) = channel();
            let (common, tables, own) = (common.clone(), tables.clone(), waker.clone());
            let name = if is_last { "deferred".to_owned() } else { format!("scripts-{number}") };
            // A machine stays in the thread that made it.
            let body = move || match Worker::new(common.clone(), tables, sender, &own) {
                Ok(worker) => worker.run(&received, deferred.as_ref(), &own),
                Err(error) => common.log.add(0, &format!("a thread of scripts does not start: {error}")),
            };
            std::thread::Builder::new()
                .name(name)
                .spawn(body)
                .map_err(|source| linux::Error { what: "start a thread for scripts".into(), source })?;
            threads.push(Thread { commands, waker });
        }
        Ok(Self { key, threads, tables })
    }

    /// Loads a script in all threads, or in none.
    pub(super) fn load(
        &self,
        id: u32,
        script: &Script,
        attachment: &Attachment,
        statistics: &Arc<Statistics>,
        own: &OwnMaps,
    ) -> Result<(), AttachError> {
        let loaded = self.ask(|answer| {
            let (script, statistics) = (script.clone(), Arc::clone(statistics));
            let (folder, inward) = (Folder::of(&attachment.file), !attachment.hook.is_outward());
            Command::Load { id, script, folder, inward, statistics, own: own.clone(), answer }
        });
        loaded.inspect_err(|_| {
            self.remove(id);
        })
    }

    /// Gives a script its packets, a socket for each thread.
    pub(super) fn listen(&self, id: u32, sockets: Vec<Socket>) {
        for (thread, socket) in self.threads.iter().zip(sockets) {
            thread.tell(Command::Listen { id, socket });
        }
    }

    /// Forgets a script; what waits for it is done first. Whether nobody listens on its queues any more.
    pub(super) fn remove(&self, id: u32) -> bool {
        self.ask(|answer| Command::Remove { id, answer }).is_ok()
    }

    /// Whether other texts of its scripts could be [prepared](Self::prepare). That changes nothing.
    pub(super) fn check(&self, texts: &Texts) -> Result<(), AttachError> {
        // What one thread has, all have.
        Self::ask_of(&self.threads[..1], |answer| Command::Check { texts: Arc::clone(texts), answer })
    }

    /// Makes other texts of its scripts ready in all threads. To be [settled](Self::settle), whatever comes of it.
    pub(super) fn prepare(&self, texts: &Texts) -> Result<(), AttachError> {
        self.ask(|answer| Command::Prepare { texts: Arc::clone(texts), answer })
    }

    /// Puts what was prepared in the place of what there is, in each thread between two packets; or forgets it.
    pub(super) fn settle(&self, commit: bool) {
        self.tell(|| if commit { Command::Commit } else { Command::Abort });
    }

    fn tell(&self, command: impl Fn() -> Command) {
        for thread in &self.threads {
            thread.tell(command());
        }
    }

    /// Tells all threads something, and waits for their answers.
    fn ask(&self, command: impl Fn(Answer) -> Command) -> Result<(), AttachError> {
        Self::ask_of(&self.threads, command)
    }

    fn ask_of(threads: &[Thread], command: impl Fn(Answer) -> Command) -> Result<(), AttachError> {
        let (answer, answers) = channel();
        for thread in threads {
            thread.tell(command(answer.clone()));
        }
        drop(answer);
        for _ in threads {
            match answers.recv_timeout(PATIENCE) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(AttachError::Script(error)),
                Err(_) => return Err(AttachError::Silent(PATIENCE)),
            }
        }
        Ok(())
    }
}

/// Refuses a text that asks for addresses of link headers, where Lua has none.
pub(super) fn link_is_enough(attachment: &Attachment, source: &str) -> Result<(), AttachError> {
    let come_in = !attachment.hook.is_outward() && attachment.hook != Hook::TunnelIn;
    match link::unmet(source, &attachment.function, come_in) {
        Some(refusal) => Err(AttachError::NoLink(refusal)),
        None => Ok(()),
    }
}
