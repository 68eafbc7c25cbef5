//! Runs a program of the intermediate form: what eBPF has to do with it, step by step. For tests, which compare the two
//! with each other and with the VM.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ir::{Action, BlockId, End, Failure, Operand, Program, Target, calculate, holds};
use super::logging::ROOM;
use super::shared::{Form, Map};

/// What a program ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A verdict.
    Verdict(i64),
    /// It leaves through the interface of this number.
    Redirected(i64),
    /// The user tier has the packet.
    Punted,
    /// An error, and where.
    Failed(Failure, u32),
}

/// What is in the maps of a program. Prefixes are those of the beginning.
#[derive(Default)]
pub(super) struct Maps {
    entries: HashMap<(usize, Vec<i64>), Vec<i64>>,
    found: [i64; 9],
    /// What was logged: which line, and its numbers.
    pub(super) logged: Vec<(usize, Vec<i64>)>,
    /// What was captured: for which, and the packet.
    pub(super) captured: Vec<(usize, Vec<u8>)>,
    /// The copies: for which interface, and the packet.
    pub(super) mirrored: Vec<(usize, Vec<u8>)>,
    /// Whether packets are followed, and this one is.
    pub(super) follows: bool,
    followed: bool,
    /// The VLAN tag beside the packet.
    vlan: Option<u16>,
}

impl Maps {
    /// Writes or removes an entry from outside, as a map of the kernel has it.
    pub(super) fn set(&mut self, map: usize, key: &[u8], value: Option<&[u8]>) {
        let numbers = |bytes: &[u8]| -> Vec<i64> {
            bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect()
        };
        match value {
            Some(value) => drop(self.entries.insert((map, numbers(key)), numbers(value))),
            None => drop(self.entries.remove(&(map, numbers(key)))),
        }
    }

    /// A number of a counter or histogram.
    pub(super) fn number(&self, map: usize, place: i64) -> i64 {
        self.entries.get(&(map, vec![place])).map_or(0, |entry| entry[0])
    }

    fn lookup(&mut self, map: usize, key: Vec<i64>, first: u8) -> i64 {
        let entry = self.entries.get(&(map, key));
        self.found = [0; 9];
        let numbers = entry.into_iter().flat_map(|entry| entry[..1].iter().chain(&entry[first.into()..]));
        for (word, value) in self.found.iter_mut().zip(numbers) {
            *word = *value;
        }
        i64::from(entry.is_some())
    }

    fn find(&mut self, map: &Map, address: &[i64]) -> i64 {
        let Form::Prefixes { entries, .. } = &map.shared.form else { return 0 };
        let address: IpAddr = match *address {
            [word] => Ipv4Addr::from(word as u32).into(),
            [high, low] => Ipv6Addr::from(u128::from(high as u64) << 64 | u128::from(low as u64)).into(),
            _ => return 0,
        };
        let holding = entries.iter().filter(|(prefix, _)| prefix.contains(&address));
        let longest = holding.max_by_key(|(prefix, _)| prefix.prefix_len());
        self.found = [0; 9];
        self.found[1] = longest.map_or(0, |(_, value)| *value);
        i64::from(longest.is_some())
    }

    fn update(&mut self, map: &Map, number: usize, key: Vec<i64>, value: Vec<i64>) -> i64 {
        let (_, _, _, limit) = map.measures();
        let count = self.entries.keys().filter(|(map, _)| *map == number).count();
        let key = (number, key);
        let fits = self.entries.contains_key(&key) || count < limit as usize;
        if fits {
            self.entries.insert(key, value);
        }
        i64::from(fits)
    }
}

/// Runs a program on a packet. Time and randomness are what they are given.
pub(super) fn run(
    program: &Program,
    maps: &mut Maps,
    packet: &mut Vec<u8>,
    time: i64,
    mut random: impl FnMut() -> u32,
) -> Outcome {
    maps.vlan = None;
    maps.followed = false;
    run_from_here(program, maps, packet, time, &mut random)
}

