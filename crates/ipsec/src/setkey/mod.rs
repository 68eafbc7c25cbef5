//! The language of setkey(8): associations and policies that an administrator writes down.
//!
//! ```text
//! add     SOURCE DESTINATION PROTOCOL SPI [-m transport|tunnel] [-r WINDOW] [-u NUMBER]
//!         [-ls SECONDS] [-lh SECONDS] [-bs BYTES] [-bh BYTES] [-E CIPHER [KEY]] [-A AUTHENTICATOR KEY];
//! get     SOURCE DESTINATION PROTOCOL SPI;
//! delete  SOURCE DESTINATION PROTOCOL SPI;
//! deleteall SOURCE DESTINATION PROTOCOL;
//! flush   [PROTOCOL];
//! dump    [PROTOCOL];
//! spdadd  SOURCE-RANGE DESTINATION-RANGE UPPER -P in|out discard|none|ipsec PROTOCOL/MODE/[FROM-TO]/LEVEL …;
//! spddelete SOURCE-RANGE DESTINATION-RANGE UPPER -P in|out;
//! spddump;
//! spdflush;
//! ```
//!
//! As in setkey(8), except: names are not looked up, there are the algorithms of [`algorithm`](crate::algorithm), AH is in
//! transport mode in policies, as each service of [`policy`](crate::policy) has its one mode, and a tunnel gets the
//! selectors of the policies that name its ends, here or in force already. Keys written down do not change, so that what receives
//! with them does without a replay window unless `-r` asks for one (RFC 4302 §3.3.2); and the ciphers whose IVs must never
//! come twice are not for hosts that forget their counters (RFC 4106 §10): replace such keys at each start.

pub mod messages;
mod values;
mod words;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use wire::protocol as ip;

use crate::algorithm::{AhTransform, Authentication, Encryption, EspTransform, TransformError};
use crate::association::{Mode, Parameters, Protocol, Spi, Transform, UdpEncapsulation};
use crate::key::Key;
use crate::key_engine::{AssociationId, EngineError, KeyEngine, Name};
use crate::policy::{Action, Direction, Level, Levels, PolicyDatabase, Rule, selectors_of_tunnel};
use crate::request::SocketId;
use crate::selector::{Selector, Upper};
pub use words::{Position, SyntaxError};
use words::{Sentence, Word, sentences};

/// What of an association only those need who hand it on.
#[derive(Debug)]
pub struct Credentials {
    /// The socket whose own it is; `None`: it is for all.
    pub owner: Option<SocketId>,
    /// The key of its cipher, or of GMAC in the place of one; empty if it has none.
    pub encryption_key: Key,
    /// The key that authenticates, where that is one more.
    pub authentication_key: Key,
}

/// One command.
#[derive(Debug)]
pub enum Command {
    /// Puts in an association, for all sockets or for one.
    Add(Box<Parameters>, Credentials),
    /// Shows one.
    Get(Name),
    /// Takes one away.
    Delete(Name),
    /// Takes away all between two addresses.
    DeleteAll {
        /// From here.
        source: IpAddr,
        /// To there.
        destination: IpAddr,
        /// Of this protocol.
        protocol: Protocol,
    },
    /// Takes away all, or all of a protocol.
    Flush(Option<Protocol>),
    /// Shows all, or all of a protocol.
    Dump(Option<Protocol>),
    /// Puts in a policy.
    PolicyAdd(Rule),
    /// Takes away the policy of a direction and selector.
    PolicyDelete(Direction, Selector),
    /// Shows all policies.
    PolicyDump,
    /// Takes away all policies.
    PolicyFlush,
}

/// Reads commands.
///
/// # Errors
/// [`SyntaxError`] for the first that is wrong; then none is to be carried out.
pub fn parse(text: &str) -> Result<Vec<Command>, SyntaxError> {
    Ok(parse_placed(text)?.into_iter().map(|(_, command)| command).collect())
}

/// As [`parse`], with where each command begins.
///
/// # Errors
/// As [`parse`].
pub fn parse_placed(text: &str) -> Result<Vec<(Position, Command)>, SyntaxError> {
    let placed = |sentence: Sentence| {
        let position = sentence.0.first().map_or(sentence.1, |word| word.position);
        Ok((position, command(Arguments::new(sentence))?))
    };
    sentences(text)?.into_iter().filter(|(words, _)| !words.is_empty()).map(placed).collect()
}

