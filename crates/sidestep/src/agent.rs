//! `agent`: keeps this machine a site of its fleet.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use crate::setup::enroll::STATE;

/// Keep this machine a site of its fleet
///
/// Asks the fleet's controllers, and other sites where none answers, takes what administrators have signed, and gives the gateway
/// its peers. It needs no privileges. While it does not run, the gateway goes on with the peers that it has.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  systemctl enable --now sidestep-agent@mt6d0     as a service, with a user of its own
  sidestep agent mt6d0                            in the foreground")]
pub(crate) struct AgentOptions {
    /// Name of the tunnel
    tunnel: String,
    /// Folder for what agents keep
    #[arg(long, value_name = "DIR", default_value = STATE)]
    state_dir: PathBuf,
}

impl AgentOptions {
    /// Runs it.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let folder = Path::new(&self.state_dir).join(&self.tunnel);
        linux::confine::no_core_dumps()?;
        let missing = linux::confine::confine([folder.as_path()])?;
        if !missing.is_empty() {
            tracing::debug!("not confined by {}", missing.join(", "));
        }
        events::start_log();
        match ::agent::run(&::agent::Options { folder, sockets: None })? {}
    }
}
