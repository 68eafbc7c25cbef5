//! A queue and a verdict: what a program that judges packets costs, whatever it does with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linux::event::{Events, Interest, Poller};
use linux::queue::{Batch, Queue, Socket, rule, verdict};

use crate::Error;

const TABLE: &str = "floor";

/// Accepts all packets at a hook of this namespace that a rule matches (both as nft(8) has them), GSO packets whole,
/// until it is told to stop.
///
/// # Errors
/// When there is no queue to be had, or nft refuses the rule.
pub fn accept(hook: &str, rules: &[String], stop: &AtomicBool) -> Result<(), Error> {
    let queue = Queue { number: 1, length: 4096, fail_open: false, segmented: true };
    let socket = Socket::open(&[queue])?;
    let rules: String =
        rules.iter().map(|rule| format!("add rule inet {TABLE} at {rule} goto q\n")).collect();
    linux::nft::apply(&format!(
        "add table inet {TABLE}\nadd chain inet {TABLE} q\n\
         add chain inet {TABLE} at {{ type filter hook {hook} priority 0; }}\n{rules}"
    ))?;
    rule::send_to(TABLE, "q", &(1..=1), false)?;
    let accepted = until_told(&socket, stop);
    linux::nft::apply(&format!("delete table inet {TABLE}\n"))?;
    accepted
}

fn until_told(socket: &Socket, stop: &AtomicBool) -> Result<(), Error> {
    let failed = |source| Error::system("a queue", source);
    let poller = Poller::new()?;
    poller.add(socket, 0, Interest::Readable)?;
    let (mut batch, mut events) = (Batch::default(), Events::with_capacity(1));
    while !stop.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(Duration::from_millis(50)))?;
        let count = socket.recv(&mut batch).map_err(failed)?;
        for place in 0..count {
            let Some((queue, id)) = batch.packet(place).map(|queued| (queued.queue, queued.id)) else {
                continue;
            };
            batch.put_verdict(queue, id, verdict::ACCEPT, None);
        }
        socket.flush(&mut batch).map_err(failed)?;
    }
    Ok(())
}
