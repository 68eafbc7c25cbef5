//! What is told of which connection, and when: of each direction what it has carried since it was told of last.

use std::collections::{HashMap, VecDeque};

use linux::conntrack::{Connection, Count, Direction};

use super::message::{End, Ends, Message, Record};

/// How often the collector is told what records are made of: over UDP it may have missed that (RFC 7011 section 8.4).
const TEMPLATES_EVERY_MS: u64 = 60_000;
/// Records of a hundredth of a second, so that neither a round through all connections nor who floods the gateway with them
/// floods the collector, whose socket has room for some dozen messages.
const SLOT_MS: u64 = 10;
const MOST_PER_SLOT: u32 = 200;
/// Records that wait, of connections that are over: two seconds' worth, some megabytes.
const MOST_WAITING: u64 = 40_000;
/// Of connections that go on there are half as many: they can wait where they are.
const MOST_WAITING_OF_ROUND: u64 = MOST_WAITING / 2;

/// Tells messages for a collector out of connections. Times are in milliseconds of Unix time.
#[derive(Debug)]
pub(super) struct Exporter {
    domain: u32,
    told: HashMap<Key, Told>,
    /// Counts the rounds in which all connections are told of.
    round: u64,
    /// Whether some of those that were gone through found no room.
    has_left_some: bool,
    /// Messages that are to be sent; the last one may have room for more records.
    waiting: VecDeque<Message>,
    records_waiting: u64,
    /// Records that were sent, modulo 2^32.
    pub(super) records: u32,
    templates_due_ms: u64,
    /// The slot that records are counted in, and how many it has.
    slot: (u64, u32),
    /// Records that nobody will be told, since too many wait.
    pub(super) left_out: u64,
}

/// One connection: with the same addresses and ports as another, but not at the same time.
type Key = (u32, u8, Direction);

#[derive(Clone, Copy, Debug)]
struct Told {
    sent: Count,
    received: Count,
    until_ms: u64,
    /// The round in which it was told of last, and that in which it was seen.
    round: u64,
    seen: u64,
}

impl Exporter {
    /// `domain`: the observation domain (RFC 7011 section 2).
    pub(super) fn new(domain: u32) -> Self {
        Self {
            domain,
            told: HashMap::new(),
            round: 0,
            has_left_some: false,
            waiting: VecDeque::new(),
            records_waiting: 0,
            records: 0,
            templates_due_ms: 0,
            slot: (0, 0),
            left_out: 0,
        }
    }

    /// A connection that there was before: what it has carried until now is not ours to tell.
    pub(super) fn was_there(&mut self, connection: &Connection, now_ms: u64) {
        self.told.insert(key(connection), self.told_now(connection, now_ms));
    }

    /// All connections that go on are to be told of once more.
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// A connection that goes on, or whose end nobody will see: `end` is [`End::Active`] or [`End::Forced`]. It is told of
    /// once in a round, if there is room.
    pub(super) fn goes_on(&mut self, connection: &Connection, end: End, now_ms: u64) {
        if let Some(told) = self.told.get_mut(&key(connection)) {
            told.seen = self.round;
            if told.round == self.round {
                return;
            }
        }
        if self.records_waiting >= MOST_WAITING_OF_ROUND {
            self.has_left_some = true;
            return;
        }
        let before = self.told.insert(key(connection), self.told_now(connection, now_ms));
        self.tell(connection, before, end, now_ms);
    }

    /// A connection that is over.
    pub(super) fn ended(&mut self, connection: &Connection, now_ms: u64) {
        let before = self.told.remove(&key(connection));
        let end = if connection.is_closed { End::Closed } else { End::Idle };
        self.tell(connection, before, end, now_ms);
    }

    /// All connections have been gone through; whether there was room for all of them. Otherwise they are to be gone through
    /// again in this round. Those that were not among them in two rounds have ended unheard.
    pub(super) fn all_gone_through(&mut self) -> bool {
        let round = self.round;
        self.told.retain(|_, told| told.seen + 1 >= round);
        !std::mem::take(&mut self.has_left_some)
    }

