//! The measurements of `sidestep-lab`, as short as they get: they measure, and say so wherever they were told to.

mod adversary;
mod caches;
mod comparison;
mod experiment;
mod scripts;
mod stack;

/// The command of this name, which may be of two words, where there is a program to measure, and root; in a lab of its own.
fn sidestep_lab(command: &str) -> Option<std::process::Command> {
    let mut started = measuring(command)?;
    // Labs of several tests may be up at once.
    started.args(["--prefix", &lab::prefix::unique()]);
    Some(started)
}

/// The same for a command that names its labs itself.
fn measuring(command: &str) -> Option<std::process::Command> {
    if std::env::var_os("SIDESTEP_BIN").is_none() || !nix::unistd::geteuid().is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "needs root and the program, in SIDESTEP_BIN");
        eprintln!("skipped: needs root and the program, in SIDESTEP_BIN");
        return None;
    }
    let mut started = std::process::Command::new(env!("CARGO_BIN_EXE_sidestep-lab"));
    started.args(command.split(' '));
    Some(started)
}
