//! Random scripts and packets: the intermediate form, followed step by step, and the kernel have to agree.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::emit::{Results, emit};
use super::interpret::{Outcome, run};
use super::tests::compile;

const RESULTS: Results = Results { pass: 101, drop: 102, error: 103 };

/// A script's body that reads, counts, decides, loops and writes.
fn body() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| if number == i64::MIN { "0".to_owned() } else { number.to_string() }),
        (-70_i64..70).prop_map(|number| number.to_string()),
        (0..4_usize).prop_map(|name| ["a", "b", "c", "d"][name].to_owned()),
        (0..70_usize).prop_map(|place| format!("p:get()[{place}]")),
        Just("#p:get()".to_owned()),
    ];
    let expression = leaf.prop_recursive(4, 24, 2, |inner| {
        let operator = prop::sample::select(vec!["+", "-", "*", "//", "%", "&", "|", "~", "<<", ">>"]);
        let comparison = prop::sample::select(vec!["==", "~=", "<", "<=", ">", ">="]);
        prop_oneof![
            4 => (inner.clone(), operator, inner.clone()).prop_map(|(l, o, r)| format!("({l} {o} {r})")),
            1 => (inner.clone(), comparison, inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(l, o, r, then, otherwise)| format!("({l} {o} {r} and {then} or {otherwise})")),
            1 => inner.clone().prop_map(|e| format!("(- {e})")),
            1 => inner.prop_map(|e| format!("(~{e})")),
        ]
    });
    let name = || prop::sample::select(vec!["a", "b", "c", "d"]);
    let assign = (name(), expression.clone()).prop_map(|(n, e)| format!("{n} = {e}\n"));
    let write = (0..70_u8, expression.clone()).prop_map(|(at, e)| format!("p:raw({at}, 1):set({e})\n"));
    let simple = prop_oneof![3 => assign, 1 => write];
    let statement = simple.prop_recursive(3, 12, 3, move |inner| {
        let block = || prop::collection::vec(inner.clone(), 1..3).prop_map(|lines| lines.concat());
        prop_oneof![
            (expression.clone(), expression.clone(), block(), block())
                .prop_map(|(l, r, then, rest)| format!("if {l} < {r} then\n{then}else\n{rest}end\n")),
            (-3..3_i64, 1..6_i64, expression.clone(), block()).prop_map(|(from, to, stop, body)| {
                format!("for i = {from}, {to} do\nif i == {stop} then break end\na = a + i\n{body}end\n")
            }),
        ]
    });
    prop::collection::vec(statement, 1..6).prop_map(|lines| {
        format!("local function process_packet(p)\nlocal a, b, c, d = 1, 2, 3, 4\n{}return (a ~ b ~ c ~ d) & 1\nend", lines.concat())
    })
}

#[test]
fn the_kernel_does_what_the_intermediate_form_says() {
    if !nix_is_root() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "needs root, or CAP_BPF and CAP_NET_ADMIN");
        return eprintln!("skipped: needs root, or CAP_BPF and CAP_NET_ADMIN");
    }
    let cases = std::env::var("SIDESTEP_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300);
    let config = Config { cases, max_shrink_iters: 40, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let packets = prop::collection::vec(prop::collection::vec(any::<u8>(), 40..80), 4);
    let outcome = TestRunner::new_with_rng(config, rng).run(&(body(), packets), |(text, packets)| {
        let program = match compile(&text) {
            Ok(program) => program,
            // Only for its size: the rest can be compiled.
            Err(refusals) => {
                assert!(refusals.iter().all(|one| one.reason.contains("instructions")), "{text}\n{refusals:#?}");
                return Ok(());
            }
        };
        let Ok(emitted) = emit(&program, RESULTS) else { return Ok(()) };
        let loaded = linux::bpf::Program::load(linux::bpf::ProgramKind::SchedCls, &emitted.code)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        for packet in packets {
            let mut expected = packet.clone();
            let result = match run(&program, &mut expected, 0, || 0) {
                Outcome::Verdict(0) => RESULTS.drop,
                Outcome::Verdict(1) => RESULTS.pass,
                Outcome::Verdict(_) | Outcome::Failed(..) => RESULTS.error,
            };
            let got = loaded.test_run(&packet).expect("it runs");
            prop_assert_eq!(got, (result, expected), "{}\n{}", text, program);
        }
        Ok(())
    });
    outcome.unwrap();
}

fn nix_is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"))
}
