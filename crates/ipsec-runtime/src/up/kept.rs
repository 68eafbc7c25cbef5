//! A table of nftables that comes back when somebody changes it or takes it away.
//!
//! nft takes tens of milliseconds, the more networks the longer. It is run only to change something, and once the table is
//! there in a thread of its own, so that no packet waits for it.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use linux::event::Waker;
use linux::nft;
use linux::ruleset::{self, Family, Snapshot};
use linux::undo::Journal;
use tracing::{debug, warn};

use crate::error::Error;

const FAMILY: &str = "inet";

/// The table, as it was made last, and as it is to be.
#[derive(Debug)]
pub(super) struct Kept {
    name: String,
    made: Option<Made>,
    /// How it is to be, where that is something else.
    wanted: Option<String>,
    /// Somebody, perhaps this process, has changed it.
    is_doubted: bool,
    /// What a thread is about to say.
    at_work: Option<Receiver<linux::Result<Done>>>,
}

/// The script that has made it, and how the kernel has it since, if that is known.
#[derive(Debug, Clone)]
struct Made {
    script: String,
    found: Option<Snapshot>,
}

#[derive(Debug)]
struct Done {
    made: Made,
    was_changed: bool,
}

impl Kept {
    /// A table of this name, of the family `inet`; nothing is made.
    pub(super) fn new(name: String) -> Self {
        Self { name, made: None, wanted: None, is_doubted: false, at_work: None }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Makes the table by this script, unless it is there so. It is in force when this returns.
    pub(super) fn make(&mut self, script: String, journal: &mut Journal) -> Result<(), Error> {
        self.wait();
        self.wanted = None;
        if self.made.as_ref().is_some_and(|made| made.script == script) {
            return Ok(());
        }
        let name = &self.name;
        self.made = Some(put(script, name, |script| journal.set_table(FAMILY, name, script))?);
        Ok(())
    }

    /// Has the table made by this script soon, if it is there in another way. `waker` tells when it is.
    pub(super) fn make_soon(&mut self, script: String, waker: &Waker) {
        self.wanted = Some(script);
        self.work(waker);
    }

    /// Somebody may have changed it: has it looked at soon, and put back. `waker` tells when that is done.
    pub(super) fn restore_soon(&mut self, waker: &Waker) {
        self.is_doubted = true;
        self.work(waker);
    }

    /// What has become of it since the last call: whether it was put back.
    ///
    /// # Errors
    /// Where nft failed: it is to be looked at again.
    pub(super) fn finished(&mut self, waker: &Waker) -> Result<bool, Error> {
        let Some(at_work) = &self.at_work else { return Ok(false) };
        let done = match at_work.try_recv() {
            Err(TryRecvError::Empty) => return Ok(false),
            Err(TryRecvError::Disconnected) => Err(std::io::Error::other("no thread for nft").into()),
            Ok(done) => done.map_err(Error::from),
        };
        self.at_work = None;
        let done = done?;
        self.made = Some(done.made);
        self.work(waker);
        if done.was_changed {
            warn!(
                "somebody has changed table {}, which keeps traffic inside: it is as it was again",
                self.name
            );
        }
        Ok(done.was_changed)
    }

    /// Waits for what is being done: before somebody else takes the table away.
    pub(super) fn wait(&mut self) {
        if let Some(at_work) = self.at_work.take()
            && let Ok(Ok(done)) = at_work.recv()
        {
            self.made = Some(done.made);
        }
    }

    /// It is wanted no more.
    pub(super) fn forget(&mut self) {
        *self = Self::new(std::mem::take(&mut self.name));
    }

    fn work(&mut self, waker: &Waker) {
        // What was never made has no place in the journal.
        let Some(made) = &self.made else { return };
        if self.at_work.is_some() {
            return;
        }
        let script = self.wanted.take().filter(|wanted| *wanted != made.script);
        if script.is_none() && !std::mem::take(&mut self.is_doubted) {
            return;
        }
        let (send, receive) = channel();
        let (made, name, waker) = (made.clone(), self.name.clone(), waker.clone());
        let work = move || {
            // Who asked may have ended.
            let _ = send.send(bring_about(made, script, &name));
            waker.wake();
        };
        self.at_work = Some(receive);
        // A thread that there is no room for says nothing, which `finished` takes for a failure.
        if std::thread::Builder::new().name("table".into()).spawn(work).is_err() {
            debug!("no thread for table {}", self.name);
        }
    }
}

/// Makes another table of it, or what it was again if somebody has changed it.
fn bring_about(made: Made, script: Option<String>, name: &str) -> linux::Result<Done> {
    let now = Snapshot::of(&[(Family::Inet, name)])?;
    if script.is_none() && made.found.as_ref().is_some_and(|found| found.is_same(&now)) {
        return Ok(Done { made, was_changed: false });
    }
    let was_changed = script.is_none();
    let made = put(script.unwrap_or(made.script), name, nft::apply)?;
    Ok(Done { made, was_changed })
}

/// Makes it, and says how the kernel has it then.
fn put(script: String, name: &str, mut apply: impl FnMut(&str) -> linux::Result<()>) -> linux::Result<Made> {
    let tables = [(Family::Inet, name)];
    let before = Snapshot::of(&tables)?;
    let is_whole = |(): &(), found: &Snapshot| found.has(0);
    let ((), found) = ruleset::make_and_look(&before, &tables, || apply(&script), is_whole)?;
    Ok(Made { script, found })
}
