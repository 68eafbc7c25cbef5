//! The report of a demonstration: one HTML page that needs nothing else, with what the router saw beside what
//! the hosts saw.

use std::path::{Path, PathBuf};

use maud::{Markup, html};

use crate::chart::time::Chart;
use crate::chart::{ceiling, figure, legend};
use crate::outcome::DemoOutcome;
use crate::page::{Card, STYLE, cards, document};
use lab::Error;
use lab::observer::{BIN, Sighting};
use lab::topology::Site;

/// Writes `index.html` and `data.json` into the directory; returns the page's path.
///
/// # Errors
/// When the directory cannot be written.
pub fn write(outcome: &DemoOutcome, directory: &Path) -> Result<PathBuf, Error> {
    std::fs::create_dir_all(directory).map_err(|source| Error::file(directory, source))?;
    let data = serde_json::to_vec_pretty(outcome).map_err(|error| Error::output("report", error))?;
    for (name, bytes) in [("data.json", data), ("index.html", page(outcome).into_bytes())] {
        let path = directory.join(name);
        std::fs::write(&path, bytes).map_err(|source| Error::file(path, source))?;
    }
    Ok(directory.join("index.html"))
}

fn page(outcome: &DemoOutcome) -> String {
    let body = html! {
        (introduction(outcome))
        (headline(outcome))
        div.columns { (router_column(outcome)) (host_column(outcome)) }
        (footer(outcome))
    };
    document("Sidestep: what the router saw, what the hosts saw", &[STYLE], &body)
}

fn introduction(outcome: &DemoOutcome) -> Markup {
    let verdict = if outcome.passed() { "All was well." } else { "Not all was well." };
    let class = if outcome.passed() { "good" } else { "bad" };
    let what = match &outcome.rotation {
        Some(rotation) => format!(
            "Two networks, A and B, talk through two Sidestep gateways. Between the gateways all packets are encrypted, \
             and travel on lanes: pairs of an address and a UDP port at each end, some three at a time, each of which is \
             born, lives for {rotation} on average and is never used again. Nobody announces a birth or a death; each \
             gateway computes both from a shared secret. On the left is what a router between the gateways could see, \
             on the right what the two hosts experienced at the same time."
        ),
        None => "Two networks, A and B, talk without a tunnel: the baseline that the moving target is compared with. \
                 On the left is what a router between them could see, on the right what the two hosts experienced."
            .to_owned(),
    };
    html! {
        header {
            h1 { "What the router saw, what the hosts saw" }
            p.lead { (what) }
            p class={ "verdict " (class) } { (verdict) }
            ul.findings {
                @for finding in &outcome.findings {
                    @let (class, mark) = if finding.good { ("good", "✓") } else { ("bad", "✗") };
                    li { span class=(class) { (mark) } " " (finding.text) }
                }
            }
        }
    }
}

fn headline(outcome: &DemoOutcome) -> Markup {
    let seen = &outcome.observation;
    let card =
        |value: String, name: &str, detail: &str| Card { value, name: name.into(), detail: detail.into() };
    let rotations = outcome.rotation.is_some().then(|| {
        card(outcome.rotations().to_string(), "lanes born", "pairs of address and port, new at both ends")
    });
    let rest = [
        card(
            format!("{} + {}", seen.addresses(Site::A), seen.addresses(Site::B)),
            "addresses on the outside",
            "of site A and of site B, as the router saw them",
        ),
        card(
            format!("{} of {}", outcome.udp.lost, thousands(outcome.udp.sent.sent)),
            "datagrams lost",
            "of a UDP stream from host A to host B",
        ),
        card(
            format!("{:.1} Mbit/s", outcome.tcp.bits_per_second / 1e6),
            "TCP from B to A",
            "asked for: 20 Mbit/s",
        ),
        card(
            format!("{:.2} ms", outcome.udp.received.latency_ms.p50),
            "median latency",
            "one way, from host to host, through both gateways",
        ),
    ];
    cards(rotations.into_iter().chain(rest))
}

fn router_column(outcome: &DemoOutcome) -> Markup {
    let explanation = if outcome.rotation.is_some() {
        "Each row is one address and port, in the order in which the router first saw it; the bar says when packets \
         used it. A staircase means that no address stays: whoever records or attacks one holds something that is \
         about to be worthless. Several bars stand above each other at any time, since packets use all lanes that are \
         alive, and where one ends no other begins: who looks at a bar cannot tell which one comes after it. Point at a \
         bar to see the address."
    } else {
        "Each row is one address and port; the bar says when packets used it. Without rotation the same rows last for \
         the whole time: whoever watches knows who talks to whom, and where to attack."
    };
    let sites = [Site::A, Site::B].map(|site| {
        let caption = format!("Site {}: addresses and ports over time", site.letter().to_uppercase());
        figure(&caption, &html! {}, &staircase(outcome, site))
    });
    html! {
        section {
            h2 { "What the router saw" }
            p { (explanation) }
            @for site in &sites { (site) }
            figure {
                figcaption { "Distinct addresses and ports seen so far" }
                (addresses_over_time(outcome))
                (legend([("a", "site A"), ("b", "site B")]))
            }
            (figure("Packet sizes", &html! {}, &sizes(outcome)))
        }
    }
}

