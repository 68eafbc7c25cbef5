//! Sidestep itself, as it comes and with other settings.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::comparison::contender::Contender;
use lab::Error;
use lab::topology::Site;
use lab::traffic::{self, PingOptions};
use lab::{Builder, Lab};

/// The program with some settings.
#[derive(Clone, Debug)]
pub(crate) struct Sidestep {
    name: String,
    rotation: String,
    padding: &'static str,
    lanes: u8,
    threads: Option<u8>,
    aes: bool,
    carry: &'static str,
}

impl Sidestep {
    /// As it comes, but for the rotation.
    pub(crate) fn new(rotation: &str) -> Self {
        Self {
            name: "sidestep".into(),
            rotation: rotation.into(),
            padding: "none",
            lanes: 1,
            threads: None,
            aes: true,
            carry: "encapsulate",
        }
    }

    /// For what another tunnel has encrypted, and for nothing else.
    pub(crate) fn masking(rotation: &str) -> Self {
        Self { name: "sidestep-mask".into(), carry: "mask", ..Self::new(rotation) }
    }

    /// With one setting changed each.
    pub(crate) fn variants(rotation: &str) -> Vec<Self> {
        let one = |name: &str| Self { name: format!("sidestep-{name}"), ..Self::new(rotation) };
        vec![
            Self { aes: false, ..one("chacha") },
            Self { padding: "buckets", ..one("buckets") },
            Self { padding: "full", ..one("full") },
            Self { lanes: 4, ..one("lanes-4") },
            Self { lanes: 16, ..one("lanes-16") },
            Self { threads: Some(2), lanes: 4, ..one("threads-2") },
            Self { carry: "rewrite", ..one("rewrite") },
            Self { rotation: "1s".into(), ..one("rotation-1s") },
            Self { rotation: "1h".into(), ..one("rotation-1h") },
        ]
    }
}

impl Contender for Sidestep {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> String {
        if self.carry == "rewrite" {
            return format!("addresses replaced in the kernel, not encrypted, rotation {}", self.rotation);
        }
        let threads = self.threads.map_or_else(String::new, |threads| format!(", {threads} packet threads"));
        format!(
            "{}, rotation {}, {} lane{}, padding {}{threads}",
            if self.aes { "AES-256-GCM where the processor has AES" } else { "ChaCha20-Poly1305" },
            self.rotation,
            self.lanes,
            if self.lanes == 1 { "" } else { "s" },
            self.padding
        )
    }

    fn lab(&self, builder: Builder) -> Builder {
        let builder =
            builder.rotation(&self.rotation).padding(self.padding).lanes(self.lanes).carry(self.carry);
        match self.threads {
            Some(threads) => builder.threads(threads),
            None => builder,
        }
    }

    fn start(&mut self, lab: &mut Lab, strangers: u32) -> Result<(), Error> {
        let arguments: &[&str] = if self.aes { &[] } else { &["--test-without", "aes"] };
        for site in [Site::A, Site::B] {
            lab.gateway(site).set_arguments(arguments);
        }
        if strangers > 0 {
            lab.gateway_a().add_table(&peers(strangers, &self.rotation))?;
        }
        lab.gateway_a().start()?;
        lab.gateway_b().start()?;
        if self.carry == "encapsulate" { Ok(()) } else { wait_beside(lab) }
    }

    fn stop(&mut self, lab: &mut Lab) {
        lab.gateway_a().stop();
        lab.gateway_b().stop();
    }

    fn processes(&self, lab: &mut Lab) -> Option<[u32; 2]> {
        Some([lab.gateway_a().id()?, lab.gateway_b().id()?])
    }

    fn is_variant(&self) -> bool {
        self.name != "sidestep"
    }

    fn has_peers(&self) -> bool {
        true
    }
}

/// Waits until packets travel beside the tunnel's own datagrams, rewritten or masked, in both directions.
///
/// # Errors
/// When they do not in time.
fn wait_beside(lab: &mut Lab) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let _ = traffic::ping(lab, PingOptions { count: 5, ..PingOptions::default() });
        let sent =
            |site| Ok::<_, Error>(lab.show(site)?["peers"][0]["tx_rewritten_packets"].as_u64() > Some(0));
        if sent(Site::A)? && sent(Site::B)? {
            return Ok(());
        }
    }
    Err(lab.gateway_a().failure("neither rewrites nor masks packets".into()))
}

/// Peers who will never answer: their hopping prefixes lead nowhere.
fn peers(count: u32, rotation: &str) -> String {
    let mut text = String::new();
    for number in 1..=count {
        let _ = write!(
            text,
            "\n[[peer]]\nname = \"stranger-{number}\"\npublic_key = \"{}\"\nhop_prefix = \"2001:db8:b1:{number:x}::/64\"\n\
             allowed_ips = [\"2001:db8:c:{number:x}::/64\"]\nrotation = \"{rotation}\"\n",
            STANDARD.encode(stranger_key(number))
        );
    }
    text
}

/// A public key: nobody has the private one, but any 32 bytes are a point of the curve or of its twist.
pub(crate) fn stranger_key(number: u32) -> [u8; 32] {
    let mut key = [7; 32];
    key[..4].copy_from_slice(&number.to_le_bytes());
    key
}
