//! `sidestep web`: the page, served.

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use web::{Options, Page};

use crate::failure::Failure;
use crate::terminal::print;

/// Serve a page about tunnels, gateways and scripts, in the foreground
///
/// The page shows what `show`, `status`, `script list` and `events` show, and how it was over the last day and month. It
/// changes nothing. With --fleet it shows a fleet, and what a change of it would do: a change is handed out as a draft, which
/// administrators sign where their keys are. It is a process of its own, which gives up its privileges at the start and reads the control sockets.
///
/// By default only this machine can reach it: from elsewhere come by ssh, or give it a certificate. Whoever looks needs its token.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep web                                         prints what to open in a browser
  ssh -L 8641:[::1]:8641 gateway                       then open it on your own machine
  sidestep web --listen [2001:db8::1]:8641 --certificate chain.pem --key key.pem --name gateway.example
  sidestep web --fleet ~/fleet                         about a fleet, too
  systemctl enable --now sidestep-web                  as a service; the token is in /var/lib/sidestep-web/token")]
pub(crate) struct WebOptions {
    /// Where it listens; never in a hopping prefix
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::1]:8641")]
    listen: SocketAddr,
    /// Certificates for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Their private key, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// A name that it answers to, beside its address; may be repeated
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Folder for the token and the history
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sidestep-web")]
    state_dir: PathBuf,
    /// How much the history may take, in megabytes: 100 are enough for 600 peers
    #[arg(long, value_name = "MB", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    history: u64,
    /// Folder with network.toml and access, as `sidestep control` uses it: the page is about that fleet, too, and may what the access may
    #[arg(long, value_name = "DIR")]
    fleet: Option<PathBuf>,
    /// Folder of the control sockets
    #[arg(long, value_name = "DIR", default_value = control::FOLDER)]
    sockets: PathBuf,
}

impl WebOptions {
    /// Serves until it may not go on.
    pub(crate) fn run(self) -> Result<(), Failure> {
        events::start_log();
        let page = Page::bind(Options {
            listen: self.listen,
            tls: self.certificate.zip(self.key),
            names: self.name,
            sockets: self.sockets,
            state: self.state_dir.clone(),
            history: self.history * 1_000_000,
            fleet: self.fleet,
        })
        .map_err(said)?;
        for missing in page.confine().map_err(said)? {
            tracing::warn!("this kernel has no {missing}: the page is less confined");
        }
        // A journal is read by more people than may look at the page.
        if io::stdout().is_terminal() {
            print(format_args!("open {}\n", page.url_with_token()))?;
        } else {
            let token = self.state_dir.join("token");
            print(format_args!("open {}; the token is in {}\n", page.url(), token.display()))?;
        }
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        Err(said(page.serve()))
    }
}

fn said(error: web::Error) -> Failure {
    Failure::Message(error.to_string())
}
