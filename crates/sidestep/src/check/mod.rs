//! `check`: what a configuration leads to, in plain words.

mod ipsec;
mod router;
mod tunnel;

use std::path::{Path, PathBuf};

use config::Source;

use crate::failure::Failure;
use crate::load::{load_ipsec, load_source, not_loaded};
use crate::terminal::print;

/// Prints what the configuration in `file` leads to, or fails with what is wrong. Files that it names are in `base`, if
/// that is given.
pub(crate) fn check(file: &Path, base: Option<PathBuf>) -> Result<(), Failure> {
    let source = match (file == Path::new("-"), base) {
        (true, base) => Source::standard_input(&base.unwrap_or_default()),
        (false, Some(base)) => Source::read_in(file, &base),
        (false, None) => Source::read(file),
    };
    let source = source.map_err(|error| not_loaded(file, error))?;
    let file = source.name();
    if source.is_ipsec() {
        let config = load_ipsec(&source)?;
        let refused = ipsec_runtime::check(&config).err().map(|why| why.to_string());
        print(ipsec::describe(file, &config, refused.as_deref()))?;
        return match refused {
            Some(why) => Err(Failure::Message(format!("`sidestep ipsec up` would refuse this: {why}"))),
            None => Ok(()),
        };
    }
    let config = load_source(&source)?;
    if let Some(tunnel) = &config.tunnel {
        let system = tunnel::System::of_this_machine(tunnel, config.gateway.is_some());
        print(tunnel::describe(file, tunnel, &system))?;
        if let Err(error) = tunnel_runtime::surroundings::refuse(tunnel) {
            return Err(Failure::Message(format!("`up` would refuse this here: {error}")));
        }
    }
    if let Some(gateway) = &config.gateway {
        print(router::describe(file, gateway))?;
    }
    Ok(())
}
