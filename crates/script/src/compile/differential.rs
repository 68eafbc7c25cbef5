//! Random scripts and packets: the intermediate form, followed step by step, and the kernel have to agree.

use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use bpf::netfilter::verdict;
use wire::checksum::TransportChecksum;

use super::account::{self, Accounts};
use super::generate::{self, Random};
use super::interpret::{Maps, Outcome, run};
use super::logging::{Line, Said, record};
use super::shared::{Map, MapKind};
use super::tests::{RESULTS, compile, compile_for};
use super::{AttachType, Compiled, Refusal, Results};
use crate::host::{FileError, Host, InterfaceError, Module, NoHost};
use crate::logged::Logged;
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script, Verdict};

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
    let write = (0..70_u8, expression.clone()).prop_map(|(at, e)| format!("p:raw({at}, 1):set({e} & 255)\n"));
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
        format!(
            "function process_packet(p)\nlocal a, b, c, d = 1, 2, 3, 4\n{}return (a ~ b ~ c ~ d) & 1\nend",
            lines.concat()
        )
    })
}

#[test]
fn the_kernel_does_what_the_intermediate_form_says() {
    if !may_load() {
        return;
    }
    let cases = generate::cases(300);
    let config = Config { cases, max_shrink_iters: 40, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let packets = prop::collection::vec(prop::collection::vec(any::<u8>(), 40..80), 4);
    let outcome = TestRunner::new_with_rng(config, rng).run(&(body(), packets), |(text, packets)| {
        let compiled = match compile(&text) {
            Ok(compiled) => compiled,
            // Only for its size: the rest can be compiled.
            Err(refusals) => {
                assert!(refusals.iter().all(|one| one.reason.contains("too ")), "{text}\n{refusals:#?}");
                return Ok(());
            }
        };
        let emitted = compiled.assemble(&[], None).unwrap();
        let loaded = linux::bpf::Program::load(linux::bpf::ProgramKind::SchedCls, &emitted.code)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        for packet in packets {
            let mut expected = packet.clone();
            let result = match run(compiled.intermediate(), &mut Maps::default(), &mut expected, 0, || 0) {
                Outcome::Verdict(0) => RESULTS.drop,
                Outcome::Verdict(1) => RESULTS.pass,
                Outcome::Verdict(_) | Outcome::Redirected(_) | Outcome::Punted | Outcome::Failed(..) => {
                    RESULTS.error
                }
            };
            let got = loaded.test_run(&packet).expect("it runs");
            prop_assert_eq!(got, (result, expected), "{}", text);
        }
        Ok(())
    });
    outcome.unwrap();
}

/// Copies of packets, by the names of interfaces.
type Copies = Vec<(String, Vec<u8>)>;

/// A machine's host that keeps what is logged, and copies of packets.
#[derive(Clone, Default)]
pub(super) struct Logging(Rc<RefCell<Vec<String>>>, Rc<RefCell<Copies>>);

impl Logging {
    /// What was logged since it was asked last.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.borrow_mut())
    }

    /// The copies since it was asked last.
    fn take_copies(&self) -> Copies {
        std::mem::take(&mut *self.1.borrow_mut())
    }
}

impl Host for Logging {
    fn now_ms(&mut self) -> u64 {
        0
    }

    fn random(&mut self) -> u32 {
        0
    }

    fn send(&mut self, _: &[u8], _: Option<&Packet>) {}

    fn interface(&mut self, name: &str) -> Result<u32, InterfaceError> {
        let number = generate::INTERFACES.iter().position(|known| *known == name);
        let unknown = || InterfaceError::Unknown {
            name: name.to_owned(),
            known: generate::INTERFACES.map(str::to_owned).into(),
        };
        number.map(|number| number as u32 + 1).ok_or_else(unknown)
    }

    fn log_fields(&mut self, logged: &Logged) {
        self.0.borrow_mut().push(logged.shown());
    }

    fn log(&mut self, line: &str) {
        self.0.borrow_mut().push(line.to_owned());
    }

    fn mirror(&mut self, interface: &str, frame: &[u8]) {
        self.1.borrow_mut().push((interface.to_owned(), frame.to_vec()));
    }

    fn module(&mut self, _: &str) -> Result<Option<Module>, FileError> {
        Ok(None)
    }
}

/// A program in the kernel, with what it counts and logs in.
pub(super) struct InKernel {
    pub(super) program: linux::bpf::Program,
    log: linux::bpf::Ring,
    counted: [linux::bpf::Map; 2],
    _kept: [linux::bpf::Map; 2],
}

