//! `control signposts`: where controllers are, sealed for each site, to be published in DNS.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use controller::Folder;
use fleet::signpost::{MOST, Signpost, name};

use super::folder::{FolderOption, KEY, run, signing_key};
use crate::failure::Failure;
use crate::terminal::print;

/// Print where controllers are, sealed for each site, as records of DNS
///
/// For sites that were away while controllers and peers moved: the domain is `signposts` in what `control policy` prints. There is
/// a name for each site and controller, and only that site can read what it says; to others all of them look random. They are made
/// with an administrator's key. Publish them anew when a controller moves, and when sites have come.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control signposts > signposts.zone                  lines of a zone's file
  sidestep control signposts --nsupdate | nsupdate -k /etc/sidestep/dns.key")]
pub(crate) struct SignpostsOptions {
    /// An administrator's key
    #[arg(long, value_name = "FILE", default_value = KEY)]
    key: PathBuf,
    /// Print what nsupdate takes: it replaces what was there
    #[arg(long)]
    nsupdate: bool,
    /// For how many seconds others may keep a record
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    ttl: u32,
    #[command(flatten)]
    folder: FolderOption,
}

impl SignpostsOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        let key = signing_key(&self.key)?;
        let (fleet, _) = run(async { Ok(folder.fleet().await?) })?;
        let says = |why: String| Failure::Message(why);
        if !fleet.chain().current().administrators.iter().any(|one| one.key == key.public()) {
            return Err(says(format!("{} is no administrator's key of this fleet", self.key.display())));
        }
        let (Some(settings), Some(serial)) = (fleet.settings(), fleet.serial()) else {
            return Err(says("there is no document yet".to_owned()));
        };
        let Some(domain) = &settings.signposts else {
            return Err(says(
                "the rules name no domain for them: write `signposts = \"r7.example.net\"` at the top of what `sidestep control policy` prints, and sign that"
                    .to_owned(),
            ));
        };
        let outside =
            settings.controllers.iter().filter_map(|one| Some((one.outside.clone()?, one.certificate)));
        let outside: Vec<_> = outside.take(MOST).collect();
        if outside.is_empty() {
            return Err(says("no controller has an `outside` to lead to".to_owned()));
        }
        let mut text = String::new();
        for site in fleet.sites().into_values().filter(|site| !site.member.is_revoked()) {
            let identity = site.member.identity;
            for index in 0..MOST {
                let name = name(fleet.network(), identity, index, domain);
                if self.nsupdate {
                    let _ = writeln!(text, "update delete {name}. TXT");
                }
                let Some((place, certificate)) = outside.get(index) else { continue };
                let signpost = Signpost { serial, certificate: *certificate, place: place.clone() };
                let mut nonce = [0; 24];
                getrandom::fill(&mut nonce)?;
                let sealed = signpost.seal(&key, identity, nonce).ok_or_else(|| {
                    says(format!(
                        "{place} is too long for a record, or site {} has no good key",
                        site.member.name
                    ))
                })?;
                let _ = match self.nsupdate {
                    true => writeln!(text, "update add {name}. {} TXT {sealed}", self.ttl),
                    false => writeln!(text, "{name}. {} IN TXT \"{sealed}\"", self.ttl),
                };
            }
        }
        if self.nsupdate {
            text += "send\n";
        }
        print(text)
    }
}
