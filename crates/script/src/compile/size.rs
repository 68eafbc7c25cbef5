//! How long programs become: what is long takes the verifier time, and a jump reaches only so far.

use super::account::{Accounts, Log, Mirrors};
use super::tests::RESULTS;
use super::{AttachType, compile};
use crate::host::NoHost;
use crate::vm::Script;

/// Instructions of a function of an example, with all that it counts in.
fn instructions(file: &str, function: &str, has_link: bool) -> usize {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts").join(file);
    let mut script = Script::new(&path.to_string_lossy(), &std::fs::read_to_string(&path).expect("it is there"));
    function.clone_into(&mut script.function);
    let compiled = compile(&script, NoHost, RESULTS, AttachType::Interface { has_link }).expect("it is compiled");
    let accounts = Accounts {
        mirrors: Mirrors::Sent(0),
        counters: 0,
        fault: 0,
        log: Some(Log { ring: 0, program: 0, scratch: 0 }),
    };
    compiled.assemble(&vec![0; compiled.maps().len()], Some(accounts)).expect("it fits").code.len()
}

#[test]
fn address_translation_takes_less_than_3000_instructions() {
    for function in ["snat", "dnat"] {
        for has_link in [true, false] {
            let count = instructions("nat.lua", function, has_link);
            println!("{function}, link header: {has_link}: {count} instructions");
            assert!(count < 3000, "{count}");
        }
    }
}
