//! What a client of the control socket may send.
#![no_main]

use control::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = serde_json::from_slice::<Request>(bytes);
});
