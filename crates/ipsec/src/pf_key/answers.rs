//! What the key engine does for each message, and what it answers (RFC 2367 §3).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::algorithms::{self, supported_encryption};
use super::extension::{Address, Combination, Lifetime, Proposal, Sa, Sa2, SensitivityLevels};
use super::message::{Extensions, Message, MessageType, satype, state};
use crate::acquire::AcquireId;
use crate::association::{
    self, Age, Association, Lifetimes, Mode, Parameters, Protocol, Sensitivity, Spi, UdpEncapsulation,
};
use crate::key_engine::{EngineError, KeyEngine, Name, Random};
use crate::policy::PolicyDatabase;
use crate::replay::ReplayWindow;
use crate::request::{DaemonId, Request, SocketId};
use crate::selector::{Detail, Selector, Upper};

/// The highest request number that means no socket, as in KAME and Linux (`IPSEC_MANUAL_REQID_MAX`).
pub const MANUAL_REQUEST_ID_MAX: u32 = 0x3fff;
/// Packets of ESP in UDP of RFC 3948 (`UDP_ENCAP_ESPINUDP`).
pub(crate) const ESP_IN_UDP: u8 = 2;

/// The time of both clocks; PF_KEY tells when associations were made.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Now.
    pub now: Instant,
    /// Now, since the beginning of 1970 (UTC): not in whole seconds, so that a time in the past is the same each time it is told.
    pub since_1970: Duration,
}

/// Error numbers in answers; those of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errno {
    /// `ENOENT`: there is no such policy.
    NoPolicy = 2,
    /// `ESRCH`: there is no such association.
    NotFound = 3,
    /// `EEXIST`: there is one, or no free SPI.
    Exists = 17,
    /// `EINVAL`: malformed, or what it says does not go together.
    Invalid = 22,
    /// `EMSGSIZE`: the message is not as long as it says (RFC 2367 §2.1).
    Length = 90,
    /// `ENOBUFS`: the table is full.
    Full = 105,
}

impl From<EngineError> for Errno {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Exists | EngineError::NoSpi => Self::Exists,
            EngineError::NotFound => Self::NotFound,
            EngineError::Full => Self::Full,
            EngineError::Association(_) => Self::Invalid,
        }
    }
}

/// Who gets what.
pub(super) enum Answer {
    /// Nobody; so many packets that waited are dropped.
    Nobody(usize),
    Asker(Vec<Message>),
    All(Message),
    Registered(Protocol, Message),
}

pub(super) fn answer(
    engine: &mut KeyEngine,
    policies: &PolicyDatabase,
    from: DaemonId,
    message: &Message,
    random: &mut impl Random,
    clock: Clock,
) -> Result<Answer, Errno> {
    let given = &message.extensions;
    let respond = |extensions| Message { errno: 0, extensions, ..message.clone() };
    match message.message_type {
        MessageType::Register => {
            let protocol = protocol(message)?;
            engine.register(from, protocol)?;
            let is_ah = protocol == Protocol::Ah;
            let supported = Extensions {
                supported_authentication: Some(algorithms::supported_authentication(is_ah)),
                supported_encryption: (!is_ah).then(supported_encryption),
                ..Extensions::default()
            };
            Ok(Answer::Registered(protocol, respond(supported)))
        }
        MessageType::GetSpi => {
            let (source, destination) = addresses(given)?;
            let range = given.spi_range.ok_or(Errno::Invalid)?;
            if range.min > range.max {
                return Err(Errno::Invalid);
            }
            let protocol = protocol(message)?;
            let spi = engine.reserve_spi(
                destination.address,
                protocol,
                range.min..=range.max,
                random,
                clock.now,
            )?;
            Ok(Answer::All(respond(Extensions {
                sa: Some(Sa { spi: spi.0, state: state::LARVAL, ..Sa::default() }),
                address_source: Some(source),
                address_destination: Some(destination),
                ..Extensions::default()
            })))
        }
        MessageType::Add => {
            let (parameters, owner) = parameters(message, policies)?;
            engine.add(parameters, owner, clock.now)?;
            Ok(Answer::All(respond(without_keys(given))))
        }
        MessageType::Update => {
            let name = name(message)?;
            if engine.is_larval(&name) {
                let (parameters, owner) = parameters(message, policies)?;
                engine.add(parameters, owner, clock.now)?;
            } else {
                // What is used keeps its keys and numbers: a counter that begins again would break its cipher.
                if let Some(ports) = encapsulation(given)? {
                    engine.set_ports(&name, ports)?;
                }
                engine.set_lifetimes(&name, lifetimes(given), clock.now)?;
            }
            Ok(Answer::All(respond(without_keys(given))))
        }
        MessageType::Delete => {
            let mut told = without_keys(given);
            if given.sa.is_some() {
                let name = name(message)?;
                // A name has no source: who deletes by name need not know it, and who hears of it may want to.
                if let Some((_, association)) = engine.by_name(&name) {
                    told.address_source = Some(host_address(association.parameters().source));
                }
                engine.delete(&name)?;
            } else {
                delete_all(engine, message)?;
            }
            Ok(Answer::All(respond(told)))
        }
        MessageType::Get => {
            let name = name(message)?;
            let (id, association) = engine.by_name(&name).ok_or(Errno::NotFound)?;
            Ok(Answer::Asker(vec![respond(shown(association, engine.owner(id), clock))]))
        }
        MessageType::Dump => {
            let meant = protocol_or_all(message)?;
            let associations: Vec<_> = engine
                .associations()
                .filter(|(_, association)| meant.is_none_or(|protocol| protocol == association.protocol()))
                .collect();
            if associations.is_empty() {
                return Err(Errno::NotFound);
            }
            // The sequence number counts down to zero, which is the last (RFC 2367 §3.1.10).
            let countdown = (0..associations.len() as u32).rev();
            let messages =
                associations.into_iter().zip(countdown).map(|((id, association), sequence)| Message {
                    satype: number_of(association.protocol()),
                    sequence,
                    ..respond(shown(association, engine.owner(id), clock))
                });
            Ok(Answer::Asker(messages.collect()))
        }
        MessageType::Flush => {
            engine.flush(protocol_or_all(message)?);
            Ok(Answer::All(respond(Extensions::default())))
        }
        MessageType::Acquire => {
            if message.errno == 0 {
                return Err(Errno::Invalid);
            }
            Ok(Answer::Nobody(engine.give_up(AcquireId(message.sequence))))
        }
        MessageType::Expire
        | MessageType::Promiscuous
        | MessageType::PolicyAdd
        | MessageType::PolicyDelete
        | MessageType::PolicyDump
        | MessageType::PolicyFlush => Err(Errno::Invalid),
    }
}

