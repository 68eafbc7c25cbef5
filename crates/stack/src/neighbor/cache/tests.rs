//! The state machine of RFC 4861 appendix C and the table of §7.2.5, rule by rule.

use super::*;
use proptest::prelude::*;

const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xa]);
const OTHER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xb]);

struct Cache {
    neighbors: Neighbors,
    now: Instant,
}

impl Cache {
    fn new() -> Self {
        Cache { neighbors: Neighbors::default(), now: Instant::now() }
    }

    fn in_state(state: State) -> Self {
        let mut cache = Cache::new();
        cache.neighbors.learn(cache.now, A, MAC, None);
        cache.neighbors.entries.get_mut(&A).unwrap().state = state;
        cache
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.neighbors.handle_timeout(self.now);
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.neighbors.next_action()).collect()
    }

    fn resolve(&mut self) -> Resolution {
        self.neighbors.resolve(self.now, A, b"packet", true)
    }

    fn advertise(&mut self, solicited: bool, r#override: bool, link_layer: Option<MacAddress>) {
        let said = Advertisement { target: A, router: false, solicited, r#override, link_layer };
        self.neighbors.advertised(self.now, said);
    }

    fn state(&self) -> Option<State> {
        self.neighbors.state(A)
    }

    fn reachable(&self) -> State {
        State::Reachable { until: self.now + REACHABLE_TIME }
    }
}

fn solicit(at: Option<MacAddress>) -> Action {
    Action::Solicit { target: A, at, source: None }
}

fn sent(to: MacAddress) -> Action {
    Action::Send { to, packet: b"packet".to_vec() }
}

#[test]
fn rfc_4861_7_2_2_the_first_packet_asks_and_waits() {
    let mut cache = Cache::new();
    assert_eq!(cache.resolve(), Resolution::Queued);
    assert_eq!(cache.resolve(), Resolution::Queued);
    assert_eq!(cache.actions(), [solicit(None)]);
    cache.advertise(true, true, Some(MAC));
    assert_eq!(cache.actions(), [sent(MAC), sent(MAC)]);
    assert_eq!(cache.state(), Some(cache.reachable()));
    assert_eq!(cache.resolve(), Resolution::Known(MAC));
}

#[test]
fn rfc_4861_7_2_2_of_many_that_wait_the_newest_stay() {
    let mut cache = Cache::new();
    let results: Vec<_> =
        (0..10u8).map(|number| cache.neighbors.resolve(cache.now, A, &[number], true)).collect();
    assert_eq!(results[7..], [Resolution::Queued, Resolution::Displaced, Resolution::Displaced]);
    cache.actions();
    cache.advertise(true, true, Some(MAC));
    let expected: Vec<_> = (2..10).map(|number| Action::Send { to: MAC, packet: vec![number] }).collect();
    assert_eq!(cache.actions(), expected);
}

#[test]
fn rfc_4861_7_2_2_after_three_questions_the_packets_come_back() {
    let mut cache = Cache::new();
    cache.resolve();
    cache.actions();
    cache.wait(1);
    assert_eq!(cache.actions(), [solicit(None)]);
    cache.wait(1);
    assert_eq!(cache.actions(), [solicit(None)]);
    cache.wait(1);
    assert_eq!(cache.actions(), [Action::Unreachable { neighbor: A, packet: Some(b"packet".to_vec()) }]);
    assert_eq!(cache.state(), None);
    assert_eq!(cache.neighbors.deadline(), None);
}

#[test]
fn rfc_4861_7_2_3_a_solicitation_makes_a_stale_entry_and_changes_one_that_differs() {
    let mut cache = Cache::new();
    cache.neighbors.learn(cache.now, A, MAC, None);
    assert_eq!(cache.state(), Some(State::Stale));
    cache.neighbors.confirm(cache.now, A);
    cache.neighbors.learn(cache.now, A, MAC, None);
    assert_eq!(cache.state(), Some(cache.reachable()), "nothing new");
    cache.neighbors.learn(cache.now, A, OTHER, None);
    assert_eq!((cache.state(), cache.neighbors.link_layer(A)), (Some(State::Stale), Some(OTHER)));
}

