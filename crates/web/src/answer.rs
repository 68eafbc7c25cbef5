//! Requests and answers. All of them only read, but those that hand something to a fleet's controllers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, HeaderName, HeaderValue,
    LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use crate::collect::Collected;
use crate::files;
use crate::fleet::{CALLBACK, Desk, People};
use crate::place::Names;
use crate::token::Token;

/// What a page may do: show what comes from here, and nothing else. Scripts and styles are files; none stand in a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// On each answer.
const FIELDS: [(HeaderName, &str); 8] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    (CACHE_CONTROL, "no-store"),
];

/// Octets of what may be sent: a draft of thousands of sites.
const LARGEST: usize = 32 * 1024 * 1024;
/// How long that may take.
const SENDING_TIME: Duration = Duration::from_secs(60);

/// What changes something is sent to a path below this one.
const CHANGES: &str = "/api/fleet/";

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// What is answered with.
pub(crate) type Answer = Response<Content>;

/// What is served, to whom, under which names.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) listen: SocketAddr,
    pub(crate) collected: Arc<Collected>,
    pub(crate) token: Token,
    pub(crate) names: Names,
    pub(crate) encrypted: bool,
    /// Who asks about the fleet, if the page is to be about one.
    pub(crate) people: Option<People>,
}

impl Site {
    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (request, body) = request.into_parts();
        let is_known = self.knows(&request);
        let mut answer = match self.refuse(&request) {
            Some(refused) => refused,
            None => match self.people.as_ref().filter(|_| is_known && request.method == Method::POST) {
                Some(people) => change(people, &request, body).await,
                None => self.route(&request, is_known).await,
            },
        };
        let fields = answer.headers_mut();
        for (name, value) in FIELDS {
            fields.insert(name, HeaderValue::from_static(value));
        }
        // Who has not shown the token keeps no place that others wait for.
        if !is_known {
            fields.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    /// Whether somebody who has shown the token asks.
    fn knows(&self, request: &Parts) -> bool {
        self.token.is_in(&cookies(request))
    }

    /// What is not even looked at: for another name, or from another site's page.
    fn refuse(&self, request: &Parts) -> Option<Answer> {
        let field = |name: HeaderName| request.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        if !field(HOST).is_some_and(|host| self.names.has(host)) {
            let why = "this page has another name: start it with --name, if it is to answer to this one\n";
            return Some(text(StatusCode::MISDIRECTED_REQUEST, why));
        }
        let is_ours =
            |origin: &str| origin.split_once("://").is_some_and(|(_, host)| field(HOST) == Some(host));
        // From the identity provider a browser is sent here by another site's page; it shows that it was sent there from here.
        let comes_back = self.people.is_some() && request.uri.path() == CALLBACK;
        let is_other = field(ORIGIN).is_some_and(|origin| !is_ours(origin));
        let kind = field(HeaderName::from_static("sec-fetch-site"));
        let from_elsewhere = !comes_back && (is_other || matches!(kind, Some("cross-site" | "same-site")));
        if from_elsewhere {
            return Some(text(StatusCode::FORBIDDEN, "not from another site's page\n"));
        }
        // A form of another site could be sent here by a browser that tells no origin; nobody's can be JSON.
        let is_json = field(CONTENT_TYPE).is_some_and(|kind| kind == JSON);
        let may_change = self.people.is_some() && self.knows(request) && field(ORIGIN).is_some() && is_json;
        let is_change = request.method == Method::POST && request.uri.path().starts_with(CHANGES);
        (request.method != Method::GET && !(is_change && may_change))
            .then(|| text(StatusCode::METHOD_NOT_ALLOWED, "this page only shows\n"))
    }

    async fn route(&self, request: &Parts, is_known: bool) -> Answer {
        let path = request.uri.path();
        let query = |name: &str| {
            let pairs = form_urlencoded::parse(request.uri.query().unwrap_or("").as_bytes());
            pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        if path == "/login" {
            return self.log_in(query("token").as_deref().unwrap_or(""));
        }
        if let Some(people) = self.people.as_ref().filter(|_| path == CALLBACK) {
            return come_back(people, request, &query).await;
        }
        if let Some(file) = files::find(path).filter(|file| is_known || file.is_for_all) {
            return content(StatusCode::OK, file.kind, Bytes::from_static(file.octets));
        }
        if !is_known {
            return content(StatusCode::UNAUTHORIZED, HTML, Bytes::from_static(files::LOGIN));
        }
        let name = |field| query(field).unwrap_or_default();
        match path {
            "/api/feed" => match self.collected.listen(self.people.is_some()) {
                Some(messages) => respond(StatusCode::OK, "text/event-stream", Content::Feed(messages)),
                None => text(StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n"),
            },
            "/api/peer" => found(self.collected.peer(&name("tunnel"), &name("peer"))),
            "/api/history" => {
                let (tunnel, peer) = (name("tunnel"), query("peer"));
                let is_long = query("tier").as_deref() == Some("hours");
                let past = move |collected: &Collected| collected.past(&tunnel, peer.as_deref(), is_long);
                self.ask(past).await
            }
            "/api/explain" => {
                let (gateway, packet) = (name("gateway"), name("packet"));
                self.ask(move |collected| collected.explain(&gateway, packet)).await
            }
            "/api/script" => {
                let (host, id) = (name("host"), name("id").parse().unwrap_or(0));
                self.ask(move |collected| collected.script(&host, id)).await
            }
            path => match (&self.people, path.strip_prefix("/api/fleet")) {
                (Some(people), _) if path == "/fleet/login" => {
                    begin_login(people, request, self.encrypted).await
                }
                (Some(people), Some(path)) => {
                    about_fleet(&people.desk(&cookies(request)), path, &query).await
                }
                _ => no_such_page(),
            },
        }
    }

    /// What takes a while is asked for beside the answers to others. Why it cannot be had is said in words.
    async fn ask<E: std::fmt::Display + Send + 'static>(
        &self,
        question: impl FnOnce(&Collected) -> Result<Value, E> + Send + 'static,
    ) -> Answer {
        let collected = Arc::clone(&self.collected);
        match tokio::task::spawn_blocking(move || question(&collected)).await {
            Ok(result) => said(result),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        }
    }

    fn log_in(&self, offered: &str) -> Answer {
        if !self.token.is(offered) {
            return content(StatusCode::UNAUTHORIZED, HTML, Bytes::from_static(files::LOGIN));
        }
        let mut answer = text(StatusCode::SEE_OTHER, "");
        answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
        if let Ok(cookie) = HeaderValue::from_str(&self.token.set_cookie(self.encrypted)) {
            answer.headers_mut().insert(SET_COOKIE, cookie);
        }
        answer
    }
}

/// What the page asks of a fleet.
async fn about_fleet(desk: &Desk, path: &str, query: &(impl Fn(&str) -> Option<String> + Sync)) -> Answer {
    let name = |field| query(field).unwrap_or_default();
    match path {
        "" => said(desk.overview().await),
        "/site" => said(desk.site(name("name")).await),
        "/explain" => said(desk.explain(name("from"), name("to")).await),
        "/rules" => said(desk.rules().await),
        "/applications" => said(desk.applications().await),
        "/log" => said(desk.log(query("noted")).await),
        _ => no_such_page(),
    }
}

/// To the identity provider's page.
async fn begin_login(people: &People, request: &Parts, encrypted: bool) -> Answer {
    let host = request.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let scheme = if encrypted { "https" } else { "http" };
    let (url, cookie) = match people.begin(&format!("{scheme}://{host}")).await {
        Ok(begun) => begun,
        Err(why) => return text(StatusCode::BAD_GATEWAY, &format!("{why}\n")),
    };
    let (Ok(url), Ok(cookie)) = (HeaderValue::from_str(&url), HeaderValue::from_str(&cookie)) else {
        return text(StatusCode::BAD_GATEWAY, "the identity provider's address is none\n");
    };
    let mut answer = text(StatusCode::SEE_OTHER, "");
    answer.headers_mut().insert(LOCATION, url);
    answer.headers_mut().insert(SET_COOKIE, cookie);
    answer
}

/// Back from there. What is answered leads on by itself: only to what the page itself asks for is its strict cookie sent.
async fn come_back(
    people: &People,
    request: &Parts,
    query: &(impl Fn(&str) -> Option<String> + Sync),
) -> Answer {
    let name = |field| query(field).unwrap_or_default();
    if query("code").is_none() {
        let why = "the identity provider has let nobody in: go back to the page, and look there\n";
        return text(StatusCode::FORBIDDEN, why);
    }
    match people.finish(&cookies(request), &name("state"), &name("code")).await {
        Ok(cookie) => {
            let mut answer = content(StatusCode::OK, HTML, Bytes::from_static(files::RETURNED));
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                answer.headers_mut().insert(SET_COOKIE, cookie);
            }
            answer
        }
        Err(why) => text(StatusCode::FORBIDDEN, &format!("{why}\n")),
    }
}

/// All cookies that a browser sends.
fn cookies(request: &Parts) -> String {
    let fields = request.headers.get_all(COOKIE).iter().filter_map(|cookie| cookie.to_str().ok());
    fields.collect::<Vec<_>>().join("; ")
}

/// What is sent to change something: one after the other, as each may be large.
async fn change(people: &People, request: &Parts, body: Incoming) -> Answer {
    let path = request.uri.path().strip_prefix(CHANGES).unwrap_or_default();
    let cookies = cookies(request);
    if path == "log-out" {
        return said(people.log_out(&cookies).await.map(|()| serde_json::json!({})));
    }
    let desk = people.desk(&cookies);
    let Some(_alone) = desk.alone().await else { return no_such_page() };
    let sent = match tokio::time::timeout(SENDING_TIME, Limited::new(body, LARGEST).collect()).await {
        Ok(Ok(sent)) => sent.to_bytes(),
        Ok(Err(error)) => return text(StatusCode::PAYLOAD_TOO_LARGE, &format!("{error}\n")),
        Err(_) => return text(StatusCode::REQUEST_TIMEOUT, "it took too long to come\n"),
    };
    desk.change(path, &sent).await.map_or_else(no_such_page, said)
}

/// A document, or in words why there is none.
fn said<E: std::fmt::Display>(result: Result<Value, E>) -> Answer {
    match result {
        Ok(document) => json(&document),
        Err(why) => json(&serde_json::json!({ "error": why.to_string() })),
    }
}

fn no_such_page() -> Answer {
    text(StatusCode::NOT_FOUND, "there is no such page\n")
}

/// What an answer consists of.
#[derive(Debug)]
pub(crate) enum Content {
    /// Octets, until they are taken.
    Whole(Option<Bytes>),
    /// Messages, for as long as there are some.
    Feed(Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Content::Whole(octets) => Poll::Ready(octets.take().map(|octets| Ok(Frame::data(octets)))),
            Content::Feed(messages) => {
                messages.poll_recv(context).map(|message| message.map(|message| Ok(Frame::data(message))))
            }
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Content::Whole(octets) => {
                hyper::body::SizeHint::with_exact(octets.as_ref().map_or(0, |octets| octets.len() as u64))
            }
            Content::Feed(_) => hyper::body::SizeHint::default(),
        }
    }
}

fn found(document: Option<Value>) -> Answer {
    document.map_or_else(
        || text(StatusCode::NOT_FOUND, "there is none of this name\n"),
        |document| json(&document),
    )
}

fn json(document: &Value) -> Answer {
    content(StatusCode::OK, JSON, Bytes::from(document.to_string()))
}

fn text(status: StatusCode, text: &str) -> Answer {
    content(status, TEXT, Bytes::copy_from_slice(text.as_bytes()))
}

fn content(status: StatusCode, kind: &'static str, octets: Bytes) -> Answer {
    respond(status, kind, Content::Whole(Some(octets)))
}

fn respond(status: StatusCode, kind: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
