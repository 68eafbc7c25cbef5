//! Which of two gateways of a site this one is, in words.
//!
//! This and `text` need each other: that one writes the whole status, and has the words for times.

use control::standby::Status;

use super::text::{duration, milliseconds};

/// What an agent says is old after so many milliseconds: it says something several times in a second.
pub(crate) const OLD_MS: u64 = 5000;

/// Which it is, and what is known of the other one.
pub(crate) fn describe(standby: &Status) -> String {
    let since = duration(standby.since_s);
    let mut text = match standby.turn {
        Some(turn) => format!("active for {since}, turn {turn}"),
        None => format!("stands by for {since}"),
    };
    let Some((view, age)) = standby.view.as_ref().zip(standby.view_ms) else {
        return text + "; its agent has said nothing yet";
    };
    if age >= OLD_MS {
        text += &format!("; its agent says nothing for {}", milliseconds(age as f64));
        return text;
    }
    text += &match (&view.other, view.other_ms) {
        (Some(other), Some(ago)) => {
            format!("; the other one was {other} {} ago", milliseconds((ago + age) as f64))
        }
        _ => "; the other one was not heard".to_owned(),
    };
    if !view.register {
        text += "; no controller answers";
    }
    text
}

#[cfg(test)]
mod tests {
    use control::standby::View;

    use super::*;

    #[test]
    fn it_says_no_more_than_is_known() {
        let mut status = Status { turn: None, since_s: 61, view: None, view_ms: None };
        assert_eq!(describe(&status), "stands by for 1 min 1 s; its agent has said nothing yet");
        let view = View { known: 7, other: Some("active".into()), other_ms: Some(40), register: true };
        (status.view, status.view_ms) = (Some(view), Some(60));
        assert_eq!(describe(&status), "stands by for 1 min 1 s; the other one was active 100 ms ago");
        status.view.as_mut().expect("one").register = false;
        status.turn = Some(7);
        assert!(describe(&status).starts_with("active for 1 min 1 s, turn 7; "));
        assert!(describe(&status).ends_with("; no controller answers"));
        status.view_ms = Some(OLD_MS);
        assert!(describe(&status).contains("its agent says nothing for"), "{}", describe(&status));
    }
}
