//! The published values, each with the table, figure or section that it comes from.
//!
//! - *thesis*: the master's thesis that rewrote MT6D from Python to C, 2015; chapters 4 and 5.
//! - *paper*: the report on the Python prototype on a live IPv6 network; section 4.
//!
//! Only what the documents' text still says is here. Their charts are lost but for the numbers of the thesis's figure 5.5,
//! and so are the thesis's table 5.2 and the text around it: [`LOST`] lists what cannot be compared. Nothing is estimated.

use lab::topology::Topology;

/// Whose value it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishedSystem {
    /// Without MT6D, in the thesis.
    ThesisNone,
    /// The thesis's Python version, unencrypted.
    ThesisPython,
    /// The thesis's C version, unencrypted.
    ThesisC,
    /// Without MT6D, in the paper.
    PaperNone,
    /// The paper's Python prototype, encrypted.
    Paper,
}

impl PublishedSystem {
    /// Its name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ThesisNone => "thesis: none",
            Self::ThesisPython => "thesis: Python",
            Self::ThesisC => "thesis: C",
            Self::PaperNone => "paper: none",
            Self::Paper => "paper: Python, encrypted",
        }
    }

    /// All, in the order of tables.
    pub(crate) const ALL: [Self; 5] =
        [Self::ThesisNone, Self::ThesisPython, Self::ThesisC, Self::PaperNone, Self::Paper];
}

/// One published value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Published {
    pub(crate) system: PublishedSystem,
    pub(crate) topology: Topology,
    /// Seconds.
    pub(crate) rotation: Option<u32>,
    pub(crate) test: &'static str,
    /// As a measurement has it.
    pub(crate) value: &'static str,
    pub(crate) number: f64,
    /// What the text says before the number: `about`, `up to`; nothing where it is exact.
    pub(crate) more_or_less: &'static str,
    pub(crate) source: &'static str,
}

