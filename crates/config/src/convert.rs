//! From the document to values, each by itself.

use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use classic::profile::Carry;
use mt6d::config::{Padding, PeerConfig};
use mt6d::keys::PrivateKey;
use toml::Spanned;
use zeroize::Zeroizing;

use super::classic::ClassicPeer;
use super::cross::STAND_IN;
use super::document::{Document, Given, Node as NodeTable, Peer as PeerTable, Text, Tunnel as TunnelTable};
use super::firewall::Tunnels;
use super::report::{Finding, Report};
use super::value::{self, Problem};
use super::{Configured, Gateway, KeyFileError, Mode, Node, ReadKey, Tunnel};

const TUNNEL_NAME: &str = "mt6d0";
const ROTATION: Duration = Duration::from_secs(10);
const SPIN: Duration = Duration::from_micros(50);

/// What could be converted.
pub(super) struct Converted {
    pub(super) node: Option<Node>,
    pub(super) tunnel: Option<Tunnel>,
    /// Peers of version 2 with their index in the document.
    pub(super) peers: Vec<(usize, PeerConfig)>,
    /// Peers of the classic profile, likewise.
    pub(super) classic: Vec<(usize, ClassicPeer)>,
    /// Scripts; none of them if one cannot be.
    pub(super) scripts: Option<Vec<Configured>>,
    /// The gateway, if there is one and it can be.
    pub(super) gateway: Option<Gateway>,
}

/// Converts every value of the document, which is that of `text`; `read_key` reads key files, whose names are relative to
/// the folder of `path`.
pub(super) fn convert(
    document: &Document,
    text: &str,
    path: &Path,
    read_key: &ReadKey,
    report: &mut Report,
) -> Converted {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut converter = Converter::new(folder, read_key, report);
    let all_classic =
        !document.peer.is_empty() && document.peer.iter().all(|peer| peer.get_ref().is_classic());
    let node = match &document.node {
        Some(node) => converter.node(node, all_classic),
        None if document.is_without_tunnel() => None,
        None => {
            converter.report.add(Finding::error(
                0..0,
                "the table [node] is missing",
                "",
                if document.peer.is_empty() {
                    "[node] and [[peer]] describe a tunnel, [[uplink]] and [[network]] a gateway, [[zone]] a firewall"
                } else {
                    "begin with [node]: private_key_file, external and hop_prefix describe this gateway"
                },
            ));
            None
        }
    };
    let tunnel = converter.tunnel(&document.tunnel);
    let (mut peers, mut classic) = (Vec::new(), Vec::new());
    for (index, table) in document.peer.iter().enumerate() {
        if !converter.keys_fit_the_profile(table) {
            continue;
        }
        if table.get_ref().is_classic() {
            classic.extend(converter.classic_peer(table).map(|peer| (index, peer)));
        } else {
            peers.extend(converter.peer(table).map(|peer| (index, peer)));
        }
    }
    let name = tunnel.as_ref().map(|tunnel| tunnel.name.as_str());
    let scripts: Vec<_> = document.script.iter().map(|table| converter.script(table, name)).collect();
    // Where all peers are of the classic profile, the prefix may be a stand-in.
    let endpoints = node.iter().map(|node| node.hop_prefix).filter(|prefix| *prefix != STAND_IN).collect();
    let tunnels = Tunnels { device: name, peers: &peers, endpoints };
    let firewall = converter.firewall(document, text, tunnels);
    let gateway = converter.gateway(document, firewall);
    Converted { node, tunnel, peers, classic, scripts: scripts.into_iter().collect(), gateway }
}

pub(super) struct Converter<'a> {
    folder: &'a Path,
    read_key: &'a ReadKey,
    report: &'a mut Report,
}

/// Which secret, how one is made, and what one looks like.
pub(super) struct SecretKind {
    pub(super) name: &'static str,
    pub(super) command: &'static str,
    pub(super) form: &'static str,
}

const PRIVATE_KEY: SecretKind = SecretKind {
    name: "private_key",
    command: "sidestep genkey",
    form: "a key is 44 characters of base64, as `sidestep genkey` and `sidestep pubkey` print them",
};
const PRESHARED_KEY: SecretKind = SecretKind {
    name: "preshared_key",
    command: "sidestep genpsk",
    form: "a key is 44 characters of base64, as `sidestep genpsk` and `sidestep pubkey` print them",
};

impl<'a> Converter<'a> {
    pub(super) fn new(folder: &'a Path, read_key: &'a ReadKey, report: &'a mut Report) -> Self {
        Converter { folder, read_key, report }
    }
}

