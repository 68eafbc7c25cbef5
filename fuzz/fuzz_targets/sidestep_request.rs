//! What a client of the control socket may send.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidestep::control::Request;

fuzz_target!(|bytes: &[u8]| {
    let _ = serde_json::from_slice::<Request>(bytes);
});