fn run_from_here(
    program: &Program,
    maps: &mut Maps,
    packet: &mut Vec<u8>,
    time: i64,
    random: &mut dyn FnMut() -> u32,
) -> Outcome {
    let mut values = vec![0_i64; program.values()];
    let mut block = BlockId(0);
    loop {
        let code = &program.blocks[block.0];
        for instruction in &code.code {
            let of = |operand: Operand| read(&values, operand);
            let all =
                |operands: &[Operand]| -> Vec<i64> { operands.iter().map(|operand| of(*operand)).collect() };
            let result = match instruction.action {
                Action::Lookup { map, ref key, first, .. } => maps.lookup(map, all(key), first),
                Action::Value { word } => maps.found[usize::from(word)],
                Action::Update { fresh: true, map, ref key, .. }
                    if maps.entries.contains_key(&(map, all(key))) =>
                {
                    0
                }
                Action::Update { map, ref key, ref value, .. } => {
                    maps.update(&program.maps[map], map, all(key), all(value))
                }
                Action::Replace { map, ref key, ref value } => {
                    let there = maps.entries.get_mut(&(map, all(key)));
                    i64::from(there.map(|entry| *entry = all(value)).is_some())
                }
                Action::Add { map, ref key, ref amounts, now } => {
                    if let Some(entry) = maps.entries.get_mut(&(map, all(key))) {
                        entry[0] = of(now);
                        for (number, amount) in entry[1..].iter_mut().zip(amounts) {
                            *number = number.wrapping_add(of(*amount));
                        }
                    }
                    maps.lookup(map, all(key), 1)
                }
                Action::Put { map, ref key, word, value, now } => {
                    match maps.entries.get_mut(&(map, all(key))) {
                        Some(entry) => {
                            entry[0] = of(now);
                            entry[usize::from(word)] = of(value);
                            1
                        }
                        None => 0,
                    }
                }
                Action::Delete { map, ref key } => i64::from(maps.entries.remove(&(map, all(key))).is_some()),
                Action::Find { map, ref address } => maps.find(&program.maps[map], &all(address)),
                Action::Count { map, place, amount } => {
                    let entry = maps.entries.entry((map, vec![of(place)])).or_insert_with(|| vec![0]);
                    entry[0] = entry[0].wrapping_add(of(amount));
                    entry[0]
                }
                Action::Calculate(operation, left, right) => calculate(operation, of(left), of(right)),
                Action::Compare(condition, left, right) => i64::from(holds(condition, of(left), of(right))),
                Action::Length => packet.len() as i64,
                Action::Time => time,
                Action::Random => i64::from(random()),
                Action::Load { offset, bytes } => match part(packet, of(offset), bytes.into()) {
                    Some(part) => part.iter().fold(0, |value, byte| value << 8 | i64::from(*byte)),
                    None => return Outcome::Failed(Failure::OutsidePacket, instruction.line),
                },
                Action::Store { offset, bytes, value } => {
                    let value = of(value).to_be_bytes();
                    match part(packet, of(offset), bytes.into()) {
                        Some(part) => part.copy_from_slice(&value[8 - usize::from(bytes)..]),
                        None => return Outcome::Failed(Failure::OutsidePacket, instruction.line),
                    }
                    0
                }
                Action::PacketSum { .. } => 0,
                Action::Resize { at, count } => {
                    let (at, amount) = (at as usize, count.unsigned_abs() as usize);
                    if count < 0 {
                        packet.drain(at..at + amount);
                    } else {
                        packet.splice(at..at, std::iter::repeat_n(0xaa, amount));
                    }
                    0
                }
                Action::Follow => {
                    maps.followed = maps.follows;
                    0
                }
                Action::Log { line, .. } if program.lines[line].is_of_trace() && !maps.followed => 0,
                Action::Log { line, ref numbers, ref strings } => {
                    let mut numbers = all(numbers);
                    for [start, length] in strings {
                        let mut room = [0; ROOM];
                        let octets = part(packet, of(*start), of(*length) as usize).unwrap_or_default();
                        room[..octets.len()].copy_from_slice(octets);
                        numbers.extend(room.as_chunks().0.iter().map(|word| i64::from_ne_bytes(*word)));
                    }
                    if program.lines[line].is_of_trace() {
                        // The number of the packet.
                        numbers.insert(0, 1);
                    }
                    maps.logged.push((line, numbers));
                    0
                }
                Action::Loop { body, turns, ref state } => {
                    maps.found[..state.len()].copy_from_slice(&all(state));
                    for _ in 0..turns {
                        match run_from_here(&program.bodies[body], maps, packet, time, &mut *random) {
                            Outcome::Verdict(0) => {}
                            Outcome::Verdict(_) => break,
                            // What it cannot read ends it.
                            _ => {
                                maps.found[0] = -1;
                                break;
                            }
                        }
                    }
                    0
                }
                Action::State { word } => maps.found[usize::from(word)],
                Action::SetState { word, value } => {
                    maps.found[usize::from(word)] = of(value);
                    0
                }
                Action::Tag => maps.vlan.map_or(0, |tag| i64::from(tag) | 1 << 16),
                Action::PushTag { .. } if maps.vlan.is_some() => {
                    return Outcome::Failed(Failure::Tagged, instruction.line);
                }
                Action::PushTag { tag } => {
                    maps.vlan = Some(of(tag) as u16);
                    0
                }
                Action::PopTag => {
                    if maps.vlan.take().is_none() {
                        take_tag(packet);
                    }
                    maps.vlan = take_tag(packet);
                    0
                }
                Action::Mirror { interface } => {
                    maps.mirrored.push((interface, packet.clone()));
                    0
                }
                Action::Capture { name } => {
                    maps.captured.push((name, packet.clone()));
                    0
                }
                Action::HeaderChecksum { offset, difference } => {
                    adjust(packet, of(offset), of(difference), false);
                    0
                }
                Action::TransportChecksum { offset, difference, optional, .. } => {
                    adjust(packet, of(offset), of(difference), of(optional) != 0);
                    0
                }
            };
            values[instruction.result.0 as usize] = result;
        }
        let of = |operand: Operand| read(&values, operand);
        let target = match code.end.as_ref().expect("blocks that are reached have an end") {
            End::Jump(target) => target,
            End::Branch { condition, left, right, then, otherwise } => {
                if holds(*condition, of(*left), of(*right)) { then } else { otherwise }
            }
            End::Return(verdict) => return Outcome::Verdict(of(*verdict)),
            End::Redirect(interface) => return Outcome::Redirected(of(*interface)),
            End::Punt => return Outcome::Punted,
            End::Fail(failure, line) => return Outcome::Failed(*failure, *line),
        };
        block = go(program, target, &mut values);
    }
}

