//! `include`: files whose tables are as if they stood in the one that names them, such as one for each peer.
//!
//! Their texts are put behind each other and read as one, so that what is checked across tables is checked across files; a
//! [`Report`] knows which part of the text came from where.

use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::part::Part;
use crate::report::{Finding, Report};
use crate::text_file::read_with_mode;

/// The most files that a configuration includes.
const MOST: usize = 20_000;
/// All files of a folder.
const ALL: &str = "*.toml";
/// What an included file may have: tables of which there may be many, and which are their own.
const TABLES: [&str; 6] = ["peer", "wrap", "script", "uplink", "network", "route"];

/// Puts the files that `text` includes behind it. `folder`: what their names are relative to.
pub(crate) fn join(
    mut text: Zeroizing<String>,
    folder: &Path,
    parts: &mut Vec<Part>,
) -> Result<Zeroizing<String>, Error> {
    for pattern in patterns(&text) {
        for path in files(&folder.join(&pattern))? {
            if parts.len() > MOST {
                let source = io::Error::other(format!("more than {MOST} files are included"));
                return Err(Error::Unreadable { path, source });
            }
            let (more, is_open) = read_with_mode(&path)?;
            check(&path, &more)?;
            if !text.ends_with('\n') {
                text.push('\n');
            }
            parts.push(Part { name: path, start: text.len(), is_open });
            // A copy of what may be a secret would stay in memory: both are wiped.
            let mut joined = Zeroizing::new(String::with_capacity(text.len() + more.len() + 1));
            joined.push_str(&text);
            joined.push_str(&more);
            text = joined;
        }
    }
    Ok(text)
}

/// The first folder of which a text includes all files.
pub(crate) fn folder(text: &str) -> Option<PathBuf> {
    let patterns = patterns(text);
    let pattern =
        patterns.iter().map(Path::new).find(|pattern| pattern.file_name().is_some_and(|name| name == ALL))?;
    Some(pattern.parent().unwrap_or(Path::new("")).to_owned())
}

/// What a text includes. Where it is no TOML, or `include` is something else, nothing: that is reported when it is read.
fn patterns(text: &str) -> Vec<String> {
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let Some(DeValue::Array(patterns)) = table.get_ref().get("include").map(Spanned::get_ref) else {
        return Vec::new();
    };
    let texts = patterns.iter().filter_map(|pattern| match pattern.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        _ => None,
    });
    texts.collect()
}

/// The files that a pattern stands for, in the order of their names: one, or all `*.toml` of a folder, which may have none.
fn files(pattern: &Path) -> Result<Vec<PathBuf>, Error> {
    if pattern.file_name().is_none_or(|name| name != ALL) {
        return Ok(vec![pattern.to_owned()]);
    }
    let folder = pattern.parent().unwrap_or(Path::new("")).to_owned();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::Unreadable { path: folder, source }),
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    // As others do, hidden files and those that an editor has left are passed over.
    let is_meant = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        path.extension().is_some_and(|end| end == "toml") && !hidden
    };
    let mut paths: Vec<_> = paths.filter(is_meant).collect();
    paths.sort();
    Ok(paths)
}

