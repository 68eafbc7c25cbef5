//! A file with `[ipsec]`: any text is a configuration or a report that can be shown.
#![no_main]

use std::path::Path;

use config::KeyFileError;
use libfuzzer_sys::fuzz_target;
use zeroize::Zeroizing;

fuzz_target!(|text: &str| {
    // Files with a short name hold it; others are not there.
    let read = |path: &Path, _| match path.as_os_str().len() {
        0..=4 => Ok(Zeroizing::new(path.as_os_str().as_encoded_bytes().to_vec())),
        _ => Err(KeyFileError::Missing),
    };
    match config::ipsec::parse(text, Path::new("fuzz.toml"), &read) {
        Ok(config) => drop(config.warnings.render(false)),
        Err(report) => drop(report.render(false)),
    }
});
