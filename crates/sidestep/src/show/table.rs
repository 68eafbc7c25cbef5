//! Peers as a table: which of them, in which order, in which columns. Text and screen show the same.

use std::cmp::Ordering;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use control::tunnel_status::{Peer, State, Status};

use super::text::{self, bytes, rate, scaled};
use crate::fit::{self, pad};

/// Spaces between two columns.
const GAP: usize = 2;
/// What is left of a long name before another column gives way.
const NAME: usize = 14;
/// Faults that are told below the table.
const MOST_FAULTS: usize = 10;
/// Names that stand before a fault that more peers have.
const NAMED: usize = 3;

/// Which peers are shown, and in which order.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Choice {
    /// Only peers in this state; several with commas
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',', value_parser = of_state())]
    pub(crate) states: Vec<State>,
    /// Only peers that have each of these words in their name, state, prefix, key or fault
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// Sort by this column: peers by name, of the others first what needs attention, or what is most
    #[arg(long, value_name = "COLUMN", default_value = "peer")]
    pub(crate) sort: Column,
}

fn of_state() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(["established", "silent", "handshake", "idle"]).map(|name| {
        match name.as_str() {
            "established" => State::Established,
            "silent" => State::Silent,
            "handshake" => State::Handshake,
            _ => State::Idle,
        }
    })
}

impl Choice {
    /// Whether a peer is shown.
    pub(crate) fn has(&self, row: &Row<'_>) -> bool {
        let is_in_state = self.states.is_empty() || self.states.contains(&row.peer.state);
        is_in_state && self.filter.as_ref().is_none_or(|filter| has_words(&row.words(), filter))
    }

    /// Which of two comes first.
    pub(crate) fn compare(&self, one: &Row<'_>, other: &Row<'_>) -> Ordering {
        self.sort.compare(one, other).then_with(|| natural(&one.peer.name, &other.peer.name))
    }

    /// The rows that are shown, in order.
    pub(crate) fn of<'s>(&self, rows: impl Iterator<Item = Row<'s>>) -> Vec<Row<'s>> {
        let mut rows: Vec<Row<'s>> = rows.filter(|row| self.has(row)).collect();
        rows.sort_by(|one, other| self.compare(one, other));
        rows
    }
}

/// Whether a text has each word of `filter`, in letters of any case.
pub(crate) fn has_words(text: &str, filter: &str) -> bool {
    let text = text.to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| text.contains(word))
}

/// A peer in the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'s> {
    pub(crate) tunnel: &'s str,
    pub(crate) peer: &'s Peer,
    /// Bits received and sent in a second, where that is known.
    pub(crate) rates: Option<(f64, f64)>,
}

impl Row<'_> {
    /// What a filter finds it by.
    fn words(&self) -> String {
        let Peer { name, hop_prefix, public_key, state, fault, .. } = self.peer;
        let (code, says) = fault.as_ref().map_or(("", ""), |fault| (&fault.code, &fault.says));
        format!("{name} {} {} {hop_prefix} {public_key} {code} {says}", self.tunnel, text::state(*state))
    }
}

/// A column of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// Its name.
    #[default]
    Peer,
    /// The tunnel that it is of: only on a screen with several.
    #[value(skip)]
    Tunnel,
    State,
    /// Since when it is in this state.
    For,
    /// When something came that was the peer's for certain.
    Heard,
    /// Round-trip time.
    Rtt,
    /// Now, only on a screen.
    #[value(skip)]
    In,
    /// Likewise.
    #[value(skip)]
    Out,
    Received,
    Sent,
    Dropped,
    Mtu,
    /// What is wrong, cut to what room there is: only on a screen.
    #[value(skip)]
    Fault,
}