impl InKernel {
    pub(super) fn load(compiled: &Compiled) -> linux::Result<Self> {
        Self::load_to_follow(compiled, i64::MAX)
    }

    /// With so many packets that may be followed.
    pub(super) fn load_to_follow(compiled: &Compiled, packets: i64) -> linux::Result<Self> {
        let maps: Vec<_> = compiled.maps().iter().map(create).collect();
        let maps: Vec<_> = maps.iter().map(AsRawFd::as_raw_fd).collect();
        let log = linux::bpf::Ring::create(1 << 16)?;
        let counted = [
            linux::bpf::Map::create(linux::bpf::MapKind::PerCpuArray, 4, account::SIZES.0, 1)?,
            linux::bpf::Map::create(linux::bpf::MapKind::Array, 4, account::SIZES.1, 1)?,
        ];
        let scratch = linux::bpf::Map::create(linux::bpf::MapKind::PerCpuArray, 4, account::SCRATCH, 1)?;
        let followed = linux::bpf::Map::create(linux::bpf::MapKind::Array, 4, account::FOLLOWED, 1)?;
        followed.set(&[0; 4], &packets.to_ne_bytes())?;
        let accounts = Accounts {
            mirrors: account::Mirrors::Told,
            counters: counted[0].as_raw_fd(),
            fault: counted[1].as_raw_fd(),
            log: Some(account::Log {
                ring: log.as_raw_fd(),
                program: 5,
                scratch: scratch.as_raw_fd(),
                followed: followed.as_raw_fd(),
            }),
        };
        let code = compiled.assemble(&maps, Some(accounts)).expect("its size is known to be right").code;
        let kind = match compiled.attach_type() {
            AttachType::Interface { .. } => linux::bpf::ProgramKind::SchedCls,
            AttachType::Xdp => linux::bpf::ProgramKind::Xdp,
            AttachType::Netfilter { .. } => linux::bpf::ProgramKind::Netfilter,
        };
        let program = linux::bpf::Program::load(kind, &code)?;
        Ok(Self { program, log, counted, _kept: [scratch, followed] })
    }

    /// How many records found the ring full.
    pub(super) fn lost(&self) -> u64 {
        self.counted[0].sum(&[0; 4]).expect("counters")[account::LOST]
    }

    /// How many packets it has punted.
    pub(super) fn punted(&self) -> u64 {
        self.counted[0].sum(&[0; 4]).expect("counters")[account::PUNTED]
    }

    /// What it has said since it was asked last.
    pub(super) fn said(&mut self, lines: &[Line]) -> Vec<Said> {
        let mut said = Vec::new();
        self.log.read(usize::MAX, |bytes| {
            // What is captured is in the same ring.
            said.extend(record(bytes).map(|(_, line, numbers)| lines[line].said(&numbers)));
        });
        said
    }

    /// What it has captured since it was asked last, by the numbers of the names.
    pub(super) fn captured(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut captured = Vec::new();
        self.log.read(usize::MAX, |bytes| {
            let (program, name, octets) = super::logging::captured(bytes).expect("a packet");
            assert_eq!(program, 5);
            captured.push((name, octets.to_vec()));
        });
        captured
    }

    /// What it has logged since it was asked last.
    pub(super) fn logged(&mut self, lines: &[Line]) -> Vec<String> {
        self.told(lines).0
    }

    /// The same, and what it has captured or copied.
    fn told(&mut self, lines: &[Line]) -> (Vec<String>, Vec<(usize, Vec<u8>)>) {
        let (mut logged, mut captured) = (Vec::new(), Vec::new());
        self.log.read(usize::MAX, |bytes| {
            if let Some((_, name, octets)) = super::logging::captured(bytes) {
                return captured.push((name, octets.to_vec()));
            }
            let (program, line, numbers) = record(bytes).expect("a record");
            assert_eq!(program, 5);
            logged.push(lines[line].text(&numbers));
        });
        (logged, captured)
    }
}

