//! The program `sidestep-lab`; everything is in the library, but the exit.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::cli::main()
}
