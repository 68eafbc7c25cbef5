//! What a fleet's agent says of its gateway: the sites that this machine cannot take.

use std::path::Path;

use agent::Folder;
use config::Source;

use super::finding::Finding;

/// Looks beside the peers that the configuration takes from a fleet. Where nothing can be read the agent's log says why.
pub(super) fn look(file: &Path, findings: &mut Vec<Finding>) {
    let Some(peers) = Source::read(file).ok().and_then(|source| source.fleet()) else { return };
    let Some(folder) = peers.parent() else { return };
    let left_out = Folder::new(folder.to_owned()).taken().unwrap_or_default().left_out;
    findings.extend(left_out.into_iter().map(|(site, why)| {
        let says = format!(
            "the fleet's site {site} is left out here, or is as it was before, since this gateway refuses it: {}; change \
             what this machine has, or what {site} says of itself, and the agent tries again",
            why.escape_debug()
        );
        Finding::warning("site_left_out", says)
    }));
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn sites_that_are_left_out_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mt6d0.toml");
        let look = |text: &str| {
            fs::write(&file, text).unwrap();
            let mut findings = Vec::new();
            super::look(&file, &mut findings);
            findings
        };
        let fleet = "fleet = \"fleet/peers.toml\"\n";
        assert!(look(fleet).is_empty(), "no agent has written anything yet");
        let of_agent = folder.path().join("fleet");
        fs::create_dir(&of_agent).unwrap();
        let taken = of_agent.join("taken.json");
        let left_out = r#"{"kiel":"fd00:5::/48 is on eth1\u001b[2J"}"#;
        let parts = r#"{"sites":{},"here":{"own":[],"serves":[]}}"#;
        fs::write(&taken, format!(r#"{{"parts":{parts},"left_out":{left_out}}}"#)).unwrap();
        let told = look(fleet);
        assert_eq!((told.len(), told[0].code.as_str()), (1, "site_left_out"), "{told:?}");
        assert!(told[0].says.contains("site kiel") && told[0].says.contains("is on eth1\\u{1b}"), "{told:?}");
        assert!(look("[node]\n").is_empty(), "a gateway of no fleet");
        // What an agent has put there instead is not followed.
        fs::rename(&taken, folder.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &taken).unwrap();
        assert!(look(fleet).is_empty());
    }
}