/// Why a command cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The engine refuses it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There is no such policy to take away.
    #[error("there is no policy of this direction and these packets")]
    NoPolicy,
}

/// Carries out commands, up to the first that cannot be. Returns the associations that are to be shown; policies are shown by
/// [`PolicyDatabase::rules`].
///
/// # Errors
/// [`ApplyError`].
pub fn apply(
    commands: Vec<Command>,
    engine: &mut KeyEngine,
    policies: &mut PolicyDatabase,
    now: Instant,
) -> Result<Vec<AssociationId>, ApplyError> {
    let mut rules: Vec<Rule> = commands
        .iter()
        .filter_map(|command| match command {
            Command::PolicyAdd(rule) => Some(rule.clone()),
            _ => None,
        })
        .collect();
    rules.extend_from_slice(policies.rules());
    let mut shown = Vec::new();
    for command in commands {
        match command {
            Command::Add(mut parameters, Credentials { owner, .. }) => {
                if parameters.mode == Mode::Tunnel {
                    parameters.selectors =
                        selectors_of_tunnel(&rules, (parameters.source, parameters.destination));
                }
                engine.add(*parameters, owner, now)?;
            }
            Command::Get(name) => shown.push(engine.by_name(&name).ok_or(EngineError::NotFound)?.0),
            Command::Delete(name) => engine.delete(&name)?,
            Command::DeleteAll { source, destination, protocol } => {
                engine.delete_between((source, destination), protocol);
            }
            Command::Flush(protocol) => engine.flush(protocol),
            Command::Dump(protocol) => shown.extend(
                engine
                    .associations()
                    .filter(|(_, association)| protocol.is_none_or(|meant| meant == association.protocol()))
                    .map(|(id, _)| id),
            ),
            Command::PolicyAdd(rule) => policies.add(rule),
            Command::PolicyDelete(direction, selector) => {
                if !policies.delete(direction, &selector) {
                    return Err(ApplyError::NoPolicy);
                }
            }
            Command::PolicyDump => {}
            Command::PolicyFlush => policies.flush(),
        }
    }
    Ok(shown)
}

/// The words of a command that are yet to be read.
struct Arguments {
    words: std::iter::Peekable<std::vec::IntoIter<Word>>,
    end: Position,
}

impl Arguments {
    fn new((words, end): Sentence) -> Self {
        Self { words: words.into_iter().peekable(), end }
    }

    fn next(&mut self, what: &str) -> Result<Word, SyntaxError> {
        self.words.next().ok_or_else(|| SyntaxError {
            position: self.end,
            message: "the command ends too early".into(),
            remedy: format!("write {what} before the semicolon"),
        })
    }

    fn optional(&mut self) -> Option<Word> {
        self.words.next()
    }

    /// The next word, unless it is an option.
    fn value(&mut self) -> Option<Word> {
        self.words.next_if(|word| word.is_quoted || !word.text.starts_with('-'))
    }

    fn end(mut self) -> Result<(), SyntaxError> {
        match self.words.next() {
            Some(word) => Err(word.error(
                format!("{} is too much", word.shown()),
                "end the command with a semicolon before it",
            )),
            None => Ok(()),
        }
    }
}

fn command(mut arguments: Arguments) -> Result<Command, SyntaxError> {
    let name = arguments.next("a command")?;
    let command = match name.text.as_str() {
        "add" => return add(arguments),
        "spdadd" => return policy_add(arguments),
        "get" => Command::Get(target(&mut arguments)?.name()),
        "delete" => Command::Delete(target(&mut arguments)?.name()),
        "deleteall" => {
            let (source, destination, protocol, _) = ends(&mut arguments)?;
            Command::DeleteAll { source: source.0, destination: destination.0, protocol }
        }
        "flush" => Command::Flush(optional_protocol(&mut arguments)?),
        "dump" => Command::Dump(optional_protocol(&mut arguments)?),
        "spddelete" => {
            let (direction, selector) = packets(&mut arguments)?;
            Command::PolicyDelete(direction, selector)
        }
        "spddump" => Command::PolicyDump,
        "spdflush" => Command::PolicyFlush,
        other => {
            return Err(name.error(
                format!("“{other}” is no command"),
                "write add, get, delete, deleteall, flush, dump, spdadd, spddelete, spddump or spdflush",
            ));
        }
    };
    arguments.end()?;
    Ok(command)
}

