//! `sidestep script table`: what is in tables of scripts, read and changed while packets use them.
//!
//! | module | what it is |
//! |---|---|
//! | [`text`] | what is written: lists, values, files |

mod text;

use std::io::{self, Read as _, Write};
use std::path::Path;

use clap::Subcommand;
use control::Ask as _;
use script::compile::shared::Shared;
use script_host::table_protocol::{
    Done, Dump, Entry, Operation, TableForm, TableList, TableName, TableStatus, value_of,
};
use script_host::{Request, table_file};
use serde_json::{Value, json};

use super::client::{ask, meant};
use super::{HostSocket, output};
use crate::failure::Failure;

/// Read and change what is in the tables of scripts, while packets use them
///
/// A table is what a script has made with nf.table, nf.prefixes, nf.counter or nf.flows. Keys and values are of the kinds that
/// the script has declared; a key of several parts is given as several words, and so is a record, a value of several parts.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  sidestep script table list
  sidestep script table set blocked 2001:db8:bad::/48
  sidestep script table get blocked 2001:db8:bad::1
  sidestep script table load blocked blocklist.csv --replace
  sidestep script table dump blocked > blocklist.csv")]
pub(crate) enum TableCommand {
    /// Show the tables of all scripts: kinds, entries, limits
    #[command(after_help = "Examples:\n  sidestep script table list\n  \
                            sidestep script table list --json | jq '.tables[] | {name, entries}'")]
    List {
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostSocket,
    },
    /// Show the value of a key
    ///
    /// Of a set of prefixes and an address, that of the longest prefix that holds it.
    #[command(after_help = "Examples:\n  sidestep script table get seen\n  \
                            sidestep script table get blocked 2001:db8::1\n  \
                            sidestep script table get sessions 192.0.2.1 443\n\n\
                            Exit status: 0 if there is one, 1 if not.")]
    Get {
        #[command(flatten)]
        table: TableArguments,
        /// The parts of the key; a counter has none
        #[arg(allow_negative_numbers = true)]
        key: Vec<String>,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
    },
    /// Write an entry, or change it
    #[command(after_help = "Examples:\n  sidestep script table set seen 0\n  \
                            sidestep script table set blocked 2001:db8:bad::/48\n  \
                            sidestep script table set sessions 192.0.2.1 443 7\n  \
                            sidestep script table set traffic 2001:db8::1 12 3400")]
    Set {
        #[command(flatten)]
        table: TableArguments,
        /// The parts of the key, and those of the value; that of a prefix may be left out, and is 1
        #[arg(required = true, allow_negative_numbers = true, value_name = "KEY|VALUE")]
        entry: Vec<String>,
    },
    /// Forget an entry, or all
    #[command(after_help = "Examples:\n  sidestep script table delete blocked 2001:db8:bad::/48\n  \
                            sidestep script table delete blocked --all\n\n\
                            Exit status: 0 if it was there, 1 if not.")]
    Delete {
        #[command(flatten)]
        table: TableArguments,
        /// The parts of the key
        #[arg(allow_negative_numbers = true)]
        key: Vec<String>,
        /// All entries
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
    /// Write the entries of a file into a table: all, or none if one is wrong or there is no room
    ///
    /// The file is JSON, a list of {"key": …, "value": …}, or CSV, a line for each entry, with the parts of its key and its
    /// value: what `dump` writes. Of a set of prefixes the value may be left out, and is 1. Of several entries with one key the
    /// last counts. In CSV a line that begins with # is a comment.
    #[command(after_help = "Examples:\n  sidestep script table load blocked blocklist.csv\n  \
                            sidestep script table load blocked blocklist.json --replace\n  \
                            curl -s https://example.net/list | sidestep script table load blocked - --replace")]
    Load {
        #[command(flatten)]
        table: TableArguments,
        /// The file; - for standard input
        #[arg(value_name = "FILE")]
        file: std::path::PathBuf,
        /// The table becomes what the file is: other entries go, and none that stays is missing for a moment
        #[arg(long)]
        replace: bool,
    },
    /// Write all entries, as CSV or JSON, in the order of their keys
    #[command(after_help = "Examples:\n  sidestep script table dump blocked\n  \
                            sidestep script table dump sessions --json | jq 'map(select(.value > 100))'")]
    Dump {
        #[command(flatten)]
        table: TableArguments,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}

/// Which table.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TableArguments {
    /// Its name in the script
    name: String,
    /// A script that uses it, by its number in the list or its file, where several have one of this name
    #[arg(long, value_name = "ID|FILE")]
    script: Option<String>,
    #[command(flatten)]
    host: HostSocket,
}

impl TableCommand {
    /// Runs the command.
    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::List { json, host } => {
                let list: TableList = ask(&host.path()?, &Request::Tables)?;
                let text = if json { pretty(&list)? } else { text::list(&list) };
                output(out.write_all(text.as_bytes()))
            }
            Self::Get { table, key, json } => {
                let asked = key.join(" ");
                let found = table.ask(Operation::Get { key: words(key) })?;
                let Some::<Entry>(entry) = found else { return Err(table.has_no(&asked)) };
                let text =
                    if json { pretty(&table_file::entry(&entry))? } else { text::value(&entry, &asked) };
                output(out.write_all(text.as_bytes()))
            }
            Self::Set { table, entry } => {
                let status = table.status()?;
                let mut key = words(entry);
                let value = match status.form {
                    TableForm::Prefixes if key.len() == 1 => json!(1),
                    _ if key.len() > status.key.len() => value_of(key.split_off(status.key.len())),
                    _ => {
                        let (name, key, value) = (&table.name, &status.key, status.value.all());
                        let parts = [key, value].concat().join(" ");
                        return Err(Failure::Message(format!(
                            "{name}: give {parts}, the key and then the value"
                        )));
                    }
                };
                let entries = vec![Entry { key, value }];
                table.tell(table.ask(Operation::Put { entries, replace: false })?, out)
            }
            Self::Delete { table, key, all } => {
                let asked = key.join(" ");
                let operation = if all { Operation::Clear } else { Operation::Delete { key: words(key) } };
                let done: Done = table.ask(operation)?;
                if done.removed == 0 && !all {
                    return Err(table.has_no(&asked));
                }
                table.tell(done, out)
            }
            Self::Load { table, file, replace } => table.load(&file, replace, out),
            Self::Dump { table, json } => {
                let dump: Dump = table.ask(Operation::Dump)?;
                let text = if json {
                    table_file::json(&dump.entries)?
                } else {
                    table_file::csv(&shared(&dump.table)?, &dump.entries)?
                };
                output(out.write_all(&text))
            }
        }
    }
}