const fn one(
    (system, topology, rotation): (PublishedSystem, Topology, Option<u32>),
    (test, value): (&'static str, &'static str),
    (more_or_less, number): (&'static str, f64),
    source: &'static str,
) -> Published {
    Published { system, topology, rotation, test, value, number, more_or_less, source }
}

const STD: &str = "ping_std_1k";
const FLOOD_10: &str = "ping_flood_10k";
const FLOOD_50: &str = "ping_flood_50k";
/// The test's name where a value is the mean of all files.
pub(crate) const ALL_FILES: &str = "http";

const THESIS_NONE: (PublishedSystem, Topology, Option<u32>) =
    (PublishedSystem::ThesisNone, Topology::Switched, Some(10));
const PYTHON: (PublishedSystem, Topology, Option<u32>) =
    (PublishedSystem::ThesisPython, Topology::Switched, Some(10));
const C: (PublishedSystem, Topology, Option<u32>) = (PublishedSystem::ThesisC, Topology::Switched, Some(10));
const PAPER_NONE: (PublishedSystem, Topology, Option<u32>) =
    (PublishedSystem::PaperNone, Topology::Switched, Some(10));
const PAPER: (PublishedSystem, Topology, Option<u32>) =
    (PublishedSystem::Paper, Topology::Switched, Some(10));
const PAPER_5: (PublishedSystem, Topology, Option<u32>) =
    (PublishedSystem::Paper, Topology::Switched, Some(5));
const PAPER_30: (PublishedSystem, Topology, Option<u32>) =
    (PublishedSystem::Paper, Topology::Switched, Some(30));
const PAPER_STILL: (PublishedSystem, Topology, Option<u32>) =
    (PublishedSystem::Paper, Topology::Switched, None);
const FAR_NONE: (PublishedSystem, Topology, Option<u32>) =
    (PublishedSystem::PaperNone, Topology::Routed, Some(10));
const FAR: (PublishedSystem, Topology, Option<u32>) = (PublishedSystem::Paper, Topology::Routed, Some(10));
const FAR_STILL: (PublishedSystem, Topology, Option<u32>) = (PublishedSystem::Paper, Topology::Routed, None);

const FIGURE_5_5: &str = "thesis, figure 5.5";
const EXACTLY: &str = "";

/// All of them.
pub(crate) const PUBLISHED: &[Published] = &[
    one(THESIS_NONE, (STD, "avg_ms"), ("less than", 1.0), "thesis, section 5.1.1 (figure 5.1)"),
    one(THESIS_NONE, (FLOOD_10, "avg_ms"), ("less than", 1.0), "thesis, section 5.1.1 (figure 5.1)"),
    one(THESIS_NONE, (FLOOD_50, "avg_ms"), ("less than", 1.0), "thesis, section 5.1.1 (figure 5.1)"),
    one(THESIS_NONE, (STD, "loss_percent"), (EXACTLY, 0.0), "thesis, section 5.1.1 (figure 5.1)"),
    one(THESIS_NONE, (FLOOD_10, "loss_percent"), (EXACTLY, 0.0), "thesis, section 5.1.1 (figure 5.1)"),
    one(THESIS_NONE, (FLOOD_50, "loss_percent"), (EXACTLY, 0.0), "thesis, section 5.1.1 (figure 5.1)"),
    one(THESIS_NONE, (ALL_FILES, "mb_per_s"), (EXACTLY, 19.584), "thesis, section 5.1.1 (figure 5.2)"),
    one(THESIS_NONE, ("http_500M", "mb_per_s"), (EXACTLY, 15.41), "thesis, section 5.1.3 (figure 5.6)"),
    one(THESIS_NONE, ("iperf_1M", "jitter_ms"), (EXACTLY, 0.061), "thesis, table 5.1"),
    one(THESIS_NONE, ("iperf_10M", "jitter_ms"), (EXACTLY, 0.054), "thesis, table 5.1"),
    one(THESIS_NONE, ("iperf_50M", "jitter_ms"), (EXACTLY, 0.065), "thesis, table 5.1"),
    one(THESIS_NONE, ("iperf_500M", "jitter_ms"), (EXACTLY, 0.062), "thesis, table 5.1"),
    one(PYTHON, (STD, "avg_ms"), (EXACTLY, 103.0), "thesis, section 5.1.2 (figure 5.3)"),
    one(PYTHON, (STD, "loss_percent"), (EXACTLY, 2.32), "thesis, section 5.1.2 (figure 5.3)"),
    one(PYTHON, (FLOOD_10, "loss_percent"), ("more than", 90.0), "thesis, section 5.1.2 (figure 5.3)"),
    one(PYTHON, (FLOOD_50, "loss_percent"), ("more than", 90.0), "thesis, section 5.1.2 (figure 5.3)"),
    one(PYTHON, (FLOOD_50, "max_ms"), ("up to", 30_000.0), "thesis, section 5.1.2 (figure 5.3)"),
    one(PYTHON, (ALL_FILES, "mb_per_s"), (EXACTLY, 0.024_072), "thesis, section 5.1.2 (figure 5.4)"),
    one(PYTHON, ("http_500M", "mb_per_s"), (EXACTLY, 0.018_34), "thesis, section 5.1.2 (figure 5.4)"),
    one(C, (FLOOD_10, "min_ms"), (EXACTLY, 0.385), FIGURE_5_5),
    one(C, (FLOOD_10, "avg_ms"), (EXACTLY, 0.4454), FIGURE_5_5),
    one(C, (FLOOD_10, "max_ms"), (EXACTLY, 12.5338), FIGURE_5_5),
    one(C, (FLOOD_10, "loss_percent"), (EXACTLY, 0.0), FIGURE_5_5),
    one(C, (FLOOD_50, "min_ms"), (EXACTLY, 0.3807), FIGURE_5_5),
    one(C, (FLOOD_50, "avg_ms"), (EXACTLY, 0.4314), FIGURE_5_5),
    one(C, (FLOOD_50, "max_ms"), (EXACTLY, 15.5237), FIGURE_5_5),
    one(C, (FLOOD_50, "loss_percent"), (EXACTLY, 0.1694), FIGURE_5_5),
    one(C, (STD, "min_ms"), (EXACTLY, 0.4463), FIGURE_5_5),
    one(C, (STD, "avg_ms"), (EXACTLY, 1.1406), FIGURE_5_5),
    one(C, (STD, "max_ms"), (EXACTLY, 14.7456), FIGURE_5_5),
    one(C, (STD, "loss_percent"), (EXACTLY, 0.11), FIGURE_5_5),
    one(C, (ALL_FILES, "mb_per_s"), (EXACTLY, 10.57), "thesis, section 5.1.3 (figure 5.6)"),
    one(C, ("http_500M", "mb_per_s"), (EXACTLY, 11.55), "thesis, section 5.1.3 (figure 5.6)"),
    one(C, ("http_500k", "seconds"), ("about", 0.05), "thesis, section 5.1.3 (figure 5.6)"),
    one(C, ("iperf_1M", "jitter_ms"), (EXACTLY, 0.081), "thesis, table 5.3"),
    one(C, ("iperf_10M", "jitter_ms"), (EXACTLY, 0.085), "thesis, table 5.3"),
    one(C, ("iperf_50M", "jitter_ms"), (EXACTLY, 0.094), "thesis, table 5.3"),
    one(C, ("iperf_500M", "jitter_ms"), (EXACTLY, 0.095), "thesis, table 5.3"),
    one(PYTHON, (FLOOD_50, "cpu_percent_a"), ("almost", 32.0), "thesis, section 5.1.4 (figure 5.7)"),
    one(PYTHON, (STD, "cpu_percent_a"), (EXACTLY, 2.0), "thesis, section 5.1.4 (figure 5.7)"),
    one(PYTHON, (FLOOD_50, "private_mb_a"), ("about", 4.0), "thesis, section 5.1.4 (figure 5.7)"),
    one(PYTHON, (STD, "private_mb_a"), ("about", 4.0), "thesis, section 5.1.4 (figure 5.7)"),
    one(PYTHON, (FLOOD_50, "kernel_percent_a"), (EXACTLY, 4.97), "thesis, section 5.1.4 (figure 5.8)"),
    one(C, (FLOOD_50, "cpu_percent_a"), (EXACTLY, 12.0), "thesis, section 5.1.4 (figure 5.7)"),
    one(C, (STD, "cpu_percent_a"), (EXACTLY, 0.01), "thesis, section 5.1.4 (figure 5.7)"),
    one(C, (FLOOD_50, "private_mb_a"), ("about", 0.06), "thesis, section 5.1.4 (figure 5.7)"),
    one(C, (STD, "private_mb_a"), ("about", 0.06), "thesis, section 5.1.4 (figure 5.7)"),
    one(C, (FLOOD_50, "kernel_percent_a"), (EXACTLY, 79.4), "thesis, section 5.1.4 (figure 5.8)"),
    one(PAPER_NONE, (STD, "avg_ms"), (EXACTLY, 0.113), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER_NONE, (STD, "mdev_ms"), (EXACTLY, 0.047), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER_NONE, (FLOOD_10, "avg_ms"), (EXACTLY, 0.113), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER_NONE, (FLOOD_50, "avg_ms"), (EXACTLY, 0.113), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER_NONE, (STD, "loss_percent"), (EXACTLY, 0.0), "paper, section 4.1.1 (figure 5b)"),
    one(PAPER_NONE, (FLOOD_10, "loss_percent"), (EXACTLY, 0.0), "paper, section 4.1.1 (figure 5b)"),
    one(PAPER_NONE, (FLOOD_50, "loss_percent"), (EXACTLY, 0.0), "paper, section 4.1.1 (figure 5b)"),
    one(PAPER, (STD, "avg_ms"), (EXACTLY, 5.800), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER, (STD, "mdev_ms"), (EXACTLY, 17.853), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER, (STD, "loss_percent"), (EXACTLY, 0.28), "paper, section 4.1.2 (figures 5b, 7b)"),
    one(PAPER, (FLOOD_10, "avg_ms"), ("both floods:", 2.744), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER, (FLOOD_50, "avg_ms"), ("both floods:", 2.744), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER, (FLOOD_10, "mdev_ms"), ("both floods:", 8.632), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER, (FLOOD_50, "mdev_ms"), ("both floods:", 8.632), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER_STILL, (STD, "avg_ms"), ("just over", 2.0), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER_STILL, (STD, "mdev_ms"), (EXACTLY, 0.099), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER_STILL, (FLOOD_10, "avg_ms"), ("just over", 2.0), "paper, section 4.1.1 (figure 5a)"),
    one(PAPER_STILL, (STD, "loss_percent"), (EXACTLY, 0.0), "paper, section 4.1.1 (figure 5b)"),
    one(PAPER_STILL, (FLOOD_10, "loss_percent"), (EXACTLY, 0.0), "paper, section 4.1.1 (figure 5b)"),
    one(
        PAPER_NONE,
        (ALL_FILES, "mb_per_s"),
        ("about", 85.0),
        "paper, section 4.2 (figure 6a; 54 to 108 in section 4.1.1)",
    ),
    one(PAPER, (ALL_FILES, "mb_per_s"), ("a bit under", 2.0), "paper, section 4.1.1 (figure 6a)"),
    one(PAPER, ("http_500k", "retransmitted_percent"), (EXACTLY, 0.0), "paper, section 4.1.1 (figure 6b)"),
    one(PAPER, ("http_1M", "retransmitted_percent"), (EXACTLY, 0.0), "paper, section 4.1.1 (figure 6b)"),
    one(PAPER, ("http_10M", "retransmitted_percent"), ("about", 0.33), "paper, section 4.1.1 (figure 6b)"),
    one(PAPER, ("http_50M", "retransmitted_percent"), ("under", 2.0), "paper, section 4.1.1 (figure 6b)"),
    one(PAPER, ("http_500M", "retransmitted_percent"), ("under", 2.0), "paper, section 4.1.1 (figure 6b)"),
    one(PAPER_5, (STD, "avg_ms"), (EXACTLY, 8.496), "paper, section 4.1.2 (figure 7a)"),
    one(PAPER_5, (STD, "mdev_ms"), (EXACTLY, 23.588), "paper, section 4.1.2 (figure 7a)"),
    one(PAPER_5, (STD, "loss_percent"), (EXACTLY, 0.34), "paper, section 4.1.2 (figure 7b)"),
    one(PAPER_30, (STD, "loss_percent"), (EXACTLY, 0.0), "paper, section 4.1.2 (figure 7b)"),
    one(FAR_NONE, (STD, "loss_percent"), (EXACTLY, 0.0), "paper, section 4.2 (figure 11b)"),
    one(FAR, (STD, "avg_ms"), (EXACTLY, 4.985), "paper, section 4.2 (figure 11a)"),
    one(FAR, (STD, "mdev_ms"), (EXACTLY, 14.831), "paper, section 4.2 (figure 11a)"),
    one(FAR, (STD, "loss_percent"), (EXACTLY, 10.16), "paper, section 4.2 (figure 11b)"),
    one(FAR_STILL, (STD, "loss_percent"), (EXACTLY, 0.0), "paper, section 4.2 (figure 11b)"),
    one(FAR_NONE, (ALL_FILES, "mb_per_s"), ("about", 11.0), "paper, section 4.2 (figure 12a)"),
    one(
        FAR,
        (ALL_FILES, "mb_per_s"),
        ("about", 2.0),
        "paper, section 4.2 (figure 12a: nearly as on one subnet)",
    ),
    one(PAPER_NONE, ("voip", "delay_ms"), (EXACTLY, 0.18), "paper, section 4.3"),
    one(PAPER_NONE, ("voip", "loss_percent"), ("about", 0.0), "paper, section 4.3"),
    one(PAPER, ("voip", "delay_ms"), (EXACTLY, 1.45), "paper, section 4.3"),
    one(PAPER, ("voip", "loss_percent"), (EXACTLY, 0.52), "paper, section 4.3"),
    one(PAPER, ("video", "stalls"), ("in 597 s:", 4.0), "paper, section 4.3"),
    one(PAPER, ("video", "retransmitted_percent"), (EXACTLY, 0.10), "paper, section 4.3"),
    one(PAPER, ("soak", "rotations"), ("more than", 60_000.0), "paper, section 4.4"),
];

/// The paper's differences between encrypted and unencrypted (its figures 9 and 10, section 4.1.3): what, how much, source.
pub(crate) const ENCRYPTION: [(&str, &str, &str); 5] = [
    ("ping_std_1k, average round trip", "+0.61 ms", "figure 9a"),
    ("ping floods, average round trip", "about +0.2 ms", "figure 9a"),
    ("lost pings, each of the three tests", "less than 0.01 percentage points", "figure 9b"),
    ("throughput, every file", "less than 200 kB/s less", "figure 10a"),
    ("packets for 1 GB", "+2 %", "section 4.1.3"),
];

/// What the documents had and their text has lost.
pub(crate) const LOST: [(&str, &str); 9] = [
    (
        "thesis, figures 5.1 to 5.4, 5.6",
        "values of single tests and files; what the text says of them is used",
    ),
    ("thesis, table 5.2", "jitter with Python MT6D: the table and the text around it are missing"),
    ("thesis, figure 5.9", "kernel and user time under the standard ping"),
    ("thesis, figures 5.10 to 5.15", "the routed topology: its text says that it is like the switched one"),
    (
        "thesis, figures 5.16 to 5.21",
        "the tunneled topology: Python's average in ping_std_1k is about 20 ms above the baseline, which is lost",
    ),
    ("thesis, figures 5.22 to 5.24", "the summary of the switched topology"),
    ("paper, figures 5 to 12", "all charts; what the text says of them is used"),
    ("paper, figures 7 and 8, 15 s", "the text has no number for it"),
    (
        "thesis, tables 5.1 and 5.3",
        "complete, but for 1, 10, 50 and 500 MB, while its plan has 1, 10 and 100 MB (section 4.2.3, table 4.1)",
    ),
];

/// The published values of one test in a setting.
pub(crate) fn find(
    system: PublishedSystem,
    topology: Topology,
    rotation: Option<u32>,
    test: &str,
    value: &str,
) -> Option<&'static Published> {
    PUBLISHED.iter().find(|one| {
        (one.system, one.topology, one.rotation, one.test, one.value)
            == (system, topology, rotation, test, value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_there_once() {
        for one in PUBLISHED {
            let found = find(one.system, one.topology, one.rotation, one.test, one.value).expect("itself");
            assert!(
                std::ptr::eq(found, one) || found.number.to_bits() == one.number.to_bits(),
                "{one:?} and {found:?}"
            );
            let same = PUBLISHED.iter().filter(|other| {
                (other.system, other.topology, other.rotation, other.test, other.value)
                    == (one.system, one.topology, one.rotation, one.test, one.value)
            });
            assert_eq!(same.count(), 1, "{one:?}");
        }
    }

    #[test]
    fn each_value_names_its_source() {
        for one in PUBLISHED {
            let thesis = matches!(
                one.system,
                PublishedSystem::ThesisNone | PublishedSystem::ThesisPython | PublishedSystem::ThesisC
            );
            assert!(one.source.starts_with(if thesis { "thesis, " } else { "paper, " }), "{one:?}");
        }
    }
}