fn optional_protocol(arguments: &mut Arguments) -> Result<Option<Protocol>, SyntaxError> {
    arguments.optional().map(|word| values::protocol(&word).map(|(protocol, _)| protocol)).transpose()
}

type End = (IpAddr, Option<u16>);

/// Source, destination, protocol, and whether it is in UDP.
fn ends(arguments: &mut Arguments) -> Result<(End, End, Protocol, bool), SyntaxError> {
    let source = values::address(&arguments.next("the source address")?)?;
    let word = arguments.next("the destination address")?;
    let destination = values::address(&word)?;
    if source.0.is_ipv4() != destination.0.is_ipv4() {
        return Err(
            word.error("source and destination are of different IP versions", "take two of one version")
        );
    }
    let (protocol, in_udp) = values::protocol(&arguments.next("the protocol, ah or esp")?)?;
    Ok((source, destination, protocol, in_udp))
}

struct Target {
    source: End,
    destination: End,
    protocol: Protocol,
    in_udp: bool,
    spi: Spi,
}

impl Target {
    fn name(&self) -> Name {
        Name { destination: self.destination.0, protocol: self.protocol, spi: self.spi }
    }
}

fn target(arguments: &mut Arguments) -> Result<Target, SyntaxError> {
    let (source, destination, protocol, in_udp) = ends(arguments)?;
    let spi = values::spi(&arguments.next("the SPI")?)?;
    Ok(Target { source, destination, protocol, in_udp, spi })
}

fn add(mut arguments: Arguments) -> Result<Command, SyntaxError> {
    let end = arguments.end;
    let target = target(&mut arguments)?;
    let mut mode = Mode::Transport;
    let mut replay_window = None;
    let mut owner = None;
    let mut lifetimes = crate::association::Lifetimes::default();
    let mut cipher = (Encryption::Null, None, Key::empty());
    let mut authenticator = (Authentication::None, Key::empty());
    let mut algorithm_at = None;
    while let Some(option) = arguments.optional() {
        let seconds = |word: Word| values::number(&word).map(|seconds| Some(Duration::from_secs(seconds)));
        match option.text.as_str() {
            "-m" => {
                let word = arguments.next("the mode")?;
                mode = match word.text.as_str() {
                    "transport" | "any" => Mode::Transport,
                    "tunnel" => Mode::Tunnel,
                    other => {
                        return Err(word.error(format!("“{other}” is no mode"), "write transport or tunnel"));
                    }
                };
            }
            "-r" => {
                let size: u32 = values::number(&arguments.next("the size of the window")?)?;
                replay_window = (size > 0).then_some(size);
            }
            "-u" => {
                let number: u64 = values::number(&arguments.next("the number of the socket")?)?;
                owner = Some(SocketId(number));
            }
            "-ls" => lifetimes.soft.since_added = seconds(arguments.next("the soft lifetime in seconds")?)?,
            "-lh" => lifetimes.hard.since_added = seconds(arguments.next("the hard lifetime in seconds")?)?,
            "-bs" => {
                lifetimes.soft.bytes = Some(values::number(&arguments.next("the soft lifetime in bytes")?)?);
            }
            "-bh" => {
                lifetimes.hard.bytes = Some(values::number(&arguments.next("the hard lifetime in bytes")?)?);
            }
            "-E" => {
                let word = arguments.next("an encryption algorithm")?;
                let key = match arguments.value() {
                    Some(key) => values::key(&key)?,
                    None => Key::empty(),
                };
                let (encryption, gmac) = values::encryption(&word, key.reveal().len())?;
                cipher = (encryption, gmac, key);
                algorithm_at = Some(word);
            }
            "-A" => {
                let word = arguments.next("an authentication algorithm")?;
                let key = values::key(&arguments.next("its key")?)?;
                authenticator = (values::authentication(&word, key.reveal().len())?, key);
                algorithm_at = algorithm_at.or(Some(word));
            }
            _ => {
                return Err(option.error(
                    format!("{} is no option of add", option.shown()),
                    "take -m, -r, -u, -ls, -lh, -bs, -bh, -E or -A",
                ));
            }
        }
    }
    let position = algorithm_at.as_ref().map_or(end, |word| word.position);
    let wrong = |error: TransformError| {
        SyntaxError {
        position,
        message: error.to_string(),
        remedy: match target.protocol {
            Protocol::Ah => "give AH one algorithm, with -A".into(),
            Protocol::Esp => {
                "add -A hmac-sha256 and a key of 32 bytes; aes-gcm-16 and chacha20-poly1305 need none, but `ipsec up` takes \
                 them from IKE alone"
                    .into()
            }
        },
    }
    };
    let transform = match target.protocol {
        Protocol::Ah if cipher.0 != Encryption::Null || cipher.1.is_some() => {
            return Err(wrong(TransformError::Combination));
        }
        Protocol::Ah => Transform::Ah(AhTransform::new(authenticator.0, &authenticator.1).map_err(wrong)?),
        Protocol::Esp => Transform::Esp(esp_transform(&cipher, &authenticator).map_err(wrong)?),
    };
    let mut parameters = Parameters::new(target.spi, target.source.0, target.destination.0, mode, transform);
    parameters.replay_window = replay_window;
    parameters.lifetimes = lifetimes;
    parameters.encapsulation = target.in_udp.then_some(UdpEncapsulation {
        source_port: target.source.1.unwrap_or(crate::udp_encapsulation::PORT),
        destination_port: target.destination.1.unwrap_or(crate::udp_encapsulation::PORT),
    });
    let credentials = Credentials { owner, encryption_key: cipher.2, authentication_key: authenticator.1 };
    Ok(Command::Add(Box::new(parameters), credentials))
}

