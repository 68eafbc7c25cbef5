//! Many packets over many rotations: none is lost, none comes twice, and TCP notices nothing.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lab::scale::scaled;
use lab::traffic::{self, PingOptions, Pings, TcpOptions, UdpOptions, UdpStream};
use lab::{Builder, Lab, Node, Site, Topology};

use super::scene;

/// A flood of pings and a stream of a minute and more in each direction, at the same time.
fn nothing_is_lost_in_a_minute(builder: Builder) {
    let lab = scene::up(builder);
    let first = scene::rotations(&lab);
    let streams = [Site::A, Site::B].map(|site| scene::start_stream(&lab, site, scaled(15, 90)));
    let count = scaled(30_000, 200_000);
    let pings = Pings::start(&lab, PingOptions { count, interval: None, ..PingOptions::default() });
    for stream in streams {
        scene::assert_complete(&scene::finish(stream));
    }
    let pings = pings.expect("pings").finish(Duration::from_secs(300)).expect("a summary");
    let rotations = scene::rotations(&lab) - first;
    eprintln!("{rotations} rotations, {pings:?}");
    assert_eq!(
        (pings.sent, pings.received, pings.duplicates, pings.errors),
        (count.into(), count.into(), 0, 0)
    );
    // A birth a second on average, by chance.
    assert!(rotations >= scaled(5, 50), "{rotations} rotations");
}

#[test]
fn nothing_is_lost_in_a_minute_routed() {
    let Some(builder) = scene::lab() else { return };
    nothing_is_lost_in_a_minute(builder);
}

mod alone {
    use super::{Topology, nothing_is_lost_in_a_minute, scene};

    /// On a link each new address of a gateway is a route, too: the kernel has one lock for those of all namespaces, which
    /// tests beside this one hold for seconds.
    #[test]
    fn nothing_is_lost_in_a_minute_switched() {
        let Some(builder) = scene::lab() else { return };
        nothing_is_lost_in_a_minute(builder.topology(Topology::Switched));
    }
}