    /// A message that says what records are made of, and has none. The collector may not have heard it.
    pub(super) fn templates(&mut self, now_ms: u64) -> Vec<u8> {
        self.templates_due_ms = now_ms + TEMPLATES_EVERY_MS;
        Message::begin(true).written((now_ms / 1_000) as u32, self.records, self.domain).to_vec()
    }

    /// Whether there is a message.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The message that is to be sent now, if there is one; once it is, [`Exporter::sent`] is to be called.
    pub(super) fn next(&mut self, now_ms: u64) -> Option<&[u8]> {
        let slot = now_ms / SLOT_MS;
        if self.slot.0 != slot {
            self.slot = (slot, 0);
        }
        let message = self.waiting.front_mut().filter(|_| self.slot.1 < MOST_PER_SLOT)?;
        Some(message.written((now_ms / 1_000) as u32, self.records, self.domain))
    }

    /// The [next](Exporter::next) message has been sent.
    pub(super) fn sent(&mut self) {
        let Some(Message { records, .. }) = self.waiting.pop_front() else { return };
        self.records = self.records.wrapping_add(records);
        self.records_waiting -= u64::from(records);
        self.slot.1 += records;
    }

    fn told_now(&self, connection: &Connection, now_ms: u64) -> Told {
        let Connection { sent, received, .. } = *connection;
        Told {
            sent: sent.unwrap_or_default(),
            received: received.unwrap_or_default(),
            until_ms: now_ms,
            round: self.round,
            seen: self.round,
        }
    }

    fn tell(&mut self, connection: &Connection, before: Option<Told>, end: End, now_ms: u64) {
        let began_ms = before.map(|told| told.until_ms).or(connection.began_ms).unwrap_or(now_ms).min(now_ms);
        let Connection { original, reply, protocol, .. } = *connection;
        for (is_original, direction, other, now, before) in [
            (true, original, reply, connection.sent, before.map(|told| told.sent)),
            (false, reply, original, connection.received, before.map(|told| told.received)),
        ] {
            let (now, before) = (now.unwrap_or_default(), before.unwrap_or_default());
            let packets = now.packets.saturating_sub(before.packets);
            if packets == 0 {
                continue;
            }
            self.add(
                &Record {
                    began_ms,
                    ended_ms: now_ms,
                    protocol,
                    icmp: direction.icmp,
                    is_original,
                    end,
                    octets: now.bytes.saturating_sub(before.bytes),
                    packets,
                    before: ends(direction),
                    after: ends(reversed(other)),
                },
                now_ms,
            );
        }
    }

    fn add(&mut self, record: &Record, now_ms: u64) {
        if self.records_waiting >= MOST_WAITING {
            self.left_out += 1;
            return;
        }
        self.records_waiting += 1;
        if !self.waiting.back_mut().is_some_and(|message| message.add(record)) {
            let templates = self.are_templates_due(now_ms);
            if templates {
                self.templates_due_ms = now_ms + TEMPLATES_EVERY_MS;
            }
            let mut message = Message::begin(templates);
            message.add(record);
            self.waiting.push_back(message);
        }
    }

    fn are_templates_due(&self, now_ms: u64) -> bool {
        // The clock may have been set back.
        now_ms >= self.templates_due_ms || now_ms + TEMPLATES_EVERY_MS < self.templates_due_ms
    }
}

fn key(connection: &Connection) -> Key {
    (connection.id, connection.protocol, connection.original)
}

fn ends(direction: Direction) -> Ends {
    Ends {
        source: (direction.source, direction.source_port),
        destination: (direction.destination, direction.destination_port),
    }
}