impl TableArguments {
    fn table(&self) -> TableName {
        TableName { name: self.name.clone(), script: self.script.as_deref().map(meant) }
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, operation: Operation) -> Result<T, Failure> {
        ask(&self.host.path()?, &Request::Table { table: self.table(), operation })
    }

    /// What the script has declared.
    fn status(&self) -> Result<TableStatus, Failure> {
        self.ask(Operation::Describe)
    }

    fn has_no(&self, key: &str) -> Failure {
        Failure::Message(format!("{}: there is no entry {key:?}", self.name))
    }

    fn tell(&self, done: Done, out: &mut dyn Write) -> Result<(), Failure> {
        output(writeln!(out, "{}: {}", self.name, text::done(done)))
    }

    fn load(&self, file: &Path, replace: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let about = |error: io::Error| Failure::Message(format!("{}: {error}", file.display()));
        let (name, octets) = if file == Path::new("-") {
            let mut octets = Vec::new();
            io::stdin().lock().read_to_end(&mut octets).map_err(about)?;
            ("standard input".to_owned(), octets)
        } else {
            (file.display().to_string(), std::fs::read(file).map_err(about)?)
        };
        let entries = table_file::read(&shared(&self.status()?)?, &octets)
            .map_err(|wrong| Failure::Message(format!("{name}:{wrong}\nnothing was changed")))?;
        let request = Request::Table { table: self.table(), operation: Operation::Put { entries, replace } };
        let mut length = Length(0);
        serde_json::to_writer(&mut length, &request)?;
        if length.0 >= Request::LONGEST {
            let most = Request::LONGEST >> 20;
            return Err(Failure::Message(format!(
                "{name}: too much for one request ({most} MiB): load it in parts, without --replace"
            )));
        }
        self.tell(ask(&self.host.path()?, &request)?, out)
    }
}

fn shared(status: &TableStatus) -> Result<Shared, Failure> {
    let another = || Failure::Message("another version of sidestep runs the scripts".to_owned());
    status.shared().ok_or_else(another)
}

fn words(words: Vec<String>) -> Vec<Value> {
    words.into_iter().map(Value::String).collect()
}

fn pretty(value: &impl serde::Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// How long what is written is.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
