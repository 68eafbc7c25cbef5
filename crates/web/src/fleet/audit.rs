//! The log as it was verified here: from its first record on, and from then on what follows. What this process has seen of it
//! cannot be written anew without being noticed.

use std::collections::VecDeque;

use controller::Client;
use controller::log::{Head, PAGE, Record, verify};
use fleet::key::Digest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::hearing::{Why, said};

/// Records that are kept to be shown; of those before, their digests.
const KEPT: usize = 1000;

/// What was verified.
#[derive(Default)]
pub(super) struct Audit {
    digests: Vec<Digest>,
    records: VecDeque<Record>,
}

#[derive(Deserialize)]
struct Page {
    records: Vec<String>,
    head: Option<Head>,
}

impl Audit {
    fn last(&self) -> Option<Head> {
        self.digests.last().map(|digest| Head { number: self.digests.len() as u64, digest: *digest })
    }

    /// Verifies what is new.
    pub(super) async fn catch_up(&mut self, client: &Client) -> Result<(), Why> {
        loop {
            let from = self.digests.len() as u64 + 1;
            let Page { records, head } = client.get(&format!("/v1/log?from={from}")).await.map_err(said)?;
            let is_end = (records.len() as u64) < PAGE;
            for text in records {
                let (records, head) =
                    verify(self.last(), [text.as_str()]).map_err(|error| error.to_string())?;
                self.digests.extend(head.map(|head| head.digest));
                self.records.extend(records);
            }
            self.records.drain(..self.records.len().saturating_sub(KEPT));
            if is_end {
                return self.agrees(head);
            }
        }
    }

    /// Whether the controller's last record is the one that was verified, or a later one.
    fn agrees(&self, head: Option<Head>) -> Result<(), Why> {
        let known = self.last().map_or(0, |last| last.number);
        let number = head.map_or(0, |head| head.number);
        if number < known {
            return Err(format!("the log ends with record {number}, and went on to {known}: it was cut off"));
        }
        if head.is_some_and(|head| Some(head) != self.last() && number == known) {
            return Err("the log was written anew since this page has read it".to_owned());
        }
        Ok(())
    }

    /// Whether a head that somebody has noted is in this log.
    pub(super) fn has(&self, noted: &str) -> Result<bool, Why> {
        let parsed = noted.trim().split_once(':').and_then(|(number, digest)| {
            Some((number.parse::<usize>().ok()?.checked_sub(1)?, digest.parse::<Digest>().ok()?))
        });
        let (at, digest) = parsed.ok_or("a noted head is NUMBER:DIGEST")?;
        Ok(self.digests.get(at) == Some(&digest))
    }

    /// The last records, latest first.
    pub(super) fn shown(&self) -> Value {
        let record = |record: &Record| {
            let (number, at, who, what) = (record.number, record.at, &record.who, record.what.to_string());
            json!({ "number": number, "at_s": at, "who": who, "what": what })
        };
        let records: Vec<Value> = self.records.iter().rev().map(record).collect();
        let head = self.last().map(|head| format!("{}:{}", head.number, head.digest));
        json!({ "records": records, "head": head })
    }
}
