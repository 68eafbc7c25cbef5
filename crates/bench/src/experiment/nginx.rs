//! nginx on host B, with a configuration of its own, as a child process that ends with the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::experiment::plan::size;
use crate::experiment::scene::{ExperimentScene, log_of};
use lab::Error;
use lab::process::Process;
use lab::topology::Site;
use lab::traffic::wait_listening;

const PORT: u16 = 80;

/// Segments of TCP that a host has sent: the first time (RFC 4022 counts no others), and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    new: u64,
    again: u64,
}

impl Segments {
    /// Of those sent since an earlier moment, the part that was sent again, percent.
    pub(crate) fn retransmitted_since(self, before: Self) -> f64 {
        let again = self.again.saturating_sub(before.again) as f64;
        100.0 * again / (self.new.saturating_sub(before.new) as f64 + again)
    }
}

/// A running server. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Server(Option<Process>);

impl Server {
    /// Starts it with files of these sizes.
    ///
    /// # Errors
    /// When a file cannot be written or nginx does not start.
    pub(crate) fn start(scene: &ExperimentScene, sizes: &[u64]) -> Result<Self, Error> {
        let folder = scene.lab.directory().join("nginx");
        std::fs::create_dir_all(folder.join("files")).map_err(|source| Error::file(&folder, source))?;
        for bytes in sizes {
            // Zeros that take no room on the disk: nothing on the way compresses.
            let path = folder.join("files").join(size(*bytes, ""));
            let made = File::create(&path).and_then(|file| file.set_len(*bytes));
            made.map_err(|source| Error::file(path, source))?;
        }
        let path = folder.join("nginx.conf");
        std::fs::write(&path, configuration(&folder)).map_err(|source| Error::file(&path, source))?;
        let (prefix, path) = (folder.display().to_string(), path.display().to_string());
        let words = ["nginx", "-p", &prefix, "-c", &path, "-e", "stderr"];
        let process = scene.start(Site::B.host_node(), &words, "nginx")?;
        let server = Self(Some(process));
        server.wait()?;
        Ok(server)
    }

    /// Where a file is.
    pub(crate) fn url(bytes: u64) -> String {
        format!("http://[{}]/{}", Site::B.host(), size(bytes, ""))
    }

    /// What host B has sent so far.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn segments(&self) -> Result<Segments, Error> {
        let id = self.0.as_ref().map_or(0, Process::id);
        let path = PathBuf::from(format!("/proc/{id}/net/snmp"));
        let text = std::fs::read_to_string(&path).map_err(|source| Error::file(path, source))?;
        let [new, again] = ["OutSegs", "RetransSegs"].map(|name| counter(&text, name).unwrap_or(0));
        Ok(Segments { new, again })
    }

    fn wait(&self) -> Result<(), Error> {
        let Some(process) = &self.0 else { return Ok(()) };
        wait_listening(process, "tcp", PORT).map_err(|_| Error::output("nginx", log_of(process)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.0.take() {
            process.stop(Duration::from_secs(2));
        }
    }
}

/// One worker in the foreground; everything that it writes lies in its folder.
pub(crate) fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {folder}/{what};\n"))
        .concat();
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n\
         access_log off;\nsendfile on;\n{temporary}server {{\nlisten [{}]:{PORT};\nroot {folder}/files;\n}}\n}}\n",
        Site::B.host()
    )
}

/// A counter of TCP in `/proc/net/snmp`: a line of names, and one of values below it.
fn counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let position = names.split_whitespace().position(|one| one == name)?;
    values.split_whitespace().nth(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_again_is_a_part_of_all() {
        let [before, after] = [(10, 1), (40, 11)].map(|(new, again)| Segments { new, again });
        assert_eq!(after.retransmitted_since(before), 25.0);
    }

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: MaxConn OutSegs RetransSegs\nTcp: -1 200 3\nUdp: X\nUdp: 9\n";
        assert_eq!(
            ["OutSegs", "RetransSegs", "None"].map(|name| counter(text, name)),
            [Some(200), Some(3), None]
        );
    }
}
