//! A terminal screen that follows a status until the user leaves it.

use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::Frame;

use super::INTERVAL;
use crate::cli::{Failure, output};

/// How often the screen is drawn between two questions.
const FRAME: Duration = Duration::from_millis(100);

/// What is on a screen.
pub(crate) trait Screen {
    /// What it shows.
    type Status;

    /// Takes what was answered.
    fn update(&mut self, answer: Result<Self::Status, String>, now: Instant);

    /// Why nothing was shown yet.
    fn failed(&self) -> Option<&str>;

    /// Goes so many parts down, or up.
    fn scroll(&mut self, by: isize);

    /// Draws it, in any size.
    fn draw(&self, frame: &mut Frame<'_>, now: Instant);
}

/// Follows it until the user ends it with q, Escape or Ctrl-C.
pub(crate) fn follow<S: Screen>(
    mut screen: S,
    ask: impl Fn() -> Result<S::Status, String>,
) -> Result<(), Failure> {
    screen.update(ask(), Instant::now());
    // Nothing there at the start is a mistake; later it is a daemon that is restarted.
    if let Some(error) = screen.failed() {
        return Err(Failure::Message(error.to_owned()));
    }
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::Message(format!("no screen: {error}")))?;
    let result = (|| {
        let mut asked = Instant::now();
        loop {
            if asked.elapsed() >= INTERVAL {
                asked = Instant::now();
                screen.update(ask(), asked);
            }
            terminal.draw(|frame| screen.draw(frame, Instant::now()))?;
            if event::poll(FRAME)? && handle(&mut screen, &event::read()?) {
                return Ok(());
            }
        }
    })();
    ratatui::restore();
    output(result)
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
