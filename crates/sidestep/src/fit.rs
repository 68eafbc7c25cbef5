//! Text in as many columns as there are: cut with an ellipsis, padded, or wrapped between words, never through one unseen.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthChar as _;

/// What stands where something is missing.
const ELLIPSIS: char = '…';

/// As long as needed, at most `width` columns: what does not fit ends in an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if self::width(text) <= width {
        return text.to_owned();
    }
    let Some(mut free) = width.checked_sub(1) else { return String::new() };
    let fits = |character: &char| {
        let rest = free.checked_sub(columns(*character));
        free = rest.unwrap_or(0);
        rest.is_some()
    };
    let mut shown: String = text.chars().take_while(fits).collect();
    shown.push(ELLIPSIS);
    shown
}

/// The same, with the ellipsis after somewhat more than half.
pub(crate) fn cut_inside(text: &str, width: usize) -> String {
    let tail = width * 2 / 5;
    if self::width(text) <= width || tail == 0 {
        return cut(text, width);
    }
    let mut free = tail;
    let fits = |character: &char| {
        let rest = free.checked_sub(columns(*character));
        free = rest.unwrap_or(0);
        rest.is_some()
    };
    let end: String = text.chars().rev().take_while(fits).collect();
    cut(text, width - self::width(&end)) + &end.chars().rev().collect::<String>()
}

/// Exactly `width` columns: cut where it is longer, with spaces after it where it is shorter, or before it.
pub(crate) fn pad(text: &str, width: usize, to_the_right: bool) -> String {
    let shown = cut(text, width);
    let spaces = " ".repeat(width.saturating_sub(self::width(&shown)));
    if to_the_right { spaces + &shown } else { shown + &spaces }
}

/// A line in as many as it takes with `width` columns, all but the first indented. They end between words; a word that is
/// longer than a line goes on in the next, after an ellipsis.
pub(crate) fn wrap(line: &Line<'_>, width: usize, indent: usize) -> Vec<Line<'static>> {
    let styled = |span: &Span<'_>| -> Vec<(char, Style)> {
        span.content.chars().map(|character| (character, span.style)).collect()
    };
    let characters: Vec<(char, Style)> = line.spans.iter().flat_map(styled).collect();
    let mut rest = &characters[..];
    let mut lines: Vec<Line<'static>> = Vec::new();
    loop {
        let indent = if lines.is_empty() || indent + 2 > width { 0 } else { indent };
        let (end, next, is_in_a_word) = break_of(rest, (width - indent).max(2));
        let mut shown = vec![Span::raw(" ".repeat(indent))];
        for run in rest[..end].chunk_by(|one, other| one.1 == other.1) {
            shown
                .push(Span::styled(run.iter().map(|(character, _)| character).collect::<String>(), run[0].1));
        }
        if is_in_a_word {
            shown.push(Span::raw(ELLIPSIS.to_string()));
        }
        lines.push(Line::from(shown).style(line.style));
        rest = &rest[next..];
        if rest.is_empty() {
            return lines;
        }
    }
}

/// Of so many columns: how many characters they show, where the next line goes on, and whether that is in a word.
fn break_of(characters: &[(char, Style)], width: usize) -> (usize, usize, bool) {
    let mut used = 0;
    let mut between_words = None;
    for (at, (character, _)) in characters.iter().enumerate() {
        if *character == ' ' && used <= width {
            between_words = Some(at).filter(|at| characters[..*at].iter().any(|(before, _)| *before != ' '));
        }
        used += columns(*character);
        if used > width {
            return match between_words {
                Some(end) => {
                    let spaces = characters[end..].iter().take_while(|(space, _)| *space == ' ').count();
                    (end, end + spaces, false)
                }
                None => in_a_word(&characters[..at], width),
            };
        }
    }
    (characters.len(), characters.len(), false)
}

/// Likewise of a word that is longer than the line: an ellipsis stands at its end, if there is room for one beside a letter.
fn in_a_word(fitting: &[(char, Style)], width: usize) -> (usize, usize, bool) {
    let mut used = 0;
    let before_ellipsis = fitting.iter().take_while(|(character, _)| {
        used += columns(*character);
        used < width
    });
    match before_ellipsis.count() {
        0 => (fitting.len().max(1), fitting.len().max(1), false),
        count => (count, count, true),
    }
}

/// The same of plain text, as text.
pub(crate) fn wrap_text(text: &str, width: usize, indent: usize) -> String {
    let lines = wrap(&Line::from(text), width, indent);
    lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

fn columns(character: char) -> usize {
    character.width().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_too_long_ends_in_an_ellipsis() {
        assert_eq!(cut("site-b", 6), "site-b");
        assert_eq!(cut("site-b", 5), "site…");
        assert_eq!((cut("site-b", 1).as_str(), cut("site-b", 0).as_str()), ("…", ""));
        assert_eq!(cut_inside("warehouse-north-32", 11), "wareho…h-32");
        assert_eq!(pad("東京", 3, false), "東…");
        assert_eq!(pad("12", 4, true), "  12");
    }

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrap_text("no route to the peer", 12, 2), "no route to\n  the peer");
        assert_eq!(wrap_text("see 2001:db8::1234", 10, 0), "see\n2001:db8:…\n:1234");
        assert_eq!(wrap_text("", 10, 2), "");
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide_and_no_word_is_lost(text in "[a-z東é ]{0,120}", width in 2usize..60, indent in 0usize..4) {
            let lines = wrap(&Line::from(text.clone()), width, indent);
            prop_assert!(lines.iter().all(|line| line.width() <= width));
            let together: String = lines.iter().map(ToString::to_string).collect();
            let all = |text: &str| text.replace([' ', ELLIPSIS], "");
            prop_assert_eq!(all(&together), all(&text));
        }

        #[test]
        fn a_padded_text_has_its_width(text in "\\PC{0,40}", width in 0usize..60) {
            prop_assert_eq!(super::width(&pad(&text, width, false)), width);
        }
    }
}
