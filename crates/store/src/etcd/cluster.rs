//! The members of a cluster: one is asked, and another one when that does not answer.

use std::error::Error as _;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::messages::{AuthenticateRequest, AuthenticateResponse};
use crate::error::Failure;

/// Between two members.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// The largest answer: a page of the largest values.
const LARGEST: usize = 128 * 1024 * 1024;
/// What is asked most.
pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

pub(super) struct Cluster {
    members: Vec<Member>,
    /// The one that is asked.
    current: AtomicUsize,
    user: Option<AuthenticateRequest>,
    token: Mutex<Option<Token>>,
    /// How long a request may take, at however many members.
    patience: Duration,
}

struct Member {
    endpoint: Endpoint,
    channel: Mutex<Channel>,
}

/// Which member: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(usize);

/// Why a member has not answered a request.
pub(super) enum Miss {
    /// It has not got it.
    NotSent(Status),
    /// It may have.
    Sent(Status),
}

impl Miss {
    pub(super) fn status(self) -> Status {
        match self {
            Self::NotSent(status) | Self::Sent(status) => status,
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.members.iter().map(|member| member.endpoint.uri())).finish()
    }
}

impl Cluster {
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        user: Option<AuthenticateRequest>,
        patience: Duration,
    ) -> Self {
        let each = patience / endpoints.len().clamp(1, 3) as u32;
        let member = |endpoint: Endpoint| {
            let endpoint = endpoint.connect_timeout(each).tcp_nodelay(true);
            let channel = Mutex::new(endpoint.connect_lazy());
            Member { endpoint, channel }
        };
        let members = endpoints.into_iter().map(member).collect();
        Self { members, current: AtomicUsize::new(0), user, token: Mutex::new(None), patience }
    }

    /// How many there are.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// How long a request may take.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// How long one member is waited for, where another one can be asked instead.
    pub(super) fn patience_with_one(&self) -> Duration {
        self.patience / self.members.len().clamp(1, 3) as u32
    }

    /// The member that is asked.
    pub(super) fn current(&self) -> At {
        At(self.current.load(Ordering::Relaxed) % self.members.len())
    }

    /// Another one is asked from now on, unless somebody else has decided that.
    pub(super) fn avoid(&self, At(member): At) {
        let next = (member + 1) % self.members.len();
        let _ = self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks one member after another, for what may be asked twice.
    pub(super) async fn ask<Q, A>(&self, path: &'static str, request: &Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        self.one_after_another(|at, limit| self.ask_at(at, path, request, limit)).await
    }

    /// The same for a request that is one of a stream, of which one answer is wanted.
    pub(super) async fn ask_stream<Q, A>(&self, path: &'static str, request: &Q) -> Result<Option<A>, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let ask = |at, limit| async move {
            let end = Instant::now() + limit;
            let requests = || tokio_stream::once(request.clone());
            let mut answers = self.stream_at(at, path, requests, limit).await?;
            self.until(at, end, answers.message()).await.map_err(Miss::Sent)
        };
        self.one_after_another(ask).await
    }

    async fn one_after_another<A, F>(&self, ask: impl Fn(At, Duration) -> F) -> Result<A, Status>
    where
        F: Future<Output = Result<A, Miss>>,
    {
        let begin = Instant::now();
        loop {
            let at = self.current();
            let left = self.patience.saturating_sub(begin.elapsed());
            let status = match ask(at, left.min(self.patience_with_one())).await {
                Ok(answer) => return Ok(answer),
                Err(miss) => miss.status(),
            };
            if !is_transient(&status) {
                return Err(status);
            }
            self.avoid(at);
            if begin.elapsed() + PAUSE >= self.patience {
                return Err(status);
            }
            sleep(PAUSE).await;
        }
    }

    /// Asks until a member has got it, and waits for its answer: for what must not be asked twice.
    pub(super) async fn ask_once<Q, A>(&self, path: &'static str, request: &Q) -> Result<A, Miss>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let begin = Instant::now();
        loop {
            let member = self.current();
            let left = self.patience.saturating_sub(begin.elapsed());
            let miss = match self.ask_at(member, path, request, left).await {
                Ok(answer) => return Ok(answer),
                Err(miss) => miss,
            };
            match &miss {
                Miss::NotSent(status) if is_transient(status) => self.avoid(member),
                Miss::Sent(status) if is_transient(status) => {
                    self.avoid(member);
                    return Err(miss);
                }
                _ => return Err(miss),
            }
            if begin.elapsed() + PAUSE >= self.patience {
                return Err(miss);
            }
            sleep(PAUSE).await;
        }
    }

    /// Asks one member.
    pub(super) async fn ask_at<Q, A>(
        &self,
        at: At,
        path: &'static str,
        request: &Q,
        limit: Duration,
    ) -> Result<A, Miss>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let call = |token| {
            let (mut client, request) = (self.client(at), with_token(request.clone(), token));
            async move {
                client.ready().await.map_err(|error| Status::from_error(error.into()))?;
                client.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await
            }
        };
        self.authenticated(at, limit, call).await
    }

    /// Opens a stream at one member, and waits until it has begun.
    pub(super) async fn stream_at<S, A>(
        &self,
        at: At,
        path: &'static str,
        requests: impl Fn() -> S + Sync,
        limit: Duration,
    ) -> Result<Streaming<A>, Miss>
    where
        S: Stream<Item: Message + 'static> + Send + 'static,
        A: Message + Default + 'static,
    {
        let call = |token| {
            let (mut client, requests) = (self.client(at), with_token(requests(), token));
            async move {
                client.ready().await.map_err(|error| Status::from_error(error.into()))?;
                let codec = ProstCodec::<S::Item, A>::default();
                client.streaming(requests, PathAndQuery::from_static(path), codec).await
            }
        };
        self.authenticated(at, limit, call).await
    }

    /// Calls with a token, if there is a user; with another one if that is no longer known.
    async fn authenticated<T, F>(
        &self,
        at: At,
        limit: Duration,
        call: impl Fn(Option<Token>) -> F,
    ) -> Result<T, Miss>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let end = Instant::now() + limit;
        loop {
            let token = self.token(at, end).await.map_err(Miss::NotSent)?;
            let status = match self.until(at, end, call(token.clone())).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            match token {
                Some(token) if is_stale(&status) && self.forget(&token) => {}
                _ if never_sent(&status) => return Err(Miss::NotSent(status)),
                _ => return Err(Miss::Sent(status)),
            }
        }
    }

    /// The token of the user, if there is one.
    async fn token(&self, at: At, end: Instant) -> Result<Option<Token>, Status> {
        let known = self.known_token().clone();
        let (Some(user), None) = (&self.user, &known) else { return Ok(known) };
        let (mut client, request) = (self.client(at), Request::new(user.clone()));
        let call = async {
            client.ready().await.map_err(|error| Status::from_error(error.into()))?;
            let codec = ProstCodec::<AuthenticateRequest, AuthenticateResponse>::default();
            client.unary(request, PathAndQuery::from_static(AUTHENTICATE), codec).await
        };
        let answer = self.until(at, end, call).await?.into_inner();
        let token = Token::try_from(answer.token).map_err(|_| Status::internal("a token that is none"))?;
        *self.known_token() = Some(token.clone());
        Ok(Some(token))
    }

    /// Whether a token that was refused is worth another one: each once.
    fn forget(&self, token: &Token) -> bool {
        self.known_token().take_if(|known| known == token).is_some()
    }

    fn known_token(&self) -> MutexGuard<'_, Option<Token>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an answer so long. After that the connection is given up: that to a member which is cut off is of no use for
    /// minutes after the cut is mended.
    async fn until<T>(
        &self,
        At(member): At,
        end: Instant,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        if let Ok(answer) = timeout_at(end, call).await {
            return answer;
        }
        let Member { endpoint, channel } = &self.members[member];
        *channel.lock().unwrap_or_else(PoisonError::into_inner) = endpoint.connect_lazy();
        Err(Status::deadline_exceeded(format!("{} does not answer", endpoint.uri())))
    }

    fn client(&self, At(member): At) -> Grpc<Channel> {
        let channel = self.members[member].channel.lock().unwrap_or_else(PoisonError::into_inner);
        Grpc::new(channel.clone()).max_decoding_message_size(LARGEST)
    }
}

type Token = MetadataValue<Ascii>;

fn with_token<T>(message: T, token: Option<Token>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

/// A token that a member does not know, after its restart or some minutes, or that is older than a change of rights.
fn is_stale(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || status.message().contains("revision of auth store is old")
}

/// There was no connection.
fn never_sent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Whether another member, or the same one later, may answer otherwise.
pub(super) fn is_transient(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unknown
        | Code::Internal
        | Code::Aborted => true,
        Code::ResourceExhausted => status.message().contains("too many requests"),
        _ => false,
    }
}

/// What a refusal means for who asked.
pub(super) fn failure(status: &Status) -> Failure {
    let why = match status.source().and_then(|error| error.source()) {
        // What the connection failed of.
        Some(cause) => format!("{}: {cause}", status.message()),
        None => status.message().to_owned(),
    };
    match status.code() {
        Code::DataLoss => Failure::Broken(why),
        _ if is_transient(status) => Failure::Unreachable(why),
        _ => Failure::Refused(why),
    }
}