fn esp_transform(
    (encryption, gmac, cipher_key): &(Encryption, Option<Authentication>, Key),
    (authentication, key): &(Authentication, Key),
) -> Result<EspTransform, TransformError> {
    match gmac {
        Some(_) if *authentication != Authentication::None => Err(TransformError::Combination),
        Some(gmac) => EspTransform::new(*encryption, &Key::empty(), *gmac, cipher_key),
        None => EspTransform::new(*encryption, cipher_key, *authentication, key),
    }
}

fn policy_add(mut arguments: Arguments) -> Result<Command, SyntaxError> {
    let (direction, selector) = packets(&mut arguments)?;
    let word = arguments.next("discard, none or ipsec")?;
    let action = match word.text.as_str() {
        "discard" => Action::Discard,
        "none" => Action::Bypass,
        "ipsec" => protect(&mut arguments)?,
        other => {
            return Err(word.error(format!("“{other}” is no policy"), "write discard, none or ipsec"));
        }
    };
    arguments.end()?;
    Ok(Command::PolicyAdd(Rule { direction, selector, action }))
}

/// The packets that a policy is for, and `-P` with their direction.
fn packets(arguments: &mut Arguments) -> Result<(Direction, Selector), SyntaxError> {
    let source = values::network(&arguments.next("the range of sources")?)?;
    let word = arguments.next("the range of destinations")?;
    let destination = values::network(&word)?;
    if source.0.addr().is_ipv4() != destination.0.addr().is_ipv4() {
        return Err(word.error("the ranges are of different IP versions", "take two of one version"));
    }
    let word = arguments.next("the upper-layer protocol, or any")?;
    let upper = upper(&word, source, destination)?;
    let word = arguments.next("-P")?;
    if word.text.as_str() != "-P" {
        return Err(
            word.error(format!("{} is not what follows here", word.shown()), "write -P and the policy")
        );
    }
    let word = arguments.next("in or out")?;
    let direction = match word.text.as_str() {
        "in" => Direction::In,
        "out" => Direction::Out,
        other => {
            return Err(word.error(
                format!("“{other}” is no direction here"),
                "write in or out; in is also for what passes through",
            ));
        }
    };
    Ok((direction, Selector { source: source.0, destination: destination.0, upper }))
}

