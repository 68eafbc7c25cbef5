//! What a client says before it is connected, in the words of SOCKS or HTTP: who it is, and what it wants.

use crate::http_connect::{self, Refusal};
use crate::passwords::Passwords;
use crate::socks5::{self, Request, RequestError};
use crate::target::Target;

/// What a client speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// SOCKS 5.
    Socks,
    /// HTTP.
    Http,
    /// Whatever its target does.
    Nothing(Target),
}

/// How far a client is with what it says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The first message; of HTTP, the only one.
    Greeting,
    /// The password is awaited.
    Password,
    /// What it wants is awaited.
    Request,
}

/// What a client wants.
pub(crate) enum Wish {
    Connection(Target),
    /// Datagrams, which come from this port, if it has said so.
    Datagrams(Option<u16>),
}

/// What has come of what a client has said.
pub(crate) enum Understood {
    /// It is not all there.
    Partly,
    /// It is further.
    Step(Step),
    /// That is what it wants.
    Wish(Wish),
    /// It is told so, and hung up on.
    Refused,
    /// It is told so, after a while.
    WrongPassword,
}

/// It speaks something else.
pub(crate) struct NotUnderstood;

/// What a client has said, from which what is understood is taken, and what it is answered.
pub(crate) struct Words<'a> {
    pub(crate) said: &'a mut Vec<u8>,
    pub(crate) answer: &'a mut Vec<u8>,
}

impl Words<'_> {
    fn heard(&mut self, length: usize) {
        self.said.drain(..length);
    }
}

/// Takes the next message, if it is all there. With `passwords`, it has to say one of them.
pub(crate) fn hear(
    speaks: &Speaks,
    step: Step,
    mut words: Words<'_>,
    passwords: Option<&Passwords>,
) -> Result<Understood, NotUnderstood> {
    match (speaks, step) {
        (Speaks::Http, _) => Ok(http(&mut words, passwords)),
        (Speaks::Nothing(_), _) => Err(NotUnderstood),
        (Speaks::Socks, Step::Greeting) => greeting(&mut words, passwords),
        (Speaks::Socks, Step::Password) => password(&mut words, passwords),
        (Speaks::Socks, Step::Request) => socks(&mut words),
    }
}

fn http(words: &mut Words<'_>, passwords: Option<&Passwords>) -> Understood {
    match http_connect::request(words.said) {
        Err(refusal) => {
            words.answer.extend_from_slice(refusal.message());
            Understood::Refused
        }
        Ok(None) => Understood::Partly,
        Ok(Some((length, asked))) => {
            if let Some(passwords) = passwords
                && !asked.credentials.as_ref().is_some_and(|credentials| passwords.admit(credentials))
            {
                words.answer.extend_from_slice(Refusal::PasswordRequired.message());
                // A browser asks its user when it is told, and has tried nothing before.
                let has_tried = asked.credentials.is_some();
                return if has_tried { Understood::WrongPassword } else { Understood::Refused };
            }
            words.heard(length);
            Understood::Wish(Wish::Connection(asked.target))
        }
    }
}

fn greeting(words: &mut Words<'_>, passwords: Option<&Passwords>) -> Result<Understood, NotUnderstood> {
    let Some((length, offers)) = socks5::greeting(words.said).map_err(|_| NotUnderstood)? else {
        return Ok(Understood::Partly);
    };
    let (answer, step) = match passwords {
        Some(_) if offers.password => (socks5::PASSWORD_PLEASE, Step::Password),
        None if offers.nothing => (socks5::WELCOME, Step::Request),
        _ => {
            words.answer.extend_from_slice(&socks5::NO_METHOD);
            return Ok(Understood::Refused);
        }
    };
    words.heard(length);
    words.answer.extend_from_slice(&answer);
    Ok(Understood::Step(step))
}

fn password(words: &mut Words<'_>, passwords: Option<&Passwords>) -> Result<Understood, NotUnderstood> {
    let Some((length, credentials)) = socks5::password(words.said).map_err(|_| NotUnderstood)? else {
        return Ok(Understood::Partly);
    };
    words.heard(length);
    if passwords.is_some_and(|passwords| passwords.admit(&credentials)) {
        words.answer.extend_from_slice(&socks5::ADMITTED);
        return Ok(Understood::Step(Step::Request));
    }
    words.answer.extend_from_slice(&socks5::NOT_ADMITTED);
    Ok(Understood::WrongPassword)
}

fn socks(words: &mut Words<'_>) -> Result<Understood, NotUnderstood> {
    match socks5::request(words.said) {
        Ok(None) => Ok(Understood::Partly),
        Ok(Some((length, request))) => {
            words.heard(length);
            Ok(Understood::Wish(match request {
                Request::Connect(target) => Wish::Connection(target),
                Request::Associate(port) => Wish::Datagrams(port),
            }))
        }
        Err(RequestError::NotSocks) => Err(NotUnderstood),
        Err(RequestError::Refused(reply)) => {
            words.answer.extend_from_slice(&reply.message());
            Ok(Understood::Refused)
        }
    }
}