impl Converter<'_> {
    /// The classic profile needs neither private key nor hopping prefix: where all peers are of it, the node has
    /// stand-ins.
    fn node(&mut self, table: &Spanned<NodeTable>, all_classic: bool) -> Option<Node> {
        let (node, header) = (table.get_ref(), table.span());
        let mut key = self.secret(&PRIVATE_KEY, node.private_key.as_ref(), node.private_key_file.as_ref());
        let no_key = node.private_key.is_none() && node.private_key_file.is_none();
        if no_key && all_classic {
            key = Some(PrivateKey::from_bytes([0; 32]));
        }
        if no_key && !all_classic {
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
        let mode = self.optional("mode", node.mode.as_ref(), |text| value::mode(text));
        let host = mode == Some(Some(Mode::Host));
        let hop_prefix = match &node.hop_prefix {
            None if all_classic || host => Some(STAND_IN),
            Some(given) if host => {
                self.report.add(Finding::error(
                    given.span(),
                    "hop_prefix is given in mode \"host\"",
                    "there it is the prefix of the link, and follows it",
                    "leave it out, or choose mode = \"routed\" with on_link = true for a fixed one",
                ));
                None
            }
            given => self.hop_prefix(given, &header, "[node]"),
        };
        let mode = mode?.unwrap_or_default();
        let transparent = self.transparent(node, &header, mode)?;
        Some(Node {
            private_key: key?,
            external: external?,
            mode,
            hop_prefix: hop_prefix?,
            on_link: node.on_link || host || transparent.is_some(),
            transparent,
        })
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
        let public_key = self.value("public_key", public_key, |text| key(text, &PRIVATE_KEY));
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
        let carry = self.optional("carry", peer.carry.as_ref(), |text| value::carry(text));
        if let (Some(Some(Carry::Rewrite)), Some(given)) = (carry, &peer.carry) {
            self.report.add(Finding::warning(
                given.span(),
                format!("{owner}: the gateways neither encrypt nor authenticate its packets"),
                "addresses are replaced, and nothing else",
                "ports, sequence numbers and payloads are visible, and whoever sees them can send others: use it for \
                 traffic that is encrypted already",
            ));
        }
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
            clockless: peer.clockless.as_ref().is_some_and(|given| *given.get_ref()),
            rewrite: carry? == Some(Carry::Rewrite),
        })
    }

    /// Whether the table has keys of its profile alone.
    fn keys_fit_the_profile(&mut self, table: &Spanned<PeerTable>) -> bool {
        let peer = table.get_ref();
        if let Some(profile) = &peer.profile
            && !matches!(profile.get_ref().as_str(), "classic" | "version-2")
        {
            self.report.add(Finding::error(
                profile.span(),
                "`profile` cannot be used",
                "not a profile",
                r#"write "classic", or leave the line out for version 2"#,
            ));
            return false;
        }
        let (strange, other): (Vec<Given>, _) = if peer.is_classic() {
            (
                peer.version_2_keys().into(),
                "a peer with profile = \"classic\" has no such key: see docs/classic.md",
            )
        } else {
            (peer.classic_keys().into(), "it belongs to peers with profile = \"classic\"")
        };
        let mut fits = true;
        for (name, span) in strange.into_iter().flatten() {
            fits = false;
            self.report.add(Finding::error(span, format!("`{name}` does not fit the profile"), "", other));
        }
        fits
    }

    fn hop_prefix(&mut self, text: &Text, header: &Range<usize>, owner: &str) -> Option<ipnet::Ipv6Net> {
        let help = r#"the prefix to hop in, like "2001:db8:a1::/64""#;
        let text = self.required(text, header, owner, "hop_prefix", help);
        self.value("hop_prefix", text, |text| value::hop_prefix(text))
    }

    /// Something else that was found.
    pub(super) fn report(&mut self, finding: Finding) {
        self.report.add(finding);
    }

    /// The folder that names of files are relative to.
    pub(super) fn folder(&self) -> &Path {
        self.folder
    }

    /// A secret that is given in the file or in one of its own.
    pub(super) fn secret<T: FromStr>(
        &mut self,
        kind: &SecretKind,
        inline: Option<&Spanned<Zeroizing<String>>>,
        file: Option<&Spanned<String>>,
    ) -> Option<T> {
        let SecretKind { name, command, .. } = kind;
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
            (Some(inline), None) => return self.value(name, Some(inline), |text| key(text, kind)),
            (None, Some(file)) => file,
            (None, None) => return None,
        };
        let path = self.folder.join(file.get_ref());
        let shown = path.display();
        let (label, help) = match (self.read_key)(&path) {
            Ok(bytes) => match std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()) {
                Some(key) => return Some(key),
                None => ("the file holds no key", format!("make one with: umask 077; {command} > {shown}")),
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
    pub(super) fn required<'t>(
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

    pub(super) fn missing(&mut self, header: &Range<usize>, owner: &str, name: &str, help: &str) {
        let title = format!("{owner} has no `{name}`");
        self.report.add(Finding::error(
            header.clone(),
            title,
            "in this table",
            format!("add `{name} = …`: {help}"),
        ));
    }

    /// The value of a key that is there; None if it is absent or wrong.
    pub(super) fn value<V, T>(
        &mut self,
        name: &str,
        given: Option<&Spanned<V>>,
        parse: impl FnOnce(&V) -> Result<T, Problem>,
    ) -> Option<T> {
        self.optional(name, given, parse)?
    }

    /// The value of a key that may be absent: None if it is wrong, Some(None) if absent.
    pub(super) fn optional<V, T>(
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

fn key<T: FromStr>(text: &str, kind: &SecretKind) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem { label: "not a key".to_owned(), help: kind.form.to_owned() })
}