pub(crate) fn number_of(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Ah => satype::AH,
        Protocol::Esp => satype::ESP,
    }
}

fn protocol(message: &Message) -> Result<Protocol, Errno> {
    protocol_or_all(message)?.ok_or(Errno::Invalid)
}

fn protocol_or_all(message: &Message) -> Result<Option<Protocol>, Errno> {
    match message.satype {
        satype::UNSPECIFIED => Ok(None),
        satype::AH => Ok(Some(Protocol::Ah)),
        satype::ESP => Ok(Some(Protocol::Esp)),
        _ => Err(Errno::Invalid),
    }
}

fn addresses(given: &Extensions) -> Result<(Address, Address), Errno> {
    let source = given.address_source.ok_or(Errno::Invalid)?;
    let destination = given.address_destination.ok_or(Errno::Invalid)?;
    if source.address.is_ipv4() != destination.address.is_ipv4() || source.protocol != destination.protocol {
        return Err(Errno::Invalid);
    }
    Ok((source, destination))
}

fn name(message: &Message) -> Result<Name, Errno> {
    let (_, destination) = addresses(&message.extensions)?;
    let spi = Spi(message.extensions.sa.ok_or(Errno::Invalid)?.spi);
    Ok(Name { destination: destination.address, protocol: protocol(message)?, spi })
}

/// Without an SPI, all between two addresses, as in KAME.
fn delete_all(engine: &mut KeyEngine, message: &Message) -> Result<(), Errno> {
    let (source, destination) = addresses(&message.extensions)?;
    let ends = (source.address, destination.address);
    if engine.delete_between(ends, protocol(message)?) == 0 {
        return Err(Errno::NotFound);
    }
    Ok(())
}