/// As the other end sees what it answers: with addresses translated.
fn reversed(direction: Direction) -> Direction {
    Direction {
        source: direction.destination,
        destination: direction.source,
        source_port: direction.destination_port,
        destination_port: direction.source_port,
        ..direction
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A host of 192.168.1.0/24 that is masqueraded.
    pub(in crate::flows) fn connection(port: u16, sent: u64, received: u64) -> Connection {
        let direction = |source: &str, source_port, destination: &str, destination_port| Direction {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port,
            destination_port,
            icmp: [0; 2],
        };
        let count = |packets| Some(Count { packets, bytes: packets * 100 });
        Connection {
            protocol: 17,
            id: 1,
            original: direction("192.168.1.5", port, "192.0.2.1", 53),
            reply: direction("192.0.2.1", 53, "198.51.100.1", 61_000),
            sent: count(sent),
            received: count(received),
            began_ms: Some(500),
            is_closed: false,
            is_offloaded: false,
        }
    }

    /// All that waits, within seconds.
    fn taken(exporter: &mut Exporter, now_ms: u64) -> Vec<Vec<u8>> {
        let (mut taken, mut at) = (Vec::new(), now_ms);
        while exporter.waits() {
            while let Some(message) = exporter.next(at) {
                taken.push(message.to_vec());
                exporter.sent();
            }
            at += SLOT_MS;
        }
        taken
    }

    /// Octets and packets of the records of a message without templates, by direction.
    pub(in crate::flows) fn carried(messages: &[Vec<u8>]) -> Vec<(u8, u64, u64)> {
        let mut carried = Vec::new();
        for message in messages {
            let mut sets = &message[16..];
            while let [high, low, first, second, ..] = *sets {
                let (set, rest) = sets.split_at(usize::from(u16::from_be_bytes([first, second])));
                sets = rest;
                if u16::from_be_bytes([high, low]) == 256 {
                    carried.extend(set[4..].chunks(61).map(|record| {
                        let number = |at: usize| u64::from_be_bytes(record[at..at + 8].try_into().unwrap());
                        (record[32], number(33), number(41))
                    }));
                }
            }
        }
        carried
    }

    #[test]
    fn each_direction_is_told_with_the_addresses_of_both_sides_of_a_translation() {
        let mut exporter = Exporter::new(7);
        exporter.ended(&connection(4_000, 2, 1), 10_000);
        let messages = taken(&mut exporter, 10_000);
        assert_eq!(carried(&messages), [(1, 200, 2), (2, 100, 1)]);
        let records = &messages[0][messages[0].len() - 2 * 61..];
        let addresses =
            |record: &[u8]| [16, 20, 49, 53].map(|at| <[u8; 4]>::try_from(&record[at..at + 4]).unwrap());
        let (host, server, own) = ([192, 168, 1, 5], [192, 0, 2, 1], [198, 51, 100, 1]);
        assert_eq!(addresses(&records[..61]), [host, server, own, server]);
        assert_eq!(addresses(&records[61..]), [server, own, server, host]);
        assert_eq!(u64::from_be_bytes(records[..8].try_into().unwrap()), 500, "when it began");
    }

    #[test]
    fn what_there_was_before_is_not_told_and_what_never_answered_has_no_record() {
        let mut exporter = Exporter::new(7);
        exporter.was_there(&connection(4_000, 50, 0), 1_000);
        exporter.begin_round();
        exporter.goes_on(&connection(4_000, 50, 0), End::Active, 2_000);
        assert!(!exporter.waits());
        exporter.ended(&connection(4_000, 60, 0), 3_000);
        assert_eq!(carried(&taken(&mut exporter, 3_000)), [(1, 1_000, 10)]);
    }

    #[test]
    fn connections_that_ended_unheard_are_forgotten() {
        let mut exporter = Exporter::new(7);
        for port in 0..100 {
            exporter.goes_on(&connection(port, 1, 0), End::Active, 1_000);
        }
        exporter.begin_round();
        exporter.all_gone_through();
        assert_eq!(exporter.told.len(), 100, "its end may still be on its way");
        exporter.begin_round();
        exporter.all_gone_through();
        assert_eq!(exporter.told.len(), 0);
    }

    #[test]
    fn templates_come_first_then_once_a_minute_and_after_the_clock_was_set_back() {
        let mut exporter = Exporter::new(7);
        let mut told_at = |now_ms| {
            exporter.ended(&connection(4_000, 1, 0), now_ms);
            taken(&mut exporter, now_ms)[0][17] == 2
        };
        assert!(told_at(1_000_000));
        assert!(!told_at(1_059_000));
        assert!(told_at(1_060_000));
        assert!(told_at(5_000));
        assert!(!told_at(6_000));
    }

    #[test]
    fn a_flood_of_connections_is_told_within_bounds_and_the_rest_counted() {
        let mut exporter = Exporter::new(7);
        for _ in 0..MOST_WAITING + 5 {
            exporter.ended(&connection(4_000, 1, 0), 1_000);
        }
        assert_eq!(exporter.left_out, 5);
        let mut at_once = 0;
        while exporter.next(1_000).is_some() {
            exporter.sent();
            at_once = exporter.records;
        }
        // Messages are whole.
        assert!((MOST_PER_SLOT..MOST_PER_SLOT + 25).contains(&at_once), "{at_once}");
        assert_eq!(carried(&taken(&mut exporter, 1_010)).len() as u64, MOST_WAITING - u64::from(at_once));
        exporter.ended(&connection(4_000, 1, 0), 9_000);
        assert_eq!(carried(&taken(&mut exporter, 9_000)).len(), 1);
    }

    #[test]
    fn what_finds_no_room_in_a_round_is_told_later_and_the_rest_not_twice() {
        let mut exporter = Exporter::new(7);
        let mut messages = Vec::new();
        let (mut now_ms, mut packets) = (1_000, 10);
        for _ in 0..2 {
            exporter.begin_round();
            let mut times = 1;
            loop {
                // They go on meanwhile.
                packets += 1;
                for port in 0..30_000 {
                    exporter.goes_on(&connection(port, packets, 2 * packets), End::Active, now_ms);
                }
                assert!(exporter.records_waiting <= MOST_WAITING_OF_ROUND + 1);
                let is_whole = exporter.all_gone_through();
                messages.extend(taken(&mut exporter, now_ms));
                now_ms += 10_000;
                if is_whole {
                    break;
                }
                times += 1;
            }
            assert_eq!(times, 3);
        }
        assert_eq!(carried(&messages).len(), 2 * 2 * 30_000);
        for port in 0..30_000 {
            exporter.ended(&connection(port, packets + 5, 2 * packets + 5), now_ms);
            if port % 10_000 == 9_999 {
                messages.extend(taken(&mut exporter, now_ms));
            }
        }
        let sum = |direction| {
            let records = carried(&messages);
            records.iter().filter(|record| record.0 == direction).map(|record| record.2).sum::<u64>()
        };
        assert_eq!((sum(1), sum(2)), (30_000 * (packets + 5), 30_000 * (2 * packets + 5)));
        assert_eq!(exporter.left_out, 0);
    }

    proptest! {
        /// Whenever it is looked at, everything is told once.
        #[test]
        fn the_sum_of_all_records_is_what_was_carried(steps in prop::collection::vec((0..20_u64, 0..20_u64), 1..30)) {
            let mut exporter = Exporter::new(7);
            let (mut sent, mut received, mut messages) = (0, 0, Vec::new());
            for (at, (more, back)) in steps.iter().enumerate() {
                (sent, received) = (sent + more, received + back);
                let now_ms = 1_000 * at as u64;
                if at + 1 == steps.len() {
                    exporter.ended(&connection(4_000, sent, received), now_ms);
                } else {
                    exporter.begin_round();
                    exporter.goes_on(&connection(4_000, sent, received), End::Active, now_ms);
                    exporter.all_gone_through();
                }
                messages.extend(taken(&mut exporter, now_ms));
            }
            let sum = |direction| carried(&messages).iter().filter(|record| record.0 == direction).map(|record| record.2).sum::<u64>();
            prop_assert_eq!((sum(1), sum(2)), (sent, received));
            // Sequence numbers count the records before each message.
            let mut before = 0;
            for message in &messages {
                prop_assert_eq!(u32::from_be_bytes(message[8..12].try_into().unwrap()), before);
                before += carried(std::slice::from_ref(message)).len() as u32;
            }
        }
    }
}
