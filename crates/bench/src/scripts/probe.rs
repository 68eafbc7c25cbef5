//! Whether somebody does the job, before it is measured.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::job::{Job, Peer};
use super::scene::{CLIENT, LISTED, Limit, Scene};
use lab::Error;
use lab::command::{check, text};

/// What the probe of a limit is made with.
pub(super) const LOW: Limit = Limit { rate: 50, burst: 100 };
/// One that nothing reaches.
pub(super) const HIGH: Limit = Limit { rate: 10_000_000, burst: 10_000_000 };
/// As Suricata writes it.
const CLIENT_AT_LENGTH: &str = "fd00:0000:0000:0000:0000:0000:0000:0002";
const PERMITTED: &str = "permitted.example";
const FORBIDDEN: &str = "forbidden.example";
/// How long a log may take.
const PATIENCE: Duration = Duration::from_secs(5);

impl Scene {
    /// Sends what tells it; what else there is to say of how it does the job.
    ///
    /// # Errors
    /// When it does not do the job, and how that is seen.
    pub(super) fn probe(&self) -> Result<Option<&'static str>, Error> {
        if self.peer == Peer::None {
            return self.probe_forwarding().map(|()| None);
        }
        match self.job {
            Job::Drop => {
                let passed = [CLIENT, LISTED].map(|from| self.ask(from, 5));
                let [passed, listed] =
                    [&passed[0], &passed[1]].map(|one| one.as_ref().map_or(0, |one| one.answered));
                expect(passed == 5 && listed == 0, || {
                    format!(
                        "of 5 questions from elsewhere {passed} were answered, of 5 from a listed prefix {listed}"
                    )
                })?;
                Ok(None)
            }
            Job::Nat => {
                let (before, answered) = (self.counted("translated")?, self.ask(CLIENT, 5)?.answered);
                let translated = self.counted("translated")? - before;
                expect(answered == 5 && translated >= 5, || {
                    format!(
                        "of 5 questions {answered} were answered, and {translated} packets had the outer address"
                    )
                })?;
                Ok(None)
            }
            Job::Limit => {
                let arrived = self.flooded(400)?;
                expect((50..=200).contains(&arrived), || {
                    format!("of 400 packets at once {arrived} arrived")
                })?;
                Ok(None)
            }
            Job::Sni => {
                let [permitted, forbidden] = [PERMITTED, FORBIDDEN].map(|name| self.connect(name, 2, &[]));
                let (permitted, forbidden) = (permitted?.answered, forbidden?.answered);
                expect(permitted == 2 && forbidden == 0, || {
                    format!(
                        "of 2 connections each, {permitted} to another name were answered, {forbidden} to the forbidden one"
                    )
                })?;
                let split = self.connect(FORBIDDEN, 1, &["--split"])?.answered;
                Ok((split > 0).then_some("lets the name pass where the ClientHello comes in two segments"))
            }
            Job::Dns => {
                self.ask(CLIENT, 1)?;
                let deadline = Instant::now() + PATIENCE;
                loop {
                    let log = self.log()?;
                    if log.contains("www.example")
                        && [CLIENT, CLIENT_AT_LENGTH].iter().any(|client| log.contains(client))
                    {
                        return Ok(None);
                    }
                    expect(Instant::now() < deadline, || {
                        "its log does not have the name that was asked for".to_owned()
                    })?;
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            Job::Balance => {
                let carried = self.connect(PERMITTED, 30, &["--exchanges", "3"])?;
                let reached: BTreeSet<u8> = carried.servers.keys().copied().collect();
                expect(carried.answered == 90 && reached == BTreeSet::from([1, 2, 3]), || {
                    format!(
                        "of 90 questions in 30 connections {} were answered, by the servers {reached:?}",
                        carried.answered
                    )
                })?;
                Ok(None)
            }
        }
    }

    /// Without any of them all that passes which they are to keep back.
    fn probe_forwarding(&self) -> Result<(), Error> {
        let (passed, all) = match self.job {
            Job::Drop => (self.ask(LISTED, 5)?.answered as u64, 5),
            Job::Sni => (self.connect(FORBIDDEN, 2, &[])?.answered as u64, 2),
            Job::Limit => (self.flooded(400)?, 400),
            Job::Nat | Job::Dns | Job::Balance => return Ok(()),
        };
        expect(passed == all, || format!("without any filter {passed} of {all} questions or packets passed"))
    }

    /// How many of so many packets that were sent at once arrive.
    fn flooded(&self, count: u32) -> Result<u64, Error> {
        let before = self.counted("arrived")?;
        self.flood(count)?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(self.counted("arrived")? - before)
    }

    /// What it has logged.
    fn log(&self) -> Result<String, Error> {
        match self.peer {
            Peer::ScriptKernel | Peer::ScriptXdp | Peer::ScriptBoth | Peer::ScriptUser => {
                let mut command = self.gateway.command(&self.program)?;
                Ok(text(&check(command.args(["script", "logs"]).stdin(Stdio::null()))?))
            }
            Peer::Suricata => {
                Ok(std::fs::read_to_string(self.directory.join("eve.json")).unwrap_or_default())
            }
            _ => Ok(self.process.as_ref().map_or_else(String::new, |process| {
                std::fs::read_to_string(process.log()).unwrap_or_default()
            })),
        }
    }
}

fn expect(good: bool, otherwise: impl FnOnce() -> String) -> Result<(), Error> {
    if good { Ok(()) } else { Err(Error::Usage(otherwise())) }
}
