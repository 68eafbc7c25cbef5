//! A store in etcd, version 3.4 or later: several members, any number of clients.
//!
//! A member is asked until it does not answer; then the next one is. What may be asked twice is: a read, a lease. A commit is
//! sent once: after that, nobody but the member that got it knows. A watch goes on at another member after the last change that
//! it has handed out; while nothing changes it asks its member now and then whether that has the others behind it.
//!
//! What etcd's answers do not mean: that a transaction without writes is linearizable (it has to read something for that), that
//! one which was refused for want of space has not happened, that a report of a watch's progress comes after all changes before it
//! (issue 15220 of etcd; it is not asked for).

mod cluster;
mod messages;
mod names;
mod options;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use tonic::Code;

pub use options::{EtcdOptions, EtcdTls};
use watch::EtcdWatch;

use crate::commit::{Commit, Condition, Write};
use crate::error::{CommitError, Failure, LeaseError, ListError, OpenError};
use crate::key::{Key, Prefix};
use crate::limit::LIST_OCTETS;
use crate::revision::{Lease, LeaseId, Revision};
use crate::store::{Entry, Listing, Store};
use cluster::{Cluster, Miss, RANGE, failure, is_transient};
use messages::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseResponse, LeaseRevokeRequest,
    LeaseRevokeResponse, Op, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use names::{Names, broken, header};

const TXN: &str = "/etcdserverpb.KV/Txn";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// Entries that are asked for at a time: 100 of the largest are 100 MiB.
const PAGE: i64 = 100;
/// How often a list begins again that was compacted away between two pages.
const LISTS: usize = 3;

/// A store in etcd. Clones are the same one, and share its connections.
#[derive(Clone, Debug)]
pub struct Etcd {
    cluster: Arc<Cluster>,
    names: Names,
}

impl Etcd {
    /// The store that these options tell of. Nothing is connected before something is asked; so it may be made while etcd is
    /// away. To be called in an executor of tokio, in which its connections live.
    ///
    /// # Errors
    /// If the options cannot be used.
    pub fn new(options: &EtcdOptions) -> Result<Self, OpenError> {
        let cluster = Cluster::new(options.parsed()?, options.authentication(), options.patience);
        Ok(Self { cluster: Arc::new(cluster), names: Names::below(&options.prefix) })
    }

    /// A list, or none if its revision was compacted away before it was whole.
    async fn list_once(&self, prefix: &Prefix) -> Result<Option<Listing>, ListError> {
        let (mut start, end) = self.names.range(prefix);
        let (mut at, mut entries, mut octets) = (None, Vec::new(), 0);
        loop {
            let request = RangeRequest {
                key: start.clone(),
                range_end: end.clone(),
                limit: PAGE,
                revision: at.map_or(0, Revision::signed),
                count_only: false,
            };
            let page: RangeResponse = match self.cluster.ask(RANGE, &request).await {
                // "required revision has been compacted"
                Err(status) if status.code() == Code::OutOfRange && at.is_some() => return Ok(None),
                page => page.map_err(|status| failure(&status))?,
            };
            let revision = match at {
                Some(revision) => revision,
                None => *at.insert(header(page.header)?),
            };
            if let Some(last) = page.kvs.last() {
                start.clone_from(&last.key);
                start.push(0);
            }
            for stored in page.kvs {
                let entry = self.names.entry(stored)?;
                octets += entry.key.as_str().len() + entry.value.len();
                entries.push(entry);
            }
            if octets > LIST_OCTETS {
                return Err(ListError::TooLarge(prefix.to_string()));
            }
            if !page.more {
                return Ok(Some(Listing { entries, revision }));
            }
        }
    }

