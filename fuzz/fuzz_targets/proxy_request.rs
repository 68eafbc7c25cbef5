//! What a client of the proxy may say first, and what a server of names may answer.
#![no_main]

use ipsec_proxy::dns::{self, Kind};
use ipsec_proxy::forward::Forward;
use ipsec_proxy::target::Target;
use ipsec_proxy::{http_connect, socks5};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = socks5::greeting(bytes);
    for target in [socks5::request(bytes).ok().flatten(), http_connect::request(bytes).ok().flatten()] {
        if let Some((length, target)) = target {
            assert!(length <= bytes.len());
            assert_eq!(target.to_string().parse(), Ok::<Target, _>(target));
        }
    }
    let name = "www.example".parse().unwrap();
    let _ = dns::answer(bytes, 7, &name, Kind::A);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<Forward>();
    }
});
