//! Tables 1 to 5 and figure 8, theirs beside ours.

use super::{Measurement, Section7, Security, Work, paper};
use crate::comparison::tables::Table;
use crate::stack::figure::{self, Panel};

impl Section7 {
    /// The tables.
    pub(in crate::stack) fn tables(&self) -> Vec<Table> {
        vec![
            self.latencies("Table 1: TCP latency", 0, |size| Work::TcpLatency { size }),
            self.latencies("Table 2: UDP latency", 2, |size| Work::UdpLatency { size }),
            self.tcp(),
            self.udp(),
            self.security(),
        ]
    }

    fn latencies(&self, title: &str, at: usize, work: fn(usize) -> Work) -> Table {
        let row = |(size, theirs): &(usize, [f64; 4])| {
            let ours = self.versions_of(work(*size), 1)?;
            Some([vec![size.to_string()], versions_of_theirs(theirs[at], theirs[at + 1]), ours].concat())
        };
        Table {
            title: title.to_owned(),
            how:
                "Theirs: milliseconds. Ours: microseconds from a program to another host's and back. Medians."
                    .into(),
            header: header(&["bytes"], "increase"),
            rows: paper::LATENCY.iter().filter_map(row).collect(),
        }
    }

    fn tcp(&self) -> Table {
        let row = |(write, buffer, [four, six]): &(usize, usize, [f64; 2])| {
            let ours = self.versions_of(Work::TcpSpeed { write: *write, buffer: *buffer }, 0)?;
            let sizes = vec![write.to_string(), buffer.to_string()];
            Some([sizes, versions_of_theirs(*four, *six), ours].concat())
        };
        Table {
            title: "Table 3: TCP throughput".to_owned(),
            how: "Theirs: KB/s. Ours: MB/s. Medians.".to_owned(),
            header: header(&["write", "buffer"], "change"),
            rows: paper::TCP.iter().filter_map(row).collect(),
        }
    }

    fn udp(&self) -> Table {
        let row = |(size, [four, six]): &(usize, [f64; 2])| {
            let ours = self.versions_of(Work::UdpSpeed { size: *size }, 1)?;
            Some([vec![size.to_string()], versions_of_theirs(*four, *six), ours].concat())
        };
        Table {
            title: "Table 4: UDP throughput".to_owned(),
            how: "As table 3. Their socket buffer was 32,767; our sender is at most 128 datagrams ahead, so that none is lost."
                .to_owned(),
            header: header(&["bytes"], "change"),
            rows: paper::UDP.iter().filter_map(row).collect(),
        }
    }

    fn security(&self) -> Table {
        let row = |(security, theirs): (&Security, f64)| {
            let ours = self.median(Measurement::secured(Work::LARGE, *security))?;
            Some(vec![
                security.name().to_owned(),
                format!("~{theirs}"),
                format!("{:.0} %", theirs / paper::SECURITY[0] * 100.0),
                security.algorithm().to_owned(),
                format!("{ours:.0}"),
                format!("{:.0} %", self.share(*security)? * 100.0),
            ])
        };
        Table {
            title: "Table 5: impact of IPv6 security on throughput".to_owned(),
            how: "TCP. Theirs: KB/s, with keyed MD5 and DES-CBC. Ours: MB/s. Medians.".to_owned(),
            header: ["security", "theirs", "of none", "our algorithm", "ours", "of none"]
                .map(str::to_owned)
                .to_vec(),
            rows: Security::ALL.iter().zip(paper::SECURITY).filter_map(row).collect(),
        }
    }

    /// Ours over IPv4 and IPv6, with so many digits, and the change.
    fn versions_of(&self, work: Work, digits: usize) -> Option<Vec<String>> {
        let median = |is_ipv6| self.median(Measurement::plain(work, is_ipv6));
        Some(vec![
            format!("{:.digits$}", median(false)?),
            format!("{:.digits$}", median(true)?),
            percent(self.version_ratio(work)?),
        ])
    }

    /// Figure 8: latency by size, as SVG. Each protocol has a panel, theirs above and ours below.
    pub(in crate::stack) fn figure(&self) -> String {
        let theirs = |at: usize| paper::LATENCY.map(|(size, values)| (size as f64, values[at])).to_vec();
        let panel = |title: &str, at| Panel {
            title: format!("{title}, theirs (1996), ms by bytes"),
            lines: vec![("IPv4".into(), theirs(at)), ("IPv6".into(), theirs(at + 1))],
        };
        figure::svg(&[
            panel("UDP", 2),
            panel("TCP", 0),
            self.panel("UDP", |size| Work::UdpLatency { size }),
            self.panel("TCP", |size| Work::TcpLatency { size }),
        ])
    }

    fn panel(&self, protocol: &str, work: fn(usize) -> Work) -> Panel {
        let line = |name: String, of: &dyn Fn(Work) -> Measurement| {
            let point = |(size, _)| Some((size as f64, self.median(of(work(size)))?));
            (name, paper::LATENCY.into_iter().filter_map(point).collect())
        };
        let mut lines = vec![line("IPv4".into(), &|work| Measurement::plain(work, false))];
        lines.extend(Security::ALL.map(|security| {
            let name = match security {
                Security::None => "IPv6".to_owned(),
                _ => format!("IPv6, {}", security.name()),
            };
            line(name, &|work| Measurement::secured(work, security))
        }));
        Panel { title: format!("{protocol}, ours, µs by bytes"), lines }
    }
}

fn header(first: &[&str], change: &str) -> Vec<String> {
    let versions = ["theirs: IPv4", "IPv6", change, "ours: IPv4", "IPv6", change];
    first.iter().chain(&versions).map(|&name| name.to_owned()).collect()
}

fn versions_of_theirs(four: f64, six: f64) -> Vec<String> {
    vec![format!("{four}"), format!("{six}"), percent(six / four)]
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}
