//! What was measured, beside what was published: one topic for each part of the plan, with tables and plots.

use maud::Markup;

use crate::chart::Scale;
use crate::chart::dots::{Row, figure};
use crate::comparison::tables::{Table, thousands, time};
use crate::experiment::papers::{ALL_FILES, ENCRYPTION, PublishedSystem};
use crate::experiment::plan::{FILES, TRANSFERS, name_of, rotation as rotation_of, size};
use crate::experiment::store::{Place, Store};
use crate::experiment::tables::{Column, Series, Setting, column, line, plain, said, table};
use crate::experiment::{loss, soak};
use lab::topology::Topology;

/// A part of the plan.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) title: String,
    /// What was done, how to read it.
    pub(crate) about: String,
    /// As HTML.
    pub(crate) plots: Vec<Markup>,
    pub(crate) tables: Vec<Table>,
}

/// All that there is something to say about.
pub(crate) fn topics(store: &Store) -> Vec<Topic> {
    let mut topics = Vec::new();
    for topology in Topology::ALL {
        topics.extend([pings(store, topology), downloads(store, topology), udp(store, topology)]);
    }
    let rest = [
        rotation(store),
        encryption(store),
        host(store),
        voip(store),
        video(store),
        soak(store),
        loss(store),
    ];
    topics.extend(rest);
    topics.retain(|topic| !topic.tables.is_empty());
    topics
}

const TESTS: [(&str, &str); 3] = [
    ("ping_std_1k", "standard ping"),
    ("ping_flood_10k", "flood of 10,000"),
    ("ping_flood_50k", "flood of 50,000"),
];

fn figures_of(topology: Topology) -> [&'static str; 3] {
    match topology {
        Topology::Switched => [
            "thesis, figures 5.1, 5.3, 5.5, 5.22 and 5.23; paper, figure 5",
            "thesis, figures 5.2, 5.4, 5.6 and 5.24; paper, figure 6",
            "thesis, tables 5.1 to 5.3",
        ],
        Topology::Routed => [
            "thesis, figures 5.10 and 5.11; paper, figure 11",
            "thesis, figure 5.12; paper, figure 12",
            "thesis, section 4.2.3",
        ],
        Topology::Tunneled => {
            ["thesis, figures 5.16 and 5.17", "thesis, figure 5.18", "thesis, section 4.2.3"]
        }
    }
}

fn lab(topology: Topology) -> &'static str {
    match topology {
        Topology::Routed => "different subnets (routed)",
        Topology::Switched => "one subnet (switched)",
        Topology::Tunneled => "a 6in4 tunnel in between (tunneled)",
    }
}

fn pings(store: &Store, topology: Topology) -> Topic {
    let setting = Setting::usual(store, topology);
    let (mut plots, mut tables) = (Vec::new(), Vec::new());
    for (test, title) in TESTS {
        let columns = [
            column("average", test, "avg_ms"),
            column("least", test, "min_ms"),
            column("greatest", test, "max_ms"),
            column("standard deviation", test, "mdev_ms"),
            column("lost, %", test, "loss_percent"),
        ];
        let range = Some(["min_ms", "max_ms"]);
        plots.extend(setting.plot(&format!("{title}: round trip, ms"), &columns[0], Scale::Decades, range));
        plots.extend(setting.plot(&format!("{title}: lost, %"), &columns[4], Scale::Linear, None));
        tables.extend(setting.table(&format!("{title} ({test}): round trips in ms"), "", &columns));
    }
    Topic {
        title: format!("Pings, {}", lab(topology)),
        about: format!(
            "Round trips of 64 bytes of ICMP from host A to host B ({}).",
            figures_of(topology)[0]
        ),
        plots,
        tables,
    }
}