#[test]
fn appendix_c_a_solicitation_from_whom_we_ask_for_lets_packets_go() {
    let mut cache = Cache::new();
    cache.resolve();
    cache.actions();
    cache.neighbors.learn(cache.now, A, MAC, None);
    assert_eq!(cache.actions(), [sent(MAC)]);
    assert_eq!(cache.state(), Some(State::Delay { until: cache.now + DELAY_FIRST_PROBE_TIME }));
}

#[test]
fn rfc_4861_7_2_5_an_advertisement_of_an_unknown_neighbor_is_discarded() {
    let mut cache = Cache::new();
    cache.advertise(true, true, Some(MAC));
    assert_eq!(cache.state(), None);
}

#[test]
fn rfc_4861_7_2_5_incomplete_needs_a_link_layer_address() {
    let mut cache = Cache::new();
    cache.resolve();
    cache.actions();
    cache.advertise(true, true, None);
    assert!(matches!(cache.state(), Some(State::Incomplete { .. })));
    cache.advertise(false, false, Some(MAC));
    assert_eq!(cache.actions(), [sent(MAC)]);
    assert_eq!(cache.state(), Some(State::Delay { until: cache.now + DELAY_FIRST_PROBE_TIME }));
}

#[test]
fn rfc_4861_7_2_5_without_override_another_address_only_casts_doubt() {
    let far = Instant::now() + Duration::from_secs(1000);
    for state in [State::Stale, State::Delay { until: far }, State::Probe { sent: 1, next: far }] {
        let mut cache = Cache::in_state(state);
        cache.advertise(true, false, Some(OTHER));
        assert_eq!((cache.state(), cache.neighbors.link_layer(A)), (Some(state), Some(MAC)));
    }
    let mut cache = Cache::in_state(State::Reachable { until: far });
    cache.advertise(true, false, Some(OTHER));
    assert_eq!((cache.state(), cache.neighbors.link_layer(A)), (Some(State::Stale), Some(MAC)));
}

