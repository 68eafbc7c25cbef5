//! The lab's commands alone, for the lab's own tests: `sidestep-lab lab …` as `sidestep lab …`.

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
    let program = std::env::current_exe().unwrap_or_default();
    lab::cli::run(command, &program).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