fn host_column(outcome: &DemoOutcome) -> Markup {
    let moves = if outcome.rotation.is_some() {
        "The faint vertical lines mark the births of lanes, as the router first saw them. If these disturbed the \
         traffic, it would show at these lines."
    } else {
        "Nothing moves here."
    };
    html! {
        section {
            h2 { "What the hosts saw" }
            p {
                (moves) " The hosts know nothing of it: they use their own fixed addresses, ordinary UDP and TCP."
            }
            figure {
                figcaption { "Throughput, Mbit/s" }
                (throughput(outcome))
                (legend([("a", "host A receives (TCP)"), ("b", "host B receives (UDP, and acknowledgements)")]))
            }
            figure {
                figcaption { "Latency of the UDP stream, one way, ms" }
                (latency(outcome))
                (legend([("neutral", "median"), ("faint", "99 of 100 are faster")]))
            }
            (figure("Datagrams lost per second", &html! {}, &losses(outcome)))
            (table(outcome))
        }
    }
}

fn footer(outcome: &DemoOutcome) -> Markup {
    let topology = format!("{:?}", outcome.topology).to_lowercase();
    html! {
        footer {
            "Sidestep " (outcome.version) ", " (topology) " lab, " (outcome.seconds) " s of traffic. All machines are \
             network namespaces of one computer; the router's view is a capture between the gateways. The numbers are in \
             data.json beside this page."
        }
    }
}

fn span(outcome: &DemoOutcome) -> (f64, f64) {
    (0.0, f64::from(outcome.seconds))
}

/// The moments at which the router first saw an endpoint of site A; none in the baseline, where nothing moves.
fn births(outcome: &DemoOutcome) -> impl Iterator<Item = f64> {
    let moving = outcome.rotation.is_some();
    outcome.observation.endpoints[0].iter().map(|sighting| sighting.first).filter(move |_| moving)
}

fn staircase(outcome: &DemoOutcome, site: Site) -> Markup {
    let class = if site == Site::A { "a" } else { "b" };
    let sightings = &outcome.observation.endpoints[site as usize];
    let rows = sightings.len() as f64;
    let height = (60.0 + 13.0 * rows).clamp(150.0, 300.0);
    let thickness = ((height - 50.0) / rows.max(1.0) - 2.0).clamp(2.0, 9.0);
    // The first one on top, as one reads.
    let mut chart =
        Chart::new(height, span(outcome), (0.5, rows + 0.5)).axes("seconds", "in order of first sight", 0);
    for (row, sighting) in sightings.iter().enumerate() {
        for run in runs(sighting) {
            let endpoint = sighting.endpoint;
            let hint = format!(
                "[{}]:{}, {} packets from {:.1} s to {:.1} s",
                endpoint.address, endpoint.port, sighting.packets, sighting.first, sighting.last
            );
            chart.bar(class, run, rows - row as f64, thickness, &hint);
        }
    }
    if sightings.is_empty() {
        chart = chart.note("no packet seen");
    }
    chart.svg(&format!("When each endpoint of site {} was used", site.letter().to_uppercase()))
}

/// The stretches of time in which an endpoint was in use without a pause of more than half a second.
fn runs(sighting: &Sighting) -> Vec<(f64, f64)> {
    const PAUSE: u32 = 5;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for bin in sighting.bins.keys().copied() {
        match runs.last_mut() {
            Some((_, last)) if bin <= *last + PAUSE => *last = bin,
            _ => runs.push((bin, bin)),
        }
    }
    let bin = BIN.as_secs_f64();
    runs.into_iter().map(|(first, last)| (f64::from(first) * bin, f64::from(last + 1) * bin)).collect()
}

fn addresses_over_time(outcome: &DemoOutcome) -> Markup {
    let seen = &outcome.observation;
    let most = seen.endpoints.iter().map(Vec::len).max().unwrap_or(0) as f64;
    let mut chart =
        Chart::new(170.0, span(outcome), (0.0, ceiling(most.max(4.0)))).axes("seconds", "endpoints", 4);
    // Both lines often coincide: the one below is wider.
    for (class, sightings) in ["a wide", "b"].into_iter().zip(&seen.endpoints) {
        let mut points = vec![(0.0, 0.0)];
        for (index, sighting) in sightings.iter().enumerate() {
            points.push((sighting.first, index as f64));
            points.push((sighting.first, index as f64 + 1.0));
        }
        points.push((f64::from(outcome.seconds), sightings.len() as f64));
        chart = chart.line(class, &points);
    }
    chart.svg("Number of distinct endpoints that the router had seen, over time")
}