fn go(program: &Program, target: &Target, values: &mut [i64]) -> BlockId {
    // All at once: arguments may be parameters of the same block.
    let arguments: Vec<_> = target.arguments.iter().map(|argument| read(values, *argument)).collect();
    for (parameter, argument) in program.blocks[target.block.0].parameters.iter().zip(arguments) {
        values[parameter.0 as usize] = argument;
    }
    target.block
}

fn read(values: &[i64], operand: Operand) -> i64 {
    match operand {
        Operand::Value(value) => values[value.0 as usize],
        Operand::Constant(number) => number,
    }
}

/// Takes the first VLAN tag that is in a frame.
fn take_tag(packet: &mut Vec<u8>) -> Option<u16> {
    let is_tagged = packet.len() >= 18 && matches!(packet[12..14], [0x81, 0] | [0x88, 0xa8]);
    is_tagged.then(|| {
        let tag: Vec<u8> = packet.drain(12..16).collect();
        u16::from_be_bytes([tag[2], tag[3]])
    })
}

fn part(packet: &mut [u8], offset: i64, bytes: usize) -> Option<&mut [u8]> {
    packet.get_mut(usize::try_from(offset).ok()?..)?.get_mut(..bytes)
}

/// Adds to the sum that a checksum is the complement of (RFC 1624, equation 3).
fn adjust(packet: &mut [u8], offset: i64, difference: i64, optional: bool) {
    let Some(part) = part(packet, offset, 2) else { return };
    let old = u16::from_be_bytes([part[0], part[1]]);
    if optional && old == 0 {
        return;
    }
    let mut sum = u64::from(!old) + difference as u64;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let new = !(sum as u16);
    let new = if optional && new == 0 { 0xffff } else { new };
    part.copy_from_slice(&new.to_be_bytes());
}
