//! What a fleet is, and what was done.

use clap::Args;
use controller::Folder;
use controller::log::{Head, PAGE, verify};
use fleet::name::Name;
use fleet::plan::Plan;
use serde::{Deserialize, Serialize};

use super::folder::{FolderOption, run};
use crate::check::list;
use crate::failure::Failure;
use crate::terminal::print;

/// Show the sites of the fleet
///
/// What is shown was verified here, by the name of the network.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control sites
  sidestep control sites kiel            with the peers that its gateway has
  sidestep control sites --json | jq '.[] | select(.revoked | not) | .name'")]
pub(crate) struct SitesOptions {
    /// One of them
    site: Option<Name>,
    /// Write JSON; its fields are stable
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: FolderOption,
}

#[derive(Serialize)]
struct Row {
    name: Name,
    role: Name,
    region: Option<Name>,
    zone: Option<Name>,
    networks: Vec<ipnet::IpNet>,
    hop_prefix: Option<String>,
    revoked: bool,
    identity: String,
}

impl SitesOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        let (fleet, _) = run(async { Ok(folder.fleet().await?) })?;
        let rows: Vec<Row> = fleet
            .sites()
            .into_values()
            .filter(|site| self.site.as_ref().is_none_or(|name| *name == site.member.name))
            .map(|site| Row {
                name: site.member.name.clone(),
                role: site.member.role.clone(),
                region: site.member.region.clone(),
                zone: site.member.zone.clone(),
                networks: site.member.networks.clone(),
                hop_prefix: site.contact.map(|contact| contact.hop_prefix.to_string()),
                revoked: site.member.is_revoked(),
                identity: site.member.identity.to_string(),
            })
            .collect();
        if let Some(name) = self.site.as_ref().filter(|_| rows.is_empty()) {
            return Err(Failure::Message(format!("there is no site {name}")));
        }
        if self.json {
            return print(serde_json::to_string_pretty(&rows)? + "\n");
        }
        let wide = rows.iter().map(|row| row.name.as_str().len()).max().unwrap_or(0);
        for row in &rows {
            let state = if row.revoked { ", revoked" } else { "" };
            let hops = row.hop_prefix.as_deref().unwrap_or("somewhere");
            let name = row.name.as_str();
            print(format_args!(
                "{name:wide$}  {}{state}, {}, hops in {hops}\n",
                row.role,
                list(&row.networks)
            ))?;
        }
        let Some(name) = &self.site else {
            let serial = fleet.serial().map_or(0, |serial| serial.0);
            let signers = fleet.chain().current().administrators.iter().map(|one| one.name.to_string());
            let signers: Vec<String> = signers.collect();
            return print(format_args!(
                "document {serial}, {}; {} may sign
",
                counted(rows.len()),
                list(&signers)
            ));
        };
        let plan = Plan::of(&fleet, name);
        for peer in &plan.peers {
            let networks: Vec<_> = peer.networks().collect();
            print(format_args!("  peer {}: {}\n", peer.name, list(&networks)))?;
        }
        let without = |what, names: &[Name]| match names {
            [] => Ok(()),
            names => print(format_args!("  {what}: {}\n", list(names))),
        };
        without("not known how they are met", &plan.unmet)?;
        without("no way leads to", &plan.unreachable)
    }
}

/// So many sites, in words.
fn counted(sites: usize) -> String {
    if sites == 1 { "1 site".to_owned() } else { format!("{sites} sites") }
}

/// Show what was done, by whom
///
/// Each record has the digest of the one before: what was changed or left out shows. That the whole log was written anew shows
/// only to who has noted a head elsewhere: the last line of this command, which --noted takes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep control log
  sidestep control log --noted 17:q5Yc…=
  sidestep control log --json | jq -c 'select(.who == \"ada\")'")]
pub(crate) struct LogOptions {
    /// A head that was noted before: number and digest
    #[arg(long, value_name = "NUMBER:DIGEST", value_parser = noted)]
    noted: Option<Head>,
    /// Write a JSON document a line; its fields are stable
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    folder: FolderOption,
}

#[derive(Deserialize)]
struct Log {
    records: Vec<String>,
    head: Option<Head>,
}

fn noted(text: &str) -> Result<Head, String> {
    let parsed = text.split_once(':').and_then(|(number, digest)| {
        Some(Head { number: number.parse().ok()?, digest: digest.parse().ok()? })
    });
    parsed.ok_or_else(|| "take what the last line of `sidestep control log` says: NUMBER:DIGEST".to_owned())
}

impl LogOptions {
    pub(super) fn run(self) -> Result<(), Failure> {
        let folder = Folder::read(&self.folder.dir)?;
        let mut last: Option<Head> = None;
        let mut is_noted = self.noted.is_none();
        loop {
            let from = last.map_or(1, |last| last.number + 1);
            let path = format!("/v1/log?from={from}");
            let Log { records, head } = run(async { Ok(folder.get(&path).await?) })?;
            let is_end = (records.len() as u64) < PAGE;
            for text in records {
                let (records, now) = verify(last, [text.as_str()])?;
                last = now;
                is_noted |= last == self.noted;
                for record in records {
                    if self.json {
                        print(format_args!("{}\n", serde_json::to_string(&record)?))?;
                    } else {
                        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(record.at);
                        let at = humantime::format_rfc3339_seconds(at);
                        let (number, who) = (record.number, record.who.escape_debug().to_string());
                        let what = record.what.to_string();
                        print(format_args!("{number:5}  {at}  {who}: {}\n", what.escape_debug()))?;
                    }
                }
            }
            if is_end {
                if head.is_some_and(|head| last.is_none_or(|last| last.number < head.number)) {
                    return Err(Failure::Message("the log is cut off before its head".to_owned()));
                }
                break;
            }
        }
        if !is_noted {
            let why = "the record that was noted is not in this log: it was written anew since, or cut off";
            return Err(Failure::Message(why.to_owned()));
        }
        match last.filter(|_| !self.json) {
            Some(Head { number, digest }) => print(format_args!("head {number}:{digest}\n")),
            None => Ok(()),
        }
    }
}