fn sizes(outcome: &DemoOutcome) -> Markup {
    const WIDTH: usize = 50;
    let mut classes = std::collections::BTreeMap::<usize, u64>::new();
    for (size, count) in &outcome.observation.sizes {
        *classes.entry(size / WIDTH).or_default() += count;
    }
    let most = classes.values().copied().max().unwrap_or(0) as f64;
    let mut chart = Chart::new(170.0, (0.0, 1550.0), (0.0, ceiling(most))).axes("bytes", "packets", 4);
    for (class, count) in classes {
        let (from, to) = (class * WIDTH, (class + 1) * WIDTH);
        let hint = format!("{} packets of {from} to {} bytes", thousands(count), to - 1);
        chart.column("neutral", (from as f64, to as f64), count as f64, &hint);
    }
    chart.svg("How many packets of which size the router saw")
}

fn throughput(outcome: &DemoOutcome) -> Markup {
    let points = |host: usize| -> Vec<(f64, f64)> {
        outcome.moments.iter().map(|moment| (moment.time, moment.bits_per_second[host] / 1e6)).collect()
    };
    let (a, b) = (points(0), points(1));
    let most = a.iter().chain(&b).map(|(_, rate)| *rate).fold(0.0, f64::max);
    let chart = Chart::new(190.0, span(outcome), (0.0, ceiling(most * 1.1)));
    chart
        .axes("seconds", "Mbit/s", 5)
        .moments(births(outcome))
        .line("a", &a)
        .line("b", &b)
        .svg("Throughput at both hosts, second by second")
}

fn latency(outcome: &DemoOutcome) -> Markup {
    let seconds = &outcome.udp.received.seconds;
    let median: Vec<_> =
        seconds.iter().map(|second| (second.second as f64 + 1.0, second.latency_ms.p50)).collect();
    let high: Vec<_> =
        seconds.iter().map(|second| (second.second as f64 + 1.0, second.latency_ms.p99)).collect();
    let most = high.iter().map(|(_, latency)| *latency).fold(0.0, f64::max);
    let chart = Chart::new(190.0, span(outcome), (0.0, ceiling(most * 1.1)));
    chart
        .axes("seconds", "ms", 5)
        .moments(births(outcome))
        .line("faint", &high)
        .line("neutral", &median)
        .svg("One-way latency of the UDP stream, second by second")
}

fn losses(outcome: &DemoOutcome) -> Markup {
    let udp = &outcome.udp;
    let per_second = udp.sent.sent.max(1) as f64 / f64::from(outcome.seconds);
    let mut lost = vec![0u64; outcome.seconds as usize];
    let beyond = (udp.received.expected..udp.sent.sent).map(|number| (number, number));
    for (first, last) in udp.received.gaps.iter().copied().chain(beyond) {
        for number in first..=last {
            if let Some(count) = lost.get_mut((number as f64 / per_second) as usize) {
                *count += 1;
            }
        }
    }
    let most = lost.iter().copied().max().unwrap_or(0);
    let mut chart = Chart::new(120.0, span(outcome), (0.0, ceiling((most as f64).max(1.0))))
        .axes("seconds", "lost", 1)
        .moments(births(outcome));
    for (second, count) in lost.iter().enumerate().filter(|(_, count)| **count > 0) {
        let hint = format!("{count} lost in second {second}");
        chart.column("bad", (second as f64, second as f64 + 1.0), *count as f64, &hint);
    }
    if udp.lost == 0 {
        chart = chart.note(&format!("none of {}", thousands(udp.sent.sent)));
    }
    chart.svg("Datagrams lost, second by second")
}

fn table(outcome: &DemoOutcome) -> Markup {
    let (udp, tcp, ping) = (&outcome.udp, &outcome.tcp, &outcome.ping);
    let latency = udp.received.latency_ms;
    let rows = [
        (
            "UDP, A to B",
            format!(
                "{} sent, {} lost, {} duplicated, {} reordered; latency {:.2} ms median, {:.2} ms at 99 %, {:.1} ms at most",
                thousands(udp.sent.sent),
                udp.lost,
                udp.received.duplicated,
                udp.received.reordered,
                latency.p50,
                latency.p99,
                latency.max
            ),
        ),
        (
            "TCP, B to A",
            format!("{:.1} Mbit/s, {} retransmissions", tcp.bits_per_second / 1e6, tcp.retransmits),
        ),
        (
            "Ping, A to B and back",
            format!(
                "{} of {} answered; {:.2} ms on average, {:.1} ms at most",
                ping.received, ping.sent, ping.avg_ms, ping.max_ms
            ),
        ),
    ];
    html! { table { @for (name, value) in rows { tr { th { (name) } td { (value) } } } } }
}

