//! Whether what people and sites were told can have happened:
//! - the log is whole, and tells each invitation, application and document that was acknowledged, once;
//! - documents have serials that go up by one, and none that was refused is among them;
//! - each invitation was used by one at the most: by the one who was told so;
//! - sites of acknowledged documents are there, and those that were revoked are;
//! - what sites have said of themselves, and were told that it is kept, is kept;
//! - the serial in the store never goes back, from one answer to any question after it.

use std::collections::BTreeMap;

use controller::log::verify;
use controller::{Controller, What};
use store::Store;

use crate::cluster::Record;
use crate::scene::name;

pub(crate) async fn judge<S: Store>(record: &Record, later: &Controller<S>, texts: &[String]) {
    let (records, head) = verify(None, texts.iter().map(String::as_str)).unwrap();
    assert_eq!(head, later.log_head().await.unwrap());
    let (mut invited, mut applied, mut documents) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut last = 0;
    for one in &records {
        match &one.what {
            What::Invited { site, .. } => {
                *invited.entry(site.as_ref().unwrap().to_string()).or_insert(0) += 1;
            }
            What::Applied { application, .. } => *applied.entry(application.clone()).or_insert(0) += 1,
            What::Published { serial, head, .. } => {
                assert_eq!(serial.0, last + 1, "serials go up by one");
                last = serial.0;
                assert_eq!(documents.insert(*head, serial.0), None, "a document is published once");
            }
            what => panic!("nobody has done that: {what}"),
        }
    }
    assert_eq!(later.serial().unwrap().0, last);

    for who in &record.invited {
        assert_eq!(invited.get(who), Some(&1), "the invitation of {who}");
    }
    let there = later.applications().await.unwrap();
    for (who, told) in &record.applied {
        let used = told.iter().filter(|(_, acknowledged)| *acknowledged).count();
        assert!(used <= 1, "the invitation of {who} was used {used} times");
        for (id, acknowledged) in told {
            let is_there = there.iter().any(|one| one.id == *id);
            assert_eq!(applied.get(id), if is_there { Some(&1) } else { None }, "application {id} of {who}");
            assert_eq!(is_there, *acknowledged, "application {id} of {who}");
        }
    }
    for (head, told) in &record.published {
        if let Some(acknowledged) = told {
            assert_eq!(documents.contains_key(head), *acknowledged, "{head}");
        }
    }
    let fleet = later.fleet();
    for who in &record.added {
        assert!(fleet.site(&name(who)).is_some(), "{who} was let in, and is not there");
    }
    for who in &record.revoked {
        assert!(fleet.site(&name(who)).unwrap().member.is_revoked(), "{who} was taken out, and is there");
    }
    let numbers = fleet.numbers();
    for (who, number) in &record.said {
        let is_revoked = fleet.site(&name(who)).is_some_and(|site| site.member.is_revoked());
        let kept = numbers.get(&name(who)).map_or(0, |numbers| numbers.0);
        assert!(is_revoked || kept >= *number, "what {who} said ({number}) is lost: {kept} is there");
    }
    let mut by_return = record.serials.clone();
    by_return.sort_by_key(|(_, returned, _)| *returned);
    for (at, (_, returned, serial)) in by_return.iter().enumerate() {
        let later = by_return[at..].iter().find(|(called, _, later)| called > returned && later < serial);
        assert_eq!(later, None, "serial {serial}, then a lower one");
    }
    let known = record.published.values().filter(|told| told.is_some()).count();
    eprintln!(
        "{} invitations, {} sites that applied, {} documents ({} acknowledged, {} unknown), {} revocations, {} notices, \
         {} questions for the serial, {} controllers killed, {} records in the log",
        record.invited.len(),
        record.applied.len(),
        record.published.len(),
        record.published.values().filter(|told| **told == Some(true)).count(),
        record.published.len() - known,
        record.revoked.len(),
        record.said.len(),
        record.serials.len(),
        record.kills,
        records.len()
    );
}