/// Each included file is whole by itself, and has only tables that may stand anywhere.
fn check(path: &Path, text: &str) -> Result<(), Error> {
    let mut report = Report::new(path, text);
    let Some(entries) = crate::document::parse_table(text, &mut report) else {
        report.show_only(&crate::reference::is_name);
        return Err(Error::Invalid(report));
    };
    for (name, value) in &entries {
        if !TABLES.contains(&name.get_ref().as_ref()) {
            report.hide(value);
            let title = format!("`{name}` does not belong into an included file", name = name.get_ref());
            let help = "included files have [[peer]], [[wrap]], [[script]], [[uplink]], [[network]] and [[route]]; all else is in the file that includes them";
            report.add(Finding::error(name.span(), title, "", help));
        }
    }
    if report.has_errors() { Err(Error::Invalid(report)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {

    const MAIN: &str = "include = [\"conf.d/*.toml\"]\n[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\n\
         external = \"eth0\"\nhop_prefix = \"2001:db8:a1::/64\"\n";

    fn peer(name: &str, network: &str) -> String {
        format!(
            "[[peer]]\nname = \"{name}\"\npublic_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\n\
             hop_prefix = \"2001:db8:b1::/64\"\nallowed_ips = [\"{network}\"]\n"
        )
    }

    /// A folder with a configuration and these files in `conf.d`.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("conf.d")).unwrap();
        std::fs::write(folder.path().join("mt6d0.toml"), MAIN).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join("conf.d").join(name), text).unwrap();
        }
        folder
    }

    fn load(folder: &tempfile::TempDir) -> Result<Vec<String>, String> {
        let config = crate::load(&folder.path().join("mt6d0.toml")).map_err(|error| error.to_string())?;
        Ok(config.tunnel.unwrap().peers.into_iter().map(|peer| peer.name).collect())
    }

    #[test]
    fn tables_of_included_files_are_as_if_they_stood_there() {
        let peers = [peer("b", "2001:db8:b::/64"), peer("c", "2001:db8:c::/64").replace("xTIBA", "yTIBA")];
        // Without a newline at its end, too.
        let files = [
            ("2.toml", peers[1].as_str()),
            ("1.toml", peers[0].trim_end()),
            (".hidden.toml", "x"),
            ("note", "x"),
        ];
        assert_eq!(load(&folder(&files)).unwrap(), ["b", "c"]);
        let empty = folder(&[]);
        std::fs::remove_dir(empty.path().join("conf.d")).unwrap();
        assert_eq!(load(&empty).unwrap(), [""; 0], "a folder that is not there yet");
    }

    #[test]
    fn what_is_wrong_is_said_of_the_file_that_it_is_in() {
        let good = peer("b", "2001:db8:b::/64");
        for (text, place, said) in [
            ("[[peer]\n".to_owned(), "conf.d/2.toml:1", ""),
            (peer("c", "2001:db8:zz::/64"), "conf.d/2.toml:5", ""),
            (
                "[node]\nexternal = \"eth1\"\n".to_owned(),
                "conf.d/2.toml:1",
                "`node` does not belong into an included file",
            ),
            ("name = \"c\"\n".to_owned(), "conf.d/2.toml:1", "`name` does not belong"),
            ("include = [\"x\"]\n".to_owned(), "conf.d/2.toml:1", "`include` does not belong"),
            // The same networks as in the other file: both places are shown.
            (good.replace("\"b\"", "\"c\"").replace("xTIBA", "yTIBA"), "conf.d/1.toml:5", "2001:db8:b::/64"),
            (format!("psk = \"{}\"\n", "secret-secret"), "conf.d/2.toml:1", "`psk` does not belong"),
        ] {
            let error = load(&folder(&[("1.toml", &good), ("2.toml", &text)])).unwrap_err();
            assert!(error.contains(place) && error.contains(said), "{place} {said}:\n{error}");
            assert!(!error.contains("secret-secret"), "{error}");
        }
    }

    #[test]
    fn a_secret_that_others_can_read_is_warned_of_with_its_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let text = peer("b", "2001:db8:b::/64")
            + "preshared_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\n";
        let folder = folder(&[("1.toml", &text)]);
        let set = |name: &str, mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path().join(name), permissions).unwrap();
        };
        set("mt6d0.toml", 0o600);
        set("conf.d/1.toml", 0o644);
        let config = crate::load(&folder.path().join("mt6d0.toml")).unwrap();
        let warnings = config.warnings.to_string();
        assert!(warnings.contains("chmod 600") && warnings.contains("conf.d/1.toml"), "{warnings}");
        assert_eq!(warnings.matches("chmod").count(), 1);
    }
}
