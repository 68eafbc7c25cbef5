//! The classic profile: ours, and the node in Python.

use std::path::PathBuf;

use crate::comparison::contender::Contender;
use lab::Error;
use lab::Lab;
use lab::classic::{ClassicNodes, Settings};

/// One of them.
#[derive(Debug)]
pub(crate) struct Classic {
    name: &'static str,
    settings: Settings,
    nodes: Option<ClassicNodes>,
}

impl Classic {
    /// Unencrypted, in user space, in the kernel and with addresses replaced, and encrypted; and the reference.
    pub(crate) fn kinds(rotation: &str) -> Vec<Self> {
        let rotation = seconds(rotation);
        let ours = Settings { rotation, ..Settings::default() };
        let one = |name, settings| Self { name, settings, nodes: None };
        vec![
            one("classic", ours.clone()),
            one("classic-kernel", Settings { kernel: "required", ..ours.clone() }),
            one("classic-rewrite", Settings { carry: "rewrite", kernel: "required", ..ours.clone() }),
            one("classic-encrypted", Settings { cipher: "aes-256-cbc".into(), ..ours.clone() }),
            // Below the folder that the program was started in.
            one("classic-python", Settings { reference: Some(PathBuf::from("reference")), ..ours }),
        ]
    }
}

/// A rotation in whole seconds: a second at least, and an hour at most.
fn seconds(rotation: &str) -> u32 {
    let digits = rotation.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u32 = digits.parse().unwrap_or(10);
    let seconds = match &rotation[digits.len()..] {
        "ms" => number / 1000,
        "m" => number * 60,
        "h" => number * 3600,
        _ => number,
    };
    seconds.clamp(1, 3600)
}

impl Contender for Classic {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> String {
        let Settings { cipher, rotation, reference, carry, kernel, .. } = &self.settings;
        let what = match (reference, *carry, *kernel) {
            (Some(_), _, _) => "the classic profile in Python",
            (None, "rewrite", _) => "the classic profile in the kernel, addresses replaced",
            (None, _, "off") => "the classic profile",
            (None, _, _) => "the classic profile in the kernel",
        };
        let cipher = if cipher == "none" { "unencrypted" } else { cipher };
        format!("{what}, {cipher}, rotation {rotation}s")
    }

    fn missing(&self) -> Option<String> {
        let reference = self.settings.reference.as_ref()?;
        (!reference.join("classic/__main__.py").exists())
            .then(|| "the node in Python is not here: start this in the repository".to_owned())
    }

    fn start(&mut self, lab: &mut Lab, _: u32) -> Result<(), Error> {
        self.nodes = Some(ClassicNodes::start(lab, &self.settings)?);
        Ok(())
    }

    fn stop(&mut self, _: &mut Lab) {
        if let Some(nodes) = self.nodes.take() {
            nodes.stop();
        }
    }

    fn hops_among_hosts(&self) -> bool {
        true
    }

    fn processes(&self, _: &mut Lab) -> Option<[u32; 2]> {
        self.nodes.as_ref().map(ClassicNodes::ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotations_are_whole_seconds() {
        for (text, expected) in [("10s", 10), ("500ms", 1), ("2m", 120), ("1h", 3600), ("9h", 3600)] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
