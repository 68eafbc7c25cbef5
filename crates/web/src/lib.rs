//! `sidestep web`: what tunnels, gateways and packet scripts say about themselves, as a page in a browser.
//!
//! A process of its own, without privileges: it reads the control sockets, as `sidestep show` does, and changes nothing. An
//! executor (tokio), HTTP (hyper) and TLS (rustls) are here and in no daemon. Where it is given a fleet's folder, it asks the
//! fleet's controllers, too, with what that folder lets it do, and hands in what administrators have signed elsewhere.
//!
//! | module | what it is |
//! |---|---|
//! | `place` | where it may listen, and which names it answers to |
//! | `token`, `tls` | who may look, and how nobody else reads along |
//! | `server`, `places`, `patience`, `answer`, `files` | connections; requests and answers; the files of the page |
//! | `collect`, `source` | the sockets: asked, each by a thread of its own |
//! | `tunnel`, `happened` | what follows from an answer and the ones before: rates, lanes, what has happened |
//! | `feed`, `patch` | what browsers are told: everything once, then what changes |
//! | `fleet` | a fleet: what its controllers tell, verified; drafts of changes |
//! | `history`, `sample` | what has been: a day by minutes, a month by hours |
//!
//! How it moves: a thread asks a socket → `Source` takes the answer in → once a second `Collected` makes one document of all →
//! `Feed` sends each browser what has changed → `page/feed.js` applies it, and the page's views look at the result.
//!
//! Invariants:
//! - It never listens in a hopping prefix, at every address, or in the clear where others could come.
//! - Nothing but the form for the token is shown to who has not shown the token, whatever is asked for.
//! - Privileges are gone before the first thread starts and the first octet is read from the network.
//! - No key of a tunnel is shown, not even a public one; of the addresses that hop no more than `sidestep show` shows, and none
//!   is kept. Of a fleet's sites the hopping prefixes are told one at a time, and to whom its controllers tell them.
//! - No key that signs is ever asked for: what is to change is handed out as a draft.
//! - Connections, browsers, messages that wait, sockets, events and history are bounded in number.
#![forbid(unsafe_code)]

mod answer;
mod collect;
mod error;
mod feed;
mod files;
mod fleet;
mod happened;
mod history;
mod patch;
mod patience;
mod place;
mod places;
mod sample;
mod server;
mod source;
mod tls;
mod token;
mod tunnel;

pub use error::Error;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tracing::warn;

use crate::answer::Site;
use crate::collect::Collected;
use crate::fleet::People;
use crate::history::History;
use crate::place::Names;
use crate::token::Token;

/// How the page is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub listen: SocketAddr,
    /// The certificates and the private key of TLS, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Names that it answers to, beside the address and those of this machine's loopback.
    pub names: Vec<String>,
    /// Folder of the control sockets.
    pub sockets: PathBuf,
    /// Folder for token and history.
    pub state: PathBuf,
    /// Octets that the history may take.
    pub history: u64,
    /// The folder from which a fleet is administered, if the page is to be about that, too.
    pub fleet: Option<PathBuf>,
}

/// A page that listens, and does not answer yet.
pub struct Page {
    options: Options,
    listener: TcpListener,
    listen: SocketAddr,
    tls: Option<TlsAcceptor>,
    token: Token,
    people: Option<People>,
}

impl Page {
    /// Listens. Whatever needs privileges is done after that.
    ///
    /// # Errors
    /// Where it may not, or cannot, and where token or certificate cannot be had.
    pub fn bind(options: Options) -> Result<Page, Error> {
        let tls =
            options.tls.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
        std::fs::create_dir_all(&options.state)
            .map_err(|source| Error::File { path: options.state.clone(), source })?;
        let listener = place::listen(options.listen, tls.is_some(), &tunnels(&options))?;
        let listen =
            listener.local_addr().map_err(|source| Error::Listen { listen: options.listen, source })?;
        let token = Token::load(&options.state.join("token"), listen.port())?;
        let open = |folder: &PathBuf| People::open(folder, listen.port(), tls.is_some());
        let people = options.fleet.as_ref().map(open).transpose()?;
        Ok(Page { options, listener, listen, tls, token, people })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// What a browser opens, without the token.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/", self.listen)
    }

    /// What a browser opens to be let in: a secret.
    #[must_use]
    pub fn url_with_token(&self) -> String {
        format!("{}login?token={}", self.url(), self.token.reveal())
    }

    /// Gives up what is not needed from here on: all capabilities, files but the page's own, most system calls. Returns what of
    /// this the kernel does not offer. To be called before the first thread.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn confine(&self) -> Result<Vec<&'static str>, Error> {
        linux::process::keep_capabilities(&[])?;
        Ok(linux::confine::confine([self.options.state.as_path()])?)
    }

    /// Answers, until it may not go on.
    #[must_use]
    pub fn serve(self) -> Error {
        let path = self.options.state.join("history.redb");
        let history = History::open(&path, self.options.history);
        let history =
            history.inspect_err(|error| warn!("{}: {error}: there is no history", path.display())).ok();
        let collected = Arc::new(Collected::new(self.listen, history));
        if let Err(error) = collected.start(self.options.sockets.clone()) {
            return error;
        }
        let names = Names::new(self.listen, &self.options.names);
        let encrypted = self.tls.is_some();
        let (listen, token, people) = (self.listen, self.token, self.people);
        let site = Site { listen, collected, token, names, encrypted, people };
        match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
            Ok(runtime) => runtime.block_on(server::serve(self.listener, self.tls, Arc::new(site))),
            Err(source) => Error::System { what: "an executor", source },
        }
    }
}

/// Writes a past that was not: for rehearsals and pictures, which cannot wait for a month. Each minute, in seconds since 1970,
/// has tunnels, peers (none for a tunnel as a whole), and their round trips, octets sent and received in a second, packets
/// dropped, lanes born, and share of the time in which there was a session.
///
/// # Errors
/// Where it cannot be written.
#[doc(hidden)]
pub fn invent_past(
    state: &std::path::Path,
    minutes: impl Iterator<Item = (u64, Vec<(String, Option<String>, [f32; 6])>)>,
) -> Result<(), Box<dyn std::error::Error>> {
    let history = History::open(&state.join("history.redb"), u64::MAX)?;
    let invented = |(tunnel, peer, columns): (String, Option<String>, [f32; 6])| {
        (collect::series(&tunnel, peer.as_deref()), sample::Sample::of(columns))
    };
    let all: Vec<_> =
        minutes.map(|(unix_s, samples)| (unix_s, samples.into_iter().map(invented).collect())).collect();
    Ok(history.write(&all)?)
}

/// The tunnels that answer now.
fn tunnels(options: &Options) -> Vec<control::tunnel_status::Status> {
    let sockets = control::sockets(&options.sockets);
    sockets.iter().filter_map(|socket| source::ask_tunnel(socket).ok()).collect()
}