impl Column {
    /// What stands above it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Column::Peer => "PEER",
            Column::Tunnel => "TUNNEL",
            Column::State => "STATE",
            Column::For => "FOR",
            Column::Heard => "HEARD",
            Column::Rtt => "RTT",
            Column::In => "IN",
            Column::Out => "OUT",
            Column::Received => "RECEIVED",
            Column::Sent => "SENT",
            Column::Dropped => "DROPPED",
            Column::Mtu => "MTU",
            Column::Fault => "FAULT",
        }
    }

    /// As wide as what it can hold; of a name and a fault the least.
    const fn width(self) -> usize {
        match self {
            Column::Peer => NAME,
            Column::Tunnel => 15,
            Column::State | Column::In | Column::Out => 12,
            Column::For | Column::Heard => 6,
            Column::Rtt | Column::Dropped => 7,
            Column::Received | Column::Sent => 10,
            Column::Mtu => 5,
            Column::Fault => 24,
        }
    }

    /// The last to give way where there is little room comes first.
    const fn importance(self) -> u8 {
        match self {
            Column::Peer => 0,
            Column::State => 1,
            Column::Rtt => 2,
            Column::Heard => 3,
            Column::Tunnel => 4,
            Column::In => 5,
            Column::Out => 6,
            Column::Received => 7,
            Column::Sent => 8,
            Column::For => 9,
            Column::Dropped => 10,
            Column::Fault => 11,
            Column::Mtu => 12,
        }
    }

    /// Whether its texts are quantities, which are compared from the right.
    const fn is_quantity(self) -> bool {
        !matches!(self, Column::Peer | Column::Tunnel | Column::State | Column::Fault)
    }

    /// A text in so many columns: quantities at their right end, names with their end, which often tells them apart.
    pub(crate) fn padded(self, text: &str, width: usize) -> String {
        if self == Column::Peer {
            return pad(&fit::cut_inside(text, width), width, false);
        }
        pad(text, width, self.is_quantity())
    }

    /// What it says of a peer; nothing where nothing is known.
    pub(crate) fn of(self, row: &Row<'_>) -> String {
        let peer = row.peer;
        match self {
            Column::Peer => peer.name.clone(),
            Column::Tunnel => row.tunnel.to_owned(),
            Column::State => text::state(peer.state).to_owned(),
            Column::For => age(peer.state_s),
            Column::Heard => peer.last_heard_s.map(age).unwrap_or_default(),
            Column::Rtt => peer.rtt_ms.map(round_trip).unwrap_or_default(),
            Column::In => row.rates.map(|(received, _)| rate(received)).unwrap_or_default(),
            Column::Out => row.rates.map(|(_, sent)| rate(sent)).unwrap_or_default(),
            Column::Received => bytes(peer.rx_bytes as f64),
            Column::Sent => bytes(peer.tx_bytes as f64),
            Column::Dropped => count(dropped(peer)),
            Column::Mtu if peer.path_mtu == 0 => String::new(),
            Column::Mtu => peer.path_mtu.to_string(),
            Column::Fault => peer.fault.as_ref().map(|fault| fault.says.clone()).unwrap_or_default(),
        }
    }

    /// Which of two comes first: by name, or what needs attention, or is most; what is not known comes last.
    fn compare(self, one: &Row<'_>, other: &Row<'_>) -> Ordering {
        let most = |of: fn(&Row<'_>) -> Option<f64>| {
            let (one, other) = (of(one).unwrap_or(-1.0), of(other).unwrap_or(-1.0));
            other.total_cmp(&one)
        };
        match self {
            Column::Peer => natural(&one.peer.name, &other.peer.name),
            Column::Tunnel => natural(one.tunnel, other.tunnel),
            Column::State => urgency(one.peer.state).cmp(&urgency(other.peer.state)),
            // Who has just come to be as it is is news.
            Column::For => one.peer.state_s.total_cmp(&other.peer.state_s),
            Column::Heard => most(|row| row.peer.last_heard_s),
            Column::Rtt => most(|row| row.peer.rtt_ms),
            Column::In => most(|row| row.rates.map(|(received, _)| received)),
            Column::Out => most(|row| row.rates.map(|(_, sent)| sent)),
            Column::Received => other.peer.rx_bytes.cmp(&one.peer.rx_bytes),
            Column::Sent => other.peer.tx_bytes.cmp(&one.peer.tx_bytes),
            Column::Dropped => dropped(other.peer).cmp(&dropped(one.peer)),
            Column::Mtu => one.peer.path_mtu.cmp(&other.peer.path_mtu),
            Column::Fault => other.peer.fault.is_some().cmp(&one.peer.fault.is_some()),
        }
    }
}

/// The columns for which there is room, each with its width. The name gets what is left, as far as the longest one needs
/// it, and then the fault.
pub(crate) fn fitting(wanted: &[Column], longest_name: usize, width: usize) -> Vec<(Column, usize)> {
    let least = |column: Column| match column {
        Column::Peer => longest_name.min(NAME),
        column => column.width(),
    };
    let mut by_importance = wanted.to_vec();
    by_importance.sort_by_key(|column| column.importance());
    let mut free = width + GAP;
    let fit = by_importance.iter().take_while(|column| {
        let rest = free.checked_sub(least(**column) + GAP);
        free = rest.unwrap_or(free);
        rest.is_some() || **column == Column::Peer
    });
    let fit: Vec<Column> = fit.copied().collect();
    if fit == [Column::Peer] {
        return vec![(Column::Peer, longest_name.min(width))];
    }
    let in_order = wanted.iter().filter(|column| fit.contains(column));
    let mut columns: Vec<_> = in_order.map(|column| (*column, least(*column))).collect();
    for (column, most) in [(Column::Peer, longest_name), (Column::Fault, usize::MAX)] {
        if let Some((_, width)) = columns.iter_mut().find(|(own, _)| *own == column) {
            let more = free.min(most.saturating_sub(*width));
            (*width, free) = (*width + more, free - more);
        }
    }
    columns
}