fn downloads(store: &Store, topology: Topology) -> Topic {
    let setting = Setting::usual(store, topology);
    let of = |value: &'static str| {
        let files =
            FILES.iter().map(|bytes| column(size(*bytes, "B"), format!("http_{}", size(*bytes, "")), value));
        files.collect::<Vec<_>>()
    };
    let speeds = of("mb_per_s");
    let mut wide = speeds.clone();
    wide.push(column("10 MB, wget", "wget_10M", "mb_per_s"));
    let plots = speeds
        .iter()
        .filter_map(|column| setting.plot(&format!("{}: MB/s", column.title), column, Scale::Decades, None));
    let mut speed = setting.table("Throughput, MB/s", "", &wide);
    // The papers' means of all files have no column of their own.
    if let Some(table) = &mut speed {
        for (system, topology) in setting.theirs() {
            let series = Series::Theirs(system, topology);
            let Some(said) = setting.cell(series, &column("", ALL_FILES, "mb_per_s")) else { continue };
            let (name, width) = (setting.name(series), table.header.len());
            let with_all = format!("{name} (all files: {said})");
            match table.rows.iter_mut().find(|row| row[0] == name) {
                Some(row) => row[0] = with_all,
                None => table.rows.push(line(with_all, vec![None; width - 1])),
            }
        }
    }
    let again = setting.table("TCP segments sent again, %", "", &of("retransmitted_percent"));
    Topic {
        title: format!("Downloads, {}", lab(topology)),
        about: format!(
            "HTTP from nginx on host B with curl on host A ({}). An asterisk: at least one run ended at its time limit; \
             the speed is that of what came until then.",
            figures_of(topology)[1]
        ),
        plots: plots.collect(),
        tables: speed.into_iter().chain(again).collect(),
    }
}

fn udp(store: &Store, topology: Topology) -> Topic {
    let setting = Setting::usual(store, topology);
    let of = |value: &'static str| {
        // The thesis has the last two in its tables, though not in its plan.
        let sizes = TRANSFERS.into_iter().chain([50_000_000, 500_000_000]);
        sizes
            .map(|bytes| column(size(bytes, "B"), format!("iperf_{}", size(bytes, "")), value))
            .collect::<Vec<_>>()
    };
    let (jitter, lost) = (of("jitter_ms"), of("loss_percent"));
    let plots = jitter.iter().filter_map(|column| {
        setting.plot(&format!("{}: jitter, ms", column.title), column, Scale::Decades, None)
    });
    let tables = [setting.table("Jitter, ms", "", &jitter), setting.table("Lost, %", "", &lost)];
    Topic {
        title: format!("UDP, {}", lab(topology)),
        about: format!(
            "iperf3 from host B to host A, 20 Mbit/s in datagrams of 1,200 bytes ({}). The thesis says neither its rate \
             nor its sizes of datagrams; its tables have 50 and 500 MB too (no tunnel 0.065 and 0.062 ms, C 0.094 and \
             0.095 ms), its plan 100 MB.",
            figures_of(topology)[2]
        ),
        plots: plots.collect(),
        tables: tables.into_iter().flatten().collect(),
    }
}

fn rotation(store: &Store) -> Topic {
    let topology = store.settings.topology.unwrap_or_default();
    let intervals = [Some(5), Some(10), Some(15), Some(30), None];
    let title = |interval: Option<u32>| interval.map_or("none".to_owned(), |seconds| format!("{seconds} s"));
    let parts = [
        ("ping_std_1k", "avg_ms", "standard ping: average round trip, ms"),
        ("ping_std_1k", "loss_percent", "standard ping: lost, %"),
        ("ping_flood_10k", "avg_ms", "flood of 10,000: average round trip, ms"),
        ("ping_flood_10k", "loss_percent", "flood of 10,000: lost, %"),
        ("http_10M", "mb_per_s", "download of 10 MB: MB/s"),
        ("http_10M", "retransmitted_percent", "download of 10 MB: sent again, %"),
    ];
    let (mut plots, mut tables) = (Vec::new(), Vec::new());
    for (test, value, what) in parts {
        let column = column("", test, value);
        let at = |rotation| Setting { store, topology, rotation };
        let mut rows = Vec::new();
        let mut drawn = Vec::new();
        for entry in &store.settings.contenders {
            let series = Series::Ours(&entry.name);
            let cells: Vec<Option<String>> =
                intervals.iter().map(|interval| at(*interval).cell(series, &column)).collect();
            // The usual interval alone is not a comparison.
            if cells.iter().flatten().count() < 2 {
                continue;
            }
            rows.push(line(entry.name.clone(), cells));
            drawn.extend(intervals.iter().filter_map(|interval| {
                let row = at(*interval).row(series, &column, None)?;
                Some(Row { name: format!("{}, {}", row.name, title(*interval)), ..row })
            }));
        }
        if rows.is_empty() {
            continue;
        }
        for (setting, where_) in [(Topology::Switched, "one subnet"), (Topology::Routed, "different subnets")]
        {
            let at = |rotation| Setting { store, topology: setting, rotation };
            let series = Series::Theirs(PublishedSystem::Paper, setting);
            let cells: Vec<Option<String>> =
                intervals.iter().map(|interval| at(*interval).cell(series, &column)).collect();
            if cells.iter().any(Option::is_some) {
                rows.push(line(format!("{}, {where_}", PublishedSystem::Paper.name()), cells));
                drawn.extend(intervals.iter().filter_map(|interval| {
                    let row = at(*interval).row(series, &column, None)?;
                    Some(Row { name: format!("paper, {where_}, {}", title(*interval)), ..row })
                }));
            }
        }
        let scale = if value.ends_with("percent") { Scale::Linear } else { Scale::Decades };
        plots.extend(figure(what, &drawn, scale));
        let header: Vec<String> = intervals.map(title).to_vec();
        let header: Vec<&str> = std::iter::once("").chain(header.iter().map(String::as_str)).collect();
        tables.push(table(what, "", &header, rows));
    }
    Topic {
        title: "Rotation intervals".into(),
        about: format!(
            "The interval from 5 s to none, in the {} lab (paper, figures 7 and 8).",
            name_of(topology)
        ),
        plots,
        tables,
    }
}

