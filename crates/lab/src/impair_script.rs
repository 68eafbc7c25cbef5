//! The impaired link by a packet script: `examples/scripts/impair.lua` on the router, in place of the relay.
//!
//! It impairs what the router forwards, a script for each direction. It knows delay, jitter, loss and reordering, and
//! differs in two ways: jitter lets packets overtake each other, and a packet that is to be out of order goes on at once in
//! place of later.

use crate::Error;
use crate::builder::Builder;
use crate::command::check;
use crate::impairment::Impairment;
use crate::topology::Node;

const SCRIPT: &str = include_str!("../../../examples/scripts/impair.lua");

/// The script with these settings.
///
/// # Errors
/// When it does not know one of them.
pub(crate) fn text(impairment: &Impairment) -> Result<String, Error> {
    let known = Impairment {
        delay: impairment.delay,
        jitter: impairment.jitter,
        loss: impairment.loss,
        reorder: impairment.reorder,
        reorder_by: impairment.reorder_by,
        seed: impairment.seed,
        ..Impairment::default()
    };
    if *impairment != known {
        return Err(Error::Usage(
            "the script impairs by delay, jitter, loss and reorder; leave the others out, or use the relay"
                .into(),
        ));
    }
    // Its jitter lies on both sides of the delay, that of the option behind it.
    let jitter = impairment.jitter.as_secs_f64() * 500.0;
    let delay = impairment.delay.as_secs_f64() * 1000.0 + jitter;
    let Impairment { loss, reorder, .. } = impairment;
    Ok(format!("{SCRIPT}\nDELAY, JITTER, LOSS, REORDER = {delay}, {jitter}, {loss}, {reorder}\n"))
}

/// Loads a script for each direction: interface of the router that packets come in through, and what becomes of them.
pub(crate) fn load(options: &Builder, directions: [(&str, &Impairment); 2]) -> Result<(), Error> {
    for (interface, impairment) in directions {
        let path = options.directory().join(format!("impair-{interface}.lua"));
        std::fs::write(&path, text(impairment)?).map_err(|source| Error::file(&path, source))?;
        let mut command = options.namespace(Node::Router).command(&options.program)?;
        command.args(["script", "load"]).arg(&path).args(["--hook", "forward", "--dev", interface]);
        check(&mut command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_settings_are_the_options() {
        let text = |options: &str| text(&options.parse().expect("an impairment"));
        let said = text("delay=20ms,jitter=5ms,loss=2%,reorder=1%").expect("a script");
        assert!(said.ends_with("\nDELAY, JITTER, LOSS, REORDER = 22.5, 2.5, 0.02, 0.01\n"), "{said}");
        assert!(text("delay=20ms,rate=1mbit").is_err());
    }
}
