//! Stories of a site with two gateways, in virtual time: links, daemons, agents and the register fail.

use std::sync::Arc;
use std::time::Duration;

use fleet::key::{Digest, SigningKey};
use fleet::signed::Signed;
use fleet::standby::{Action, Beat, Gateway, Registered, Run, Turn};

use crate::scene::name;

const STEP: Duration = Duration::from_millis(5);
const SILENCE: Duration = Duration::from_millis(300);
/// One way, on the site's own links and to the register.
const NEAR: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_millis(10);
/// 2026, in seconds of Unix time.
const UNIX: u64 = 1_780_000_000;

/// A machine of the two.
struct Machine {
    agent: Option<Gateway>,
    agent_stopped: bool,
    /// Its daemon, if it runs, and its turn.
    daemon: Option<Option<u64>>,
    daemon_stopped: bool,
    /// What it remembers.
    held: u64,
    reaches_register: bool,
    watch_was_up: bool,
    clock_is_off: i64,
}

enum What {
    Beat(Box<Signed<Beat>>),
    /// Its turn, and until when it may be announced.
    Tell(Option<u64>, Option<Duration>),
    Answered(Option<u64>),
    Put(u64, Box<Signed<Turn>>),
    PutEnded(Registered),
    Registered(Registered),
}

struct Site {
    now: Duration,
    random: fastrand::Rng,
    key: Arc<SigningKey>,
    machines: [Machine; 2],
    links: bool,
    register: Registered,
    on_the_way: Vec<(Duration, usize, What)>,
    /// Every beginning of a turn: when, who, and which.
    begun: Vec<(Duration, usize, u64)>,
    /// How often a daemon was let announce a turn while another one had begun a later.
    stale: usize,
}

impl Site {
    fn new(seed: u64) -> Self {
        let machine = || Machine {
            agent: None,
            agent_stopped: false,
            daemon: Some(None),
            daemon_stopped: false,
            held: 0,
            reaches_register: true,
            watch_was_up: false,
            clock_is_off: 0,
        };
        let mut site = Site {
            now: Duration::from_secs(1000),
            random: fastrand::Rng::with_seed(seed),
            key: Arc::new(SigningKey::from_seed([7; 32])),
            machines: [machine(), machine()],
            links: true,
            register: Registered { version: 0, turn: None },
            on_the_way: Vec::new(),
            begun: Vec::new(),
            stale: 0,
        };
        site.start(0);
        site.start(1);
        site
    }

    /// With a gateway that is active for a while.
    fn running(seed: u64) -> (Self, usize) {
        let mut site = Site::new(seed);
        site.run(Duration::from_secs(20));
        let active = site.only_active();
        (site, active)
    }

    fn start(&mut self, at: usize) {
        let (network, run) = (Digest::of(b"network"), Run(self.random.u64(..)));
        let held = self.machines[at].held;
        let mut agent =
            Gateway::new((network, name("kiel")), Arc::clone(&self.key), run, held, SILENCE, self.now);
        // An agent asks before it tells anything.
        if let Some(turn) = self.machines[at].daemon {
            agent.daemon(turn, self.now);
        }
        self.machines[at].agent = Some(agent);
        self.machines[at].watch_was_up = false;
    }

    fn unix(&self, at: usize) -> u64 {
        (UNIX + self.now.as_secs()).saturating_add_signed(self.machines[at].clock_is_off)
    }

