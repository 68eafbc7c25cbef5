//! Any datagrams from anybody at the live endpoints of two nodes: none is delivered or answered.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;

use sidestep_fuzz::Pair;

thread_local! {
    static PAIR: RefCell<Pair> = Pair::established().into();
}

fuzz_target!(|datagrams: Vec<(u8, Vec<u8>)>| {
    PAIR.with_borrow_mut(|pair| {
        for (which, datagram) in datagrams {
            let outbox = pair.assail(usize::from(which & 1), usize::from(which >> 1), &datagram);
            assert!(outbox.is_empty(), "a stranger was answered");
            assert!(pair.delivered().is_empty(), "a stranger's packet was delivered");
        }
    });
});