/// The association that a message describes, and whose own it is.
fn parameters(message: &Message, policies: &PolicyDatabase) -> Result<(Parameters, Option<SocketId>), Errno> {
    let given = &message.extensions;
    let name = name(message)?;
    let (source, destination) = addresses(given)?;
    let sa = given.sa.ok_or(Errno::Invalid)?;
    if sa.state != state::MATURE {
        return Err(Errno::Invalid);
    }
    let transform = match name.protocol {
        Protocol::Ah if sa.encryption == 0 && given.key_encryption.is_none() => {
            algorithms::ah(sa.authentication, given.key_authentication.as_ref())
        }
        Protocol::Ah => return Err(Errno::Invalid),
        Protocol::Esp => algorithms::esp(
            sa.encryption,
            given.key_encryption.as_ref(),
            sa.authentication,
            given.key_authentication.as_ref(),
        ),
    };
    let sa2 = given.sa2.unwrap_or_default();
    let mode = match sa2.mode {
        0 | 1 => Mode::Transport,
        2 => Mode::Tunnel,
        _ => return Err(Errno::Invalid),
    };
    let mut parameters = Parameters::new(
        name.spi,
        source.address,
        destination.address,
        mode,
        transform.map_err(|_| Errno::Invalid)?,
    );
    parameters.lifetimes = lifetimes(given);
    // A larger window than is asked for takes nothing that should not be taken.
    parameters.replay_window = (sa.replay > 0).then(|| u32::from(sa.replay).max(ReplayWindow::DEFAULT_SIZE));
    parameters.sensitivity = Sensitivity(given.sensitivity.map_or(0, |levels| levels.sensitivity));
    parameters.selectors = match (mode, &given.address_proxy) {
        (Mode::Transport, _) => selectors(&source, &destination),
        (Mode::Tunnel, Some(proxy)) => from_network_of(proxy)?,
        (Mode::Tunnel, None) => policies.selectors_of_tunnel((source.address, destination.address)),
    };
    parameters.encapsulation = encapsulation(given)?;
    // One extension for two addresses: it is the sender's that a NAT changes.
    parameters.original_addresses =
        given.nat_t_original_address.map(|original| (original.address, destination.address));
    let owner = sa2.request_id.checked_sub(MANUAL_REQUEST_ID_MAX + 1).map(|id| SocketId(u64::from(id)));
    Ok((parameters, owner))
}

fn encapsulation(given: &Extensions) -> Result<Option<UdpEncapsulation>, Errno> {
    match given.nat_t_type {
        None | Some(0) => Ok(None),
        Some(ESP_IN_UDP) => Ok(Some(UdpEncapsulation {
            source_port: given.nat_t_source_port.ok_or(Errno::Invalid)?,
            destination_port: given.nat_t_destination_port.ok_or(Errno::Invalid)?,
        })),
        Some(_) => Err(Errno::Invalid),
    }
}

/// In tunnel mode: packets from the network of the proxy address (RFC 2367 §2.3.3), to anywhere.
fn from_network_of(proxy: &Address) -> Result<Vec<Selector>, Errno> {
    let from = IpNet::new(proxy.address, proxy.prefix_length).map_err(|_| Errno::Invalid)?.trunc();
    Ok(vec![Selector::between(from, everywhere(from.addr()))])
}

/// In transport mode: protocol and ports of the addresses, where they name some.
fn selectors(source: &Address, destination: &Address) -> Vec<Selector> {
    if source.protocol == 0 || source.protocol == u8::MAX {
        return Vec::new();
    }
    let port = |port: u16| if port == 0 { 0..=u16::MAX } else { port..=port };
    vec![Selector {
        source: source.address.into(),
        destination: destination.address.into(),
        upper: Upper::Ports {
            protocol: source.protocol,
            source: port(source.port),
            destination: port(destination.port),
        },
    }]
}

fn everywhere(like: IpAddr) -> IpNet {
    if like.is_ipv6() { IpNet::V6(ipnet::Ipv6Net::default()) } else { IpNet::V4(ipnet::Ipv4Net::default()) }
}

fn lifetimes(given: &Extensions) -> Lifetimes {
    Lifetimes {
        soft: given.lifetime_soft.map_or(association::Lifetime::UNLIMITED, lifetime),
        hard: given.lifetime_hard.map_or(association::Lifetime::UNLIMITED, lifetime),
    }
}

fn lifetime(given: Lifetime) -> association::Lifetime {
    let limit = |value: u64| (value > 0).then_some(value);
    association::Lifetime {
        since_added: limit(given.added).map(Duration::from_secs),
        since_used: limit(given.used).map(Duration::from_secs),
        bytes: limit(given.bytes),
        packets: limit(u64::from(given.allocations)),
    }
}

pub(crate) fn lifetime_extension(lifetime: &association::Lifetime) -> Lifetime {
    let seconds = |time: Option<Duration>| time.map_or(0, |time| time.as_secs());
    Lifetime {
        allocations: lifetime.packets.map_or(0, |packets| u32::try_from(packets).unwrap_or(u32::MAX)),
        bytes: lifetime.bytes.unwrap_or(0),
        added: seconds(lifetime.since_added),
        used: seconds(lifetime.since_used),
    }
}

pub(super) fn unix_time(at: Option<Instant>, clock: Clock) -> u64 {
    at.map_or(0, |at| clock.since_1970.saturating_sub(clock.now.saturating_duration_since(at)).as_secs())
}

pub(crate) fn host_address(address: IpAddr) -> Address {
    let prefix_length = if address.is_ipv6() { 128 } else { 32 };
    Address { protocol: 0, prefix_length, address, port: 0 }
}

