//! Words of setkey's language, with where they stand, and what is said of wrong ones.

use std::fmt;

use zeroize::Zeroizing;

/// Where a word begins; both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// What is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where it is.
    pub position: Position,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(f, "line {line}, column {column}: {}; {}", self.message, self.remedy)
    }
}

impl std::error::Error for SyntaxError {}

/// A word. It may be a key, and is wiped.
pub(super) struct Word {
    pub(super) text: Zeroizing<String>,
    pub(super) is_quoted: bool,
    pub(super) position: Position,
}

impl Word {
    pub(super) fn error(&self, message: impl Into<String>, remedy: impl Into<String>) -> SyntaxError {
        SyntaxError { position: self.position, message: message.into(), remedy: remedy.into() }
    }

    /// The word as it may be repeated: what could be a key is not.
    pub(super) fn shown(&self) -> String {
        if self.is_quoted || self.text.starts_with("0x") {
            return "this key or number".into();
        }
        format!("“{}”", self.text.as_str())
    }
}

/// The words of one command, without its semicolon.
pub(super) type Sentence = (Vec<Word>, Position);

/// Splits a text into commands; `#` begins a comment, to the end of the line.
pub(super) fn sentences(text: &str) -> Result<Vec<Sentence>, SyntaxError> {
    let mut sentences = Vec::new();
    let mut words: Vec<Word> = Vec::new();
    let mut characters = Characters { rest: text.chars().peekable(), at: Position { line: 1, column: 1 } };
    while let Some((character, position)) = characters.next() {
        match character {
            ';' => sentences.push((std::mem::take(&mut words), position)),
            '#' => while characters.next_if(|next| next != '\n').is_some() {},
            '"' => words.push(Word { text: characters.quoted(position)?, is_quoted: true, position }),
            _ if character.is_whitespace() => {}
            _ => {
                let mut text = Zeroizing::new(String::from(character));
                let ends = |next: char| next.is_whitespace() || matches!(next, ';' | '#' | '"');
                while let Some(next) = characters.next_if(|next| !ends(next)) {
                    text.push(next);
                }
                words.push(Word { text, is_quoted: false, position });
            }
        }
    }
    if let Some(first) = words.first() {
        return Err(first.error("this command does not end", "put a semicolon behind it"));
    }
    Ok(sentences)
}

struct Characters<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    at: Position,
}

impl Characters<'_> {
    fn next(&mut self) -> Option<(char, Position)> {
        let character = self.rest.next()?;
        let position = self.at;
        if character == '\n' {
            self.at = Position { line: position.line + 1, column: 1 };
        } else {
            self.at.column += 1;
        }
        Some((character, position))
    }

    fn next_if(&mut self, is_wanted: impl Fn(char) -> bool) -> Option<char> {
        if !is_wanted(*self.rest.peek()?) {
            return None;
        }
        self.next().map(|(character, _)| character)
    }

    fn quoted(&mut self, begin: Position) -> Result<Zeroizing<String>, SyntaxError> {
        let mut text = Zeroizing::new(String::new());
        while let Some(next) = self.next_if(|next| next != '\n') {
            if next == '"' {
                return Ok(text);
            }
            text.push(next);
        }
        Err(SyntaxError {
            position: begin,
            message: "this string does not end".into(),
            remedy: "put a quotation mark behind it, on the same line".into(),
        })
    }
}