    fn send(&mut self, after: Duration, to: usize, what: What) {
        self.on_the_way.push((self.now + after, to, what));
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.on_the_way).into_iter().partition(|(at, to, what)| {
                let machine = &self.machines[*to];
                // What waits for somebody who is stopped waits.
                let waits = match what {
                    What::Tell(..) => machine.daemon_stopped,
                    What::Put(..) => false,
                    _ => machine.agent_stopped,
                };
                *at <= now && !waits
            });
        self.on_the_way = later;
        for (_, to, what) in due {
            self.arrives(to, what);
        }
        for at in 0..2 {
            self.turn(at);
        }
    }

    fn arrives(&mut self, to: usize, what: What) {
        let (now, unix) = (self.now, self.unix(to));
        match what {
            What::Put(at, turn) => {
                if !self.machines[to].reaches_register {
                    return;
                }
                if self.register.version == at {
                    let before = self.register.turn.as_ref().map_or(0, |turn| turn.read().unwrap().turn);
                    assert!(turn.read().unwrap().turn >= before, "turns go back");
                    self.register = Registered { version: at + 1, turn: Some(*turn) };
                    for other in 0..2 {
                        self.send(FAR, other, What::Registered(self.register.clone()));
                    }
                }
                self.send(FAR, to, What::PutEnded(self.register.clone()));
            }
            What::Tell(turn, announce_until) => {
                let Some(daemon) = &mut self.machines[to].daemon else { return };
                if let Some(begun) = turn.filter(|_| *daemon != turn) {
                    self.begun.push((now, to, begun));
                }
                *daemon = turn;
                let last = self.begun.iter().map(|(.., turn)| *turn).max();
                self.stale += usize::from(announce_until.is_some_and(|until| now < until) && turn < last);
                self.send(NEAR, to, What::Answered(turn));
            }
            _ => {
                let reaches = self.machines[to].reaches_register;
                let Some(agent) = &mut self.machines[to].agent else { return };
                match what {
                    What::Beat(beat) => agent.heard(&beat, now),
                    What::Answered(turn) => agent.daemon(turn, now),
                    What::Registered(registered) if reaches => agent.registered(&registered, unix, now),
                    What::PutEnded(registered) => {
                        if reaches {
                            agent.registered(&registered, unix, now);
                        }
                        agent.put_ended();
                    }
                    _ => {}
                }
            }
        }
    }

    /// An agent's turn of its loop.
    fn turn(&mut self, at: usize) {
        let (now, unix) = (self.now, self.unix(at));
        let machine = &mut self.machines[at];
        if machine.agent_stopped {
            return;
        }
        let Some(agent) = &mut machine.agent else { return };
        if machine.reaches_register != machine.watch_was_up {
            machine.watch_was_up = machine.reaches_register;
            if machine.reaches_register {
                // It connects, and asks.
                self.on_the_way.push((now + FAR * 4, at, What::Registered(self.register.clone())));
            } else {
                agent.register_is_gone();
            }
        }
        if machine.daemon.is_none() {
            agent.daemon_is_gone(now);
        }
        if agent.deadline() <= now {
            agent.handle_timeout(now, unix);
        }
        let mut actions = Vec::new();
        while let Some(action) = agent.next_action() {
            actions.push(action);
        }
        for action in actions {
            match action {
                Action::Beat(beat) if self.links => self.send(NEAR, 1 - at, What::Beat(beat)),
                Action::Tell { turn, announce } => {
                    self.send(NEAR, at, What::Tell(turn, announce.then_some(now + SILENCE)));
                }
                Action::Put { at: version, turn } => self.send(FAR, at, What::Put(version, turn)),
                Action::Keep(held) => self.machines[at].held = held,
                Action::Beat(_) | Action::Prepare => {}
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// Machines whose daemon can carry packets and has a turn that nobody has begun another after.
    fn active(&self) -> Vec<usize> {
        let last = self.begun.iter().map(|(.., turn)| *turn).max();
        let is = |at: &usize| {
            let machine = &self.machines[*at];
            !machine.daemon_stopped && machine.daemon.flatten().is_some_and(|turn| Some(turn) == last)
        };
        (0..2).filter(is).collect()
    }

    fn only_active(&self) -> usize {
        let active = self.active();
        assert_eq!(active.len(), 1, "{:?}", self.begun);
        active[0]
    }

    /// How long it takes until the other one is active, after something was done to the one that is.
    fn failover(&mut self, from: usize) -> Duration {
        let since = self.now;
        while self.active() != [1 - from] {
            assert!(self.now < since + Duration::from_secs(30), "nobody took over: {:?}", self.begun);
            self.step();
        }
        self.now - since
    }

    /// A machine is gone, or stands still, as a whole.
    fn stop(&mut self, at: usize, stopped: bool) {
        (self.machines[at].daemon_stopped, self.machines[at].agent_stopped) = (stopped, stopped);
    }

    fn wake(&mut self, at: usize) {
        self.stop(at, false);
        let now = self.now;
        if let Some(agent) = &mut self.machines[at].agent {
            agent.slept(now);
        }
        self.machines[at].watch_was_up = false;
    }
}

/// So many in the full suite (`SIDESTEP_SCALE`), else a fifth of them.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let is_full = std::env::var("SIDESTEP_SCALE").is_ok_and(|scale| scale == "full");
    0..if is_full { count } else { count / 5 }
}

#[test]
fn of_two_that_start_one_becomes_active_and_stays_so() {
    for seed in seeds(20) {
        let (mut site, active) = Site::running(seed);
        site.run(Duration::from_secs(60));
        assert_eq!(site.only_active(), active);
        assert_eq!(site.begun.len(), 1, "{:?}", site.begun);
    }
}

#[test]
fn the_other_one_takes_over_within_a_second_whatever_is_killed() {
    for seed in seeds(20) {
        // The daemon; the agent; all of it; all of it stands still; its daemon does; its agent does.
        for story in 0..6 {
            let (mut site, active) = Site::running(seed);
            let machine = &mut site.machines[active];
            match story {
                0 => machine.daemon = None,
                1 => machine.agent = None,
                2 => (machine.daemon, machine.agent) = (None, None),
                3 => site.stop(active, true),
                4 => machine.daemon_stopped = true,
                _ => machine.agent_stopped = true,
            }
            let took = site.failover(active);
            let within = if story == 0 { SILENCE / 3 } else { SILENCE * 2 };
            assert!(took < within + SILENCE / 2, "story {story}: {took:?}");
            // Then it is there again.
            site.run(Duration::from_secs(5));
            match story {
                0 => site.machines[active].daemon = Some(None),
                1 => site.start(active),
                2 => {
                    site.machines[active].daemon = Some(None);
                    site.start(active);
                }
                _ => site.wake(active),
            }
            site.run(Duration::from_secs(20));
            assert_eq!(site.only_active(), 1 - active, "story {story}: it does not take it back");
            assert_eq!(site.machines[active].daemon, Some(None), "story {story}: it knows that");
            assert_eq!(site.stale, 0, "story {story}: hosts are led back to it for a while");
        }
    }
}

#[test]
fn that_the_two_do_not_hear_each_other_changes_nothing() {
    for seed in seeds(20) {
        let (mut site, active) = Site::running(seed);
        site.links = false;
        site.run(Duration::from_secs(120));
        assert_eq!((site.only_active(), site.begun.len()), (active, 1));
        // Nor that the active one does not reach the register, as long as they do.
        site.links = true;
        site.run(Duration::from_secs(5));
        site.machines[active].reaches_register = false;
        site.run(Duration::from_secs(120));
        assert_eq!((site.only_active(), site.begun.len()), (active, 1));
    }
}

/// The other one takes over, since it cannot be told from one that is gone; it goes on as well, and peers know better.
#[test]
fn one_that_hears_nobody_any_more_goes_on_with_a_turn_that_is_over() {
    for seed in seeds(20) {
        let (mut site, active) = Site::running(seed);
        site.links = false;
        site.machines[active].reaches_register = false;
        site.failover(active);
        let over = site.machines[active].daemon.flatten().expect("it cannot know");
        let last = site.machines[1 - active].daemon.flatten().expect("it is active");
        assert!(over < last);
        site.links = true;
        site.run(Duration::from_secs(1));
        assert_eq!(site.machines[active].daemon, Some(None), "now it knows");
        assert_eq!(site.only_active(), 1 - active);
    }
}

#[test]
fn without_any_register_the_active_one_goes_on_and_one_that_cannot_hands_over() {
    for seed in seeds(20) {
        let (mut site, active) = Site::running(seed);
        site.machines.iter_mut().for_each(|machine| machine.reaches_register = false);
        site.run(Duration::from_secs(300));
        assert_eq!((site.only_active(), site.begun.len()), (active, 1));
        // Its agent says that it cannot go on: that is enough.
        site.machines[active].daemon = None;
        assert!(site.failover(active) < SILENCE);
        site.machines[active].daemon = Some(None);
        site.run(Duration::from_secs(5));
        assert_eq!(site.only_active(), 1 - active);
        // All of it is gone: nobody may know, so nobody takes over, until the register is there.
        let now_active = 1 - active;
        (site.machines[now_active].daemon, site.machines[now_active].agent) = (None, None);
        site.run(Duration::from_secs(60));
        assert!(site.active().is_empty());
        site.machines[active].reaches_register = true;
        site.failover(now_active);
    }
}

/// A power cut at the site, while no controller can be reached: perhaps because they are behind the tunnels.
#[test]
fn after_a_cold_start_without_a_register_the_site_is_there_again() {
    for seed in seeds(20) {
        for alone in [false, true] {
            let (mut site, active) = Site::running(seed);
            for machine in &mut site.machines {
                machine.reaches_register = false;
                (machine.daemon, machine.agent) = (Some(None), None);
            }
            site.start(active);
            if !alone {
                site.start(1 - active);
            }
            site.run(Duration::from_secs(20));
            assert_eq!(site.only_active(), active, "who had the last turn");
        }
    }
}

#[test]
fn clocks_that_are_set_do_not_matter() {
    for seed in seeds(20) {
        let (mut site, mut active) = Site::running(seed);
        for off in [-400_000_000, 90_000, 0, -3600] {
            site.machines[1 - active].clock_is_off = off;
            site.machines[active].daemon_stopped = true;
            site.failover(active);
            site.wake(active);
            site.run(Duration::from_secs(5));
            active = site.only_active();
        }
    }
}

#[test]
fn whatever_happens_no_turn_is_begun_twice_and_in_the_end_one_is_active() {
    for seed in seeds(200) {
        let mut site = Site::new(seed);
        for _ in 0..60 {
            let at = site.random.usize(..2);
            match site.random.u8(..12) {
                0 => site.machines[at].daemon = None,
                1 if site.machines[at].daemon.is_none() => site.machines[at].daemon = Some(None),
                2 => site.machines[at].agent = None,
                3 if site.machines[at].agent.is_none() => site.start(at),
                4 => site.stop(at, true),
                5 if site.machines[at].agent_stopped => site.wake(at),
                6 => site.machines[at].daemon_stopped ^= true,
                7 => site.machines[at].reaches_register ^= true,
                8 => site.links ^= true,
                9 => site.machines[at].clock_is_off = site.random.i64(-1_000_000..1_000_000),
                _ => {}
            }
            let pause = site.random.u64(20..2500);
            site.run(Duration::from_millis(pause));
        }
        site.links = true;
        for at in 0..2 {
            site.wake(at);
            site.machines[at].reaches_register = true;
            site.machines[at].daemon.get_or_insert(None);
            if site.machines[at].agent.is_none() {
                site.start(at);
            }
        }
        site.run(Duration::from_secs(20));
        let active = site.only_active();
        assert_eq!(site.machines[1 - active].daemon, Some(None), "seed {seed}");
        for (_, who, turn) in &site.begun {
            let others = site.begun.iter().filter(|(_, other, same)| same == turn && other != who);
            assert_eq!(others.count(), 0, "seed {seed}: turn {turn} is of both");
        }
    }
}

#[test]
fn what_the_site_has_not_signed_or_was_said_before_is_nothing() {
    let (mut site, active) = Site::running(1);
    let standby = 1 - active;
    let forged = |key: &SigningKey, count| {
        let beat = Beat {
            network: Digest::of(b"network"),
            site: name("kiel"),
            run: Run(5),
            count,
            hears: None,
            ability: fleet::standby::Ability::Active,
            known: u64::MAX,
            held: u64::MAX,
        };
        Signed::new(&beat, [key])
    };
    let (now, known) = (site.now, site.machines[active].daemon.flatten().expect("active"));
    let agent = site.machines[active].agent.as_mut().expect("an agent");
    agent.heard(&forged(&SigningKey::from_seed([8; 32]), 1), now);
    assert_eq!(agent.state(now).known, known);
    // What its other gateway has said is of no use for who has recorded it.
    let mut recorded = None;
    while recorded.is_none() {
        site.step();
        recorded = site.on_the_way.iter().find_map(|(_, to, what)| match what {
            What::Beat(beat) if *to == standby => Some(beat.clone()),
            _ => None,
        });
    }
    site.run(Duration::from_secs(1));
    site.stop(active, true);
    let since = site.now;
    while site.active() != [standby] {
        let now = site.now;
        let agent = site.machines[standby].agent.as_mut().expect("an agent");
        agent.heard(recorded.as_ref().expect("one"), now);
        site.step();
        assert!(site.now < since + Duration::from_secs(2), "a recording passes for a sign of life");
    }
}
