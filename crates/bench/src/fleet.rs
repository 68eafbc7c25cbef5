//! `sidestep-lab fleet`: machines for the sites of a fleet, for trying it by hand (`contrib/fleet/twenty-sites`).

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use lab::Error;
use lab::command::find;
use lab::machines::Machines;

/// Machines for the sites of a fleet.
#[derive(Debug, Args)]
pub struct FleetOptions {
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "fleet", global = true)]
    prefix: String,
    #[command(subcommand)]
    what: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Make machines, as far as they are not there
    #[command(after_help = "Examples:\n  sidestep-lab fleet up 20")]
    Up {
        /// How many
        machines: usize,
    },
    /// Run a command on a machine; `sidestep` is the program under test
    #[command(after_help = "Examples:\n  sidestep-lab fleet at 3 sidestep show\n  \
                            sidestep-lab fleet at 3 ping -c 3 fd00:7::1")]
    At {
        /// The machine
        machine: usize,
        /// The command and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// End what runs on the machines, and remove them
    #[command(after_help = "Examples:\n  sidestep-lab fleet down")]
    Down,
}

/// Does it.
///
/// # Errors
/// When machines cannot be made or removed, or the command cannot be started.
pub fn run(
    options: FleetOptions,
    sidestep: impl FnOnce() -> Result<PathBuf, Error>,
) -> Result<ExitCode, Error> {
    let machines = Machines::named(options.prefix);
    match options.what {
        FleetCommand::Up { machines: count } => machines.make(count)?,
        FleetCommand::Down => machines.remove()?,
        FleetCommand::At { machine, command } => {
            let (name, arguments) = command.split_first().expect("clap requires a word");
            let program =
                if name == "sidestep" { sidestep()? } else { find(name).unwrap_or_else(|| name.into()) };
            let mut command = machines.command(machine, &program)?;
            // It is the command from here on: a signal is for that.
            return Err(Error::system("ip netns exec", command.args(arguments).exec()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