/// Processor time of a gateway's packet threads, in ticks.
fn packet_threads(lab: &mut Lab, site: Site) -> Vec<u64> {
    let tasks = format!("/proc/{}/task", lab.gateway(site).id().expect("it runs"));
    let mut ticks = Vec::new();
    for task in std::fs::read_dir(tasks).expect("its threads") {
        let stat = std::fs::read_to_string(task.expect("a thread").path().join("stat")).expect("its times");
        if let Some((_, rest)) = stat.split_once("(packets-") {
            let fields = rest.split_once(')').expect("the name's end").1.split_whitespace();
            ticks.push(fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks")).sum());
        }
    }
    ticks
}

#[test]
fn several_threads_share_the_flows_and_lose_nothing() {
    let Some(builder) = scene::lab() else { return };
    let mut lab = scene::up(builder.threads(2).lanes(4));
    let first = scene::rotations(&lab);
    let streams = [Site::A, Site::B].map(|site| scene::start_stream(&lab, site, 12));
    let pings = Pings::start(&lab, PingOptions { count: 20_000, interval: None, ..PingOptions::default() });
    for stream in streams {
        scene::assert_complete(&scene::finish(stream));
    }
    let pings = pings.expect("pings").finish(Duration::from_secs(120)).expect("a summary");
    assert_eq!((pings.sent, pings.received, pings.duplicates, pings.errors), (20_000, 20_000, 0, 0));
    for from in [Site::A, Site::B] {
        let options = TcpOptions { from, seconds: 3, parallel: 16, ..TcpOptions::default() };
        let report = traffic::tcp(&lab, options).expect("a transfer");
        eprintln!("16 flows from {from:?}: {report:?}");
    }
    assert!(scene::rotations(&lab) - first >= 40, "four lanes move every second");
    for site in [Site::A, Site::B] {
        let ticks = packet_threads(&mut lab, site);
        eprintln!("ticks of packet threads: {ticks:?}");
        assert_eq!(ticks.len(), 2);
        assert!(ticks.iter().all(|ticks| *ticks > 10), "one thread does nothing: {ticks:?}");
    }
}

/// Prints, whenever they change, when, how many segments the host has sent again, and how many of these needlessly.
const RETRANSMISSIONS: &str = "
import time
def counters(file, kind, *names):
    lines = [line.split() for line in open(file) if line.startswith(kind)]
    values = dict(zip(*lines))
    return [values[name] for name in names]
last = None
while True:
    now = counters('/proc/net/snmp', 'Tcp:', 'RetransSegs')
    now += counters('/proc/net/netstat', 'TcpExt:', 'TCPDSACKRecvSegs')
    if now != last:
        print(int(time.time() * 1000), *now, flush=True)
        last = now
    time.sleep(0.01)
";

/// A segment that is sent again was lost, or late, and then its receiver says so (DSACK, of each that came twice): a machine
/// that stands still for 10 ms is enough for that, and it does so a few times in a minute, more often under load. What is
/// lost would be the rotation's doing. So would be what is late when the gateways move, if it is so more often than by
/// chance.
#[test]
fn tcp_notices_no_rotation() {
    for topology in Topology::ALL {
        let Some(builder) = scene::lab() else { return };
        let lab = scene::up(builder.topology(topology));
        let mut seen = Lateness::default();
        // Births of lanes come by chance: there may be few in one transfer.
        for _ in 0..3 {
            seen.transfer(&lab);
            eprintln!("{topology:?}: {seen:?}");
            if seen.rotations >= scaled(3, 6) && seen.at_moves == 0 {
                break;
            }
        }
        assert!(seen.rotations >= scaled(3, 6), "{topology:?}: {seen:?}");
        assert!(seen.chance() > 0.001, "{topology:?}: something is late when the gateways move: {seen:?}");
    }
}

/// How often something was late in transfers, and how often when the gateways had just moved.
#[derive(Debug, Default)]
struct Lateness {
    times: u64,
    at_moves: u64,
    /// Of the transfers, and of what of them is just after a move; in milliseconds.
    duration: u64,
    after_moves: u64,
    rotations: u64,
}

impl Lateness {
    /// How long after a move what is late is late because of it; and what is late within as long is so once. In milliseconds.
    const AFTER: u64 = 150;

    /// Adds what happens in another transfer. Fails if a segment was lost.
    fn transfer(&mut self, lab: &Lab) {
        let (first, begin) = (scene::rotations(lab), unix_ms());
        let mut watcher = lab.command(Node::HostA, "python3").expect("python3");
        let mut watcher = watcher
            .args(["-c", RETRANSMISSIONS])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a program that counts");
        // What comes before its first line it would not count.
        let mut counted = BufReader::new(watcher.stdout.take().expect("its output")).lines();
        let first_line = counted.next().expect("a first line").expect("its output");
        let options = TcpOptions { seconds: scaled(6, 10), rate: 50_000_000, ..TcpOptions::default() };
        let (moves, report) = moves_during(lab, || traffic::tcp(lab, options).expect("a transfer"));
        let end = unix_ms();
        // What the receiver has to say of the last segment is on its way.
        std::thread::sleep(Duration::from_millis(500));
        watcher.kill().expect("it to end");
        watcher.wait().expect("its end");
        let lines = std::iter::once(first_line).chain(counted.map(|line| line.expect("its output")));
        let counted: Vec<Vec<u64>> =
            lines.map(|line| line.split(' ').map(|word| word.parse().expect("a number")).collect()).collect();
        let needless = counted.last().expect("counters")[2] - counted[0][2];
        eprintln!("{needless} sent again needlessly, {report:?}, counters {counted:?}, moved {moves:?}");
        // The host's own count has the end of the connection in it, of which no receiver says that it came twice.
        assert!(report.retransmits <= needless, "segments were lost");

        let just_after = |at: u64| moves.iter().any(|moved| (*moved..*moved + Self::AFTER).contains(&at));
        let mut late: Vec<u64> = counted[1..].iter().map(|line| line[0]).collect();
        late.dedup_by(|next, last| *next < *last + Self::AFTER);
        self.times += late.len() as u64;
        self.at_moves += late.iter().filter(|at| just_after(**at)).count() as u64;
        self.duration += end - begin;
        self.after_moves += (begin..end).filter(|at| just_after(*at)).count() as u64;
        self.rotations += scene::rotations(lab) - first;
    }

    /// How likely at least as many times are after moves if moves have nothing to do with it (binomial distribution).
    fn chance(&self) -> f64 {
        let share = self.after_moves as f64 / self.duration as f64;
        let exactly = |count: u64| {
            let ways: f64 = (0..count).map(|i| (self.times - i) as f64 / (count - i) as f64).product();
            ways * share.powi(count as i32) * (1.0 - share).powi((self.times - count) as i32)
        };
        (self.at_moves..=self.times).map(exactly).sum()
    }
}

/// At a rotation of a second and 80 % of the rate that the machine carries without loss, whatever that is. What is lost
/// while the machine does something else comes at any time; what a rotation loses would come at the rotations, each time.
#[test]
fn nothing_is_lost_at_a_high_rate_when_the_gateways_move() {
    const SECONDS: u64 = 8;
    /// A rotation's doing would be seen from a little before it to a tenth of a second after it.
    const AROUND: std::ops::Range<i64> = -20..100;
    let Some(builder) = scene::lab() else { return };
    let lab = scene::up(builder.rotation("1s"));
    let stream = |rate: u32, duration| {
        let options = UdpOptions { rate, size: 1_200, duration, ..UdpOptions::default() };
        let stream = UdpStream::start(&lab, options).expect("a stream");
        stream.finish(Duration::from_millis(300)).expect("a report")
    };
    let passes = |rate: u32| {
        // Twice, because a busy machine only ever makes it worse.
        (0..2).any(|_| {
            let report = stream(rate, Duration::from_millis(300));
            let kept_up = report.sent.took_us < 315_000;
            report.lost == 0 && report.sent.refused == 0 && kept_up
        })
    };
    let mut seen = Vec::new();
    for _ in 0..6 {
        // Each time: what else the machine does now, it may not have done before.
        let mut rate = 2_000;
        while rate < 2_000_000 && passes(rate * 3 / 2) {
            rate = rate * 3 / 2;
        }
        let rate = rate * 4 / 5;
        let (moves, report) = moves_during(&lab, || stream(rate, Duration::from_secs(SECONDS)));
        let sent_at = |number: u64| (report.sent.start_unix_ms + number * 1_000 / u64::from(rate)) as i64;
        let gaps = report.received.gaps.iter().map(|(first, _)| sent_at(*first));
        let at_moves = gaps.filter(|at| moves.iter().any(|moved| AROUND.contains(&(at - *moved as i64))));
        let at_moves = at_moves.count();
        eprintln!(
            "{rate} a second: {} of {} lost, {} times, {at_moves} of these when the gateways moved, {} times",
            report.lost,
            report.sent.sent,
            report.received.gaps.len(),
            moves.len()
        );
        assert!(moves.len() >= 6, "{moves:?}");
        let lost = report.lost as f64 / report.sent.sent as f64;
        if at_moves == 0 && lost < 0.01 {
            return;
        }
        seen.push((at_moves, report.lost, report.received.gaps));
    }
    panic!("each time something was lost when the gateways moved, or too much of all: {seen:?}");
}

/// Does something, and tells when gateway A moved meanwhile, in milliseconds of Unix time.
fn moves_during<T: Send>(lab: &Lab, something: impl FnOnce() -> T + Send) -> (Vec<u64>, T) {
    let mut moves: Vec<u64> = Vec::new();
    let result = std::thread::scope(|scope| {
        let doing = scope.spawn(something);
        while !doing.is_finished() {
            let next = unix_ms() + scene::number(lab, Site::A, "next_rotation_ms");
            if moves.last().is_none_or(|last| last.abs_diff(next) > 100) {
                moves.push(next);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        doing.join().expect("no panic")
    });
    (moves, result)
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that was set").as_millis() as u64
}
