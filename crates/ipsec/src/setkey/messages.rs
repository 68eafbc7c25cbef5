//! Commands as messages of PF_KEY, for an engine that is in another process.

use super::{Command, Credentials};
use crate::algorithm::{Authentication, Encryption};
use crate::association::Parameters;
use crate::association::{Protocol, Transform};
use crate::key::Key;
use crate::key_engine::Name;
use crate::pf_key::algorithms;
use crate::pf_key::answers::{self, MANUAL_REQUEST_ID_MAX, number_of};
use crate::pf_key::extension::Sa;
use crate::pf_key::message::{Extensions, Message, MessageType, satype, state};
use crate::pf_key::policies::{self, PolicyError};
use crate::policy::{Action, Rule};
use crate::replay::ReplayWindow;

/// Why a command has no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    /// Its policy has none.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The window has more packets than the message has room for.
    #[error("windows of more than {} packets cannot be asked for by PF_KEY", ReplayWindow::DEFAULT_SIZE)]
    Window,
    /// The socket's number is too large.
    #[error("PF_KEY carries numbers of sockets up to {}", u32::MAX - MANUAL_REQUEST_ID_MAX - 1)]
    Socket,
}

/// The message that has the engine do what a command says. A tunnel finds its selectors in the policies that are in force:
/// tell those first.
///
/// # Errors
/// [`Untold`].
pub fn message(command: &Command, sequence: u32, pid: u32) -> Result<Message, Untold> {
    let (message_type, satype, extensions) = match command {
        Command::Add(parameters, credentials) => {
            (MessageType::Add, number_of(parameters.transform.protocol()), added(parameters, credentials)?)
        }
        Command::Get(name) => (MessageType::Get, number_of(name.protocol), named(name)),
        Command::Delete(name) => (MessageType::Delete, number_of(name.protocol), named(name)),
        Command::DeleteAll { source, destination, protocol } => {
            let extensions = Extensions {
                address_source: Some(answers::host_address(*source)),
                address_destination: Some(answers::host_address(*destination)),
                ..Extensions::default()
            };
            (MessageType::Delete, number_of(*protocol), extensions)
        }
        Command::Flush(protocol) => (MessageType::Flush, of_all(*protocol), Extensions::default()),
        Command::Dump(protocol) => (MessageType::Dump, of_all(*protocol), Extensions::default()),
        Command::PolicyAdd(rule) => {
            (MessageType::PolicyAdd, satype::UNSPECIFIED, policies::extensions(rule)?)
        }
        Command::PolicyDelete(direction, selector) => {
            // What it does is not looked at.
            let rule = Rule { direction: *direction, selector: selector.clone(), action: Action::Discard };
            (MessageType::PolicyDelete, satype::UNSPECIFIED, policies::extensions(&rule)?)
        }
        Command::PolicyDump => (MessageType::PolicyDump, satype::UNSPECIFIED, Extensions::default()),
        Command::PolicyFlush => (MessageType::PolicyFlush, satype::UNSPECIFIED, Extensions::default()),
    };
    Ok(Message { message_type, errno: 0, satype, sequence, pid, extensions })
}

fn of_all(protocol: Option<Protocol>) -> u8 {
    protocol.map_or(satype::UNSPECIFIED, number_of)
}

/// An association's name has no source, but a message must.
fn named(name: &Name) -> Extensions {
    let address = Some(answers::host_address(name.destination));
    Extensions {
        sa: Some(Sa { spi: name.spi.0, state: state::MATURE, ..Sa::default() }),
        address_source: address,
        address_destination: address,
        ..Extensions::default()
    }
}

