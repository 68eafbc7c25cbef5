//! Every view of every built-in protocol on any packet: nothing panics, and what a field is set to it gives.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use script::host::NoHost;
use script::packet::Packet;
use script::vm::{ErrorKind, Limits, Machine, RuleId, Script, builtin_protocols};
use wire::checksum::TransportChecksum;

thread_local! {
    static MACHINE: RefCell<(Machine, RuleId)> = RefCell::new(machine());
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&form, bytes)) = bytes.split_first() else { return };
    let checksums = if form & 1 == 0 { TransportChecksum::Complete } else { TransportChecksum::Partial };
    let mut packet = Packet::of_frame(bytes.to_vec(), checksums);
    MACHINE.with_borrow_mut(|(machine, rule)| {
        let (_, error) = machine.run(*rule, &mut packet);
        // A packet of many layers takes more than its share, which is what the share is for.
        assert!(error.as_ref().is_none_or(|error| error.kind == ErrorKind::Budget), "{error:?}");
    });
});

fn machine() -> (Machine, RuleId) {
    // Of four within one another there are too many for each packet.
    let mut source = String::from("local DEPTH, PROTOCOLS = 3, {\n");
    for protocol in builtin_protocols().expect("the declarations are right").iter() {
        source.push_str(&format!("{{ protocol = {}, fields = {{", protocol.name));
        for field in &protocol.fields {
            source.push_str(&format!("{{ {:?}, {:?} }},", field.name, field.kind().name()));
        }
        source.push_str("} },\n");
    }
    source.push_str("}\n");
    source.push_str(include_str!("../../crates/script/tests/scripts/everything.lua"));
    let mut machine = Machine::new(NoHost, Limits::default());
    let rule = machine.load(Script::new("everything.lua", &source)).expect("the script is right");
    (machine, rule)
}
