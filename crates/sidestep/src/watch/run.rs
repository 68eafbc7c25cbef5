//! The terminal: keys in, the screen out, and as it was before in the end.

use std::io;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use control::Error;
use crossterm::event::{self, Event};
use linux::event::{Events, Interest, Poller, Signals, Waker};

use super::app::{App, Tab};
use super::source::{Answer, Source};
use crate::failure::Failure;
use crate::show::table::Choice;
use crate::terminal::{INTERVAL, output};

/// How often a screen is drawn on which a time runs.
const FRAME: Duration = Duration::from_millis(100);

const KEYS: u64 = 0;
const SIGNALS: u64 = 1;
const ANSWERS: u64 = 2;

/// Follows it until the user ends it by a key or a signal. What does not answer at the start is a mistake, later it is a daemon
/// that is restarted, which the screen tells.
pub(crate) fn run(mut source: Source, tab: Tab, choice: Choice) -> Result<(), Failure> {
    let mut app = App::new(tab, choice);
    let first = source.ask();
    if let Some(error) = failure(&first, tab) {
        return Err(Failure::Message(error));
    }
    app.update(first);
    // Before there is another thread, which would get the signals otherwise.
    let signals = Signals::new()?;
    let waker = Waker::new()?;
    let poller = Poller::new()?;
    poller.add(io::stdin(), KEYS, Interest::Readable)?;
    poller.add(&signals, SIGNALS, Interest::Readable)?;
    poller.add(&waker, ANSWERS, Interest::Readable)?;
    let answers = source.follow(waker.clone());
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::Message(format!("cannot use the terminal: {error}")))?;
    let mut events = Events::with_capacity(3);
    // Whether there is another after it.
    let mut turn = || -> io::Result<bool> {
        terminal.draw(|frame| app.draw(frame, Instant::now()))?;
        let ready = wait(&mut events, &poller, if app.moves() { FRAME } else { INTERVAL })?;
        if ready.is_gone || ready.has_signal {
            return Ok(false);
        }
        waker.drain();
        loop {
            match answers.try_recv() {
                Ok(answer) => app.update(answer),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(io::Error::other("nobody asks any more")),
            }
        }
        // Also where there are none: a terminal of another size is told in this way.
        while event::poll(Duration::ZERO)? {
            if matches!(event::read()?, Event::Key(key) if app.press(key)) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let result = loop {
        match turn() {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    if wait(&mut events, &poller, Duration::ZERO).is_ok_and(|ready| ready.is_gone) {
        // Nothing to restore, and nobody to tell: what is dropped here would complain, and panic as it cannot.
        std::mem::forget(terminal);
        return Ok(());
    }
    ratatui::restore();
    output(result)
}

/// Why there is nothing to show, of what the screen is to be of.
fn failure(answer: &Answer, tab: Tab) -> Option<String> {
    match (tab, &answer.gateway) {
        (Tab::Gateway, gateway) => gateway.as_ref()?.as_ref().err().map(ToString::to_string),
        _ if answer.tunnels.iter().any(|(_, status)| status.is_ok()) => None,
        _ => {
            let told =
                answer.tunnels.iter().find_map(|(_, status)| status.as_ref().err().map(ToString::to_string));
            told.or_else(|| Some(Error::NoSocket(control::FOLDER.into()).to_string()))
        }
    }
}

/// What has come.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ready {
    has_signal: bool,
    is_gone: bool,
}

/// Waits for keys, signals and answers, at most so long. `crossterm` reads for ever from a terminal that is gone: it is not
/// asked then.
fn wait(events: &mut Events, poller: &Poller, time: Duration) -> io::Result<Ready> {
    poller.wait(events, Some(time))?;
    let mut ready = Ready::default();
    for event in events.iter() {
        ready.has_signal |= event.token == SIGNALS;
        ready.is_gone |= event.token == KEYS && (event.hung_up || event.error);
    }
    Ok(ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn it_ends_with_its_terminal() {
        let (terminal, mut keyboard) = io::pipe().unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
        poller.add(&terminal, KEYS, Interest::Readable).unwrap();
        assert_eq!(wait(&mut events, &poller, FRAME).unwrap(), Ready::default());
        keyboard.write_all(b"j").unwrap();
        assert!(!wait(&mut events, &poller, FRAME).unwrap().is_gone);
        drop(keyboard);
        assert!(wait(&mut events, &poller, FRAME).unwrap().is_gone);
    }
}