type Range = (IpNet, Option<u16>);

fn upper(word: &Word, source: Range, destination: Range) -> Result<Upper, SyntaxError> {
    let ports = |port: Option<u16>| port.map_or(0..=u16::MAX, |port| port..=port);
    let has_ports = source.1.or(destination.1).is_some();
    let (name, icmp) =
        word.text.split_once(',').map_or((word.text.as_str(), None), |(name, rest)| (name, Some(rest)));
    let protocol = match name {
        "any" => None,
        "tcp" => Some(ip::TCP),
        "udp" => Some(ip::UDP),
        "icmp" => Some(ip::ICMPV4),
        "icmp6" | "ipv6-icmp" => Some(ip::ICMPV6),
        other => Some(other.parse().map_err(|_| {
            word.error(
                format!("“{other}” is no protocol here"),
                "write any, tcp, udp, icmp, icmp6 or a number",
            )
        })?),
    };
    let is_icmp = matches!(protocol, Some(ip::ICMPV4 | ip::ICMPV6));
    match (protocol, icmp) {
        (Some(protocol), Some(icmp)) if is_icmp => {
            let (kind, code) = icmp.split_once(',').unwrap_or((icmp, "any"));
            // RFC 4301 §4.4.1.1 has no way to say so.
            if kind == "any" && code != "any" {
                return Err(word.error("a code is one of a type", "name the type, too, or leave both out"));
            }
            let range = |text: &str| match text {
                "any" => Ok(0..=u8::MAX),
                number => number.parse().map(|number: u8| number..=number).map_err(|_| {
                    word.error(format!("“{number}” is no type or code"), "write a number up to 255, or any")
                }),
            };
            Ok(Upper::Icmp { protocol, types: range(kind)?, codes: range(code)? })
        }
        (_, Some(_)) => Err(word.error("only ICMP has a type and a code", "leave them out")),
        (None, None) if has_ports => {
            Err(word.error("ports are those of a protocol", "write tcp or udp instead of any"))
        }
        (None, None) => Ok(Upper::Any),
        (Some(protocol), None) if has_ports => {
            Ok(Upper::Ports { protocol, source: ports(source.1), destination: ports(destination.1) })
        }
        (Some(protocol), None) => Ok(Upper::Protocol(protocol)),
    }
}

/// Requests like `esp/transport//require` and `esp/tunnel/FROM-TO/require`.
fn protect(arguments: &mut Arguments) -> Result<Action, SyntaxError> {
    let mut levels = Levels::NONE;
    let mut tunnel = None;
    let mut word = arguments.next("a request like esp/transport//require")?;
    loop {
        let parts: Vec<_> = word.text.split('/').collect();
        let [protocol, mode, ends, level] = parts[..] else {
            return Err(word.error(
                format!("{} is no request", word.shown()),
                "write PROTOCOL/MODE/FROM-TO/LEVEL, like esp/transport//require",
            ));
        };
        let level = match level {
            "default" => Level::None,
            "use" => Level::Use,
            "require" => Level::Require,
            "unique" => Level::Unique,
            other => {
                return Err(
                    word.error(format!("“{other}” is no level"), "write default, use, require or unique")
                );
            }
        };
        match (protocol, mode) {
            ("ah", "transport") => levels.authentication = level,
            ("esp", "transport") => levels.transport_encryption = level,
            ("esp", "tunnel") => {
                let addresses = ends.split_once('-').map(|(from, to)| (from.parse(), to.parse()));
                let Some((Ok(from), Ok(to))) = addresses else {
                    return Err(word.error(
                        format!("“{ends}” are not the ends of a tunnel"),
                        "write two addresses with a hyphen between them",
                    ));
                };
                tunnel = Some((from, to));
                levels.tunnel_encryption = level;
            }
            _ => {
                return Err(word.error(
                    format!("{protocol} in mode “{mode}” is no service here"),
                    "write ah/transport, esp/transport or esp/tunnel",
                ));
            }
        }
        match arguments.optional() {
            Some(next) => word = next,
            None => return Ok(Action::Protect { levels, tunnel }),
        }
    }
}