/// What stands above the columns.
pub(crate) fn head(columns: &[(Column, usize)]) -> String {
    line(columns, |column| column.title().to_owned())
}

/// A peer in one line.
pub(crate) fn row(columns: &[(Column, usize)], row: &Row<'_>) -> String {
    line(columns, |column| column.of(row))
}

fn line(columns: &[(Column, usize)], of: impl Fn(Column) -> String) -> String {
    let cell = |(column, width): &(Column, usize)| column.padded(&of(*column), *width);
    let cells: Vec<_> = columns.iter().map(cell).collect();
    cells.join(&" ".repeat(GAP)).trim_end().to_owned()
}

/// A status as a table, in so many columns; then what is wrong, once where several peers say the same.
pub(crate) fn describe(status: &Status, choice: &Choice, width: usize) -> String {
    const COLUMNS: [Column; 9] = [
        Column::Peer,
        Column::State,
        Column::For,
        Column::Heard,
        Column::Rtt,
        Column::Received,
        Column::Sent,
        Column::Dropped,
        Column::Mtu,
    ];
    let rows = status.peers.iter().map(|peer| Row { tunnel: &status.tunnel, peer, rates: None });
    let rows = choice.of(rows);
    let mut text = fit::wrap_text(&summary(status), width, 2) + "\n";
    let drops = text::drops(&status.drops);
    if !drops.is_empty() {
        text += &(fit::wrap_text(&format!("dropped: {drops}"), width, 2) + "\n");
    }
    text += &fit::wrap_text(&counts(status.peers.iter()), width, 2);
    if rows.len() < status.peers.len() {
        text += &format!("; {} shown", rows.len());
    }
    text += "\n";
    if rows.is_empty() {
        return text;
    }
    let longest_name = rows.iter().map(|row| fit::width(&row.peer.name)).max().unwrap_or(0);
    let columns = fitting(&COLUMNS, longest_name.max(Column::Peer.title().len()), width);
    text += &format!("\n{}\n", head(&columns));
    for row in &rows {
        text += &format!("{}\n", self::row(&columns, row));
    }
    text + &faults(&rows, width)
}

/// The tunnel, in a line.
pub(crate) fn summary(status: &Status) -> String {
    let Status { tunnel, hop_prefix, external, version, .. } = status;
    let up = text::duration(status.uptime_s);
    let place = match &status.waits_for {
        Some(uplink) => format!("waits for a prefix of uplink {uplink}"),
        None if text::stands_by(status) => "stands by for the other gateway".to_owned(),
        None => format!("hops in {hop_prefix} on {external}"),
    };
    // First, since the line is cut where the screen ends.
    let loud = if status.keylog { "KEYS ARE LOGGED, " } else { "" };
    format!("{tunnel}: {loud}{place}, running for {up}, version {version}")
}

/// How many peers there are in which state, the urgent ones first.
pub(crate) fn counts<'p>(peers: impl Iterator<Item = &'p Peer> + Clone) -> String {
    let all = peers.clone().count();
    let mut text = if all == 1 { "1 peer".to_owned() } else { format!("{all} peers") };
    let states = [State::Silent, State::Handshake, State::Established, State::Idle];
    let in_state = |state: State| peers.clone().filter(|peer| peer.state == state).count();
    let counts = states.map(|state| (in_state(state), text::state(state)));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    for (number, (count, state)) in counts.enumerate() {
        text += &format!("{} {count} {state}", if number == 0 { ":" } else { "," });
    }
    text
}

