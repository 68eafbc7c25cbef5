//! `fleet`: peers that a fleet's agent writes. The agent is not root, and does not become more than itself by what it writes: its
//! file has peers alone, and whom they may reach; these name no file and have no secret.

use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::part::Part;
use crate::report::{Finding, Report};
use crate::text_file::read_text;

/// What a peer in it may say.
const KEYS: [&str; 12] = [
    "name",
    "public_key",
    "next_public_key",
    "hop_prefix",
    "allowed_ips",
    "keepalive",
    "rotation",
    "lanes",
    "padding",
    "shape",
    "dns_record",
    "zone",
];

/// Puts the peers of the fleet that `text` names behind it. Before an agent has written any there are none.
pub(crate) fn join(
    mut text: Zeroizing<String>,
    folder: &Path,
    parts: &mut Vec<Part>,
) -> Result<Zeroizing<String>, Error> {
    let Some(path) = file(&text).map(|file| folder.join(file)) else { return Ok(text) };
    let peers = match read(&path) {
        Ok(peers) => peers,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(text),
        Err(source) => return Err(Error::Unreadable { path, source }),
    };
    check(&path, &peers)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    parts.push(Part { name: path, start: text.len(), is_open: false });
    let mut joined = Zeroizing::new(String::with_capacity(text.len() + peers.len() + 1));
    joined.push_str(&text);
    joined.push_str(&peers);
    Ok(joined)
}

/// The file that a text names. Where it is no TOML, or `fleet` is something else, none: that is reported when it is read.
pub(crate) fn file(text: &str) -> Option<PathBuf> {
    let table = DeTable::parse(text).ok()?;
    let value = table.get_ref().get("fleet").map(Spanned::get_ref)?;
    value.as_str().map(PathBuf::from)
}

/// The agent's file itself: not what a link of its making leads to, whose text a message might quote.
fn read(path: &Path) -> io::Result<String> {
    let file = linux::file::open_of_another(path)?;
    let length = file.metadata()?.len();
    read_text(file, length)
}

fn check(path: &Path, text: &str) -> Result<(), Error> {
    let mut report = Report::new(path, text);
    let Some(entries) = crate::document::parse_table(text, &mut report) else {
        report.show_only(&crate::reference::is_name);
        return Err(Error::Invalid(report));
    };
    let help =
        "an agent writes [[peer]] and [reach] alone, without files and secrets: let it write the file anew";
    for (name, value) in &entries {
        if name.get_ref() == "peer" {
            check_peers(value, help, &mut report);
        } else if name.get_ref() != "reach" {
            report.hide(value);
            let title = format!("`{}` does not belong into the peers of a fleet", name.get_ref());
            report.add(Finding::error(name.span(), title, "", help));
        }
    }
    if report.has_errors() { Err(Error::Invalid(report)) } else { Ok(()) }
}

fn check_peers(value: &Spanned<DeValue<'_>>, help: &str, report: &mut Report) {
    // Anything else than tables is refused when it is read.
    let peers = value.get_ref().as_array().into_iter().flatten();
    for (name, value) in peers.filter_map(|peer| peer.get_ref().as_table()).flatten() {
        if !KEYS.contains(&name.get_ref().as_ref()) {
            report.hide(value);
            let title = format!("`{}` does not belong into a peer of a fleet", name.get_ref());
            report.add(Finding::error(name.span(), title, "", help));
        }
    }
}

#[cfg(test)]
mod tests {
    const MAIN: &str = "fleet = \"peers.toml\"\n[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\n\
         external = \"eth0\"\nhop_prefix = \"2001:db8:a1::/64\"\n";
    const PEER: &str = "[[peer]]\nname = \"b\"\npublic_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\n\
         hop_prefix = \"2001:db8:b1::/64\"\nallowed_ips = [\"2001:db8:b::/64\"]\n";

    fn folder(peers: Option<&str>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mt6d0.toml"), MAIN).unwrap();
        if let Some(peers) = peers {
            std::fs::write(folder.path().join("peers.toml"), peers).unwrap();
        }
        folder
    }

    fn load(folder: &tempfile::TempDir) -> Result<Vec<String>, String> {
        let config = crate::load(&folder.path().join("mt6d0.toml")).map_err(|error| error.to_string())?;
        let tunnel = config.tunnel.unwrap();
        assert!(!config.warnings.to_string().contains("there is no peer"));
        Ok(tunnel.peers.into_iter().map(|peer| peer.name).collect())
    }

    #[test]
    fn its_peers_are_as_if_they_stood_there() {
        assert_eq!(load(&folder(Some(PEER))).unwrap(), ["b"]);
        assert_eq!(load(&folder(None)).unwrap(), [""; 0], "before the agent has written any");
        assert_eq!(load(&folder(Some(""))).unwrap(), [""; 0], "a site that is none any more");
    }

    #[test]
    fn an_agent_does_no_more_than_name_peers() {
        for (peers, said) in [
            ("[node]\nexternal = \"eth1\"\n".to_owned(), "`node` does not belong into the peers of a fleet"),
            ("[[script]]\nfile = \"/tmp/x.lua\"\n".to_owned(), "`script` does not belong into the peers"),
            ("include = [\"/etc/shadow\"]\n".to_owned(), "`include` does not belong into the peers"),
            (format!("{PEER}preshared_key_file = \"/etc/shadow\"\n"), "`preshared_key_file` does not belong"),
            (format!("{PEER}preshared_key = \"secret-secret\"\n"), "`preshared_key` does not belong"),
            (format!("{PEER}profile = \"classic\"\n"), "`profile` does not belong into a peer of a fleet"),
            ("peer = 5\n".to_owned(), "peers.toml:1"),
            (PEER.replace("2001:db8:b1::/64", "2001:db8:zz::/64"), "peers.toml:4"),
            ("[[peer]\n".to_owned(), "peers.toml:1"),
        ] {
            let error = load(&folder(Some(&peers))).unwrap_err();
            assert!(error.contains(said), "{said}:\n{error}");
            assert!(!error.contains("secret-secret"), "{error}");
        }
    }

    #[test]
    fn a_link_of_its_making_leads_nowhere() {
        let folder = folder(None);
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "root:secret-secret\n").unwrap();
        std::os::unix::fs::symlink(&secret, folder.path().join("peers.toml")).unwrap();
        let error = load(&folder).unwrap_err();
        assert!(error.contains("peers.toml") && !error.contains("secret-secret"), "{error}");
        std::fs::remove_file(folder.path().join("peers.toml")).unwrap();
        std::fs::create_dir(folder.path().join("peers.toml")).unwrap();
        assert!(load(&folder).unwrap_err().contains("peers.toml"));
    }

    #[test]
    fn a_pipe_of_its_making_does_not_hold_the_daemon_up() {
        let folder = folder(None);
        make_pipe(&folder.path().join("peers.toml"));
        let error = load(&folder).unwrap_err();
        assert!(error.contains("regular file"), "{error}");
    }

    fn make_pipe(path: &std::path::Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.is_ok_and(|status| status.success()));
    }
}