#[test]
fn rfc_4861_7_2_5_what_is_solicited_confirms() {
    let far = Instant::now() + Duration::from_secs(1000);
    for state in [State::Stale, State::Delay { until: far }, State::Probe { sent: 1, next: far }] {
        for (r#override, link_layer, then) in
            [(false, Some(MAC), MAC), (false, None, MAC), (true, Some(MAC), MAC), (true, Some(OTHER), OTHER)]
        {
            let mut cache = Cache::in_state(state);
            cache.advertise(true, r#override, link_layer);
            assert_eq!((cache.state(), cache.neighbors.link_layer(A)), (Some(cache.reachable()), Some(then)));
        }
    }
}

#[test]
fn rfc_4861_7_2_5_what_is_not_solicited_changes_only_the_address() {
    let far = Instant::now() + Duration::from_secs(1000);
    for state in [State::Stale, State::Reachable { until: far }, State::Probe { sent: 1, next: far }] {
        let mut cache = Cache::in_state(state);
        cache.advertise(false, true, Some(MAC));
        assert_eq!(cache.state(), Some(state));
        cache.advertise(false, true, Some(OTHER));
        assert_eq!((cache.state(), cache.neighbors.link_layer(A)), (Some(State::Stale), Some(OTHER)));
    }
}

#[test]
fn rfc_4861_7_2_5_a_router_that_becomes_a_host_is_reported() {
    let mut cache = Cache::new();
    cache.neighbors.learn(cache.now, A, MAC, Some(true));
    cache.advertise(true, true, Some(MAC));
    assert_eq!(cache.actions(), [Action::NoRouter(A)]);
    cache.advertise(true, true, Some(MAC));
    assert_eq!(cache.actions(), []);
}

#[test]
fn rfc_4861_7_3_3_a_stale_neighbor_that_is_used_and_does_not_answer_is_removed() {
    let mut cache = Cache::in_state(State::Stale);
    cache.wait(1000);
    assert_eq!(cache.resolve(), Resolution::Known(MAC));
    assert_eq!(cache.state(), Some(State::Delay { until: cache.now + DELAY_FIRST_PROBE_TIME }));
    cache.wait(4);
    assert_eq!(cache.actions(), []);
    for _ in 0..3 {
        cache.wait(1);
        assert_eq!(cache.actions(), [solicit(Some(MAC))]);
        assert_eq!(cache.resolve(), Resolution::Known(MAC), "packets go on meanwhile");
    }
    cache.wait(1);
    assert_eq!(cache.actions(), [Action::Unreachable { neighbor: A, packet: None }]);
    assert_eq!(cache.state(), None);
}

#[test]
fn rfc_4861_7_3_1_a_transport_confirms() {
    let mut cache = Cache::in_state(State::Stale);
    cache.resolve();
    cache.neighbors.confirm(cache.now, A);
    assert_eq!(cache.state(), Some(cache.reachable()));
    cache.wait(30);
    assert_eq!(cache.state(), Some(State::Stale));
    let mut cache = Cache::new();
    cache.resolve();
    cache.neighbors.confirm(cache.now, A);
    assert!(matches!(cache.state(), Some(State::Incomplete { .. })), "not without an address");
}

#[test]
fn rfc_4861_6_3_4_the_reachable_time_is_drawn_around_what_routers_say() {
    let mut cache = Cache::new();
    let base = Duration::from_secs(100);
    cache.neighbors.set_times(Some(base), Some(Duration::from_secs(2)), &mut Random::new([1; 32]));
    let time = cache.neighbors.reachable_time;
    assert!(time >= base / 2 && time < base * 3 / 2);
    cache.neighbors.set_times(Some(base), None, &mut Random::new([2; 32]));
    assert_eq!(
        (cache.neighbors.reachable_time, cache.neighbors.retrans_timer()),
        (time, Duration::from_secs(2))
    );
}

#[test]
fn rfc_6583_strangers_do_not_push_out_whom_we_talk_to() {
    let mut cache = Cache::new();
    cache.resolve();
    cache.advertise(true, true, Some(MAC));
    for number in 0..2000u16 {
        let stranger = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number);
        cache.neighbors.learn(cache.now, stranger, OTHER, None);
        assert!(cache.neighbors.len() <= MAX_NEIGHBORS);
    }
    cache.wait(31);
    assert_eq!(cache.resolve(), Resolution::Known(MAC));
}

#[test]
fn rfc_6583_a_sweep_asks_for_so_many_at_once() {
    let mut cache = Cache::new();
    for number in 0..2000u16 {
        cache.neighbors.resolve(cache.now, Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number), b"", true);
    }
    assert_eq!((cache.actions().len(), cache.neighbors.len()), (MAX_INCOMPLETE, MAX_INCOMPLETE));
}

#[test]
fn rfc_6583_our_own_traffic_finds_room_among_strangers_that_we_have_answered() {
    let mut cache = Cache::new();
    for number in 0..2000u16 {
        let target = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number);
        cache.neighbors.resolve(cache.now, target, b"", false);
        let said = Advertisement {
            target,
            router: false,
            solicited: true,
            r#override: true,
            link_layer: Some(OTHER),
        };
        cache.neighbors.advertised(cache.now, said);
        cache.actions();
    }
    assert_eq!(cache.neighbors.len(), MAX_NEIGHBORS);
    assert_eq!(cache.resolve(), Resolution::Queued);
}