/// What is wrong with these peers, each sentence once.
fn faults(rows: &[Row<'_>], width: usize) -> String {
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for Row { peer, .. } in rows {
        let Some(fault) = &peer.fault else { continue };
        let says = format!("{} ({})", fault.says, fault.code);
        match told.iter_mut().find(|(other, _)| *other == says) {
            Some((_, names)) => names.push(&peer.name),
            None => told.push((says, vec![&peer.name])),
        }
    }
    let mut text = String::new();
    for (says, names) in told.iter().take(MOST_FAULTS) {
        let mut who = names[..names.len().min(NAMED)].join(", ");
        if names.len() > NAMED {
            who += &format!(" and {} more", names.len() - NAMED);
        }
        text += &format!("\n{}", fit::wrap_text(&format!("{who}: {says}"), width, 2));
    }
    let others: usize = told.iter().skip(MOST_FAULTS).map(|(_, names)| names.len()).sum();
    if others > 0 {
        let more = format!("and faults of {others} more peers, which --peer NAME and --details tell");
        text += &format!("\n{}", fit::wrap_text(&more, width, 2));
    }
    if text.is_empty() { text } else { text + "\n" }
}

/// What needs an operator most comes first.
const fn urgency(state: State) -> u8 {
    match state {
        State::Silent => 0,
        State::Handshake => 1,
        State::Idle => 2,
        State::Established => 3,
    }
}

/// All datagrams and packets of a peer that were dropped.
pub(crate) fn dropped(peer: &Peer) -> u64 {
    peer.drops.values().fold(0, |sum, count| sum.saturating_add(*count))
}

/// Seconds in at most six columns.
fn age(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 60.0 => format!("{s:.0} s"),
        s if s < 3600.0 => format!("{:.0} min", (s / 60.0).floor()),
        s if s < 86_400.0 => format!("{:.0} h", (s / 3600.0).floor()),
        s if s < 86_400_000.0 => format!("{:.0} d", (s / 86_400.0).floor()),
        s => format!("{:.0} y", (s / 31_557_600.0).floor()),
    }
}

