//! A terminal screen that follows a status until the user leaves it.

use std::io;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use linux::event::{Events, Interest, Poller};
use ratatui::Frame;

use crate::failure::Failure;
use crate::terminal::output;

/// How often `--watch` asks.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// How often the screen is drawn between two questions.
const FRAME: Duration = Duration::from_millis(100);

/// What is on a screen.
pub(crate) trait Screen {
    /// What it shows.
    type Status;

    /// Takes what was answered.
    fn update(&mut self, answer: Result<Self::Status, control::Error>, now: Instant);

    /// Why nothing was shown yet.
    fn failed(&self) -> Option<&control::Error>;

    /// Goes so many parts down, or up.
    fn scroll(&mut self, by: isize);

    /// Draws it, in any size.
    fn draw(&self, frame: &mut Frame<'_>, now: Instant);
}

/// Follows it until the user ends it with q, Escape or Ctrl-C.
pub(crate) fn follow<S: Screen>(
    mut screen: S,
    ask: impl Fn() -> Result<S::Status, control::Error>,
) -> Result<(), Failure> {
    screen.update(ask(), Instant::now());
    // Nothing there at the start is a mistake; later it is a daemon that is restarted.
    if let Some(error) = screen.failed() {
        return Err(Failure::Message(error.to_string()));
    }
    let (poller, mut events) = (Poller::new()?, Events::with_capacity(1));
    poller.add(io::stdin(), 0, Interest::Readable)?;
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::Message(format!("cannot use the terminal: {error}")))?;
    let result = (|| -> io::Result<()> {
        let mut asked = Instant::now();
        loop {
            if asked.elapsed() >= INTERVAL {
                asked = Instant::now();
                screen.update(ask(), asked);
            }
            terminal.draw(|frame| screen.draw(frame, Instant::now()))?;
            match wait_for_keys(&mut events, &poller, FRAME)? {
                Keys::Some if event::poll(Duration::ZERO)? && handle(&mut screen, &event::read()?) => break,
                Keys::Some | Keys::None => {}
                Keys::NoMore => break,
            }
        }
        Ok(())
    })();
    if wait_for_keys(&mut events, &poller, Duration::ZERO).is_ok_and(|keys| keys == Keys::NoMore) {
        // Nothing to restore, and nobody to tell: what is dropped here would complain, and panic as it cannot.
        std::mem::forget(terminal);
        return Ok(());
    }
    ratatui::restore();
    output(result)
}

/// What there is to read from the terminal.
#[derive(Debug, PartialEq, Eq)]
enum Keys {
    Some,
    None,
    /// It is gone.
    NoMore,
}

/// Waits for keys, at most so long. `crossterm` reads for ever from a terminal that is gone: it is not asked then.
fn wait_for_keys(events: &mut Events, poller: &Poller, time: Duration) -> io::Result<Keys> {
    poller.wait(events, Some(time))?;
    Ok(match events.iter().next() {
        None => Keys::None,
        Some(event) if event.hung_up || event.error => Keys::NoMore,
        Some(_) => Keys::Some,
    })
}

/// Whether the user wants to leave.
fn handle(screen: &mut impl Screen, event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    if key.kind == KeyEventKind::Release {
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
        KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn it_ends_with_its_terminal() {
        let (terminal, mut keyboard) = io::pipe().unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(1));
        poller.add(&terminal, 0, Interest::Readable).unwrap();
        assert_eq!(wait_for_keys(&mut events, &poller, FRAME).unwrap(), Keys::None);
        keyboard.write_all(b"j").unwrap();
        assert_eq!(wait_for_keys(&mut events, &poller, FRAME).unwrap(), Keys::Some);
        drop(keyboard);
        assert_eq!(wait_for_keys(&mut events, &poller, FRAME).unwrap(), Keys::NoMore);
    }
}