fn added(parameters: &Parameters, credentials: &Credentials) -> Result<Extensions, Untold> {
    let (authentication, encryption) = algorithms::numbers(&parameters.transform);
    let replay = match parameters.replay_window {
        None => 0,
        Some(size) if size > ReplayWindow::DEFAULT_SIZE => return Err(Untold::Window),
        // What has a window gets one of the default size, at least.
        Some(size) => u8::try_from(size).unwrap_or(u8::MAX),
    };
    let sa2 = answers::sa2(parameters.mode, credentials.owner);
    if credentials.owner.is_some() && sa2.request_id == 0 {
        return Err(Untold::Socket);
    }
    let key = |key: &Key| (!key.reveal().is_empty()).then(|| key.clone());
    let (encryption_key, authentication_key) = match &parameters.transform {
        // GMAC that was asked for as an authenticator is an encryption algorithm in a message.
        Transform::Esp(esp)
            if esp.encryption() == Encryption::Null
                && matches!(
                    esp.authentication(),
                    Authentication::AesGmac128 | Authentication::AesGmac256
                )
                && credentials.encryption_key.reveal().is_empty() =>
        {
            (key(&credentials.authentication_key), None)
        }
        _ => (key(&credentials.encryption_key), key(&credentials.authentication_key)),
    };
    let ports = parameters.encapsulation;
    Ok(Extensions {
        sa: Some(Sa {
            spi: parameters.spi.0,
            replay,
            state: state::MATURE,
            authentication,
            encryption,
            flags: 0,
        }),
        lifetime_hard: Some(answers::lifetime_extension(&parameters.lifetimes.hard)),
        lifetime_soft: Some(answers::lifetime_extension(&parameters.lifetimes.soft)),
        address_source: Some(answers::host_address(parameters.source)),
        address_destination: Some(answers::host_address(parameters.destination)),
        key_authentication: authentication_key,
        key_encryption: encryption_key,
        sa2: Some(sa2),
        nat_t_type: ports.map(|_| answers::ESP_IN_UDP),
        nat_t_source_port: ports.map(|ports| ports.source_port),
        nat_t_destination_port: ports.map(|ports| ports.destination_port),
        ..Extensions::default()
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::key_engine::{KeyEngine, Random};
    use crate::pf_key::{Clock, PfKey};
    use crate::policy::PolicyDatabase;
    use crate::request::DaemonId;
    use crate::setkey::{apply, parse};

    const FILE: &str = r#"
        add 2001:db8:a::1 2001:db8:b::2 esp 0x1000 -r 64 -ls 30 -lh 40 -bs 1000 -bh 2000
            -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
        add 2001:db8:a::1 2001:db8:b::2 ah 0x1001 -A hmac-sha256 "0123456789abcdef0123456789abcdef";
        add 203.0.113.1[4501] 203.0.113.2 esp-udp 0x2000 -m tunnel -u 7
            -E aes-cbc "0123456789abcdef" -A hmac-sha384 "0123456789abcdef0123456789abcdef0123456789abcdef";
        add 2001:db8:a::1 2001:db8:b::2 esp 0x1002 -E aes-gmac "0123456789abcdef0123";
        add 2001:db8:a::1 2001:db8:b::2 esp 0x1003 -A aes-gmac "0123456789abcdef0123";
        add 2001:db8:a::1 2001:db8:b::2 esp 0x1004 -E null -A hmac-sha256 "0123456789abcdef0123456789abcdef";
        spdadd 2001:db8:a::/48 2001:db8:b::/48[80] tcp -P out ipsec esp/transport//require ah/transport//use;
        spdadd 192.0.2.0/24 198.51.100.0/24 any -P in ipsec esp/tunnel/203.0.113.1-203.0.113.2/unique;
        spdadd ::/0 ::/0 icmp6,135 -P in none;
        spdadd 0.0.0.0/0 0.0.0.0/0 47 -P out discard;
        spdadd 2001:db8::/32[25] ::/0 tcp -P in discard;
        spddelete 2001:db8::/32[25] ::/0 tcp -P in;
    "#;

    struct Fixed;

    impl Random for Fixed {
        fn next_u32(&mut self) -> u32 {
            7
        }
    }

    #[test]
    fn commands_told_by_messages_do_what_they_do_when_they_are_applied() {
        let clock = Clock { now: Instant::now(), since_1970: std::time::Duration::ZERO };
        let (mut engine, mut policies) = (KeyEngine::new(), PolicyDatabase::new());
        apply(parse(FILE).unwrap(), &mut engine, &mut policies, clock.now).unwrap();
        let (mut told_engine, mut told_policies) = (KeyEngine::new(), PolicyDatabase::new());
        let mut pf_key = PfKey::new();
        assert!(pf_key.open(DaemonId(1)));
        let commands = parse(FILE).unwrap();
        let is_policy =
            |command: &&Command| matches!(command, Command::PolicyAdd(_) | Command::PolicyDelete(..));
        let ordered =
            commands.iter().filter(is_policy).chain(commands.iter().filter(|command| !is_policy(command)));
        for command in ordered {
            let bytes = message(command, 1, 2).unwrap().to_bytes();
            pf_key.handle(&mut told_engine, &mut told_policies, DaemonId(1), &bytes, &mut Fixed, clock);
            let (_, answer) = pf_key.next_output().unwrap();
            assert_eq!(answer[2], 0, "{command:?}");
        }
        assert_eq!(told_policies.rules(), policies.rules());
        let shown = |engine: &KeyEngine| -> Vec<_> {
            engine
                .associations()
                .map(|(id, association)| {
                    let parameters = association.parameters();
                    (
                        Name::of(association),
                        parameters.mode,
                        parameters.lifetimes,
                        parameters.replay_window.is_some(),
                        parameters.encapsulation,
                        parameters.selectors.clone(),
                        engine.owner(id),
                        algorithms::numbers(&parameters.transform),
                    )
                })
                .collect()
        };
        assert_eq!(shown(&told_engine), shown(&engine));
    }

    #[test]
    fn what_a_message_cannot_carry_is_refused() {
        let refused = |text: &str| message(&parse(text).unwrap()[0], 1, 2).unwrap_err();
        assert_eq!(refused("spdadd ::/0 ::/0 icmp6,135,0 -P in none;"), Untold::Policy(PolicyError::Zero));
        let with = |options: &str| {
            format!("add ::1 ::2 ah 256 {options} -A hmac-sha256 \"0123456789abcdef0123456789abcdef\";")
        };
        assert_eq!(refused(&with("-r 1025")), Untold::Window);
        assert_eq!(refused(&with("-u 0xffffffff")), Untold::Socket);
    }
}