fn encryption(store: &Store) -> Topic {
    let topology = store.settings.topology.unwrap_or_default();
    let setting = Setting::usual(store, topology);
    let parts = [
        ("ping_std_1k", "avg_ms", "ms"),
        ("ping_flood_10k", "avg_ms", "ms"),
        ("ping_std_1k", "loss_percent", "percentage points"),
        ("http_50M", "mb_per_s", "MB/s"),
    ];
    let mut rows = Vec::new();
    for ((what, paper, source), (test, value, unit)) in ENCRYPTION.into_iter().zip(parts) {
        let column = column("", test, value);
        let means = ["classic", "classic-encrypted"].map(|name| setting.mean(name, &column));
        let [Some(plain_one), Some(encrypted)] = means else { continue };
        let difference = encrypted.value - plain_one.value;
        let sign = if difference > 0.0 { "+" } else { "" };
        rows.push(vec![
            if test == "http_50M" { "throughput, 50 MB".into() } else { what.to_owned() },
            said(plain_one),
            said(encrypted),
            format!("{sign}{} {unit}", plain(difference)),
            format!("{paper} ({source})"),
        ]);
    }
    let tables = if rows.is_empty() {
        Vec::new()
    } else {
        let header = ["", "classic", "classic-encrypted", "difference", "paper: difference"];
        vec![table("Unencrypted and encrypted", "", &header, rows)]
    };
    Topic {
        title: "What encryption costs".into(),
        about: format!(
            "The classic profile without encryption and with AES-256-CBC, in the {} lab; the paper's prototype with \
             AES-128-CBC on one subnet (paper, section 4.1.3, figures 9 and 10).",
            name_of(topology)
        ),
        plots: Vec::new(),
        tables,
    }
}

fn host(store: &Store) -> Topic {
    let topology = store.settings.topology.unwrap_or_default();
    let setting = Setting::usual(store, topology);
    let (mut plots, mut tables) = (Vec::new(), Vec::new());
    for (test, title) in [TESTS[2], TESTS[0]] {
        let columns = [
            column("processor A, %", test, "cpu_percent_a"),
            column("processor B, %", test, "cpu_percent_b"),
            column("private A, MB", test, "private_mb_a"),
            column("private B, MB", test, "private_mb_b"),
            column("in the kernel A, %", test, "kernel_percent_a"),
            column("in the kernel B, %", test, "kernel_percent_b"),
        ];
        tables.extend(setting.table(&format!("Gateways under {title}"), "", &columns));
        for (index, what, scale) in [
            (0, "processor of gateway A, %", Scale::Decades),
            (2, "private memory of gateway A, MB", Scale::Decades),
            (4, "gateway A's time in the kernel, %", Scale::Linear),
        ] {
            plots.extend(setting.plot(&format!("{title}: {what}"), &columns[index], scale, None));
        }
    }
    Topic {
        title: "What a gateway costs".into(),
        about: "Processor time, memory that no other process shares, and the part of the processor time that was spent in \
                the kernel, of the gateway's process (thesis, figures 5.7 to 5.9, 5.13 to 5.15, 5.19 to 5.21). 100 % is \
                one processor; the thesis's had 1.2 GHz, ARM. With so little processor time that its parts cannot be \
                told apart, there is no value for the kernel's. The thesis sampled with performance counters, its C \
                version's private memory is that of the heap profiler or of smaps, which its text does not say. Without a tunnel \
                there is no process."
            .into(),
        plots,
        tables,
    }
}

