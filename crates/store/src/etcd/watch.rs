//! A watch of etcd, which goes on at another member when one is lost.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::{sleep, timeout};
use tonic::{Status, Streaming};

use super::cluster::{At, Cluster, Miss, PAUSE, RANGE, failure};
use super::messages::{Event, RangeRequest, RangeResponse, WatchCreate, WatchRequest, WatchResponse};
use super::names::{Names, broken, header, revision};
use crate::error::{Failure, WatchError};
use crate::key::Prefix;
use crate::revision::Revision;
use crate::store::{Change, Changes, Watch};

const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// A watch of a store in etcd.
pub struct EtcdWatch {
    cluster: Arc<Cluster>,
    names: Names,
    prefix: Prefix,
    /// What was received up to this is handed out or in `waiting`.
    after: Revision,
    waiting: VecDeque<Changes>,
    stream: Option<(At, Streaming<WatchResponse>)>,
    /// It cannot go on.
    compacted: bool,
}

impl std::fmt::Debug for EtcdWatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "EtcdWatch of {} after {}", self.prefix, self.after)
    }
}

impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Changes, WatchError> {
        loop {
            if let Some(changes) = self.waiting.pop_front() {
                return Ok(changes);
            }
            if self.compacted {
                return Err(WatchError::Compacted(self.after));
            }
            let Some((at, stream)) = &mut self.stream else {
                self.open().await?;
                continue;
            };
            let at = *at;
            match timeout(self.cluster.patience(), stream.message()).await {
                Ok(Ok(Some(response))) => self.take(response)?,
                Ok(Ok(None) | Err(_)) => {
                    self.leave(at);
                    sleep(PAUSE).await;
                }
                // Nothing has happened, or the member is cut off and does not know of it.
                Err(_) => {
                    if self.ask(at).await.is_err() {
                        self.leave(at);
                    }
                }
            }
        }
    }
}

impl EtcdWatch {
    pub(super) fn new(cluster: Arc<Cluster>, names: Names, prefix: Prefix, after: Revision) -> Self {
        Self { cluster, names, prefix, after, waiting: VecDeque::new(), stream: None, compacted: false }
    }

    fn leave(&mut self, at: At) {
        self.stream = None;
        self.cluster.avoid(at);
    }

    /// Opens the stream at one of the members: the first that has the others behind it.
    async fn open(&mut self) -> Result<(), WatchError> {
        let mut last = None;
        for _ in 0..self.cluster.members() {
            let at = self.cluster.current();
            match self.open_at(at).await {
                Ok(Some(stream)) => {
                    self.stream = Some((at, stream));
                    return Ok(());
                }
                Ok(None) => {
                    self.compacted = true;
                    return Ok(());
                }
                Err(status) => {
                    self.cluster.avoid(at);
                    last = Some(status);
                    sleep(PAUSE).await;
                }
            }
        }
        let why = last
            .map_or_else(|| Failure::Unreachable("it has no members".to_owned()), |status| failure(&status));
        Err(why.into())
    }

    /// The stream, or none if the store has never had the revision after which it should begin.
    async fn open_at(&self, at: At) -> Result<Option<Streaming<WatchResponse>>, Status> {
        if self.ask(at).await? < self.after {
            return Ok(None);
        }
        let (key, range_end) = self.names.range(&self.prefix);
        let create = WatchCreate { key, range_end, start_revision: self.after.signed() + 1 };
        // A stream that ends would end the watch.
        let requests = || {
            use tokio_stream::StreamExt as _;
            tokio_stream::once(WatchRequest { create: Some(create.clone()) }).chain(tokio_stream::pending())
        };
        let cluster = &self.cluster;
        let limit = cluster.patience_with_one();
        Ok(Some(cluster.stream_at(at, WATCH, requests, limit).await.map_err(Miss::status)?))
    }

    /// The store's revision, from this member, which has to ask the others for that.
    async fn ask(&self, at: At) -> Result<Revision, Status> {
        let (key, range_end) = self.names.range(&self.prefix);
        let request = RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
        let cluster = &self.cluster;
        let answer: Result<RangeResponse, _> =
            cluster.ask_at(at, RANGE, &request, cluster.patience_with_one()).await;
        let answer = answer.map_err(Miss::status)?;
        header(answer.header).map_err(|error| Status::internal(error.to_string()))
    }

    /// Takes in what a member has sent: whole commits, which etcd does not divide unless it is asked to.
    fn take(&mut self, response: WatchResponse) -> Result<(), WatchError> {
        if response.canceled {
            self.stream = None;
            if response.compact_revision > 0 {
                self.compacted = true;
                return Ok(());
            }
            return Err(Failure::Refused(response.cancel_reason).into());
        }
        for event in response.events {
            let stored = event.kv.ok_or_else(|| broken("etcd sent a change of nothing"))?;
            let at = revision(stored.mod_revision)?;
            let change = if event.kind == Event::DELETE {
                Change::Deleted(self.names.key(&stored.key)?)
            } else {
                Change::Put(self.names.entry(stored)?)
            };
            match self.waiting.back_mut() {
                Some(changes) if changes.revision == at => changes.changes.push(change),
                _ if at > self.after => {
                    self.after = at;
                    self.waiting.push_back(Changes { revision: at, changes: vec![change] });
                }
                // Not again.
                _ => {}
            }
        }
        Ok(())
    }
}
