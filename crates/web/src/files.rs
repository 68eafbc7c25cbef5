//! The files of the page, as they are in the program.

/// A file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) octets: &'static [u8],
    /// Whether it is for those, too, who have not shown the token.
    pub(crate) is_for_all: bool,
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! file {
    ($path:literal, $kind:expr) => {
        file!($path, $path, $kind, false)
    };
    ($path:literal, $file:literal, $kind:expr, $is_for_all:literal) => {
        File {
            path: $path,
            kind: $kind,
            octets: include_bytes!(concat!("../page", $file)),
            is_for_all: $is_for_all,
        }
    };
}

/// Who has not shown the token is asked for it.
pub(crate) const LOGIN: &[u8] = include_bytes!("../page/login.html");

/// Who comes back from the identity provider is led on.
pub(crate) const RETURNED: &[u8] = include_bytes!("../page/returned.html");

const FILES: &[File] = &[
    file!("/", "/index.html", HTML, false),
    file!("/style.css", "/style.css", STYLE, true),
    file!("/icon.svg", "/icon.svg", PICTURE, true),
    file!("/theme.js", "/theme.js", SCRIPT, true),
    file!("/app.js", SCRIPT),
    file!("/chart.js", SCRIPT),
    file!("/dom.js", SCRIPT),
    file!("/feed.js", SCRIPT),
    file!("/fleet/changes.js", SCRIPT),
    file!("/fleet/difference.js", SCRIPT),
    file!("/fleet/fleet.js", SCRIPT),
    file!("/fleet/log.js", SCRIPT),
    file!("/fleet/map.js", SCRIPT),
    file!("/fleet/reach.js", SCRIPT),
    file!("/fleet/site.js", SCRIPT),
    file!("/fleet/told.js", SCRIPT),
    file!("/format.js", SCRIPT),
    file!("/table.js", SCRIPT),
    file!("/view/events.js", SCRIPT),
    file!("/view/gateway.js", SCRIPT),
    file!("/view/hosts.js", SCRIPT),
    file!("/view/overview.js", SCRIPT),
    file!("/view/peer.js", SCRIPT),
    file!("/view/peers.js", SCRIPT),
    file!("/view/scripts.js", SCRIPT),
    file!("/vendor/uPlot.js", SCRIPT),
    file!("/vendor/uPlot.css", STYLE),
];

/// The file of a path.
pub(crate) fn find(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy lets no script and no style stand in a page; and nothing is fetched from elsewhere.
    #[test]
    fn pages_have_scripts_and_styles_in_files_of_their_own() {
        let pages =
            FILES.iter().filter(|file| file.kind == HTML).map(|file| file.octets).chain([LOGIN, RETURNED]);
        for page in pages {
            let page = std::str::from_utf8(page).unwrap();
            for inline in ["<style", " style=", " onclick", "javascript:", "<script>", "http://", "https://"]
            {
                assert!(!page.contains(inline), "{inline}");
            }
        }
    }

    #[test]
    fn what_comes_from_a_daemon_is_never_made_a_part_of_a_page_as_text() {
        for file in FILES.iter().filter(|file| file.kind == SCRIPT && !file.path.starts_with("/vendor")) {
            let script = std::str::from_utf8(file.octets).unwrap();
            for way in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!script.contains(way), "{}: {way}", file.path);
            }
        }
    }
}
