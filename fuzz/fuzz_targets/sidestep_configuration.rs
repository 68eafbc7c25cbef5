//! The configuration file: any text is a configuration or a report that can be shown.
#![no_main]

use std::path::Path;

use config::KeyFileError;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(report) = config::parse(text, Path::new("fuzz.toml"), &|_| Err(KeyFileError::Missing)) {
        let _ = report.render(false);
    }
});