/// Milliseconds, three digits of them.
fn round_trip(ms: f64) -> String {
    match ms {
        ms if ms < 9.995 => format!("{ms:.2} ms"),
        ms if ms < 99.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

/// A number in at most seven columns.
fn count(number: u64) -> String {
    if number < 10_000_000 {
        number.to_string()
    } else {
        scaled(number as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
    }
}

/// The order of names in which `site-2` comes before `site-10`.
fn natural(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (parts(one), parts(other));
    loop {
        match (one.next(), other.next()) {
            (Some(own), Some(others)) => {
                // Numbers by value: without zeros before them the longer one is larger.
                let order = if own.starts_with(digit) && others.starts_with(digit) {
                    let (own, others) = (own.trim_start_matches('0'), others.trim_start_matches('0'));
                    own.len().cmp(&others.len()).then_with(|| own.cmp(others))
                } else {
                    own.cmp(others)
                };
                if order.is_ne() {
                    return order;
                }
            }
            (own, others) => return own.is_some().cmp(&others.is_some()),
        }
    }
}

fn digit(character: char) -> bool {
    character.is_ascii_digit()
}

/// A name in runs of digits and of others.
fn parts(mut name: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let is_number = name.starts_with(digit);
        let end = name.find(|character| digit(character) != is_number).unwrap_or(name.len());
        let (part, rest) = name.split_at(end);
        name = rest;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::tunnel_status::{Fault, example};
    use proptest::prelude::*;

    fn choice(filter: Option<&str>, states: &[State], sort: Column) -> Choice {
        Choice { states: states.to_vec(), filter: filter.map(str::to_owned), sort }
    }

    /// Peers of these names, with something different about each.
    fn status(names: &[&str]) -> Status {
        let mut status = example();
        let peer = status.peers[0].clone();
        let peers = names.iter().enumerate().map(|(number, name)| {
            let mut peer = peer.clone();
            peer.name = (*name).to_owned();
            peer.rtt_ms = (number != 1).then_some(number as f64 * 7.5);
            peer.state = [State::Established, State::Silent, State::Handshake, State::Idle][number % 4];
            if peer.state == State::Silent {
                let says = "nothing comes from its prefix: is the prefix routed to it?".to_owned();
                peer.fault = Some(Fault { code: "nothing_heard".into(), says });
            }
            peer
        });
        status.peers = peers.collect();
        status
    }

    fn order(status: &Status, choice: &Choice) -> Vec<String> {
        let rows = status.peers.iter().map(|peer| Row { tunnel: "mt6d0", peer, rates: None });
        choice.of(rows).iter().map(|row| row.peer.name.clone()).collect()
    }

    #[test]
    fn a_table_says_the_same_of_each_peer_in_its_line() {
        let mut status = example();
        status.peers[1].name = "a-name-that-is-rather-long-for-a-peer".into();
        let shown = describe(&status, &choice(None, &[], Column::Peer), 100);
        assert_eq!(
            shown,
            "\
mt6d0: hops in 2001:db8:a1::/64 on eth0, running for 1 d 1 h, version 0.1.0
dropped: 2 no route
2 peers: 1 established, 1 idle

PEER                   STATE            FOR   HEARD      RTT    RECEIVED        SENT  DROPPED    MTU
a-name-that-…r-a-peer  idle             1 d                          0 B         0 B        0   1500
site-b                 established      1 h   0.2 s  1.25 ms    38.1 MiB     1.4 GiB        3   1500
"
        );
    }

    #[test]
    fn where_there_is_little_room_the_less_important_columns_give_way() {
        let status = example();
        let of = |width| describe(&status, &choice(None, &[], Column::Peer), width);
        assert!(of(40).contains("\nPEER    STATE          HEARD      RTT\n"), "{}", of(40));
        assert!(of(80).contains("RECEIVED        SENT") && !of(80).contains("MTU"), "{}", of(80));
    }

    #[test]
    fn peers_are_chosen_by_state_and_words_and_sorted_by_a_column() {
        let status = status(&["site-10", "site-2", "lab", "Site-3"]);
        assert_eq!(order(&status, &choice(None, &[], Column::Peer)), ["Site-3", "lab", "site-2", "site-10"]);
        assert_eq!(order(&status, &choice(None, &[], Column::State)), ["site-2", "lab", "Site-3", "site-10"]);
        assert_eq!(order(&status, &choice(None, &[], Column::Rtt)), ["Site-3", "lab", "site-10", "site-2"]);
        assert_eq!(order(&status, &choice(Some("SITE 10"), &[], Column::Peer)), ["site-10"]);
        assert_eq!(order(&status, &choice(Some("routed nothing_heard"), &[], Column::Peer)), ["site-2"]);
        assert_eq!(
            order(&status, &choice(None, &[State::Silent, State::Idle], Column::Peer)),
            ["Site-3", "site-2"]
        );
    }

    #[test]
    fn what_several_peers_say_stands_there_once() {
        let names: Vec<String> = (0..20).map(|number| format!("site-{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let shown = describe(&status(&names), &choice(None, &[], Column::Peer), usize::MAX / 2);
        assert!(
            shown.ends_with("\nsite-1, site-5, site-9 and 2 more: nothing comes from its prefix: is the prefix routed to it? (nothing_heard)\n"),
            "{shown}"
        );
        let mut other = status(&names);
        for peer in &mut other.peers {
            let says = format!("there is no route to {}", peer.name);
            peer.fault = Some(Fault { code: "no_route".into(), says });
        }
        let shown = describe(&other, &choice(None, &[], Column::Peer), 80);
        assert!(
            shown
                .ends_with("(no_route)\nand faults of 10 more peers, which --peer NAME and --details tell\n"),
            "{shown}"
        );
        let shown = describe(&status(&names), &choice(Some("site-1"), &[], Column::Peer), 80);
        assert!(shown.contains("established, 5 idle; 11 shown\n"), "{shown}");
    }

    #[test]
    fn quantities_fit_their_columns() {
        for value in [0.0, 0.004, 9.96, 59.7, 99.96, 999.6, 3_599.0, 86_399.0, 1e6, 8e8, 9.99996e8] {
            assert!(fit::width(&age(value)) <= Column::For.width(), "{}", age(value));
            assert!(fit::width(&rate(value)) <= Column::In.width(), "{}", rate(value));
            assert!(fit::width(&bytes(value)) <= Column::Sent.width(), "{}", bytes(value));
            assert!(fit::width(&count(value as u64)) <= Column::Dropped.width());
            let ms = value.min(1e5);
            assert!(fit::width(&round_trip(ms)) <= Column::Rtt.width(), "{}", round_trip(ms));
        }
        assert!(fit::width(&count(u64::MAX)) <= Column::Dropped.width());
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_screen(
            width in 20usize..220, name in "[a-z0-9.東-]{1,64}", fault in "[a-z ]{0,200}",
        ) {
            let mut status = example();
            status.peers[0].name = name;
            status.peers[0].fault = Some(Fault { code: "code".into(), says: fault });
            let shown = describe(&status, &choice(None, &[], Column::Peer), width);
            for line in shown.lines() {
                prop_assert!(fit::width(line) <= width, "{line:?} in {width}");
            }
        }

        #[test]
        fn the_order_of_names_is_one(one in "[a-c0-2]{0,5}", two in "[a-c0-2]{0,5}", three in "[a-c0-2]{0,5}") {
            prop_assert_eq!(natural(&one, &two), natural(&two, &one).reverse());
            if natural(&one, &two).is_le() && natural(&two, &three).is_le() {
                prop_assert!(natural(&one, &three).is_le());
            }
        }
    }
}
