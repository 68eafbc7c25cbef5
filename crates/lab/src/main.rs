//! The lab's commands alone, for the lab's own tests: `sidestep-lab lab …` as `sidestep lab …`. The gateways are
//! started from the program that the environment variable `SIDESTEP_BIN` names.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lab::cli::LabCommand;

#[derive(Parser)]
enum Arguments {
    /// Network-namespace labs
    #[command(subcommand)]
    Lab(LabCommand),
}

fn main() -> ExitCode {
    let Arguments::Lab(command) = Arguments::parse();
    let named = std::env::var_os("SIDESTEP_BIN").map(PathBuf::from);
    let program = named.unwrap_or_else(|| std::env::current_exe().unwrap_or_default());
    lab::cli::run(command, &program).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
