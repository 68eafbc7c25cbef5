//! From the document to values, each by itself.

use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use mt6d::config::{Padding, PeerConfig};
use mt6d::keys::KeyError;
use toml::Spanned;
use zeroize::Zeroizing;

use super::document::{Document, Node as NodeTable, Peer as PeerTable, Text, Tunnel as TunnelTable};
use super::report::{Finding, Report};
use super::value::{self, Problem};
use super::{KeyFileError, Node, ReadKey, Tunnel};

const TUNNEL_NAME: &str = "mt6d0";
const ROTATION: Duration = Duration::from_secs(10);
const SPIN: Duration = Duration::from_micros(50);

/// What could be converted.
pub(super) struct Converted {
    pub(super) node: Option<Node>,
    pub(super) tunnel: Option<Tunnel>,
    /// Peers with their index in the document.
    pub(super) peers: Vec<(usize, PeerConfig)>,
}

/// Converts every value of the document; `read_key` reads key files, whose names are relative to the folder of
/// `path`.
pub(super) fn convert(
    document: &Document,
    path: &Path,
    read_key: &ReadKey,
    report: &mut Report,
) -> Converted {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut converter = Converter { folder, read_key, report };
    let node = match &document.node {
        Some(node) => converter.node(node),
        None => {
            converter.report.add(Finding::error(
                0..0,
                "the table [node] is missing",
                "",
                "begin with [node]: private_key_file, external and hop_prefix describe this gateway",
            ));
            None
        }
    };
    let tunnel = converter.tunnel(&document.tunnel);
    let peers = document.peer.iter().enumerate();
    let peers = peers.filter_map(|(index, peer)| Some((index, converter.peer(peer)?))).collect();
    Converted { node, tunnel, peers }
}

struct Converter<'a> {
    folder: &'a Path,
    read_key: &'a ReadKey,
    report: &'a mut Report,
}

/// Which secret, and how one is made.
struct SecretKind {
    name: &'static str,
    command: &'static str,
}

const PRIVATE_KEY: SecretKind = SecretKind { name: "private_key", command: "sidestep genkey" };
const PRESHARED_KEY: SecretKind = SecretKind { name: "preshared_key", command: "sidestep genpsk" };