/// What scripts that only look say at a hook of netfilter, where packets are read in another way.
#[test]
fn netfilter_has_the_verdicts_of_the_vm() {
    if !may_load() {
        return;
    }
    let layout = match linux::bpf::netfilter::layout() {
        Ok(layout) => layout,
        Err(error) => return eprintln!("not at netfilter: {error}"),
    };
    let results = Results { pass: verdict::ACCEPT, drop: verdict::DROP, error: verdict::DROP, ..RESULTS };
    let programs = generate::cases(600);
    let mut random = Random::new(0x51de_57e9);
    let (mut scripts, mut cases) = (0, 0);
    for number in 0..programs {
        let text = generate::script(&mut random);
        let place = AttachType::Netfilter { layout, interfaces: Vec::new() };
        let Ok(compiled) = super::compile(&Script::new("test.lua", &text), NoHost, results, place) else {
            continue;
        };
        scripts += 1;
        let maps: Vec<_> = compiled.maps().iter().map(create).collect();
        let maps: Vec<_> = maps.iter().map(AsRawFd::as_raw_fd).collect();
        let code = compiled.assemble(&maps, None).unwrap().code;
        let loaded = linux::bpf::Program::load(linux::bpf::ProgramKind::Netfilter, &code)
            .unwrap_or_else(|error| panic!("{number}: {error}\n{text}"));
        let mut machine = Machine::new(NoHost, Limits::default());
        let rule = machine.load(Script::new("test.lua", &text)).unwrap();
        for _ in 0..256 {
            let frame = generate::packet(&mut random);
            let mut packet = Packet::of_ip(&frame[14..], TransportChecksum::Complete);
            // BPF_PROG_TEST_RUN takes whole IPv4 headers.
            if packet.real().len() < 20 {
                continue;
            }
            let real = packet.real().to_vec();
            let expected = match machine.run(rule, &mut packet) {
                (_, Some(_)) | (Verdict::Drop | Verdict::Stolen, None) => verdict::DROP,
                _ => verdict::ACCEPT,
            };
            let told = || format!("{number}: {}\n{text}", hex::encode(&real));
            let got = loaded.test_run(&real).unwrap_or_else(|error| panic!("{error}: {}", told()));
            assert_eq!(got.0, expected, "{}", told());
            cases += 1;
        }
    }
    println!("{scripts} scripts, {cases} cases");
    assert!(cases > 0);
}

/// A map as a program wants it.
pub(super) fn create(map: &Map) -> linux::bpf::Map {
    let (kind, key, value, entries) = map.measures();
    let kind = match kind {
        MapKind::Hash => linux::bpf::MapKind::Hash,
        MapKind::LruHash => linux::bpf::MapKind::LruHash,
        MapKind::Array => linux::bpf::MapKind::Array,
        MapKind::LongestPrefix => linux::bpf::MapKind::LongestPrefix,
        MapKind::Locks => linux::bpf::MapKind::Locks,
    };
    let created = linux::bpf::Map::create(kind, key, value, entries).unwrap();
    for (key, value) in map.initial() {
        created.set(&key, &value).unwrap();
    }
    created
}

/// BPF_PROG_TEST_RUN refuses frames without a whole IP header.
pub(super) fn can_be_tested(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0]) => frame.len() >= 34,
        Some([0x86, 0xdd]) => frame.len() >= 54,
        _ => frame.len() > 14,
    }
}

/// Whether programs can be loaded here; where not, that is told, and in CI it is an error.
pub(super) fn may_load() -> bool {
    let root =
        std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"));
    if !root {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "needs root, or CAP_BPF and CAP_NET_ADMIN");
        eprintln!("not in the kernel: that needs root, or CAP_BPF and CAP_NET_ADMIN");
    }
    root
}

