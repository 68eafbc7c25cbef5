//! `[node]`: this gateway.

use std::path::{Path, PathBuf};

use ipnet::Ipv6Net;
use mt6d::config::NOWHERE;
use mt6d::keys::PrivateKey;
use router::site::Hops;
use toml::Spanned;
use zeroize::Zeroizing;

use crate::converter::{Converter, SecretKind};
use crate::hops::{self, HopPrefix};
use crate::key::Absent::{Default, Otherwise, Required};
use crate::key::Only;
use crate::report::Finding;
use crate::section::{Section, section};
use crate::transparent::{HostTable, Transparent};
use crate::value::{self, Problem, problem};

section! {
    /// `[node]`, as it stands in the file.
    NodeTable = "[node]" {
        /// File with this gateway's private key (`sidestep genkey`), relative to the configuration's folder. Refused if
        /// others can read it. A file beside it with `.previous` behind its name, as `sidestep rotate-key` leaves it, has the
        /// key before it, for a time of grace.
        private_key_file: String = Otherwise("one of the two is required");
        /// The key itself. Keep the configuration private: a warning is printed if others can read it.
        private_key: Zeroizing<String> = Otherwise("");
        /// File with the private key that this gateway had before, for [a time of grace](operations.md#changing-a-key):
        /// peers that do not know the new one yet are still met by this one.
        previous_private_key_file: String = Otherwise("none");
        /// That key itself.
        previous_private_key: Zeroizing<String> = Otherwise("none");
        /// The interface that faces the public network. Its MTU is an upper limit for the path MTU.
        external: String = Required(r#"the public interface, like "eth0""#);
        /// `"routed"`: a gateway for the networks behind it. `"host"`: one machine that protects itself, see [host
        /// mode](operations.md#host-mode). `"transparent"`: a bump in the wire between hosts and their router that
        /// neither of them sees, see [transparent gateways](operations.md#transparent-gateways), which describes the
        /// keys of this mode: `internal`, `protect`, `others`.
        mode: String = Default(r#""routed""#);
        /// Prefix that outer addresses are taken from, /32 to /112; used for nothing else. A /64 is usual. A shorter
        /// one also changes subnets; a longer one makes addresses easier to guess. `"uplink:NAME"`: a /64 of what that
        /// `[[uplink]]` of the same file is delegated, and moves [with it](operations.md#when-both-ends-move): the last one that
        /// no network has, or the one with a number, `"uplink:NAME/7"`; with `on_link`, the prefix of its link.
        hop_prefix: String = Otherwise("required, not in host mode");
        /// `true`: the prefix is on-link at `external`, /64 at most, instead of routed to the gateway. See [on-link
        /// prefixes](operations.md#on-link-prefixes).
        on_link: bool = Default("false");
        /// The interface that faces the hosts.
        internal: String = Otherwise("required"), only Transparent;
        /// The protected hosts on this side, `{ address = "…", mac = "…" }`. With its MAC given, a host is recognized
        /// from its first frame. Without, the MAC is learned from the host's first solicitation and stored; until then
        /// its link-local address, and with it the MAC, may be seen outside. The local hosts of [classic](classic.md)
        /// peers need not be listed, except to give their MAC.
        protect: Vec<Spanned<HostTable>> = Otherwise("none"), only Transparent;
        /// `"block"`: traffic between protected hosts and anyone but their peers is not let through, since it would
        /// reveal their addresses. `"pass"`: it passes unchanged, with true addresses and MAC; traffic with peers still
        /// uses the tunnel.
        others: String = Default(r#""block""#), only Transparent;
    }
}

/// What kind of node this is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// A router of the networks behind it.
    #[default]
    Routed,
    /// A gateway between hosts and their router that neither of them sees.
    Transparent,
    /// One machine that protects itself: the hopping prefix is that of the link which it is on, wherever it moves.
    Host,
}

/// This gateway itself.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its identity; a stand-in where all peers are of the classic profile, which has none.
    pub private_key: PrivateKey,
    /// The one that it had before, as long as some peers may not know the new one.
    pub previous_key: Option<PrivateKey>,
    /// Name of the interface that faces the public network. Whether it exists is not known here.
    pub external: String,
    /// What kind of node it is.
    pub mode: Mode,
    /// The prefix that it hops in; a stand-in where none is given, because all peers are of the classic profile or it
    /// is that of the link; [`NOWHERE`] as long as what it follows has none.
    pub hop_prefix: Ipv6Net,
    /// What the hopping prefix follows, if it is not written down.
    pub follows: Option<Hops>,
    /// The hopping prefix is on the link of `external` and not routed to this gateway: neighbor solicitations are
    /// answered for open endpoints.
    pub on_link: bool,
    /// It stands between its hosts and their router, and neither sees it; it is itself a router otherwise.
    pub transparent: Option<Transparent>,
}

/// Where the key before the one in a file is, for a time of grace, if no other place is written down.
#[must_use]
pub fn previous_key_file(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(".previous");
    path.into()
}

const PRIVATE_KEY: SecretKind = SecretKind {
    name: "private_key",
    command: "sidestep genkey",
    form: "a key is 44 characters of base64, as `sidestep genkey` and `sidestep pubkey` print them",
};

const PREVIOUS_PRIVATE_KEY: SecretKind = SecretKind { name: "previous_private_key", ..PRIVATE_KEY };

impl Converter<'_> {
    /// The classic profile needs neither private key nor hopping prefix: where all peers are of it, the node has
    /// stand-ins.
    pub(crate) fn node(&mut self, node: &NodeTable, all_classic: bool) -> Option<Node> {
        let mut key = self.secret(&PRIVATE_KEY, &node.private_key, &node.private_key_file);
        if node.private_key.is_absent() && node.private_key_file.is_absent() {
            if all_classic {
                key = Some(PrivateKey::from_bytes([0; 32]));
            } else {
                self.require(&node.private_key_file, "the file that `sidestep genkey` wrote");
            }
        }
        let mut previous_key = self.secret::<PrivateKey>(
            &PREVIOUS_PRIVATE_KEY,
            &node.previous_private_key,
            &node.previous_private_key_file,
        );
        let has_previous =
            !(node.previous_private_key.is_absent() && node.previous_private_key_file.is_absent());
        let is_same =
            matches!((&key, &previous_key), (Some(key), Some(before)) if key.public() == before.public());
        if !has_previous {
            let beside = self.secret_beside::<PrivateKey>(&node.private_key_file, previous_key_file).ok()?;
            // They are the same where a change ended between its two steps.
            let is_other =
                |before: &PrivateKey| key.as_ref().is_some_and(|key| key.public() != before.public());
            previous_key = beside.filter(is_other);
        }
        if is_same {
            let [inline, file] = [node.previous_private_key.span(), node.previous_private_key_file.span()];
            self.report(Finding::error(
                if inline.is_empty() { file } else { inline },
                "the previous private key is the private key",
                "the same key",
                "name the file of the key that this gateway had before, or leave the line out",
            ));
            return None;
        }
        let external = self.value(&node.external, value::interface);
        let mode = self.value(&node.mode, mode);
        let host = mode == Some(Mode::Host);
        let hop_prefix = match node.hop_prefix.given() {
            None if node.hop_prefix.is_absent() && (all_classic || host) => Some(HopPrefix::Fixed(NOWHERE)),
            Some(given) if host => {
                self.report(Finding::error(
                    given.span(),
                    "hop_prefix is given in mode \"host\"",
                    "in this mode it is the prefix of the link, and follows it",
                    "leave it out, or choose mode = \"routed\" with on_link = true for a fixed one",
                ));
                None
            }
            _ => {
                self.require(&node.hop_prefix, value::HOP_PREFIX);
                self.value(&node.hop_prefix, hops::hop_prefix)
            }
        };
        let transparent = match mode? {
            Mode::Transparent => Some(self.transparent(&node.internal, &node.protect, &node.others)?),
            _ => {
                self.without_transparent_keys(node)?;
                None
            }
        };
        if has_previous && previous_key.is_none() {
            return None;
        }
        let on_link = node.on_link.is_true() || host || transparent.is_some();
        let (hop_prefix, follows) = match hop_prefix? {
            HopPrefix::Fixed(prefix) => (prefix, None),
            HopPrefix::OfUplink(uplink, number) => (NOWHERE, Some(Hops { uplink, number, on_link })),
        };
        Some(Node {
            private_key: key?,
            previous_key,
            external: external?,
            mode: mode?,
            hop_prefix,
            follows,
            on_link,
            transparent,
        })
    }

    /// None if there are keys of the transparent mode.
    fn without_transparent_keys(&mut self, node: &NodeTable) -> Option<()> {
        let mut fits = Some(());
        for (key, span) in node.given().into_iter().filter(|(key, _)| key.only == Some(Only::Transparent)) {
            fits = None;
            let help = "add mode = \"transparent\", or remove it";
            self.report(Finding::error(span, format!("`{}` does not fit the mode", key.name), "", help));
        }
        fits
    }
}

/// What kind of node.
fn mode(text: &str) -> Result<Mode, Problem> {
    match text {
        "routed" => Ok(Mode::Routed),
        "transparent" => Ok(Mode::Transparent),
        "host" => Ok(Mode::Host),
        _ => problem(
            "not a mode",
            r#"write "routed" for a router, "transparent" for a gateway that hosts and router do not see, or "host" for one machine that protects itself"#,
        ),
    }
}
