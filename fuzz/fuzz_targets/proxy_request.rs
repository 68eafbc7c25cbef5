//! What a client of the proxy may say first, and what a server of names may answer.
#![no_main]

use ipsec_proxy::dns::{self, Kind};
use ipsec_proxy::forward::Forward;
use ipsec_proxy::socks5::Request;
use ipsec_proxy::target::Target;
use ipsec_proxy::{http_connect, socks5};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = (socks5::greeting(bytes), socks5::password(bytes));
    let by_socks = match socks5::request(bytes) {
        Ok(Some((length, Request::Connect(target)))) => Some((length, target)),
        _ => None,
    };
    let by_http = http_connect::request(bytes).ok().flatten().map(|(length, asked)| (length, asked.target));
    let datagram = socks5::datagram(bytes).ok().map(|(target, length)| (length, target));
    for (length, target) in [by_socks, by_http, datagram].into_iter().flatten() {
        assert!(length <= bytes.len());
        assert_eq!(target.to_string().parse(), Ok::<Target, _>(target));
    }
    let name = "www.example".parse().unwrap();
    let _ = dns::answer(bytes, 7, &name, Kind::A);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = text.parse::<Forward>();
    }
});