/// The same script and packet in the VM, in the intermediate form and in the kernel.
#[test]
fn both_tiers_do_the_same() {
    let in_kernel = may_load();
    let programs = generate::cases(290);
    let mut random = Random::new(0x51de_57e9);
    let mut cases = 0;
    for number in 0..programs {
        let text = generate::script(&mut random);
        // Every third one is for devices without a link header.
        let has_link = number % 3 != 0;
        let compiled = match compile_for(&text, has_link) {
            Ok(compiled) => compiled,
            Err(refusals) => {
                let may = |one: &Refusal| {
                    let known = [
                        "too ",
                        "without a link header",
                        "whose packets have a link header",
                        "of which a variable has the view",
                        "an even number",
                        "from before the packet grew or shrank",
                        // By a function that is called where nothing comes to, and so was not followed.
                        "may change: see line",
                    ];
                    known.iter().any(|known| one.reason.contains(known))
                };
                assert!(refusals.iter().all(may), "{number}\n{text}\n{refusals:#?}");
                continue;
            }
        };
        let mut loaded = in_kernel
            .then(|| InKernel::load(&compiled).unwrap_or_else(|error| panic!("{number}: {error}\n{text}")));
        let lines = &compiled.intermediate().lines;
        let mirrors = compiled.mirrors();
        let named = |all: Vec<(usize, Vec<u8>)>| -> Copies {
            all.into_iter().map(|(name, octets)| (mirrors[name].clone(), octets)).collect()
        };
        let mut copied = 0;
        let mut maps = Maps::default();
        let log = Logging::default();
        let mut machine = Machine::new(log.clone(), Limits::default());
        let rule = machine.load(Script::new("test.lua", &text)).unwrap();
        for _ in 0..512 {
            let frame = generate::packet(&mut random);
            let (frame, mut packet) = if has_link {
                (frame.clone(), Packet::of_frame(frame, TransportChecksum::Complete))
            } else {
                let packet = Packet::of_ip(&frame[14..], TransportChecksum::Complete);
                (packet.bytes().to_vec(), packet)
            };
            let real = packet.real().to_vec();
            let in_kernel = can_be_tested(&real);
            if !in_kernel && !compiled.maps().is_empty() {
                // What is in the tables would not be the same any more.
                continue;
            }
            let (verdict, error) = machine.run(rule, &mut packet);
            let expected = match (verdict, &error) {
                (_, Some(_)) => RESULTS.error,
                (_, None) if packet.redirected().is_some() => bpf::verdict::REDIRECT,
                (Verdict::Drop | Verdict::Stolen, None) => RESULTS.drop,
                _ => RESULTS.pass,
            };
            let told = || format!("{number}: {error:?}\n{}\n{text}", hex::encode(&frame));
            let mut changed = frame.clone();
            let result = match run(compiled.intermediate(), &mut maps, &mut changed, 0, || 0) {
                Outcome::Verdict(0 | 2) => RESULTS.drop,
                Outcome::Verdict(1 | 3 | 4 | 0xffff_ffff) => RESULTS.pass,
                Outcome::Redirected(interface) => {
                    assert_eq!(packet.redirected(), u32::try_from(interface).ok(), "{}", told());
                    bpf::verdict::REDIRECT
                }
                Outcome::Verdict(_) | Outcome::Punted | Outcome::Failed(..) => RESULTS.error,
            };
            assert_eq!(
                (result, &changed[..]),
                (expected, packet.bytes()),
                "the intermediate form: {}",
                told()
            );
            let logged = log.take();
            let lines_of = |(line, numbers): &(usize, Vec<i64>)| lines[*line].text(numbers);
            let told_lines: Vec<String> = maps.logged.drain(..).map(|one| lines_of(&one)).collect();
            assert_eq!(told_lines, logged, "the intermediate form: {}", told());
            let copies = log.take_copies();
            let in_form = named(std::mem::take(&mut maps.mirrored));
            assert_eq!(in_form, copies, "the intermediate form: {}", told());
            if let Some(loaded) = loaded.as_mut().filter(|_| in_kernel) {
                let got =
                    loaded.program.test_run(&real).unwrap_or_else(|error| panic!("{error}: {}", told()));
                // What leaves through an interface has a link header in any case.
                let made = if got.0 == bpf::verdict::REDIRECT && !has_link { 14 } else { 0 };
                assert_eq!((got.0, &got.1[made..]), (expected, packet.real()), "the kernel: {}", told());
                let (in_kernel, copies_there) = loaded.told(lines);
                assert_eq!(in_kernel, logged, "the kernel: {}", told());
                // More than so many in a second are not told.
                copied += copies.len();
                if copied <= account::CAPTURES_A_SECOND as usize {
                    assert_eq!(named(copies_there), copies, "the kernel: {}", told());
                }
            }
            cases += 1;
        }
    }
    println!("{cases} cases");
    assert!(cases >= 320 * programs || programs < 90, "{cases} cases");
}

#[test]
fn what_cannot_fail_or_always_does_is_accepted() {
    if !may_load() {
        return;
    }
    for (body, result) in [
        ("return NF_ACCEPT", RESULTS.pass),
        ("if #p > 5 then return NF_ACCEPT end return NF_DROP", RESULTS.pass),
        ("local x x()", RESULTS.error),
        ("return 17", RESULTS.error),
    ] {
        let compiled = compile(&format!("function process_packet(p) {body} end")).expect(body);
        let loaded = InKernel::load(&compiled).expect(body);
        assert_eq!(loaded.program.test_run(&[0; 60]).expect(body).0, result, "{body}");
    }
}