fn voip(store: &Store) -> Topic {
    let topology = store.settings.topology.unwrap_or_default();
    let setting = Setting::usual(store, topology);
    let (mut plots, mut tables) = (Vec::new(), Vec::new());
    for (title, keys) in [
        (
            "G.711",
            [
                "g711_delay_ms",
                "g711_delay_max_ms",
                "g711_jitter_ms",
                "g711_loss_percent",
                "g711_late_percent",
                "g711_mouth_to_ear_ms",
                "g711_r",
                "g711_mos",
            ],
        ),
        (
            "Opus",
            [
                "opus_delay_ms",
                "opus_delay_max_ms",
                "opus_jitter_ms",
                "opus_loss_percent",
                "opus_late_percent",
                "opus_mouth_to_ear_ms",
                "opus_r",
                "opus_mos",
            ],
        ),
    ] {
        let titles =
            ["delay, ms", "greatest, ms", "jitter, ms", "lost, %", "late, %", "mouth to ear, ms", "R", "MOS"];
        let columns: Vec<Column> =
            titles.iter().zip(keys).map(|(title, key)| column(*title, "voip", key)).collect();
        // The published ones have a codec of their own.
        let theirs = setting.theirs().into_iter().map(|(system, topology)| Series::Theirs(system, topology));
        let theirs: Vec<Series> = theirs.collect();
        let [delay, loss] = ["delay_ms", "loss_percent"].map(|value| column("", "voip", value));
        let range = Some([keys[0], keys[1]]);
        let ours = store.settings.contenders.iter().map(|entry| Series::Ours(&entry.name));
        let mut rows: Vec<Row> = ours.filter_map(|series| setting.row(series, &columns[0], range)).collect();
        if rows.is_empty() {
            continue;
        }
        rows.extend(theirs.iter().filter_map(|series| setting.row(*series, &delay, None)));
        let caption = format!("{title}: one-way delay, ms (grey: up to the greatest)");
        plots.extend(figure(&caption, &rows, Scale::Decades));
        plots.extend(setting.plot(
            &format!("{title}: estimated opinion, 1 to 4.5"),
            &columns[7],
            Scale::Linear,
            None,
        ));
        let Some(mut table) = setting.table(&format!("{title} calls"), "", &columns) else { continue };
        for series in theirs {
            let [delay, loss] = [&delay, &loss].map(|column| setting.cell(series, column));
            if delay.is_some() || loss.is_some() {
                let cells = vec![delay, None, None, loss, None, None, None, None];
                table.rows.push(line(format!("{} (Speex)", setting.name(series)), cells));
            }
        }
        tables.push(table);
    }
    Topic {
        title: "Calls".into(),
        about: "One packet every 20 ms from host A to host B, both codecs at the same time (paper, section 4.3: Mumble \
                with Speex at 96 kbit/s, on one subnet; it could not measure jitter). The listener's buffer is 40 ms: \
                what comes later than that after the fastest packet is late, and lost to it. Mouth to ear is 20 ms of \
                packet, the fastest packet's delay and the buffer; ITU-T G.114 recommends less than 150 ms. R and MOS \
                are estimates of ITU-T G.107's E-model, which has no values for Opus: those of G.711 with loss \
                concealment stand in."
            .into(),
        plots,
        tables,
    }
}

fn video(store: &Store) -> Topic {
    let topology = store.settings.topology.unwrap_or_default();
    let setting = Setting::usual(store, topology);
    let columns = [
        column("film, s", "video", "film_s"),
        column("stalls", "video", "stalls"),
        column("stalled, s", "video", "stalled_s"),
        column("start, ms", "video", "start_ms"),
        column("slowest segment, ms", "video", "slowest_segment_ms"),
        column("sent again, %", "video", "retransmitted_percent"),
    ];
    let table = setting.table("A film in 720p", "", &columns);
    let plot = setting.plot("slowest segment of 1 s, ms", &columns[4], Scale::Decades, None);
    Topic {
        title: "Video".into(),
        about: "Segments of one second at 3 Mbit/s over HTTP, a player that fetches up to three seconds ahead (paper, \
                section 4.3: a film of 597 s in 720p with VLC, on one subnet; its freezes were usually shorter than a \
                second)."
            .into(),
        plots: plot.into_iter().collect(),
        tables: table.into_iter().collect(),
    }
}