#[test]
fn rfc_6583_strangers_who_are_not_there_leave_room_for_our_own_questions() {
    let mut cache = Cache::new();
    for number in 0..2000u16 {
        cache.neighbors.resolve(cache.now, Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number), b"", false);
    }
    assert_eq!(cache.neighbors.len(), MAX_INCOMPLETE);
    assert_eq!(cache.resolve(), Resolution::Queued);
}

#[test]
fn a_group_is_no_link_layer_address_of_a_neighbor() {
    let mut cache = Cache::new();
    cache.neighbors.learn(cache.now, A, MacAddress([0x33, 0x33, 0, 0, 0, 1]), None);
    assert_eq!(cache.state(), None);
}

/// The state by its name.
fn name(state: Option<State>) -> &'static str {
    match state {
        None => "-",
        Some(State::Incomplete { .. }) => "INCOMPLETE",
        Some(State::Reachable { .. }) => "REACHABLE",
        Some(State::Stale) => "STALE",
        Some(State::Delay { .. }) => "DELAY",
        Some(State::Probe { .. }) => "PROBE",
    }
}

/// What the rows of appendix C say of each state but INCOMPLETE, for an event: the state after it, if that is another, and
/// whether the link-layer address is.
type Row = (fn(&mut Cache), Option<&'static str>, bool);

#[test]
fn appendix_c_each_event_in_each_state_of_a_neighbor_whose_address_is_known() {
    let rows: [Row; 12] = [
        (|cache| cache.advertise(true, false, Some(MAC)), Some("REACHABLE"), false),
        (|cache| cache.advertise(true, true, Some(MAC)), Some("REACHABLE"), false),
        (|cache| cache.advertise(true, true, Some(OTHER)), Some("REACHABLE"), true),
        // The text of §7.2.5, which the appendix contradicts.
        (|cache| cache.advertise(true, false, None), Some("REACHABLE"), false),
        (|cache| cache.advertise(false, false, Some(MAC)), None, false),
        (|cache| cache.advertise(false, false, None), None, false),
        (|cache| cache.advertise(false, true, Some(MAC)), None, false),
        (|cache| cache.advertise(false, true, None), None, false),
        (|cache| cache.advertise(false, true, Some(OTHER)), Some("STALE"), true),
        (|cache| cache.neighbors.confirm(cache.now, A), Some("REACHABLE"), false),
        (|cache| cache.neighbors.learn(cache.now, A, MAC, None), None, false),
        (|cache| cache.neighbors.learn(cache.now, A, OTHER, None), Some("STALE"), true),
    ];
    let next = Instant::now() + Duration::from_secs(9);
    let states = [
        State::Reachable { until: next },
        State::Stale,
        State::Delay { until: next },
        State::Probe { sent: 1, next },
    ];
    for (row, (event, then, changes)) in rows.into_iter().enumerate() {
        for state in states {
            let mut cache = Cache::in_state(state);
            event(&mut cache);
            let then = then.unwrap_or_else(|| name(Some(state)));
            assert_eq!(name(cache.state()), then, "row {row}, {state:?}");
            let address = if changes { OTHER } else { MAC };
            assert_eq!(cache.neighbors.link_layer(A), Some(address), "row {row}, {state:?}");
        }
    }
    for solicited in [false, true] {
        for state in states {
            let mut cache = Cache::in_state(state);
            cache.advertise(solicited, false, Some(OTHER));
            let then = if matches!(state, State::Reachable { .. }) { "STALE" } else { name(Some(state)) };
            assert_eq!((name(cache.state()), cache.neighbors.link_layer(A)), (then, Some(MAC)), "{state:?}");
        }
    }
}

#[test]
fn appendix_c_each_event_in_incomplete_and_without_an_entry() {
    let asking = || {
        let mut cache = Cache::new();
        cache.resolve();
        cache.actions();
        cache
    };
    for r#override in [false, true] {
        let mut cache = asking();
        cache.advertise(true, r#override, Some(MAC));
        assert_eq!((name(cache.state()), cache.actions()), ("REACHABLE", vec![sent(MAC)]));
        let mut cache = asking();
        cache.advertise(false, r#override, Some(MAC));
        // STALE, from which the packet that leaves leads on.
        assert_eq!((name(cache.state()), cache.actions()), ("DELAY", vec![sent(MAC)]));
        let mut cache = asking();
        cache.advertise(true, r#override, None);
        assert_eq!((name(cache.state()), cache.actions()), ("INCOMPLETE", vec![]));
        let mut cache = Cache::new();
        cache.advertise(true, r#override, Some(MAC));
        assert_eq!(name(cache.state()), "-");
    }
    let mut cache = Cache::new();
    cache.neighbors.learn(cache.now, A, MAC, None);
    assert_eq!(name(cache.state()), "STALE");
    let mut cache = asking();
    cache.neighbors.confirm(cache.now, A);
    assert_eq!(name(cache.state()), "INCOMPLETE", "there is nothing to confirm");
}

#[test]
fn appendix_d_what_says_whether_a_neighbor_is_a_router() {
    let is_router = |cache: &Cache| cache.neighbors.entries[&A].is_router;
    let mut cache = Cache::new();
    cache.neighbors.learn(cache.now, A, MAC, None);
    assert!(!is_router(&cache), "a new entry by a solicitation");
    cache.neighbors.learn(cache.now, A, OTHER, Some(true));
    assert!(is_router(&cache), "a router advertisement, or a redirect to a router");
    cache.neighbors.learn(cache.now, A, MAC, None);
    assert!(is_router(&cache), "a solicitation, or a redirect to the destination, changes nothing");
    cache.advertise(false, false, Some(OTHER));
    assert!(is_router(&cache), "nor an advertisement that is not taken");
    cache.advertise(false, false, None);
    assert!(!is_router(&cache), "an advertisement that is");
    assert_eq!(cache.actions(), [Action::NoRouter(A)]);
    cache.neighbors.mark_router(A);
    assert!(is_router(&cache), "a router advertisement without an address");
}

#[test]
fn rfc_4861_7_2_2_and_7_3_3_no_more_than_one_question_in_each_retransmission_time() {
    let mut cache = Cache::new();
    let mut questions = 0;
    for _ in 0..29 {
        cache.resolve();
        cache.now += Duration::from_millis(100);
        cache.neighbors.handle_timeout(cache.now);
        questions += cache.actions().len();
    }
    assert_eq!(questions, 3);
    let mut cache = Cache::in_state(State::Stale);
    cache.resolve();
    cache.wait(4);
    assert_eq!(cache.actions(), [], "in DELAY nothing is asked");
    cache.wait(1);
    assert_eq!((name(cache.state()), cache.actions()), ("PROBE", vec![solicit(Some(MAC))]));
    for _ in 0..9 {
        cache.resolve();
        cache.now += Duration::from_millis(100);
        cache.neighbors.handle_timeout(cache.now);
    }
    assert_eq!(cache.actions(), []);
}

proptest! {
    #[test]
    fn whatever_happens_an_address_is_known_or_asked_for(
        steps in proptest::collection::vec((0u8..5, any::<(bool, bool, bool)>(), 0u64..40), 0..60)
    ) {
        let mut cache = Cache::new();
        for (kind, (a, b, c), seconds) in steps {
            match kind {
                0 => { cache.resolve(); }
                1 => cache.advertise(a, b, c.then_some(OTHER)),
                2 => cache.neighbors.learn(cache.now, A, if a { MAC } else { OTHER }, b.then_some(c)),
                3 => cache.neighbors.confirm(cache.now, A),
                _ => cache.wait(seconds),
            }
            cache.actions();
            if let Some(entry) = cache.neighbors.entries.get(&A) {
                prop_assert_eq!(entry.link_layer.is_none(), matches!(entry.state, State::Incomplete { .. }));
                prop_assert!(entry.link_layer.is_none() || entry.queue.is_empty());
            }
        }
    }
}
