//! The example scripts that cache TFTP and HTTP.

use std::process::Stdio;

use crate::sidestep_lab;

#[test]
fn the_lab_measures_them() {
    let Some(mut command) = sidestep_lab("caches") else { return };
    let words = ["--runs", "1", "--largest", "1", "--delay", "10ms"];
    let output = command.args(words).stdin(Stdio::null()).output().expect("the program");
    let (page, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    for table in
        ["TFTP, the server next", "TFTP, the server 10 ms", "HTTP, the server next", "HTTP, the server 10 ms"]
    {
        let rows = page.split_once(table).map(|(_, rest)| rest.lines().skip(4).take(2));
        assert!(rows.is_some_and(|mut rows| rows.all(|row| row.contains(" | 1 | "))), "{table}: {page}");
    }
}