impl Converter<'_> {
    fn node(&mut self, table: &Spanned<NodeTable>) -> Option<Node> {
        let (node, header) = (table.get_ref(), table.span());
        let key = self.secret(&PRIVATE_KEY, node.private_key.as_ref(), node.private_key_file.as_ref());
        if key.is_none() && node.private_key.is_none() && node.private_key_file.is_none() {
            self.missing(&header, "[node]", "private_key_file", "the file that `sidestep genkey` wrote");
        }
        let external = self.required(
            &node.external,
            &header,
            "[node]",
            "external",
            r#"the public interface, like "eth0""#,
        );
        let external = self.value("external", external, |text| value::interface(text));
        let hop_prefix = self.hop_prefix(&node.hop_prefix, &header, "[node]");
        Some(Node { private_key: key?, external: external?, hop_prefix: hop_prefix?, on_link: node.on_link })
    }

    fn tunnel(&mut self, table: &TunnelTable) -> Option<Tunnel> {
        let name = match &table.name {
            None => Some(TUNNEL_NAME.to_owned()),
            given => self.value("name", given.as_ref(), |text| value::interface(text)),
        };
        let mtu = self.optional("mtu", table.mtu.as_ref(), |number| value::mtu(*number));
        let addresses = table.addresses.iter();
        let addresses: Vec<_> = addresses
            .map(|text| self.value("addresses", Some(text), |text| value::interface_address(text)))
            .collect();
        let spin = self.optional("spin", table.spin.as_ref(), |text| value::spin(text));
        let threads = self.optional("threads", table.threads.as_ref(), |number| value::threads(*number));
        let cpus: Vec<_> = table
            .cpus
            .iter()
            .map(|number| self.value("cpus", Some(number), |number| value::processor(*number)))
            .collect();
        Some(Tunnel {
            name: name?,
            mtu: mtu?,
            addresses: addresses.into_iter().collect::<Option<_>>()?,
            realtime: table.realtime.unwrap_or(true),
            spin: spin?.unwrap_or(SPIN),
            threads: threads?,
            cpus: cpus.into_iter().collect::<Option<_>>()?,
        })
    }

    fn peer(&mut self, table: &Spanned<PeerTable>) -> Option<PeerConfig> {
        let (peer, header) = (table.get_ref(), table.span());
        let owner =
            peer.name.as_ref().map_or("[[peer]]".to_owned(), |name| format!("peer {:?}", name.get_ref()));
        let name =
            self.required(&peer.name, &header, &owner, "name", "any name that tells you which peer it is");
        let name = self.value("name", name, |text| value::peer_name(text));
        let public_key = self.required(
            &peer.public_key,
            &header,
            &owner,
            "public_key",
            "what `sidestep pubkey` prints for the peer's private key",
        );
        let public_key = self.value("public_key", public_key, |text| key(text, PRIVATE_KEY.command));
        let preshared_key =
            self.secret(&PRESHARED_KEY, peer.preshared_key.as_ref(), peer.preshared_key_file.as_ref());
        let wants_preshared = peer.preshared_key.is_some() || peer.preshared_key_file.is_some();
        let hop_prefix = self.hop_prefix(&peer.hop_prefix, &header, &owner);
        let allowed_ips = match &peer.allowed_ips {
            Some(prefixes) => {
                if prefixes.get_ref().is_empty() {
                    self.report.add(Finding::warning(
                        prefixes.span(),
                        format!("{owner} has no allowed_ips"),
                        "nothing will go through the tunnel",
                        "list the networks behind the peer",
                    ));
                }
                let prefixes = prefixes.get_ref().iter();
                let prefixes: Vec<_> = prefixes
                    .map(|text| self.value("allowed_ips", Some(text), |text| value::inner_prefix(text)))
                    .collect();
                prefixes.into_iter().collect::<Option<Vec<_>>>()
            }
            None => {
                self.missing(
                    &header,
                    &owner,
                    "allowed_ips",
                    r#"the networks behind it, like ["2001:db8:b::/64"]"#,
                );
                None
            }
        };
        let rotation = self.optional("rotation", peer.rotation.as_ref(), |text| value::rotation(text));
        let lanes = self.optional("lanes", peer.lanes.as_ref(), |number| value::lanes(*number));
        let padding = self.optional("padding", peer.padding.as_ref(), |text| value::padding(text));
        let cover = self.optional("cover", peer.cover.as_ref(), value::cover);
        let keepalive = self.optional("keepalive", peer.keepalive.as_ref(), |text| value::keepalive(text));
        if wants_preshared && preshared_key.is_none() {
            return None;
        }
        Some(PeerConfig {
            name: name?,
            public_key: public_key?,
            preshared_key,
            hop_prefix: hop_prefix?,
            allowed_ips: allowed_ips?,
            rotation: rotation?.unwrap_or(ROTATION),
            lanes: lanes?.unwrap_or(1),
            padding: padding?.unwrap_or(Padding::None),
            cover: cover?.unwrap_or(0),
            keepalive: keepalive?,
            clockless: peer.clockless,
        })
    }

    fn hop_prefix(&mut self, text: &Text, header: &Range<usize>, owner: &str) -> Option<ipnet::Ipv6Net> {
        let help = r#"the prefix to hop in, like "2001:db8:a1::/64""#;
        let text = self.required(text, header, owner, "hop_prefix", help);
        self.value("hop_prefix", text, |text| value::hop_prefix(text))
    }

    /// A secret that is given in the file or in one of its own.
    fn secret<T: FromStr<Err = KeyError>>(
        &mut self,
        kind: &SecretKind,
        inline: Option<&Spanned<Zeroizing<String>>>,
        file: Option<&Spanned<String>>,
    ) -> Option<T> {
        let SecretKind { name, command } = kind;
        let file = match (inline, file) {
            (Some(inline), Some(file)) => {
                self.report.add(
                    Finding::error(
                        file.span(),
                        format!("{name} is given twice"),
                        "here in a file",
                        format!("remove `{name}` or `{name}_file`"),
                    )
                    .related(inline.span(), "here inline"),
                );
                return None;
            }
            (Some(inline), None) => return self.value(name, Some(inline), |text| key(text, command)),
            (None, Some(file)) => file,
            (None, None) => return None,
        };
        let path = self.folder.join(file.get_ref());
        let shown = path.display();
        let (label, help) = match (self.read_key)(&path) {
            Ok(bytes) => match std::str::from_utf8(&bytes)
                .map_err(|_| KeyError::Malformed)
                .and_then(str::parse)
            {
                Ok(key) => return Some(key),
                Err(_) => ("the file holds no key", format!("make one with: umask 077; {command} > {shown}")),
            },
            Err(KeyFileError::Missing) => {
                ("no such file", format!("make one with: umask 077; {command} > {shown}"))
            }
            Err(KeyFileError::Unusable(why)) => ("the file cannot be used", why),
        };
        self.report.add(Finding::error(
            file.span(),
            format!("{name}_file {shown} cannot be used"),
            label,
            help,
        ));
        None
    }

    /// The key that must be there.
    fn required<'t>(
        &mut self,
        given: &'t Text,
        header: &Range<usize>,
        owner: &str,
        name: &str,
        help: &str,
    ) -> Option<&'t Spanned<String>> {
        if given.is_none() {
            self.missing(header, owner, name, help);
        }
        given.as_ref()
    }

    fn missing(&mut self, header: &Range<usize>, owner: &str, name: &str, help: &str) {
        let title = format!("{owner} has no `{name}`");
        self.report.add(Finding::error(
            header.clone(),
            title,
            "in this table",
            format!("add `{name} = …`: {help}"),
        ));
    }

    /// The value of a key that is there; None if it is absent or wrong.
    fn value<V, T>(
        &mut self,
        name: &str,
        given: Option<&Spanned<V>>,
        parse: impl FnOnce(&V) -> Result<T, Problem>,
    ) -> Option<T> {
        self.optional(name, given, parse)?
    }

    /// The value of a key that may be absent: None if it is wrong, Some(None) if absent.
    fn optional<V, T>(
        &mut self,
        name: &str,
        given: Option<&Spanned<V>>,
        parse: impl FnOnce(&V) -> Result<T, Problem>,
    ) -> Option<Option<T>> {
        let Some(given) = given else { return Some(None) };
        match parse(given.get_ref()) {
            Ok(value) => Some(Some(value)),
            Err(Problem { label, help }) => {
                self.report.add(Finding::error(
                    given.span(),
                    format!("`{name}` cannot be used"),
                    label,
                    help,
                ));
                None
            }
        }
    }
}

fn key<T: FromStr<Err = KeyError>>(text: &str, command: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem {
        label: "not a key".to_owned(),
        help: format!("a key is 44 characters of base64, as `{command}` and `sidestep pubkey` print them"),
    })
}