fn soak(store: &Store) -> Topic {
    let parts = |name: &str| -> Vec<_> {
        store
            .all()
            .filter(|one| one.test == soak::NAME && one.contender == name && one.failed.is_none())
            .collect()
    };
    let rows = store.settings.contenders.iter().filter_map(|entry| {
        let parts = parts(&entry.name);
        let last = parts.iter().max_by_key(|one| one.run)?;
        let sum = |value: &str| parts.iter().filter_map(|one| one.values.get(value)).sum::<f64>();
        let greatest =
            |value: &str| parts.iter().filter_map(|one| one.values.get(value)).copied().fold(0.0, f64::max);
        let whole = |value: f64| {
            if value < 0.0 { format!("-{}", thousands(-value as u64)) } else { thousands(value as u64) }
        };
        let pair = |begin: &str, end: &str| match (last.values.get(begin), last.values.get(end)) {
            (Some(begin), Some(end)) => format!("{} → {}", plain(*begin), plain(*end)),
            _ => "–".into(),
        };
        let triple = |kind: &str| {
            ["addresses", "routes", "sockets"]
                .map(|what| whole(greatest(&format!("{what}_{kind}"))))
                .join(" / ")
        };
        let rotations = parts.iter().any(|one| one.values.contains_key("rotations"));
        Some(vec![
            entry.name.clone(),
            time(parts.iter().map(|one| one.took_s).sum()),
            if rotations { whole(sum("rotations")) } else { "–".into() },
            format!("{} of {}", whole(sum("lost")), whole(sum("sent"))),
            plain(greatest("max_ms")),
            pair("private_mb_begin", "private_mb_end"),
            pair("files_begin", "files_end"),
            triple("grown"),
            format!("{} / {}", triple("left"), whole(greatest("rules_left"))),
        ])
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    let tables = if rows.is_empty() {
        Vec::new()
    } else {
        rows.push(
            [
                "paper: Python, encrypted",
                "a week",
                "more than 60,000",
                "connection never lost",
                "–",
                "–",
                "–",
                "–",
                "–",
            ]
            .map(str::to_owned)
            .to_vec(),
        );
        let header = [
            "",
            "time",
            "rotations",
            "pings lost",
            "greatest ms",
            "private MB",
            "open files",
            "grown: addresses / routes / sockets",
            "left over: addresses / routes / sockets / rules",
        ];
        vec![table("The long run", "", &header, rows)]
    };
    Topic {
        title: "The long run".into(),
        about: "A plain ping through each contender, all side by side, rotating (paper, section 4.4: a week with a \
                rotation every 10 s). Memory and open files are gateway A's, from the first look to the last; grown is \
                what its namespace holds at the end of the run and did not at its begin; left over what both \
                gateways' hold after the contender has ended and did not before it was started."
            .into(),
        plots: Vec::new(),
        tables,
    }
}

/// A line for each network and rotation interval, a column for each kind of gateway.
fn loss(store: &Store) -> Topic {
    let entries = &store.settings.contenders;
    let mut rows = Vec::new();
    for topology in Topology::ALL {
        for seconds in loss::ROTATIONS {
            let cells: Vec<Option<String>> = entries
                .iter()
                .map(|entry| {
                    let place = Place {
                        topology,
                        rotation: Some(seconds),
                        contender: entry.name.as_str().into(),
                        test: loss::NAME.to_owned(),
                    };
                    let sum = |value: &str| store.values(&place, value).iter().sum::<f64>() as u64;
                    let rotations = sum("rotations");
                    let [lost, sent, queues] =
                        ["lost", "sent", "backlog_drops"].map(|name| thousands(sum(name)));
                    let excuse = if lost == "0" {
                        String::new()
                    } else {
                        format!("; {queues} by this machine's queues")
                    };
                    (rotations > 0).then(|| format!("{lost} of {sent}, {rotations} rotations{excuse}"))
                })
                .collect();
            if cells.iter().any(Option::is_some) {
                let interval = rotation_of(Some(seconds), store.settings.full);
                rows.push(line(format!("{}, {interval}", name_of(topology)), cells));
            }
        }
    }
    let header: Vec<&str> =
        std::iter::once("").chain(entries.iter().map(|entry| entry.name.as_str())).collect();
    let tables = if rows.is_empty() { Vec::new() } else { vec![table("Pings lost", "", &header, rows)] };
    Topic {
        title: "The moving-target protocol and the classic profile, routing and transparent gateways".into(),
        about: "Floods from host A to host B, as fast as answers come back, one after the other until there were at least \
                three rotations. All went through the tunnel, as gateway A's counters tell. The thesis's C version, \
                rotating every 10 s, lost 0.11 % of 1,000 pings and 0.17 % of a flood of 50,000 on one subnet (figure 5.5)."
            .into(),
        plots: Vec::new(),
        tables,
    }
}