    fn transaction(&self, commit: &Commit) -> TxnRequest {
        let compare = commit.conditions.iter().map(|(key, condition)| Compare {
            result: 0,
            target: Compare::MOD,
            key: self.names.stored(key),
            mod_revision: Some(match condition {
                Condition::Absent => 0,
                Condition::At(revision) => revision.signed(),
            }),
        });
        let success = commit.writes.iter().map(|(key, write)| {
            let key = self.names.stored(key);
            let op = match write {
                Write::Put { value, lease } => {
                    let lease = lease.map_or(0, LeaseId::signed);
                    Op::Put(PutRequest { key, value: value.clone(), lease })
                }
                Write::Delete => Op::DeleteRange(DeleteRangeRequest { key }),
            };
            RequestOp { request: Some(op) }
        });
        let mut success: Vec<RequestOp> = success.collect();
        if success.is_empty() {
            // etcd takes a transaction of nothing for one that a member may answer by itself, from what it happens to know. With
            // a read in it, which does not say so, it asks the others first.
            let read = RangeRequest { key: self.names.first(), count_only: true, ..RangeRequest::default() };
            success.push(RequestOp { request: Some(Op::Range(read)) });
        }
        TxnRequest { compare: compare.collect(), success }
    }
}

/// Why a commit is not known to have happened.
fn commit_error(miss: Miss) -> CommitError {
    let status = match miss {
        Miss::NotSent(status) => return failure(&status).into(),
        Miss::Sent(status) => status,
    };
    let lease = status.code() == Code::NotFound && status.message().contains("lease not found");
    // The commit that exceeds the quota happens, and is answered like those after it, which do not.
    let quota = status.code() == Code::ResourceExhausted && status.message().contains("space exceeded");
    let busy = status.code() == Code::ResourceExhausted && status.message().contains("too many requests");
    match failure(&status) {
        _ if lease => CommitError::LeaseEnded,
        failure if busy => CommitError::Failed(failure),
        failure if quota || is_transient(&status) => CommitError::Unknown(failure.to_string()),
        failure => CommitError::Failed(failure),
    }
}

/// In etcd's whole seconds, upwards.
fn seconds(time: Duration) -> i64 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX).max(1)
}

fn duration(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

impl Store for Etcd {
    type Watch = EtcdWatch;

    async fn get(&self, key: &Key) -> Result<Option<Entry>, Failure> {
        let request = RangeRequest { key: self.names.stored(key), ..RangeRequest::default() };
        let answer: RangeResponse =
            self.cluster.ask(RANGE, &request).await.map_err(|status| failure(&status))?;
        answer.kvs.into_iter().next().map(|stored| self.names.entry(stored)).transpose()
    }

    async fn list(&self, prefix: &Prefix) -> Result<Listing, ListError> {
        for _ in 0..LISTS {
            if let Some(listing) = self.list_once(prefix).await? {
                return Ok(listing);
            }
        }
        let why = format!("{prefix} was compacted away while it was listed, {LISTS} times");
        Err(Failure::Unreachable(why).into())
    }

    async fn commit(&self, commit: &Commit) -> Result<Revision, CommitError> {
        commit.check()?;
        let answer: TxnResponse =
            self.cluster.ask_once(TXN, &self.transaction(commit)).await.map_err(commit_error)?;
        if answer.succeeded { Ok(header(answer.header)?) } else { Err(CommitError::Conflict) }
    }

    fn watch(&self, prefix: &Prefix, after: Revision) -> EtcdWatch {
        EtcdWatch::new(Arc::clone(&self.cluster), self.names.clone(), prefix.clone(), after)
    }

    async fn grant(&self, time_to_live: Duration) -> Result<Lease, Failure> {
        let request = LeaseGrantRequest { ttl: seconds(time_to_live) };
        let answer: LeaseResponse =
            self.cluster.ask(GRANT, &request).await.map_err(|status| failure(&status))?;
        let id = LeaseId::from_signed(answer.id).ok_or_else(|| broken("etcd granted lease 0"))?;
        Ok(Lease { id, time_to_live: duration(answer.ttl) })
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, LeaseError> {
        let answer: Option<LeaseResponse> = self
            .cluster
            .ask_stream(KEEP_ALIVE, &LeaseKeepAliveRequest { id: lease.signed() })
            .await
            .map_err(|status| failure(&status))?;
        match answer {
            Some(answer) if answer.ttl > 0 => Ok(duration(answer.ttl)),
            _ => Err(LeaseError::Ended),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), Failure> {
        let request = LeaseRevokeRequest { id: lease.signed() };
        match self.cluster.ask::<_, LeaseRevokeResponse>(REVOKE, &request).await {
            Err(status) if status.code() != Code::NotFound => Err(failure(&status)),
            _ => Ok(()),
        }
    }
}