/// `12,345`.
fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::time::Duration;

    use super::*;
    use crate::outcome::Finding;
    use lab::capture::Packet;
    use lab::echoes::PingReport;
    use lab::observer::Observation;
    use lab::topology::Topology;
    use lab::traffic::{TcpReport, UdpReport};
    use lab::udp_stream::{Received, Second, Sent};

    /// Half a minute with an epoch every two seconds, a packet each way every 20 ms.
    fn observation() -> Observation {
        let packet = |millis: u64, from: Site, epoch: u16| {
            let a = Ipv6Addr::new(0x2001, 0xdb8, 0xa1, 0, 7, 7, epoch, 1);
            let b = Ipv6Addr::new(0x2001, 0xdb8, 0xb1, 0, 7, 7, epoch, 1);
            let (source, destination) = if from == Site::A { (a, b) } else { (b, a) };
            let time = Duration::from_millis(millis);
            let length = 536 + usize::from(from == Site::B) * 900;
            let ports = (2_000 + epoch, 3_000 + epoch);
            let ports = if from == Site::A { ports } else { (ports.1, ports.0) };
            Packet { time, source, destination, next_header: 17, ports, length, payload: vec![0; 40] }
        };
        let packets = (0..1_500).map(|step| step * 20).flat_map(|millis| {
            let epoch = (millis / 2_000) as u16;
            let opener = [Site::A, Site::B].map(|from| packet(millis, from, epoch + 1));
            let data = [Site::A, Site::B].map(|from| packet(millis, from, epoch));
            data.into_iter().chain(opener.into_iter().filter(move |_| millis % 2_000 == 1_000))
        });
        let packets: Vec<Packet> = packets.collect();
        Observation::of(&packets, Duration::ZERO, |address| {
            [Site::A, Site::B].into_iter().find(|site| site.in_hop_prefix(address))
        })
    }

    fn outcome(lost: u64) -> DemoOutcome {
        let latency_ms = lab::udp_stream::Latency { p50: 0.2, p99: 0.6, p999: 1.0, max: 2.0 };
        let second =
            |second| Second { second, received: 1_000, bytes: 500_000, latency_ms, ..Second::default() };
        let gaps = if lost == 0 { Vec::new() } else { vec![(5_000, 5_000 + lost - 1)] };
        let seconds = (0..30).map(second).collect();
        let received = Received {
            distinct: 30_000 - lost,
            expected: 30_000,
            gaps,
            latency_ms,
            seconds,
            ..Received::default()
        };
        let sent = Sent { sent: 30_000, ..Sent::default() };
        let moment = |time: u32| crate::live::Moment {
            time: f64::from(time),
            endpoints: ["[2001:db8:a1::1]:1".into(), "[2001:db8:b1::1]:2".into()],
            rotations: u64::from(time / 2),
            next_rotation_ms: None,
            bits_per_second: [20e6, 4.4e6],
            latency_ms,
            missing: 0,
            duplicated: 0,
        };
        DemoOutcome {
            topology: Topology::Routed,
            rotation: Some("2s".into()),
            seconds: 30,
            version: "<0>".into(),
            udp: UdpReport { sent, received, lost },
            tcp: TcpReport { bits_per_second: 20e6, retransmits: 0, seconds: Vec::new() },
            ping: PingReport { sent: 300, received: 300, ..PingReport::default() },
            moments: (1..=30).map(moment).collect(),
            observation: observation(),
            plaintext_packets: 0,
            findings: vec![Finding { good: lost == 0, text: format!("{lost} lost") }],
        }
    }

    #[test]
    fn the_page_needs_nothing_else_and_shows_every_endpoint() {
        let directory = tempfile::tempdir().expect("a directory");
        let page = write(&outcome(0), directory.path()).expect("a report");
        let html = std::fs::read_to_string(page).expect("a page");
        assert!(
            ["http:", "https:", "src=", "<script", "@import"].iter().all(|outside| !html.contains(outside))
        );
        assert!(html.contains("[2001:db8:a1:0:7:7:e:1]:2014") && html.contains("All was well."));
        assert!(html.contains("none of 30,000") && html.contains("&lt;0&gt;"));
        assert!(directory.path().join("data.json").is_file());
    }

    #[test]
    fn losses_are_not_hidden() {
        let html = page(&outcome(40));
        assert!(html.contains("Not all was well.") && html.contains("40 lost in second 5"));
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(
            (thousands(0), thousands(999), thousands(1_000)),
            ("0".into(), "999".into(), "1,000".into())
        );
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
