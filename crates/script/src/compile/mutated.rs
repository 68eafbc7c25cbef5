//! Scripts that are damaged at random: whatever they are, the compiler says so, and the kernel accepts what it accepts.

use std::os::fd::AsRawFd;

use super::differential::{Logging, create, may_load};
use super::generate::{self, Random};
use super::punt::PUNTING;
use super::tests::RESULTS;
use super::{AttachType, CompileError, compile};
use crate::vm::Script;

const EXAMPLES: [&str; 8] = [
    "nat.lua",
    "portknock.lua",
    "synflood.lua",
    "dns_blocklist.lua",
    "dns_log.lua",
    "tls_name_filter.lua",
    "seed/listing_3_4.lua",
    "seed/listing_4_1.lua",
];

#[test]
fn damaged_scripts_are_refused_or_run() {
    let in_kernel = may_load();
    let count = generate::cases(200);
    let mut random = Random::new(0xdead_beef);
    let mut outcomes = [0_usize; 3];
    for number in 0..count {
        let original = match random.below(3) {
            0 => {
                let file = random.pick(&EXAMPLES);
                let path = format!("{}/../../examples/scripts/{file}", env!("CARGO_MANIFEST_DIR"));
                std::fs::read_to_string(path).unwrap()
            }
            _ => generate::script(&mut random),
        };
        let text = damaged(&mut random, &original);
        let functions = ["process_packet", "snat", "process_packet_snat"];
        let mut script = Script::new("test.lua", &text);
        random.pick(&functions).clone_into(&mut script.function);
        if text.contains("function process_packet(") {
            "process_packet".clone_into(&mut script.function);
        }
        // As a whole, or as far as that goes.
        let results = random.pick(&[RESULTS, PUNTING]);
        match compile(&script, Logging::default(), results, AttachType::Interface { has_link: true }) {
            Ok(compiled) if in_kernel => {
                let maps: Vec<_> = compiled.maps().iter().map(create).collect();
                let maps: Vec<_> = maps.iter().map(AsRawFd::as_raw_fd).collect();
                let code = compiled.assemble(&maps, None).unwrap().code;
                linux::bpf::Program::load(linux::bpf::ProgramKind::SchedCls, &code)
                    .unwrap_or_else(|error| panic!("{number}: {error}\n{text}"));
                outcomes[0] += 1;
            }
            Ok(_) => outcomes[0] += 1,
            Err(CompileError::Refused(refusals)) => {
                let told = refusals.iter().all(|one| one.line > 0 && !one.reason.is_empty());
                assert!(told && !refusals.is_empty(), "{number}\n{text}\n{refusals:#?}");
                outcomes[1] += 1;
            }
            Err(CompileError::Script(error)) => {
                assert!(!error.message.is_empty(), "{number}\n{text}");
                outcomes[2] += 1;
            }
        }
    }
    println!("compiled, refused, not loaded: {outcomes:?}");
}

/// A text in which words are left out, doubled or in each other's place.
fn damaged(random: &mut Random, text: &str) -> String {
    let mut words: Vec<String> =
        text.split_inclusive(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect();
    for _ in 0..random.below(4) {
        let (one, other) = (random.below(words.len()), random.below(words.len()));
        match random.below(4) {
            0 => words[one].clear(),
            1 => words[one] = words[other].clone(),
            2 => words.swap(one, other),
            _ => {
                let word = random.pick(&[
                    "nil ",
                    "0 ",
                    "-1 ",
                    "p ",
                    "\"\" ",
                    "ip ",
                    "9223372036854775807 ",
                    "#p ",
                    "not ",
                ]);
                words[one] = word.to_owned();
            }
        }
    }
    words.concat()
}