pub(crate) fn sa2(mode: Mode, owner: Option<SocketId>) -> Sa2 {
    Sa2 {
        mode: if mode == Mode::Tunnel { 2 } else { 1 },
        sequence: 0,
        request_id: owner
            .and_then(|SocketId(id)| u32::try_from(id).ok()?.checked_add(MANUAL_REQUEST_ID_MAX + 1))
            .unwrap_or(0),
    }
}

fn without_keys(given: &Extensions) -> Extensions {
    Extensions { key_authentication: None, key_encryption: None, ..given.clone() }
}

/// An association as it is shown. Its keys are not: each algorithm, as one that is supported with keys of this length alone,
/// says how long they are.
fn shown(association: &Association, owner: Option<SocketId>, clock: Clock) -> Extensions {
    let parameters = association.parameters();
    let (authentication, encryption) = algorithms::numbers(&parameters.transform);
    let (of_authentication, of_encryption) = algorithms::used(&parameters.transform);
    let usage = association.usage();
    let encapsulation = parameters.encapsulation;
    Extensions {
        sa: Some(Sa {
            spi: parameters.spi.0,
            replay: parameters.replay_window.map_or(0, |size| u8::try_from(size).unwrap_or(u8::MAX)),
            state: if association.age(clock.now) == Age::Fresh { state::MATURE } else { state::DYING },
            authentication,
            encryption,
            flags: 0,
        }),
        lifetime_current: Some(Lifetime {
            allocations: u32::try_from(usage.packets).unwrap_or(u32::MAX),
            bytes: usage.bytes,
            added: unix_time(Some(association.added()), clock),
            used: unix_time(association.first_used(), clock),
        }),
        lifetime_soft: Some(lifetime_extension(&parameters.lifetimes.soft)),
        lifetime_hard: Some(lifetime_extension(&parameters.lifetimes.hard)),
        address_source: Some(host_address(parameters.source)),
        address_destination: Some(host_address(parameters.destination)),
        sensitivity: (parameters.sensitivity.0 > 0).then(|| SensitivityLevels {
            sensitivity: parameters.sensitivity.0,
            ..SensitivityLevels::default()
        }),
        supported_authentication: of_authentication.map(|algorithm| vec![algorithm]),
        supported_encryption: of_encryption.map(|algorithm| vec![algorithm]),
        sa2: Some(sa2(parameters.mode, owner)),
        nat_t_type: encapsulation.map(|_| ESP_IN_UDP),
        nat_t_source_port: encapsulation.map(|ports| ports.source_port),
        nat_t_destination_port: encapsulation.map(|ports| ports.destination_port),
        ..Extensions::default()
    }
}

/// What is wanted, as an `ACQUIRE` says it: addresses, and the algorithms that would do, the best first.
pub(super) fn wanted(request: &Request) -> Extensions {
    let (source, destination) =
        request.tunnel.unwrap_or((request.traffic.source, request.traffic.destination));
    let end = |address: IpAddr, port: u16| Address {
        protocol: request.traffic.protocol,
        port,
        ..host_address(address)
    };
    let (source_port, destination_port) = match request.traffic.detail {
        Detail::Ports { source, destination } if request.is_unique => (source, destination),
        _ => (0, 0),
    };
    let is_ah = request.service.protocol() == Protocol::Ah;
    let authentications = algorithms::supported_authentication(is_ah);
    let combinations = if is_ah {
        authentications
            .iter()
            .map(|ah| Combination {
                authentication: ah.id,
                authentication_bits: (ah.min_bits, ah.max_bits),
                ..Combination::default()
            })
            .collect()
    } else {
        supported_encryption()
            .iter()
            .filter(|cipher| algorithms::stands_alone(cipher.id))
            .map(|cipher| Combination {
                encryption: cipher.id,
                encryption_bits: (cipher.min_bits, cipher.max_bits),
                ..Combination::default()
            })
            .collect()
    };
    Extensions {
        address_source: Some(end(source, source_port)),
        address_destination: Some(end(destination, destination_port)),
        address_proxy: request.tunnel.map(|_| host_address(request.traffic.source)),
        proposal: Some(Proposal { replay: 0, combinations }),
        sa2: Some(sa2(request.service.mode(), request.socket.filter(|_| request.is_unique))),
        ..Extensions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_same_whenever_it_is_told() {
        let (made, at) = (Instant::now(), Duration::from_millis(1_800_000_000_900));
        for later in [0, 50, 99, 100, 500, 1_100].map(Duration::from_millis) {
            let clock = Clock { now: made + later, since_1970: at + later };
            assert_eq!(unix_time(Some(made), clock), 1_800_000_000, "{later:?}");
        }
    }
}
