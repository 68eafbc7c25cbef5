//! `control login`: a browser goes to the identity provider, and comes back to this machine.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use clap::Args;
use controller::oidc::{Login, Returned, challenge, draw};
use controller::{ACCESS, Folder, Session};
use zeroize::Zeroizing;

use super::folder::{FolderOption, run};
use crate::failure::Failure;
use crate::terminal::print;

/// Octets of a request that a browser sends.
const LONGEST: u64 = 16 * 1024;
/// How long it may take over one.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Log in at the identity provider of the fleet's controllers
///
/// Prints what to open in a browser on this machine, waits until it comes back, and writes the token that comes of it into `access`
/// in the folder. It is good for an hour or so, and for what the provider says of you there: see, invite, or hand in what is
/// signed. It puts nothing in force.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control login --dir ~/fleet
  sidestep control login --paste             where the browser is on another machine: paste the address that it ends at")]
pub(crate) struct LoginOptions {
    /// Take the address that the browser ends at from standard input
    #[arg(long)]
    paste: bool,
    #[command(flatten)]
    folder: FolderOption,
}

impl LoginOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        let login: Login = run(async { Ok(folder.get("/v1/login").await?) })?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let redirect_uri = format!("http://{}/login", listener.local_addr()?);
        let (state, nonce, verifier) = (draw()?, draw()?, draw()?);
        let url = login.url(&redirect_uri, &state, &nonce, &challenge(&verifier));
        print(format_args!("open {url}\n"))?;
        let code = if self.paste { pasted(&state)? } else { came_back(&listener, &state)? };
        let returned = Returned { code, verifier, nonce, redirect_uri };
        let session: Session = run(async { Ok(folder.post("/v1/session", &returned).await?) })?;
        let path = self.folder.dir.join(ACCESS);
        let text = Zeroizing::new(format!("{}\n", session.token));
        linux::file::replace(&path, text.as_bytes())
            .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
        let until = std::time::UNIX_EPOCH + Duration::from_secs(session.expires);
        let until = humantime::format_rfc3339_seconds(until);
        print(format_args!("logged in as {}, {}, until {until}\n", session.name, session.role))
    }
}

fn pasted(state: &str) -> Result<String, Failure> {
    print("the address that the browser ends at: ")?;
    let mut line = String::new();
    io::stdin().lock().take(LONGEST).read_line(&mut line)?;
    let query = line.trim().split_once('?').map_or("", |(_, query)| query);
    match code_of(query, state) {
        Some(code) => code,
        None => Err(Failure::Message("that is no answer to this login".to_owned())),
    }
}

/// Waits for the browser with the answer to this login: whatever else comes is not it.
fn came_back(listener: &TcpListener, state: &str) -> Result<String, Failure> {
    loop {
        let (mut stream, _) = listener.accept()?;
        let Ok(target) = target_of(&stream) else { continue };
        let query = target.strip_prefix("/login?").unwrap_or_default();
        let code = code_of(query, state);
        let (status, words) = match &code {
            Some(Ok(_)) => ("200 OK", "You can close this, and go on where you began.\n"),
            Some(Err(_)) => ("403 Forbidden", "You were not let in: look where you began.\n"),
            None => ("404 Not Found", "This is no answer to the login that waits here.\n"),
        };
        // It may have gone.
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{words}",
            words.len()
        );
        if let Some(code) = code {
            return code;
        }
    }
}

/// The target of a request.
fn target_of(stream: &TcpStream) -> io::Result<String> {
    stream.set_read_timeout(Some(REQUEST_TIME))?;
    let mut reader = BufReader::new(stream.take(LONGEST));
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    // All of its head, so that it hears the answer.
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    Ok(first.split(' ').nth(1).unwrap_or_default().to_owned())
}

/// The code of an answer to this login, or why there is none; nothing, if it answers another.
fn code_of(query: &str, state: &str) -> Option<Result<String, Failure>> {
    let pairs = || form_urlencoded::parse(query.as_bytes());
    let field = |name: &str| pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    if field("state")? != state {
        return None;
    }
    Some(match (field("code"), field("error")) {
        (Some(code), None) => Ok(code),
        (_, error) => {
            let error: String = error.unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
            Err(Failure::Message(format!("the identity provider has let nobody in: {error}")))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_another_login_is_none() {
        let code = |query| code_of(query, "s1").map(|code| code.map_err(|failure| failure.to_string()));
        assert_eq!(code("code=a%2Bb&state=s1"), Some(Ok("a+b".to_owned())));
        for other in ["", "code=a", "code=a&state=s2", "code=a&state=", "state=s", "code=a&state=s1x"] {
            assert_eq!(code(other), None, "{other}");
        }
        let denied = code("error=access_denied%1b&state=s1").unwrap().unwrap_err();
        assert!(denied.ends_with("access_denied"), "{denied}");
        assert!(code("state=s1").unwrap().is_err());
        assert!(code("state=s1&code=a&error=x").unwrap().is_err());
    }

    #[test]
    fn it_waits_for_the_right_one_among_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let browser = std::thread::spawn(move || {
            let ask = |target: &str| {
                let mut stream = TcpStream::connect(address).unwrap();
                write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                answer[9..12].to_owned()
            };
            drop(TcpStream::connect(address).unwrap());
            [
                "/favicon.ico",
                "/login?code=evil&state=guess",
                "/other?code=c&state=s1",
                "/login?code=c&state=s1",
            ]
            .map(ask)
        });
        assert_eq!(came_back(&listener, "s1").unwrap(), "c");
        assert_eq!(browser.join().unwrap(), ["404", "404", "404", "200"]);
    }
}
